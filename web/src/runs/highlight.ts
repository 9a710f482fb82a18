/** The run or group under the pointer, in the table or in a chart: both show it.
 *
 * In:   a key, or null.
 * Out:  calls to those who subscribed.
 */

import { useEffect, useState } from "preact/hooks";
import type { Key } from "../api/types.ts";

const listeners = new Set<(key: Key | null) => void>();

export const highlight = {
  key: null as Key | null,
  set: (key: Key | null): void => {
    if (key === highlight.key) return;
    highlight.key = key;
    for (const listener of [...listeners]) listener(key);
  },
  subscribe: (listener: (key: Key | null) => void): (() => void) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  },
};

/** The run or group under the pointer, wherever that is. */
export function useLit(): Key | null {
  const [key, set] = useState<Key | null>(highlight.key);
  useEffect(() => highlight.subscribe(set), []);
  return key;
}
