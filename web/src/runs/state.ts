/** What the runs table shows, as its address says it; what its charts show is in `chart/choice.ts`.
 *
 * In:   the query of the address.
 * Out:  the state; the query for a changed state. What is as it is by default is not in the address.
 */

import type { Key } from "../api/types.ts";
import { formatQuery, joinKeys, joinList, splitKeys, splitList, withQuery } from "../shell/address.ts";
import { column, groupable, type ColumnId } from "./columns.ts";
import { formatSort, parseSort, type Sort } from "./order.ts";

export type Layout = "split" | "table" | "charts" | "explore";

export interface TableState {
  filter: string;
  /** "": of all projects. */
  project: string;
  sort: Sort;
  /** Keys that the runs are grouped by; none: no groups. */
  groups: readonly ColumnId[];
  closed: ReadonlySet<string>;
  /** null: those that suit the runs. */
  columns: ColumnId[] | null;
  selected: ReadonlySet<Key>;
  hidden: ReadonlySet<Key>;
  /** These alone are drawn; none: all that are not hidden. */
  only: ReadonlySet<Key>;
  layout: Layout;
  /** How many runs are drawn at most. */
  most: number;
  archived: boolean;
}

export const MOST = [10, 25, 50, 100] as const;

export function readState(query: URLSearchParams): TableState {
  const columns = query.get("cols");
  const layout = query.get("view");
  const most = Number(query.get("most") ?? MOST[0]);
  return {
    filter: query.get("q") ?? "",
    project: query.get("project") ?? "",
    sort: parseSort(query.get("sort")),
    groups: splitList(query.get("group")).filter(groupable),
    closed: new Set(splitList(query.get("closed"))),
    columns: columns === null ? null : splitList(columns).filter((id) => id !== "name" && column(id) !== null),
    selected: new Set(splitKeys(query.get("sel"))),
    hidden: new Set(splitKeys(query.get("hide"))),
    only: new Set(splitKeys(query.get("only"))),
    layout: layout === "table" || layout === "charts" || layout === "explore" ? layout : "split",
    most: Number.isInteger(most) && most > 0 ? Math.min(most, 500) : MOST[0],
    archived: query.get("archived") === "1",
  };
}

/** The parameters that a change touches; null takes one out of the address. */
export function writeState(changes: Partial<TableState>): Record<string, string | null> {
  const found: Record<string, string | null> = {};
  if (changes.filter !== undefined) found.q = changes.filter || null;
  if (changes.project !== undefined) found.project = changes.project || null;
  if (changes.sort !== undefined) {
    const text = formatSort(changes.sort);
    found.sort = text === "-created" ? null : text;
  }
  if (changes.groups !== undefined) {
    // a choice among other groups says nothing of these
    Object.assign(found, { group: joinList(changes.groups) || null, closed: null, only: null });
  }
  if (changes.closed !== undefined) found.closed = joinList(changes.closed) || null;
  if (changes.columns !== undefined) found.cols = changes.columns === null ? null : joinList(changes.columns) || "none";
  if (changes.selected !== undefined) found.sel = joinKeys(changes.selected) || null;
  if (changes.hidden !== undefined) found.hide = joinKeys(changes.hidden) || null;
  if (changes.only !== undefined) found.only = joinKeys(changes.only) || null;
  if (changes.layout !== undefined) found.view = changes.layout === "split" ? null : changes.layout;
  if (changes.most !== undefined) found.most = changes.most === MOST[0] ? null : String(changes.most);
  if (changes.archived !== undefined) found.archived = changes.archived ? "1" : null;
  return found;
}

/** Parameters that a project may begin with. */
export const SETTINGS: ReadonlySet<string> = new Set(
  ["cols", "group", "sort", "view", "x", "smooth", "logx", "logy", "yrange", "expr", "most"], // prettier-ignore
);
const VIEW_LEFT_OUT = new Set(["project", "sel", "token"]);

/** Parameters as a saved view has them: what is there several times is lines of one text. */
function saved(query: URLSearchParams, wanted: (name: string) => boolean): Record<string, string> {
  const names = [...new Set(query.keys())].filter(wanted);
  return Object.fromEntries(names.map((name) => [name, query.getAll(name).join("\n")]));
}

export const settingsOf = (query: URLSearchParams): Record<string, string> =>
  saved(query, (name) => SETTINGS.has(name));

/** The parameters of an address that make a view of a project. */
export const viewOf = (query: URLSearchParams): Record<string, string> =>
  saved(query, (name) => !VIEW_LEFT_OUT.has(name));

/** The address of a project with these parameters; only texts are taken, since the file may be written by hand. */
export function placeOfView(project: string, parameters: Record<string, unknown> = {}): string {
  const texts = Object.entries(parameters).filter((one): one is [string, string] => typeof one[1] === "string");
  const lists = texts.map(([name, text]): [string, string[]] => [name, text.split("\n")]);
  return `/${formatQuery(withQuery(new URLSearchParams(), { ...Object.fromEntries(lists), project }))}`;
}
