/** The table's order, groups, columns, and which lines are in sight. */
import assert from "node:assert/strict";
import test from "node:test";
import { groupKey } from "../src/api/groups.ts";
import type { Row, RunGroup } from "../src/api/types.ts";
import {
  available,
  cell,
  column,
  constants,
  defaultColumns,
  distinctions,
  fitted,
  labelsOf,
  shortened,
  varying,
} from "../src/runs/columns.ts";
import { compareCells, drawn, inSight, lines, nextSort, parseSort, shownOf, sortRows } from "../src/runs/order.ts";
import { tagsOf } from "../src/runs/edit.tsx";
import { fits } from "../src/runs/picker.tsx";

function row(key: string, more: Partial<Row> = {}): Row {
  // prettier-ignore
  return {
    key, project: "p", id: key, name: key, status: "finished", status_since: null, created: 0, wall_seconds: 1, tags: [], notes: "", pinned: false, archived: false,
    config: {}, step: 10, total_steps: 10, remaining_seconds: null, last: {}, best: {}, loss: null, eval_loss: null, findings: { critical: 0, warning: 0, info: 0 }, parent: null, fork_step: null, ...more,
  };
}

const keys = (rows: Row[]): string => rows.map((one) => one.key).join("");

test("missing values and NaN stand last in both directions", () => {
  const rows = [
    row("a", { last: { l: 2 } }),
    row("b"),
    row("c", { last: { l: "NaN" } }),
    row("d", { last: { l: 1 } }),
    row("e", { last: { l: "Infinity" } }),
  ];
  assert.equal(keys(sortRows(rows, { id: "last:l", down: false })), "daecb");
  assert.equal(keys(sortRows(rows, { id: "last:l", down: true })), "eadcb");
});

test("the order of cells is an order", () => {
  const cells = [null, NaN, -1, 0, 3, Infinity, "a", "B", "10", "9", ""];
  for (const down of [true, false]) {
    for (const a of cells) {
      for (const b of cells) {
        assert.ok(Math.sign(compareCells(a, b, down)) + Math.sign(compareCells(b, a, down)) === 0, `${a} ${b}`);
        for (const c of cells) {
          if (compareCells(a, b, down) <= 0 && compareCells(b, c, down) <= 0)
            assert.ok(compareCells(a, c, down) <= 0, `${a} ${b} ${c}`);
        }
      }
    }
  }
});

test("pinned runs stand first, equals newest first", () => {
  const rows = [row("a", { created: 1 }), row("b", { created: 3 }), row("c", { created: 2, pinned: true })];
  assert.equal(keys(sortRows(rows, parseSort(null))), "cba");
  assert.equal(keys(sortRows(rows, { id: "project", down: false })), "cba");
});

test("a second click on a head turns the order round", () => {
  assert.deepEqual(nextSort(parseSort(null), "name"), { id: "name", down: false });
  assert.deepEqual(nextSort({ id: "name", down: false }, "name"), { id: "name", down: true });
  assert.equal(nextSort({ id: "name", down: false }, "findings").down, true);
});

const group = (label: string, runs: string[], mean?: number): RunGroup => ({
  label,
  values: {},
  runs,
  failed: 0,
  statistics: mean === undefined ? {} : { "last:l": { count: 1, not_finite: 0, mean, deviation: null, best: mean } },
});

test("groups are in the server's order, their runs in the table's, closed ones show their head", () => {
  const rows = ["d", "b", "a", "c"].map((key) => row(key));
  const groups = [group("1", ["a", "b"]), group("2", ["c", "gone"]), group("3", ["hidden by the filter"])];
  const told = (closed: string[]): string[] =>
    lines(rows, groups, new Set(closed)).map((line) =>
      line.kind === "group" ? `${line.name}:${line.rows.length}:${line.open}` : line.row.key,
    );
  assert.deepEqual(told([]), ["1:2:true", "b", "a", "2:1:true", "c"]);
  assert.deepEqual(told(["1"]), ["1:2:false", "2:1:true", "c"]);
});

test("groups sort by what their runs come to in the column, else by their values", () => {
  const rows = ["a", "b", "c"].map((key) => row(key));
  const groups = [group("1", ["a"], 5), group("2", ["b"]), group("3", ["c"], 4)];
  const order = (id: string, down: boolean): string =>
    lines(rows, groups, new Set(["1", "2", "3"]), { id, down })
      .map((line) => (line.kind === "group" ? line.name : ""))
      .join("");
  assert.equal(order("last:l", false), "312");
  assert.equal(order("last:l", true), "132");
  assert.equal(order("created", true), "123");
  assert.equal(order("name", true), "321");
});

test("what is drawn are the first runs that are not hidden, or groups with those of their runs", () => {
  const rows = ["a", "b", "c", "d"].map((key) => row(key));
  const none = new Set<string>();
  const of = (groups: RunGroup[] | null, hidden: string[], only: string[], most: number): [string, string[]][] => [
    ...drawn(lines(rows, groups, none), shownOf(new Set(hidden), new Set(only)), most),
  ];
  assert.deepEqual(
    of(null, ["a"], [], 2).flatMap(([key]) => key),
    ["b", "c"],
  );
  const groups = [group("1", ["a", "b"]), group("2", ["c", "d"])];
  const [one, two] = [groupKey("1"), groupKey("2")];
  assert.deepEqual(of(groups, ["b"], [], 9), [
    [one, ["a"]],
    [two, ["c", "d"]],
  ]);
  assert.deepEqual(of(groups, [one], [], 9), [[two, ["c", "d"]]]);
  assert.deepEqual(of(groups, [], [one], 9), [[one, ["a", "b"]]]);
  assert.deepEqual(of(groups, [], ["d"], 9), [[two, ["d"]]]);
  assert.deepEqual(of(groups, [], [], 1), [[one, ["a", "b"]]]);
});

test("settings that all runs share are listed once, and heads say the end of a name where that is enough", () => {
  const rows = [1, 2].map((at) => row(`r${at}`, { config: { "a.lr": at, same: "x", list: [1], none: null } }));
  assert.deepEqual(constants(rows), [
    ["list", "[1]"],
    ["same", "x"],
  ]);
  assert.deepEqual(constants([...rows, row("r3")]), []);
  assert.deepEqual(constants(rows.slice(1)), []);
  const titles = (...ids: string[]): string[] =>
    shortened(ids.flatMap((id) => column(id) ?? [])).map((one) => one.title);
  assert.deepEqual(titles("config:optimizer.lr", "last:a/lr"), ["lr", "a/lr"]);
  assert.deepEqual(titles("config:a.lr", "config:b.lr"), ["a.lr", "b.lr"]);
});

test("lines in sight cover what is seen and stay within the table", () => {
  for (const total of [0, 1, 50, 10_000]) {
    for (const top of [0, 31, 5_000, 299_000, 1e9]) {
      const [from, to] = inSight(top, 600, 30, total);
      assert.ok(0 <= from && from <= to && to <= total);
      if (total * 30 > top + 600) assert.ok(from * 30 <= top && to * 30 >= top + 600);
      assert.ok(to - from <= 40);
    }
  }
});

test("ten thousand rows sort and group within a frame or two", () => {
  const rows = Array.from({ length: 10_000 }, (_, at) =>
    row(`r${at}`, { created: at, last: { l: Math.sin(at) }, config: { lr: at % 7 } }),
  );
  const groups = [0, 1, 2, 3, 4, 5, 6].map((lr) =>
    group(
      String(lr),
      rows.flatMap((one) => (one.config["lr"] === lr ? [one.key] : [])),
    ),
  );
  const before = performance.now();
  const found = lines(sortRows(rows, { id: "last:l", down: false }), groups, new Set());
  assert.equal(found.length, 10_007);
  assert.ok(performance.now() - before < 500);
});

test("a column's id says what it shows, and names of prototypes show nothing", () => {
  assert.equal(column("last:a:b")?.title, "a:b");
  assert.equal(column("config:")?.title, undefined);
  assert.equal(column("what:x"), null);
  assert.equal(column("constructor"), null);
  const one = row("a", { config: { lr: 1e-3, flag: true, list: [1] }, last: { l: "NaN" } });
  assert.equal(cell(one, "config:lr"), 1e-3);
  assert.equal(cell(one, "config:flag"), "true");
  assert.equal(cell(one, "config:list"), "[1]");
  assert.ok(Number.isNaN(cell(one, "last:l")));
  for (const name of ["constructor", "__proto__", "toString"]) {
    assert.equal(cell(one, `config:${name}`), null);
    assert.equal(cell(one, `last:${name}`), null);
  }
});

test("the columns by default are the losses and what tells the runs apart", () => {
  const rows = [1, 2, 3].map((at) =>
    row(`r${at}`, {
      config: { lr: at, same: 1, seed: at },
      last: { mse: 1, val_mse: 2 },
      best: { val_mse: 2 },
      loss: "mse",
      eval_loss: "val_mse",
    }),
  );
  const ids = defaultColumns(rows);
  assert.ok(ids.includes("best:val_mse") && ids.includes("last:mse") && ids.includes("config:lr"));
  assert.ok(defaultColumns([...rows, row("z", { loss: "loss" })]).includes("last:mse"), "what most rows have");
  assert.ok(!ids.includes("config:same") && !ids.includes("project"));
  assert.deepEqual(varying(rows), ["lr", "seed"]);
  assert.equal(fitted("config:lr", rows)?.numeric, true);
  assert.equal(fitted("config:lr", [...rows, row("x", { config: { lr: "auto" } })])?.numeric, false);
  assert.deepEqual(
    available(rows).map((group) => group.title),
    ["Run", "Last value", "Best value", "Configuration"],
  );
});

test("labels tell runs of one name apart", () => {
  const labels = labelsOf([
    row("a", { name: "x" }),
    row("b", { name: "x", project: "q" }),
    row("c", { name: "x" }),
    row("d", { name: "y" }),
  ]);
  assert.deepEqual([...labels.values()], ["p/a", "q/x", "p/c", "y"]);
});

test("tags are split at commas, once each; a search takes words in any order", () => {
  assert.deepEqual(tagsOf(" a, b ,a,, c d "), ["a", "b", "c d"]);
  assert.ok(fits("last:train/loss", "loss last"));
  assert.ok(!fits("last:train/loss", "eval"));
});

test("runs of one name say what tells them apart", () => {
  const rows = [
    row("a", { name: "baseline", id: "baseline", created: 1_700_000_000 }),
    row("b", { name: "baseline", id: "baseline-2" }),
    row("c", { name: "baseline", id: "baseline", project: "q" }),
    row("d", { name: "alone" }),
  ];
  const found = distinctions(rows, false);
  assert.deepEqual(found.get("b"), { before: "p/", behind: "baseline-2" });
  assert.match(found.get("a")?.behind ?? "", /2023/);
  assert.deepEqual(found.get("c"), { before: "q/", behind: "" });
  assert.equal(found.has("d"), false);
  assert.equal(distinctions(rows, true).get("b")?.before, "");
  const shown = rows.map((one) => `${found.get(one.key)?.before}${one.name}${found.get(one.key)?.behind}`);
  assert.equal(new Set(shown).size, rows.length);
});
