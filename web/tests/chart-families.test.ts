import assert from "node:assert/strict";
import { test } from "node:test";
import { familiesOf, familyOf, lineLabel, stemOf } from "../src/chart/families.ts";
import { arranged, EMPTY, moved, readLayout } from "../src/chart/layout.ts";
import { lossesOf, pickMain } from "../src/run/main.ts";

test("families of the names that a run has", () => {
  // prettier-ignore
  const expected: Record<string, string> = {
    "train/loss": "loss", "eval/loss": "loss", loss: "loss", val_loss: "loss", "eval/bits_per_byte": "loss", "val/perplexity": "loss",
    "train/lr": "model", "train/norm": "model", "model/grad_norm": "model", lr: "model", grad_norm: "model",
    "train/tokens_per_second": "speed", "train/duration_ms": "speed", "speed/mfu": "speed", "span/eval_ms": "speed", tok_per_sec: "speed", dt: "speed",
    "gpu/0/power": "machine", "host/cpu_util": "machine", "ranks/loss/max": "machine",
    "moe/aux_loss": "moe", "moe/h.0/load/3": "moe", "train/moe_aux_loss": "moe",
    "data/tokens_seen": "data", "train/epoch": "data", "eval/accuracy": "evaluation",
    "gradients/blocks.0.qkv.weight/norm": "gradients", "my/own": "my", "<script>alert(1)</script>/x": "<script>alert(1)<",
  };
  for (const [name, family] of Object.entries(expected)) assert.equal(familyOf(name), family, name);
});

test("what the server takes for a loss is among the losses, whatever it is called", () => {
  const names = ["match/nce", "match/hit", "heldout/nce"];
  const losses = lossesOf([
    { loss: "match/nce", eval_loss: "heldout/nce" },
    { loss: "match/nce", eval_loss: null },
  ]);
  assert.deepEqual(losses, ["match/nce", "heldout/nce"]);
  const found = familiesOf(names, true, losses);
  assert.deepEqual(
    found.map((family) => [family.id, family.panels.flatMap((panel) => panel.names)]),
    [
      ["loss", ["heldout/nce", "match/nce"]],
      ["match", ["match/hit"]],
    ],
  );
});

test("for one run the losses stand together, and so do layers, quantiles and devices", () => {
  const names = [
    "train/loss",
    "eval/loss",
    "train/lr",
    "gpu/0/power",
    "gpu/1/power",
    "model/update_p5",
    "model/update_p95",
    "gradients/a/norm",
    "gradients/b/norm",
  ];
  const found = familiesOf(names, true);
  assert.deepEqual(
    found.map((family) => family.id),
    ["loss", "model", "gradients", "machine"],
  );
  assert.deepEqual(found[0]?.panels[0]?.names, ["train/loss", "eval/loss"]);
  assert.deepEqual(
    found[3]?.panels.map((panel) => [panel.id, panel.names.length]),
    [["gpu/*/power", 2]],
  );
  const layers = found[2]?.panels[0];
  assert.ok(layers);
  assert.equal(found[2]?.closed, true);
  assert.equal(lineLabel("gradients/b/norm", layers), "b");
});

test("for many runs each metric has its own panel", () => {
  const found = familiesOf(["train/loss", "eval/loss"], false);
  assert.deepEqual(
    found[0]?.panels.map((panel) => panel.names),
    [["train/loss"], ["eval/loss"]],
  );
});

test("a panel of more layers than can be distinguished keeps the first, the last and an even choice, and says so", () => {
  const [family] = familiesOf(
    Array.from({ length: 400 }, (_, at) => `weights/blocks.${at}/norm`),
    true,
  );
  const panel = family?.panels[0];
  assert.equal((panel?.names.length ?? 0) + (panel?.left ?? 0), 400);
  assert.equal(panel?.names[0], "weights/blocks.0/norm");
  assert.equal(panel?.names.at(-1), "weights/blocks.399/norm");
  assert.ok((panel?.names.length ?? 0) < 100);
});

test("ten thousand names become panels within a tenth of a second", () => {
  const names = Array.from({ length: 10_000 }, (_, at) => `group${at % 40}/thing${at}/value`);
  const began = performance.now();
  const panels = familiesOf(names, true).reduce((sum, family) => sum + family.panels.length, 0);
  assert.equal(panels, 10_000);
  assert.ok(performance.now() - began < 400);
});

test("stems: what differs in one place", () => {
  assert.equal(stemOf("ranks/by_rank/12/wait_ms", "machine"), "ranks/by_rank/*/wait_ms");
  assert.equal(stemOf("host/disk_read", "machine"), "host/disk_*");
  assert.equal(stemOf("ranks/loss/max", "machine"), "ranks/loss");
  assert.equal(stemOf("train/loss_smooth", "loss"), "loss");
});

test("names that every object has are names like others, and one that begins with a slash has a family too", () => {
  const names = ["constructor/x", "__proto__/x", "toString/y", "hasOwnProperty", "/starts"];
  assert.deepEqual(names.map(familyOf), ["constructor", "__proto__", "toString", "other", "other"]);
  assert.deepEqual(
    familiesOf(names, true).map((family) => family.title),
    ["__proto__", "constructor", "other", "toString"],
  );
});

test("machines and accounts stand last, and accounts closed, also where a run has nothing else", () => {
  const closed = (names: string[]): boolean[] => familiesOf(names, true).map((family) => family.closed);
  assert.deepEqual(closed(["train/loss", "goodput/goodput"]), [false, true]);
  assert.deepEqual(closed(["goodput/goodput"]), [true]);
  const names = ["goodput/goodput", "host/cpu_util", "gradients/a/norm", "own/x", "data/x", "moe/x", "train/loss"];
  const order = familiesOf(names, true).map((family) => family.id);
  assert.deepEqual(order, ["loss", "moe", "data", "own", "gradients", "machine", "accounts"]);
});

test("a layout puts moved panels first, in its order, and leaves hidden ones out", () => {
  const [family] = familiesOf(["a/one", "a/two", "a/three"], false);
  assert.ok(family);
  const ids = (layout: typeof EMPTY): string[] => arranged(family, layout).map((panel) => panel.id);
  const before = ids(EMPTY);
  const last = before.at(-1) ?? "";
  assert.deepEqual(ids(moved(EMPTY, before, last, -2)), [last, ...before.slice(0, 2)]);
  assert.deepEqual(ids({ ...EMPTY, hidden: [last] }), before.slice(0, 2));
  const second = moved(EMPTY, before, before[0] ?? "", 1);
  assert.deepEqual(ids(second).slice(0, 2), [before[1], before[0]]);
});

test("a layout from anybody's file: what is damaged reads as nothing", () => {
  for (const bad of [null, 5, "x", [], { order: 5, own: "x", hidden: [1, 2, {}] }])
    assert.deepEqual(readLayout(bad).order, []);
  const read = readLayout({
    own: [{ match: "^a" }, { match: 5 }, null, { match: "x".repeat(501) }],
    hidden: ["a", 7],
    wide: "yes",
  });
  assert.deepEqual(read.own, [{ id: "^a", title: "^a", match: "^a", logY: false }]);
  assert.deepEqual(read.hidden, ["a"]);
  assert.equal(read.wide, false);
});

test("the main curves of runs that name them differently", () => {
  const ours = pickMain([
    "train/loss",
    "train/loss_smooth",
    "eval/loss",
    "train/lr",
    "train/norm",
    "train/tokens_per_second",
    "model/grad_norm",
  ]);
  assert.deepEqual(
    [ours.rate, ours.losses, ours.norm, ours.speed],
    [["train/lr"], ["train/loss", "eval/loss"], ["train/norm"], ["train/tokens_per_second"]],
  );
  const others = pickMain(["loss", "val_loss", "learning_rate", "grad_norm", "dt"]);
  assert.deepEqual(
    [others.rate, others.losses, others.norm, others.speed],
    [["learning_rate"], ["loss", "val_loss"], ["grad_norm"], ["dt"]],
  );
  const told = ["match/nce", "match/rate", "val/masses"];
  assert.deepEqual(pickMain(told, { loss: "match/nce", eval_loss: "val/masses" }).losses, ["match/nce", "val/masses"]);
  assert.deepEqual(pickMain(["train/loss", "val/masses"], { loss: "train/loss", eval_loss: "val/masses" }).losses, [
    "train/loss",
    "val/masses",
  ]);
  assert.deepEqual(pickMain([]), { rate: [], losses: [], norm: [], speed: [], mfu: [], machine: [] });
});
