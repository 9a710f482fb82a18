// The data that a report's page carries, as reporting/webpage.py writes it, and its columns as arrays.

/** A column's values: numbers, and the words for NaN, infinity and minus infinity. */
export type Value = number | "n" | "p" | "m";

/** x as it is, or as the gaps between whole numbers. */
export interface Column {
  x?: number[];
  gaps?: number[];
  y: Value[];
}

export interface LineData extends Column {
  label: string;
  look: "line" | "faint" | "dots";
  tint: number;
  /** How many points there were before thinning, and how many of them were not finite. */
  points: number;
  odd: number;
}

export interface FlagData {
  step: number;
  severity: string;
  number: number;
  message: string;
}

export interface ChartData {
  title: string;
  x: string;
  unit: string;
  log: boolean;
  zero: boolean;
  lines: LineData[];
  flags: FlagData[];
  bands: [Column, Column][];
}

export interface HeatData {
  rows: string[];
  edges: number[];
  levels: string;
  low: number;
  high: number;
  log: boolean;
  how: string;
  left: number;
  right: number;
  top: number;
  wide: number;
  each: number;
}

export interface ReportData {
  span: [number, number];
  charts: Record<string, ChartData>;
  heats: Record<string, HeatData>;
}

/** The data of this page; null where it carries none. */
export function readData(): ReportData | null {
  const text = document.getElementById("data")?.textContent;
  return text ? (JSON.parse(text) as ReportData) : null;
}

/** The x of a column. */
export function xOf(column: Column): Float64Array {
  if (column.x) return Float64Array.from(column.x);
  let at = 0;
  return Float64Array.from(column.gaps ?? [], (gap) => (at += gap));
}

const NOT_FINITE = { n: Number.NaN, p: Number.POSITIVE_INFINITY, m: Number.NEGATIVE_INFINITY };

/** The y of a column. */
export function yOf(column: Column): Float64Array {
  return Float64Array.from(column.y, (value) => (typeof value === "number" ? value : NOT_FINITE[value]));
}
