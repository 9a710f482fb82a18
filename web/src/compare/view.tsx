/** Runs against runs: the verdict first, what was refused, what differs, then curves and figures.
 *
 * In:   the address: run=KEY…, metric, x, group, baseline.
 * Out:  the view; the address for every change.
 */

import { useEffect, useMemo, useState } from "preact/hooks";
import { getJson } from "../api/client.ts";
import type { Key, Row } from "../api/types.ts";
import { varying } from "../runs/columns.ts";
import { useChartGroup } from "../chart/choice.ts";
import { AxisChoice } from "../chart/toolbar.tsx";
import { useRuns } from "../runs/store.ts";
import { plainKey, runPlace } from "../shell/address.ts";
import { colourAt } from "../shell/colour.ts";
import { colourOf, useColours } from "../shell/runcolours.ts";
import { Icon } from "../shell/icon.tsx";
import { useKeys } from "../shell/keys.ts";
import { useReturns } from "../shell/returns.ts";
import { go, setQuery } from "../shell/route.ts";
import { useTheme } from "../shell/theme.ts";
import { count } from "../shell/text.ts";
import { ended, partial } from "./choice.ts";
import { Beside } from "./beside.tsx";
import { chartAxis, Curves, OtherMetrics } from "./curves.tsx";
import { Differences, Figures, Letter } from "./facts.tsx";
import { RankingTable } from "./ranking.tsx";
import { ChooseRuns } from "./similar.tsx";
import { refusalSentence } from "./reckon.ts";
import type { Comparison, Side } from "../api/types.ts";

/** The axes of `barograph compare`; none is asked for unless a person does. */
const AXES: readonly [string, string][] = [
  ["", "default"],
  ["step", "step"],
  ["tokens", "tokens"],
  ["samples", "samples"],
  ["time", "time of its steps"],
  ["flops", "FLOPs"],
];

const NOBODY: readonly Key[] = [];

const ASKED = ["metric", "x", "group", "baseline"] as const;

export function CompareView({ query }: { query: URLSearchParams }) {
  const { rows } = useRuns();
  const keys = query.getAll("run");
  const { made, error, busy } = useComparison(query);
  const theme = useTheme();
  useKeys("Comparison", [{ keys: "Escape", says: "back to the runs", run: () => go("/") }]);
  const members = useMemo(
    () => (made ? made.sides.map((side) => keysOf(side, keys, rows)) : []),
    [made, keys.join(" "), rows],
  );
  const alone = members.every((side) => side.length === 1) ? members.flat() : NOBODY;
  useColours(alone);
  const charts = useChartGroup(query, "compare", { name: "along", axis: chartAxis(made?.axis ?? null) });
  const colours = members.map((_, at) => (alone[at] !== undefined ? colourOf(alone[at], theme) : colourAt(at, theme)));
  const there = [...new Set(keys)].filter((key) => rows.has(key));
  const shared = useMemo(() => {
    const all = rowsOf(keys, rows).map((row) => new Set(Object.keys(row.last)));
    return [...(all[0] ?? [])].filter((name) => all.every((names) => names.has(name)));
  }, [keys.join(" "), rows]);
  useEffect(() => charts.know(shared), [charts, shared]);
  if (keys.length < 2) return <ChooseRuns keys={keys} rows={rows} />;
  return (
    <div class="compare">
      <h1 class="unseen">Comparison of {count(keys.length, "run")}</h1>
      <Controls query={query} made={made} rows={rows} keys={keys} shared={shared} />
      {error !== null && (
        <div class="panel block refused" role="alert">
          <h2>
            <Icon name="warning" /> Not compared
          </h2>
          <p>{error}</p>
          {rows.size > 0 && there.length >= 2 && there.length < keys.length && (
            <p class="buttons">
              <button type="button" class="button" onClick={() => setQuery({ run: there })}>
                Compare the other {there.length}
              </button>
            </p>
          )}
          {ASKED.some((name) => query.get(name)) && (
            <p class="buttons">
              <button
                type="button"
                class="button"
                onClick={() => setQuery({ metric: null, x: null, group: null, baseline: null })}
              >
                Compare with the defaults
              </button>
            </p>
          )}
        </div>
      )}
      {!made && error === null && (
        <div class="panel block" aria-busy="true">
          <p class="quiet">Reading {count(keys.length, "run")}, and looking for repeats of them in their projects.</p>
          <span class="skeleton" />
          <span class="skeleton tall" />
        </div>
      )}
      {made && error === null && (
        <div class={busy ? "stale" : ""}>
          <Sides made={made} members={members} colours={colours} />
          <Verdict made={made} />
          <StillRunning rows={rowsOf(there, rows)} />
          <div class="compare-tables">
            <RankingTable made={made} colours={colours} />
            <Differences made={made} colours={colours} />
          </div>
          {made.metric && members.some((side) => side.length > 0) && (
            <section class="panel block">
              <h2>Curves</h2>
              <Curves made={made} keys={members} colours={colours} metric={made.metric} group={charts} />
            </section>
          )}
          <Figures made={made} colours={colours} />
          {made.sides.length > 1 && <Beside made={made} members={members} query={query} />}
          <OtherMetrics
            made={made}
            keys={members}
            colours={colours}
            names={shared.filter((name) => name !== made.metric)}
            group={charts}
          />
        </div>
      )}
    </div>
  );
}

/** Which of the keys asked for the runs of a side are: the server tells project, id and folder. */
export function keysOf(side: Side, keys: readonly Key[], rows: ReadonlyMap<Key, Row>): Key[] {
  return side.runs.flatMap(({ key, project, id, dir }) => {
    if (typeof key === "string") return [key];
    const folder = dir.replaceAll("\\", "/");
    const found =
      keys.find((key) => folder === plainKey(key) || folder.endsWith(`/${plainKey(key)}`)) ??
      keys.find((key) => rows.get(key)?.id === id && rows.get(key)?.project === project);
    return found === undefined ? [] : [found];
  });
}

interface ControlsProps {
  query: URLSearchParams;
  made: Comparison | null;
  rows: ReadonlyMap<Key, Row>;
  keys: readonly Key[];
  /** Metrics that all have. */
  shared: readonly string[];
}

const rowsOf = (keys: readonly Key[], rows: ReadonlyMap<Key, Row>): Row[] =>
  keys.map((key) => rows.get(key)).filter((row): row is Row => row !== undefined);

function Controls({ query, made, rows, keys, shared }: ControlsProps) {
  const chosen = rowsOf(keys, rows);
  const groups = useMemo(() => varying(chosen, 40), [keys.join(" "), chosen.length]);
  const metric = query.get("metric") ?? "";
  const lacking = partial(chosen).filter(({ name }) => name !== metric);
  const group = query.get("group") ?? "";
  return (
    <div class="toolbar" role="toolbar" aria-label="Comparison">
      <a
        class="button"
        href={`/?sel=${encodeURIComponent(keys.join(",")).replaceAll("%2C", ",").replaceAll("%2F", "/")}`}
      >
        Choose runs
      </a>
      <label class="labelled">
        <span class="quiet">metric</span>
        <select
          class="field"
          aria-label="Metric"
          value={metric}
          onChange={(event) => {
            const name = event.currentTarget.value;
            const some = lacking.find((one) => one.name === name);
            setQuery(some ? { metric: name, run: some.runs, baseline: null } : { metric: name });
          }}
        >
          <option value="">{!metric && made?.metric ? made.metric : "default"}</option>
          {[...new Set([...[...shared].sort(), ...(metric ? [metric] : [])])].map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
          {lacking.length > 0 && (
            <optgroup label="Not of all runs">
              {lacking.map(({ name, runs }) => (
                <option key={name} value={name}>
                  {name}: without {count(chosen.length - runs.length, "run")}
                </option>
              ))}
            </optgroup>
          )}
        </select>
      </label>
      <AxisChoice
        axis={query.get("x") ?? ""}
        axes={AXES.map(([name, says]) => [name, name === "" && made?.axis ? made.axis : says] as const)}
        set={(x) => setQuery({ x })}
      />
      <label class="labelled">
        <span class="quiet">group by</span>
        <select
          class="field"
          aria-label="Group"
          value={group}
          onChange={(event) => setQuery({ group: event.currentTarget.value, baseline: null })}
        >
          <option value="">all but seed</option>
          {[...new Set([...groups, ...(group ? [group] : [])])].map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label class="labelled">
        <span class="quiet">baseline</span>
        <select
          class="field"
          aria-label="Baseline"
          value={query.get("baseline") ?? ""}
          onChange={(event) => setQuery({ baseline: event.currentTarget.value })}
        >
          <option value="">{made && made.sides.length > 2 ? "the best" : "the first"}</option>
          {keys.map((key) => (
            <option key={key} value={key}>
              {rows.get(key)?.name || plainKey(key)}
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}

function Sides({
  made,
  members,
  colours,
}: {
  made: Comparison;
  members: readonly Key[][];
  colours: readonly string[];
}) {
  return (
    <ul class="sides" aria-label="What is compared">
      {made.sides.map((side, at) => (
        <li key={at}>
          <Letter side={at} colour={colours[at]} />
          <span class="side-name">
            {side.runs.length === 1 && members[at]?.[0] ? (
              <a class="cut" href={runPlace(members[at][0])} title={side.label}>
                {side.label}
              </a>
            ) : (
              <strong class="cut" title={side.label}>
                {side.label}
              </strong>
            )}
            <span class="quiet">
              {" "}
              {side.runs.length > 1 ? count(side.runs.length, "run") : side.runs[0]?.project},{" "}
              {[...new Set(side.runs.map((run) => run.status))].join(", ")}
            </span>
            {side.runs.length > 1 && (
              <details class="members">
                <summary>which</summary>
                {side.runs.map((run, place) => {
                  const key = members[at]?.[place];
                  return <div key={place}>{key ? <a href={runPlace(key)}>{run.name}</a> : run.name}</div>;
                })}
              </details>
            )}
          </span>
        </li>
      ))}
    </ul>
  );
}

const TONES: Record<string, string> = { better: "good", worse: "bad", different: "warning" };

/** A run that goes on has no end to compare: one click leaves it out. */
function StillRunning({ rows }: { rows: readonly Row[] }) {
  const stay = ended(rows);
  if (!stay) return null;
  return (
    <p class="buttons">
      <button type="button" class="button" onClick={() => setQuery({ run: stay, baseline: null })}>
        Leave out {count(rows.length - stay.length, "run")} still running
      </button>
    </p>
  );
}

/** Of two sides what became of the metric comes before what differs. */
function verdictFirst({ verdict, contrasts }: Comparison): string[] {
  const said = contrasts.length === 1 ? contrasts[0]?.sentence : undefined;
  return said === undefined || !verdict.sentences.includes(said)
    ? verdict.sentences
    : [said, ...verdict.sentences.filter((sentence) => sentence !== said)];
}

function Verdict({ made }: { made: Comparison }) {
  const outcomes = new Map(made.contrasts.map((one) => [one.sentence, one.outcome]));
  const said = new Set(made.verdict.sentences);
  return (
    <section class="panel block verdict-block" aria-label="Verdict">
      <h2>Verdict</h2>
      {verdictFirst(made).map((sentence, at) => {
        const tone = TONES[outcomes.get(sentence) ?? ""] ?? "";
        return (
          <p key={at} class={`${at === 0 ? "first" : ""} ${tone ? `tone-${tone}` : ""}`}>
            {sentence}
          </p>
        );
      })}
      {made.refusals
        .map(refusalSentence)
        .filter((sentence) => !said.has(sentence))
        .map((sentence) => (
          <p key={sentence} class="tone-bad">
            <Icon name="stopped" label="refused" /> {sentence}
          </p>
        ))}
      {made.cautions.map((sentence) => (
        <p key={sentence} class="tone-warning">
          <Icon name="warning" label="caution" /> {sentence}
        </p>
      ))}
      {made.notes.map((sentence) => (
        <p key={sentence} class="quiet">
          {sentence}
        </p>
      ))}
    </section>
  );
}

function useComparison(query: URLSearchParams): { made: Comparison | null; error: string | null; busy: boolean } {
  const [found, set] = useState<{ made: Comparison | null; error: string | null; busy: boolean }>({
    made: null,
    error: null,
    busy: true,
  });
  const keys = query.getAll("run");
  const asked = new URLSearchParams();
  for (const key of keys) asked.append("run", key);
  for (const name of ASKED) if (query.get(name)) asked.set(name, query.get(name) ?? "");
  const address = `/api/compare?${asked}`;
  const returns = useReturns();
  useEffect(() => {
    if (keys.length < 2) return;
    const stop = new AbortController();
    set((before) => ({ ...before, busy: true }));
    getJson<Comparison>(address, stop.signal)
      .then((made) => set({ made, error: null, busy: false }))
      .catch(
        (error: Error) =>
          error.name !== "AbortError" && set((before) => ({ ...before, error: error.message, busy: false })),
      );
    return () => stop.abort();
  }, [address, returns]);
  return found;
}
