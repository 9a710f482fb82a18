/** The check of widths: how activations grow with the model's width, if the run has looked.
 *
 * In:   series mup/ACTIVATION/slope, low, high, start_slope.
 * Out:  a slope with its interval for each activation; 0 is what muP promises for most.
 */

import type { Curve } from "../chart/curve.ts";
import { loader } from "../chart/loader.ts";
import { byNumber } from "../chart/families.ts";
import { getNames } from "../api/client.ts";
import { number } from "../shell/text.ts";
import { useAnswer } from "./data.ts";

interface Slope {
  name: string;
  slope: number;
  low: number;
  high: number;
  start: number;
}

const last = (curve: Curve | undefined): number => curve?.y[curve.y.length - 1] ?? NaN;

async function slopes(run: string, signal: AbortSignal): Promise<Slope[]> {
  const { names } = await getNames(run, "^mup/.+/slope$", 200, signal);
  const activations = names.map((name) => name.slice("mup/".length, -"/slope".length)).sort(byNumber);
  const fields = ["slope", "low", "high", "start_slope"];
  const wanted = activations.flatMap((activation) =>
    fields.map((field) => ({ run, name: `mup/${activation}/${field}` })),
  );
  if (!wanted.length) return [];
  const curves = await loader.load(wanted, { x: "step", view: null, buckets: 100, branch: "live", smooth: 0 }, signal);
  const by = new Map(curves.map((curve) => [curve.name, curve]));
  return activations.map((name) => ({
    name,
    slope: last(by.get(`mup/${name}/slope`)),
    low: last(by.get(`mup/${name}/low`)),
    high: last(by.get(`mup/${name}/high`)),
    start: last(by.get(`mup/${name}/start_slope`)),
  }));
}

const WIDTH = 640;
const ROW = 22;
const LEFT = 190;

export function WidthCheck({ runKey }: { runKey: string }) {
  const { value } = useAnswer(`mup ${runKey}`, (signal) => slopes(runKey, signal));
  if (!value?.length) return null;
  const ends = value.flatMap((one) => [one.low, one.high, one.slope, one.start]).filter(Number.isFinite);
  const low = Math.min(-0.5, ...ends);
  const high = Math.max(0.5, ...ends);
  const x = (slope: number): number => LEFT + ((slope - low) / (high - low)) * (WIDTH - LEFT - 20);
  const height = value.length * ROW + 30;
  return (
    <section class="panel block" aria-label="Check of widths">
      <h2>
        Coordinate check{" "}
        <span class="quiet">slope of each activation's RMS over the model's width, log-log</span>
      </h2>
      <svg
        class="slopes"
        viewBox={`0 0 ${WIDTH} ${height}`}
        role="img"
        aria-label={value
          .map(
            (one) =>
              `${one.name}: slope ${number(one.slope, 3)}, between ${number(one.low, 3)} and ${number(one.high, 3)}`,
          )
          .join("; ")}
      >
        {[-1, -0.5, 0, 0.5, 1]
          .filter((tick) => tick >= low && tick <= high)
          .map((tick) => (
            <g key={tick}>
              <line class={tick === 0 ? "at" : "grid"} x1={x(tick)} x2={x(tick)} y1={4} y2={height - 22} />
              <text class="axis" x={x(tick)} y={height - 8} text-anchor="middle">
                {String(tick)}
              </text>
            </g>
          ))}
        {value.map((one, row) => (
          <g key={one.name} transform={`translate(0 ${row * ROW + 14})`}>
            <text class="axis" x={LEFT - 10} y={4} text-anchor="end">
              {one.name.length > 30 ? `…${one.name.slice(-29)}` : one.name}
            </text>
            {Number.isFinite(one.low) && Number.isFinite(one.high) && (
              <line class="interval" x1={x(one.low)} x2={x(one.high)} y1={0} y2={0} />
            )}
            {Number.isFinite(one.start) && <circle class="start" cx={x(one.start)} cy={0} r={3.5} />}
            {Number.isFinite(one.slope) && (
              <circle class="slope" cx={x(one.slope)} cy={0} r={4}>
                <title>{`${one.name}: ${number(one.slope, 3)} (${number(one.low, 3)} … ${number(one.high, 3)})`}</title>
              </circle>
            )}
          </g>
        ))}
      </svg>
      <p class="quiet small">
        Filled: after some steps, with its interval. Hollow: before the first. A slope that is not near 0 says that a
        learning rate does not carry over to another width.
      </p>
    </section>
  );
}
