/** Ranges of an axis: padding, zoom, pan, the history of zooms, following the right edge.
 *
 * In:   ranges [from, to] with from < to; null where the whole is shown.
 * Out:  new ranges. Pure.
 */

export type Range = readonly [number, number];
export type View = Range | null;

const forward = (log: boolean, value: number): number => (log ? Math.log10(value) : value);
const back = (log: boolean, value: number): number => (log ? 10 ** value : value);

/** The range of a y axis around values, with room at both ends. */
export function padded(low: number, high: number, log: boolean, share = 0.06): Range {
  if (!(low <= high)) return log ? [0.1, 10] : [0, 1];
  if (log) {
    const a = Math.log10(low);
    const b = Math.log10(high);
    const room = b - a > 1e-9 ? (b - a) * share : 0.15;
    return [Math.max(10 ** (a - room), Number.MIN_VALUE), Math.min(10 ** (b + room), Number.MAX_VALUE)];
  }
  if (high - low <= Math.abs(high) * 1e-12) {
    const room = Math.abs(high) * 0.05 || 1;
    return [low - room, high + room];
  }
  // halves, so that the width of a range like -1e308 to 1e308 is a number
  const room = (high / 2 - low / 2) * 2 * share;
  const least = low >= 0 && low - room < 0 ? Math.min(0, low) : low - room;
  return [Number.isFinite(least) ? least : low, Number.isFinite(high + room) ? high + room : high];
}

/** Zoom by a factor (below 1 is closer) around a place that stays where it is. */
export function zoomed(range: Range, around: number, factor: number, log = false): Range {
  const [from, to] = [forward(log, range[0]), forward(log, range[1])];
  const place = forward(log, around);
  return [back(log, place - (place - from) * factor), back(log, place + (to - place) * factor)];
}

/** Move by a share of the width. */
export function panned(range: Range, share: number, log = false): Range {
  const [from, to] = [forward(log, range[0]), forward(log, range[1])];
  const by = (to - from) * share;
  return [back(log, from + by), back(log, to + by)];
}

/** Held within bounds: moved back if it fits, else the whole (null). */
export function within(range: Range, bounds: Range, log = false): View {
  const [a, b] = [forward(log, range[0]), forward(log, range[1])];
  const [low, high] = [forward(log, bounds[0]), forward(log, bounds[1])];
  const width = b - a;
  if (!Number.isFinite(width) || width >= (high - low) * 0.9999) return null;
  if (a < low) return [bounds[0], back(log, low + width)];
  if (b > high) return [back(log, high - width), bounds[1]];
  return range;
}

/** No closer than numbers can tell apart. */
export function sensible(range: Range): boolean {
  const width = range[1] - range[0];
  return width > Math.max(Math.abs(range[0]), Math.abs(range[1])) * 1e-12 && width > 0 && Number.isFinite(width);
}

/** A range that touched the old right edge moves with the new one; another stays. */
export function followed(view: View, oldEdge: number, newEdge: number): View {
  if (view === null || newEdge <= oldEdge) return view;
  const near = (view[1] - view[0]) * 0.02;
  if (view[1] < oldEdge - near) return view;
  const by = newEdge - oldEdge;
  return [view[0] + by, view[1] + by];
}

/** Where one has been: `push` forgets what was undone. */
export class History {
  #stack: View[] = [null];
  #at = 0;

  get now(): View {
    return this.#stack[this.#at] ?? null;
  }

  push(view: View): void {
    if (same(view, this.now)) return;
    this.#stack.splice(this.#at + 1, this.#stack.length, view);
    if (this.#stack.length > 100) this.#stack.shift();
    this.#at = this.#stack.length - 1;
  }

  back(): View {
    this.#at = Math.max(0, this.#at - 1);
    return this.now;
  }

  forward(): View {
    this.#at = Math.min(this.#stack.length - 1, this.#at + 1);
    return this.now;
  }
}

export function same(a: View, b: View): boolean {
  return a === b || (a !== null && b !== null && a[0] === b[0] && a[1] === b[1]);
}

/** "120..480" ↔ a view, for the address: with the digits that a ten-thousandth of the width needs. */
export function formatView(view: View): string {
  if (view === null) return "";
  const decimals = Math.max(0, Math.min(15, 4 - Math.floor(Math.log10(view[1] - view[0]))));
  return view.map((end) => String(Number(end.toFixed(decimals)))).join("..");
}

export function parseView(text: string | null): View {
  const parts = (text ?? "").split("..").map(Number);
  const [from, to] = parts;
  return parts.length === 2 && from !== undefined && to !== undefined && from < to ? [from, to] : null;
}
