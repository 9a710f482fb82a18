/** Colours: by key alone, never twice among what is drawn, legible on their ground. */
import assert from "node:assert/strict";
import test from "node:test";
import { assign, colourAt, colours, lineColours, mix, PALETTE, placeByKey, sequence } from "../src/shell/colour.ts";

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
    const places = [...assign(keys(count)).values()];
    assert.equal(new Set(places).size, count);
    for (const theme of ["light", "dark"] as const) {
      const colours = new Set(places.map((place) => colourAt(place, theme)));
      assert.ok(colours.size >= (count > 100 ? 0.99 * count : count)); // of some hundred, two may round to one
    }
  }
});

test("colours follow from the keys drawn, not from the order in which they came", () => {
  const one = assign(keys(10));
  const other = assign([...keys(10)].reverse());
  assert.deepEqual([...one].sort(), [...other].sort());
  for (const key of keys(10)) assert.equal(assign([key]).get(key), placeByKey(key));
  assert.equal(colours(keys(3), "dark").get(keys(1)[0] ?? ""), colourAt(one.get(keys(1)[0] ?? "") ?? -1, "dark"));
});

test("a run gives way only where another one that is drawn has the same place", () => {
  const drawn = assign(keys(10));
  const held = new Map<number, number>();
  for (const key of keys(10)) held.set(placeByKey(key), (held.get(placeByKey(key)) ?? 0) + 1);
  for (const key of keys(10)) if (held.get(placeByKey(key)) === 1) assert.equal(drawn.get(key), placeByKey(key));
});

test("what a person chose holds, and the others give way", () => {
  const free = assign(keys(8));
  const [first = "", second = ""] = keys(8);
  const taken = free.get(second) ?? 0;
  const places = assign(keys(8), (key) => (key === first ? taken : undefined));
  assert.equal(places.get(first), taken);
  assert.notEqual(places.get(second), taken);
  assert.equal(new Set(places.values()).size, 8);
});

// Machado, Oliveira, Fernandes 2009, at full severity, over linear light
// prettier-ignore
const EYES: Record<string, number[][]> = {
  all: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protan: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deutan: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritan: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

/** In OKLab, times 100: about two is a difference that is just seen side by side. */
function seen(colour: string, eye: number[][]): number[] {
  const linear = [1, 3, 5].map((at) => {
    const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  const times = (rows: number[][], of: number[]): number[] =>
    rows.map((row) => row.reduce((sum, one, at) => sum + one * (of[at] ?? 0), 0));
  // prettier-ignore
  const cones = times(
    [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
     [0.0883024619, 0.2817188376, 0.6299787005]],
    times(eye, linear).map((one) => Math.max(0, one)),
  ).map(Math.cbrt);
  // prettier-ignore
  return times(
    [[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099],
     [0.0259040371, 0.7827717662, -0.808675766]],
    cones,
  ).map((one) => 100 * one);
}

test("the palette's colours stay apart for eyes that see few colours", () => {
  for (const theme of ["light", "dark"] as const) {
    for (const [name, eye] of Object.entries(EYES)) {
      PALETTE[theme].forEach((one, at) => {
        for (const other of PALETTE[theme].slice(0, at)) {
          const [a, b] = [seen(one, eye), seen(other, eye)];
          const apart = Math.hypot(...a.map((part, place) => part - (b[place] ?? 0)));
          assert.ok(apart > 5.5, `${theme}, ${name}: ${one} and ${other} are ${apart.toFixed(1)} apart`);
        }
      });
    }
  }
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
