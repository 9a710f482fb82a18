/** Asks the server for many curves in few requests.
 *
 * In:   wishes for series, made within a few milliseconds of each other; a signal for each.
 * Out:  curves, in the order wished.
 *
 * Wishes of the same axis and range travel together, each series once. A request is aborted when nobody who wished
 * for something in it still wants it.
 */

import { getSeries } from "../api/client.ts";
import type { Axis } from "../api/values.ts";
import type { Key } from "../api/types.ts";
import { curveOf, type Curve } from "./curve.ts";
import type { View } from "./range.ts";

export interface Wish {
  x: Axis;
  view: View;
  /** Buckets as wide as pixels of a logarithmic axis. */
  logX?: boolean;
  buckets: number;
  branch: "live" | "all";
  smooth: string | number;
}

export interface Wanted {
  run: Key;
  name: string;
  rank?: number;
}

type Ask = typeof getSeries;

interface Waiting {
  series: readonly Wanted[];
  signal: AbortSignal;
  done(curves: Curve[]): void;
  failed(error: unknown): void;
}

const GATHER_MS = 4; // charts that become visible together are gathered within one frame
const MOST = 120; // series a request: the first charts are there while later ones are worked on; the server takes 500
const AT_ONCE = 2; // requests under way: more would share the server's processors, and all would come late

export class Loader {
  #waiting = new Map<string, { wish: Wish; all: Waiting[] }>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #ask: Ask;
  #queue: { wish: Wish; part: Waiting[] }[] = [];
  #busy = 0;

  constructor(ask: Ask = getSeries) {
    this.#ask = ask;
  }

  /** Rejects with an AbortError when the signal is given, with an ApiError when the server says no. */
  load(series: readonly Wanted[], wish: Wish, signal: AbortSignal): Promise<Curve[]> {
    return new Promise((done, failed) => {
      if (signal.aborted) return failed(aborted());
      signal.addEventListener("abort", () => failed(aborted()), { once: true });
      const key = JSON.stringify([wish.x, wish.view, wish.logX ?? false, wish.buckets, wish.branch, wish.smooth]);
      const group = this.#waiting.get(key) ?? { wish, all: [] };
      group.all.push({ series, signal, done, failed });
      this.#waiting.set(key, group);
      this.#timer ??= setTimeout(() => this.#send(), GATHER_MS);
    });
  }

  #send(): void {
    this.#timer = undefined;
    const groups = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { wish, all } of groups) {
      let part: Waiting[] = [];
      let size = 0;
      for (const one of all.filter((one) => !one.signal.aborted)) {
        if (size && size + one.series.length > MOST) {
          this.#queue.push({ wish, part });
          [part, size] = [[], 0];
        }
        part.push(one);
        size += one.series.length;
      }
      if (part.length) this.#queue.push({ wish, part });
    }
    this.#next();
  }

  #next(): void {
    while (this.#busy < AT_ONCE && this.#queue.length) {
      const { wish, part } = this.#queue.shift() ?? { wish: null, part: [] };
      const wanted = part.filter((one) => !one.signal.aborted);
      if (!wish || !wanted.length) continue;
      this.#busy += 1;
      void this.#request(wish, wanted).finally(() => {
        this.#busy -= 1;
        this.#next();
      });
    }
  }

  async #request(wish: Wish, part: Waiting[]): Promise<void> {
    const places = new Map<string, number>();
    const series: Wanted[] = [];
    for (const one of part) {
      for (const wanted of one.series) {
        const key = name(wanted);
        if (!places.has(key)) {
          places.set(key, series.length);
          series.push(wanted);
        }
      }
    }
    const control = new AbortController();
    let left = part.length;
    for (const one of part) {
      one.signal.addEventListener("abort", () => --left === 0 && control.abort(), { once: true });
    }
    try {
      const curves: Curve[] = [];
      for (let at = 0; at < series.length; at += 500) {
        const frame = await this.#ask(
          {
            series: series.slice(at, at + 500),
            x: wish.x,
            from: wish.view?.[0] ?? null,
            to: wish.view?.[1] ?? null,
            buckets: wish.buckets,
            branch: wish.branch,
            smooth: wish.smooth || 0,
            log: wish.logX ?? false,
          },
          control.signal,
        );
        frame.header.series.forEach((header, index) => {
          curves.push(curveOf(frame, header, series[at + index]));
        });
      }
      for (const one of part) {
        one.done(
          one.series.map((wanted) => curves[places.get(name(wanted)) ?? -1]).filter((curve) => curve !== undefined),
        );
      }
    } catch (error) {
      for (const one of part) one.failed(error);
    }
  }
}

const name = (wanted: Wanted): string => `${wanted.run}\n${wanted.rank ?? ""}\n${wanted.name}`;

function aborted(): Error {
  return new DOMException("no longer wanted", "AbortError");
}

export const loader = new Loader();
