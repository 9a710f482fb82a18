/** The words on an axis, short enough to stand side by side.
 *
 * In:   the values of ticks.
 * Out:  a text for each: 12.5k, 3e-04, 2.4B; times as clock or date; seconds as durations.
 */

import { exponentText, grouped, LETTERS, whole } from "../shell/text.ts";

/** Round values within a range, about `room` of them and never more than one more: multiples of 1, 2 or 5 and a power of ten. */
export function ticks(low: number, high: number, room: number): number[] {
  const rough = high / Math.max(1, room) - low / Math.max(1, room); // halves: -1e308 to 1e308 is too wide for a number
  const power = 10 ** Math.floor(Math.log10(rough) + 1e-9);
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= rough * (1 - 1e-9)) ?? 10) * power;
  const first = Math.ceil(low / step - 1e-9);
  if (!(step > 0) || !Number.isFinite(first)) return [];
  const found = Array.from(
    { length: Math.floor(room) + 2 },
    (_, at) => Number(((first + at) * step).toPrecision(15)) + 0,
  );
  return found.filter((value) => value <= high);
}

/** Round values of a logarithmic axis: 1, 2, 5 of each power of ten, or powers alone, as there is room; within less than
 *  a power, as on a linear one. */
export function logTicks(low: number, high: number, room: number): number[] {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const decades = Math.log10(high) - Math.log10(low);
  const factors = decades * 3 <= room + 1 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / Math.max(1, room)));
  const powers = Array.from({ length: last - first + 1 }, (_, at) => first + at).filter((power) => power % every === 0);
  const found = powers
    .flatMap((power) => factors.map((factor) => Number(`${factor}e${power}`)))
    .filter((value) => value >= low && value <= high);
  return found.length > 2 || decades >= 1 ? found : ticks(low, high, room);
}

/** Digits behind the point that a distance needs: one for 0.5, two for 0.25. */
function decimals(step: number): number {
  const digits = Math.max(0, -Math.floor(Math.log10(Math.abs(step)) + 1e-9));
  const left = Math.abs(step) * 10 ** digits;
  return Math.min(15, Math.abs(left - Math.round(left)) < 1e-6 ? digits : digits + 1);
}

/** Large numbers with a letter, small ones with an exponent; with the digits that neighbours need to differ.
 *  most: the largest on the axis, by whose size all are written. */
export function tickText(value: number, step: number, most = Math.abs(value)): string {
  if (value === 0) return "0";
  const size = most;
  if (size >= 1e15 || size < 1e-4) return power(value, step);
  const found = size >= 1e4 ? LETTERS.find(([least]) => size >= least) : undefined;
  const [large, sign] = found ?? [1, ""];
  // a letter saves nothing where neighbours differ in their last digits alone
  const [unit, letter] = decimals(step / large) > (size < 1e7 ? 2 : 6) ? [1, ""] : [large, sign];
  const digits = decimals(step / unit);
  const fixed = (value / unit).toFixed(digits);
  const text = unit === 1 ? grouped(fixed) : fixed;
  return `${text}${letter}`;
}

function power(value: number, step: number): string {
  const exponent = Math.floor(Math.log10(Math.abs(value)) + 1e-9);
  const [mantissa, of] = Math.abs(step).toExponential().split("e").map(Number) as [number, number];
  const digits = Math.max(0, Math.min(15, exponent - of + decimals(mantissa)));
  const [digitsText = "", exponentOf = ""] = value.toExponential(digits).split("e");
  return `${digitsText}e${exponentText(Number(exponentOf))}`;
}

/** On a logarithmic axis each tick stands for itself, with all its digits. */
export function logTickText(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e-4 && size < 1e4) return grouped(String(Number(value.toPrecision(12))));
  const [mantissa = "", power] = value.toExponential().split("e");
  return tickText(value, Number(`1e${Number(power) - Math.max(0, mantissa.length - 2)}`));
}

export function secondsText(value: number, step: number): string {
  const size = Math.abs(value);
  if (step >= 86400) return `${round(value / 86400, step / 86400)} d`;
  if (step >= 3600 || size >= 360000) return `${round(value / 3600, step / 3600)} h`;
  if (step >= 60 || size >= 6000) return `${round(value / 60, step / 60)} min`;
  return `${round(value, step)} s`;
}

function round(value: number, step: number): string {
  return value.toFixed(Math.min(3, decimals(step)));
}

/** Distances between ticks of what is counted: there is no half step. */
export const COUNTS = Array.from({ length: 48 }, (_, at) => ([1, 2, 5][at % 3] ?? 1) * 10 ** Math.floor(at / 3));

/** Distances between ticks of a duration: such as people count in. */
// prettier-ignore
export const SECONDS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
  10800, 21600, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000,
];

const AXES: Record<string, string> = {
  step: "step",
  time: "time",
  relative: "time since start",
  tokens: "tokens",
  samples: "samples",
};

export function axisName(x: string): string {
  return AXES[x] ?? x;
}

/** An x as a person reads it. */
export function xText(x: string, value: number): string {
  if (x === "time") {
    const date = new Date(value * 1000);
    const two = (part: number): string => String(part).padStart(2, "0");
    return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  }
  if (x === "relative") {
    const seconds = Math.max(0, Math.round(value));
    const hours = Math.floor(seconds / 3600);
    const clock = `${String(Math.floor((seconds % 3600) / 60)).padStart(2, "0")}:${String(seconds % 60).padStart(2, "0")}`;
    return value < 60 ? `${value.toFixed(1)} s` : hours ? `${hours}:${clock}` : clock;
  }
  if (x === "step" || x === "samples") return `${axisName(x)} ${whole(value)}`;
  if (x === "tokens") return `${tickText(value, value / 100 || 1)} tokens`;
  return `${x} ${Number(value.toPrecision(6))}`;
}
