/** The runs: the table, and the charts of those that are drawn.
 *
 * In:   the query of the address; the runs, live.
 * Out:  the view; the address for every change.
 */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { getAbout } from "../api/client.ts";
import { isGroup, setGroup } from "../api/groups.ts";
import { announce } from "../api/live.ts";
import { point } from "../chart/highlight.ts";
import type { About, Key, Row } from "../api/types.ts";
import { Explore } from "../explore/view.tsx";
import { formatQuery, runPlace, withQuery } from "../shell/address.ts";
import { useColours } from "../shell/runcolours.ts";
import { Icon } from "../shell/icon.tsx";
import { go, setQuery } from "../shell/route.ts";
import { useSteady } from "../shell/steady.ts";
import { useNarrow } from "../shell/width.ts";
import { statusWords } from "../shell/states.ts";
import { plain, title, whole } from "../shell/text.ts";
import { RunCards } from "./cards.tsx";
import { RunCharts } from "./charts.tsx";
import {
  constants,
  defaultColumns,
  distinctions,
  fitted,
  keyOf,
  shortened,
  type Column,
  type Distinction,
} from "./columns.ts";
import { Divider } from "./divider.tsx";
import { NoMatch, NoRuns, Unreadable, Waiting } from "./empty.tsx";
import { drawn as drawnOf, lineName, lines as linesOf, nextSort, shownOf, sortRows, type Line } from "./order.ts";
import { ProjectList, ProjectMenu } from "./projects.tsx";
import type { Editable, RowActions } from "./row.tsx";
import { useRunKeys } from "./shortcuts.ts";
import { readState, writeState, type TableState } from "./state.ts";
import { readRuns, useFilter, useGroups, useRuns } from "./store.ts";
import { RunsTable } from "./table.tsx";
import { Selection, Toolbar } from "./toolbar.tsx";

const update = (changes: Partial<TableState>, replace = false): void => setQuery(writeState(changes), replace);

function flip<T>(set: ReadonlySet<T>, one: T): Set<T> {
  const next = new Set(set);
  if (!next.delete(one)) next.add(one);
  return next;
}

export function RunsView({ query }: { query: URLSearchParams }) {
  const { rows, version, loaded, unread, error, leftOut } = useRuns();
  const text = query.toString();
  const placed = useMemo(() => readState(query), [text]);
  const [typed, typing] = useState<string | null>(null); // a filter that is not in the address yet
  const state = useMemo(() => (typed === null ? placed : { ...placed, filter: typed }), [placed, typed]);
  const matched = useFilter(state.filter, version);
  const narrow = useNarrow(700);
  const tight = useNarrow(1100);

  const [about, setAbout] = useState<About | null>(null);
  useEffect(() => void getAbout().then(setAbout, () => undefined), []);

  const all = useMemo(() => [...rows.values()], [rows]);
  // who comes with a filter sees nothing else before it is answered
  const coming = useRef(state.filter !== "");
  if (!matched.busy || matched.keys !== null) coming.current = false;
  const pending = coming.current;
  const fitting = useMemo(() => {
    if (pending) return { shown: [], archived: 0 };
    const within = state.project ? all.filter((row) => row.project === state.project) : all;
    const kept = matched.keys === null ? within : within.filter((row) => matched.keys?.has(row.key));
    return {
      shown: kept.filter((row) => state.archived || !row.archived),
      archived: kept.filter((row) => row.archived).length,
    };
  }, [all, matched.keys, state.archived, state.project, pending]);
  const suited = useDefaultColumns(
    fitting.shown,
    `${state.project}\n${state.layout}\n${matched.answer}`,
    state.layout === "split",
  );
  const ids = state.columns ?? suited;
  const grouped = useGroups(state.groups, state, ids, version);
  // the table stays as it is until groups have come
  const awaited = state.groups.length > 0 && grouped.error === null && grouped.groups === null;
  const by = state.groups.length > 0 && grouped.error === null && !awaited;
  const sorted = useMemo(() => sortRows(fitting.shown, state.sort), [fitting, state.sort.id, state.sort.down]);
  const before = useRef<Line[]>([]);
  const lines = useMemo(
    () => (awaited ? before.current : linesOf(sorted, by ? grouped.groups : null, state.closed, state.sort)),
    [sorted, by, awaited, grouped.groups, state.closed, state.sort.id, state.sort.down],
  );
  before.current = lines;
  const visible = useMemo(() => shownOf(state.hidden, state.only), [state.hidden, state.only]);
  const drawn = useMemo(() => drawnOf(lines, visible, state.most), [lines, visible, state.most]);
  const drawnKeys = useMemo(() => [...drawn.keys()], [drawn]);
  useColours(drawnKeys);
  useGroupCurves(drawn, rows);
  const oneProject = state.project !== "" || state.groups.includes("project");
  const shared = useMemo(() => distinctions(fitting.shown, oneProject), [fitting, oneProject]);
  const longest = useMemo(() => nameWidth(fitting.shown, shared, lines), [fitting, shared, lines]);
  const same = useMemo(() => constants(fitting.shown), [fitting]);
  // the column that the table is grouped by would say the same in every row of a group
  const columns = useMemo(() => {
    const shown = ids.filter((id) => !by || !state.groups.includes(id)).map((id) => fitted(id, fitting.shown));
    const found = shortened(shown.filter((one): one is Column => one !== null));
    return by
      ? found.map((one) =>
          one.id.includes(":") && one.kind !== "config" ? { ...one, width: one.width + STATISTIC_PIXELS } : one,
        )
      : found;
  }, [ids.join("\n"), state.groups, by, fitting]);

  const [cursorKey, setCursorKey] = useState<Key | null>(null);
  const [editing, setEditing] = useState<{ key: Key; what: Editable } | null>(null);
  const anchor = useRef<Key | null>(null);
  const cursor = useMemo(() => lines.findIndex((line) => lineName(line) === cursorKey), [lines, cursorKey]);

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
    hover: point,
  });

  const chosen = [...state.selected].filter((key) => rows.has(key));
  const inTable = order.filter((key) => state.selected.has(key)).length;
  const compare = (): void => {
    const keys = chosen.length >= 2 ? chosen : [];
    const group = by ? state.groups.map(keyOf).join(",") : null;
    if (keys.length) go(`/compare${formatQuery(withQuery(new URLSearchParams(), { run: keys, group }))}`);
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

  const aside = !tight && new Set(all.map((row) => row.project)).size > 1;
  const layout = narrow && state.layout === "split" ? "table" : state.layout;
  const share = {
    lines,
    columns,
    several: state.groups.includes("tags"),
    selected: state.selected,
    visible,
    drawn,
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
        filter={placed.filter}
        typing={typing}
        matched={matched}
        rows={all}
        shown={fitting.shown}
        archived={fitting.archived}
        leftOut={leftOut}
        unread={unread}
        ids={ids}
        layout={layout}
        narrow={narrow}
        projects={
          aside ? null : <ProjectMenu rows={all} project={state.project} archived={state.archived} query={query} />
        }
      />
      {grouped.error !== null && (
        <p class="grouping-error" role="alert">
          {grouped.error}
        </p>
      )}
      <div class="split" id="split">
        {aside && <ProjectList rows={all} project={state.project} archived={state.archived} query={query} />}
        {layout === "explore" && <Explore rows={fitting.shown} state={state} query={query} version={version} />}
        {layout !== "charts" && layout !== "explore" && (
          <section class="table-pane">
            <Same settings={same} runs={fitting.shown.length} />
            {pending || (awaited && lines.length === 0) ? (
              <Waiting />
            ) : lines.length === 0 ? (
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
                nameWidth={Math.min(layout === "split" ? (by ? 286 : 260) : 420, longest)}
              />
            )}
          </section>
        )}
        {layout === "split" && <Divider />}
        {layout !== "table" && layout !== "explore" && (
          <RunCharts
            drawn={drawnKeys}
            of={by ? lines.filter((line) => line.kind === "group").length : fitting.shown.length}
            grouped={by}
            rows={rows}
            state={state}
            update={update}
          />
        )}
      </div>
      {chosen.length > 0 && <Selection keys={chosen} update={update} compare={compare} state={state} />}
    </div>
  );
}

/** Room for the longest name, or the longest label of a group, behind the box and the colour. */
function nameWidth(rows: readonly Row[], shared: ReadonlyMap<Key, Distinction>, lines: readonly Line[]): number {
  let longest = "";
  const take = (text: string): void => {
    if (text.length > longest.length) longest = text;
  };
  for (const row of rows) {
    const beside = shared.get(row.key);
    take(`${beside?.before ?? ""}${title(row)} ${beside?.behind ?? ""}`);
  }
  for (const line of lines) if (line.kind === "group") take(`${line.name} 1,000 9 failed`);
  const pen = document.createElement("canvas").getContext("2d");
  const { fontSize, fontFamily } = getComputedStyle(document.body);
  if (pen) pen.font = `${fontSize} ${fontFamily}`;
  return Math.max(190, 82 + Math.ceil(pen ? pen.measureText(longest).width : longest.length * 8));
}

/** Columns that suit the runs shown. They don't change under a person's eyes when a run comes, but when other runs are
 *  asked for: `question` says which. */
function useDefaultColumns(shown: readonly Row[], question: string, tight: boolean): string[] {
  const found = useRef<{ count: number; question: string; ids: string[] }>({ count: 0, question: "", ids: [] });
  return useMemo(() => {
    const now = found.current;
    const few = now.count < 3 && shown.length !== now.count;
    if (!now.ids.length || now.question !== question || few || shown.length > now.count * 2) {
      found.current = { count: shown.length, question, ids: defaultColumns(shown, tight) };
    }
    return found.current.ids;
  }, [shown, question]);
}

/** Says which runs the curve of each group is of, and has it read again when these are others. */
function useGroupCurves(drawn: ReadonlyMap<Key, readonly Key[]>, rows: ReadonlyMap<Key, Row>): void {
  useMemo(() => {
    for (const [key, runs] of drawn) {
      if (!isGroup(key)) continue;
      const open = runs.filter((run) => statusWords(rows.get(run)?.status ?? "").open);
      // the run that went furthest has the names that all have
      const step = (run: Key): number => rows.get(run)?.step ?? -1;
      const first = runs.reduce((best, run) => (step(run) > step(best) ? run : best));
      const ordered = [first, ...runs.filter((run) => run !== first)];
      if (setGroup(key, ordered, open.slice(0, LIVE_MOST))) setTimeout(() => announce(key), 0);
    }
  }, [drawn]);
}

/** Settings that are the same in all runs: one line, which opens. */
function Same({ settings, runs }: { settings: readonly [string, string | number][]; runs: number }) {
  const [open, setOpen] = useState(false);
  if (!settings.length) return null;
  return (
    <button type="button" class={`same ${open ? "open" : ""}`} aria-expanded={open} onClick={() => setOpen(!open)}>
      <span class="quiet">Same in all {whole(runs)}:</span>
      <span class="same-settings">
        {settings.slice(0, open ? undefined : SAME_MOST).map(([name, value]) => (
          <span key={name} title={`${name} = ${value}`}>
            {name} <b>{typeof value === "number" ? plain(value) : value}</b>
          </span>
        ))}
      </span>
      <Icon name={open ? "up" : "down"} />
    </button>
  );
}

const SAME_MOST = 12; // settings in the closed line
const STATISTIC_PIXELS = 74; // beside a value: the deviation and the best
const LIVE_MOST = 50; // runs of a group whose new points are listened to
