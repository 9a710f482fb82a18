/** Live updates: one connection for the whole page, shared by all who listen.
 *
 * In:   the server's events: changed rows, runs with new points.
 * Out:  calls to listeners; the state of the connection.
 *
 * A browser opens six connections to a server for all its tabs, and each stream holds one: so there is one a tab, and
 * none in a tab that nobody sees. Who comes back to a tab reads again (`onAgain`).
 */

import { outside } from "./base.ts";
import { tellServer } from "./client.ts";
import { openRunsOf } from "./groups.ts";
import type { Key, PointsEvent, Row, RowsEvent } from "./types.ts";

export interface Listener {
  /** Rows that changed; keys of runs that are gone. */
  onRows?(rows: Row[], gone: Key[]): void;
  /** New points of one of `runs` can be read. */
  onPoints?(run: Key, step: number | null): void;
  /** The connection stands, for the first time or again: changes from now on arrive. */
  onOpen?(): void;
  /** Something may have been missed: read everything again. */
  onAgain?(): void;
  /** The runs whose points are wanted; none: rows alone. */
  runs?: readonly Key[];
}

const HIDDEN_SECONDS = 20; // a tab out of sight for so long lets go of its connection
const RETRY_SECONDS = [1, 2, 4, 8, 15];
const NOBODY = "-"; // no run has this key: rows alone

const listeners = new Set<Listener>();
let source: EventSource | null = null;
let asked = "";
let change: ReturnType<typeof setTimeout> | undefined;
let hide: ReturnType<typeof setTimeout> | undefined;
let failures = 0;
let lost = false;

/** Listen until the function that is returned is called. */
export function listen(listener: Listener): () => void {
  listeners.add(listener);
  soon(60);
  return () => {
    listeners.delete(listener);
    soon(1000);
  };
}

function soon(milliseconds: number): void {
  clearTimeout(change);
  change = setTimeout(connect, milliseconds);
}

function address(): string {
  const keys = new Set<Key>();
  for (const one of listeners) for (const key of one.runs ?? []) for (const run of openRunsOf(key)) keys.add(run);
  const wanted = keys.size ? [...keys].sort() : [NOBODY];
  return `/api/live?${wanted.map((key) => `run=${encodeURIComponent(key)}`).join("&")}`;
}

function connect(): void {
  if (listeners.size === 0) {
    close();
    return;
  }
  const wanted = address();
  if (source !== null && wanted === asked) return;
  close();
  if (typeof EventSource === "undefined" || document.hidden) {
    lost = true;
    return;
  }
  asked = wanted;
  const mine = new EventSource(outside(wanted));
  source = mine;
  mine.addEventListener("open", () => {
    failures = 0;
    tellServer(true);
    for (const one of [...listeners]) one.onOpen?.();
    if (lost) {
      lost = false;
      for (const one of [...listeners]) one.onAgain?.();
    }
  });
  mine.addEventListener("rows", (event) => {
    const { rows, gone } = JSON.parse((event as MessageEvent<string>).data) as RowsEvent;
    for (const one of [...listeners]) one.onRows?.(rows, gone);
  });
  mine.addEventListener("points", (event) => {
    const points = JSON.parse((event as MessageEvent<string>).data) as PointsEvent;
    for (const one of [...listeners]) {
      for (const key of one.runs ?? []) if (openRunsOf(key).includes(points.run)) one.onPoints?.(key, points.step);
    }
  });
  mine.addEventListener("error", () => {
    if (source !== mine) return;
    close();
    lost = true;
    tellServer(false);
    const seconds = RETRY_SECONDS[Math.min(failures, RETRY_SECONDS.length - 1)] ?? 15;
    failures += 1;
    soon(seconds * 1000);
  });
}

/** What is drawn for a key is to be read again: a group has other runs than before. */
export function announce(key: Key): void {
  for (const one of [...listeners]) if (one.runs?.includes(key)) one.onPoints?.(key, null);
}

/** Try again now, as a person asked for it. */
export function retryNow(): void {
  failures = 0;
  soon(0);
}

function close(): void {
  source?.close();
  source = null;
}

if (typeof document !== "undefined") {
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hide);
    if (document.hidden) {
      hide = setTimeout(() => {
        close();
        lost = true;
      }, HIDDEN_SECONDS * 1000);
    } else if (source === null) soon(0);
  });
}
