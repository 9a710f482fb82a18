/** A chart of what is computed and not logged: groups and differences, each line with a band.
 *
 * In:   lines on one x axis, each with a band around it where there is one.
 * Out:  a figure, and the values under the pointer.
 */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { chartInks } from "../chart/control.ts";
import { nearest, plainCurve } from "../chart/curve.ts";
import { LocalChart } from "../chart/local.ts";
import type { Drawn } from "../chart/paint.ts";
import type { View } from "../chart/range.ts";
import { axisName, xText } from "../chart/ticks.ts";
import { amount, type Unit } from "../chart/units.ts";
import { useTheme } from "../shell/theme.ts";

export interface BandLine {
  label: string;
  colour: string;
  x: Float64Array;
  y: Float64Array;
  low?: Float64Array;
  high?: Float64Array;
}

interface Props {
  title: string;
  lines: readonly BandLine[];
  /** The axis, as charts name it. */
  x: string;
  /** What the values are counted in. */
  unit?: Unit;
  /** A line at zero, as for differences. */
  zero?: boolean;
  height?: number;
}

export function BandChart({ title, lines, x, unit = "", zero = false, height = 240 }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<LocalChart | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const [view, setView] = useState<View>(null);
  const theme = useTheme();
  const drawn = useMemo(
    () =>
      lines.map((line): Drawn => {
        const edges = line.low && line.high ? ([line.low, line.high] as const) : undefined;
        return {
          curve: plainCurve(line.label, line.x, line.y, edges),
          look: { label: line.label, colour: line.colour, interval: true },
        };
      }),
    [lines],
  );
  useLayoutEffect(() => {
    if (!host.current) return;
    const options = { x, logX: false, logY: false, typical: false, height, zeroLine: zero, unit };
    const made = new LocalChart(host.current, options, chartInks, {
      onRange: setView,
      onReset: () => setView(null),
      onCursor: setAt,
    });
    chart.current = made;
    return () => {
      made.destroy();
      chart.current = null;
    };
  }, [x, zero, height, unit]);
  useLayoutEffect(() => chart.current?.set(drawn, view), [drawn, view, x, zero, height, unit]);
  useEffect(() => chart.current?.plot.restyle(), [theme]);
  return (
    <figure class="band-chart">
      <figcaption>{title}</figcaption>
      <div ref={host} role="img" aria-label={`${title}: ${lines.map((line) => line.label).join(", ")}`} />
      <ul class="chart-legend">
        {lines.map((line) => {
          const place = at === null ? -1 : nearest(line.x, at);
          const [below, above] = [line.low?.[place] ?? NaN, line.high?.[place] ?? NaN];
          return (
            <li key={line.label}>
              <i class="key" style={{ color: line.colour }} />
              <span class="cut" title={line.label}>
                {line.label}
              </span>
              {place >= 0 && <strong> {amount(line.y[place], unit)}</strong>}
              {Number.isFinite(below) && Number.isFinite(above) && (
                <span class="quiet">
                  {" "}
                  {amount(below, unit)} to {amount(above, unit)}
                </span>
              )}
            </li>
          );
        })}
        <li class="quiet">{at === null ? axisName(x) : xText(x, at)}</li>
      </ul>
    </figure>
  );
}
