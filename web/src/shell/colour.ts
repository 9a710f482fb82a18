/** A colour for each run: the same on every page, and different for runs that stand side by side.
 *
 * In:   keys in the order the runs were created; colours that a person chose, kept in this browser.
 * Out:  a place in the palette by key; the colour itself for the theme of the moment.
 *
 * Runs take the places in turn, the oldest first, so a dozen that were made one after another differ, and a new run
 * changes nobody's colour. What was given is remembered, so neither does one that is deleted.
 */

import { useEffect, useState } from "preact/hooks";
import type { Key } from "../api/types.ts";
import { keep, kept } from "./keep.ts";
import { onTheme, theme, type Theme } from "./theme.ts";

/** At least 3 : 1 against the panels of their theme; the first ones differ most. */
export const PALETTE: Record<Theme, readonly string[]> = {
  light: [
    "#2a68b8", "#c35a12", "#1f8552", "#c23645", "#8450b8", "#0f7f86",
    "#84730a", "#bd3f8a", "#56697b", "#8a5838", "#4b58c4", "#548019",
  ],
  dark: [
    "#6ea8f0", "#f0955a", "#5cc48c", "#f27a84", "#ba94ec", "#4ac4ca",
    "#ccb840", "#ee88c2", "#9cb2c6", "#cc9876", "#929ef7", "#a2cc5c",
  ],
}; // prettier-ignore

export const COLOUR_NAMES = ["blue", "orange", "green", "red", "purple", "teal", "ochre", "pink", "slate", "brown", "indigo", "moss"];

const SIZE = PALETTE.light.length;
const REMEMBERED = 5000; // keys, the latest: some hundred kilobytes
const places = new Map<Key, number>();
const used = new Array<number>(SIZE).fill(0);
let chosen: Record<Key, number> = kept("colours", {});
const listeners = new Set<() => void>();

const isPlace = (place: unknown): place is number => Number.isInteger(place) && (place as number) >= 0 && (place as number) < SIZE;

function give(key: Key, place: number): number {
  used[place] = (used[place] ?? 0) + 1;
  places.set(key, place);
  return place;
}

/** Give every run its place. keys: oldest first. */
export function seat(keys: readonly Key[]): void {
  const before = kept<Record<Key, number>>("places", {});
  const fresh = keys.filter((key) => !places.has(key));
  for (const key of fresh) if (Object.hasOwn(before, key) && isPlace(before[key])) give(key, before[key]);
  for (const key of fresh) placeOf(key);
  if (fresh.length) keep("places", Object.fromEntries([...places].slice(-REMEMBERED)));
}

export function placeOf(key: Key): number {
  const mine = Object.hasOwn(chosen, key) ? chosen[key] : undefined;
  if (isPlace(mine)) return mine;
  return places.get(key) ?? give(key, used.indexOf(Math.min(...used)));
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
