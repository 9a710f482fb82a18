/** One line for a whole diagnosis.
 *
 * In:   findings, how many rules were checked.
 * Out:  the line over them.
 */

import type { Finding } from "../api/types.ts";

/** Rules that look at how a run ended, and need no metric. */
const NO_METRIC = new Set(["crashed", "out_of_memory"]);

/** How many rules had a metric to check. */
export const withMetrics = (rules: readonly string[]): number => rules.filter((rule) => !NO_METRIC.has(rule)).length;

/** A finding's first sentence without its point, and the rest: "The loss is NaN since step 1851", "The step before …". */
export function split(message: string): [string, string] {
  const found = /^(.+?)(?:[.;] |\.$|$)(.*)$/s.exec(message.trim());
  const rest = found?.[2] ?? "";
  return [found?.[1] ?? message, rest.charAt(0).toUpperCase() + rest.slice(1)];
}

/** The headline over the findings: the worst fact, in the doctor's words. The worst finding comes first. */
export function headline(findings: readonly Pick<Finding, "severity" | "message">[], rules: readonly string[]): string {
  const worst = findings[0];
  if (worst && worst.severity !== "info") return split(worst.message)[0];
  return withMetrics(rules) ? "No problems found" : "No metrics to check";
}
