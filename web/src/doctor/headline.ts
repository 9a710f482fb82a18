/** How findings are put into few lines.
 *
 * In:   findings, the worst first.
 * Out:  a message in two parts; info findings of one rule together.
 */

import type { Finding } from "../api/types.ts";

/** A finding's first sentence without its point, and the rest: "The loss is NaN since step 1851", "The step before …". */
export function split(message: string): [string, string] {
  const found = /^(.+?)(?:[.;] |\.$|$)(.*)$/s.exec(message.trim());
  const rest = found?.[2] ?? "";
  return [found?.[1] ?? message, rest.charAt(0).toUpperCase() + rest.slice(1)];
}

/** Findings of the same rule together, in the order in which the rules come first. */
export function byRule<Each extends Pick<Finding, "rule">>(findings: readonly Each[]): [Each, ...Each[]][] {
  const groups = new Map<string, [Each, ...Each[]]>();
  for (const one of findings) {
    const group = groups.get(one.rule);
    if (group) group.push(one);
    else groups.set(one.rule, [one]);
  }
  return [...groups.values()];
}
