/** The few numbers that everybody looks at first, large: losses, progress, time left, speed, cost.
 *
 * In:   a run's row and what stands beside it.
 * Out:  a strip of figures whose places do not move as values come.
 */

import { num } from "../api/values.ts";
import { statusWords } from "../shell/states.ts";
import { compact, duration, moment, number, percent, whole } from "../shell/text.ts";
import type { RunDetail } from "./data.ts";
import { cost } from "./machines.ts";
import { evaluationsOf, pickMain } from "./main.ts";

interface FigureProps {
  says: string;
  value: string;
  /** A second line: where it stood best, of how many. */
  note?: string;
  bad?: boolean;
  /** Of a whole, from 0 to 1: a line below. */
  share?: number | null;
}

export function Figure({ says, value, note = "", bad = false, share = null }: FigureProps) {
  return (
    <div class="figure">
      <dt title={says}>{says}</dt>
      <dd class={bad ? "bad" : ""}>{value}</dd>
      <dd class="note" title={note}>
        {note || "\u00a0"}
      </dd>
      {share !== null && (
        <dd class="progress-bar" aria-hidden="true">
          <span style={{ width: `${(100 * share).toFixed(1)}%` }} />
        </dd>
      )}
    </div>
  );
}

export function Figures({ detail }: { detail: RunDetail }) {
  const { last, best, step, total_steps: total, remaining_seconds: left } = detail;
  const names = Object.keys(last);
  const main = pickMain(names, detail);
  const { open } = statusWords(detail.status, detail.phase);
  const goodput = num(detail.goodput?.["goodput"]);
  const energy = detail.energy ?? {};
  const loss = main.losses.find((name) => name !== detail.eval_loss && !evaluationsOf([name]).length);
  const shown = [loss, evaluationsOf(names)[0] ?? detail.eval_loss];
  const finishes = left !== null && Number.isFinite(left) ? moment(Date.now() / 1000 + left) : "";
  const speed = main.speed[0];
  const mfu = main.mfu[0];
  return (
    <dl class="figures-strip" aria-label="Key figures">
      {shown.map((name) => {
        if (!name) return null;
        const value = num(last[name]);
        const least = num(best[name]);
        return (
          <Figure
            key={name}
            says={name}
            value={number(value)}
            bad={value !== null && !Number.isFinite(value)}
            note={least !== null ? `best ${number(least)}` : ""}
          />
        );
      })}
      <Figure
        says="step"
        value={step === null ? "none" : whole(step)}
        note={step !== null && total ? `of ${whole(total)}, ${percent(Math.min(1, step / total), 0)}` : ""}
        share={step !== null && total ? Math.max(0, Math.min(1, step / total)) : null}
      />
      {open && total ? (
        <Figure says="time left" value={duration(left)} note={finishes ? `until ${finishes.slice(0, -3)}` : ""} />
      ) : null}
      <Figure
        says="wall time"
        value={duration(detail.wall_seconds)}
        note={goodput !== null ? `${percent(goodput, 0)} of it in steps` : ""}
      />
      {speed && <Figure says={SPEEDS.test(speed) ? "tokens per second" : speed} value={compact(num(last[speed]))} />}
      {mfu && (
        <Figure
          says="MFU"
          value={/percent|pct|%/.test(mfu) ? percent((num(last[mfu]) ?? NaN) / 100) : percent(num(last[mfu]))}
        />
      )}
      {energy["cost"] !== undefined && (
        <Figure
          says="cost"
          value={cost(num(energy["cost"]), energy)}
          note={num(energy["gpu_hours"]) ? `${number(num(energy["gpu_hours"]), 3)} GPU hours` : ""}
        />
      )}
      {energy["cost"] === undefined && energy["tokens"] !== undefined && (
        <Figure says="tokens" value={compact(num(energy["tokens"]))} />
      )}
    </dl>
  );
}

const SPEEDS = /tok/i;
