/** Which runs of a comparison keep it from an answer: those still running, those without a metric.
 *
 * In:   rows.
 * Out:  metrics that some of them lack, with the runs that have each; the runs that have ended. Pure.
 */

import type { Key, Row } from "../api/types.ts";
import { statusWords } from "../shell/states.ts";

export interface Partial {
  name: string;
  /** The runs that have it: two or more, but not all. */
  runs: Key[];
}

/** Metrics that some runs lack, those of most runs first. */
export function partial(rows: readonly Row[]): Partial[] {
  const found = new Map<string, Key[]>();
  for (const row of rows)
    for (const name of Object.keys(row.last)) found.set(name, [...(found.get(name) ?? []), row.key]);
  return [...found]
    .map(([name, runs]) => ({ name, runs }))
    .filter(({ runs }) => runs.length >= 2 && runs.length < rows.length)
    .sort((a, b) => b.runs.length - a.runs.length || (a.name < b.name ? -1 : 1));
}

/** The runs that have ended, where that leaves out some and two or more stay; else null. */
export function ended(rows: readonly Row[]): Key[] | null {
  const stay = rows.filter((row) => !statusWords(row.status).open).map((row) => row.key);
  return stay.length >= 2 && stay.length < rows.length ? stay : null;
}
