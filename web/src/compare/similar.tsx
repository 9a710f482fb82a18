/** One run, and nothing to compare it with yet: runs like it to choose from.
 *
 * In:   the run's key.
 * Out:  its repeats, runs that differ in little, a way to all others.
 */

import { useEffect, useState } from "preact/hooks";
import { getJson } from "../api/client.ts";
import type { Key, Row, Similar, SimilarRuns } from "../api/types.ts";
import { plainKey } from "../shell/address.ts";
import { setQuery } from "../shell/route.ts";
import { statusWords } from "../shell/states.ts";
import { count, title } from "../shell/text.ts";

type Rows = ReadonlyMap<Key, Row>;

export function ChooseRuns({ keys, rows }: { keys: readonly Key[]; rows: Rows }) {
  const [only] = keys;
  const [found, set] = useState<Similar[] | null>(null);
  useEffect(() => {
    if (!only) return;
    const stop = new AbortController();
    getJson<SimilarRuns>(`/api/similar?${new URLSearchParams({ run: only })}`, stop.signal)
      .then(({ similar }) => set(similar))
      .catch((error: Error) => error.name !== "AbortError" && set([]));
    return () => stop.abort();
  }, [only]);
  const row = only === undefined ? undefined : rows.get(only);
  const repeats = (found ?? []).filter((one) => Object.keys(one.keys).length === 0);
  const by = new Map<string, Similar[]>();
  for (const one of found ?? []) {
    const names = Object.keys(one.keys).sort().join(", ");
    if (names) by.set(names, [...(by.get(names) ?? []), one]);
  }
  const compare = (some: readonly Key[]): void => setQuery({ run: [...keys, ...some] });
  return (
    <div class="message similar">
      <h1>{only ? `Compare ${row ? title(row) : plainKey(only)} with …` : "Select at least two runs"}</h1>
      {only && found === null && <span class="skeleton" aria-busy="true" />}
      {repeats.length > 0 && (
        <Part
          head="Same configuration, another seed"
          all={`All ${count(repeats.length, "repeat")}`}
          runs={repeats}
          also={[]}
          rows={rows}
          compare={compare}
        />
      )}
      {[...by].map(([names, runs]) => (
        <Part
          key={names}
          head={`Differs in ${names}`}
          all={`All ${count(runs.length, "run")}${repeats.length ? " and the repeats" : ""}`}
          runs={runs}
          also={repeats.map((one) => one.key)}
          rows={rows}
          compare={compare}
        />
      ))}
      {only && found?.length === 0 && <p class="soft">No run of its project has a similar configuration.</p>}
      <p class="soft">
        {only ? "Or select" : "Select"} runs in the table with <kbd>x</kbd> or their boxes, then press <kbd>c</kbd>. In
        a terminal: <code>barograph compare A B</code>
      </p>
      <p>
        <a href={only ? `/?sel=${encodeURIComponent(only)}` : "/"}>Choose runs</a>
      </p>
    </div>
  );
}

interface PartProps {
  head: string;
  all: string;
  runs: readonly Similar[];
  also: readonly Key[];
  rows: Rows;
  compare: (keys: readonly Key[]) => void;
}

const FEW = 8;

function Part({ head, all, runs, also, rows, compare }: PartProps) {
  const [most, setMost] = useState(FEW);
  return (
    <section class="panel block">
      <h2>{head}</h2>
      <ul class="similar-runs">
        {runs.slice(0, most).map(({ key, keys }) => {
          const row = rows.get(key);
          const differs = Object.entries(keys).map(([name, value]) => `${name} = ${value}`);
          return (
            <li key={key}>
              <button type="button" class="button" onClick={() => compare([key])}>
                {row ? title(row) : plainKey(key)}
              </button>{" "}
              <span class="quiet">
                {[
                  ...differs,
                  ...(row && row.status !== "finished" ? [statusWords(row.status, row.phase).word] : []),
                ].join(", ")}
              </span>
            </li>
          );
        })}
      </ul>
      <p class="buttons">
        {runs.length > most && (
          <button type="button" class="button" onClick={() => setMost(runs.length)}>
            {count(runs.length - most, "more run")}
          </button>
        )}
        {runs.length + also.length > 1 && (
          <button
            type="button"
            class="button primary"
            onClick={() => compare([...also, ...runs.map(({ key }) => key)])}
          >
            {all}
          </button>
        )}
      </p>
    </section>
  );
}
