import assert from "node:assert/strict";
import { test } from "node:test";
import { Painted } from "../src/explore/painted.ts";

const all = (count: number): Uint8Array => new Uint8Array(count).fill(1);

test("each wanted line is painted once, however many there are", () => {
  for (const count of [0, 1, 2, 3, 10, 700, 5000]) {
    const painted = new Painted(count);
    const found: number[] = [];
    for (let part = painted.next(all(count), 64); part.length; part = painted.next(all(count), 64)) found.push(...part);
    assert.deepEqual(
      found.toSorted((a, b) => a - b),
      Array.from({ length: count }, (_, at) => at),
    );
  }
});

test("a part of the lines is spread over all of them", () => {
  const part = new Painted(5000).next(all(5000), 100).toSorted((a, b) => a - b);
  const gaps = part.map((line, at) => line - (part[at - 1] ?? 0));
  assert.ok(Math.max(...gaps) < 200, `${Math.max(...gaps)}`);
});

test("lines that come are added, and lines that go have all painted anew", () => {
  const painted = new Painted(6);
  const first = Uint8Array.from([1, 1, 1, 0, 0, 0]);
  assert.equal(painted.empty, true);
  assert.equal(painted.next(first, 10).length, 3);
  assert.equal(painted.empty, false);
  const wider = Uint8Array.from([1, 1, 1, 1, 0, 0]);
  assert.equal(painted.hasOthers(wider), false);
  assert.deepEqual(painted.next(wider, 10), [3]);
  const other = Uint8Array.from([0, 1, 1, 1, 0, 0]);
  assert.equal(painted.hasOthers(other), true);
  painted.clear();
  assert.deepEqual(
    painted.next(other, 10).toSorted((a, b) => a - b),
    [1, 2, 3],
  );
});
