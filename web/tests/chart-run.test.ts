import assert from "node:assert/strict";
import { test } from "node:test";
import { logTicks, logTickText, secondsText, ticks, tickText, xText } from "../src/chart/ticks.ts";
import { parseColour, pixels, quantile, ramp, rebin, scaleOf, share } from "../src/run/heatmap.ts";
import { segmentsOf } from "../src/run/lineage.tsx";
import type { System } from "../src/api/types.ts";
import { devicesOf, median, ranksOf } from "../src/run/machines.ts";
import { size } from "../src/shell/text.ts";

// prettier-ignore
const SYSTEM: System = {
  phases: [], goodput: [], totals: {}, ranks: [], gpus: [], host: {}, host_series: [], stragglers: [], stalls: [], cost: {},
  hardware: null, world_size: null,
};

test("ticks are as short as they can be and still differ", () => {
  assert.deepEqual(
    [0, 5000, 10_000, 15_000].map((value) => tickText(value, 5000, 15_000)),
    ["0", "5k", "10k", "15k"],
  );
  assert.deepEqual(
    [11_992, 11_992.5].map((value) => tickText(value, 0.5)),
    ["11,992.0", "11,992.5"],
  );
  assert.deepEqual(
    [0.0008, 0.001].map((value) => tickText(value, 0.0002, 0.001)),
    ["0.0008", "0.0010"],
  );
  assert.equal(tickText(-3e-5, 1e-5), "-3e-05");
  assert.equal(logTickText(0.001), "0.001");
  assert.equal(logTickText(1e6), "1M");
});

test("no tick is told with fewer digits than it has", () => {
  assert.deepEqual(
    [2.5, 2.75].map((value) => tickText(value, 0.25)),
    ["2.50", "2.75"],
  );
  assert.deepEqual(
    [2.5e-5, 5e-5].map((value) => tickText(value, 2.5e-5)),
    ["2.5e-05", "5.0e-05"],
  );
  assert.deepEqual(
    [6000, 6015].map((value) => secondsText(value, 15)),
    ["100.00 min", "100.25 min"],
  );
  assert.equal(tickText(1_000_000_000.02, 0.02), "1,000,000,000.02");
  assert.equal(tickText(2 ** 53, 1), "9.007199254740992e+15");
});

test("ticks are round at any size", () => {
  assert.deepEqual(ticks(0, 1, 4), [0, 0.5, 1]);
  assert.deepEqual(ticks(-0.3, 0.3, 6), [-0.3, -0.2, -0.1, 0, 0.1, 0.2, 0.3]);
  assert.deepEqual(
    ticks(0, 1e300, 5).map((value) => tickText(value, 2e299, 1e300)),
    ["0", "2e+299", "4e+299", "6e+299", "8e+299", "1.0e+300"],
  );
  assert.deepEqual(ticks(1e-300, 3e-300, 2), [1e-300, 2e-300, 3e-300]);
  assert.deepEqual(ticks(1e9, 1e9 + 0.05, 5).slice(0, 2), [1e9, 1e9 + 0.01]);
  assert.deepEqual(ticks(-1e308, 1e308, 2), [-1e308, 0, 1e308]);
  assert.deepEqual(ticks(0, 5e-324, 5), []);
});

test("a logarithmic axis has round ticks, wherever it begins, told with all their digits", () => {
  assert.deepEqual(logTicks(1011, 1e6, 4), [1e4, 1e5, 1e6]);
  assert.deepEqual(logTicks(1.87, 60, 5), [2, 5, 10, 20, 50]);
  assert.deepEqual(logTicks(1.9, 6.2, 5), [2, 3, 4, 5, 6]);
  assert.deepEqual(logTicks(1.872, 1.95, 4), [1.88, 1.9, 1.92, 1.94]);
  assert.deepEqual(logTicks(1e-300, 1e300, 4), [1e-300, 1e-150, 1, 1e150, 1e300]);
  assert.deepEqual([1.875, 12_500, 1e300, 2e-5].map(logTickText), ["1.875", "12.5k", "1e+300", "2e-05"]);
});

test("an x in words", () => {
  assert.equal(xText("step", 1234.4), "step 1,234");
  assert.equal(xText("relative", 3725), "1:02:05");
});

test("scales: linear, around zero, logarithmic", () => {
  assert.deepEqual(scaleOf(Float64Array.from([1, 3, NaN, Infinity]), false), { kind: "linear", low: 1, high: 3 });
  assert.deepEqual(scaleOf(Float64Array.from([-1, 3]), false), { kind: "signed", low: -3, high: 3 });
  const log = scaleOf(Float64Array.from([0, -5, 1, 100]), true);
  assert.deepEqual(log, { kind: "log", low: 1, high: 100 });
  assert.ok(Math.abs(share(log, 10) - 0.5) < 1e-12);
  assert.ok(Number.isNaN(share(log, 0)));
});

test("a cell without a number stays empty, an infinite one has the colour of marks", () => {
  const scale = { kind: "linear", low: 0, high: 1 } as const;
  const out = pixels(
    Float64Array.from([NaN, 1, Infinity]),
    3,
    1,
    scale,
    ramp([
      [0, 0, 0],
      [200, 100, 50],
    ]),
    [9, 8, 7],
  );
  assert.deepEqual([...out], [0, 0, 0, 0, 200, 100, 50, 255, 9, 8, 7, 255]);
  assert.deepEqual(parseColour("#0a0B0c"), [10, 11, 12]);
  assert.deepEqual(parseColour("rgb(1, 2, 3)"), [1, 2, 3]);
});

test("a histogram on other edges keeps its counts", () => {
  const onto = Float64Array.from([0, 1, 2, 3, 4]);
  const out = rebin(Float64Array.from([0.5, 1.5, 3.5]), Float64Array.from([10, 20]), onto);
  assert.deepEqual(
    [...out].map((one) => Math.round(one * 1000) / 1000),
    [5, 10, 10, 5],
  );
  assert.equal(
    out.reduce((sum, one) => sum + one, 0),
    30,
  );
  assert.equal(quantile(Float64Array.from([0, 10]), Float64Array.from([4]), 0.25), 2.5);
  assert.ok(Number.isNaN(quantile(new Float64Array(0), new Float64Array(0), 0.5)));
});

test("the rank that works longest is named, and how much longer", () => {
  const rank = (rank: number, step_ms: number, wait_ms: number) => ({
    rank,
    host: "h",
    alive: true,
    status: "running",
    step_ms,
    wait_ms,
  });
  const wall = ranksOf({ ...SYSTEM, ranks: [rank(0, 100, 30), rank(1, 100, 32), rank(2, 100, 0), rank(3, 100, 31)] });
  assert.deepEqual(wall.slow, [2]);
  assert.match(wall.sentence, /Rank 2 worked longest.*45% more/);
  const even = ranksOf({ ...SYSTEM, ranks: [rank(0, 100, 3), rank(1, 101, 4)] });
  assert.deepEqual(even.slow, []);
});

test("a rank whose process is gone is named; one that ended is not", () => {
  const wall = ranksOf({
    ...SYSTEM,
    ranks: [
      { rank: 0, host: null, alive: false, status: "crashed" },
      { rank: 1, host: null, alive: false, status: "ended" },
    ],
  });
  assert.deepEqual(wall.gone, [0]);
  assert.match(wall.sentence, /Rank 0 is gone/);
});

test("a device at its power cap is ordinary, a hot one is not", () => {
  const gpu = (throttle: string) => ({
    id: "0",
    series: {},
    utilisation: 98,
    power: 699_000,
    power_limit: 700_000,
    temperature: 70,
    throttle,
    throttled: 0.4,
  });
  assert.equal(devicesOf({ ...SYSTEM, gpus: [gpu("power cap")] })[0]?.trouble, "");
  const hot = devicesOf({ ...SYSTEM, gpus: [gpu("power cap, thermal")] })[0];
  assert.equal(hot?.trouble, "held down: thermal (40% of the time)");
  assert.equal(hot?.words, "699 of 700 W, 70 °C");
});

test("lineage: a segment reaches to where the next one takes over", () => {
  const found = segmentsOf(
    [
      { segment: 1, kind: "start", time: 0 },
      { segment: 2, kind: "rewind", parent: 1, start_step: 400, time: 9 },
    ],
    900,
  );
  assert.deepEqual(
    found.map((one) => [one.kind, one.start, one.end]),
    [
      ["start", 0, 400],
      ["rewind", 400, 900],
    ],
  );
});

test("small things", () => {
  assert.equal(median([3, 1, 2, 10]), 2.5);
  assert.equal(size(1536), "1.5 KiB");
  assert.equal(size(null), "–");
});
