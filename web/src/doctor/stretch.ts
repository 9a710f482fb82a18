/** The stretch of a run that a finding's chart shows.
 *
 * In:   the finding's steps, those of what belongs to it.
 * Out:  the first and the last step: from before the onset to behind the worst of it; null for the whole run. Pure.
 */

import type { Severity } from "../api/types.ts";

interface Event {
  step: number;
  severity: Severity;
}

export interface Steps {
  step: number;
  /** From where it could be detected. */
  found: number;
  spark: { from: number; to: number } | undefined;
  story: readonly Event[];
}

const MARGIN = 0.25; // of the stretch, behind its end

export function stretchOf({ step, found, spark, story }: Steps): [number, number] | null {
  const worst = story.filter((one) => one.severity === "critical").map((one) => one.step);
  const low = Math.min(step, spark?.from ?? step);
  const high = Math.max(step, found, spark?.to ?? step, ...worst);
  if (!(high > low)) return null;
  return [low, high + Math.max(1, Math.round((high - low) * MARGIN))];
}
