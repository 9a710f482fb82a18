/** A statistic over the depth of the model at one step.
 *
 * In:   layers in order, their values at a step and at the first one.
 * Out:  a drawing in SVG: lines from the first layer to the last.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { number } from "../shell/text.ts";
import { scaleOf, share } from "./heatmap.ts";

interface Props {
  title: string;
  layers: readonly string[];
  values: readonly number[];
  /** The same at the first step, drawn behind for comparison. */
  first?: readonly number[];
  log: boolean;
  chosen: number;
  onPick: (row: number) => void;
}

const HEIGHT = 210;
const LEFT = 58;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 30;

export function Profile({ title, layers, values, first = [], log, chosen, onPick }: Props) {
  const box = useRef<HTMLElement>(null);
  const [width, setWidth] = useState(520);
  useEffect(() => {
    if (!box.current) return;
    const watch = new ResizeObserver(
      ([entry]) => entry && setWidth(Math.max(240, Math.floor(entry.contentRect.width))),
    );
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const scale = scaleOf(Float64Array.from([...values, ...first]), log);
  const count = Math.max(1, layers.length - 1);
  const x = (row: number): number => LEFT + (row / count) * (width - LEFT - RIGHT);
  const y = (value: number): number => TOP + (1 - share(scale, value)) * (HEIGHT - TOP - BOTTOM);
  const ticks = [0, 0.5, 1].map((part) =>
    scale.kind === "log" ? scale.low * (scale.high / scale.low) ** part : scale.low + (scale.high - scale.low) * part,
  );
  const slim = (width - LEFT - RIGHT) / Math.max(1, layers.length);
  return (
    <figure class="chart profile" ref={box}>
      <figcaption class="chart-head">
        <h3 class="chart-title" title={title}>
          {title}
        </h3>
      </figcaption>
      <svg
        viewBox={`0 0 ${width} ${HEIGHT}`}
        width={width}
        height={HEIGHT}
        role="img"
        aria-label={`${title}: ${layers
          .map((layer, row) => `${layer} ${number(values[row] ?? NaN, 3)}`)
          .slice(0, 40)
          .join(", ")}`}
      >
        {ticks.map((tick) => (
          <g key={tick}>
            <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} />
            <text class="axis" x={LEFT - 6} y={y(tick) + 3.5} text-anchor="end">
              {number(tick, 3)}
            </text>
          </g>
        ))}
        <text class="axis" x={LEFT} y={HEIGHT - 8}>
          {layers[0]}
        </text>
        <text class="axis" x={width - RIGHT} y={HEIGHT - 8} text-anchor="end">
          {layers[layers.length - 1]}
        </text>
        {chosen >= 0 && <line class="at" x1={x(chosen)} x2={x(chosen)} y1={TOP} y2={HEIGHT - BOTTOM} />}
        {lines(first, x, y).map((points) => (
          <polyline key={`f${points}`} class="first" points={points} />
        ))}
        {lines(values, x, y).map((points) => (
          <polyline key={points} class="now" points={points} />
        ))}
        {values.map((value, row) => {
          const height = y(value);
          return Number.isFinite(height) ? (
            <g key={layers[row]} class="dot-of" onClick={() => onPick(row)}>
              <rect x={x(row) - slim / 2} width={slim} y={TOP} height={HEIGHT - TOP - BOTTOM} fill="transparent">
                <title>{`${layers[row]}: ${number(value, 5)}`}</title>
              </rect>
              {layers.length <= 80 && <circle cx={x(row)} cy={height} r={row === chosen ? 4 : 2.2} />}
            </g>
          ) : null;
        })}
      </svg>
      <p class="chart-legend small">
        <span>
          <i class="key now" /> this step
        </span>
        {first.length > 0 && (
          <span>
            <i class="key first" /> the first step
          </span>
        )}
      </p>
    </figure>
  );
}

/** Polylines, parted where there is no value. */
export function lines(values: readonly number[], x: (at: number) => number, y: (value: number) => number): string[] {
  const found: string[] = [];
  let now: string[] = [];
  values.forEach((value, at) => {
    const height = y(value);
    if (Number.isFinite(height)) now.push(`${x(at).toFixed(1)},${height.toFixed(1)}`);
    else if (now.length) {
      found.push(now.join(" "));
      now = [];
    }
  });
  if (now.length) found.push(now.join(" "));
  return found;
}
