/** Addresses read back as the state that they were made from, whatever names are in it. */
import assert from "node:assert/strict";
import test from "node:test";
import { formatQuery, joinList, placeOf, plainKey, runPlace, splitList, withQuery } from "../src/shell/address.ts";
import { readState, writeState } from "../src/runs/state.ts";

const HOSTILE = [
  "train/loss",
  "a,b",
  "50%",
  "%2C",
  "x=1&y=2#z?",
  "<script>alert(1)</script>",
  "日本語 🚀",
  "a+b c",
  "%",
  ",,",
  "\u202e",
];

test("every path leads to its view", () => {
  assert.deepEqual(placeOf("/"), { view: "runs" });
  assert.deepEqual(placeOf("/compare"), { view: "compare" });
  assert.deepEqual(placeOf("/run/gpt/gpt-0.5b/charts"), { view: "run", key: "gpt/gpt-0.5b", tab: "charts" });
  assert.deepEqual(placeOf("/run/one/overview"), { view: "run", key: "one", tab: "overview" });
  assert.deepEqual(placeOf("/run/one"), { view: "run", key: "one", tab: "overview" });
  assert.deepEqual(placeOf("/run/gpt/gpt-0.5b"), { view: "run", key: "gpt/gpt-0.5b", tab: "overview" });
  assert.deepEqual(placeOf("/run/gpt/doctor/doctor"), { view: "run", key: "gpt/doctor", tab: "doctor" });
  assert.equal(placeOf("/elsewhere").view, "nowhere");
});

test("the place of a run reads back as its key", () => {
  for (const name of HOSTILE) {
    const key = `project/${encodeURIComponent(name)}`;
    assert.deepEqual(placeOf(new URL(runPlace(key, "doctor"), "http://h").pathname), {
      view: "run",
      key,
      tab: "doctor",
    });
    assert.equal(plainKey(key), `project/${name}`);
  }
  assert.equal(plainKey("a/%zz"), "a/%zz");
});

test("a list in the address reads back as it was", () => {
  assert.deepEqual(splitList(joinList(HOSTILE)), HOSTILE);
  assert.deepEqual(splitList(null), []);
});

test("a query reads back as it was and keeps slashes readable", () => {
  const query = withQuery(new URLSearchParams("old=1"), { q: HOSTILE.join(" "), run: HOSTILE, old: null, empty: "" });
  const text = formatQuery(query);
  const again = new URLSearchParams(text);
  assert.equal(again.get("q"), HOSTILE.join(" "));
  assert.deepEqual(again.getAll("run"), HOSTILE);
  assert.equal(again.has("old"), false);
  assert.equal(again.has("empty"), false);
  assert.equal(formatQuery(new URLSearchParams({ sort: "-last:train/loss" })), "?sort=-last:train/loss");
});

test("the state of the table reads back from its address", () => {
  const columns = HOSTILE.map((name) => `last:${name}`).concat("config:a.b", "status");
  const written = writeState({
    filter: "config.lr > 1e-3",
    sort: { id: "last:a,b", down: true },
    project: "a/b & c",
    groups: ["config:a,b", "all but seed", "constructor"],
    columns,
    selected: new Set(["p/a", "p/b"]),
    hidden: new Set(["p/c"]),
    only: new Set(["p/d"]),
    layout: "table",
    axis: "tokens",
    smooth: 0.9,
    most: 50,
    archived: true,
  });
  const state = readState(new URLSearchParams(formatQuery(withQuery(new URLSearchParams(), written))));
  assert.equal(state.filter, "config.lr > 1e-3");
  assert.deepEqual(state.sort, { id: "last:a,b", down: true });
  assert.deepEqual(state.groups, ["config:a,b", "all but seed"]);
  assert.equal(state.project, "a/b & c");
  assert.deepEqual(state.columns, columns);
  assert.deepEqual([...state.selected], ["p/a", "p/b"]);
  assert.deepEqual([...state.hidden], ["p/c"]);
  assert.deepEqual([...state.only], ["p/d"]);
  assert.deepEqual(
    [state.layout, state.axis, state.smooth, state.most, state.archived],
    ["table", "tokens", 0.9, 50, true],
  );
});

test("what is so by default stands in no address, and nonsense is read as the default", () => {
  const written = writeState({
    filter: "",
    sort: { id: "created", down: true },
    layout: "split",
    axis: "step",
    smooth: 0,
    most: 10,
    archived: false,
  });
  assert.equal(formatQuery(withQuery(new URLSearchParams(), written)), "");
  const state = readState(new URLSearchParams("smooth=x&most=-3&view=what&group=nothing&cols=none&sort="));
  assert.deepEqual([state.smooth, state.most, state.layout, state.groups.length, state.columns], [0, 10, "split", 0, []]);
  assert.equal(readState(new URLSearchParams("smooth=7&most=1e9")).smooth, 0.999);
});
