import assert from "node:assert/strict";
import { test } from "node:test";
import type { MediaItem } from "../src/api/types.ts";
import { cellImage, cellText, fitting, kindsOf, lastAt, namesOf, placeAt, stepsOf } from "../src/media/pick.ts";

const item = (name: string, step: number, type = "image", rank = 0): MediaItem => ({
  name, type, step, time: 0, file: `${name}${step}.png`, bytes: 1, caption: "", rank, there: true, shape: [], seconds: null,
}); // prettier-ignore

test("the last of a name up to a step counts, with all of that step", () => {
  const items = [item("a", 0), item("a", 10), item("a", 10, "image", 1), item("b", 5)];
  assert.deepEqual(
    lastAt(items, "a", 9).map((one) => one.step),
    [0],
  );
  assert.deepEqual(
    lastAt(items, "a", 10).map((one) => one.rank),
    [0, 1],
  );
  assert.deepEqual(lastAt(items, "b", 4), []);
  assert.deepEqual(stepsOf(items), [0, 5, 10]);
});

test("a step between two is the one before", () => {
  assert.equal(placeAt([0, 5, 10], 7), 1);
  assert.equal(placeAt([0, 5, 10], 10), 2);
  assert.equal(placeAt([5, 10], 1), 0);
  assert.equal(placeAt([], 1), 0);
});

test("names are in the order of their numbers, images first", () => {
  const items = [item("t", 0, "table"), item("x 10", 0), item("x 9", 0)];
  assert.deepEqual(namesOf(items), ["x 9", "x 10", "t"]);
  assert.deepEqual(kindsOf(items), [
    ["image", 2],
    ["table", 1],
  ]);
  assert.deepEqual(
    fitting(items, "image", "X 1").map((one) => one.name),
    ["x 10"],
  );
});

test("cells are text, but for images of the run", () => {
  assert.equal(cellText({ a: [1] }), '{"a":[1]}');
  assert.equal(cellText(null), "");
  assert.equal(cellImage({ media: "media/0a.png" }), "0a.png");
  for (const other of [null, 1, "media/0a.png", { media: 3 }, { media: "https://elsewhere/x.png" }])
    assert.equal(cellImage(other), "");
});
