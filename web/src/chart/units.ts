/** What a series is counted in, where its name says so, and how that is written: 3.2 GiB, 1.5 MiB/s, 320 W, 2.6B tokens.
 *
 * In:   names of series; values.
 * Out:  a unit; ticks at round values of it; text. Pure.
 */

import { compact, duration, number, size } from "../shell/text.ts";
import { logTicks, logTickText, secondsText, ticks, tickText } from "./ticks.ts";

export type Unit = "" | "seconds" | "bytes" | "bytes/s" | "mW" | "count";

// names of what the machine's probes record, and the usual endings of others
const NAMES: readonly [RegExp, Unit][] = [
  [/(^|[/_.-])(bytes|rss|dram_(free|used|total)|(memory|swap)_(used|available|limit|total))$/i, "bytes"],
  [/^(allocator\/.*\/(managed|pinned|pageable)|host\/disk_free)$/, "bytes"],
  [/(^|[/_.-])(bytes_per_s(ec(ond)?)?)$|^(host|gpu\/\d+)\/(disk_(read|write)|\w+_(rx|tx))$/i, "bytes/s"],
  [/^(gpu\/\d+\/power(_limit)?|host\/cpu_power)$/, "mW"],
  [/(^|[/_.-])(tokens|samples|flops|params|parameters)(_seen|_per_s(ec(ond)?)?)?$/i, "count"],
];

/** The unit of a series; "" where its name does not say it, as for an expression. */
const ofName = (name: string): Unit =>
  /[\s()*+]/.test(name) ? "" : (NAMES.find(([pattern]) => pattern.test(name))?.[1] ?? "");

/** The unit that all these series share. */
export function unitOf(names: readonly string[]): Unit {
  const unit = ofName(names[0] ?? "");
  return unit && names.every((name) => ofName(name) === unit) ? unit : "";
}

const COLUMNS: Record<string, Unit> = { duration: "seconds", remaining: "seconds" };

/** The unit of a column of the table: of a metric that of its name. */
export function unitOfColumn(id: string | null): Unit {
  const metric = /^(?:last|best):(.*)$/s.exec(id ?? "")?.[1];
  return metric !== undefined ? ofName(metric) : (COLUMNS[id ?? ""] ?? "");
}

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** By how much values of an axis are divided, and what is written behind them. most: the largest of the axis. */
function scaleOf(unit: string, most: number): [number, string] {
  if (unit === "mW") return most >= 1000 ? [1000, " W"] : [1, " mW"];
  if (unit !== "bytes" && unit !== "bytes/s") return [1, ""];
  const power = Math.max(0, Math.min(BYTES.length - 1, Math.floor(Math.log2(most || 1) / 10)));
  return [1024 ** power, ` ${BYTES[power]}${unit === "bytes" ? "" : "/s"}`];
}

/** Values that are round in their unit. */
export function unitTicks(low: number, high: number, room: number, log: boolean, unit = ""): number[] {
  const [factor] = scaleOf(unit, Math.max(Math.abs(low), Math.abs(high)));
  return (log ? logTicks : ticks)(low / factor, high / factor, room).map((value) => value * factor);
}

/** The texts of an axis' ticks. */
export function unitTickTexts(values: readonly (number | null)[], log: boolean, unit = ""): string[] {
  const known = values.filter((value): value is number => value !== null);
  const most = Math.max(...known.map(Math.abs), 0);
  const [factor, sign] = scaleOf(unit, most);
  const step = known.length > 1 ? Math.abs((known[1] ?? 0) - (known[0] ?? 0)) : Math.abs(known[0] ?? 1) || 1;
  return values.map((value) => {
    if (value === null || value === undefined) return "";
    if (unit === "seconds") return log ? `${logTickText(value)} s` : secondsText(value, step);
    const text = log ? logTickText(value / factor) : tickText(value / factor, step / factor, most / factor);
    return value === 0 ? text : `${text}${sign}`;
  });
}

/** A value in its unit. */
export function amount(value: number | null | undefined, unit: Unit, digits = 5): string {
  if (unit === "seconds") return duration(value);
  if (value === null || value === undefined || !Number.isFinite(value) || !unit) return number(value, digits);
  if (unit === "count") return Math.abs(value) < 1e4 ? number(value, digits) : compact(value);
  if (unit === "mW") return Math.abs(value) >= 1000 ? `${number(value / 1000, 4)} W` : `${number(value, 4)} mW`;
  return unit === "bytes" ? size(value) : `${size(value)}/s`;
}
