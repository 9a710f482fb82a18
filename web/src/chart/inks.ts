/** Colours for the lines of one chart.
 *
 * In:   how many lines there are, whether they are a sequence (layers, ranks), the theme.
 * Out:  a colour for each; for a sequence from blue (first) to amber (last), which eyes of all kinds tell apart.
 */

import { PALETTE, placeOf } from "../shell/colour.ts";
import type { Key } from "../api/types.ts";
import type { Theme } from "../shell/theme.ts";

type Rgb = readonly [number, number, number];

// dark blue, teal, amber: lightness rises or falls with depth, and blue against amber is told apart by all
const RAMPS: Record<Theme, readonly Rgb[]> = {
  light: [[24, 60, 140], [30, 120, 140], [90, 130, 70], [170, 110, 10], [190, 70, 20]],
  dark: [[120, 165, 255], [90, 195, 215], [140, 210, 140], [235, 195, 90], [250, 150, 95]],
}; // prettier-ignore

export function mix(stops: readonly Rgb[], share: number): Rgb {
  const at = Math.max(0, Math.min(1, share)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at));
  const part = at - low;
  const [a, b] = [stops[low] ?? [0, 0, 0], stops[low + 1] ?? [0, 0, 0]];
  return [0, 1, 2].map((channel) => Math.round((a[channel] ?? 0) * (1 - part) + (b[channel] ?? 0) * part)) as unknown as Rgb;
}

export function sequence(count: number, theme: Theme): string[] {
  return Array.from({ length: count }, (_, at) => `rgb(${mix(RAMPS[theme], count > 1 ? at / (count - 1) : 0).join(",")})`);
}

/** The run's own colour first, then its neighbours in the palette. */
export function lineColours(run: Key, count: number, theme: Theme): string[] {
  return some(placeOf(run), count, theme);
}

/** For lines that are of no run in particular. */
export function plainColours(count: number, theme: Theme): string[] {
  return some(0, count, theme);
}

function some(first: number, count: number, theme: Theme): string[] {
  const palette = PALETTE[theme];
  if (count > palette.length) return sequence(count, theme);
  return Array.from({ length: count }, (_, at) => palette[(first + at) % palette.length] ?? "#888888");
}
