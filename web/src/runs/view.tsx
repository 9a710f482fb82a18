/** The runs: the table, and the charts of those that are drawn.
 *
 * In:   the query of the address; the runs, live.
 * Out:  the view; the address for every change.
 */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { getAbout } from "../api/client.ts";
import type { About, Key, Row } from "../api/types.ts";
import { formatQuery, runPlace, withQuery } from "../shell/address.ts";
import { useColours } from "../shell/runcolours.ts";
import { go, setQuery } from "../shell/route.ts";
import { useSteady } from "../shell/steady.ts";
import { useNarrow } from "../shell/width.ts";
import { title } from "../shell/text.ts";
import { RunCards } from "./cards.tsx";
import { RunCharts } from "./charts.tsx";
import { defaultColumns, distinctions, fitted, type Column, type Distinction } from "./columns.ts";
import { Divider } from "./divider.tsx";
import { NoMatch, NoRuns, Unreadable, Waiting } from "./empty.tsx";
import { drawn as drawnOf, lines as linesOf, nextSort, sortRows } from "./order.ts";
import type { Editable, RowActions } from "./row.tsx";
import { useRunKeys } from "./shortcuts.ts";
import { readState, writeState, type TableState } from "./state.ts";
import { readRuns, useFilter, useRuns } from "./store.ts";
import { RunsTable } from "./table.tsx";
import { Selection, Toolbar } from "./toolbar.tsx";

const update = (changes: Partial<TableState>, replace = false): void => setQuery(writeState(changes), replace);

function flip<T>(set: ReadonlySet<T>, one: T): Set<T> {
  const next = new Set(set);
  if (!next.delete(one)) next.add(one);
  return next;
}

export function RunsView({ query }: { query: URLSearchParams }) {
  const { rows, version, loaded, error, leftOut } = useRuns();
  const text = query.toString();
  const state = useMemo(() => readState(query), [text]);
  const matched = useFilter(state.filter, version);
  const narrow = useNarrow(700);

  const [about, setAbout] = useState<About | null>(null);
  useEffect(() => void getAbout().then(setAbout, () => undefined), []);

  const all = useMemo(() => [...rows.values()], [rows]);
  const fitting = useMemo(() => {
    const kept = matched.keys === null ? all : all.filter((row) => matched.keys?.has(row.key));
    return {
      shown: kept.filter((row) => state.archived || !row.archived),
      archived: kept.filter((row) => row.archived).length,
    };
  }, [all, matched.keys, state.archived]);
  const sorted = useMemo(() => sortRows(fitting.shown, state.sort), [fitting, state.sort.id, state.sort.down]);
  const lines = useMemo(() => linesOf(sorted, state.group, state.closed), [sorted, state.group, state.closed]);
  const hidden = useMemo(
    () => (state.only.size ? { has: (key: Key) => !state.only.has(key) } : state.hidden),
    [state.only, state.hidden],
  );
  const drawn = useMemo(() => drawnOf(lines, hidden, state.most), [lines, hidden, state.most]);
  useColours(drawn);
  const drawnSet = useMemo(() => new Set(drawn), [drawn]);
  const shared = useMemo(() => distinctions(all, state.group === "project"), [all, state.group]);
  const longest = useMemo(() => nameWidth(all, shared), [all, shared]);
  const suited = useDefaultColumns(all);
  const ids = state.columns ?? suited;
  // the column that the table is grouped by would say the same in every row of a group
  const columns = useMemo(
    () =>
      ids
        .filter((id) => id !== state.group)
        .map((id) => fitted(id, all))
        .filter((one): one is Column => one !== null),
    [ids.join("\n"), state.group, all],
  );

  const [cursorKey, setCursorKey] = useState<Key | null>(null);
  const [editing, setEditing] = useState<{ key: Key; what: Editable } | null>(null);
  const [highlight, setHighlight] = useState<Key | null>(null);
  const anchor = useRef<Key | null>(null);
  const cursor = useMemo(
    () => lines.findIndex((line) => (line.kind === "run" ? line.row.key : `group ${line.name}`) === cursorKey),
    [lines, cursorKey],
  );

  const order = useMemo(() => lines.flatMap((line) => (line.kind === "run" ? [line.row.key] : [])), [lines]);
  const actions: RowActions = useSteady({
    select(key: Key, range: boolean) {
      const next = new Set(state.selected);
      const [a, b] = [order.indexOf(anchor.current ?? ""), order.indexOf(key)];
      if (range && a >= 0 && b >= 0) for (const one of order.slice(Math.min(a, b), Math.max(a, b) + 1)) next.add(one);
      else if (!next.delete(key)) next.add(key);
      anchor.current = key;
      update({ selected: next }, true);
    },
    hide: (key: Key) =>
      update(state.only.size ? { only: flip(state.only, key) } : { hidden: flip(state.hidden, key) }, true),
    only: (key: Key) =>
      update({ only: state.only.size === 1 && state.only.has(key) ? new Set() : new Set([key]) }, true),
    edit(key: Key, what: Editable | null) {
      setEditing(what ? { key, what } : null);
      if (!what) return;
      setCursorKey(key);
      // what is edited has to be in sight: a column that is not shown comes along
      if (what !== "name" && !narrow && !ids.includes(what)) update({ columns: [...ids, what] }, true);
    },
    cursor: setCursorKey,
    hover: setHighlight,
  });

  const chosen = [...state.selected].filter((key) => rows.has(key));
  const inTable = order.filter((key) => state.selected.has(key)).length;
  const compare = (): void => {
    const keys = chosen.length >= 2 ? chosen : [];
    if (keys.length) go(`/compare${formatQuery(withQuery(new URLSearchParams(), { run: keys }))}`);
  };
  const toggleGroup = (name: string): void => update({ closed: flip(state.closed, name) }, true);
  const selectGroup = (keys: readonly Key[]): void => {
    const next = new Set(state.selected);
    const on = keys.some((key) => !next.has(key));
    for (const key of keys) on ? next.add(key) : next.delete(key);
    update({ selected: next }, true);
  };

  useRunKeys({
    lines,
    cursor,
    setCursor: setCursorKey,
    state,
    update,
    actions,
    chosen,
    compare,
    toggleGroup,
    open: (key) => go(runPlace(key)),
  });

  if (!loaded) return error ? <Unreadable error={error} again={() => void readRuns()} /> : <Waiting />;
  if (rows.size === 0) return <NoRuns about={about} />;

  const layout = narrow && state.layout === "split" ? "table" : state.layout;
  const share = {
    lines,
    columns,
    group: state.group,
    selected: state.selected,
    hidden,
    drawn: drawnSet,
    cursor,
    editing,
    actions,
    toggleGroup,
    shared,
  };
  return (
    <div class={`runs layout-${layout}`}>
      <h1 class="unseen">Runs</h1>
      <Toolbar
        state={state}
        update={update}
        matched={matched}
        rows={all}
        shown={fitting.shown}
        archived={fitting.archived}
        leftOut={leftOut}
        ids={ids}
        layout={layout}
        narrow={narrow}
      />
      <div class="split" id="split">
        {layout !== "charts" && (
          <section class="table-pane">
            {lines.length === 0 ? (
              <NoMatch
                filter={state.filter}
                archived={fitting.archived}
                showArchived={() => update({ archived: true })}
                clear={() => update({ filter: "" })}
              />
            ) : narrow ? (
              <RunCards {...share} />
            ) : (
              <RunsTable
                {...share}
                sort={state.sort}
                setSort={(id) => update({ sort: nextSort(state.sort, id) })}
                selectAll={(on) => update({ selected: on ? new Set([...state.selected, ...order]) : new Set() }, true)}
                chosen={[inTable, order.length]}
                selectGroup={selectGroup}
                nameWidth={Math.min(layout === "split" ? 300 : 420, longest)}
              />
            )}
          </section>
        )}
        {layout === "split" && <Divider />}
        {layout !== "table" && (
          <RunCharts
            drawn={drawn}
            shownRuns={new Set(order).size || fitting.shown.length}
            rows={rows}
            state={state}
            update={update}
            highlight={highlight}
          />
        )}
      </div>
      {chosen.length > 0 && <Selection keys={chosen} update={update} compare={compare} state={state} />}
    </div>
  );
}

/** Room for the longest name, behind the box and the colour. */
function nameWidth(rows: readonly Row[], shared: ReadonlyMap<Key, Distinction>): number {
  let longest = "";
  for (const row of rows) {
    const beside = shared.get(row.key);
    const text = `${beside?.before ?? ""}${title(row)} ${beside?.behind ?? ""}`;
    if (text.length > longest.length) longest = text;
  }
  const pen = document.createElement("canvas").getContext("2d");
  const { fontSize, fontFamily } = getComputedStyle(document.body);
  if (pen) pen.font = `${fontSize} ${fontFamily}`;
  return Math.max(190, 82 + Math.ceil(pen ? pen.measureText(longest).width : longest.length * 8));
}

/** Columns that suit the runs; they don't change under a person's eyes when a run comes. */
function useDefaultColumns(all: readonly Row[]): string[] {
  const found = useRef<{ count: number; ids: string[] }>({ count: 0, ids: [] });
  return useMemo(() => {
    const now = found.current;
    if (now.ids.length === 0 || (now.count < 3 && all.length !== now.count) || all.length > now.count * 2) {
      found.current = { count: all.length, ids: defaultColumns(all) };
    }
    return found.current.ids;
  }, [all]);
}
