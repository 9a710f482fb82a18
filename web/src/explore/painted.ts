/** Which of thousands of lines are on a canvas, so that each frame paints no more than a part of them.
 *
 * In:   how many lines there are; which are wanted.
 * Out:  the lines to paint next, spread over all of them. Pure.
 */

const SHARE = 0.618; // of all lines, from one to the next: any beginning of the order is spread over all

export class Painted {
  /** Nothing is on the canvas. */
  empty = true;
  readonly #there: Uint8Array;
  readonly #order: Uint32Array;

  constructor(count: number) {
    this.#there = new Uint8Array(count);
    const step = stride(count);
    this.#order = Uint32Array.from(this.#there, (_, at) => (at * step) % count);
  }

  /** Whether a line is there that is not wanted: the canvas is to be cleared, and `clear` called. */
  hasOthers(wanted: Uint8Array): boolean {
    return this.#there.some((there, at) => there && !wanted[at]);
  }

  clear(): void {
    this.empty = true;
    this.#there.fill(0);
  }

  /** Wanted lines that are not there, `most` of them at most; they count as there. */
  next(wanted: Uint8Array, most: number): number[] {
    const found: number[] = [];
    for (let at = 0; at < this.#order.length && found.length < most; at++) {
      const line = this.#order[at] as number;
      if (!wanted[line] || this.#there[line]) continue;
      this.#there[line] = 1;
      found.push(line);
    }
    this.empty = false;
    return found;
  }
}

/** A number near SHARE of `count` that has no divisor in common with it, so that each line has its turn once. */
function stride(count: number): number {
  const divisor = (a: number, b: number): number => (b ? divisor(b, a % b) : a);
  let step = Math.max(1, Math.round(count * SHARE));
  while (divisor(step, count) > 1) step += 1;
  return step;
}
