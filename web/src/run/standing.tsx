/** How a run stands: what went wrong, with the last lines of its output; else what the rules found.
 *
 * In:   the run's detail, its diagnosis.
 * Out:  the worst first. The room is kept while the rules are checked, so that nothing below moves.
 */

import type { Diagnosis, Finding } from "../api/types.ts";
import { byRule, split } from "../doctor/headline.ts";
import { runPlace } from "../shell/address.ts";
import { Icon } from "../shell/icon.tsx";
import { statusWords } from "../shell/states.ts";
import { count, whole } from "../shell/text.ts";
import { type RunDetail, storyOf } from "./data.ts";

const SHOWN = 4;
const LAST_LINES = 8;

interface Props {
  runKey: string;
  detail: RunDetail;
  diagnosis: Diagnosis | null;
}

export function Standing({ runKey, detail, diagnosis }: Props) {
  return (
    <section class="panel standing" aria-label="State and findings">
      <Ending detail={detail} worst={diagnosis?.findings[0]} />
      <Findings {...{ runKey, detail, diagnosis }} />
    </section>
  );
}

/** The state of a run that did not end as it should. */
function Ending({ detail, worst }: { detail: RunDetail; worst: Finding | undefined }) {
  const { word, says, tone } = statusWords(detail.status, detail.phase);
  if (tone !== "bad") return null;
  const { ending, step, total_steps: total } = detail;
  const lines = (ending?.lines ?? []).slice(-LAST_LINES);
  const where = step === null ? "" : ` after step ${whole(step)}${total ? ` of ${whole(total)}` : ""}`;
  // of a run that diverged the finding knows since when
  const [first, rest] = detail.status === "diverged" && worst ? split(worst.message) : ["", ""];
  const title = first ? `Diverged: ${first.charAt(0).toLowerCase()}${first.slice(1)}` : `${sentence(word)}${where}`;
  return (
    <div class="ending" role="status">
      <h2>
        <Icon name="critical" /> {title}
      </h2>
      <p>{rest || (ending?.reason ? `${sentence(ending.reason)}.` : says)}</p>
      {ending?.traceback && (
        <details open>
          <summary>Traceback</summary>
          <pre class="code" tabIndex={0}>
            {ending.traceback.trimEnd()}
          </pre>
        </details>
      )}
      {lines.length > 0 && (
        <details open={!ending?.traceback && detail.status !== "diverged"}>
          <summary>Last lines of the output</summary>
          <pre class="code" tabIndex={0}>
            {lines.join("\n")}
          </pre>
        </details>
      )}
    </div>
  );
}

const sentence = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

function Findings({ runKey, detail, diagnosis }: Props) {
  const bad = statusWords(detail.status).tone === "bad";
  if (!diagnosis)
    return (
      <p class="quiet" style={{ minHeight: `${roomOf(detail.findings, bad)}px` }}>
        Checking the rules …
      </p>
    );
  const serious = diagnosis.findings.filter((one) => one.severity !== "info");
  const said = bad ? diagnosis.findings[0] : undefined; // by the state above
  const isSaid = (one: Finding): boolean => one.kind === "crash" || (detail.status === "diverged" && one === said);
  const kept = serious.length ? serious : byRule(diagnosis.findings).map(([one]) => one);
  const shown = kept.filter((one) => !bad || !isSaid(one)).slice(0, SHOWN);
  return (
    <>
      {!serious.length && !bad && (
        <p class="soft">
          {diagnosis.headline}. {count(diagnosis.checked.length, "rule")} checked, {whole(diagnosis.abstained.length)}{" "}
          lacked their metrics.
        </p>
      )}
      {shown.length > 0 && (
        <ul class="findings-short">
          {shown.map((one) => (
            <li key={`${one.rule} ${one.step} ${one.key}`}>
              <span class={`tone-${one.severity}`}>
                <Icon name={one.severity} label={one.severity} />
              </span>
              <a href={storyOf(runKey, one)}>step {whole(one.step)}</a>
              <span>{one.message}</span>
            </li>
          ))}
        </ul>
      )}
      {diagnosis.findings.length > 0 && (
        <a class="small" href={runPlace(runKey, "doctor")}>
          {count(diagnosis.findings.length, "finding")}, with evidence and what to try
        </a>
      )}
    </>
  );
}

const [ROW, SENTENCE, LINK] = [26, 30, 22]; // pixels that a finding takes, a sentence, the way to the doctor's page

/** The pixels that the findings will take, as far as their numbers are known. */
function roomOf({ critical, warning, info }: RunDetail["findings"], bad: boolean): number {
  const [serious, all] = [critical + warning, critical + warning + info];
  const listed = Math.min(SHOWN, (serious || info) - (bad && all ? 1 : 0)); // one is said by the state above
  const sentence = !serious && !bad;
  return Math.max(LINK, listed * ROW + (sentence ? SENTENCE : 0) + (all ? LINK : 0));
}
