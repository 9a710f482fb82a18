/** What the server answers, as types. Made from `schema.py`, `saved.py` and `comparisons.py` of
 *  `src/barograph/views/server`;
 *  change those, and write this file again: python -m barograph.views.server.typescript web/src/api/types.ts
 */

/** A run's folder under the served root: "/" kept, each part percent-encoded. */
export type Key = string;

/** A number that may be not finite. */
export type Num = number | "-Infinity" | "Infinity" | "NaN";

export type Severity = "critical" | "info" | "warning";

export type SignKind = "+inf" | "-inf" | "nan";

/** Findings by severity. */
export interface Counts {
  critical: number;
  warning: number;
  info: number;
}

/** A run as a row of the table. Times are seconds since 1970. */
export interface Row {
  key: Key;
  project: string;
  id: string;
  name: string;
  /** running, silent, stuck, hung, crashed, …, finished, or as it was ended. */
  status: string;
  status_since: number | null;
  /** What a live run is at, beside its steps. */
  phase?: "eval";
  /** Why something of the run could not be read. */
  problem?: string;
  created: number | null;
  wall_seconds: number | null;
  tags: string[];
  notes: string;
  pinned: boolean;
  archived: boolean;
  /** Flat: `optimizer.lr` to its value. */
  config: Record<string, unknown>;
  step: number | null;
  total_steps: number | null;
  remaining_seconds: number | null;
  last: Record<string, Num>;
  best: Record<string, Num>;
  /** What of `last` is the training's loss. */
  loss: string | null;
  /** What of `last` is the loss on data held out. */
  eval_loss: string | null;
  findings: Counts;
  /** false: no rule has checked the run yet. */
  examined?: boolean;
  parent: Key | null;
  fork_step: number | null;
}

/** All runs, or those that a filter lets through. */
export interface Runs {
  runs: Row[];
  projects: string[];
  stamp: string;
  /** Sentences about folders that are not served. */
  left_out: string[];
  /** Runs that are not among these, because nothing was read of them yet. */
  unread: number;
}

/** A number over the runs of a group. count: of finite values; not_finite: runs that ended NaN or infinite. */
export interface GroupStatistics {
  count: number;
  not_finite: number;
  mean: number | null;
  deviation: number | null;
  best: number | null;
}

/** Runs that have the same values of the keys asked for. statistics: by column, such as `last:train/loss`. */
export interface RunGroup {
  label: string;
  values: Record<string, unknown>;
  runs: Key[];
  failed: number;
  statistics: Record<string, GroupStatistics>;
}

/** Groups in the order of their values. */
export interface RunGroups {
  groups: RunGroup[];
}

/** The server. */
export interface About {
  version: string;
  root: string;
  token_needed: boolean;
  edit_token: string;
}

/** What was moved to the trash: the id brings it back. */
export interface Deleted {
  id: string;
}

/** A run that came back from the trash. */
export interface Restored {
  key: Key;
}

/** Live: rows that changed, keys of runs that are gone. */
export interface RowsEvent {
  rows: Row[];
  gone: Key[];
}

/** Live: a run has new points. */
export interface PointsEvent {
  run: Key;
  step: number | null;
  time: number;
}

/** A stretch of a run between two starts. */
export interface Segment {
  segment: number;
  parent?: number;
  start_step?: number;
  kind: string;
  time: number;
  launch?: string;
  source?: string;
}

/** Where a run was forked from. */
export interface Origin {
  key: Key;
  step: number | null;
}

/** A run that was forked from this one. */
export interface Child {
  key: Key;
  name: string;
  step: number | null;
}

/** The run's parent and its children; `source`: the folder of a parent that is not served. */
export interface Relatives {
  parent: Origin | null;
  source: string | null;
  children: Child[];
}

/** A generated text. */
export interface Sample {
  step: number;
  time: number;
  prompt?: string;
  text?: string;
}

/** How a run came to its state: the last lines of its output and the traceback where it did not end as it should. */
export interface Ending {
  status: string;
  step: number | null;
  reason: string;
  lines: string[];
  traceback: string;
}

/** A run for its overview: the row and what stands beside it. `config` is nested here, `config_flat` flat. */
export interface Detail extends Row {
  manifest: Record<string, unknown>;
  config_flat: Record<string, unknown>;
  segments: Segment[];
  lineage: Relatives;
  ending: Ending;
  goodput: Record<string, Num>;
  energy: Record<string, unknown>;
  checkpoints: Record<string, unknown>[];
  samples: Sample[];
  problems: string[];
  series_count: number;
  families: Record<string, number>;
  folder: string;
}

/** Series of a run: all of them with the histograms, or those that match a pattern with their total. */
export interface Names {
  names: string[];
  histograms?: string[];
  total?: number;
}

/** A group of names; `prefix`: its full path with "/" at its end, to ask with. */
export interface TreeGroup {
  name: string;
  prefix: string;
  count: number;
}

/** One step of the tree of names. */
export interface Tree {
  groups: TreeGroup[];
  leaves: string[];
}

/** The median of a phase of a step, and its share of the step. */
export interface Phase {
  name: string;
  ms: number;
  percent: number;
  series: string;
}

/** Where the time of a run went. */
export interface LostTime {
  cause: string;
  seconds: number;
  percent: number;
  money: number | null;
}

/** A rank: where it runs, whether it is there, its last step's time and how long it waited. */
export interface RankRow {
  rank: number;
  host: string | null;
  alive: boolean | null;
  status: string | null;
  step?: number | null;
  step_ms?: Num;
  wait_ms?: Num;
  series?: Record<string, string>;
  [more: string]: unknown;
}

/** A device with its last readings, and the series to draw them from. */
export interface DeviceRow {
  id: string;
  series: Record<string, string>;
  [more: string]: unknown;
}

/** The machines of a run; what nobody recorded is empty. */
export interface System {
  phases: Phase[];
  goodput: LostTime[];
  totals: Record<string, Num>;
  ranks: RankRow[];
  gpus: DeviceRow[];
  host: Record<string, Num>;
  host_series: string[];
  stragglers: Record<string, unknown>[];
  stalls: Record<string, unknown>[];
  cost: Record<string, unknown>;
  hardware: Record<string, unknown> | null;
  world_size: number | null;
}

/** A series around a finding as bars; x, ^ and v where it is not finite. */
export interface Spark {
  series: string;
  from: number;
  to: number;
  bars: string;
}

/** A finding that belongs to another one. */
export interface StoryEntry {
  step: number;
  rule: string;
  kind: string;
  severity: Severity;
  message: string;
}

/** Numbers, short lists and short texts; a drawing, and what belongs to the finding. */
export interface Evidence {
  spark?: Spark;
  story?: StoryEntry[];
  [more: string]: unknown;
}

/** What the doctor found. Causes and remedies: the likeliest first. */
export interface Finding {
  rule: string;
  family: string;
  kind: string;
  severity: Severity;
  step: number;
  last_step: number;
  found: number;
  message: string;
  evidence: Evidence;
  causes: string[];
  remedies: string[];
  confidence: number;
  key: string;
  segment: number;
}

/** A rule that could not be checked, and what it needs. */
export interface Abstained {
  rule: string;
  needs: string;
}

/** The findings of a run. */
export interface Diagnosis {
  run: string;
  source: string;
  headline: string;
  judged_by: string | null;
  findings: Finding[];
  checked: string[];
  abstained: Abstained[];
}

/** A column of a frame: `at` counts float64s from the start of the data. */
export interface ColumnRef {
  at: number;
  n: number;
}

/** A point that is not finite. */
export interface Mark {
  x: number;
  step: number;
  kind: SignKind;
}

/** x, y and smooth of points; x, extremes, mean, first, last and count of buckets, and smooth. */
export interface SeriesColumns {
  x?: ColumnRef;
  y?: ColumnRef;
  min?: ColumnRef;
  max?: ColumnRef;
  mean?: ColumnRef;
  first?: ColumnRef;
  last?: ColumnRef;
  count?: ColumnRef;
  smooth?: ColumnRef;
  x_min?: ColumnRef;
  x_max?: ColumnRef;
  x_last?: ColumnRef;
}

/** Points of a series in a range: as they are, or in buckets. before, after: the nearest finite point beyond each end
 * of the range: a line goes on to the edge.
 */
export interface SeriesPart {
  points: number;
  exact: boolean;
  columns: SeriesColumns;
  marks: Mark[];
  marks_total?: number;
  before?: [number, number] | null;
  after?: [number, number] | null;
}

/** A series in a frame. old: what a resume or a rewind superseded. */
export interface SeriesHeader extends SeriesPart {
  run: Key;
  name: string;
  rank?: number;
  total: number;
  last_step?: number | null;
  last_value?: Num | null;
  error?: string;
  old?: SeriesPart[];
}

/** Many series of many runs. */
export interface SeriesFrame {
  x: string;
  smooth: number | string;
  branch: string;
  series: SeriesHeader[];
}

/** value: layers × steps. */
export interface LayersColumns {
  step: ColumnRef;
  value: ColumnRef;
}

/** One field of a table over layers and steps. marks: layer, column, kind. layers_total: with those left out. */
export interface LayersHeader {
  table: string;
  field: string;
  fields: string[];
  tables: string[];
  layers: string[];
  layers_total: number;
  steps: number;
  marks?: [number, number, SignKind][];
  marks_total?: number;
  columns: LayersColumns;
}

/** All histograms, one after another. */
export interface HistogramsColumns {
  edges: ColumnRef;
  counts: ColumnRef;
  offsets: ColumnRef;
}

/** A distribution over time. Histogram i has edges[offsets[i] : offsets[i + 1]], and a count less. */
export interface HistogramsHeader {
  name: string;
  names: string[];
  steps: number[];
  times: number[];
  total: number;
  columns: HistogramsColumns;
}

/** load: layers × steps × experts. */
export interface ExpertsColumns {
  step: ColumnRef;
  load: ColumnRef;
}

/** The load of each expert of each layer. */
export interface ExpertsHeader {
  layers: string[];
  experts: number;
  steps: number;
  columns: ExpertsColumns;
}

/** One series that is asked for. */
export interface SeriesWanted {
  run: string;
  name: string;
  rank?: number | null;
}

/** What is asked for. low, high: the range of x, None: to its end. places: also where minima and maxima are. smooth: a
 * factor, or what `core.columns.smoother` reads. log: buckets for a logarithmic axis of x. groups: runs by the word
 * that takes their place as `run` of a series: the curve is then their mean (`grouping`).
 */
export interface SeriesQuery {
  series: SeriesWanted[];
  x?: string;
  from?: number | null;
  to?: number | null;
  buckets?: number;
  branch?: string;
  smooth?: number | string;
  places?: boolean;
  log?: boolean;
  groups?: Record<string, string[]>;
}

/** What a person changes of a run. */
export interface Edits {
  name?: string;
  tags?: string[];
  notes?: string;
  pinned?: boolean;
  archived?: boolean;
}

/** An image, a sound, a table or another file. `there`: whether its file is, whole; `shape`: as its record says. */
export interface MediaItem {
  name: string;
  type: string;
  step: number;
  time: number;
  file: string;
  bytes: number;
  caption: string;
  rank: number;
  there: boolean;
  shape: number[];
  seconds: number | null;
}

/** Those of the live branch, by step; `total`: how many there are, where some are left out. */
export interface MediaList {
  items: MediaItem[];
  total: number;
}

/** Rows of a table from `start` on, sorted and filtered; `total`: those that fit the filter; `every`: all. */
export interface MediaTable {
  columns: string[];
  rows: unknown[][];
  start: number;
  total: number;
  every: number;
}

/** What is saved: parameters of addresses, and those that hold where an address says nothing. */
export interface SavedViews {
  settings?: Record<string, string>;
  views?: Record<string, Record<string, string>>;
}

/** What is to be another than it is; null takes a view or a setting away. */
export interface ViewChanges {
  settings?: Record<string, string | null>;
  views?: Record<string, Record<string, string> | null>;
}

/** A run of a side; `key`: None where it is not served. */
export interface SideRun {
  key?: Key | null;
  project: string;
  id: string;
  name: string;
  status: string;
  dir: string;
  seeds: Record<string, unknown>;
}

/** A run, or a group of runs that count as repeats. */
export interface Side {
  label: string;
  runs: SideRun[];
}

/** A key that differs between sides; `values`: a side each. */
export interface Difference {
  part: string;
  key: string;
  values: string[];
  role: string;
  change: string | null;
}

/** What can't be compared, why, and what to take instead. */
export interface Refusal {
  kind: string;
  what: string;
  why: string;
  instead: string | null;
}

/** The mean over a side's runs and its interval; `runs` of `of` have a value. */
export interface CellValue {
  value: number | null;
  low: number | null;
  high: number | null;
  runs: number;
  of: number;
}

/** A measure; direction: 1 where larger is better, -1 where smaller is, else 0. */
export interface TableRow {
  name: string;
  unit: string;
  direction: number;
  cells: (CellValue | null)[];
  percent: (number | null)[];
}

/** A test of a difference. */
export interface Test {
  method: string;
  low: number | null;
  high: number | null;
  p: number | null;
}

/** A difference along the axis, with its interval. */
export interface DifferenceCurve {
  kind: string;
  x: (number | null)[];
  difference: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
}

/** A side against the baseline. */
export interface Contrast {
  side: number;
  baseline: number;
  runs: number[];
  difference: number | null;
  percent: number | null;
  outcome: string;
  sentence: string;
  advice: string | null;
  test: Test | null;
  curve: DifferenceCurve | null;
}

/** What can be concluded. */
export interface Verdict {
  attribution: string;
  changes: string[];
  sentences: string[];
}

/** Three sides or more, the best first. */
export interface Ranking {
  metric: string;
  level: number;
  sentence: string;
  ranks: Rank[];
}

/** Runs compared. */
export interface Comparison {
  sides: Side[];
  verdict: Verdict;
  ranking: Ranking | null;
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

/** What explains a metric over some runs: `barograph importance --json`. */
export interface Importance {
  metric: string;
  runs: number;
  configurations: number;
  diverged: number;
  missing: number;
  level: number;
  keys: KeyImportance[];
  repeats: number | null;
  constant: string[];
  apart: string[];
  sentences: string[];
}

/** A run to compare with: the keys in which it differs, with its values; none for a repeat. */
export interface Similar {
  key: Key;
  keys: Record<string, string>;
}

/** The runs that a filter lets through. */
export interface Matching {
  keys: Key[];
}

/** Runs that differ in little, repeats first. */
export interface SimilarRuns {
  similar: Similar[];
}

/** A side's place. value, low, high: its final value and the interval of the mean, None where there is none.
 * difference, p: against the best. why: why it has no place among the others, "" where it has one.
 */
export interface Rank {
  side: number;
  label: string;
  value: number | null;
  low: number | null;
  high: number | null;
  runs: number;
  of: number;
  outcome: string;
  difference: number | null;
  p: number | null;
  why: string;
}

/** share: of the variation of the metric's ranks that the key explains by itself, less chance. low, high: its interval.
 * p: corrected for the number of keys; of the last test that it took part in. beside: the keys that it was tested
 * beside. together: other keys that vary with it, 0 to 1. best: the values where the metric is best. trend: how the
 * metric goes with larger values, "rises", "falls" or "". lacking: runs that lack it.
 */
export interface KeyImportance {
  key: string;
  outcome: string;
  share: number;
  low: number;
  high: number;
  p: number | null;
  levels: number;
  lacking: number;
  trend: string;
  best: string | null;
  beside: string[];
  together: Record<string, number>;
  sentence: string;
}
