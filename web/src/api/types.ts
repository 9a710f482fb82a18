/** What the server answers, as types.
 *
 * In:   nothing.
 * Out:  the shapes of the HTTP API; a number that is not finite comes as the words "NaN", "Infinity", "-Infinity".
 */

/** A run's folder under the served root: "/" kept, each part percent-encoded. It stands in URLs as it is. */
export type Key = string;

export type Num = number | "NaN" | "Infinity" | "-Infinity";

export type Severity = "critical" | "warning" | "info";

/** `running`, `silent`, `stuck`, `stalled`, `crashed`, `finished`, `failed`, or what a run was ended with. */
export type Status = string;

export interface Row {
  key: Key;
  project: string;
  id: string;
  name: string;
  status: Status;
  status_since?: number | null;
  /** What a live run is at, beside its steps. */
  phase?: "eval" | null;
  /** Why something of the run could not be read. */
  problem?: string | null;
  /** Seconds since 1970. */
  created: number | null;
  wall_seconds: number | null;
  tags: string[];
  notes: string;
  pinned: boolean;
  archived: boolean;
  /** Flat: `optimizer.lr` → value. */
  config: Record<string, unknown>;
  step: number | null;
  total_steps: number | null;
  remaining_seconds: number | null;
  last: Record<string, Num>;
  best: Record<string, Num>;
  min?: Record<string, Num>;
  max?: Record<string, Num>;
  findings: Partial<Record<Severity, number>>;
  parent: Key | null;
  fork_step: number | null;
}

export interface Runs {
  runs: Row[];
  projects: string[];
  stamp: string;
  /** Sentences about folders that are not served. */
  left_out?: string[];
}

export interface About {
  version: string;
  root: string;
  token_needed: boolean;
  edit_token: string;
}

/** A run for its overview: the row and what stands beside it. */
export interface Detail extends Row {
  manifest: Record<string, unknown>;
  segments?: Record<string, unknown>[];
  lineage?: unknown;
  goodput?: unknown;
  energy?: unknown;
  checkpoints?: Record<string, unknown>[];
  samples?: { step: number; prompt?: string; text: string }[];
  problems?: string[];
  series_count?: number;
  families?: Record<string, number>;
}

export interface Names {
  names: string[];
  histograms?: string[];
  total?: number;
}

export interface Tree {
  /** `prefix`: the full path with "/" at its end, to ask with. */
  groups: { name: string; prefix: string; count: number }[];
  leaves: string[];
}

export type Axis = "step" | "time" | "relative" | "tokens" | "samples" | (string & {});

export interface SeriesQuery {
  series: { run: Key; name: string; rank?: number }[];
  x: Axis;
  from: number | null;
  to: number | null;
  buckets: number;
  branch: "live" | "all";
  smooth: number;
  /** Buckets of equal width on a logarithmic x axis. */
  log?: boolean;
}

/** A column of a frame: `at` counts float64s from the start of the data. */
export interface ColumnRef {
  at: number;
  n: number;
}

export interface Mark {
  x: number;
  step: number;
  kind: "nan" | "+inf" | "-inf";
}

export interface SeriesHeader {
  run: Key;
  name: string;
  points: number;
  total: number;
  exact: boolean;
  last_step: number | null;
  last_value: Num | null;
  error?: string;
  marks: Mark[];
  marks_total?: number;
  columns: Partial<Record<"x" | "y" | "min" | "max" | "first" | "last" | "mean" | "count" | "smooth", ColumnRef>>;
  old?: Partial<Record<string, ColumnRef>>[];
}

export interface Spark {
  series: string;
  from: number;
  to: number;
  bars: string;
}

export interface StoryEntry {
  step: number;
  rule: string;
  kind: string;
  severity: Severity;
  message: string;
}

export interface Finding {
  rule: string;
  family: string;
  kind: string;
  severity: Severity;
  step: number;
  last_step: number;
  found: number;
  message: string;
  evidence: Record<string, unknown> & { spark?: Spark; story?: StoryEntry[] };
  causes: string[];
  remedies: string[];
  confidence: number;
  key: string;
  segment: number;
  series?: string;
}

export interface Diagnosis {
  run: string;
  source: string;
  findings: Finding[];
  checked: string[];
  abstained: { rule: string; needs: string }[];
}

export interface Edits {
  name?: string;
  tags?: string[];
  notes?: string;
  pinned?: boolean;
  archived?: boolean;
}

/** What a fetch ended with: `status` 0 where the server was not there at all. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

/** A number of the API as a number. */
export function num(value: unknown): number | null {
  if (typeof value === "number") return value;
  if (value === "NaN") return NaN;
  if (value === "Infinity") return Infinity;
  if (value === "-Infinity") return -Infinity;
  return null;
}
