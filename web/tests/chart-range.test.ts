import assert from "node:assert/strict";
import { test } from "node:test";
import {
  followed,
  formatView,
  History,
  padded,
  panned,
  parseView,
  sensible,
  within,
  zoomed,
} from "../src/chart/range.ts";

const near = (a: number, b: number): void =>
  assert.ok(Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(b)), `${a} is not ${b}`);

test("a zoom keeps the place under the pointer", () => {
  const [from, to] = zoomed([0, 100], 25, 0.5);
  near(from, 12.5);
  near(to, 62.5);
  const [a, b] = zoomed([1, 10000], 100, 0.5, true);
  near(Math.log10(a), 1);
  near(Math.log10(b), 3);
});

test("zooming in and out by the same factor comes back", () => {
  for (const log of [false, true]) {
    const once = zoomed([2, 50], 7, 0.3, log);
    const [from, to] = zoomed(once, 7, 1 / 0.3, log);
    near(from, 2);
    near(to, 50);
  }
});

test("a view stays within the data, and the whole is no view", () => {
  assert.deepEqual(within([-10, 10], [0, 100]), [0, 20]);
  assert.deepEqual(within([95, 115], [0, 100]), [80, 100]);
  assert.equal(within([-5, 105], [0, 100]), null);
  assert.deepEqual(within([20, 30], [0, 100]), [20, 30]);
  assert.deepEqual(panned([0, 10], 0.5), [5, 15]);
});

test("numbers that cannot be distinguished are not a range", () => {
  assert.equal(sensible([1e9, 1e9 + 1e-6]), false);
  assert.equal(sensible([1, 2]), true);
  assert.equal(sensible([2, 1]), false);
});

test("a view at the right edge follows new points; another stays", () => {
  assert.deepEqual(followed([50, 100], 100, 120), [70, 120]);
  assert.deepEqual(followed([10, 60], 100, 120), [10, 60]);
  assert.equal(followed(null, 100, 120), null);
});

test("room around values: also for one value, for huge ones, and none below zero for what is never below", () => {
  const [low, high] = padded(5, 5, false);
  assert.ok(low < 5 && high > 5);
  assert.equal(padded(0, 10, false)[0], 0);
  assert.equal(padded(0.1, 10, false)[0], 0);
  assert.ok(padded(-1e308, 1e308, false).every(Number.isFinite));
  assert.ok(padded(1, 1, true)[0] > 0);
  assert.deepEqual(padded(Infinity, -Infinity, false), [0, 1]);
});

test("history goes back and forward, and forgets what was undone", () => {
  const history = new History();
  history.push([0, 1]);
  history.push([0, 2]);
  assert.deepEqual(history.back(), [0, 1]);
  assert.deepEqual(history.forward(), [0, 2]);
  assert.deepEqual(history.back(), [0, 1]);
  history.push([5, 6]);
  assert.deepEqual(history.forward(), [5, 6]);
  assert.deepEqual([history.back(), history.back(), history.back()], [[0, 1], null, null]);
});

test("a view in the address reads back, to a ten-thousandth of its width", () => {
  assert.equal(formatView([975.4739726, 2041.117808]), "975.5..2041.1");
  assert.equal(formatView([1795271657.63, 1795271699.9]), "1795271657.63..1795271699.9");
  assert.equal(formatView(null), "");
  assert.deepEqual(parseView("120..480"), [120, 480]);
  assert.deepEqual(parseView("-1e-5..2e-5"), [-1e-5, 2e-5]);
  for (const bad of ["", null, "5", "5..2", "a..b", "1..2..3"]) assert.equal(parseView(bad), null);
});
