/** Numbers as colours: scales, and a canvas of cells.
 *
 * In:   values row by row, a kind of scale, stops of colour.
 * Out:  a picture of one pixel a cell; the words of its legend. Cells without a number stay empty.
 */

import { ticks } from "../chart/ticks.ts";

export type Rgb = readonly [number, number, number];

export interface Scale {
  kind: "linear" | "log" | "signed";
  low: number;
  high: number;
}

/** The range of finite values; zero and below have no place on a logarithmic one. Both signs: around zero. */
export function scaleOf(values: Float64Array, log: boolean): Scale {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value) || (log && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (!(low <= high)) return { kind: log ? "log" : "linear", low: log ? 1 : 0, high: log ? 10 : 1 };
  if (log) return { kind: "log", low, high: high > low ? high : low * 1.0001 };
  if (low < 0 && high > 0) {
    const most = Math.max(-low, high);
    return { kind: "signed", low: -most, high: most };
  }
  return { kind: "linear", low, high: high > low ? high : low + (Math.abs(low) || 1) * 1e-9 };
}

/** Where a value is on a scale, from 0 to 1; NaN where it has no place. */
export function share(scale: Scale, value: number): number {
  if (Number.isNaN(value)) return NaN;
  if (scale.kind === "log") {
    if (value <= 0) return NaN;
    return clamp(Math.log(value / scale.low) / Math.log(scale.high / scale.low));
  }
  return clamp((value - scale.low) / (scale.high - scale.low));
}

const clamp = (value: number): number => (value < 0 ? 0 : Math.min(value, 1));

/** "#aabbcc" or "rgb(1, 2, 3)" as numbers. */
export function parseColour(text: string): Rgb {
  const hex = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})/i.exec(text);
  if (hex) return [1, 2, 3].map((at) => parseInt(hex[at] ?? "0", 16)) as unknown as Rgb;
  const parts = text.match(/[\d.]+/g) ?? ["128", "128", "128"];
  return [0, 1, 2].map((at) => Number(parts[at] ?? 0)) as unknown as Rgb;
}

/** 256 colours between the stops. */
export function ramp(stops: readonly Rgb[]): Uint8ClampedArray {
  const table = new Uint8ClampedArray(256 * 3);
  for (let at = 0; at < 256; at++) {
    const place = (at / 255) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(place));
    for (let channel = 0; channel < 3; channel++) {
      const a = stops[low]?.[channel] ?? 0;
      const b = stops[low + 1]?.[channel] ?? 0;
      table[at * 3 + channel] = a + (b - a) * (place - low);
    }
  }
  return table;
}

/** One pixel a cell, the first row on top. odd: the colour of infinities. */
export function pixels(
  values: Float64Array,
  width: number,
  height: number,
  scale: Scale,
  table: Uint8ClampedArray,
  odd: Rgb,
): Uint8ClampedArray {
  const out = new Uint8ClampedArray(width * height * 4);
  for (let at = 0; at < width * height; at++) {
    const value = values[at] ?? NaN;
    const place = share(scale, value);
    if (value === Infinity || value === -Infinity) {
      out.set([...odd, 255], at * 4);
      continue;
    }
    if (Number.isNaN(place)) continue;
    const index = Math.round(place * 255) * 3;
    out[at * 4] = table[index] ?? 0;
    out[at * 4 + 1] = table[index + 1] ?? 0;
    out[at * 4 + 2] = table[index + 2] ?? 0;
    out[at * 4 + 3] = 255;
  }
  return out;
}

/** Round steps to be written below, and the column that each stands over, between two of them too. */
export function tickPlaces(steps: Float64Array, most: number): { step: number; column: number }[] {
  const [first, last] = [steps[0] ?? 0, steps[steps.length - 1] ?? 0];
  if (steps.length < 2 || !(last > first)) return steps.length ? [{ step: first, column: 0 }] : [];
  const round = [...new Set(ticks(first, last, Math.max(2, most)).filter(Number.isInteger))];
  return round.map((step) => {
    let at = 0;
    while (at < steps.length - 2 && (steps[at + 1] ?? 0) <= step) at++;
    const [low, high] = [steps[at] ?? 0, steps[at + 1] ?? 0];
    return { step, column: high > low ? at + (step - low) / (high - low) : at };
  });
}

/** A histogram put on other edges: each count is spread evenly over its own bin. */
export function rebin(edges: Float64Array, counts: Float64Array, onto: Float64Array): Float64Array {
  const out = new Float64Array(Math.max(0, onto.length - 1));
  let bin = 0;
  for (let at = 0; at < counts.length; at++) {
    const low = edges[at] ?? 0;
    const high = edges[at + 1] ?? 0;
    const count = counts[at] ?? 0;
    if (!(count > 0) || !(high > low)) {
      if (count > 0 && high === low) {
        const place = out.findIndex((_, index) => low <= (onto[index + 1] ?? 0));
        if (place >= 0) out[place] = (out[place] ?? 0) + count;
      }
      continue;
    }
    while (bin > 0 && (onto[bin] ?? 0) > low) bin--;
    while (bin < out.length - 1 && (onto[bin + 1] ?? 0) <= low) bin++;
    for (let index = bin; index < out.length && (onto[index] ?? 0) < high; index++) {
      const from = Math.max(low, onto[index] ?? 0);
      const to = Math.min(high, onto[index + 1] ?? 0);
      if (to > from) out[index] = (out[index] ?? 0) + (count * (to - from)) / (high - low);
    }
  }
  return out;
}

/** The value below which a share of a histogram lies. */
export function quantile(edges: Float64Array, counts: Float64Array, part: number): number {
  let total = 0;
  for (const count of counts) total += count;
  if (!(total > 0)) return NaN;
  let left = total * part;
  for (let at = 0; at < counts.length; at++) {
    const count = counts[at] ?? 0;
    if (count >= left && count > 0) {
      const [low, high] = [edges[at] ?? 0, edges[at + 1] ?? 0];
      return low + ((high - low) * left) / count;
    }
    left -= count;
  }
  return edges[edges.length - 1] ?? NaN;
}
