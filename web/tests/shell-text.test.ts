/** Numbers, times and states as text; frames; the bars of findings; the reckoning of comparisons. */
import assert from "node:assert/strict";
import test from "node:test";
import { decodeFrame } from "../src/api/frame.ts";
import { num, word } from "../src/api/values.ts";
import type { ColumnRef } from "../src/api/types.ts";
import { better, change as against, letter, refusalSentence } from "../src/compare/reckon.ts";
import { evidenceRows, seriesOf } from "../src/doctor/evidence.ts";
import { drawSpark } from "../src/doctor/spark.ts";
import { nameOf } from "../src/shell/keys.ts";
import { statusWords } from "../src/shell/states.ts";
import { ago, commandText, count, middleCut, number, plain, title, whole } from "../src/shell/text.ts";

test("zeros at the end stay where columns are to be read", () => {
  assert.equal(number(2.96, 4, true), "2.960");
  assert.equal(number(2.96, 4), "2.96");
  assert.equal(whole(-1234.4), "-1,234");
  assert.equal(whole(null), "–");
});

test("values of a configuration and of JSON are text on one line", () => {
  assert.equal(num("NaN"), NaN);
  assert.equal(num("x"), null);
  assert.equal(plain("Infinity"), "inf");
  assert.equal(plain({ a: 1 }), '{"a":1}');
});

test("times are told from now", () => {
  const now = Date.UTC(2026, 10, 21, 12) / 1000;
  assert.equal(ago(now - 10, now), "just now");
  assert.equal(ago(now - 600, now), "10 min ago");
  assert.equal(ago(now - 7200, now), "2 h ago");
  assert.match(ago(now - 86400 * 3, now), /^1[78] Nov$/);
  assert.match(ago(now - 86400 * 400, now), /2025$/);
});

test("every state has a word, a drawing and a tone; an unknown one keeps its word", () => {
  for (const status of ["running", "silent", "stuck", "stalled", "crashed", "finished", "failed"])
    assert.ok(statusWords(status).says.endsWith("."));
  assert.equal(statusWords("running", "eval").word, "evaluating");
  assert.equal(statusWords("finished", "eval").word, "finished");
  assert.equal(statusWords("preempted").word, "preempted");
  assert.equal(statusWords("constructor").word, "constructor");
});

test("a name cannot turn the text around it", () => {
  assert.equal(title({ name: "a\u202eb\u001b[31m\nc", id: "i" }), "a·b·[31m·c");
  assert.equal(title({ name: "", id: "i" }), "i");
});

test("keys are named as people name them", () => {
  assert.equal(nameOf({ key: "j", shiftKey: false }), "j");
  assert.equal(nameOf({ key: "X", shiftKey: true }), "Shift+X");
  assert.equal(nameOf({ key: "?", shiftKey: true }), "?");
  assert.equal(nameOf({ key: "ArrowDown", shiftKey: true }), "Shift+ArrowDown");
});

function frame(header: object, data: number[]): ArrayBuffer {
  let text = JSON.stringify(header);
  while ((4 + new TextEncoder().encode(text).length) % 8) text += " ";
  const bytes = new TextEncoder().encode(text);
  const buffer = new ArrayBuffer(4 + bytes.length + data.length * 8);
  new DataView(buffer).setUint32(0, bytes.length, true);
  new Uint8Array(buffer, 4).set(bytes);
  new Float64Array(buffer, 4 + bytes.length).set(data);
  return buffer;
}

test("a frame gives its columns, and refuses what it does not hold", () => {
  const found = decodeFrame<{ x: ColumnRef; name: string }>(frame({ x: { at: 1, n: 2 }, name: "日本" }, [1, NaN, 3]));
  assert.deepEqual([...found.column(found.header.x)], [NaN, 3]);
  assert.equal(found.column(undefined).length, 0);
  assert.throws(() => found.column({ at: 2, n: 2 }), RangeError);
  assert.throws(() => found.column({ at: -1, n: 1 }), RangeError);
  assert.throws(() => decodeFrame(new ArrayBuffer(2)), RangeError);
  const short = new ArrayBuffer(8);
  new DataView(short).setUint32(0, 400, true);
  assert.throws(() => decodeFrame(short), RangeError);
});

test("bars break where a value is not finite", () => {
  const found = drawSpark({ series: "l", from: 10, to: 15, bars: "▁█×^▃v" }, 12);
  assert.deepEqual(found.lines, [
    [
      [0.5, 0],
      [1.5, 7],
    ],
    [[4.5, 2]],
  ]);
  assert.deepEqual(
    found.marks.map((mark) => mark.kind),
    ["nan", "inf", "-inf"],
  );
  assert.equal(found.at, 2.5);
  assert.equal(drawSpark({ series: "l", from: 10, to: 15, bars: "▁▁" }, 99).at, null);
  assert.equal(drawSpark({ series: "l", from: 0, to: 0, bars: "" }, 0).width, 1);
});

test("evidence is told without what is drawn", () => {
  const rows = evidenceRows({
    largest_before: 1.14739,
    spark: {},
    story: [],
    none: null,
    layers: Array.from({ length: 14 }, (_, at) => at),
    inf: "Infinity",
  });
  assert.deepEqual(rows[0], ["largest before", "1.1474"]);
  assert.match(rows[1]?.[1] ?? "", /11 and 2 more$/);
  assert.deepEqual(rows[2], ["inf", "inf"]);
  assert.equal(seriesOf({ evidence: { series: "a", spark: { series: "b" } } }), "a");
  assert.equal(seriesOf({ evidence: { spark: { series: "b" } } }), "b");
});

test("better and worse follow the measure's direction, and nothing is said of runs that are missing", () => {
  const one = (value: number, runs = 2) => ({ value, low: null, high: null, runs, of: 2 });
  const row = {
    name: "loss",
    unit: "",
    direction: -1,
    cells: [one(1), one(2), one(0.5), null],
    percent: [0, 100, -50, null],
  };
  assert.deepEqual(
    [0, 1, 2, 3].map((side) => better(row, side)),
    [0, -1, 1, 0],
  );
  assert.deepEqual(
    [0, 1, 2, 3].map((side) => against(row, side)),
    ["", "+100%", "-50%", ""],
  );
  assert.equal(against({ ...row, cells: [one(1), one(2, 1)] }, 1), "");
  assert.deepEqual([letter(0), letter(25), letter(26)], ["A", "Z", "A1"]);
  assert.match(
    refusalSentence({ kind: "axis", what: "step", why: "batches differ", instead: "tokens" }),
    /“step” would mislead: batches differ\. Use tokens instead\./,
  );
});

test("a name that is too long loses its middle, so that a block's number and a part's name stay", () => {
  assert.equal(middleCut("blocks.12.attention.out.weight", 16), "blocks.12…weight");
  assert.equal(middleCut("short", 5), "short");
  for (let most = 1; most < 40; most++) {
    assert.ok(middleCut("blocks.12.attention.out.weight", most).length <= Math.max(1, most));
  }
});

test("what a record says is text or a number, and never an object's default", () => {
  assert.equal(word("cuda:3"), "cuda:3");
  assert.equal(word(0, "none"), "0");
  for (const odd of [null, undefined, {}, [1], true]) assert.equal(word(odd, "unknown"), "unknown");
});

test("a command begins with what a person types", () => {
  assert.equal(commandText(["/opt/venv/bin/barograph", "demo"]), "barograph demo");
  assert.equal(commandText(["/opt/lib/barograph/__main__.py", "demo"]), "python -m barograph demo");
  assert.equal(commandText(["train/run.py", "--lr", "1"]), "train/run.py --lr 1");
  assert.equal(commandText("torchrun train.py"), "torchrun train.py");
});

test("a word that ends in s is its own plural", () => {
  assert.deepEqual(
    [count(1, "series"), count(39, "series"), count(2, "loss", "losses")],
    ["1 series", "39 series", "2 losses"],
  );
  assert.equal(count(2, "run"), "2 runs");
});
