/** One line for a whole diagnosis.
 *
 * In:   findings, how many rules were checked.
 * Out:  the line over them.
 */

import type { Finding } from "../api/types.ts";
import { count } from "../shell/text.ts";

/** Kinds of critical findings after which a run seldom comes back. */
const DIVERGED = new Set(["divergence", "nonfinite"]);

/** Rules that look at how a run ended, and need no metric. */
const NO_METRIC = new Set(["crashed", "out_of_memory"]);

/** How many rules had a metric to check. */
export const withMetrics = (rules: readonly string[]): number => rules.filter((rule) => !NO_METRIC.has(rule)).length;

/** The headline over the findings: what is worst. */
export function headline(findings: readonly Pick<Finding, "severity" | "kind">[], rules: readonly string[]): string {
  const critical = findings.filter((one) => one.severity === "critical");
  const warnings = findings.filter((one) => one.severity === "warning").length;
  if (critical.some((one) => DIVERGED.has(one.kind))) return "Diverged";
  if (critical.length) return count(critical.length, "critical finding");
  if (warnings) return count(warnings, "warning");
  return withMetrics(rules) ? "No problems found" : "No metrics to check";
}
