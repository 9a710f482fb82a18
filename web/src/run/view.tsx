/** One run: overview, charts, series by name, layers, system, doctor.
 *
 * In:   a run's key, the tab and the parameters of the address.
 * Out:  the tab that is asked for, under the run's head.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import type { RunViewProps } from "../api/contract.ts";
import type { Diagnosis, Row } from "../api/types.ts";
import { DoctorView } from "../doctor/view.tsx";
import { useRuns } from "../runs/store.ts";
import { plainKey, runPlace } from "../shell/address.ts";
import { useColours } from "../shell/runcolours.ts";
import { Icon, type IconName } from "../shell/icon.tsx";
import { FindingBadges, Progress, StatusMark } from "../shell/status.tsx";
import { warmNames } from "../chart/names.ts";
import { ChartsTab } from "./charts.tsx";
import { type RunDetail, useBeat, useDetail, useFindings } from "./data.ts";
import { LayersTab } from "./layers.tsx";
import { MediaTab } from "../media/view.tsx";
import { Overview } from "./overview.tsx";
import { SystemTab } from "./system.tsx";
import "./run.css";

export interface TabProps {
  runKey: string;
  detail: RunDetail;
  diagnosis: Diagnosis | null;
  query: URLSearchParams;
  /** Counts up while the run goes on. */
  beat: number;
}

/** A run of which only the key is known: its charts need no more. */
function unread(key: string): RunDetail {
  const parts = plainKey(key).split("/");
  const id = parts[parts.length - 1] ?? key;
  // prettier-ignore
  return {
    key, id, name: id, project: parts.length > 1 ? (parts[0] ?? "") : "", status: "", status_since: null, created: null, wall_seconds: null, tags: [], notes: "",
    pinned: false, archived: false, config: {}, step: null, total_steps: null, remaining_seconds: null, last: {}, best: {}, loss: null, eval_loss: null, findings: { critical: 0, warning: 0, info: 0 },
    parent: null, fork_step: null, manifest: {},
  };
}

const TABS: [string, string, IconName][] = [
  ["overview", "Overview", "info"],
  ["charts", "Charts", "chart"],
  ["layers", "Layers", "columns"],
  ["media", "Media", "image"],
  ["system", "System", "system"],
  ["doctor", "Doctor", "doctor"],
];

const DETAIL_SECONDS = 3; // between two looks at a run that goes on
const DOCTOR_EVERY = 5; // this many of those are one look of the doctor

export function RunView({ runKey, tab, query }: RunViewProps) {
  const now = TABS.some(([id]) => id === tab) ? tab : "overview";
  const beat = useBeat(runKey, DETAIL_SECONDS);
  // the names are wanted by most tabs: they need not wait for the detail
  if (now === "charts" || now === "overview") warmNames(runKey);
  const { rows } = useRuns();
  useColours([runKey]);
  const gone = useGone(runKey, rows.has(runKey));
  const settled = useSettled(runKey, SETTLED_MS);
  const shown = useSettled(runKey, SHOWN_MS);
  const detail = useDetail(now !== "charts" || shown ? runKey : null, beat);
  const diagnosis = useFindings(settled ? runKey : null, Math.floor(beat / DOCTOR_EVERY));

  useEffect(() => {
    const name = detail.value?.name ?? plainKey(runKey).split("/").pop() ?? "";
    document.title = `${name} · ${TABS.find(([id]) => id === now)?.[1] ?? ""} · Barograph`;
  }, [detail.value?.name, now]);

  useStory(now === "doctor" ? query.get("finding") : null);

  const row = rows.get(runKey);
  const read = detail.value ?? (now === "charts" && !detail.error && row ? { ...row, manifest: {} } : null);
  const before = useRef<RunDetail | null>(null); // of a run that is deleted while its detail is on the way
  if (read) before.current = read;
  const known =
    read ??
    (before.current?.key === runKey ? before.current : null) ??
    (now === "charts" && !detail.error ? unread(runKey) : null);
  if (!known) {
    return detail.error ? (
      <div class="message" role="alert">
        <h1>This run cannot be shown</h1>
        <p>{detail.error}</p>
        <p>
          <a href="/">See all runs</a>
        </p>
      </div>
    ) : (
      <div class="run" aria-busy="true">
        <span class="skeleton" />
      </div>
    );
  }
  const current = row ? { ...known, ...movingOf(row) } : known;
  const props: TabProps = { runKey, detail: current, diagnosis: diagnosis.value, query, beat };
  return (
    <div class="run">
      {gone && (
        <p class="banner" role="alert">
          This run is no longer in its folder. What you see is from before. <a href="/">See all runs</a>
        </p>
      )}
      <Head detail={current} diagnosis={diagnosis.value} />
      <nav class="tabs" aria-label="Views of this run">
        {TABS.map(([id, says, icon]) => (
          <a
            key={id}
            class={`tab ${id === now ? "here" : ""}`}
            href={runPlace(runKey, id)}
            aria-current={id === now ? "page" : undefined}
          >
            <Icon name={icon} /> {says}
          </a>
        ))}
      </nav>
      {now === "overview" && <Overview {...props} />}
      {now === "charts" && <ChartsTab {...props} />}
      {now === "layers" && <LayersTab {...props} />}
      {now === "media" && <MediaTab runKey={runKey} beat={beat} query={query} samples={detail.value?.samples ?? []} />}
      {now === "system" && <SystemTab {...props} />}
      {now === "doctor" && <DoctorView runKey={runKey} />}
    </div>
  );
}

/** What moves on with each record: the row comes with the stream of the curves, the detail later. */
function movingOf(row: Row): Partial<Row> {
  const { name, tags, notes, status, status_since, wall_seconds, step, total_steps, remaining_seconds } = row;
  const { last, best, findings, examined, phase, problem } = row;
  // prettier-ignore
  return {
    name, tags, notes, status, status_since, wall_seconds, step, total_steps, remaining_seconds, last, best, findings,
    examined, phase, problem,
  };
}

/** Findings by severity: those of the diagnosis once it is there, until then those that the run recorded. */
function counted(detail: RunDetail, diagnosis: Diagnosis | null): RunDetail["findings"] {
  if (!diagnosis) return detail.findings;
  const counts = { critical: 0, warning: 0, info: 0 };
  for (const one of diagnosis.findings) counts[one.severity]++;
  return counts;
}

function Head({ detail, diagnosis }: { detail: RunDetail; diagnosis: Diagnosis | null }) {
  const findings = counted(detail, diagnosis);
  return (
    <header class="run-head">
      <h1 title={plainKey(detail.key)}>{detail.name || detail.id}</h1>
      {detail.status && (
        <StatusMark status={detail.status} since={detail.status_since} phase={detail.phase} problem={detail.problem} />
      )}
      {detail.status && (
        <div class="run-progress">
          <Progress row={detail} />
        </div>
      )}
      {detail.status && (
        <FindingBadges row={{ key: detail.key, findings, examined: diagnosis ? true : detail.examined }} all />
      )}
      <span class="badges">
        {detail.tags.map((tag) => (
          <span class="tag" key={tag} title={tag}>
            {tag}
          </span>
        ))}
      </span>
      <span class="run-acts">
        <a class="button" href={`/compare?run=${encodeURIComponent(detail.key)}`}>
          <Icon name="compare" /> Compare
        </a>
        <a
          class="button"
          href={`/api/runs/${detail.key}/report.html`}
          download
          title="One HTML file with everything of this page"
        >
          <Icon name="download" /> Report
        </a>
      </span>
    </header>
  );
}

const SETTLED_MS = 1500;
const SHOWN_MS = 500; // charts stand by then, and the detail reads the log for samples

/** Whether the page stands: a diagnosis reads the whole run, and would take its time from the first charts. */
function useSettled(run: string, milliseconds: number): boolean {
  const [settled, set] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => set(run), milliseconds);
    return () => clearTimeout(timer);
  }, [run]);
  return settled === run;
}

/** Whether a run that was there is not there any more: deleted in the table, or moved away. */
function useGone(run: string, there: boolean): boolean {
  const seen = useRef("");
  useEffect(() => {
    if (there) seen.current = run;
  }, [run, there]);
  return !there && seen.current === run;
}

const PATIENCE_MS = 10_000;

/** Brings the finding that the address names into sight, once the doctor has it. */
function useStory(id: string | null): void {
  useEffect(() => {
    if (!id) return;
    const until = Date.now() + PATIENCE_MS;
    const look = (): boolean => {
      const node = document.getElementById(id);
      if (!node) return Date.now() > until;
      node.scrollIntoView({ block: "center" });
      node.classList.add("told");
      node.querySelector<HTMLElement>("a, button")?.focus({ preventScroll: true });
      return true;
    };
    if (look()) return;
    const watch = new MutationObserver(() => look() && watch.disconnect());
    watch.observe(document.body, { childList: true, subtree: true });
    return () => watch.disconnect();
  }, [id]);
}
