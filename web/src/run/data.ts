/** What the run view asks the server for, kept fresh while a run goes on.
 *
 * In:   a run's key.
 * Out:  its detail, its findings, its machines; the error's sentence where there are none.
 */

import { useEffect, useState } from "preact/hooks";
import { getFindings, getFrame, getJson, getRun, runPath } from "../api/client.ts";
import type { Frame } from "../api/frame.ts";
import { listen } from "../api/live.ts";
import { ApiError } from "../api/values.ts";
import type { Detail, Diagnosis, Finding, Key, Row } from "../api/types.ts";
import type { Flag } from "../chart/scene.ts";
import { runPlace } from "../shell/address.ts";
import { useReturns } from "../shell/returns.ts";

export interface Answer<T> {
  value: T | null;
  error: string;
  /** The server said that there is none of this. */
  missing: boolean;
}

const LATER_MS = 2000; // what takes long is asked for again
const PATIENCE = 15;

/** Asks, and asks again when the server says that it is still at it. */
async function patient<T>(ask: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
  for (let turn = 0; ; turn++) {
    try {
      return await ask(signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 503 || turn >= PATIENCE) throw error;
      await new Promise((done) => setTimeout(done, LATER_MS));
      if (signal.aborted) throw error;
    }
  }
}

/** An answer for what `what` names (null: nothing yet), asked again when `again` changes; the old one stays until the new one is there. */
export function useAnswer<T>(what: string | null, ask: (signal: AbortSignal) => Promise<T>, again = 0): Answer<T> {
  const [state, set] = useState<Answer<T> & { what: string | null }>({ what, value: null, error: "", missing: false });
  const returns = useReturns();
  useEffect(() => {
    if (what === null) return;
    const control = new AbortController();
    patient(ask, control.signal).then(
      (value) => !control.signal.aborted && set({ what, value, error: "", missing: false }),
      (error: unknown) => {
        if (control.signal.aborted) return;
        const missing = error instanceof ApiError && (error.status === 404 || error.status === 501);
        set((now) => ({
          what,
          value: now.what === what && !missing ? now.value : null,
          error: (error as Error).message,
          missing,
        }));
      },
    );
    return () => control.abort();
  }, [what, again, returns]);
  return state.what === what ? state : { value: null, error: "", missing: false };
}

/** Counts up, no more often than that, while new points of the run come. */
export function useBeat(run: Key, seconds: number): number {
  const [beat, set] = useState(0);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const note = (): void => {
      timer ??= setTimeout(() => {
        timer = undefined;
        set((now) => now + 1);
      }, seconds * 1000);
    };
    const stop = listen({
      runs: [run],
      onPoints: note,
      onAgain: note,
      onRows: (rows) => rows.some((row) => row.key === run) && note(),
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [run, seconds]);
  return beat;
}

export const useDetail = (run: Key | null, beat: number): Answer<Detail> =>
  useAnswer(run && `detail ${run}`, (signal) => getRun(run ?? "", signal), beat);

export const useFindings = (run: Key | null, beat: number): Answer<Diagnosis> =>
  useAnswer(run && `findings ${run}`, (signal) => getFindings(run ?? "", signal), beat);

export const useFrame = <Header>(run: Key, rest: string, beat = 0): Answer<Frame<Header>> =>
  useAnswer(`${run} ${rest}`, (signal) => getFrame<Header>(runPath(run, rest), signal), beat);

export const useJson = <T>(run: Key, rest: string, beat = 0): Answer<T> =>
  useAnswer(`${run} ${rest}`, (signal) => getJson<T>(runPath(run, rest), signal), beat);

/** A run of which the row is known at least. */
export type RunDetail = Row & Partial<Detail>;

/** The place of a finding in the doctor's page. */
export const storyOf = (run: Key, finding: Pick<Finding, "rule" | "step">): string =>
  `${runPlace(run, "doctor")}?finding=${encodeURIComponent(`${finding.rule}-${finding.step}`)}`;

const record = (value: unknown): Record<string, unknown> =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};

/** The metrics that a finding is about; the loss where it says none. */
function metricsOf({ evidence }: Finding, loss: string | null | undefined): string[] {
  const said = [evidence.spark?.series, evidence["series"]];
  const names = said.filter((one): one is string => typeof one === "string" && one !== "");
  return names.length ? names : [loss ?? "train/loss"];
}

/** What happened in a run, as flags: findings, checkpoints, resumes, rewinds and forks. */
export function flagsOf(run: Key, detail: RunDetail | null, diagnosis: Diagnosis | null): Flag[] {
  const flags: Flag[] = [];
  for (const finding of diagnosis?.findings ?? []) {
    if (finding.severity === "info") continue; // they would cover what is wrong
    flags.push({
      x: finding.step,
      kind: finding.severity,
      label: `Step ${finding.step}: ${finding.message}`,
      href: storyOf(run, finding),
      names: metricsOf(finding, detail?.loss),
    });
  }
  for (const one of detail?.checkpoints ?? []) {
    const step = one["step"];
    if (typeof step === "number")
      flags.push({
        x: step,
        kind: "checkpoint",
        label: `Checkpoint at step ${step}${typeof one["path"] === "string" ? `: ${one["path"]}` : ""}`,
      });
  }
  for (const one of detail?.segments ?? []) {
    const { start_step: step, kind } = record(one);
    if (typeof step === "number" && typeof kind === "string" && kind !== "start")
      flags.push({ x: step, kind: "resume", label: `${kind} at step ${step}` });
  }
  return flags;
}
