import type { SeriesHeader } from "../src/api/types.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeFrame } from "../src/api/frame.ts";
import {
  centre,
  curveOf,
  extent,
  nearest,
  placeOf,
  read,
  SPARSE,
  statistics,
  type Columns,
} from "../src/chart/curve.ts";

function exact(x: number[], y: number[]): Columns {
  const values = Float64Array.from(y);
  return {
    exact: true,
    x: Float64Array.from(x),
    y: values,
    low: values,
    high: values,
    first: values,
    last: values,
    count: new Float64Array(0),
    smooth: new Float64Array(0),
  };
}

function bucketed(x: number[], low: number[], high: number[], mean: number[], count: number[]): Columns {
  const f = (values: number[]): Float64Array => Float64Array.from(values);
  return {
    exact: false,
    x: f(x),
    y: f(mean),
    low: f(low),
    high: f(high),
    first: f(mean),
    last: f(mean),
    count: f(count),
    smooth: new Float64Array(0),
  };
}

/** A frame as the server makes it. */
function frame(entry: Record<string, unknown>, columns: Record<string, number[]>) {
  const data: number[] = [];
  const refs: Record<string, { at: number; n: number }> = {};
  for (const [name, values] of Object.entries(columns)) {
    refs[name] = { at: data.length, n: values.length };
    data.push(...values);
  }
  let header = JSON.stringify({
    series: [
      {
        run: "p/r",
        name: "full/name",
        points: 0,
        total: 1000,
        exact: true,
        last_step: 9,
        last_value: "NaN",
        marks: [],
        columns: refs,
        ...entry,
      },
    ],
  });
  while ((4 + new TextEncoder().encode(header).length) % 8) header += " ";
  const text = new TextEncoder().encode(header);
  const buffer = new ArrayBuffer(4 + text.length + 8 * data.length);
  new DataView(buffer).setUint32(0, text.length, true);
  new Uint8Array(buffer, 4).set(text);
  new Float64Array(buffer, 4 + text.length).set(data);
  return decodeFrame<{ series: [SeriesHeader] }>(buffer);
}

test("a curve has the name that was asked for, not the one that the server found", () => {
  const made = frame({}, { x: [1, 2], y: [3, 4] });
  const curve = curveOf(made, made.header.series[0], { run: "p/r", name: "name" });
  assert.equal(curve.name, "name");
  assert.deepEqual([...curve.y], [3, 4]);
  assert.ok(Number.isNaN(curve.lastValue));
});

test("a line goes on to the points beyond both ends of a zoom", () => {
  const made = frame({ before: [0, 10], after: [9, 20] }, { x: [4], y: [15], smooth: [15] });
  const curve = curveOf(made, made.header.series[0]);
  assert.deepEqual([...curve.x], [0, 4, 9]);
  assert.deepEqual([...curve.y], [10, 15, 20]);
  assert.equal(curve.smooth.length, 3);
});

test("a zoom between two points of a sparse series still has a line", () => {
  const made = frame({ before: [0, 1], after: [1000, 2] }, { x: [], y: [] });
  assert.deepEqual([...curveOf(made, made.header.series[0]).x], [0, 1000]);
});

test("a sparse series is not smoothed", () => {
  const made = frame({ total: SPARSE - 1 }, { x: [1, 2], y: [3, 4], smooth: [3, 3.5] });
  assert.equal(curveOf(made, made.header.series[0]).smooth.length, 0);
});

test("a run that stays broken has signs to its end, though not every point is listed", () => {
  const marks = [{ x: 20, step: 20, kind: "nan" }];
  const columns = {
    x: [0, 10, 20, 30, 40],
    mean: [1, 2, 3, NaN, NaN],
    min: [1, 2, 3, NaN, NaN],
    max: [1, 2, 3, NaN, NaN],
    first: [1, 2, 3, NaN, -Infinity],
    count: [9, 9, 9, 9, 9],
  };
  const made = frame({ exact: false, marks, marks_total: 19 }, columns);
  const signs = curveOf(made, made.header.series[0]).signs.map(({ x, kind }) => [x, kind]);
  assert.deepEqual(signs, [
    [20, "nan"],
    [30, "nan"],
    [40, "-inf"],
  ]);
  const whole = frame({ exact: false, marks, marks_total: 1 }, columns);
  assert.equal(curveOf(whole, whole.header.series[0]).signs.length, 1);
});

test("places and the nearest of them", () => {
  const x = Float64Array.from([1, 2, 4, 8]);
  assert.equal(placeOf(x, 0), 0);
  assert.equal(placeOf(x, 4), 2);
  assert.equal(placeOf(x, 9), 4);
  assert.equal(nearest(x, 5), 2);
  assert.equal(nearest(x, 7), 3);
  assert.equal(nearest(new Float64Array(0), 7), -1);
});

test("a bucket is read from its first x on, a point only within reach", () => {
  const buckets = bucketed([0, 10, 20], [1, 2, 3], [4, 9, 6], [2, 3, 4], [10, 10, 10]);
  assert.equal(read(buckets, 19.9)?.high, 9);
  assert.equal(read(buckets, 20)?.high, 6);
  const points = exact([0, 100], [1, 2]);
  assert.equal(read(points, 60, 30), null);
  assert.equal(read(points, 80, 30)?.value, 2);
});

test("a spike of one bucket is in the extent, and a bucket that begins before the range counts", () => {
  const curve = bucketed([0, 10, 20], [1, 1, 1], [2, 99, 2], [1.5, 1.6, 1.5], [10, 10, 10]);
  assert.equal(extent([curve], 0, 30, false).high, 99);
  assert.equal(extent([curve], 15, 30, false).high, 99);
  assert.equal(extent([curve], 20, 30, false).high, 2);
});

test("NaN and infinities have no place on the y axis", () => {
  const found = extent([exact([1, 2, 3, 4], [NaN, Infinity, 5, -Infinity])], 0, 9, false);
  assert.deepEqual([found.low, found.high], [5, 5]);
});

test("a logarithmic axis counts what it leaves out, exactly where it can", () => {
  const found = extent([exact([1, 2, 3, 4], [-1, 0, 5, 50])], 0, 9, true);
  assert.deepEqual(found, { low: 5, high: 50, hidden: 2, hiddenExact: true });
  const buckets = bucketed([0, 10], [-1, -5], [4, -2], [2, -3], [10, 7]);
  const rough = extent([buckets], 0, 20, true);
  assert.equal(rough.hidden, 8); // one at least of the first bucket, all seven of the second
  assert.equal(rough.hiddenExact, false);
  assert.equal(rough.low, 2);
});

test("the middle of the values leaves a spike out", () => {
  const y = Array.from({ length: 1000 }, (_, at) => (at === 500 ? 1e6 : at / 1000));
  const found = centre(
    [
      exact(
        y.map((_, at) => at),
        y,
      ),
    ],
    0,
    1000,
  );
  assert.ok(found && found[1] < 1.1);
});

test("statistics of a range: mean, slope and change, with what is not finite left out", () => {
  const found = statistics(exact([0, 1, 2, 3, 4, 5], [9, 1, 3, NaN, 7, 9]), 1, 5);
  assert.deepEqual(
    [found.points, found.odd, found.first, found.last, found.change, found.low, found.high],
    [4, 1, 1, 9, 8, 1, 9],
  );
  assert.ok(Math.abs(found.slope - 2) < 1e-12);
  assert.equal(found.mean, 5);
});

test("statistics of buckets weigh each by its points", () => {
  const found = statistics(bucketed([0, 10], [0, 4], [2, 9], [1, 5], [30, 10]), 0, 20);
  assert.equal(found.mean, 2);
  assert.equal(found.high, 9);
  assert.equal(found.exact, false);
});
