/** What charts that stand together share: axis, range, cursor, smoothing, live points.
 *
 * In:   changes by any chart or control.
 * Out:  calls to all charts of the group, at most once a frame for the cursor and the range.
 */

import type { Axis } from "../api/values.ts";
import type { Key } from "../api/types.ts";
import { listen } from "../api/live.ts";
import { followed, History, same, type View } from "./range.ts";

export interface Settings {
  x: Axis;
  /** As the server reads it: "0.9", "mean:25", "gaussian:25"; "" for none. */
  smooth: string;
  logX: boolean;
  /** null: each panel as it finds best. */
  logY: boolean | null;
  branch: "live" | "all";
  /** y axes: true leaves out the outermost hundredths, false has all values, null leaves out what a run that diverges
   *  has beyond the others. */
  typical: boolean | null;
  /** Panels of expressions. */
  expressions: readonly string[];
}

// prettier-ignore
export const PLAIN: Settings = {
  x: "step", smooth: "", logX: false, logY: null, branch: "all", typical: null, expressions: [],
};

/** "0.9", "mean:25", "gaussian:25"; "" for none and for anything else. */
export function smoothOf(given: string | number | null | undefined): string {
  const [amount = "", kind = "ema"] = String(given ?? "")
    .split(":")
    .reverse();
  const value = Number(amount);
  if (kind === "ema") return value > 0 && value < 1 ? String(Math.min(value, 0.9999)) : "";
  const points = Math.round(value);
  return (kind === "mean" || kind === "gaussian") && points > 1 ? `${kind}:${Math.min(points, 100_000)}` : "";
}

const COUNTED = new Set(["step", "samples", "tokens"]);

/** There is no half step. */
function wholeView(view: View, { x, logX }: Settings): View {
  if (!view || logX || !COUNTED.has(x) || view[1] - view[0] < 2) return view;
  return [Math.round(view[0]), Math.round(view[1])];
}

export type Changes = Partial<Omit<Settings, "smooth"> & { smooth: string | number }>;

const normal = ({ smooth, ...others }: Changes): Partial<Settings> =>
  smooth === undefined ? others : { ...others, smooth: smoothOf(smooth) };

export interface Member {
  /** Passed as `from` with its own changes. */
  owner?: object;
  onRange?(view: View, settled: boolean, from: object | null): void;
  onCursor?(x: number | null, from: object | null): void;
  onSettings?(settings: Settings): void;
  onNames?(): void;
  onPoints?(runs: ReadonlySet<Key> | null): void;
}

const FRAME_MS = 7; // of the 16 that a frame has: the browser puts the canvases together in the rest
const LIVE_MS = 250; // between two looks at new points: the eye sees no difference, the server does

export class Group {
  settings: Settings;
  view: View = null;
  cursor: number | null = null;
  /** Series that can be an axis, as the panels have found them. */
  names: readonly string[] = [];
  /** The last x of everything drawn, by which a view knows that it stands at the right edge. */
  edge = -Infinity;
  readonly #members = new Set<Member>();
  readonly #history = new History();
  #frame = 0;
  #turn = 0;
  #pending: { cursor?: object | null; range?: [boolean, object | null] } = {};
  #dirty: Set<Key> | null = new Set();
  #told = -Infinity;
  #dirtyTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(settings: Changes = {}, view: View = null) {
    this.settings = { ...PLAIN, ...normal(settings) };
    this.view = view;
    if (view) this.#history.push(view);
  }

  join(member: Member): () => void {
    this.#members.add(member);
    return () => this.#members.delete(member);
  }

  set(changes: Changes): void {
    const before = this.settings;
    this.settings = { ...before, ...normal(changes) };
    if (this.settings.x !== before.x) {
      this.view = null;
      this.edge = -Infinity;
      this.#history.push(null);
      for (const one of this.#members) one.onRange?.(null, true, null);
    }
    for (const one of this.#members) one.onSettings?.(this.settings);
  }

  /** The series that there are, for those who offer them as axes. */
  know(names: readonly string[]): void {
    if (names.length === this.names.length && names.every((name, at) => name === this.names[at])) return;
    this.names = names;
    for (const one of this.#members) one.onNames?.();
  }

  /** settled: the movement is over, exact data are wanted now. from: the chart that is asked first. */
  range(view: View, settled: boolean, from: object | null = null): void {
    if (settled) {
      view = wholeView(view, this.settings);
      this.#history.push(view);
    }
    if (same(view, this.view) && !settled) return;
    this.view = view;
    this.#pending.range = [settled || (this.#pending.range?.[0] ?? false), from];
    this.#soon();
  }

  back(): void {
    this.range(this.#history.back(), true);
  }

  forward(): void {
    this.range(this.#history.forward(), true);
  }

  point(x: number | null, from: object | null): void {
    this.cursor = x;
    this.#pending.cursor = from;
    this.#soon();
  }

  #soon(): void {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      const { cursor, range } = this.#pending;
      this.#pending = {};
      if (range) this.#spread(range[0], range[1]);
      if (cursor !== undefined) for (const one of this.#members) one.onCursor?.(this.cursor, cursor);
    });
  }

  /** Tells all of a new range: while it moves, first the chart under the hand, then others for as long as a frame has
   *  time, in turns; when it stands, all. */
  #spread(settled: boolean, from: object | null): void {
    if (settled) {
      for (const one of this.#members) one.onRange?.(this.view, true, from);
      return;
    }
    const until = performance.now() + FRAME_MS;
    const others: Member[] = [];
    for (const one of this.#members) {
      if (one.owner === from && from !== null) one.onRange?.(this.view, false, from);
      else others.push(one);
    }
    for (let turn = 0; turn < others.length && performance.now() < until; turn++) {
      this.#turn = (this.#turn + 1) % others.length;
      others[this.#turn]?.onRange?.(this.view, false, from);
    }
  }

  /** A chart saw data up to this x: a view at the edge moves along. */
  reached(edge: number): void {
    if (!(edge > this.edge)) return;
    const before = this.edge;
    this.edge = edge;
    if (before === -Infinity) return;
    const next = followed(this.view, before, edge);
    if (!same(next, this.view)) this.range(next, true);
  }

  /** Listen to new points of these runs; returns how to stop. */
  live(runs: readonly Key[]): () => void {
    const note = (run: Key | null): void => {
      if (run === null) this.#dirty = null;
      else this.#dirty?.add(run);
      const wait = Math.max(0, this.#told + LIVE_MS - performance.now());
      this.#dirtyTimer ??= setTimeout(() => {
        this.#dirtyTimer = undefined;
        this.#told = performance.now();
        const dirty = this.#dirty;
        this.#dirty = new Set();
        for (const one of this.#members) one.onPoints?.(dirty);
      }, wait);
    };
    return listen({ runs, onPoints: (run) => note(run), onAgain: () => note(null) });
  }
}
