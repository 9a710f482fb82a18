/** What Explore draws: scales over any column, points, seeds as means, brushes, quartiles. Pure.
 *
 * In:   rows of the table, columns' ids, groups of repeats as the server has them.
 * Out:  numbers between 0 and 1 for every value, texts for ticks, points with their runs.
 */

import { tickText } from "../chart/ticks.ts";
import { amount, unitOfColumn, unitTicks, unitTickTexts, type Unit } from "../chart/units.ts";
import type { Key, Row } from "../api/types.ts";
import { plain } from "../shell/text.ts";
import { byName, cell, type Cell, type ColumnId } from "../runs/columns.ts";

/** A column's values along an axis: numbers, linear or logarithmic, or words at equal distances. */
export interface Scale {
  kind: "linear" | "log" | "words";
  /** The place of a value, 0 to 1; NaN where it has none. */
  at(value: Cell): number;
  ticks: { at: number; text: string }[];
  /** The value at a place; of words the nearest. */
  back(share: number): Cell;
}

const MARGIN = 0.04;
const MOST_WORDS = 40;

/** A value of a column as charts write it: in its unit. */
export function cellText(id: ColumnId | null, value: Cell): string {
  const unit = unitOfColumn(id);
  return unit && typeof value === "number" ? amount(value, unit) : plain(value);
}

export function scaleOf(values: readonly Cell[], log: boolean, room = 6, unit: Unit = ""): Scale {
  const numbers = values.filter((value): value is number => typeof value === "number" && Number.isFinite(value));
  const words = [...new Set(values.filter((value): value is string => typeof value === "string"))];
  if (words.length > 0 || numbers.length === 0) return wordScale(values, words);
  const positive = log ? numbers.filter((value) => value > 0) : numbers;
  const usesLog = log && positive.length > 0;
  const [low, high] = span(usesLog ? positive : numbers, usesLog);
  const wide = (usesLog ? Math.log(high) - Math.log(low) : high - low) || 1;
  const at = (value: Cell): number => {
    if (typeof value !== "number" || !Number.isFinite(value) || (usesLog && value <= 0)) return NaN;
    return usesLog ? (Math.log(value) - Math.log(low)) / wide : (value - low) / wide;
  };
  const distinct = [...new Set(usesLog ? positive : numbers)].sort((a, b) => a - b);
  const round = unitTicks(low, high, room, usesLog, unit);
  // a sweep's own values tell more than round ones
  const places = distinct.length <= room && spread(distinct.map(at)) ? distinct : round;
  const step = Math.min(...places.slice(1).map((value, index) => value - (places[index] ?? 0)), Infinity);
  const own = usesLog || places === distinct; // each stands for itself, with all its digits
  const texts = unit
    ? own
      ? places.map((value) => amount(value, unit))
      : unitTickTexts(places, false, unit)
    : places.map((value) => tickText(value, own ? value : step));
  return {
    kind: usesLog ? "log" : "linear",
    at,
    ticks: places.map((value, index) => ({ at: at(value), text: texts[index] ?? "" })),
    back: (share) => (usesLog ? Math.exp(Math.log(low) + share * wide) : low + share * wide),
  };
}

/** Whether texts at these places would not overlap. */
const spread = (places: readonly number[]): boolean =>
  places.every((place, index) => index === 0 || place - (places[index - 1] ?? 0) > 0.08);

function span(values: readonly number[], log: boolean): [number, number] {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low === high) return log ? [low / 2, high * 2] : [low - Math.abs(low || 1) / 2, high + Math.abs(high || 1) / 2];
  const margin = (log ? Math.log(high / low) : high - low) * MARGIN;
  return log ? [low * Math.exp(-margin), high * Math.exp(margin)] : [low - margin, high + margin];
}

function wordScale(values: readonly Cell[], words: string[]): Scale {
  const numbers = new Set(values.filter((value) => typeof value === "number").map(String));
  const all = [...new Set([...numbers, ...words])].sort(byName);
  const places = new Map(all.map((word, index) => [word, (index + 0.5) / all.length]));
  const every = Math.max(1, Math.ceil(all.length / MOST_WORDS));
  return {
    kind: "words",
    at: (value) => (value === null ? NaN : (places.get(String(value)) ?? NaN)),
    ticks: all.filter((_, index) => index % every === 0).map((text) => ({ at: places.get(text) ?? 0, text })),
    back: (share) => all[Math.min(all.length - 1, Math.max(0, Math.floor(share * all.length)))] ?? null,
  };
}

/** Robust limits: whether a few values lie so far out that the others cannot be distinguished. */
export function suitsLog(values: readonly Cell[]): boolean {
  const numbers = values.filter((value): value is number => typeof value === "number" && Number.isFinite(value));
  if (numbers.length < 3 || numbers.some((value) => value <= 0)) return false;
  const [low, high] = span(numbers, true);
  const distinct = new Set(numbers).size;
  return high / low > 20 && distinct > 2;
}

export interface Mark {
  x: Cell;
  y: Cell;
  colour: Cell;
  size: Cell;
  keys: Key[];
  label: string;
  /** Deviations over the runs of the mark. */
  dx: number;
  dy: number;
}

type Columns = Record<"x" | "y" | "colour" | "size", ColumnId | null>;

/** A mark a run, or a mark a group of repeats with mean and deviation. */
export function marksOf(rows: readonly Row[], columns: Columns, groups: readonly (readonly Row[])[] | null): Mark[] {
  const lots = groups ?? rows.map((row) => [row]);
  return lots.map((lot) => {
    const value = (id: ColumnId | null): { value: Cell; deviation: number } =>
      id === null ? { value: null, deviation: 0 } : mean(lot.map((row) => cell(row, id)));
    const [x, y] = [value(columns.x), value(columns.y)];
    const [first] = lot;
    return {
      x: x.value,
      y: y.value,
      dx: x.deviation,
      dy: y.deviation,
      colour: value(columns.colour).value,
      size: value(columns.size).value,
      keys: lot.map((row) => row.key),
      label: first ? first.name || first.id : "",
    };
  });
}

/** The mean of numbers with their deviation; of words the first. Values that are not finite make the mean so. */
export function mean(values: readonly Cell[]): { value: Cell; deviation: number } {
  const some = values.filter((value) => value !== null);
  const numbers = some.filter((value): value is number => typeof value === "number");
  if (numbers.length === 0 || numbers.length < some.length) return { value: some[0] ?? null, deviation: 0 };
  const middle = numbers.reduce((sum, value) => sum + value, 0) / numbers.length;
  const squares = numbers.reduce((sum, value) => sum + (value - middle) ** 2, 0);
  return { value: middle, deviation: numbers.length > 1 ? Math.sqrt(squares / (numbers.length - 1)) : 0 };
}

// -- brushes ----------------------------------------------------------------------------------------------

/** A part of an axis that is chosen: two values of numbers, or words. */
export type Brush = readonly [low: Cell, high: Cell];
export type Brushes = ReadonlyMap<ColumnId, Brush>;

/** In the address: `config:lr~0.001~0.01;last:loss~2~3`, each part percent-encoded. */
export function formatBrushes(brushes: Brushes): string {
  const part = (value: Cell): string =>
    encodeURIComponent(typeof value === "number" ? String(Number(value.toPrecision(6))) : `'${value}`).replace(
      /~/g,
      "%7E",
    );
  return [...brushes]
    .map(([id, [low, high]]) => `${encodeURIComponent(id).replace(/~/g, "%7E")}~${part(low)}~${part(high)}`)
    .join(";");
}

export function parseBrushes(text: string | null): Map<ColumnId, Brush> {
  const found = new Map<ColumnId, Brush>();
  for (const piece of (text ?? "").split(";")) {
    try {
      const [id, low, high] = piece.split("~").map(decodeURIComponent);
      if (!id || low === undefined || high === undefined) continue;
      const value = (word: string): Cell => (word.startsWith("'") ? word.slice(1) : Number(word));
      const [a, b] = [value(low), value(high)];
      if ([a, b].some((one) => typeof one === "number" && Number.isNaN(one))) continue;
      found.set(id, [a, b]);
    } catch {
      continue; // an address that was cut off
    }
  }
  return found;
}

/** Which of the places [axis][row] are within all brushes, each given in places. */
export function within(
  places: readonly Float64Array[],
  bounds: readonly (readonly [number, number] | null)[],
): Uint8Array {
  const size = places[0]?.length ?? 0;
  const found = new Uint8Array(size).fill(1);
  bounds.forEach((bound, axis) => {
    const own = places[axis];
    if (!bound || !own) return;
    const [low, high] = bound;
    for (let at = 0; at < size; at++) {
      const place = own[at] as number;
      if (!(place >= low - 1e-9 && place <= high + 1e-9)) found[at] = 0;
    }
  });
  return found;
}

// -- boxes ------------------------------------------------------------------------------------------------

export interface Box {
  label: string;
  value: Cell;
  rows: Row[];
  /** Finite values, from the smallest. */
  values: number[];
  lost: number;
  low: number;
  first: number;
  median: number;
  third: number;
  high: number;
  mean: number;
  deviation: number;
}

const MOST_BOXES = 24;
const BINS = 8;

/** Runs by the values of a key; numbers of many values in parts of about as many runs each. */
export function boxesOf(rows: readonly Row[], by: ColumnId, metric: ColumnId): Box[] {
  const groups = new Map<Cell, Row[]>();
  for (const row of rows) {
    const value = cell(row, by);
    const lot = groups.get(value);
    if (lot) lot.push(row);
    else groups.set(value, [row]);
  }
  let lots = [...groups].map(([value, lot]) => ({ value, label: value === null ? "none" : String(value), rows: lot }));
  if (lots.length > MOST_BOXES && lots.every(({ value }) => value === null || typeof value === "number")) {
    const sorted = rows
      .filter((row) => typeof cell(row, by) === "number")
      .sort((a, b) => (cell(a, by) as number) - (cell(b, by) as number));
    const size = Math.ceil(sorted.length / BINS);
    lots = Array.from({ length: BINS }, (_, at) => sorted.slice(at * size, (at + 1) * size))
      .filter((part) => part.length > 0)
      .map((part) => {
        const [low, high] = [cell(part[0] as Row, by), cell(part[part.length - 1] as Row, by)] as [number, number];
        return { value: null, label: `${tickText(low, low)} to ${tickText(high, high)}`, rows: part };
      });
  } else {
    lots.sort((a, b) =>
      typeof a.value === "number" && typeof b.value === "number" ? a.value - b.value : byName(a.label, b.label),
    );
    lots = lots.slice(0, MOST_BOXES * 2);
  }
  return lots.map((lot) => boxOf(lot, metric)).filter((box) => box.values.length + box.lost > 0);
}

function boxOf(lot: { value: Cell; label: string; rows: Row[] }, metric: ColumnId): Box {
  const every = lot.rows.map((row) => cell(row, metric)).filter((value): value is number => typeof value === "number");
  const values = every.filter(Number.isFinite).sort((a, b) => a - b);
  const [first, median, third] = [quantile(values, 0.25), quantile(values, 0.5), quantile(values, 0.75)];
  const reach = 1.5 * (third - first);
  const inner = values.filter((value) => value >= first - reach && value <= third + reach);
  const { value, deviation } = mean(values);
  return {
    ...lot,
    values,
    lost: every.length - values.length,
    low: inner[0] ?? NaN,
    high: inner[inner.length - 1] ?? NaN,
    first,
    median,
    third,
    mean: typeof value === "number" ? value : NaN,
    deviation,
  };
}

/** On the line between neighbours, as NumPy's. */
export function quantile(sorted: readonly number[], share: number): number {
  if (sorted.length === 0) return NaN;
  const place = share * (sorted.length - 1);
  const below = Math.floor(place);
  const a = sorted[below] as number;
  const b = sorted[Math.min(below + 1, sorted.length - 1)] as number;
  return a + (b - a) * (place - below);
}
