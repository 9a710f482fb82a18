/** Loads of experts: who gets how many tokens, all experts of all layers in one map.
 *
 * In:   a run.
 * Out:  the map over steps, or layers by experts at the last step where there are too many; the dead ones in words;
 *       nothing for a run that has no experts.
 */

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { ExpertsHeader } from "../api/types.ts";
import { count, number, whole } from "../shell/text.ts";
import { useFrame } from "./data.ts";
import { Heat } from "./heat.tsx";
import { DEAD, deadExperts, evenShares, sharesAt } from "./loads.ts";

const MOST_ROWS = 320; // two pixels each
const NAMED = 6;

/** children: what stands below, once it is known whether there are experts. */
export function Experts({ runKey, beat, children }: { runKey: string; beat: number; children?: ComponentChildren }) {
  const { value: frame, error } = useFrame<ExpertsHeader>(runKey, "/experts?buckets=200", beat);
  const [chosen, choose] = useState<"steps" | "now" | null>(null);
  const header = frame?.header;
  const found = useMemo(() => {
    if (!frame || !header?.layers.length) return null;
    const steps = frame.column(header.columns.step);
    const all = { layers: header.layers, experts: header.experts, steps, load: frame.column(header.columns.load) };
    const shares = evenShares(all);
    const rows = header.layers.flatMap((layer) => upTo(header.experts).map((expert) => `${layer}, expert ${expert}`));
    const heads = header.layers.flatMap((layer) => upTo(header.experts).map((expert) => (expert ? null : layer)));
    return {
      steps,
      shares,
      rows,
      heads,
      dead: deadExperts(all, shares),
      last: sharesAt(shares, steps.length, steps.length - 1),
    };
  }, [frame]);
  if (!header?.layers.length || !found) return frame || error ? <>{children}</> : null;
  const { steps, shares, rows, heads, dead, last } = found;
  const view = chosen ?? (rows.length > MOST_ROWS ? "now" : "steps");
  const known = last.filter(Number.isFinite);
  return (
    <>
      <section class="panel block" aria-label="Loads of experts">
        <div class="charts-bar">
          <h2>
            Loads of experts{" "}
            <span class="quiet">
              {count(header.layers.length, "layer")} of {count(header.experts, "expert")}
            </span>
          </h2>
          <span class="segmented" role="group" aria-label="What the map shows">
            <button type="button" class="button" aria-pressed={view === "steps"} onClick={() => choose("steps")}>
              over steps
            </button>
            <button type="button" class="button" aria-pressed={view === "now"} onClick={() => choose("now")}>
              layers by experts
            </button>
          </span>
        </div>
        {dead.length > 0 ? (
          <p class="bad" role="status">
            {count(dead.length, "expert")} below {100 * DEAD}% of an even share:{" "}
            {dead
              .slice(0, NAMED)
              .map((one) => `${one.layer} expert ${one.expert} since step ${whole(one.since)}`)
              .join("; ")}
            {dead.length > NAMED && ` and ${whole(dead.length - NAMED)} more`}.
          </p>
        ) : (
          <p class="soft">
            In times of an even share, at step {whole(steps[steps.length - 1])}: from {number(Math.min(...known), 2)} to{" "}
            {number(Math.max(...known), 3)}. No expert is below {100 * DEAD}%.
          </p>
        )}
        {view === "steps" ? (
          <Heat
            title="Load of each expert in times of an even share"
            rows={rows}
            heads={heads}
            group={header.experts}
            steps={steps}
            values={shares}
            log
            unit=" of an even share"
            rowHeight={Math.max(2, Math.min(18, Math.floor(640 / rows.length)))}
          />
        ) : (
          <Heat
            title={`Load of each expert at step ${whole(steps[steps.length - 1])}`}
            rows={header.layers}
            steps={Float64Array.from(upTo(header.experts))}
            column="expert"
            values={last}
            log
            unit=" of an even share"
            rowHeight={Math.max(4, Math.min(22, Math.floor(640 / header.layers.length)))}
          />
        )}
      </section>
      {children}
    </>
  );
}

const upTo = (count: number): number[] => Array.from({ length: count }, (_, at) => at);
