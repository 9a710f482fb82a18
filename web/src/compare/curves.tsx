/** The curves of a comparison: run by run, groups as bands, and the difference from the baseline.
 *
 * In:   the comparison, which run is which key, the sides' colours.
 * Out:  charts.
 */

import { useEffect, useMemo, useState } from "preact/hooks";
import { getSeries } from "../api/client.ts";
import type { Axis } from "../api/values.ts";
import type { Key } from "../api/types.ts";
import { Chart } from "../chart/chart.tsx";
import { useChartGroup } from "../chart/choice.ts";
import { ChartToolbar, useSettings } from "../chart/toolbar.tsx";
import { Lazy } from "../chart/lazy.tsx";
import { BandChart, type BandLine } from "./drawing.tsx";
import { band, letter, onGrid } from "./reckon.ts";
import type { Comparison } from "../api/types.ts";

interface Props {
  made: Comparison;
  /** A list of keys a side. */
  keys: Key[][];
  colours: readonly string[];
  metric: string;
  x: Axis;
  query: URLSearchParams;
}

const BUCKETS = 400; // wider than any screen shows of a band
const MOST_GROUPED = 60; // beyond, the bands alone are legible

/** `time` of a comparison is time since the start. */
export const chartAxis = (axis: string | null): Axis =>
  axis === "time" ? "relative" : axis === "flops" || !axis ? "step" : axis;

export function Curves({ made, keys, colours, metric, x: compared, query }: Props) {
  const group = useChartGroup(query, "compare", { name: "along", axis: compared });
  const { x, smooth } = useSettings(group);
  const grouped = keys.some((side) => side.length > 1);
  const runs = keys.flat();
  const series = useMemo(
    () =>
      keys.flatMap((side, at) =>
        side.map((run, place) => ({
          run,
          name: metric,
          label:
            side.length > 1
              ? `${letter(at)} ${made.sides[at]?.runs[place]?.name ?? ""}`
              : `${letter(at)} ${made.sides[at]?.label ?? ""}`,
          colour: colours[at] ?? "#888888",
          dim: grouped && side.length > 1,
        })),
      ),
    [runs.join(" "), colours.join(" "), metric],
  );
  return (
    <div class="curves">
      <div class="charts-bar">
        <ChartToolbar group={group} expressions={false} axisLabel="Drawn over" />
      </div>
      {grouped && <Groups made={made} keys={keys} colours={colours} metric={metric} x={x} smooth={smooth} />}
      {(!grouped || runs.length <= MOST_GROUPED) && (
        <Chart series={series} x={x} group={group} title={metric} height={grouped ? 260 : 320} />
      )}
      <DifferenceCurves made={made} colours={colours} />
    </div>
  );
}

const FIRST_METRICS = 12;
const SMALL = 170;

/** All other metrics that the sides have in common, each in a small chart that is read when it comes into sight. */
export function OtherMetrics({ names, query, ...rest }: Omit<Props, "metric"> & { names: readonly string[] }) {
  const smooth = query.get("smooth") ?? "0";
  const [most, setMost] = useState(FIRST_METRICS);
  if (names.length === 0) return null;
  return (
    <section class="panel block">
      <h2>Other metrics</h2>
      <div class="small-multiples">
        {names.slice(0, most).map((name) => (
          <Lazy key={name} height={SMALL + 44}>
            <Groups {...rest} metric={name} smooth={smooth} small />
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

/** Each group's mean, with its smallest and largest as a band. */
function Groups({
  made,
  keys,
  colours,
  metric,
  x,
  smooth,
  small = false,
}: Omit<Props, "query"> & { smooth: string; small?: boolean }) {
  const [found, set] = useState<{ lines: BandLine[]; error: string | null }>({ lines: [], error: null });
  const runs = keys.flat();
  useEffect(() => {
    const stop = new AbortController();
    getSeries(
      {
        series: runs.map((run) => ({ run, name: metric })),
        x,
        from: null,
        to: null,
        buckets: BUCKETS,
        branch: "live",
        smooth: smooth || 0,
      },
      stop.signal,
    )
      .then((frame) => {
        const curves = frame.header.series.map(({ columns, error }) => {
          const own = { x: frame.column(columns.x), y: frame.column(columns.smooth ?? columns.y ?? columns.mean) };
          return error || own.x.length === 0 ? null : own;
        });
        let at = 0;
        const lines = keys.flatMap((side, index): BandLine[] => {
          const mine = side
            .map(() => curves[at++])
            .filter((one): one is NonNullable<typeof one> => one !== null && one !== undefined);
          if (mine.length === 0) return [];
          // where all of the group are: a mean over fewer would jump where one ends
          const from = Math.max(...mine.map((one) => one.x[0] ?? Infinity));
          const to = Math.min(...mine.map((one) => one.x[one.x.length - 1] ?? -Infinity));
          if (!(to > from)) return [];
          const grid = Float64Array.from({ length: BUCKETS + 1 }, (_, place) => from + ((to - from) * place) / BUCKETS);
          const { mean, low, high } = band(mine.map((one) => onGrid(one.x, one.y, grid)));
          const label = `${letter(index)} ${made.sides[index]?.label ?? ""}${mine.length > 1 ? ` (${mine.length} runs)` : ""}`;
          return [
            { label, colour: colours[index] ?? "#888888", x: grid, y: mean, ...(mine.length > 1 ? { low, high } : {}) },
          ];
        });
        set({ lines, error: null });
      })
      .catch((error: Error) => error.name !== "AbortError" && set({ lines: [], error: error.message }));
    return () => stop.abort();
  }, [runs.join(" "), metric, x, smooth, colours.join(" ")]);
  if (found.error) return <p class="tone-bad">{found.error}</p>;
  if (found.lines.length === 0) return null;
  return (
    <BandChart
      title={small ? metric : `${metric}: each group's mean, from its smallest to its largest`}
      lines={found.lines}
      x={x}
      height={small ? SMALL : 300}
      plain={small}
    />
  );
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
