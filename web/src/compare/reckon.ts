/** Numbers of a comparison: letters, amounts with their units, curves on one axis, groups as bands.
 *
 * In:   what the server says; series of runs.
 * Out:  text; mean, least and most of a group at each x.
 */

import { duration, change as changeText, number, whole, compact, money, percent } from "../shell/text.ts";
import type { CellValue, Refusal, TableRow } from "../api/types.ts";

/** A, B, … Z, A1, B1, … */
export function letter(side: number): string {
  return String.fromCharCode(65 + (side % 26)) + (side >= 26 ? String(Math.floor(side / 26)) : "");
}

export function refusalSentence({ kind, what, why, instead }: Refusal): string {
  const subject = kind === "axis" ? `The axis “${what}” would mislead` : `${what} can't be compared`;
  return `${subject}: ${why}. ${instead ? `Use ${instead} instead.` : "There is no alternative."}`;
}

export function amount(value: number, unit: string): string {
  if (unit === "seconds") return duration(value);
  if (unit === "share") return percent(value);
  if (unit === "steps") return whole(value);
  if (unit === "money") return money(value);
  if (unit === "a second" && value >= 100) return whole(value);
  if (unit === "tokens" || unit === "samples" || unit === "FLOPs") return compact(value);
  return number(value);
}

/** Half the interval's width, where there is one. */
export function plusMinus(cell: CellValue | null, unit: string): string {
  if (!cell || cell.low === null || cell.high === null || (unit !== "" && unit !== "share")) return "";
  const half = (cell.high - cell.low) / 2;
  return `± ${unit === "" ? number(half, 2) : amount(half, unit)}`;
}

/** Against the baseline; nothing where a value lacks some of its runs. */
export function change(row: TableRow, side: number, baseline = 0): string {
  const [one, base] = [row.cells[side], row.cells[baseline]];
  if (!one || !base || one.runs < one.of || base.runs < base.of || side === baseline) return "";
  const value = row.percent[side] ?? null;
  return value === null ? "" : changeText(value);
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
      low = Math.min(value, low);
      high = Math.max(value, high);
    }
    made.mean[at] = curves.length ? sum / curves.length : NaN;
    made.low[at] = Number.isNaN(sum) ? NaN : low;
    made.high[at] = Number.isNaN(sum) ? NaN : high;
  }
  return made;
}
