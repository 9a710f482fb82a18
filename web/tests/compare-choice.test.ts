import assert from "node:assert/strict";
import test from "node:test";
import type { Row } from "../src/api/types.ts";
import { ended, partial } from "../src/compare/choice.ts";

const row = (key: string, status: string, ...names: string[]): Row =>
  ({ key, status, last: Object.fromEntries(names.map((name) => [name, 1])) }) as unknown as Row;

test("metrics that some runs lack, those of most runs first; of one run alone is nothing to compare", () => {
  const rows = [
    row("a", "finished", "loss", "eval", "speed"),
    row("b", "finished", "loss", "eval", "alone"),
    row("c", "finished", "loss", "eval", "speed"),
    row("d", "imported", "loss"),
  ];
  assert.deepEqual(partial(rows), [
    { name: "eval", runs: ["a", "b", "c"] },
    { name: "speed", runs: ["a", "c"] },
  ]);
});

test("runs that go on can be left out where two that ended stay", () => {
  for (const open of ["running", "silent", "stuck", "stalled", "hung"]) {
    assert.deepEqual(ended([row("a", "finished"), row("b", open), row("c", "killed")]), ["a", "c"]);
    assert.equal(ended([row("a", "finished"), row("b", open)]), null);
  }
  assert.equal(ended([row("a", "finished"), row("b", "failed")]), null);
});
