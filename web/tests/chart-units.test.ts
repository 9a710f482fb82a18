import assert from "node:assert/strict";
import { test } from "node:test";
import { amount, unitOf, unitOfColumn, unitTicks, unitTickTexts } from "../src/chart/units.ts";

test("a unit comes from the names, and only where all agree", () => {
  assert.equal(unitOf(["memory/allocated_bytes", "host/process_rss"]), "bytes");
  assert.equal(unitOf(["gpu/3/dram_free"]), "bytes");
  assert.equal(unitOf(["host/network_rx"]), "bytes/s");
  assert.equal(unitOf(["gpu/0/nvlink_tx"]), "bytes/s");
  assert.equal(unitOf(["gpu/0/power"]), "mW");
  assert.equal(unitOf(["memory/allocated_bytes", "train/loss"]), "");
  for (const name of ["train/loss", "memory/peak_gb", "eval/bits_per_byte", "a_bytes - b_bytes", "speed/power", ""]) {
    assert.equal(unitOf([name]), "", name);
  }
  for (const name of ["train/tokens", "tokens_seen", "perf/tokens_per_second", "model/params", "eval/samples"]) {
    assert.equal(unitOf([name]), "count", name);
  }
  assert.equal(unitOf([]), "");
  assert.deepEqual(
    ["best:memory/peak_bytes", "last:train/loss", "duration", "config:data.tokens", null].map(unitOfColumn),
    ["bytes", "", "seconds", "", ""],
  );
});

test("ticks of bytes are round in the unit that they are written in", () => {
  const [low, high] = [3.0 * 2 ** 30, 5.2 * 2 ** 30];
  const found = unitTicks(low, high, 5, false, "bytes");
  assert.deepEqual(unitTickTexts(found, false, "bytes"), ["3.0 GiB", "3.5 GiB", "4.0 GiB", "4.5 GiB", "5.0 GiB"]);
  assert.deepEqual(unitTickTexts(unitTicks(0, 2048, 2, false, "bytes/s"), false, "bytes/s"), [
    "0",
    "1 KiB/s",
    "2 KiB/s",
  ]);
  assert.deepEqual(unitTickTexts(unitTicks(0, 700_000, 4, false, "mW"), false, "mW"), ["0", "200 W", "400 W", "600 W"]);
  assert.deepEqual(unitTickTexts([0, 512], false, "bytes"), ["0", "512 B"]);
  assert.deepEqual(unitTickTexts([2 ** 30, 2 ** 31], true, "bytes"), ["1 GiB", "2 GiB"]);
  assert.deepEqual(unitTickTexts([0, 0.5, null], false), ["0", "0.5", ""]);
});

test("a value is written in its unit", () => {
  assert.equal(amount(3 * 2 ** 30, "bytes"), "3 GiB");
  assert.equal(amount(1536, "bytes/s"), "1.5 KiB/s");
  assert.equal(amount(320_500, "mW"), "320.5 W");
  assert.equal(amount(2.34567, ""), "2.3457");
  assert.deepEqual(
    [2.621e9, 450_000, 9_500].map((value) => amount(value, "count")),
    ["2.621B", "450k", "9,500"],
  );
  assert.equal(amount(NaN, "bytes"), "nan");
  assert.equal(amount(null, "mW"), "–");
});
