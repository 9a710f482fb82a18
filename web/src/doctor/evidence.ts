/** Evidence as rows of a table.
 *
 * In:   a finding's evidence: numbers, texts, short lists.
 * Out:  names and values as text; without what is drawn elsewhere.
 */

import { num } from "../api/types.ts";
import { plain, short } from "../shell/words.ts";

const ELSEWHERE = new Set(["spark", "story"]);
const MOST_LISTED = 12;

export function evidenceRows(evidence: Record<string, unknown>): [string, string][] {
  return Object.entries(evidence)
    .filter(([name, value]) => !ELSEWHERE.has(name) && value !== null && value !== "")
    .map(([name, value]) => [name.replaceAll("_", " "), told(value)]);
}

function told(value: unknown): string {
  if (Array.isArray(value)) {
    const shown = value.slice(0, MOST_LISTED).map(told).join(", ");
    return value.length > MOST_LISTED ? `${shown} and ${value.length - MOST_LISTED} more` : shown;
  }
  const number = num(value);
  return number === null ? plain(value) : short(number);
}

/** The series that shows a finding: named by the evidence, else the one that was drawn. */
export function seriesOf(finding: { series?: string; evidence: Record<string, unknown> & { spark?: { series: string } } }): string {
  const named = finding.evidence.series;
  return finding.series ?? (typeof named === "string" ? named : (finding.evidence.spark?.series ?? "train/loss"));
}
