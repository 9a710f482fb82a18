/** A chart over data that are here already, as a report and a notebook carry them.
 *
 * In:   curves with their looks, a range of x; a drag over the plot, a double click, the cursor.
 * Out:  a drawing; calls for the range that was dragged, for the way back, and for the cursor in values of x.
 */

import type { Drawn } from "./paint.ts";
import { Plot } from "./plot.ts";
import type { PlotInks, PlotOptions } from "./scene.ts";
import type { Range, View } from "./range.ts";

export interface LocalCalls {
  onRange(range: Range): void;
  onReset(): void;
  /** null: the cursor has left. */
  onCursor(x: number | null): void;
  onDrawn?(): void;
}

export class LocalChart {
  readonly plot: Plot;
  #options: PlotOptions;
  readonly #size: ResizeObserver;

  constructor(host: HTMLElement, options: PlotOptions, inks: () => PlotInks, calls: LocalCalls) {
    this.#options = options;
    this.plot = new Plot(host, options, inks, {
      onCursor: (x) => calls.onCursor(x),
      onSelect: (range) => calls.onRange(range),
      onDrawn: () => calls.onDrawn?.(),
    });
    host.addEventListener("dblclick", () => calls.onReset());
    this.#size = new ResizeObserver(() => this.plot.resize());
    this.#size.observe(host);
  }

  get x(): string {
    return this.#options.x;
  }

  get unit(): string {
    return this.#options.unit ?? "";
  }

  get log(): boolean {
    return this.#options.logY;
  }

  set(drawn: Drawn[], view: View, changes: Partial<PlotOptions> = {}): void {
    if (Object.keys(changes).length) {
      this.#options = { ...this.#options, ...changes };
      this.plot.setOptions(this.#options);
    }
    this.plot.set(drawn, view);
  }

  destroy(): void {
    this.#size.disconnect();
    this.plot.destroy();
  }
}
