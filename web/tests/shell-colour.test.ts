/** Colours: by key alone, never twice among what is drawn, legible on their ground. */
import assert from "node:assert/strict";
import test from "node:test";
import { assign, colourAt, lineColours, mix, PALETTE, placeByKey, sequence } from "../src/shell/colour.ts";

const none = (): undefined => undefined;
const keys = (count: number): string[] => Array.from({ length: count }, (_, at) => `sweep/lr0.00${at}-seed${at % 3}`);

/** WCAG's contrast of two colours #rrggbb. */
function contrast(one: string, other: string): number {
  const luminance = (colour: string): number => {
    const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => {
      const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

test("no colour is given twice among the runs drawn, however many", () => {
  for (const count of [1, 10, 12, 13, 60, 200]) {
    const places = [...assign(keys(count), none, new Map()).values()];
    assert.equal(new Set(places).size, count);
    for (const theme of ["light", "dark"] as const) {
      const colours = new Set(places.map((place) => colourAt(place, theme)));
      assert.ok(colours.size >= (count > 100 ? 0.99 * count : count)); // of some hundred, two may round to one
    }
  }
});

test("colours follow from the runs drawn, not from the order in which they came", () => {
  const one = assign(keys(10), none, new Map());
  const other = assign([...keys(10)].reverse(), none, new Map());
  assert.deepEqual([...one].sort(), [...other].sort());
  for (const key of keys(10)) assert.equal(assign([key], none, new Map()).get(key), placeByKey(key));
});

test("a run keeps its colour when others join it or leave", () => {
  const before = assign(keys(6), none, new Map());
  const more = assign(keys(12), none, before);
  for (const key of keys(6)) assert.equal(more.get(key), before.get(key));
  const fewer = assign(keys(3), none, more);
  for (const key of keys(3)) assert.equal(fewer.get(key), before.get(key));
});

test("what a person chose holds, and the others give way", () => {
  const free = assign(keys(8), none, new Map());
  const [first = "", second = ""] = keys(8);
  const taken = free.get(second) ?? 0;
  const places = assign(keys(8), (key) => (key === first ? taken : undefined), free);
  assert.equal(places.get(first), taken);
  assert.notEqual(places.get(second), taken);
  assert.equal(new Set(places.values()).size, 8);
});

test("every colour stands out from its ground", () => {
  for (let place = 0; place < 60; place++) {
    assert.ok(contrast(colourAt(place, "light"), "#ffffff") >= 3, `light ${place}`);
    assert.ok(contrast(colourAt(place, "dark"), "#15191c") >= 3, `dark ${place}`);
  }
});

test("the lines of one chart differ; more than the palette has are a sequence", () => {
  for (const first of [0, 11, 17]) assert.equal(new Set(lineColours(first, 12, "light")).size, 12);
  assert.equal(lineColours(3, 2, "dark")[0], PALETTE.dark[3]);
  assert.equal(lineColours(17, 2, "dark")[0], colourAt(17, "dark"));
  assert.deepEqual(lineColours(0, 40, "light"), sequence(40, "light"));
  assert.equal(new Set(sequence(40, "light")).size, 40);
  assert.deepEqual(
    mix(
      [
        [0, 0, 0],
        [100, 200, 50],
      ],
      0.5,
    ),
    [50, 100, 25],
  );
});
