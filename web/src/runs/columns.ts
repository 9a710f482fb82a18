/** Columns of the runs table: which there are, what they hold, how they sort.
 *
 * In:   rows; a column's id, as it is in the address: `name`, `config:optimizer.lr`, `last:train/loss`.
 * Out:  its title, its value in a row, its width; the columns that are worth showing when nobody chose.
 */

import { num } from "../api/values.ts";
import type { Key, Row } from "../api/types.ts";
import { statusWords } from "../shell/states.ts";
import { amount, unitOf } from "../chart/units.ts";
import { moment, number, title } from "../shell/text.ts";

export type ColumnId = string;
export type Cell = string | number | null;

export interface Column {
  id: ColumnId;
  /** What stands at its head. */
  title: string;
  /** The whole name, where the title is its end. */
  full?: string;
  /** A word before the title: config, last, best, min, max. */
  kind: "fact" | "config" | "last" | "best";
  /** In pixels. */
  width: number;
  numeric: boolean;
}

const FACTS: Record<string, [title: string, width: number, numeric: boolean]> = {
  name: ["Name", 260, false],
  status: ["Status", 128, false],
  progress: ["Progress", 200, false],
  findings: ["Findings", 116, false],
  tags: ["Tags", 150, false],
  notes: ["Notes", 220, false],
  project: ["Project", 120, false],
  created: ["Created", 96, true],
  duration: ["Duration", 96, true],
  remaining: ["Time left", 96, true],
  step: ["Step", 84, true],
  id: ["Id", 220, false],
};

export const FACT_IDS: readonly ColumnId[] = Object.keys(FACTS).filter((id) => id !== "name");
const METRIC_KINDS = ["last", "best"] as const;

export const GROUP_FACTS: readonly ColumnId[] = ["project", "status", "tags"];
/** As `query/groups.py` has it. */
export const ALL_BUT_SEED = "all but seed";

/** Whether runs can be grouped by a column. */
export const groupable = (id: ColumnId): boolean =>
  id === ALL_BUT_SEED || GROUP_FACTS.includes(id) || column(id)?.kind === "config";

/** A column as the server names it as a key of groups. */
export const keyOf = (id: ColumnId): string => (id.startsWith("config:") ? `config.${id.slice(7)}` : id);

export function column(id: ColumnId): Column | null {
  const fact = Object.hasOwn(FACTS, id) ? FACTS[id] : undefined;
  if (fact) return { id, title: fact[0], kind: "fact", width: fact[1], numeric: fact[2] };
  const cut = id.indexOf(":");
  const kind = id.slice(0, cut);
  const title = id.slice(cut + 1);
  if (cut < 0 || !title) return null;
  if (kind === "config") return { id, title, kind, width: widthOf(title, 76), numeric: false };
  for (const one of METRIC_KINDS)
    if (one === kind) return { id, title, kind: one, width: widthOf(title, 92) + 18, numeric: true };
  return null;
}

/** Wide enough for its head: 6.3 pixels a letter at the size of heads, and the arrow. */
function widthOf(title: string, least: number): number {
  return Math.min(190, Math.max(least, Math.ceil(title.length * 6.3) + 34));
}

const SEVERE = 1e6; // one critical finding outweighs any number of warnings

/** What a column sorts and groups by; null where a run has nothing. */
export function cell(row: Row, id: ColumnId): Cell {
  switch (id) {
    case "name":
      return title(row);
    case "id":
      return row.id;
    case "status":
      return statusWords(row.status, row.phase).word;
    case "progress":
      return row.step === null ? null : row.total_steps ? row.step / row.total_steps : row.step;
    case "findings":
      return (row.findings.critical ?? 0) * SEVERE + (row.findings.warning ?? 0) * 1e3 + (row.findings.info ?? 0);
    case "tags":
      return row.tags.join(", ") || null;
    case "notes":
      return row.notes || null;
    case "project":
      return row.project;
    case "created":
      return row.created;
    case "duration":
      return row.wall_seconds;
    case "remaining":
      return row.remaining_seconds;
    case "step":
      return row.step;
  }
  const cut = id.indexOf(":");
  const name = id.slice(cut + 1);
  switch (id.slice(0, cut)) {
    case "config":
      return plainCell(own(row.config, name));
    case "last":
      return num(own(row.last, name));
    case "best":
      return num(own(row.best, name));
  }
  return null;
}

/** A configuration may have a key `constructor`, and a run may lack it. */
function own(record: Record<string, unknown>, name: string): unknown {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}

function plainCell(value: unknown): Cell {
  if (value === undefined || value === null) return null;
  if (typeof value === "number") return value;
  if (typeof value === "boolean") return value ? "true" : "false";
  if (typeof value === "string") return num(value) ?? value;
  return JSON.stringify(value);
}

/** The column as these rows fill it: a setting that is always a number stands to the right, as numbers do. */
export function fitted(id: ColumnId, rows: readonly Row[]): Column | null {
  const found = column(id);
  if (found?.kind !== "config") return found;
  let seen = 0;
  for (const row of rows) {
    const value = cell(row, id);
    if (value === null) continue;
    if (typeof value !== "number") return found;
    if (++seen === ENOUGH) break;
  }
  return { ...found, numeric: seen > 0 };
}

const ENOUGH = 200;

/** Settings by the last part of their names, where no other column has the same. */
export function shortened(columns: readonly Column[]): Column[] {
  const leaf = (one: Column): string => (one.kind === "config" ? (one.title.split(/[./]/).pop() ?? "") : one.title);
  const count = new Map<string, number>();
  for (const one of columns) count.set(leaf(one), (count.get(leaf(one)) ?? 0) + 1);
  return columns.map((one) => {
    const title = leaf(one);
    if (one.kind !== "config" || !title || title === one.title || count.get(title) !== 1) return one;
    return { ...one, title, full: one.title, width: widthOf(title, 76) };
  });
}

/** Names that tell runs apart: the project stands before a name that several have, and the id where that is not enough. */
export function labelsOf(rows: readonly Row[]): Map<string, string> {
  const count = (texts: string[]): Map<string, number> => {
    const found = new Map<string, number>();
    for (const text of texts) found.set(text, (found.get(text) ?? 0) + 1);
    return found;
  };
  const names = count(rows.map(title));
  const long = count(rows.map((row) => `${row.project}/${title(row)}`));
  return new Map(
    rows.map((row) => {
      if (names.get(title(row)) === 1) return [row.key, title(row)];
      const text = `${row.project}/${title(row)}`;
      return [row.key, long.get(text) === 1 ? text : `${row.project}/${row.id}`];
    }),
  );
}

/** What stands dimmed before and behind a name that several runs have. */
export interface Distinction {
  before: string;
  behind: string;
}

/** For the runs whose name others have too: the project where it differs, and the id, or where that is the name itself,
 *  when the run started. */
export function distinctions(rows: readonly Row[], grouped: boolean): Map<Key, Distinction> {
  const named = new Map<string, Row[]>();
  for (const row of rows) {
    const several = named.get(title(row));
    if (several) several.push(row);
    else named.set(title(row), [row]);
  }
  const found = new Map<Key, Distinction>();
  for (const [name, several] of named) {
    if (several.length < 2) continue;
    const projects = new Map<string, number>();
    for (const row of several) projects.set(row.project, (projects.get(row.project) ?? 0) + 1);
    for (const row of several) {
      const before = projects.size > 1 && !grouped ? `${row.project}/` : "";
      const alone = projects.get(row.project) === 1;
      found.set(row.key, { before, behind: alone ? "" : row.id === name ? moment(row.created) : row.id });
    }
  }
  return found;
}

/** All columns that these rows can fill, in groups for the picker. */
export function available(rows: readonly Row[]): { title: string; ids: ColumnId[] }[] {
  const config = new Set<string>();
  const metrics = { last: new Set<string>(), best: new Set<string>() };
  for (const row of rows) {
    for (const name in row.config) config.add(name);
    for (const kind of METRIC_KINDS) for (const name in row[kind]) metrics[kind].add(name);
  }
  const sorted = (names: Set<string>, kind: string): string[] =>
    [...names].sort(byName).map((name) => `${kind}:${name}`);
  return [
    { title: "Run", ids: [...FACT_IDS] },
    { title: "Last value", ids: sorted(metrics.last, "last") },
    { title: "Best value", ids: sorted(metrics.best, "best") },
    { title: "Configuration", ids: sorted(config, "config") },
  ].filter((group) => group.ids.length > 0);
}

const names = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
export const byName = (a: string, b: string): number => names.compare(a, b);

const VARYING_MOST = 5;
const SAMPLE = 2000; // rows looked at for what varies: enough to see it, and no wait with ten thousand

/** What to show when nobody chose: what tells the runs apart, the losses, then the rest. The state has a column where
 *  there is room for one, else it is before the name. */
export function defaultColumns(rows: readonly Row[], tight = false): ColumnId[] {
  const some = sampled(rows);
  const train = commonest(some.map((row) => row.loss));
  const evaluation = commonest(some.map((row) => row.eval_loss));
  const losses: ColumnId[] = [];
  if (evaluation) losses.push(`best:${evaluation}`);
  if (train) losses.push(`last:${train}`);
  const settings = varying(some).map((name) => `config:${name}`);
  const ids = tight ? [...settings, ...losses, "findings"] : ["status", "findings", ...settings, ...losses];
  ids.push("progress");
  if (some.some((row) => row.tags.length)) ids.push("tags");
  // a project that stands before the names already needs no column
  const told = new Set(some.map(title)).size < some.length;
  if (!told && new Set(some.map((row) => row.project)).size > 1) ids.push("project");
  ids.push("created", "duration");
  if (some.some((row) => row.notes)) ids.push("notes");
  return ids;
}

/** The name that most rows have; the first of several. */
function commonest(names: readonly (string | null)[]): string | null {
  const counts = new Map<string, number>();
  for (const name of names) if (name !== null) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].reduce<[string | null, number]>((most, one) => (one[1] > most[1] ? one : most), [null, 0])[0];
}

/** Rows from all over the list. */
function sampled(rows: readonly Row[]): readonly Row[] {
  const stride = Math.ceil(rows.length / SAMPLE);
  return stride > 1 ? rows.filter((_, at) => at % stride === 0) : rows;
}

/** Settings that all rows have, with one value, by name; none for a single row. */
export function constants(rows: readonly Row[]): [name: string, value: string | number][] {
  const [first, ...others] = rows;
  if (!first || !others.length) return [];
  const left = new Map(Object.keys(first.config).map((name) => [name, cell(first, `config:${name}`)]));
  for (const row of others) {
    for (const [name, value] of left) if (!Object.is(cell(row, `config:${name}`), value)) left.delete(name);
    if (!left.size) break;
  }
  return [...left]
    .filter((one): one is [string, string | number] => one[1] !== null)
    .sort((a, b) => byName(a[0], b[0]));
}

/** Keys of the configuration that differ, the telling ones first: learning rate, batch, size, seed. */
export function varying(rows: readonly Row[], most = VARYING_MOST): string[] {
  const seen = new Map<string, Set<string>>();
  const filled = new Map<string, number>();
  for (const row of rows) {
    for (const [name, value] of Object.entries(row.config)) {
      if (value !== null && typeof value === "object") continue;
      const values = seen.get(name) ?? new Set<string>();
      seen.set(name, values);
      if (values.size < 50) values.add(String(value));
      filled.set(name, (filled.get(name) ?? 0) + 1);
    }
  }
  const telling = (name: string): number => {
    const at = TELLING.findIndex((pattern) => pattern.test(name));
    return at < 0 ? TELLING.length : at;
  };
  return [...seen.entries()]
    .filter(([name, values]) => values.size > 1 && (filled.get(name) ?? 0) * 2 >= rows.length)
    .map(([name]) => name)
    .sort((a, b) => telling(a) - telling(b) || byName(a, b))
    .slice(0, most);
}

// prettier-ignore
const TELLING = [
  /(^|[._])(lr|learning_rate)$/, /(^|[._])(optimizer|optim|name)$/, /batch/, /(layers|depth|width|dim|d_model|hidden)/,
  /(warmup|decay|dropout|clip)/, /experts/, /(^|[._])seed$/,
];

/** A number of a column as its cells have it: with its unit where the metric's name says one. */
export function numberOf(id: ColumnId, value: number, digits = 4, steady = true): string {
  const unit = unitOf([id.replace(/^(last|best):/, "")]);
  return unit ? amount(value, unit) : number(value, digits, steady);
}
