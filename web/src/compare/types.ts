/** What `barograph compare --json` says.
 *
 * In:   nothing.
 * Out:  shapes.
 */

export interface Side {
  label: string;
  runs: { key?: string; project: string; id: string; name: string; status: string; dir: string; seeds: Record<string, unknown> }[];
}

export interface Difference {
  part: string;
  key: string;
  values: string[];
  role: string;
  change: string | null;
}

export interface Refusal {
  kind: string;
  what: string;
  why: string;
  instead: string | null;
}

export interface CellValue {
  value: number;
  low: number | null;
  high: number | null;
  runs: number;
  of: number;
}

export interface TableRow {
  name: string;
  unit: string;
  direction: number;
  cells: (CellValue | null)[];
  percent: (number | null)[];
}

export interface Contrast {
  side: number;
  baseline: number;
  runs: number[];
  difference: number | null;
  percent: number | null;
  outcome: string;
  sentence: string;
  advice: string | null;
  test: { method: string; low: number | null; high: number | null; p: number | null } | null;
  curve: { kind: string; x: (number | null)[]; difference: (number | null)[]; low: (number | null)[]; high: (number | null)[] } | null;
}

export interface Comparison {
  sides: Side[];
  verdict: { attribution: string; changes: string[]; sentences: string[] };
  differences: Difference[];
  varies_within_sides: Record<string, string>;
  same: string[];
  not_known: Record<string, number[]>;
  code_files: string[];
  refusals: Refusal[];
  cautions: string[];
  notes: string[];
  metric: string | null;
  axis: string | null;
  at: number | null;
  window: number | null;
  target: number | null;
  level: number;
  rows: TableRow[];
  contrasts: Contrast[];
}
