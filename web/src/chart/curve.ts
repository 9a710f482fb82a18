/** A curve: one series of one run as it is drawn, and what can be asked of it.
 *
 * In:   an entry of the server's answer: exact points, or buckets with their minimum and maximum.
 * Out:  columns in the order of x; the value at an x; extents; statistics of a range.
 */

import type { Frame } from "../api/frame.ts";
import { num } from "../api/values.ts";
import type { Key, Mark, SeriesColumns, SeriesHeader } from "../api/types.ts";

/** Columns of one length. Where `exact`, each entry is a point and `low`, `high` are `y`; else it is a bucket. */
export interface Columns {
  exact: boolean;
  x: Float64Array;
  /** The point's value, or the bucket's mean over finite values. */
  y: Float64Array;
  low: Float64Array;
  high: Float64Array;
  /** Each bucket's first and last value; those of `y` where exact. */
  first: Float64Array;
  last: Float64Array;
  /** Points in each bucket; empty where exact. */
  count: Float64Array;
  /** The smoothed value, empty without smoothing. */
  smooth: Float64Array;
}

export interface Curve extends Columns {
  run: Key;
  name: string;
  /** Points in the range that was asked for, before they were put into buckets; and of the whole series. */
  points: number;
  total: number;
  lastStep: number | null;
  lastValue: number | null;
  marks: Mark[];
  /** How many points are NaN or infinite, of which `marks` holds the first. */
  markCount: number;
  /** Where a sign is drawn: at the marks, and behind the last of them where nothing is finite. */
  signs: Sign[];
  error: string;
  /** What a resume or a rewind superseded. */
  old: Columns[];
}

export type Sign = Pick<Mark, "x" | "kind">;

/** How a curve looks and what it is called. */
export interface Look {
  label: string;
  colour: string;
  dim?: boolean;
  /** Behind the others, as raw values behind their smoothed line. */
  faint?: boolean;
  dash?: boolean;
  /** Low and high are the edges of an interval around the line, not of buckets. */
  interval?: boolean;
  /** Each point is drawn, however many there are. */
  dots?: boolean;
}

/** A series of fewer points is not smoothed: an evaluation each thousand steps would lag far behind itself. */
export const SPARSE = 50;

type Refs = SeriesColumns;

function columnsOf(frame: Frame<unknown>, refs: Refs): Columns {
  const exact = refs.y !== undefined || refs.mean === undefined;
  const read = (name: keyof Refs): Float64Array => frame.column(refs[name]);
  const y = exact ? read("y") : read("mean");
  return {
    exact,
    x: read("x"),
    y,
    low: exact ? y : read("min"),
    high: exact ? y : read("max"),
    first: exact || !refs.first ? y : read("first"),
    last: exact || !refs.last ? y : read("last"),
    count: exact ? new Float64Array(0) : read("count"),
    smooth: read("smooth"),
  };
}

/** Exact columns with the points beyond both ends; as they are where there are none. */
function extended(columns: Columns, { before, after }: Pick<SeriesHeader, "before" | "after">): Columns {
  if (!columns.exact || (!before && !after)) return columns;
  const put = (values: Float64Array, first: number | undefined, last: number | undefined): Float64Array =>
    Float64Array.from([...(before ? [first ?? NaN] : []), ...values, ...(after ? [last ?? NaN] : [])]);
  const x = put(columns.x, before?.[0], after?.[0]);
  const y = put(columns.y, before?.[1], after?.[1]);
  const smooth = columns.smooth.length ? put(columns.smooth, NaN, NaN) : columns.smooth;
  return { ...columns, x, y, low: y, high: y, first: y, last: y, smooth };
}

const kindOf = (value: number): Mark["kind"] => (value === Infinity ? "+inf" : value === -Infinity ? "-inf" : "nan");

/** The server lists the first points that are not finite. A run that stays broken is to look broken to its end. */
function signsOf(columns: Columns, marks: readonly Mark[], count: number): Sign[] {
  if (count <= marks.length) return [...marks];
  const signs: Sign[] = [...marks];
  const last = marks[marks.length - 1]?.x ?? -Infinity;
  for (let at = placeOf(columns.x, last); at < columns.x.length; at++) {
    if (!Number.isFinite(columns.y[at])) signs.push({ x: columns.x[at] ?? 0, kind: kindOf(columns.first[at] ?? NaN) });
  }
  return signs;
}

/** wanted: the run and the name that were asked for; the server may have found it by the end of its name. */
export function curveOf(
  frame: Frame<unknown>,
  header: SeriesHeader,
  wanted = { run: header.run, name: header.name },
): Curve {
  const columns = extended(columnsOf(frame, header.columns), header);
  const marks = header.marks ?? [];
  const markCount = header.marks_total ?? marks.length;
  return {
    ...columns,
    smooth: header.total < SPARSE ? new Float64Array(0) : columns.smooth,
    run: wanted.run,
    name: wanted.name,
    points: header.points,
    total: header.total,
    lastStep: header.last_step ?? null,
    lastValue: num(header.last_value),
    marks,
    markCount,
    signs: signsOf(columns, marks, markCount),
    error: header.error ?? "",
    old: (header.old ?? []).map((part) => columnsOf(frame, part.columns)),
  };
}

/** A curve of columns that are here already, as a report and a notebook carry them. edges: low and high of each place,
 *  of buckets or of an interval; without them each place is a point. */
export function plainCurve(
  name: string,
  x: Float64Array,
  y: Float64Array,
  edges?: readonly [Float64Array, Float64Array],
  signs: Sign[] = [],
): Curve {
  const [low, high] = edges ?? [y, y];
  const none = new Float64Array(0);
  return {
    exact: !edges,
    x,
    y,
    low,
    high,
    first: y,
    last: y,
    count: none,
    smooth: none,
    run: "",
    name,
    points: x.length,
    total: x.length,
    lastStep: x.length ? (x[x.length - 1] ?? null) : null,
    lastValue: y.length ? (y[y.length - 1] ?? null) : null,
    marks: [],
    markCount: signs.length,
    signs,
    error: "",
    old: [],
  };
}

/** What a number that is not finite is drawn as. */
export const signAt = (x: number, value: number): Sign => ({ x, kind: kindOf(value) });

/** The first place whose x is at least `value`; the length where there is none. */
export function placeOf(x: Float64Array, value: number): number {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((x[middle] ?? 0) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The place nearest to `value`, -1 for an empty column. */
export function nearest(x: Float64Array, value: number): number {
  const right = placeOf(x, value);
  if (right === 0) return x.length ? 0 : -1;
  if (right === x.length) return right - 1;
  return (x[right] ?? 0) - value < value - (x[right - 1] ?? 0) ? right : right - 1;
}

export interface Reading {
  x: number;
  value: number;
  low: number;
  high: number;
  smooth: number | null;
  exact: boolean;
}

/** What a curve has at an x: the bucket that holds it, or the nearest point no further away than `reach`. */
export function read(curve: Columns, at: number, reach = Infinity): Reading | null {
  let place: number;
  if (curve.exact) place = nearest(curve.x, at);
  else {
    place = placeOf(curve.x, at);
    if (place === curve.x.length || curve.x[place] !== at) place -= 1;
    if (place < 0) place = curve.x.length ? 0 : -1;
  }
  const x = curve.x[place];
  if (x === undefined || (curve.exact && Math.abs(x - at) > reach)) return null;
  if (!curve.exact && (at > (curve.x[curve.x.length - 1] ?? 0) + reach || at < (curve.x[0] ?? 0) - reach)) return null;
  const smooth = curve.smooth.length ? (curve.smooth[place] ?? null) : null;
  return {
    x,
    value: curve.y[place] ?? NaN,
    low: curve.low[place] ?? NaN,
    high: curve.high[place] ?? NaN,
    smooth,
    exact: curve.exact,
  };
}

export interface Extent {
  low: number;
  high: number;
  /** Points that a logarithmic axis can't show; with buckets, at least this many. */
  hidden: number;
  hiddenExact: boolean;
}

/** The smallest and largest finite value between two x (both included), of what will be drawn. */
export function extent(curves: readonly Columns[], from: number, to: number, log: boolean, onlySmooth = false): Extent {
  let low = Infinity;
  let high = -Infinity;
  let hidden = 0;
  let hiddenExact = true;
  for (const curve of curves) {
    const smooth = onlySmooth && curve.smooth.length > 0;
    const lows = smooth ? curve.smooth : curve.low;
    const highs = smooth ? curve.smooth : curve.high;
    // the bucket that began before `from` reaches into the range
    let at = placeOf(curve.x, from);
    if (!curve.exact && at > 0 && curve.x[at] !== from) at -= 1;
    for (; at < curve.x.length && (curve.x[at] ?? 0) <= to; at++) {
      const least = lows[at] ?? NaN;
      const most = highs[at] ?? NaN;
      if (log) {
        const below = curve.low[at] ?? NaN;
        if (below <= 0) {
          const whole = (curve.high[at] ?? NaN) <= 0;
          hidden += curve.exact ? 1 : whole ? (curve.count[at] ?? 1) : 1;
          if (!curve.exact && !whole) hiddenExact = false;
        }
        // a bucket that reaches through zero is drawn from its mean on
        const from = least > 0 ? least : (curve.y[at] ?? NaN) > 0 ? (curve.y[at] ?? NaN) : most;
        if (from > 0 && from < low) low = from;
        if (most > 0 && most > high && most < Infinity) high = most;
      } else {
        if (least < low && least > -Infinity) low = least;
        if (most > high && most < Infinity) high = most;
      }
    }
  }
  return { low, high, hidden, hiddenExact };
}

/** Where most of the values lie: from the `share` quantile to the `1 - share` quantile of all that is drawn. */
export function centre(curves: readonly Columns[], from: number, to: number, share = 0.01): [number, number] | null {
  const values: number[] = [];
  for (const curve of curves) {
    const source = curve.smooth.length ? curve.smooth : curve.y;
    for (let at = placeOf(curve.x, from); at < curve.x.length && (curve.x[at] ?? 0) <= to; at++) {
      const value = source[at] ?? NaN;
      if (Number.isFinite(value)) values.push(value);
    }
  }
  if (values.length < 8) return null;
  values.sort((a, b) => a - b);
  const pick = (part: number): number => values[Math.round(part * (values.length - 1))] ?? 0;
  return [pick(share), pick(1 - share)];
}

export interface RangeStatistics {
  from: number;
  to: number;
  points: number;
  mean: number;
  low: number;
  high: number;
  /** Least squares, per unit of x. */
  slope: number;
  first: number;
  last: number;
  change: number;
  /** Non-finite values are left out of all of these. */
  odd: number;
  /** From every point; else from buckets: minimum, maximum, mean, first and last are exact but for the edges. */
  exact: boolean;
}

export function statistics(curve: Columns, from: number, to: number): RangeStatistics {
  let weight = 0;
  let sum = 0;
  let sumX = 0;
  let low = Infinity;
  let high = -Infinity;
  let first = NaN;
  let last = NaN;
  let odd = 0;
  const start = placeOf(curve.x, from);
  let end = start;
  while (end < curve.x.length && (curve.x[end] ?? 0) <= to) end++;
  const weigh = (at: number): number => (curve.exact ? 1 : (curve.count[at] ?? 1));
  for (let at = start; at < end; at++) {
    const y = curve.y[at] ?? NaN;
    const w = weigh(at);
    if (!Number.isFinite(y)) {
      odd += w;
      continue;
    }
    if (Number.isNaN(first)) first = finite(curve.first[at], y);
    last = finite(curve.last[at], y);
    weight += w;
    sum += w * y;
    sumX += w * (curve.x[at] ?? 0);
    low = Math.min(low, curve.low[at] ?? y);
    high = Math.max(high, curve.high[at] ?? y);
  }
  const mean = weight ? sum / weight : NaN;
  const meanX = weight ? sumX / weight : NaN;
  let up = 0;
  let down = 0;
  for (let at = start; at < end; at++) {
    const y = curve.y[at] ?? NaN;
    if (!Number.isFinite(y)) continue;
    const away = (curve.x[at] ?? 0) - meanX;
    up += weigh(at) * away * (y - mean);
    down += weigh(at) * away * away;
  }
  // prettier-ignore
  return {
    from, to, points: weight, mean,
    low: weight ? low : NaN,
    high: weight ? high : NaN,
    slope: down > 0 ? up / down : NaN,
    first, last, change: last - first, odd,
    exact: curve.exact,
  };
}

function finite(value: number | undefined, otherwise: number): number {
  return value !== undefined && Number.isFinite(value) ? value : otherwise;
}
