/** The page writes numbers as `barograph.core.text` does: its tests write and read the same file of cases. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { change, compact, duration, number, percent, size } from "../src/shell/text.ts";

type Given = number | null | "nan" | "inf" | "-inf";

const cases = JSON.parse(readFileSync(new URL("./text_cases.json", import.meta.url), "utf8")) as Record<
  string,
  [Given, string][]
>;
const NOT_FINITE: Record<string, number> = { nan: NaN, inf: Infinity, "-inf": -Infinity };
const WRITTEN = { number, compact, duration, size, percent, change };

for (const [kind, write] of Object.entries(WRITTEN)) {
  test(`${kind} is written as Python writes it`, () => {
    const known = cases[kind] ?? [];
    assert.ok(known.length > 10);
    for (const [given, expected] of known) {
      const value = typeof given === "string" ? NOT_FINITE[given] : given;
      assert.equal(write(value), expected, `${kind} of ${given}`);
    }
  });
}
