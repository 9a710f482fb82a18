/** Loads of experts: who gets how many tokens, over steps, by layer.
 *
 * In:   a run.
 * Out:  a heat map of each layer's experts; nothing for a run that has none.
 */

import { useMemo, useState } from "preact/hooks";
import type { ColumnRef } from "../api/types.ts";
import { whole } from "../shell/words.ts";
import { useFrame } from "./data.ts";
import { Heat } from "./heat.tsx";
import { Choice } from "./layers.tsx";

interface Header {
  layers: string[];
  experts: number;
  columns: { step: ColumnRef; load: ColumnRef };
}

export function Experts({ runKey, beat }: { runKey: string; beat: number }) {
  const { value: frame } = useFrame<Header>(runKey, "/experts?buckets=200", beat);
  const [chosen, setChosen] = useState("");
  const header = frame?.header;
  const layer = Math.max(0, header?.layers.indexOf(chosen) ?? 0);
  const found = useMemo(() => {
    if (!frame || !header) return null;
    const steps = frame.column(header.columns.step);
    const load = frame.column(header.columns.load);
    const values = new Float64Array(header.experts * steps.length);
    let least = Infinity;
    let most = -Infinity;
    for (let step = 0; step < steps.length; step++) {
      for (let expert = 0; expert < header.experts; expert++) {
        const value = load[(layer * steps.length + step) * header.experts + expert] ?? NaN;
        values[expert * steps.length + step] = value;
        if (step === steps.length - 1 && Number.isFinite(value)) {
          least = Math.min(least, value);
          most = Math.max(most, value);
        }
      }
    }
    return { steps, values, least, most };
  }, [frame, layer]);
  const names = useMemo(() => Array.from({ length: header?.experts ?? 0 }, (_, at) => `expert ${at}`), [header?.experts]);
  if (!header?.layers.length || !found) return null;
  const even = 1 / header.experts;
  return (
    <section class="panel block" aria-label="Loads of experts">
      <div class="charts-bar">
        <h2>Loads of experts</h2>
        <Choice label="layer" value={header.layers[layer] ?? ""} all={header.layers} set={setChosen} />
        <span class="quiet small">
          {whole(header.experts)} experts; an even share is {(even * 100).toFixed(1)}%. At the last step from {share(found.least, even)} to {share(found.most, even)} of it.
        </span>
      </div>
      <Heat title={`Loads of the experts of ${header.layers[layer]}`} rows={names} steps={found.steps} values={found.values} log={false} rowHeight={Math.max(5, Math.min(18, Math.floor(420 / header.experts)))} />
    </section>
  );
}

/** A load beside the even one: loads are shares, or counts that are no larger than shares of all would be. */
function share(load: number, even: number): string {
  return Number.isFinite(load) ? `${(load <= 1 ? load / even : load).toFixed(2)}×` : "–";
}
