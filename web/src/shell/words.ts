/** Numbers, times and states in the fewest words that are exact enough.
 *
 * In:   values as the server has them.
 * Out:  text. Nothing is marked up here: text is put into the page as text.
 */

import { num } from "../api/types.ts";

const MINUS = "−";

/** Thousands in groups: 12,345. */
export function whole(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return short(value);
  return Math.round(value).toLocaleString("en-US").replace("-", MINUS);
}

/** A number in some significant digits: 2.9153, 1.2e−5, 12,345; "NaN", "∞". steady: zeros at the end stay, for columns. */
export function short(value: number | null | undefined, digits = 4, steady = false): string {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : `${MINUS}∞`;
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (Number.isInteger(value) && size < 1e7) return whole(value);
  if (size >= 1e7 || size < 1e-4) {
    const [mantissa, exponent] = value.toExponential(Math.max(0, digits - 2)).split("e");
    const plain = (mantissa ?? "").replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
    return `${plain}e${(exponent ?? "").replace("+", "")}`.replaceAll("-", MINUS);
  }
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return value
    .toLocaleString("en-US", { minimumFractionDigits: steady ? decimals : 0, maximumFractionDigits: decimals })
    .replace("-", MINUS);
}

/** +1.2%, −0.51% */
export function percent(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return short(value);
  const size = Math.abs(value);
  if (size === 0) return "0%";
  const text = size >= 100 ? size.toFixed(0) : size >= 10 ? size.toFixed(1) : size.toFixed(2);
  return `${value < 0 ? MINUS : value > 0 ? "+" : ""}${text}%`;
}

/** 850 ms, 12 s, 3 min 5 s, 2 h 14 min, 5 d 3 h. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1).replace(/\.0$/, "")} s`;
  const left = Math.round(seconds);
  const at = UNITS.findIndex(([size]) => left >= size);
  const [size, name] = UNITS[at] ?? [1, "s"];
  const next = UNITS[at + 1];
  const rest = next ? Math.floor((left % size) / next[0]) : 0;
  return `${Math.floor(left / size)} ${name}${next && rest ? ` ${rest} ${next[1]}` : ""}`;
}

const UNITS: readonly [number, string][] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]; // prettier-ignore
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** How long ago, and from a day on the date. Seconds since 1970, both. */
export function ago(then: number | null | undefined, now: number): string {
  if (then === null || then === undefined || !Number.isFinite(then)) return "–";
  const seconds = now - then;
  if (seconds < 45) return "just now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  const date = new Date(then * 1000);
  const day = `${date.getDate()} ${MONTHS[date.getMonth()]}`;
  return date.getFullYear() === new Date(now * 1000).getFullYear() ? day : `${day} ${date.getFullYear()}`;
}

/** The full local time, for titles: 21 Nov 2026, 14:31:07. */
export function moment(then: number | null | undefined): string {
  if (then === null || then === undefined || !Number.isFinite(then)) return "";
  const date = new Date(then * 1000);
  const two = (value: number): string => String(value).padStart(2, "0");
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return `${date.getDate()} ${MONTHS[date.getMonth()]} ${date.getFullYear()}, ${clock}`;
}

/** Signs that are not seen and change how others are: controls, and those that turn the direction of a text. */
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** What a run is called, on one line, with what cannot be seen shown as a sign. */
export function title(row: { name: string; id: string }): string {
  return (row.name || row.id).replace(UNSEEN, "\u00b7");
}

/** Any value of a configuration on one line. */
export function plain(value: unknown): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return short(value, 6);
  if (typeof value === "string") {
    const number = num(value);
    return number === null ? value : short(number);
  }
  if (typeof value === "boolean") return value ? "true" : "false";
  return JSON.stringify(value);
}

export function count(number: number, one: string, many = `${one}s`): string {
  return `${whole(number)} ${number === 1 ? one : many}`;
}

export interface StatusWords {
  word: string;
  /** What it means, as a sentence. */
  says: string;
  tone: "good" | "info" | "warning" | "bad" | "quiet";
  icon: "run" | "evaluate" | "silent" | "stuck" | "away" | "gone" | "done" | "failed" | "stopped" | "unknown";
  /** Something may still be written. */
  open: boolean;
}

const STATUS: Record<string, StatusWords> = {
  running: { word: "training", says: "Its process lives and makes steps.", tone: "info", icon: "run", open: true },
  training: { word: "training", says: "Its process lives and makes steps.", tone: "info", icon: "run", open: true },
  evaluating: { word: "evaluating", says: "Its process lives and evaluates.", tone: "info", icon: "evaluate", open: true },
  silent: { word: "logging stalled", says: "Its process lives and has logged nothing for a while.", tone: "warning", icon: "silent", open: true },
  stuck: { word: "no steps", says: "Its process lives and logs, but no step has come for a while.", tone: "warning", icon: "stuck", open: true },
  stalled: { word: "not heard of", says: "Its process is on another machine, and nothing has been heard of it for two minutes.", tone: "warning", icon: "away", open: true },
  crashed: { word: "process gone", says: "Its process is gone, and did not end the run.", tone: "bad", icon: "gone", open: false },
  failed: { word: "failed", says: "The run ended with an error.", tone: "bad", icon: "failed", open: false },
  finished: { word: "finished", says: "The run came to its end.", tone: "good", icon: "done", open: false },
  stopped: { word: "stopped", says: "The run was stopped before its end.", tone: "quiet", icon: "stopped", open: false },
  interrupted: { word: "interrupted", says: "The run was interrupted.", tone: "quiet", icon: "stopped", open: false },
}; // prettier-ignore

/** phase: what a live run says it is at. */
export function statusWords(status: string, phase?: string | null): StatusWords {
  return (
    (status === "running" && phase?.startsWith("eval") ? STATUS.evaluating : undefined) ??
    (Object.hasOwn(STATUS, status) ? STATUS[status] : undefined) ?? {
      word: status || "unknown",
      says: status ? `The run ended as “${status}”.` : "Nothing is known of its state.",
      tone: "quiet",
      icon: "unknown",
      open: false,
    }
  );
}
