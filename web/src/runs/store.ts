/** All runs, kept as the server tells of them: one copy for the whole page.
 *
 * In:   /api/runs, live rows, edits made here.
 * Out:  rows by key; which of them a filter lets through; what is wrong, as a sentence.
 */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { editRun, getGroups, getMatching, getRuns } from "../api/client.ts";
import { listen } from "../api/live.ts";
import { ApiError } from "../api/values.ts";
import type { Edits, Key, Row, RunGroup, Runs } from "../api/types.ts";
import { toast } from "../shell/toast.tsx";
import { keyOf, type ColumnId } from "./columns.ts";

interface State {
  rows: ReadonlyMap<Key, Row>;
  /** Grows with every change. */
  version: number;
  loaded: boolean;
  /** Runs that the server has read nothing of yet. */
  unread: number;
  /** Why nothing could be read, and null as soon as something could. */
  error: string | null;
  /** Sentences about folders that are not served. */
  leftOut: readonly string[];
}

let state: State = { rows: new Map(), version: 0, loaded: false, unread: 0, error: null, leftOut: [] };
const listeners = new Set<() => void>();
let reading: Promise<void> | null = null;
let stamp = "";
let edited = false; // rows were changed here since they were read
let clock = 0; // counts changes of rows, and questions for them
const changedAt = new Map<Key, number>(); // rows that changed here since the last answer
const pending = new Map<Key, Edits[]>(); // edits that the server has not answered yet
let started = false;
let frame = 0;

const AGAIN_SECONDS = 60; // runs that were deleted elsewhere are in no event

function set(changes: Partial<State>): void {
  state = { ...state, ...changes, version: state.version + 1 };
  if (frame) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    for (const listener of [...listeners]) listener();
  });
}

export function rowOf(key: Key): Row | undefined {
  return state.rows.get(key);
}

/** Read all rows with a question that is asked from now on. */
export const readAgain = (): Promise<void> => (reading ? reading.then(readRuns) : readRuns());

async function ask(first: boolean): Promise<Runs> {
  const asked = ++clock;
  const answer = await getRuns(first);
  take(answer, asked);
  return answer;
}

/** Read all rows; once at a time. */
export function readRuns(): Promise<void> {
  reading ??= ask(!state.loaded)
    .then(async ({ unread }) => {
      if (unread) await ask(false);
    })
    .catch((error: Error) => set({ error: error.message }))
    .finally(() => {
      reading = null;
    });
  return reading;
}

/** asked: when. A row that changed here since then stays as it is: the answer may be older. */
function take({ runs, stamp: now, left_out: leftOut, unread }: Runs, asked: number): void {
  if (now && now === stamp && !edited && state.loaded && state.error === null) return;
  const rows = new Map(runs.map((row) => [row.key, withPending(row)]));
  edited = false;
  for (const [key, at] of changedAt) {
    if (at < asked) {
      changedAt.delete(key);
      continue;
    }
    edited = true;
    const own = state.rows.get(key);
    if (own) rows.set(key, own);
    else rows.delete(key);
  }
  stamp = now;
  set({ rows, loaded: true, unread, error: null, leftOut });
}

const withPending = (row: Row): Row => Object.assign({}, row, ...(pending.get(row.key) ?? [])) as Row;

export function mergeRows(changed: readonly Row[], gone: readonly Key[] = []): void {
  if (changed.length === 0 && gone.length === 0) return;
  edited = true;
  clock += 1;
  const rows = new Map(state.rows);
  for (const key of gone) rows.delete(key);
  for (const row of changed) rows.set(row.key, withPending(row));
  for (const key of [...gone, ...changed.map((row) => row.key)]) changedAt.set(key, clock);
  set({ rows });
}

export const forgetRow = (key: Key): void => mergeRows([], [key]);

/** Shown at once, and taken back with a sentence if the server refuses. */
export async function change(key: Key, edits: Edits): Promise<void> {
  const before = state.rows.get(key);
  pending.set(key, [...(pending.get(key) ?? []), edits]);
  if (before) mergeRows([before]);
  try {
    settle(key, edits, await editRun(key, edits));
  } catch (error) {
    const now = state.rows.get(key);
    const names = Object.keys(edits) as (keyof Edits)[];
    settle(key, edits, now && before && { ...now, ...Object.fromEntries(names.map((name) => [name, before[name]])) });
    toast({ text: `Not saved: ${(error as Error).message}`, tone: "bad" });
  }
}

function settle(key: Key, edits: Edits, row: Row | undefined): void {
  const others = (pending.get(key) ?? []).filter((one) => one !== edits);
  if (others.length) pending.set(key, others);
  else pending.delete(key);
  if (row) mergeRows([row]);
}

function start(): void {
  if (started) return;
  started = true;
  void readRuns();
  // what changed between the answer and the connection is in no event
  listen({ onRows: mergeRows, onOpen: () => void readAgain() });
  setInterval(() => {
    if (!document.hidden && state.loaded) void readRuns();
  }, AGAIN_SECONDS * 1000);
}

/** All runs, and a new drawing when one changes. */
export function useRuns(): State {
  const [, again] = useState(0);
  useEffect(() => {
    const listener = (): void => again((count) => count + 1);
    listeners.add(listener);
    start();
    return () => void listeners.delete(listener);
  }, []);
  return state;
}

const QUICK_MILLISECONDS = 100; // answers within this are asked for with every letter
const TYPING_MILLISECONDS = 300; // others when no letter came for so long
const FRESH_MILLISECONDS = 3000; // what was asked is asked again when rows change, but not oftener

interface Answer<T> {
  /** What was answered last, and to which question. */
  found: { question: string; value: T } | null;
  error: string | null;
  busy: boolean;
}

interface Asking {
  at: number;
  /** Of the rows when it was asked first. */
  version: number;
  timer?: ReturnType<typeof setTimeout>;
  stop: AbortController;
}

/** Asks when the question is another one, and again when rows change. An answer stays until the next has come. */
function useAsked<T>(question: string, version: number, ask: (signal: AbortSignal) => Promise<T>): Answer<T> {
  const [answer, set] = useState<Answer<T>>({ found: null, error: null, busy: question !== "" });
  const asking = useRef<Asking | null>(null);
  const last = useRef<{ sent: number; took: number | null }>({ sent: 0, took: 0 });
  const changed = useRef(0);

  const send = (): void => {
    const mine = asking.current;
    if (!mine) return;
    mine.timer = undefined;
    mine.at = Date.now();
    const sent = { sent: mine.at, took: null as number | null };
    last.current = sent;
    ask(mine.stop.signal)
      .finally(() => (sent.took = Date.now() - sent.sent))
      .then((value) => set({ found: { question, value }, error: null, busy: false }))
      .catch((error: Error) => {
        if (error.name === "AbortError") return;
        const refused = error instanceof ApiError && error.status >= 400 && error.status < 500;
        set(({ found }) => ({ found, error: refused ? error.message : null, busy: false }));
      });
  };
  const latest = useRef(send);
  latest.current = send;

  // asked before the browser paints: the answer is on its way meanwhile
  useLayoutEffect(() => {
    if (!question) {
      set({ found: null, error: null, busy: false });
      return;
    }
    set((now) => ({ ...now, busy: true }));
    const now = Date.now();
    const quick = (last.current.took ?? now - last.current.sent) <= QUICK_MILLISECONDS;
    const alone = now - changed.current > TYPING_MILLISECONDS;
    changed.current = now;
    const mine: Asking = { at: now, version, stop: new AbortController() };
    asking.current = mine;
    if (quick || alone) latest.current();
    else mine.timer = setTimeout(() => latest.current(), TYPING_MILLISECONDS);
    return () => {
      clearTimeout(mine.timer);
      mine.stop.abort();
      asking.current = null;
    };
  }, [question]);

  useEffect(() => {
    const mine = asking.current;
    if (!mine || mine.version === version || mine.timer !== undefined) return;
    mine.timer = setTimeout(() => latest.current(), Math.max(0, mine.at + FRESH_MILLISECONDS - Date.now()));
  }, [version]);

  return answer;
}

export interface Matched {
  /** null: all. */
  keys: ReadonlySet<Key> | null;
  /** The filter that these are of. */
  answer: string;
  /** The server's sentence about a filter that cannot be read. */
  error: string | null;
  busy: boolean;
}

/** Which runs a filter lets through. A filter that cannot be read leaves the runs of before. */
export function useFilter(text: string, version: number): Matched {
  const wanted = text.trim();
  const { found, error, busy } = useAsked(
    wanted,
    version,
    async (signal) => new Set((await getMatching(wanted, signal)).keys),
  );
  const known = wanted ? found : null;
  return { keys: known?.value ?? null, answer: known?.question ?? "", error, busy };
}

/** Groups of the runs that a table shows. columns: what is wanted of each. null while nothing is known of these keys. */
export function useGroups(
  by: readonly ColumnId[],
  within: { filter: string; project: string; archived: boolean },
  columns: readonly ColumnId[],
  version: number,
): { groups: RunGroup[] | null; error: string | null; busy: boolean } {
  const query = new URLSearchParams();
  if (by.length) {
    query.set("by", by.map(keyOf).join(","));
    if (within.filter.trim()) query.set("filter", within.filter.trim());
    if (within.project) query.set("project", within.project);
    if (within.archived) query.set("archived", "1");
    for (const id of columns) if (!id.startsWith("config:")) query.append("column", id);
  }
  const question = query.toString();
  const { found, error, busy } = useAsked(question, version, async (signal) => (await getGroups(query, signal)).groups);
  const same = found !== null && new URLSearchParams(found.question).get("by") === query.get("by");
  return { groups: same ? found.value : null, error, busy };
}
