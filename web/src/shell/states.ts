/** The states of a run: a word, a sentence, a tone and a drawing for each.
 *
 * In:   a status as the server has it, and the phase of a live run.
 * Out:  its words.
 */

export interface StatusWords {
  word: string;
  /** What it means, as a sentence. */
  says: string;
  tone: "good" | "info" | "warning" | "bad" | "quiet";
  icon: "run" | "evaluate" | "silent" | "stuck" | "away" | "gone" | "done" | "failed" | "stopped" | "unknown";
  /** Something may still be written. */
  open: boolean;
}

// prettier-ignore
const STATUS: Record<string, StatusWords> = {
  running: { word: "training", says: "The run is training.", tone: "info", icon: "run", open: true },
  training: { word: "training", says: "The run is training.", tone: "info", icon: "run", open: true },
  evaluating: { word: "evaluating", says: "The run is evaluating.", tone: "info", icon: "evaluate", open: true },
  silent: { word: "logging stalled", says: "The process is alive but has logged nothing for a while.", tone: "warning", icon: "silent", open: true },
  stuck: { word: "no steps", says: "The process logs, but no step has been logged for a while.", tone: "warning", icon: "stuck", open: true },
  stalled: { word: "no heartbeat", says: "The process is on another machine and has sent no heartbeat for two minutes.", tone: "warning", icon: "away", open: true },
  crashed: { word: "crashed", says: "The process ended without finishing the run.", tone: "bad", icon: "gone", open: false },
  killed: { word: "killed", says: "The process was killed by a signal.", tone: "bad", icon: "gone", open: false },
  "out of memory": { word: "out of memory", says: "The kernel killed the process because memory ran out.", tone: "bad", icon: "gone", open: false },
  hung: { word: "hung", says: "The process is alive, but no step has been logged for a long time.", tone: "bad", icon: "stuck", open: true },
  terminated: { word: "terminated", says: "The process was terminated before the run's end.", tone: "quiet", icon: "stopped", open: false },
  failed: { word: "failed", says: "The run ended with an error.", tone: "bad", icon: "failed", open: false },
  diverged: { word: "diverged", says: "The run came to its end; its last training loss is not a finite number.", tone: "bad", icon: "failed", open: false },
  imported: { word: "imported", says: "The run was imported; its source does not say how it ended.", tone: "quiet", icon: "stopped", open: false },
  finished: { word: "finished", says: "The run finished.", tone: "good", icon: "done", open: false },
  stopped: { word: "stopped", says: "The run was stopped before its end.", tone: "quiet", icon: "stopped", open: false },
  interrupted: { word: "interrupted", says: "The run was interrupted.", tone: "quiet", icon: "stopped", open: false },
};

/** phase: what a live run says it is at. */
export function statusWords(status: string, phase?: string | null): StatusWords {
  return (
    (status === "running" && phase?.startsWith("eval") ? STATUS.evaluating : undefined) ??
    (Object.hasOwn(STATUS, status) ? STATUS[status] : undefined) ?? {
      word: status || "unknown",
      says: status ? `The run ended as “${status}”.` : "The state is unknown.",
      tone: "quiet",
      icon: "unknown",
      open: false,
    }
  );
}
