/** Groups of runs in the place of runs: a chart draws the key of a group as it draws a run's.
 *
 * In:   labels of groups, with the runs that each has.
 * Out:  keys; the runs that a key stands for. A group's colour follows from its key, and so from its label alone.
 */

import type { Key } from "./types.ts";

interface Members {
  runs: readonly Key[];
  /** Those that may still be written. */
  open: readonly Key[];
}

const PREFIX = "group:"; // in the key of a run a colon is percent-encoded
const held = new Map<Key, Members>();

export const groupKey = (label: string): Key => PREFIX + encodeURIComponent(label);
export const isGroup = (key: Key): boolean => key.startsWith(PREFIX);
export const groupLabel = (key: Key): string => decodeURIComponent(key.slice(PREFIX.length));

/** Says what a key stands for; whether that is something else than before. */
export function setGroup(key: Key, runs: readonly Key[], open: readonly Key[]): boolean {
  const before = held.get(key);
  held.set(key, { runs, open });
  return before !== undefined && before.runs.join(" ") !== runs.join(" ");
}

/** The runs of a group; the run itself. */
export const runsOf = (key: Key): readonly Key[] => (isGroup(key) ? (held.get(key)?.runs ?? []) : [key]);
export const openRunsOf = (key: Key): readonly Key[] => (isGroup(key) ? (held.get(key)?.open ?? []) : [key]);

/** The run that is asked for what all runs of a group have. */
export const oneOf = (key: Key): Key => runsOf(key)[0] ?? key;

/** The groups among these keys, as a request for series names them. */
export function groupsAmong(keys: Iterable<Key>): Record<Key, Key[]> {
  const found: Record<Key, Key[]> = {};
  for (const key of keys) if (isGroup(key)) found[key] = [...runsOf(key)];
  return found;
}
