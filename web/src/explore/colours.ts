/** Colours by a column: a ramp for numbers, the palette for words.
 *
 * In:   the column's scale; the theme.
 * Out:  a colour for each value, and the entries of a legend.
 */

import type { Cell } from "../runs/columns.ts";
import { colourAt, sequence } from "../shell/colour.ts";
import type { Theme } from "../shell/theme.ts";
import type { Scale } from "./data.ts";

const STEPS = 16;

export interface Inks {
  of(value: Cell): string;
  legend: { text: string; colour: string }[];
}

export function inksOf(scale: Scale | null, theme: Theme, none: string): Inks {
  if (!scale) return { of: () => none, legend: [] };
  if (scale.kind === "words") {
    const names = scale.ticks.map((tick) => tick.text);
    const places = new Map(names.map((name, at) => [name, colourAt(at, theme)]));
    return {
      of: (value) => (value === null ? none : (places.get(String(value)) ?? none)),
      legend: names.slice(0, 12).map((text) => ({ text, colour: places.get(text) ?? none })),
    };
  }
  const ramp = sequence(STEPS, theme);
  const of = (place: number): string =>
    Number.isNaN(place) ? none : (ramp[Math.min(STEPS - 1, Math.max(0, Math.floor(place * STEPS)))] ?? none);
  return {
    of: (value) => of(scale.at(value)),
    legend: scale.ticks.map((tick) => ({ text: tick.text, colour: of(tick.at) })),
  };
}
