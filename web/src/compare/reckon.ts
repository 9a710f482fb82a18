/** Numbers of a comparison: letters, amounts with their units.
 *
 * In:   what the server says.
 * Out:  text. Pure.
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
