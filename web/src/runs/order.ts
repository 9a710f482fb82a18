/** The order of the runs table: what is shown, sorted, grouped, pinned.
 *
 * In:   rows; a sort such as `-last:train/loss`; a column to group by; groups that are closed.
 * Out:  the lines of the table, one after another; pure, and fast enough for 10,000 rows at each change.
 */

import type { Key, Row } from "../api/types.ts";
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
  /** Tells it from the others: the value as text. */
  name: string;
  value: Cell;
  count: number;
  open: boolean;
  keys: Key[];
}

export interface RunLine {
  kind: "run";
  row: Row;
}

export type Line = GroupLine | RunLine;

/** The name of the group of runs that have no such value. */
export const NONE = "\u0000none";

export const groupName = (value: Cell): string =>
  value === null ? NONE : typeof value === "number" ? String(value) : `=${value}`;

/** Lines in order. closed: names of groups that show their head alone. Groups stand by their value. */
export function lines(rows: readonly Row[], group: ColumnId | null, closed: ReadonlySet<string>): Line[] {
  if (!group) return rows.map((row) => ({ kind: "run", row }));
  const groups = new Map<string, { value: Cell; rows: Row[] }>();
  for (const row of rows) {
    const values = group === "tags" && row.tags.length > 1 ? row.tags : [cell(row, group)];
    for (const value of values) {
      const name = groupName(value);
      const found = groups.get(name);
      if (found) found.rows.push(row);
      else groups.set(name, { value, rows: [row] });
    }
  }
  const found: Line[] = [];
  for (const [name, { value, rows: members }] of [...groups].sort((a, b) =>
    compareCells(a[1].value, b[1].value, false),
  )) {
    const open = !closed.has(name);
    found.push({ kind: "group", name, value, count: members.length, open, keys: members.map((row) => row.key) });
    if (open) for (const row of members) found.push({ kind: "run", row });
  }
  return found;
}

/** Which lines are in sight, with some above and below. All in pixels, but the answer in lines: [from, to). */
export function inSight(top: number, height: number, line: number, total: number, spare = 8): [number, number] {
  const from = Math.max(0, Math.floor(top / line) - spare);
  const to = Math.min(total, Math.ceil((top + height) / line) + spare);
  return [Math.min(from, total), Math.max(to, Math.min(from, total))];
}

/** The runs that are drawn: in the table's order, without the hidden, no more than this many. */
export function drawn(shown: readonly Line[], hidden: { has(key: Key): boolean }, most: number): Key[] {
  const keys = new Set<Key>();
  for (const line of shown) {
    if (keys.size >= most) break;
    if (line.kind === "run" && !hidden.has(line.row.key)) keys.add(line.row.key);
    // a closed group shows nothing of its runs, and they are drawn all the same
    if (line.kind === "group" && !line.open) {
      for (const key of line.keys) if (keys.size < most && !hidden.has(key)) keys.add(key);
    }
  }
  return [...keys];
}
