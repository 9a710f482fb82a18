/** The doctor's page: how findings are put into lines, what of a run a finding's chart shows. */
import assert from "node:assert/strict";
import test from "node:test";
import { byRule, split } from "../src/doctor/headline.ts";
import { stretchOf } from "../src/doctor/stretch.ts";
import { evaluationsOf, pickMain } from "../src/run/main.ts";

test("findings of one rule come together, in the order of the rules", () => {
  const rules = ["loss_spike", "plateau", "loss_spike", "loss_spike"].map((rule, step) => ({ rule, step }));
  assert.deepEqual(
    byRule(rules).map((group) => group.map(({ step }) => step)),
    [[0, 2, 3], [1]],
  );
  assert.deepEqual(byRule([]), []);
});

test("a sentence ends where it ends, not in a number", () => {
  assert.deepEqual(split("from 3.508 to 8.835 at step 1841, above 8.311"), [
    "from 3.508 to 8.835 at step 1841, above 8.311",
    "",
  ]);
  assert.deepEqual(split("It is gone. nobody saw it."), ["It is gone", "Nobody saw it."]);
});

test("a finding's chart reaches the worst that belongs to it", () => {
  const story = [
    { step: 1793, severity: "info" as const },
    { step: 1851, severity: "critical" as const },
    { step: 4000, severity: "info" as const },
  ];
  const [low, high] = stretchOf({ step: 1799, found: 1841, spark: { from: 1759, to: 1818 }, story }) ?? [0, 0];
  assert.ok(low <= 1759 && high > 1851 && high < 2000);
  assert.equal(stretchOf({ step: 0, found: 0, spark: undefined, story: [] }), null);
});

test("the main curves: the training's loss is none of an evaluation", () => {
  const names = ["eval/loss", "train/loss", "val/books/loss", "train/lr", "speed/mfu"];
  assert.deepEqual(evaluationsOf(names), ["eval/loss", "val/books/loss"]);
  assert.equal(pickMain(names).losses[0], "train/loss");
});
