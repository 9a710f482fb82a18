/** Loads of experts, and the steps below a map. */
import assert from "node:assert/strict";
import test from "node:test";
import { tickPlaces } from "../src/run/heatmap.ts";
import { deadExperts, evenShares, sharesAt } from "../src/run/loads.ts";

const steps = Float64Array.from([10, 20, 30]);
// two layers of two experts at three steps; expert 1 of layer b gets nothing from step 20 on
const loads = [1, 3, 1, 1, 2, 2, 1, 1, 4, 0, 4, 0];

for (const unit of [1, 8192, 0.125])
  test(`shares do not depend on what loads are counted in: ${unit}`, () => {
    const all = { layers: ["a", "b"], experts: 2, steps, load: Float64Array.from(loads, (load) => load * unit) };
    const shares = evenShares(all);
    assert.deepEqual([...shares], [0.5, 1, 1, 1.5, 1, 1, 1, 2, 2, 1, 0, 0]);
    assert.deepEqual(deadExperts(all, shares), [{ layer: "b", expert: 1, share: 0, since: 20 }]);
    assert.deepEqual([...sharesAt(shares, 3, 2)], [1, 1, 2, 0]);
  });

test("a layer without loads is unknown, not dead", () => {
  const all = { layers: ["a"], experts: 2, steps, load: new Float64Array(6).fill(NaN) };
  const shares = evenShares(all);
  assert.ok([...shares].every(Number.isNaN));
  assert.deepEqual(deadExperts(all, shares), []);
  assert.deepEqual(deadExperts({ layers: [], experts: 0, steps }, new Float64Array(0)), []);
});

test("round steps stand where they are, between two columns too", () => {
  const columns = Float64Array.from({ length: 70 }, (_, at) => 10 + at * 10);
  const found = tickPlaces(columns, 8);
  assert.deepEqual(
    found.map((one) => one.step),
    [100, 200, 300, 400, 500, 600, 700],
  );
  assert.equal(found[0]?.column, 9);
  assert.equal(tickPlaces(Float64Array.from([7, 13]), 4)[0]?.step, 8);
  assert.deepEqual(tickPlaces(Float64Array.from([5]), 4), [{ step: 5, column: 0 }]);
  assert.deepEqual(tickPlaces(new Float64Array(0), 4), []);
});
