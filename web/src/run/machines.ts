/** What the server says of machines, as what a person wants to know: who is slow, who is gone, who throttles.
 *
 * In:   the answer of /system.
 * Out:  ranks with their own work, devices with words; sentences. Pure.
 */

import { num, word } from "../api/values.ts";
import type { System } from "../api/types.ts";
import { money, size, whole } from "../shell/text.ts";

/** What each cause of lost time is. */
export const CAUSES: Record<string, string> = {
  productive: "steps that count",
  data: "waiting for batches",
  communication: "waiting for other ranks",
  evaluation: "evaluating",
  checkpoint: "saving checkpoints",
  startup: "until the first step",
  redone: "steps done again after a restart",
  downtime: "between two starts",
  other: "other spans",
  idle: "between steps",
};

export interface Rank {
  rank: number;
  host: string | null;
  alive: boolean | null;
  status: string | null;
  step_ms?: number;
  wait_ms?: number;
  /** What is left of a step without waiting. */
  own?: number;
  series?: Record<string, string>;
}

const SLOWER = 1.1; // a tenth more work than the median of the others, as the rule for stragglers has it

export interface Wall {
  ranks: Rank[];
  most: Record<"own" | "wait_ms" | "step_ms", number>;
  slow: number[];
  gone: number[];
  sentence: string;
}

export function ranksOf(system: System): Wall {
  const ranks = system.ranks.map((one): Rank => {
    const step = num(one.step_ms);
    const wait = num(one.wait_ms);
    const rank: Rank = { rank: one.rank, host: one.host, alive: one.alive, status: one.status, series: one.series };
    if (step !== null) rank.step_ms = step;
    if (wait !== null) rank.wait_ms = wait;
    if (step !== null && wait !== null) rank.own = Math.max(0, step - wait);
    return rank;
  });
  const most = { own: 0, wait_ms: 0, step_ms: 0 };
  for (const rank of ranks)
    for (const field of ["own", "wait_ms", "step_ms"] as const) most[field] = Math.max(most[field], rank[field] ?? 0);
  const slow = ranks.filter((rank) => {
    const others = ranks.filter((one) => one !== rank).flatMap((one) => one.own ?? []);
    return others.length > 0 && rank.own !== undefined && rank.own > SLOWER * median(others);
  });
  const gone = ranks.filter((rank) => rank.alive === false && rank.status !== "ended" && rank.status !== "finished");
  return {
    ranks,
    most,
    slow: slow.map((one) => one.rank),
    gone: gone.map((one) => one.rank),
    sentence: sentence(ranks, slow, gone),
  };
}

function sentence(ranks: Rank[], slow: Rank[], gone: Rank[]): string {
  const parts: string[] = [];
  if (gone.length) parts.push(`${names(gone)} ${gone.length > 1 ? "are" : "is"} gone.`);
  if (slow.length) {
    const worst = slow.reduce((most, one) => ((one.own ?? 0) > (most.own ?? 0) ? one : most));
    const others = median(ranks.filter((one) => one !== worst).flatMap((one) => one.own ?? []));
    const more = others > 0 ? ((worst.own ?? 0) / others - 1) * 100 : 0;
    parts.push(
      `${names(slow)} worked longest in the last step: the others waited for ${slow.length > 1 ? "them" : "it"}. Rank ${worst.rank} took ${more.toFixed(0)}% more than the median of the others.`,
    );
  }
  if (!parts.length && ranks.some((rank) => rank.own !== undefined))
    parts.push("In the last step no rank took 10% longer than the median of the others.");
  return parts.join(" ");
}

function names(ranks: Rank[]): string {
  const shown = ranks.slice(0, 6).map((one) => whole(one.rank));
  return `${ranks.length > 1 ? "Ranks" : "Rank"} ${shown.join(", ")}${ranks.length > 6 ? ` and ${ranks.length - 6} more` : ""}`;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? (sorted[middle] ?? NaN) : ((sorted[middle - 1] ?? NaN) + (sorted[middle] ?? NaN)) / 2;
}

export interface Device {
  id: string;
  name: string;
  utilisation?: number;
  words: string;
  trouble: string;
  series: Record<string, string>;
}

const ORDINARY = new Set(["", "power cap", "idle", "application clocks", "display clocks"]);
const THROTTLED = 0.05; // of the samples: less is a moment

export function devicesOf(system: System): Device[] {
  return system.gpus.map((one) => {
    const value = (name: string): number | null => num(one[name]);
    const words: string[] = [];
    const [power, limit, heat, used, memory] = ["power", "power_limit", "temperature", "memory_used", "memory"].map(
      value,
    );
    if (typeof power === "number")
      words.push(`${Math.round(power / 1000)}${typeof limit === "number" ? ` of ${Math.round(limit / 1000)}` : ""} W`);
    if (typeof heat === "number") words.push(`${Math.round(heat)} °C`);
    if (typeof used === "number") words.push(`${size(used)}${typeof memory === "number" ? ` of ${size(memory)}` : ""}`);
    const causes = word(one["throttle"])
      .split(/,\s*/)
      .filter((cause) => !ORDINARY.has(cause));
    const trouble: string[] = [];
    const part = value("throttled");
    if (causes.length)
      trouble.push(
        `held down: ${causes.join(", ")}${part !== null && part > THROTTLED ? ` (${Math.round(part * 100)}% of the time)` : ""}`,
      );
    if ((value("xid_errors") ?? 0) > 0) trouble.push(`${whole(value("xid_errors"))} Xid errors`);
    if ((value("ecc_uncorrected") ?? 0) > 0) trouble.push(`${whole(value("ecc_uncorrected"))} memory errors`);
    const utilisation = value("utilisation");
    return {
      id: String(one.id),
      name: word(one["name"]),
      ...(utilisation === null ? {} : { utilisation }),
      words: words.join(", "),
      trouble: trouble.join("; "),
      series: one.series,
    };
  });
}

/** An amount with its currency. */
export function cost(value: number | null, of: Record<string, unknown> | undefined): string {
  return typeof of?.["currency"] === "string" ? `${money(value)} ${of["currency"]}` : money(value);
}
