/** The curves of a comparison: a line a side, groups as their mean with a band, and the difference from the baseline.
 *
 * In:   the comparison, which run is which key, the sides' colours.
 * Out:  charts.
 */

import { useEffect, useMemo, useState } from "preact/hooks";
import { groupKey, setGroup } from "../api/groups.ts";
import { announce } from "../api/live.ts";
import type { Axis } from "../api/values.ts";
import type { Key } from "../api/types.ts";
import { Chart } from "../chart/chart.tsx";
import type { Line } from "../chart/control.ts";
import type { Group } from "../chart/group.ts";
import { ChartToolbar, useSettings } from "../chart/toolbar.tsx";
import { unitOf } from "../chart/units.ts";
import { Lazy } from "../chart/lazy.tsx";
import { BandChart, type BandLine } from "./drawing.tsx";
import { count } from "../shell/text.ts";
import { letter } from "./reckon.ts";
import type { Comparison } from "../api/types.ts";

interface Props {
  made: Comparison;
  /** A list of keys a side. */
  keys: Key[][];
  colours: readonly string[];
  metric: string;
  group: Group;
}

const MOST_GROUPED = 60; // beyond, the means alone are legible

/** `time` of a comparison is time since the start. */
export const chartAxis = (axis: string | null): Axis =>
  axis === "time" ? "relative" : axis === "flops" || !axis ? "step" : axis;

/** A line a side: its run, or the mean of its runs with their deviation as a band. */
function useSides({ made, keys, colours }: Pick<Props, "made" | "keys" | "colours">): Omit<Line, "name">[] {
  return useMemo(
    () =>
      keys.flatMap((side, at): Omit<Line, "name">[] => {
        const label = `${letter(at)} ${made.sides[at]?.label ?? ""}`;
        const colour = colours[at] ?? "#888888";
        if (side.length < 2) return side.map((run) => ({ run, label, colour }));
        const run = groupKey(`compared ${label}`);
        if (setGroup(run, side, [])) setTimeout(() => announce(run), 0);
        return [{ run, label: `${label} (${count(side.length, "run")})`, colour, interval: true }];
      }),
    [made, keys.flat().join(" "), colours.join(" ")],
  );
}

export function Curves(props: Props) {
  const { made, keys, colours, metric, group } = props;
  const { x } = useSettings(group);
  const grouped = keys.some((side) => side.length > 1);
  const sides = useSides(props);
  const lines = useMemo(() => sides.map((side) => ({ ...side, name: metric })), [sides, metric]);
  const members = useMemo(
    () =>
      keys.flatMap((side, at) =>
        side.map((run, place) => ({
          run,
          name: metric,
          label: `${letter(at)} ${made.sides[at]?.runs[place]?.name ?? ""}`,
          colour: colours[at] ?? "#888888",
          dim: true,
        })),
      ),
    [sides, metric],
  );
  return (
    <div class="curves">
      <div class="charts-bar">
        <ChartToolbar group={group} expressions={false} axisLabel="x-axis of the charts" />
      </div>
      <Chart
        series={lines}
        x={x}
        group={group}
        title={metric}
        unit={grouped ? "mean and standard deviation of each group" : ""}
        height={320}
      />
      {grouped && members.length <= MOST_GROUPED && (
        <Chart series={members} x={x} group={group} title={metric} unit="each run" height={260} />
      )}
      <DifferenceCurves made={made} colours={colours} />
    </div>
  );
}

const FIRST_METRICS = 12;
const SMALL = 170;

/** All other metrics that the sides have in common, each in a small chart that is read when it comes into sight. */
export function OtherMetrics(props: Omit<Props, "metric"> & { names: readonly string[] }) {
  const { names, group } = props;
  const { x } = useSettings(group);
  const sides = useSides(props);
  const [most, setMost] = useState(FIRST_METRICS);
  if (names.length === 0) return null;
  return (
    <section class="panel block">
      <h2>Other metrics</h2>
      <div class="small-multiples">
        {names.slice(0, most).map((name) => (
          <Lazy key={name} height={SMALL + 44}>
            <Small name={name} sides={sides} x={x} group={group} />
          </Lazy>
        ))}
      </div>
      {names.length > most && (
        <p class="buttons">
          <button type="button" class="button" onClick={() => setMost(names.length)}>
            {names.length - most} more
          </button>
        </p>
      )}
    </section>
  );
}

interface SmallProps {
  name: string;
  sides: readonly Omit<Line, "name">[];
  x: Axis;
  group: Group;
}

function Small({ name, sides, x, group }: SmallProps) {
  const lines = useMemo(() => sides.map((side) => ({ ...side, name })), [sides, name]);
  return <Chart series={lines} x={x} group={group} title={name} height={SMALL} legend={false} />;
}

const FEW_DIFFERENCES = 5; // with more bands over each other none can be read

/** The difference of each side from the baseline: of many sides the best ones at first. */
function DifferenceCurves({ made, colours }: { made: Comparison; colours: readonly string[] }) {
  const all = useMemo(() => differences(made, colours), [made, colours.join(" ")]);
  const order = (made.ranking?.ranks ?? []).map((rank) => rank.side);
  const first = [...all].sort((a, b) => order.indexOf(a.side) - order.indexOf(b.side)).slice(0, FEW_DIFFERENCES);
  const [picked, setPicked] = useState<ReadonlySet<number> | null>(null);
  useEffect(() => setPicked(null), [made]);
  const shown = picked ?? new Set(first.map((line) => line.side));
  const lines = useMemo(() => all.filter((line) => shown.has(line.side)), [all, [...shown].join(" ")]);
  if (all.length === 0) return null;
  const baseline = made.contrasts[0]?.baseline ?? 0;
  const banded = lines.some((line) => line.low);
  const toggle = (side: number): void => {
    const next = new Set(shown);
    if (!next.delete(side)) next.add(side);
    setPicked(next);
  };
  return (
    <div>
      <BandChart
        title={`${made.metric ?? "the metric"}: difference from ${letter(baseline)}${banded ? ", with its interval" : ""}`}
        lines={lines}
        x={chartAxis(made.axis)}
        unit={unitOf([made.metric ?? ""])}
        zero
        height={220}
      />
      {all.length > FEW_DIFFERENCES && (
        <div class="buttons" role="group" aria-label="Differences that are drawn">
          {all.map(({ side, label, colour }) => (
            <button
              key={side}
              type="button"
              class="button"
              title={label}
              aria-pressed={shown.has(side)}
              onClick={() => toggle(side)}
            >
              <i class="key" style={{ color: colour }} /> {letter(side)}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

interface Difference extends BandLine {
  side: number;
}

function differences(made: Comparison, colours: readonly string[]): Difference[] {
  const numbers = (values: (number | null)[]): Float64Array => Float64Array.from(values, (value) => value ?? NaN);
  return made.contrasts.flatMap(({ curve, side }): Difference[] => {
    if (!curve || curve.x.length < 2) return [];
    const known = curve.low.some((value) => value !== null);
    return [
      {
        side,
        label: `${letter(side)} ${made.sides[side]?.label ?? ""}`,
        colour: colours[side] ?? "#888888",
        x: numbers(curve.x),
        y: numbers(curve.difference),
        ...(known ? { low: numbers(curve.low), high: numbers(curve.high) } : {}),
      },
    ];
  });
}
