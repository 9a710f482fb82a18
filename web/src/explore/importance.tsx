/** Which keys explain the metric: the answer of `barograph importance`, as sentences and a table of shares.
 *
 * In:   the metric, the filter.
 * Out:  the view; the key that a person wants to see.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { getJson } from "../api/client.ts";
import type { Importance } from "../api/types.ts";
import type { ColumnId } from "../runs/columns.ts";
import { count, number, percent } from "../shell/text.ts";
import { Wide } from "../shell/wide.tsx";

const FRESH_MS = 10_000;

interface Props {
  metric: ColumnId;
  /** Which runs it is asked of. */
  within: { filter: string; project: string; archived: boolean };
  /** Grows when runs change. */
  version: number;
  show: (id: ColumnId) => void;
}

export function ImportanceView({ metric, within, version, show }: Props) {
  const [found, set] = useState<{ made: Importance | null; error: string | null }>({ made: null, error: null });
  const cut = metric.indexOf(":");
  const asked = new URLSearchParams({ metric: metric.slice(cut + 1), value: metric.slice(0, cut) });
  if (within.filter.trim()) asked.set("filter", within.filter.trim());
  if (within.project) asked.set("project", within.project);
  if (within.archived) asked.set("archived", "1");
  const question = asked.toString();
  const at = useRef({ question: "", time: 0 });
  useEffect(() => {
    const stop = new AbortController();
    const ask = (): void => {
      at.current = { question, time: Date.now() };
      getJson<Importance>(`/api/importance?${question}`, stop.signal)
        .then((made) => set({ made, error: null }))
        .catch((error: Error) => error.name !== "AbortError" && set({ made: null, error: error.message }));
    };
    // live runs change all the time
    const wait = at.current.question === question ? Math.max(0, at.current.time + FRESH_MS - Date.now()) : 0;
    const timer = setTimeout(ask, wait);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [question, version]);
  const { made, error } = found;
  if (error) return <p class="tone-bad">{error}</p>;
  if (!made) return <span class="skeleton tall" aria-busy="true" />;
  return (
    <div class="explore-importance">
      <p class="quiet">
        {made.metric} of {count(made.runs, "run")}, {count(made.configurations, "configuration")} that differ in more
        than the seed
      </p>
      {made.sentences.map((sentence, at) => (
        <p key={sentence} class={at === 0 ? "first" : "soft"}>
          {sentence}
        </p>
      ))}
      {made.keys.length > 0 && (
        <Wide label="Importance">
          <table class="facts">
            <thead>
              <tr>
                <th scope="col">Key</th>
                <th scope="col">Share of the variation</th>
                <th scope="col" class="number">
                  95% interval
                </th>
                <th scope="col" class="number">
                  p
                </th>
                <th scope="col">Best at</th>
                <th scope="col">Outcome</th>
              </tr>
            </thead>
            <tbody>
              {made.keys.map((one) => (
                <tr key={one.key} class={one.outcome === "explains" ? "changed" : ""}>
                  <th scope="row">
                    <button type="button" class="link" title={one.sentence} onClick={() => show(`config:${one.key}`)}>
                      {one.key}
                    </button>
                  </th>
                  <td>
                    <span class="share" aria-hidden="true">
                      <i
                        class="share-interval"
                        style={{ left: percent(one.low), width: percent(one.high - one.low) }}
                      />
                      <i
                        class={`share-bar ${one.outcome === "explains" ? "sure" : ""}`}
                        style={{ width: percent(one.share) }}
                      />
                    </span>{" "}
                    {percent(one.share, 0)}
                  </td>
                  <td class="number">
                    {percent(one.low, 0)} to {percent(one.high, 0)}
                  </td>
                  <td class="number">{one.p === null ? "–" : one.p < 0.001 ? "< 0.001" : number(one.p, 2)}</td>
                  <td>{one.best ?? ""}</td>
                  <td>{one.outcome}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Wide>
      )}
      {made.constant.length > 0 && <p class="quiet">The same in all runs: {made.constant.join(", ")}.</p>}
      {made.apart.length > 0 && (
        <p class="quiet">Another value in almost every run, so not examined: {made.apart.join(", ")}.</p>
      )}
      <p class="quiet small">
        A share is of the variation of the metric’s ranks that the key explains by itself, less what chance explains; p
        is corrected for the number of keys. Repeats count as one configuration.
      </p>
    </div>
  );
}
