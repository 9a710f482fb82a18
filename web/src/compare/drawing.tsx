/** A small chart of lines and bands, for what is reckoned here and not logged: groups and differences.
 *
 * In:   lines on one x axis, each with a band around it where there is one.
 * Out:  an SVG with axes, and the values under the pointer.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { short } from "../shell/words.ts";
import { areaOf, pathOf, ticks } from "./reckon.ts";

export interface BandLine {
  label: string;
  colour: string;
  x: ArrayLike<number>;
  y: ArrayLike<number>;
  low?: ArrayLike<number>;
  high?: ArrayLike<number>;
}

interface Props {
  title: string;
  lines: readonly BandLine[];
  xTitle: string;
  /** A line at zero, as for differences. */
  zero?: boolean;
  height?: number;
}

const EDGE = { left: 58, right: 10, top: 10, bottom: 34 };

export function BandChart({ title, lines, xTitle, zero = false, height = 240 }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(600);
  const [at, setAt] = useState<number | null>(null);
  useEffect(() => {
    const own = box.current;
    if (!own) return;
    const watch = new ResizeObserver(() => setWidth(Math.max(200, own.clientWidth)));
    watch.observe(own);
    return () => watch.disconnect();
  }, []);

  const [left, right] = extent(lines.map((line) => line.x));
  let [low, high] = extent(lines.flatMap((line) => [line.y, line.low ?? [], line.high ?? []]));
  if (zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  if (!Number.isFinite(left) || !Number.isFinite(low)) return null;
  if (high === low) [low, high] = [low - 1, high + 1];
  const inside = { width: width - EDGE.left - EDGE.right, height: height - EDGE.top - EDGE.bottom };
  const toX = (value: number): number => EDGE.left + ((value - left) / (right - left || 1)) * inside.width;
  const toY = (value: number): number => EDGE.top + (1 - (value - low) / (high - low)) * inside.height;
  const map = (values: ArrayLike<number>, to: (value: number) => number): number[] => Array.from(values, to);
  const move = (event: PointerEvent): void => {
    const around = box.current?.getBoundingClientRect();
    if (!around) return;
    const value = left + ((event.clientX - around.left - EDGE.left) / inside.width) * (right - left);
    setAt(value < left || value > right ? null : value);
  };
  return (
    <figure class="band-chart">
      <figcaption>{title}</figcaption>
      <div ref={box} onPointerMove={move} onPointerLeave={() => setAt(null)}>
        <svg width={width} height={height} role="img" aria-label={`${title}: ${lines.map((line) => line.label).join(", ")}`}>
          {ticks(low, high).map((value) => (
            <g key={value}>
              <line class="grid" x1={EDGE.left} x2={width - EDGE.right} y1={toY(value)} y2={toY(value)} />
              <text class="tick" x={EDGE.left - 6} y={toY(value) + 4} text-anchor="end">
                {short(Math.abs(value) < (high - low) * 1e-9 ? 0 : value)}
              </text>
            </g>
          ))}
          {ticks(left, right, Math.max(2, inside.width / 110)).map((value) => (
            <text key={value} class="tick" x={toX(value)} y={height - EDGE.bottom + 15} text-anchor="middle">
              {short(value)}
            </text>
          ))}
          <text class="tick" x={width - EDGE.right} y={height - 4} text-anchor="end">
            {xTitle}
          </text>
          {zero && <line class="zero" x1={EDGE.left} x2={width - EDGE.right} y1={toY(0)} y2={toY(0)} />}
          {lines.map((line) => (
            <g key={line.label} style={{ color: line.colour }}>
              {line.low && line.high && <path class="band" d={areaOf(map(line.x, toX), map(line.low, toY), map(line.high, toY))} />}
              <path class="line" d={pathOf(map(line.x, toX), map(line.y, toY))} />
            </g>
          ))}
          {at !== null && <line class="cursor" x1={toX(at)} x2={toX(at)} y1={EDGE.top} y2={height - EDGE.bottom} />}
        </svg>
      </div>
      <ul class="legend">
        {lines.map((line) => {
          const place = at === null ? -1 : nearest(line.x, at);
          const value = place < 0 ? null : (line.y[place] as number);
          const [below, above] = place < 0 ? [NaN, NaN] : [line.low?.[place] ?? NaN, line.high?.[place] ?? NaN];
          return (
            <li key={line.label}>
              <span class="dot" style={{ background: line.colour }} />{" "}
              <span class="cut" title={line.label}>
                {line.label}
              </span>
              {value !== null && <strong> {short(value)}</strong>}
              {Number.isFinite(below) && Number.isFinite(above) && (
                <span class="quiet">
                  {" "}
                  {short(below)} to {short(above)}
                </span>
              )}
            </li>
          );
        })}
        {at !== null && (
          <li class="quiet">
            at {xTitle} {short(at)}
          </li>
        )}
      </ul>
    </figure>
  );
}

function extent(all: readonly ArrayLike<number>[]): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const values of all) {
    for (let at = 0; at < values.length; at++) {
      const value = values[at] as number;
      if (!Number.isFinite(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return [low, high];
}

function nearest(x: ArrayLike<number>, value: number): number {
  let best = -1;
  let distance = Infinity;
  for (let at = 0; at < x.length; at++) {
    const own = Math.abs((x[at] as number) - value);
    if (own < distance) [best, distance] = [at, own];
  }
  return best;
}
