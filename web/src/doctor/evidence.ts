/** Evidence as rows of a table.
 *
 * In:   a finding's evidence: numbers, texts, short lists.
 * Out:  names and values as text; without what is drawn elsewhere.
 */

import { num } from "../api/values.ts";
import { plain, number } from "../shell/text.ts";

const ELSEWHERE = new Set(["spark", "story", "last"]);
const LAST_LINES = 6;
const MOST_LISTED = 12;

export function evidenceRows(evidence: Record<string, unknown>): [string, string][] {
  return Object.entries(evidence)
    .filter(([name, value]) => !ELSEWHERE.has(name) && value !== null && value !== "")
    .map(([name, value]) => [name.replaceAll("_", " "), told(value)]);
}

/** The last lines that a run wrote, where a finding has them. */
export function lastLines(evidence: Record<string, unknown>): string[] {
  const lines = evidence["last"];
  return Array.isArray(lines) ? lines.slice(-LAST_LINES).map((line) => plain(line)) : [];
}

function told(value: unknown): string {
  if (Array.isArray(value)) {
    const shown = value.slice(0, MOST_LISTED).map(told).join(", ");
    return value.length > MOST_LISTED ? `${shown} and ${value.length - MOST_LISTED} more` : shown;
  }
  const parsed = num(value);
  return parsed === null ? plain(value) : number(parsed);
}

/** The series that shows a finding: named by the evidence, else the one that was drawn. */
export function seriesOf({ evidence }: { evidence: Record<string, unknown> & { spark?: { series: string } } }): string {
  const named = evidence["series"];
  return typeof named === "string" ? named : (evidence.spark?.series ?? "train/loss");
}
