/** The state of a run, its progress and its findings: a word, a drawing and a colour, never a colour alone.
 *
 * In:   a row.
 * Out:  marks for tables, cards and heads.
 */

import type { Row, Severity } from "../api/types.ts";
import { runPlace } from "./address.ts";
import { Icon } from "./icon.tsx";
import { statusWords } from "./states.ts";
import { count, duration, moment, whole } from "./text.ts";

interface StatusProps {
  status: string;
  since?: number | null;
  phase?: string | null;
  problem?: string | null;
  /** The drawing alone; its word is there for those who cannot see it. */
  bare?: boolean;
}

export function StatusMark({ status, since, phase, problem, bare }: StatusProps) {
  const { word, says, tone, icon, open } = statusWords(status, phase);
  const title = problem ? `${says} ${problem}` : since ? `${says} Since ${moment(since)}.` : says;
  return (
    <span
      class={`status tone-${tone} ${open && tone === "info" ? "live" : ""}`}
      title={bare ? `${word}: ${title}` : title}
    >
      <Icon name={icon} label={bare ? word : undefined} />
      {!bare && <span>{word}</span>}
      {problem && <Icon name="warning" label="some files could not be read" />}
    </span>
  );
}

/** The state of a row. That of a run that did not end as it should leads to the doctor. */
export function RowStatus({ row, bare }: { row: Row; bare?: boolean }) {
  const mark = (
    <StatusMark status={row.status} since={row.status_since} phase={row.phase} problem={row.problem} bare={bare} />
  );
  const { word, tone } = statusWords(row.status, row.phase);
  if (tone !== "bad") return mark;
  return (
    <a class="status-link" href={runPlace(row.key, "doctor")} tabIndex={-1} aria-label={`${word}: open the doctor`}>
      {mark}
    </a>
  );
}

/** How far a run is: a bar, steps, and the time that is left. */
export function Progress({ row }: { row: Row }) {
  const { step, total_steps: total, remaining_seconds: left } = row;
  if (step === null) return <span class="quiet">{statusWords(row.status).open ? "no step yet" : "no steps"}</span>;
  if (!total) return <span class="progress-text">step {whole(step)}</span>;
  const share = Math.max(0, Math.min(1, step / total));
  const { open, tone } = statusWords(row.status);
  // steps count from 0 or from 1: at its end, a run that finished has made them all
  if (!open && step >= total - 1)
    return (
      <span class="progress-text" title={`${whole(total)} steps, all of them`}>
        {count(total, "step")}
      </span>
    );
  const remaining = open && left !== null && Number.isFinite(left) ? `${duration(left)} left` : "";
  return (
    <span class="progress" title={`Step ${whole(step)} of ${whole(total)}${remaining ? `, ${remaining}` : ""}`}>
      <span class={`progress-bar tone-${tone}`} aria-hidden="true">
        <span style={{ width: `${(share * 100).toFixed(1)}%` }} />
      </span>
      <span class="progress-text">
        {`${whole(step)} / ${whole(total)}`}
        {remaining && <span class="quiet"> {remaining}</span>}
      </span>
    </span>
  );
}

const SEVERITIES: readonly Severity[] = ["critical", "warning", "info"];
const NAMES: Record<Severity, [string, string]> = {
  critical: ["critical finding", "critical findings"],
  warning: ["warning", "warnings"],
  info: ["info", "info"],
};

/** Badges that lead to the doctor. `all`: info too, which else stands only where nothing is worse. */
export function FindingBadges({ row, all }: { row: Pick<Row, "key" | "findings" | "examined">; all?: boolean }) {
  const told = SEVERITIES.filter((severity) => (row.findings[severity] ?? 0) > 0);
  const some = all || told.length <= 1 ? told : told.filter((severity) => severity !== "info");
  if (some.length === 0)
    return row.examined === false ? (
      <span class="quiet small" title="No rule has checked this run yet.">
        not examined
      </span>
    ) : (
      <span class="quiet" title="The rules that have their metrics found no problem.">
        <Icon name="check" label="no findings" />
      </span>
    );
  return (
    <span class="badges">
      {some.map((severity) => {
        const number = row.findings[severity] ?? 0;
        const words = count(number, ...NAMES[severity]);
        return (
          <a
            key={severity}
            class={`badge ${severity}`}
            href={runPlace(row.key, "doctor")}
            title={words}
            aria-label={`${words}: open the doctor`}
          >
            <Icon name={severity} />
            {whole(number)}
          </a>
        );
      })}
    </span>
  );
}
