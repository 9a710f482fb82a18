/** One run: overview, charts, series by name, layers, system, doctor.
 *
 * In:   a run's key, the tab and the parameters of the address.
 * Out:  the tab that is asked for, under the run's head.
 */

import { useEffect } from "preact/hooks";
import type { RunViewProps } from "../api/contract.ts";
import type { Detail, Diagnosis } from "../api/types.ts";
import { DoctorView } from "../doctor/view.tsx";
import { plainKey, runPlace } from "../shell/address.ts";
import { Icon, type IconName } from "../shell/icon.tsx";
import { FindingBadges, Progress, StatusMark } from "../shell/status.tsx";
import { ChartsTab } from "./charts.tsx";
import { useBeat, useDetail, useFindings } from "./data.ts";
import { LayersTab } from "./layers.tsx";
import { Overview } from "./overview.tsx";
import { SystemTab } from "./system.tsx";
import "./run.css";

export interface TabProps {
  runKey: string;
  detail: Detail;
  diagnosis: Diagnosis | null;
  query: URLSearchParams;
  /** Counts up while the run goes on. */
  beat: number;
}

const TABS: [string, string, IconName][] = [
  ["overview", "Overview", "info"],
  ["charts", "Charts", "chart"],
  ["layers", "Layers", "columns"],
  ["system", "System", "system"],
  ["doctor", "Doctor", "doctor"],
];

const DETAIL_SECONDS = 3; // between two looks at a run that goes on
const DOCTOR_EVERY = 5; // so many of those are one look of the doctor

export function RunView({ runKey, tab, query }: RunViewProps) {
  const beat = useBeat(runKey, DETAIL_SECONDS);
  const detail = useDetail(runKey, beat);
  // a diagnosis reads the whole run: not before the page stands
  const diagnosis = useFindings(runKey, Math.floor(beat / DOCTOR_EVERY));
  const now = TABS.some(([id]) => id === tab) ? tab : "overview";

  useEffect(() => {
    const name = detail.value?.name ?? plainKey(runKey).split("/").pop() ?? "";
    document.title = `${name} · ${TABS.find(([id]) => id === now)?.[1] ?? ""} · Barograph`;
  }, [detail.value?.name, now]);

  useStory(now === "doctor" ? query.get("finding") : null);

  if (!detail.value) {
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
  const props: TabProps = { runKey, detail: detail.value, diagnosis: diagnosis.value, query, beat };
  return (
    <div class="run">
      <Head detail={detail.value} />
      <nav class="tabs" aria-label="Views of this run">
        {TABS.map(([id, says, icon]) => (
          <a key={id} class={`tab ${id === now ? "here" : ""}`} href={runPlace(runKey, id)} aria-current={id === now ? "page" : undefined}>
            <Icon name={icon} /> {says}
          </a>
        ))}
      </nav>
      {now === "overview" && <Overview {...props} />}
      {now === "charts" && <ChartsTab {...props} />}
      {now === "layers" && <LayersTab {...props} />}
      {now === "system" && <SystemTab {...props} />}
      {now === "doctor" && <DoctorView runKey={runKey} />}
    </div>
  );
}

function Head({ detail }: { detail: Detail }) {
  return (
    <header class="run-head">
      <h1 title={plainKey(detail.key)}>{detail.name || detail.id}</h1>
      <StatusMark status={detail.status} since={detail.status_since} />
      <div class="run-progress">
        <Progress row={detail} />
      </div>
      {Object.values(detail.findings ?? {}).some((count) => (count ?? 0) > 0) && <FindingBadges row={detail} all />}
      <span class="badges">
        {detail.tags.map((tag) => (
          <span class="tag" key={tag} title={tag}>
            {tag}
          </span>
        ))}
      </span>
      <span class="grow" />
      <a class="button" href={`/compare?run=${encodeURIComponent(detail.key)}`}>
        <Icon name="compare" /> Compare
      </a>
      <a class="button" href={`/api/runs/${detail.key}/report.html`} download title="One file with everything of this page, which opens anywhere">
        <Icon name="download" /> Report
      </a>
    </header>
  );
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
