/** The choice of charts in the address, and what is taken away from a chart. */
import assert from "node:assert/strict";
import test from "node:test";
import { readSettings, writeSettings } from "../src/chart/choice.ts";
import { Group, PLAIN, smoothOf } from "../src/chart/group.ts";
import { point, pointed, onPointed } from "../src/chart/highlight.ts";
import { pythonOf, quoted, smoothed } from "../src/chart/python.ts";
import { escaped, SvgPen } from "../src/chart/svg.ts";
import { axisNames } from "../src/chart/toolbar.tsx";
import { formatQuery, withQuery } from "../src/shell/address.ts";

globalThis.requestAnimationFrame ??= (call) => setTimeout(() => call(0), 0) as unknown as number;

test("a choice is in the address, and reads back from it; the default is not", () => {
  const chosen = {
    ...PLAIN, x: "train/loss - eval/loss", smooth: "mean:25", logX: true, logY: false, typical: false,
    branch: "live" as const, expressions: ["ema(a, 0.9)", "a / b & c"],
  }; // prettier-ignore
  const read = (text: string) => readSettings(new URLSearchParams(text));
  assert.deepEqual(read(formatQuery(withQuery(new URLSearchParams(), writeSettings(chosen)))), chosen);
  assert.equal(formatQuery(withQuery(new URLSearchParams(), writeSettings(PLAIN))), "");
  assert.equal(read("typical=1").typical, true);
  assert.deepEqual(read("smooth=x&logy=7&yrange=what"), PLAIN);
});

test("a smoothing is a factor or a number of points", () => {
  for (const [given, wanted] of [
    [0.9, "0.9"],
    ["0.9", "0.9"],
    [0, ""],
    ["", ""],
    [null, ""],
    ["mean:25", "mean:25"],
    ["mean:1", ""],
    ["drop:3", ""],
    ["gaussian:3.4", "gaussian:3"],
    [7, ""],
    ["0.99999", "0.9999"],
    ["mean:1e9", "mean:100000"],
  ] as const)
    // prettier-ignore
    assert.equal(smoothOf(given), wanted);
});

test("a range of steps is whole when it stands, one of seconds is not", () => {
  const views = (x: string): unknown => {
    const group = new Group({ x });
    group.range([1499.94, 1998.33], true);
    return group.view;
  };
  assert.deepEqual(views("step"), [1500, 1998]);
  assert.deepEqual(views("relative"), [1499.94, 1998.33]);
});

test("what is pointed at is one key for all, and nobody is called for the same twice", () => {
  const seen: (string | null)[] = [];
  const stop = onPointed((key) => seen.push(key));
  point("a");
  point("a");
  point(null);
  stop();
  point("b");
  assert.deepEqual(seen, ["a", null]);
  assert.equal(pointed(), "b");
});

test("hostile names stay names in Python and in an SVG", () => {
  assert.equal(quoted('a"b\\c\nd\u202e'), '"a\\"b\\\\c\\nd\\u202e"');
  assert.equal(smoothed("train/loss", "0.9"), "ema(train/loss, 0.9)");
  assert.equal(smoothed("my loss", "mean:5"), "mean('my loss', 5)");
  assert.equal(smoothed("a - b", ""), "a - b");
  const text = pythonOf({
    root: "/x", title: '"); import os #', lines: [{ folder: "p/r", label: '"""', name: "a'b" }],
    settings: { x: "step", smooth: "0.5", logX: true }, logY: true, view: [1, 5],
  }); // prettier-ignore
  assert.ok(
    text.includes('title="\\"); import os #"') && text.includes('set_xscale("log")') && text.includes("(1, 5)"),
  );
  assert.equal(escaped('<script>&"\u0000'), "&lt;script&gt;&amp;&quot;");
});

test("an SVG has the path that a canvas would have", () => {
  const pen = new SvgPen();
  pen.beginPath();
  pen.moveTo(1, 2);
  pen.lineTo(3.14159, 4);
  pen.stroke();
  assert.match(pen.parts[0] ?? "", /^<path d="M1 2L3.14 4" fill="none" stroke="#000"/);
  pen.beginPath();
  pen.fill();
  assert.equal(pen.parts.length, 1); // nothing is written of an empty path
});

test("axes are metrics of the whole model", () => {
  assert.deepEqual(axisNames(["train/lr", "gradients/a/norm", "gpu/0/power", "own/x"]), ["train/lr", "own/x"]);
});
