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
export function xOf(column: Column): number[] {
  if (column.x) return column.x;
  let at = 0;
  return (column.gaps ?? []).map((gap) => (at += gap));
}

/** The y of a column as a chart draws it: what is not finite is a gap. */
export function yOf(column: Column): (number | null)[] {
  return column.y.map((value) => (typeof value === "number" ? value : null));
}

/** Where a column is not finite: x and a word for what stands there. */
export function oddOf(column: Column, x: number[]): [number, string][] {
  const words = { n: "NaN", p: "infinity", m: "minus infinity" };
  const found: [number, string][] = [];
  column.y.forEach((value, at) => {
    if (typeof value === "string") found.push([x[at] ?? 0, words[value]]);
  });
  return found;
}
