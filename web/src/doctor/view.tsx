/** The doctor: what is wrong with a run, since when, why, and what to do; the worst first, live.
 *
 * In:   a run's key.
 * Out:  findings with their evidence, causes and remedies; what was looked at, and what could not be.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { getFindings } from "../api/client.ts";
import { listen } from "../api/live.ts";
import type { Diagnosis, Finding, Key, Severity } from "../api/types.ts";
import { Icon } from "../shell/icon.tsx";
import { count, whole } from "../shell/text.ts";
import { FindingCard } from "./finding.tsx";
import { byRule } from "./headline.ts";

const AGAIN_MILLISECONDS = 2500; // between two diagnoses of a run that goes on: the rules read all of it

export function DoctorView({ runKey }: { runKey: Key }) {
  const { diagnosis, error } = useDiagnosis(runKey);
  if (!diagnosis) {
    return error ? (
      <div class="message" role="alert">
        <h1>The rules could not be checked</h1>
        <p>{error}</p>
      </div>
    ) : (
      <div class="doctor" aria-busy="true">
        <span class="skeleton" />
        <span class="skeleton tall" />
        <span class="skeleton tall" />
      </div>
    );
  }
  const { findings } = diagnosis;
  const serious = findings.filter((one) => one.severity !== "info");
  const minor = findings.filter((one) => one.severity === "info");
  return (
    <div class="doctor">
      <Verdict diagnosis={diagnosis} />
      {serious.length > 0 && (
        <ol class="findings" aria-label="Findings, the worst first">
          {serious.map((one) => (
            <FindingCard key={identity(one)} finding={one} runKey={runKey} open first={one === findings[0]} />
          ))}
        </ol>
      )}
      {minor.length > 0 && (
        <section>
          <h2>Info</h2>
          <ol class="findings minor" aria-label="Info">
            {byRule(minor).map((group) =>
              group.length === 1 ? (
                <FindingCard key={identity(group[0])} finding={group[0]} runKey={runKey} />
              ) : (
                <Repeated key={group[0].rule} group={group} runKey={runKey} />
              ),
            )}
          </ol>
        </section>
      )}
      <Looked diagnosis={diagnosis} />
    </div>
  );
}

/** Info findings of one rule: one line with their number, each behind it. */
function Repeated({ group, runKey }: { group: [Finding, ...Finding[]]; runKey: Key }) {
  const [first, last] = [Math.min(...group.map((one) => one.step)), Math.max(...group.map((one) => one.last_step))];
  return (
    <li class="finding info">
      <details>
        <summary>
          {group[0].rule.replaceAll("_", " ")}, {whole(group.length)} times, steps {whole(first)} to {whole(last)}:{" "}
          {group[0].message}
        </summary>
        <ol class="findings minor">
          {group.map((one) => (
            <FindingCard key={identity(one)} finding={one} runKey={runKey} />
          ))}
        </ol>
      </details>
    </li>
  );
}

const identity = (one: { rule: string; key: string; segment: number; step: number }): string =>
  `${one.rule} ${one.key} ${one.segment} ${one.step}`;

const WORDS: Record<Severity, [string, string]> = {
  critical: ["critical", "critical"],
  warning: ["warning", "warnings"],
  info: ["info", "info"],
};

function Verdict({ diagnosis: { findings, headline, judged_by: judged } }: { diagnosis: Diagnosis }) {
  const severities: Severity[] = ["critical", "warning", "info"];
  const counts = severities.map((severity) => findings.filter((one) => one.severity === severity).length);
  const [critical = 0, warnings = 0] = counts;
  const worst = critical ? "critical" : warnings ? "warning" : judged === null ? "unknown" : "good";
  return (
    <div class={`verdict ${worst}`} role="status">
      <Icon name={worst === "good" ? "done" : worst} />
      <h2>{headline}</h2>
      <span class="badges">
        {severities.map((severity, at) => {
          const number = counts[at] ?? 0;
          return number > 0 ? (
            <span key={severity} class={`badge ${severity}`}>
              {whole(number)} {WORDS[severity][number === 1 ? 0 : 1]}
            </span>
          ) : null;
        })}
      </span>
    </div>
  );
}

/** What could not be checked is as much an answer as what was found. */
function Looked({ diagnosis: { checked, abstained } }: { diagnosis: Diagnosis }) {
  const needs = new Map<string, string[]>();
  for (const { rule, needs: what } of abstained) needs.set(what, [...(needs.get(what) ?? []), rule]);
  return (
    <section class="looked">
      <h2>Rules</h2>
      <p class="soft">
        {count(checked.length, "rule")} checked this run
        {abstained.length ? `; ${whole(abstained.length)} lacked their metrics.` : "."}
      </p>
      {abstained.length > 0 && (
        <details>
          <summary>Rules not checked, and the metrics they need</summary>
          <table class="facts">
            <thead>
              <tr>
                <th scope="col">Metric to log</th>
                <th scope="col">Rules that need it</th>
              </tr>
            </thead>
            <tbody>
              {[...needs]
                .sort((a, b) => b[1].length - a[1].length)
                .map(([what, rules]) => (
                  <tr key={what}>
                    <td class="mono">{what.replace(/^!/, "").replaceAll("|", " or ")}</td>
                    <td>{rules.map((rule) => rule.replaceAll("_", " ")).join(", ")}</td>
                  </tr>
                ))}
            </tbody>
          </table>
        </details>
      )}
      {checked.length > 0 && (
        <details>
          <summary>Rules checked</summary>
          <p class="rules">{checked.map((rule) => rule.replaceAll("_", " ")).join(", ")}</p>
        </details>
      )}
    </section>
  );
}

/** The diagnosis, again while new points come. */
function useDiagnosis(key: Key): { diagnosis: Diagnosis | null; error: string | null } {
  const [found, set] = useState<{ diagnosis: Diagnosis | null; error: string | null }>({
    diagnosis: null,
    error: null,
  });
  const last = useRef(0);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let gone = false;
    const stop = new AbortController();
    const read = (): void => {
      timer = undefined;
      last.current = Date.now();
      getFindings(key, stop.signal)
        .then((diagnosis) => !gone && set({ diagnosis, error: null }))
        .catch(
          (error: Error) =>
            !gone && error.name !== "AbortError" && set((before) => ({ ...before, error: error.message })),
        );
    };
    const soon = (): void => {
      timer ??= setTimeout(read, Math.max(0, last.current + AGAIN_MILLISECONDS - Date.now()));
    };
    set({ diagnosis: null, error: null });
    read();
    const leave = listen({
      runs: [key],
      onPoints: soon,
      onAgain: soon,
      onRows: (rows) => rows.some((row) => row.key === key) && soon(),
    });
    return () => {
      gone = true;
      clearTimeout(timer);
      stop.abort();
      leave();
    };
  }, [key]);
  return found;
}
