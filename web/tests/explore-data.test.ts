import assert from "node:assert/strict";
import { test } from "node:test";
import type { Row } from "../src/api/types.ts";
import { patchesOf } from "../src/compare/patches.ts";
import {
  boxesOf,
  formatBrushes,
  marksOf,
  parseBrushes,
  quantile,
  scaleOf,
  suitsLog,
  within,
} from "../src/explore/data.ts";

const row = (key: string, config: Record<string, unknown>, last: Record<string, number | "NaN"> = {}): Row =>
  ({ key, name: key, id: key, project: "p", config, last, best: {}, tags: [], notes: "" }) as unknown as Row;

test("a scale places its values between 0 and 1, and gives them back", () => {
  for (const log of [false, true]) {
    const scale = scaleOf([0.001, 0.01, 1], log);
    for (const value of [0.001, 0.01, 1]) {
      const place = scale.at(value);
      assert.ok(place >= 0 && place <= 1);
      assert.ok(Math.abs((scale.back(place) as number) / value - 1) < 1e-9);
    }
    assert.ok(scale.ticks.length >= 2);
  }
  assert.ok(Number.isNaN(scaleOf([1, 2], false).at(NaN)));
  assert.ok(Number.isNaN(scaleOf([1, 2], true).at(-1)));
  assert.ok(Number.isNaN(scaleOf([1, 2], true).at(null)));
  assert.ok(Number.isFinite(scaleOf([3, 3], false).at(3)));
});

test("words stand apart, numbers among them are words", () => {
  const scale = scaleOf(["muon", "adamw", 7, null], true);
  assert.equal(scale.kind, "words");
  assert.equal(new Set(["muon", "adamw", 7].map((one) => scale.at(one))).size, 3);
  assert.ok(Number.isNaN(scale.at(null)));
  assert.equal(scale.back(scale.at("muon")), "muon");
});

test("a learning rate suits a logarithm, a seed and a loss do not", () => {
  assert.ok(suitsLog([1e-4, 1e-3, 1e-2]));
  assert.ok(!suitsLog([0, 1, 2]));
  assert.ok(!suitsLog([3.1, 3.2, 4]));
});

test("repeats are a mean with the deviation of one less than their number", () => {
  const rows = [1, 3].map((value, at) => row(`r${at}`, { lr: 0.1, seed: at }, { loss: value }));
  const columns = { x: "config:lr", y: "last:loss", colour: null, size: null };
  const [mark] = marksOf(rows, columns, [rows]);
  assert.equal(mark?.y, 2);
  assert.ok(Math.abs((mark?.dy ?? 0) - Math.SQRT2) < 1e-12);
  assert.deepEqual(mark?.keys, ["r0", "r1"]);
  assert.equal(marksOf(rows, columns, null).length, 2);
});

test("brushes come back from the address, whatever their columns are called", () => {
  const brushes = new Map([
    ["config:a~b;c%,d", [0.001, 0.5] as const],
    ["config:name", ["x;~'y", "z"] as const],
  ]);
  assert.deepEqual(parseBrushes(formatBrushes(brushes)), brushes);
  assert.equal(parseBrushes(null).size, 0);
  assert.equal(parseBrushes("%E0~1~2;a~b;x~1~y").size, 0);
});

test("all brushes together narrow, and who lacks a value is out", () => {
  const places = [Float64Array.of(0, 0.5, 1, NaN), Float64Array.of(1, 1, 0, 1)];
  assert.deepEqual([...within(places, [[0, 0.6], null])], [1, 1, 0, 0]);
  assert.deepEqual(
    [
      ...within(places, [
        [0.4, 1],
        [0.9, 1],
      ]),
    ],
    [0, 1, 0, 0],
  );
  assert.deepEqual([...within(places, [null, null])], [1, 1, 1, 1]);
});

test("boxes have their quartiles, and count what is not finite", () => {
  const rows = [1, 2, 3, 4, 100].map((value, at) => row(`r${at}`, { width: 8 }, { loss: value }));
  rows.push(row("lost", { width: 8 }, { loss: "NaN" }), row("other", { width: 16 }, { loss: 5 }));
  const [first, second] = boxesOf(rows, "config:width", "last:loss");
  assert.deepEqual([first?.first, first?.median, first?.third, first?.high, first?.lost], [2, 3, 4, 4, 1]);
  assert.equal(second?.label, "16");
  assert.equal(quantile([], 0.5).toString(), "NaN");
});

test("numbers of many values are put into parts of as many runs", () => {
  const rows = Array.from({ length: 80 }, (_, at) => row(`r${at}`, { lr: at / 7 }, { loss: at }));
  const boxes = boxesOf(rows, "config:lr", "last:loss");
  assert.equal(boxes.length, 8);
  assert.ok(boxes.every((box) => box.values.length === 10));
});

test("the changes of each file are found in a diff", () => {
  const diff =
    "diff --git a/x.py b/x.py\nindex 1..2\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\ndiff --git a/y b/y\n@@ -1 +1 @@\n+c\n";
  const found = patchesOf({ git: { diff } });
  assert.deepEqual([...found.keys()], ["x.py", "y"]);
  assert.equal(found.get("x.py"), "@@ -1 +1 @@\n-a\n+b\n");
  assert.equal(patchesOf({}).size, 0);
});
