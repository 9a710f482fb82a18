/** A colour for each run: the same on every page, and different for runs that stand side by side.
 *
 * In:   keys in the order the runs were created; colours that a person chose, kept in this browser.
 * Out:  a place in the palette by key; the colour itself for the theme of the moment.
 *
 * A key prefers the place that its hash gives, and takes the next of the least used places. Older runs choose first,
 * so a new run changes nobody's colour.
 */

import { useEffect, useState } from "preact/hooks";
import type { Key } from "../api/types.ts";
import { keep, kept } from "./keep.ts";
import { onTheme, theme, type Theme } from "./theme.ts";

/** At least 3 : 1 against the panels of their theme. */
export const PALETTE: Record<Theme, readonly string[]> = {
  light: [
    "#2a68b8", "#c35a12", "#1f8552", "#8450b8", "#c23645", "#0f7f86",
    "#84730a", "#bd3f8a", "#4b58c4", "#8a5838", "#56697b", "#548019",
  ],
  dark: [
    "#6ea8f0", "#f0955a", "#5cc48c", "#ba94ec", "#f27a84", "#4ac4ca",
    "#ccb840", "#ee88c2", "#929ef7", "#cc9876", "#9cb2c6", "#a2cc5c",
  ],
}; // prettier-ignore

const SIZE = PALETTE.light.length;
const places = new Map<Key, number>();
const used = new Array<number>(SIZE).fill(0);
let chosen: Record<Key, number> = kept("colours", {});
const listeners = new Set<() => void>();

/** FNV-1a: short, and even over a dozen places. */
export function hash(text: string): number {
  let value = 2166136261;
  for (let at = 0; at < text.length; at++) value = Math.imul(value ^ text.charCodeAt(at), 16777619);
  return value >>> 0;
}

/** Give every run its place. keys: oldest first. */
export function seat(keys: readonly Key[]): void {
  for (const key of keys) placeOf(key);
}

export function placeOf(key: Key): number {
  const mine = chosen[key];
  if (mine !== undefined && mine >= 0 && mine < SIZE) return mine;
  const known = places.get(key);
  if (known !== undefined) return known;
  const first = hash(key) % SIZE;
  const least = Math.min(...used);
  let place = first;
  while (used[place] !== least) place = (place + 1) % SIZE;
  used[place] = least + 1;
  places.set(key, place);
  return place;
}

export function colourOf(key: Key, now: Theme = theme()): string {
  return PALETTE[now][placeOf(key)] ?? "#888888";
}

/** A person's choice; null takes it back. */
export function paint(key: Key, place: number | null): void {
  chosen = { ...chosen };
  if (place === null) delete chosen[key];
  else chosen[key] = place;
  keep("colours", chosen);
  for (const listener of listeners) listener();
}

/** A function that gives colours, and a new drawing when one changes. */
export function useColours(): (key: Key) => string {
  const [, again] = useState(0);
  useEffect(() => {
    const next = (): void => again((count) => count + 1);
    listeners.add(next);
    const stop = onTheme(next);
    return () => {
      listeners.delete(next);
      stop();
    };
  }, []);
  return colourOf;
}
