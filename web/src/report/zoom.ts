// The range of x that all charts of one kind show together, and the place in it that is pointed at.

export type Range = [number, number];

export interface Listener {
  range(): void;
  /** A place of x that somebody points at; null: nobody does. */
  cursor(x: number | null, from: object): void;
}

/** One range, and those who draw it. */
export class Zoom {
  range: Range;
  private readonly listeners: Listener[] = [];

  constructor(readonly whole: Range) {
    this.range = [...whole];
  }

  get isWhole(): boolean {
    return this.range[0] <= this.whole[0] && this.range[1] >= this.whole[1];
  }

  listen(listener: Listener): void {
    this.listeners.push(listener);
  }

  /** Show another range, within the whole one; never less than two steps, or a thousandth of a thousandth. */
  set(low: number, high: number): void {
    const [first, last] = this.whole;
    const least = Math.max((last - first) * 1e-6, Number.isInteger(first) && last - first > 2 ? 2 : 0);
    let width = Math.min(last - first, Math.max(high - low, least));
    if (!(width > 0)) width = last - first;
    const middle = (low + high) / 2;
    const start = Math.min(Math.max(first, middle - width / 2), last - width);
    this.range = [start, start + width];
    for (const listener of this.listeners) listener.range();
  }

  /** Closer (below 1) or further away (above 1), around the middle. */
  scale(factor: number): void {
    const [low, high] = this.range;
    const half = ((high - low) / 2) * factor;
    this.set((low + high) / 2 - half, (low + high) / 2 + half);
  }

  /** Along x by a part of what is shown. */
  shift(part: number): void {
    const [low, high] = this.range;
    this.set(low + (high - low) * part, high + (high - low) * part);
  }

  point(x: number | null, from: object): void {
    for (const listener of this.listeners) listener.cursor(x, from);
  }

  reset(): void {
    this.set(...this.whole);
  }
}
