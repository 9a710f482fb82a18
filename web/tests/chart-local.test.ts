/** Data that come with a report or a notebook: columns, frames, the range that charts share. */
import assert from "node:assert/strict";
import test from "node:test";
import { centre, extent, plainCurve, read, signAt } from "../src/chart/curve.ts";
import { along, upward, visible } from "../src/chart/paint.ts";
import { xOf, yOf } from "../src/report/data.ts";
import { Zoom } from "../src/report/zoom.ts";
import { readFrame } from "../src/widget/frame.ts";

const numbers = (...values: number[]): Float64Array => Float64Array.from(values);

test("a report's column gives its steps and all that is not finite", () => {
  assert.deepEqual([...xOf({ gaps: [10, 1, 5], y: [] })], [10, 11, 16]);
  assert.deepEqual([...xOf({ x: [0.5, 1.5], y: [] })], [0.5, 1.5]);
  assert.deepEqual([...yOf({ y: [1, "n", "p", "m"] })], [1, NaN, Infinity, -Infinity]);
});

test("values that are not finite are marked by what they are", () => {
  assert.deepEqual(
    [NaN, Infinity, -Infinity].map((value) => signAt(3, value).kind),
    ["nan", "+inf", "-inf"],
  );
});

test("a curve of points and one of an interval are read and measured alike", () => {
  const points = plainCurve("a", numbers(1, 2, 3), numbers(5, 9, 7));
  assert.deepEqual(read(points, 2.2), { x: 2, value: 9, low: 9, high: 9, smooth: null, exact: true });
  assert.deepEqual(extent([points], 1, 3, false), { low: 5, high: 9, hidden: 0, hiddenExact: true });
  const interval = plainCurve("b", numbers(1, 2), numbers(5, 6), [numbers(4, -2), numbers(6, 8)]);
  assert.deepEqual([extent([interval], 1, 2, false).low, extent([interval], 1, 2, false).high], [-2, 8]);
  assert.equal(read(interval, 1.5)?.low, 4);
  const spikes = plainCurve("c", numbers(1, 2, 3), numbers(1, Infinity, NaN));
  assert.equal(extent([spikes], 1, 3, false).high, 1);
});

test("a logarithmic axis counts the points that have no place on it", () => {
  const curve = plainCurve("a", numbers(1, 2, 3, 4), numbers(-1, 0, 1e-3, 10));
  assert.deepEqual(extent([curve], 1, 4, true), { low: 1e-3, high: 10, hidden: 2, hiddenExact: true });
});

test("the middle of the values leaves spikes out", () => {
  const y = Float64Array.from({ length: 1000 }, (_, at) => (at === 500 ? 1e9 : at % 10));
  const found = centre([plainCurve("a", Float64Array.from(y.keys()), y)], 0, 1000);
  assert.deepEqual(found, [0, 9]);
});

test("values have their places in pixels, and one point beyond each edge is drawn", () => {
  // prettier-ignore
  const frame = {
    left: 10, top: 0, width: 100, height: 50, x: [2, 4] as const, y: [1, 100] as const, logX: false, logY: true, ratio: 1,
  };
  assert.deepEqual([2, 3, 4].map(along(frame)), [10, 60, 110]);
  assert.deepEqual([1, 10, 100].map(upward(frame)), [50, 25, 0]);
  assert.deepEqual(visible(plainCurve("a", numbers(0, 1, 2.5, 3, 5, 9), numbers(1, 1, 1, 1, 1, 1)), frame), [1, 6]);
});

function bytes(header: object, data: number[], offset: number): DataView {
  let text = JSON.stringify(header);
  while ((4 + text.length) % 8) text += " ";
  const whole = new ArrayBuffer(offset + 4 + text.length + 8 * data.length);
  const view = new DataView(whole, offset);
  view.setUint32(0, text.length, true);
  for (let at = 0; at < text.length; at++) view.setUint8(4 + at, text.charCodeAt(at));
  data.forEach((value, at) => {
    view.setFloat64(4 + text.length + 8 * at, value, true);
  });
  return view;
}

test("a widget's frame is read from any place of a buffer; bytes that are none are refused", () => {
  const column = (at: number, n: number): object => ({ at, n });
  // prettier-ignore
  const line = {
    name: "loss", points: 2, exact: true, few: true, odd_count: 1,
    last: column(0, 1), x: column(1, 2), low: column(3, 2), high: column(3, 2), odd: column(5, 1), odd_values: column(6, 1),
  };
  const header = { title: "run", panels: [{ title: "loss", along: "step", lines: [line] }] };
  for (const offset of [0, 3]) {
    const frame = readFrame(bytes(header, [0.5, 1, 2, 3, 0.5, 7, Infinity], offset));
    const found = frame?.panels[0]?.lines[0];
    assert.deepEqual([found?.last, [...(found?.x ?? [])], [...(found?.high ?? [])]], [0.5, [1, 2], [3, 0.5]]);
    assert.deepEqual([[...(found?.odd ?? [])], [...(found?.oddValues ?? [])]], [[7], [Infinity]]);
    assert.deepEqual(frame?.facts, []);
  }
  assert.equal(readFrame(new DataView(new ArrayBuffer(2))), null);
});

test("a shared range stays within the whole, and no closer than two steps", () => {
  const zoom = new Zoom([1, 101]);
  const seen: number[] = [];
  zoom.listen({ range: () => seen.push(zoom.range[0]), cursor: () => undefined });
  zoom.scale(0.5);
  assert.deepEqual(zoom.range, [26, 76]);
  zoom.shift(10);
  assert.deepEqual(zoom.range, [51, 101]);
  zoom.set(60, 60.5);
  assert.equal(zoom.range[1] - zoom.range[0], 2);
  zoom.reset();
  assert.ok(zoom.isWhole);
  assert.deepEqual(seen, [26, 51, 59.25, 1]);
});
