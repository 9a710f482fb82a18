/** A colour for each run: its own, and another one only where a run that is drawn beside it has the same.
 *
 * In:   keys; which runs are drawn together; colours that a person chose, kept in this browser.
 * Out:  a place in the palette by key; the colour itself for the theme of the moment.
 *
 * Without a choice the colours follow from the keys that are drawn together (`colour.ts`), so a link shows the same to
 * everybody.
 */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { Key } from "../api/types.ts";
import { assign, colourAt, isPlace, placeByKey } from "./colour.ts";
import { keep, kept } from "./keep.ts";
import { onTheme, type Theme, theme } from "./theme.ts";

let places: ReadonlyMap<Key, number> = new Map();
let chosen: Record<Key, number> = kept("colours", {});
const listeners = new Set<() => void>();

function choiceOf(key: Key): number | undefined {
  const place = Object.hasOwn(chosen, key) ? chosen[key] : undefined;
  return isPlace(place) ? place : undefined;
}

/** These runs are drawn together from now on. */
export function drawTogether(keys: readonly Key[]): void {
  if (keys.length) places = assign(keys, choiceOf);
}

export function placeOf(key: Key): number {
  return choiceOf(key) ?? places.get(key) ?? placeByKey(key);
}

export function colourOf(key: Key, now: Theme = theme()): string {
  return colourAt(placeOf(key), now);
}

/** A person's choice; null takes it back. */
export function choose(key: Key, place: number | null): void {
  chosen = { ...chosen };
  if (place === null) delete chosen[key];
  else chosen[key] = place;
  keep("colours", chosen);
  for (const listener of listeners) listener();
}

/** A function that gives colours, and a new drawing when one changes. together: the runs that are drawn in one chart. */
export function useColours(together: readonly Key[] = []): (key: Key) => string {
  const [changes, again] = useState(0);
  useMemo(() => drawTogether(together), [together.join(" "), changes]);
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
