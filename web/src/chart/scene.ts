/** What a plot is given: options, inks, flags, and what it calls.
 *
 * In:   nothing.
 * Out:  types.
 */

import type { Range } from "./range.ts";

export interface Flag {
  x: number;
  /** The series that it is about; without them it belongs to every chart. */
  names?: readonly string[];
  kind: "critical" | "warning" | "info" | "checkpoint" | "resume" | "eval";
  label: string;
  href?: string;
}

export interface PlotOptions {
  x: string;
  logX: boolean;
  logY: boolean;
  /** The y axis: true without the outermost hundredths, false with all values, null without what a curve that diverges
   *  has beyond the others. */
  typical: boolean | null;
  height: number;
  /** Room at the right for labels, in CSS pixels. */
  right?: number;
  /** An axis that begins at zero, as for shares and rates. */
  zero?: boolean;
  /** A line at zero, always in sight, as for differences. */
  zeroLine?: boolean;
  /** Room above the plot, in CSS pixels. */
  top?: number;
  /** What y is counted in, where that decides how its ticks are written. */
  unit?: string;
}

/** Colours, and the font, of what stands around the curves. */
export interface PlotInks {
  mark: string;
  axis: string;
  grid: string;
  select: string;
  font: string;
}

export interface Tick {
  at: number;
  text: string;
}

export interface PlotCalls {
  onCursor(x: number | null, y: number | null): void;
  onSelect(range: Range, compare: boolean): void;
  /** After each drawing: flags and tooltips stand beside the canvas. */
  onDrawn(): void;
}
