import assert from "node:assert/strict";
import { test } from "node:test";
import type { SeriesQuery } from "../src/api/types.ts";
import { Loader, type Wish } from "../src/chart/loader.ts";

const WISH: Wish = { x: "step", view: null, buckets: 100, branch: "live", smooth: 0 };
const soon = (milliseconds = 20): Promise<void> => new Promise((done) => setTimeout(done, milliseconds));

/** A server that answers when it is told to. */
function fake(hold = false) {
  const asked: { query: SeriesQuery; signal?: AbortSignal; answer: () => void }[] = [];
  const loader = new Loader((query, signal) => {
    return new Promise((done, failed) => {
      const header = {
        series: query.series.map((one) => ({
          ...one,
          points: 1,
          total: 1,
          exact: true,
          last_step: 1,
          last_value: 1,
          marks: [],
          columns: {},
        })),
      };
      const answer = (): void => done({ header, column: () => new Float64Array(0) } as never);
      signal?.addEventListener("abort", () => failed(new DOMException("", "AbortError")));
      asked.push({ query, signal, answer });
      if (!hold) answer();
    });
  });
  return { loader, asked };
}

const series = (count: number, from = 0) =>
  Array.from({ length: count }, (_, at) => ({ run: "p/r", name: `n${from + at}` }));

test("wishes of one moment travel together, each series once", async () => {
  const { loader, asked } = fake();
  const signal = new AbortController().signal;
  const [a, b] = await Promise.all([loader.load(series(3), WISH, signal), loader.load(series(3, 2), WISH, signal)]);
  assert.equal(asked.length, 1);
  assert.equal(asked[0]?.query.series.length, 5);
  assert.deepEqual(
    a?.map((curve) => curve.name),
    ["n0", "n1", "n2"],
  );
  assert.deepEqual(
    b?.map((curve) => curve.name),
    ["n2", "n3", "n4"],
  );
});

test("another range is another request", async () => {
  const { loader, asked } = fake();
  const signal = new AbortController().signal;
  await Promise.all([loader.load(series(1), WISH, signal), loader.load(series(1), { ...WISH, view: [1, 2] }, signal)]);
  assert.deepEqual(
    asked.map(({ query }) => [query.from, query.to]),
    [
      [null, null],
      [1, 2],
    ],
  );
});

test("a request is aborted when nobody wants it any more, and not before", async () => {
  const { loader, asked } = fake(true);
  const [one, two] = [new AbortController(), new AbortController()];
  const first = loader.load(series(1), WISH, one.signal);
  const second = loader.load(series(1, 5), WISH, two.signal);
  first.catch(() => undefined);
  second.catch(() => undefined);
  await soon();
  one.abort();
  await assert.rejects(first, { name: "AbortError" });
  assert.equal(asked[0]?.signal?.aborted, false);
  two.abort();
  await assert.rejects(second, { name: "AbortError" });
  assert.equal(asked[0]?.signal?.aborted, true);
});

test("two requests are under way at most, in the order wished; what was given up is not asked for", async () => {
  const { loader, asked } = fake(true);
  const controls = [0, 1, 2, 3].map(() => new AbortController());
  const all = controls.map((control, at) => loader.load(series(100, at * 100), WISH, control.signal));
  for (const one of all) one.catch(() => undefined);
  await soon();
  assert.equal(asked.length, 2);
  controls[2]?.abort();
  asked[0]?.answer();
  await soon();
  assert.equal(asked.length, 3);
  assert.equal(asked[2]?.query.series[0]?.name, "n300");
});
