/** Numbers of a comparison: letters, amounts with their units, curves on one axis, groups as bands.
 *
 * In:   what the server says; series of runs.
 * Out:  text; mean, least and most of a group at each x.
 */

import { duration, percent, short, whole } from "../shell/words.ts";
import type { CellValue, Refusal, TableRow } from "./types.ts";

/** A, B, … Z, A1, B1, … */
export function letter(side: number): string {
  return String.fromCharCode(65 + (side % 26)) + (side >= 26 ? String(Math.floor(side / 26)) : "");
}

export function refusalSentence({ kind, what, why, instead }: Refusal): string {
  const subject = kind === "axis" ? `The axis “${what}” would mislead` : `${what} can't be compared`;
  return `${subject}: ${why}. ${instead ? `Take ${instead} instead.` : "There is nothing else to take."}`;
}

const LARGE: readonly [number, string][] = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]; // prettier-ignore

export function large(value: number): string {
  const found = LARGE.find(([size]) => Math.abs(value) >= size);
  return found ? `${short(value / found[0])} ${found[1]}` : short(value);
}

export function amount(value: number, unit: string): string {
  if (unit === "seconds") return duration(value);
  if (unit === "share") return `${short(100 * value, 3)}%`;
  if (unit === "steps") return whole(value);
  if (unit === "money") return value >= 1 ? value.toFixed(2) : short(value, 3);
  if (unit === "a second" && value >= 100) return whole(value);
  if (unit === "tokens" || unit === "samples" || unit === "FLOPs") return large(value);
  return short(value);
}

/** Half the interval's width, where there is one. */
export function plusMinus(cell: CellValue | null, unit: string): string {
  if (!cell || cell.low === null || cell.high === null || (unit !== "" && unit !== "share")) return "";
  const half = (cell.high - cell.low) / 2;
  return `± ${unit === "" ? short(half, 2) : amount(half, unit)}`;
}

/** Against the baseline; nothing where a value lacks some of its runs. */
export function change(row: TableRow, side: number, baseline = 0): string {
  const [one, base] = [row.cells[side], row.cells[baseline]];
  if (!one || !base || one.runs < one.of || base.runs < base.of || side === baseline) return "";
  const value = row.percent[side] ?? null;
  return value === null ? "" : percent(value);
}

/** 1 where the side did better than the baseline, −1 where worse, 0 where neither can be said. */
export function better(row: TableRow, side: number, baseline = 0): number {
  const value = row.percent[side];
  if (side === baseline || value === null || value === undefined || !Number.isFinite(value)) return 0;
  return Math.sign(value) * Math.sign(row.direction);
}

/** The values of a curve at the places of a grid, straight between its points; NaN outside and where a side is NaN. */
export function onGrid(x: ArrayLike<number>, y: ArrayLike<number>, grid: ArrayLike<number>): Float64Array {
  const found = new Float64Array(grid.length).fill(NaN);
  let at = 0;
  for (let place = 0; place < grid.length; place++) {
    const want = grid[place] as number;
    while (at + 1 < x.length && (x[at + 1] as number) <= want) at += 1;
    const left = x[at];
    if (left === undefined || want < left) continue;
    const right = x[at + 1];
    if (left === want || right === undefined) {
      if (left === want) found[place] = y[at] as number;
      continue;
    }
    const share = (want - left) / (right - left);
    found[place] = (y[at] as number) * (1 - share) + (y[at + 1] as number) * share;
  }
  return found;
}

export interface Band {
  mean: Float64Array;
  low: Float64Array;
  high: Float64Array;
}

/** Mean, least and most of a group's curves at each place; NaN where one of them has nothing. */
export function band(curves: readonly Float64Array[]): Band {
  const size = curves[0]?.length ?? 0;
  const made: Band = { mean: new Float64Array(size), low: new Float64Array(size), high: new Float64Array(size) };
  for (let at = 0; at < size; at++) {
    let sum = 0;
    let low = Infinity;
    let high = -Infinity;
    for (const curve of curves) {
      const value = curve[at] as number;
      sum += value;
      low = value < low ? value : low;
      high = value > high ? value : high;
    }
    made.mean[at] = curves.length ? sum / curves.length : NaN;
    made.low[at] = Number.isNaN(sum) ? NaN : low;
    made.high[at] = Number.isNaN(sum) ? NaN : high;
  }
  return made;
}

/** Round steps for an axis: about so many between two values. */
export function ticks(low: number, high: number, about = 5): number[] {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return Number.isFinite(low) ? [low] : [];
  const rough = span / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((one) => one * power >= rough) ?? 10) * power;
  const found: number[] = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at++) found.push(at * step);
  return found;
}

/** An SVG path through the finite points; it breaks where there is none. */
export function pathOf(x: ArrayLike<number>, y: ArrayLike<number>): string {
  let text = "";
  let drawing = false;
  for (let at = 0; at < x.length; at++) {
    const [a, b] = [x[at] as number, y[at] as number];
    if (!Number.isFinite(a) || !Number.isFinite(b)) drawing = false;
    else {
      text += `${drawing ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`;
      drawing = true;
    }
  }
  return text;
}

/** The area between two lines, in one piece for each stretch where both are finite. */
export function areaOf(x: ArrayLike<number>, low: ArrayLike<number>, high: ArrayLike<number>): string {
  let text = "";
  let from = -1;
  for (let at = 0; at <= x.length; at++) {
    const whole = at < x.length && Number.isFinite(low[at]) && Number.isFinite(high[at]);
    if (whole && from < 0) from = at;
    if (whole || from < 0) continue;
    const up: string[] = [];
    const down: string[] = [];
    for (let one = from; one < at; one++) {
      up.push(`${(x[one] as number).toFixed(1)} ${(high[one] as number).toFixed(1)}`);
      down.unshift(`${(x[one] as number).toFixed(1)} ${(low[one] as number).toFixed(1)}`);
    }
    text += `M${[...up, ...down].join("L")}Z`;
    from = -1;
  }
  return text;
}
