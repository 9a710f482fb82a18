/** The order of the runs table: what is shown, sorted, grouped, pinned.
 *
 * In:   rows; a sort such as `-last:train/loss`; a column to group by; groups that are closed.
 * Out:  the lines of the table, one after another; pure, and fast enough for 10,000 rows at each change.
 */

import { groupKey, isGroup } from "../api/groups.ts";
import type { Key, Row, RunGroup } from "../api/types.ts";
import { byName, cell, type Cell, type ColumnId } from "./columns.ts";

export interface Sort {
  id: ColumnId;
  down: boolean;
}

/** `-id` is downwards. The newest first where nothing was said. */
export function parseSort(text: string | null): Sort {
  if (!text) return { id: "created", down: true };
  return text.startsWith("-") ? { id: text.slice(1), down: true } : { id: text, down: false };
}

export const formatSort = (sort: Sort): string => (sort.down ? "-" : "") + sort.id;

/** A click on a head: numbers begin with the smallest, dates and findings with the largest; then round again. */
export function nextSort(now: Sort, id: ColumnId): Sort {
  const first = id === "created" || id === "findings" || id === "progress" || id === "step";
  if (now.id !== id) return { id, down: first };
  return { id, down: !now.down };
}

/** Numbers before words; what is missing or NaN stands last in both directions. */
export function compareCells(a: Cell, b: Cell, down: boolean): number {
  const noA = a === null || (typeof a === "number" && Number.isNaN(a));
  const noB = b === null || (typeof b === "number" && Number.isNaN(b));
  if (noA || noB) return noA && noB ? Number(a === null) - Number(b === null) : noA ? 1 : -1;
  let found: number;
  if (typeof a === "number" && typeof b === "number") found = a < b ? -1 : a > b ? 1 : 0;
  else if (typeof a === "number") found = -1;
  else if (typeof b === "number") found = 1;
  else found = byName(a, b);
  return down ? -found : found;
}

/** Pinned runs stand first; equals in the order of their creation, the newest first. Stable. */
export function sortRows(rows: readonly Row[], sort: Sort): Row[] {
  const decorated = rows.map((row) => ({ row, value: cell(row, sort.id) }));
  decorated.sort(
    (a, b) =>
      Number(b.row.pinned) - Number(a.row.pinned) ||
      compareCells(a.value, b.value, sort.down) ||
      (b.row.created ?? 0) - (a.row.created ?? 0) ||
      (a.row.key < b.row.key ? -1 : a.row.key > b.row.key ? 1 : 0),
  );
  return decorated.map((one) => one.row);
}

export interface GroupLine {
  kind: "group";
  /** Tells it from the others: its label. */
  name: string;
  /** Stands for the group in charts. */
  key: Key;
  group: RunGroup;
  open: boolean;
  /** Its runs in the order of the table. */
  rows: Row[];
}

export interface RunLine {
  kind: "run";
  row: Row;
  /** The group that it is in. */
  group: Key | null;
}

export type Line = GroupLine | RunLine;

export const lineName = (line: Line): string => (line.kind === "run" ? line.row.key : `group ${line.name}`);

/** What groups sort by in a column: the best where it shows the best, else the mean. */
export function groupCell(group: RunGroup, id: ColumnId): Cell {
  const found = Object.hasOwn(group.statistics, id) ? group.statistics[id] : undefined;
  return (id.startsWith("best:") ? found?.best : found?.mean) ?? null;
}

/** Lines in order. groups: as the server has them, null for none. closed: names of groups that show their head alone.
 *  Groups are in the order of their values, or of what they come to in the column that is sorted by. */
export function lines(
  rows: readonly Row[],
  groups: readonly RunGroup[] | null,
  closed: ReadonlySet<string>,
  sort: Sort = parseSort(null),
): Line[] {
  if (!groups) return rows.map((row) => ({ kind: "run", row, group: null }));
  const place = new Map(rows.map((row, at) => [row.key, at]));
  let ordered = groups;
  if (groups.some((group) => groupCell(group, sort.id) !== null)) {
    ordered = [...groups].sort((a, b) => compareCells(groupCell(a, sort.id), groupCell(b, sort.id), sort.down));
  } else if (sort.id === "name" && sort.down) ordered = [...groups].reverse();
  const found: Line[] = [];
  for (const group of ordered) {
    const places = group.runs.flatMap((key) => place.get(key) ?? []).sort((a, b) => a - b);
    const members = places.flatMap((at) => rows[at] ?? []);
    if (!members.length) continue;
    const [key, open] = [groupKey(group.label), !closed.has(group.label)];
    found.push({ kind: "group", name: group.label, key, group, open, rows: members });
    if (open) for (const row of members) found.push({ kind: "run", row, group: key });
  }
  return found;
}

/** Which lines are in sight, with some above and below. All in pixels, but the answer in lines: [from, to). */
export function inSight(top: number, height: number, line: number, total: number, spare = 8): [number, number] {
  const from = Math.max(0, Math.floor(top / line) - spare);
  const to = Math.min(total, Math.ceil((top + height) / line) + spare);
  return [Math.min(from, total), Math.max(to, Math.min(from, total))];
}

/** What a person hid, or left alone, of runs and groups. */
export interface Shown {
  group: (key: Key) => boolean;
  run: (key: Key) => boolean;
}

/** only: these alone, if there are any; runs among them choose within their groups. */
export function shownOf(hidden: ReadonlySet<Key>, only: ReadonlySet<Key>): Shown {
  const groups = [...only].some(isGroup);
  const runs = [...only].some((key) => !isGroup(key));
  return {
    group: (key) => (groups ? only.has(key) : !hidden.has(key)),
    run: (key) => (runs ? only.has(key) : !hidden.has(key)),
  };
}

/** What is drawn: groups with the runs of each, or runs, in the table's order, no more than this many. */
export function drawn(shown: readonly Line[], visible: Shown, most: number): Map<Key, Key[]> {
  const found = new Map<Key, Key[]>();
  for (const line of shown) {
    if (found.size >= most) break;
    if (line.kind === "group") {
      // a closed group shows nothing of its runs, and is drawn all the same
      const runs = line.rows.map((row) => row.key).filter(visible.run);
      if (visible.group(line.key) && runs.length) found.set(line.key, runs);
    } else if (line.group === null && visible.run(line.row.key)) found.set(line.row.key, [line.row.key]);
  }
  return found;
}
