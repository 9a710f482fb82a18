/** What is pointed at, wherever that is: one key for the table, the charts and everything else that shows runs.
 *
 * In:   the key of a run, or of a group of runs, from who has it under the pointer or the keyboard; null for none.
 * Out:  calls to all who show it.
 *
 *   point(key)          a row of the table, a mark of a scatter plot, a line of a chart is pointed at
 *   usePointed()        the key, and a new drawing when it changes: for rows and marks
 *   onPointed(listener) the same for what draws by itself; returns how to stop
 *
 * Charts draw the other lines fainter while one of theirs is pointed at; they call `point` for the line that is nearest
 * to the pointer, so a table that uses `usePointed` marks its row.
 */

import { useEffect, useState } from "preact/hooks";

const listeners = new Set<(key: string | null) => void>();
let now: string | null = null;

export const pointed = (): string | null => now;

export function point(key: string | null): void {
  if (key === now) return;
  now = key;
  for (const listener of [...listeners]) listener(key);
}

export function onPointed(listener: (key: string | null) => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function usePointed(): string | null {
  const [key, set] = useState(now);
  useEffect(() => {
    set(now);
    return onPointed(set);
  }, []);
  return key;
}
