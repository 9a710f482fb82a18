/** The keys of the runs table.
 *
 * In:   the lines, the one under the cursor, what can be done.
 * Out:  bindings for as long as the view is there.
 */

import type { Key } from "../api/types.ts";
import { useKeys } from "../shell/keys.ts";
import { toast } from "../shell/toast.tsx";
import { statusWords } from "../shell/states.ts";
import { remove, toggleArchive, togglePin } from "./actions.ts";
import { lineName, type Line } from "./order.ts";
import type { RowActions } from "./row.tsx";
import type { Layout, TableState } from "./state.ts";
import { rowOf } from "./store.ts";

interface Given {
  lines: readonly Line[];
  cursor: number;
  setCursor: (name: string | null) => void;
  state: TableState;
  update: (changes: Partial<TableState>, replace?: boolean) => void;
  actions: RowActions;
  chosen: readonly Key[];
  compare: () => void;
  toggleGroup: (name: string) => void;
  open: (key: Key) => void;
}

const NEXT_LAYOUT: Record<Layout, Layout> = { split: "table", table: "charts", charts: "explore", explore: "split" };
const PAGE = 15; // lines that Shift+J and Shift+K pass

export function useRunKeys(given: Given): void {
  const { lines, cursor, setCursor, state, update, actions, chosen, compare, toggleGroup, open } = given;
  const line = lines[cursor];
  const key = line?.kind === "run" ? line.row.key : null;
  /** The chosen runs, or the one under the cursor. */
  const meant = chosen.length ? chosen : key ? [key] : [];

  const to = (at: number): void => {
    const next = lines[Math.max(0, Math.min(lines.length - 1, at))];
    if (next) setCursor(lineName(next));
  };
  const move = (by: number) => () => to(cursor < 0 ? 0 : cursor + by);
  const withRun = (run: (key: Key) => void) => () => (key ? run(key) : false);
  const inTable = (event: KeyboardEvent): boolean =>
    (event.target as Element | null)?.closest?.(".table-box, .cards-box") !== null || event.target === document.body;

  useKeys("Runs", [
    { keys: "/", says: "filter", run: () => document.getElementById("filter")?.focus() },
    { keys: "j", says: "down", run: move(1) },
    { keys: "k", says: "up", run: move(-1) },
    { keys: "Shift+J", says: "a page down", run: move(PAGE) },
    { keys: "Shift+K", says: "a page up", run: move(-PAGE) },
    { keys: "g g", says: "first run", run: () => to(0) },
    { keys: "Shift+G", says: "last run", run: () => to(lines.length - 1) },
    { keys: "ArrowDown", run: (event) => (inTable(event) ? move(1)() : false) },
    { keys: "ArrowUp", run: (event) => (inTable(event) ? move(-1)() : false) },
    {
      keys: "Enter",
      says: "open",
      run: (event) => {
        if ((event.target as Element).closest?.("a, button, input")) return false;
        if (line?.kind === "group") return toggleGroup(line.name);
        return key ? open(key) : false;
      },
    },
    {
      keys: "x",
      says: "select",
      run: () => (line?.kind === "group" ? toggleGroup(line.name) : key ? actions.select(key, false) : false),
    },
    { keys: "Shift+X", says: "select up to here", run: withRun((one) => actions.select(one, true)) },
    {
      keys: "c",
      says: "compare the selected",
      run: () => (chosen.length >= 2 ? compare() : toast({ text: "Select two runs or more with x, then press c." })),
    },
    {
      keys: "h",
      says: "hide or show in the charts",
      run: () => (line ? actions.hide(line.kind === "run" ? line.row.key : line.key) : false),
    },
    {
      keys: "o",
      says: "show only this run",
      run: () => (line ? actions.only(line.kind === "run" ? line.row.key : line.key) : false),
    },
    { keys: "p", says: "pin", run: () => (meant.length ? togglePin(meant) : false) },
    { keys: "e", says: "rename", run: withRun((one) => actions.edit(one, "name")) },
    { keys: "t", says: "edit tags", run: withRun((one) => actions.edit(one, "tags")) },
    { keys: "n", says: "edit notes", run: withRun((one) => actions.edit(one, "notes")) },
    { keys: "a", says: "archive", run: () => (meant.length ? toggleArchive(meant) : false) },
    {
      keys: "Delete",
      says: "delete (can be undone)",
      run: () => {
        const ended = meant.filter((one) => !statusWords(rowOf(one)?.status ?? "").open);
        if (ended.length < meant.length) toast({ text: "A running run cannot be deleted.", tone: "bad" });
        if (ended.length) void remove(ended);
      },
    },
    { keys: "v", says: "table, charts, both, explore", run: () => update({ layout: NEXT_LAYOUT[state.layout] }) },
    {
      keys: "Escape",
      says: "clear the selection, then the filter",
      run: () => {
        if (state.selected.size) update({ selected: new Set() }, true);
        else if (state.filter) update({ filter: "" });
        else if (cursor >= 0) setCursor(null);
        else return false;
        return true;
      },
    },
  ]);
}
