/** What people read: numbers, durations, sizes, shares, dates, names. The one place of the page, the report and the
 *  notebook that writes them.
 *
 * In:   values as the server has them: numbers, null, NaN and infinity among them.
 * Out:  short text, the same that `barograph.core.text` writes: tests/text_cases.json holds cases of both. Nothing here
 *       is marked up: text is put into the page as text.
 */

import { num } from "../api/values.ts";

type Value = number | null | undefined;

const MISSING = "–";

/** Thousands in groups: 12,345. */
export function whole(value: Value): string {
  return value === null || value === undefined || !Number.isFinite(value) ? number(value) : number(Math.round(value));
}

/** A number in this many significant digits, at most four below 1, and all before the point: 2.3457, 1,234,567, 1.23e-05.
 *  steady: zeros at the end stay, for columns. */
export function number(value: Value, digits = 5, steady = false): string {
  if (value === null || value === undefined) return MISSING;
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (Number.isInteger(value) && size < 1e9) return grouped(String(value));
  const few = size >= 1 && size < 1e9 ? digits : Math.min(digits, 4);
  if (size >= 1e9 || size < 1e-3) return general(value, few);
  const fixed = value.toFixed(Math.max(0, few - 1 - Math.floor(Math.log10(size))));
  return grouped(steady ? fixed : stripped(fixed));
}

/** As C's %g writes it: an exponent of two digits or more below 1e-4 and where the digits don't reach. */
function general(value: number, digits: number): string {
  const [mantissa = "", power = ""] = value.toExponential(Math.max(0, digits - 1)).split("e");
  const exponent = Number(power);
  if (exponent >= -4 && exponent < digits) return stripped(value.toFixed(Math.max(0, digits - 1 - exponent)));
  return `${stripped(mantissa)}e${exponentText(exponent)}`;
}

/** +09, -05 */
export function exponentText(exponent: number): string {
  return `${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

const stripped = (text: string): string => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

/** 1234567.5 → 1,234,567.5 */
export function grouped(text: string): string {
  const [before = "", after] = text.split(".");
  const groups = before.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  return after === undefined ? groups : `${groups}.${after}`;
}

/** Letters for large counts: the same on axes. */
export const LETTERS: readonly (readonly [number, string])[] = [
  [1e12, "T"],
  [1e9, "B"],
  [1e6, "M"],
  [1e3, "k"],
];

/** A count with a letter for its size: 950, 12.35k, 124.4M, 1.25B. */
export function compact(value: Value): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return number(value);
  const round = Number(value.toPrecision(4)); // 999,990 is 1M
  const found = LETTERS.find(([size]) => Math.abs(round) >= size);
  if (!found || Math.abs(value) < 1e3 || Math.abs(round) >= 1e15) return number(value, 4);
  return `${general(round / found[0], 4)}${found[1]}`;
}

/** A number with its sign: +0.5, -0.25, 0. */
export function signed(value: Value, digits = 5): string {
  const text = number(value, digits);
  return typeof value === "number" && value > 0 ? `+${text}` : text;
}

/** A share of 1: 31.4%; below one percent in two digits, 0.031%. */
export function percent(share: Value, decimals = 1): string {
  const value = 100 * (share ?? NaN);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? MISSING : `${number(value)}%`;
  const size = Math.abs(value);
  return `${size >= 1 && size < 1e9 ? grouped(stripped(value.toFixed(decimals))) : number(value, 2)}%`;
}

/** A change in percent, with its sign: +0.31%, -12.5%. */
export function change(value: Value): string {
  return value === null || value === undefined || Number.isNaN(value) ? MISSING : `${signed(value, 3)}%`;
}

/** An amount in a currency that the reader knows: 1,234.50, 0.0042. */
export function money(value: Value): string {
  if (value === null || value === undefined || Number.isNaN(value)) return MISSING;
  if (!Number.isFinite(value)) return number(value);
  return Math.abs(value) >= 1 || value === 0 ? grouped(value.toFixed(2)) : number(value, 3);
}

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes: 512 B, 1.234 GiB. */
export function size(bytes: Value): string {
  let value = bytes ?? NaN;
  if (!Number.isFinite(value)) return Number.isNaN(value) ? MISSING : number(value);
  let at = 0;
  for (; Math.abs(value) >= 1023.5 && at < BYTES.length - 1; at++) value /= 1024;
  return `${number(at ? value : Math.round(value), 4)} ${BYTES[at]}`;
}

const SECONDS: readonly [number, string, number][] = [
  [1e-6, "µs", 1000],
  [1e-3, "ms", 1000],
  [1, "s", 60],
];

/** Three digits below a minute, then minutes and seconds, then hours and minutes: 340 ms, 12.3 s, 02m05s, 27h46m. */
export function duration(seconds: Value): string {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return MISSING;
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds === Infinity) return "inf";
  for (const [scale, unit, limit] of SECONDS) {
    const value = seconds / scale;
    if (seconds < limit * scale && Number(value.toPrecision(3)) < limit) return `${number(value, 3)} ${unit}`;
  }
  if (seconds >= 3.6e12) return `${number(seconds / 3600)}h`;
  const two = (part: number): string => String(part).padStart(2, "0");
  const left = Math.round(seconds);
  const minutes = Math.floor(left / 60);
  if (minutes < 60) return `${two(minutes)}m${two(left % 60)}s`;
  return `${grouped(two(Math.floor(minutes / 60)))}h${two(minutes % 60)}m`;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** How long ago, and from a day on the date. Seconds since 1970, both. */
export function ago(then: number | null | undefined, now: number): string {
  if (then === null || then === undefined || !Number.isFinite(then)) return MISSING;
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

/** A recorded command as a person types it: a program by its name, a package by `python -m`. */
export function commandText(command: unknown): string {
  if (!Array.isArray(command)) return typeof command === "string" ? command : "";
  const [first = "", ...rest] = command.map(String);
  const program = first.replace(/^.*\/([^/]+)\/__main__\.py$/, "python -m $1").replace(/^\/(?:.*\/)?bin\//, "");
  return [program, ...rest].join(" ");
}

/** A text of at most `most` characters. A longer one loses its middle: a layer's number is at the front, the part's
 *  name at the end. */
export function middleCut(content: string, most: number): string {
  if (content.length <= most) return content;
  const room = Math.max(0, most - 1);
  const numbered = /^\D*\d+/.exec(content)?.[0].length ?? 0;
  const front = numbered > 0 && numbered <= room - 4 ? numbered : Math.floor(room / 2);
  return `${content.slice(0, front)}…${content.slice(content.length - (room - front))}`;
}

/** Signs that are not seen and change how others are: controls, and those that turn the direction of a text. */
// eslint-disable-next-line no-control-regex -- they are what it is about
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** What a run is called, on one line, with what cannot be seen shown as a sign. */
export function title(row: { name: string; id: string }): string {
  return (row.name || row.id).replace(UNSEEN, "\u00b7");
}

/** Any value of a configuration on one line. */
export function plain(value: unknown): string {
  if (value === null || value === undefined) return MISSING;
  if (typeof value === "number") return number(value, 6);
  if (typeof value === "string") {
    const parsed = num(value);
    return parsed === null ? value : number(parsed);
  }
  if (typeof value === "boolean") return value ? "true" : "false";
  return JSON.stringify(value);
}

/** How many of something: 1 step, 2,000 steps. */
export function count(value: number, one: string, many = one.endsWith("s") ? one : `${one}s`): string {
  return `${whole(value)} ${value === 1 ? one : many}`;
}
