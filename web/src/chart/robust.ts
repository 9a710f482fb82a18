/** The y axis when a run diverges: where the others are, and what stands beyond.
 *
 * In:   the curves of a chart.
 * Out:  the range that is not exceeded by default, null where all values are shown; label places without overlap. Pure.
 */

import type { Curve } from "./curve.ts";
import type { Range } from "./range.ts";

const SAMPLES = 64; // of each curve, evenly among its points: its quartiles are wanted, and all curves weigh the same
const FENCE = 6; // interquartile ranges beyond the quartiles; 1.5 is the usual mark of an outlier, a young loss has more
const MANY = 3; // from so many curves on, one that diverges costs the others their height
const GAIN = 1.5; // the axis is at least so many times as long without the fence
const GAIN_OF_FEW = 8; // of one curve or two the divergence itself is what is looked at

interface Facts {
  values: number[];
  low: number;
  high: number;
  last: number;
  odd: boolean;
}

const known = new WeakMap<Curve, Facts>();

function factsOf(curve: Curve): Facts {
  const found = known.get(curve);
  if (found) return found;
  const source = curve.smooth.length ? curve.smooth : curve.y;
  const values: number[] = [];
  let [low, high, last] = [Infinity, -Infinity, NaN];
  const weigh = (at: number): number => (curve.exact ? 1 : (curve.count[at] ?? 1));
  let total = 0;
  for (let at = 0; at < source.length; at++) total += weigh(at);
  let passed = 0;
  for (let at = 0; at < source.length; at++) {
    const value = source[at] ?? NaN;
    const before = Math.floor((passed / total) * SAMPLES);
    passed += weigh(at);
    if (!Number.isFinite(value)) continue;
    last = value;
    // a bucket of many points, as on a logarithmic axis, stands for all of them
    for (let left = Math.floor((passed / total) * SAMPLES) - before; left > 0; left--) values.push(value);
    const [least, most] = [curve.low[at] ?? value, curve.high[at] ?? value];
    if (least < low) low = least;
    if (most > high && most < Infinity) high = most;
  }
  const facts = { values, low, high, last, odd: curve.markCount > 0 };
  known.set(curve, facts);
  return facts;
}

/** The range that a diverging curve does not widen; null where none diverges, or where it costs the others little. */
export function fence(curves: readonly Curve[], log: boolean): Range | null {
  const to = (value: number): number => (log ? Math.log10(value) : value);
  const facts = curves.map(factsOf).filter((one) => one.values.length > 0 && (!log || one.low > 0));
  const values = facts
    .flatMap((one) => one.values)
    .map(to)
    .filter(Number.isFinite)
    .sort((a, b) => a - b);
  if (values.length < 16) return null;
  const at = (share: number): number => values[Math.round(share * (values.length - 1))] ?? 0;
  const [first, third] = [at(0.25), at(0.75)];
  const room = FENCE * (third - first);
  if (!(room > 0)) return null;
  let [low, high] = [first - room, third + room];
  const beyond = (value: number): boolean => to(value) > high || to(value) < low;
  const diverges = facts.map((one) => beyond(one.last) || (one.odd && (beyond(one.high) || beyond(one.low))));
  if (!diverges.includes(true)) return null;
  // what the others begin with, or come to, is in sight
  for (const one of facts.filter((_, place) => !diverges[place])) {
    const own = one.values.map(to).sort((a, b) => a - b);
    low = Math.min(low, own[Math.floor(0.02 * (own.length - 1))] ?? low);
    high = Math.max(high, own[Math.ceil(0.98 * (own.length - 1))] ?? high);
  }
  const lowest = Math.min(...facts.map((one) => to(one.low)));
  const highest = Math.max(...facts.map((one) => to(one.high)));
  const whole = highest - lowest;
  const left = Math.min(high, highest) - Math.max(low, lowest);
  if (!(whole > left * (curves.length >= MANY ? GAIN : GAIN_OF_FEW))) return null;
  return log ? [10 ** low, 10 ** high] : [low, high];
}

/** Places for labels near where they belong, `gap` apart and between `low` and `high`, in the order given. wanted: from
 *  the smallest to the largest. What does not fit stands closer. */
export function spread(wanted: readonly number[], gap: number, low: number, high: number): number[] {
  const apart = wanted.length > 1 ? Math.min(gap, (high - low) / (wanted.length - 1)) : gap;
  // blocks of labels that touch; each stands with its middle where the middle of its labels belongs
  const blocks: { sum: number; count: number }[] = [];
  const start = ({ sum, count }: { sum: number; count: number }): number =>
    Math.max(low, Math.min(high - apart * (count - 1), (sum - (apart * count * (count - 1)) / 2) / count));
  for (const place of wanted) {
    let block = { sum: place, count: 1 };
    for (;;) {
      const before = blocks[blocks.length - 1];
      if (!before || start(before) + apart * before.count <= start(block) + 1e-9) break;
      blocks.pop();
      block = { sum: before.sum + block.sum, count: before.count + block.count };
    }
    blocks.push(block);
  }
  return blocks.flatMap((block) => Array.from({ length: block.count }, (_, at) => start(block) + apart * at));
}
