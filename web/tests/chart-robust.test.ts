/** The y axis when a run diverges, and names at the ends of lines. */
import assert from "node:assert/strict";
import test from "node:test";
import { plainCurve, signAt } from "../src/chart/curve.ts";
import { fence, spread } from "../src/chart/robust.ts";

const STEPS = Float64Array.from({ length: 400 }, (_, at) => at);
const curve = (at: (step: number) => number) => {
  const values = STEPS.map(at);
  const odd = [...values].flatMap((value, step) => (Number.isFinite(value) ? [] : [signAt(step, value)]));
  return plainCurve("loss", STEPS, values, undefined, odd);
};
const healthy = (level: number) => curve((step) => level + 6 * Math.exp(-step / 40) + 0.05 * Math.sin(step * level));
const lost = curve((step) =>
  step < 150 ? 3.5 + 6 * Math.exp(-step / 40) : step < 160 ? 3.5 * 1.5 ** (step - 149) : NaN,
);

test("a run that diverges does not set the axis of the others, on any scale", () => {
  const many = [3.2, 3.4, 3.6, 3.8].map(healthy);
  const found = fence([...many, lost], false);
  assert.ok(found && found[1] > 8 && found[1] < 20, String(found)); // the others' beginning is in sight
  assert.ok(fence([...many, curve((step) => (step < 300 ? 3.5 : 10 ** (step / 40)))], true));
});

test("without divergence all values are in sight: a spike, a young loss, a constant, nothing", () => {
  const spike = curve((step) => (step === 200 ? 40 : 3 + Math.sin(step)));
  for (const curves of [
    [spike],
    [healthy(3), healthy(3.5), healthy(4), spike],
    [curve(() => 1)],
    [curve(() => NaN)],
    [],
  ])
    assert.equal(fence(curves, false), null);
  // of one run the divergence is what is looked at, unless nothing else is left to see
  const rising = curve((step) => (step < 150 ? 3.5 + 6 * Math.exp(-step / 40) : step < 160 ? step / 8 - 15 : NaN));
  assert.equal(fence([rising], false), null);
  assert.ok(fence([curve((step) => (step < 350 ? 3 + 0.1 * Math.sin(step) : 1e9))], false));
});

test("labels stand near their lines, in order, apart, and within the plot", () => {
  const cases = [
    [50],
    [10, 11, 12],
    [95, 96, 97, 98, 99],
    [0, 50, 51, 100],
    [5, 5, 5, 5, 5, 5, 5, 5, 5],
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
  ];
  for (const wanted of cases) {
    const found = spread(wanted, 12, 0, 100);
    const gap = Math.min(12, 100 / Math.max(1, wanted.length - 1));
    found.forEach((place, at) => {
      assert.ok(place >= -1e-9 && place <= 100 + 1e-9, `${String(wanted)}: ${place}`);
      if (at) assert.ok(place - (found[at - 1] ?? 0) >= gap - 1e-6, `${String(wanted)}: ${String(found)}`);
    });
  }
  assert.deepEqual(spread([20, 50, 80], 12, 0, 100), [20, 50, 80]);
});
