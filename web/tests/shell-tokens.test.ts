import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const SOURCE = new URL("../src", import.meta.url).pathname;

test("every variable of style that is read is defined somewhere", () => {
  const files = readdirSync(SOURCE, { recursive: true, encoding: "utf8" }).filter((name) =>
    /\.(ts|tsx|css)$/.test(name),
  );
  const defined = new Set<string>();
  const read = new Map<string, string>();
  for (const file of files) {
    const text = readFileSync(join(SOURCE, file), "utf8");
    for (const [, name] of text.matchAll(/["'{;\s](--[\w-]+)["']?\s*[:,]\s/g)) defined.add(name ?? "");
    for (const [, name] of text.matchAll(/(?:var\(|(?:token|custom|ink)\()["'`]?(--[\w-]+)["'`),]/g))
      read.set(name ?? "", file);
  }
  assert.ok(read.size > 30, `${read.size}`);
  const lines = /^--(c[0-7]$|jp-)/; // those of lines are written by Python at the head of a report, the others by Jupyter
  const lost = [...read].filter(([name]) => !defined.has(name) && !lines.test(name));
  assert.deepEqual(lost, []);
});
