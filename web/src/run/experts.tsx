/** Loads of experts: who gets how many tokens, over steps, by layer.
 *
 * In:   a run.
 * Out:  a heat map of each layer's experts; nothing for a run that has none.
 */

import { useMemo, useState } from "preact/hooks";
import type { ExpertsHeader } from "../api/types.ts";
import { whole } from "../shell/text.ts";
import { useFrame } from "./data.ts";
import { Heat } from "./heat.tsx";
import { besideEven } from "./heatmap.ts";
import { Choice } from "./layers.tsx";

export function Experts({ runKey, beat }: { runKey: string; beat: number }) {
  const { value: frame } = useFrame<ExpertsHeader>(runKey, "/experts?buckets=200", beat);
  const [chosen, setChosen] = useState("");
  const header = frame?.header;
  const layer = Math.max(0, header?.layers.indexOf(chosen) ?? 0);
  const found = useMemo(() => {
    if (!frame || !header) return null;
    const steps = frame.column(header.columns.step);
    const load = frame.column(header.columns.load);
    const values = new Float64Array(header.experts * steps.length);
    for (let step = 0; step < steps.length; step++) {
      for (let expert = 0; expert < header.experts; expert++) {
        const value = load[(layer * steps.length + step) * header.experts + expert] ?? NaN;
        values[expert * steps.length + step] = value;
      }
    }
    const last = Array.from({ length: header.experts }, (_, expert) => values[(expert + 1) * steps.length - 1] ?? NaN);
    return { steps, values, ...besideEven(last) };
  }, [frame, layer]);
  const names = useMemo(
    () => Array.from({ length: header?.experts ?? 0 }, (_, at) => `expert ${at}`),
    [header?.experts],
  );
  if (!header?.layers.length || !found) return null;
  return (
    <section class="panel block" aria-label="Loads of experts">
      <div class="charts-bar">
        <h2>Loads of experts</h2>
        <Choice label="layer" value={header.layers[layer] ?? ""} all={header.layers} set={setChosen} />
        <span class="quiet small">
          {whole(header.experts)} experts; an even share is {(100 / header.experts).toFixed(1)}%. At the last step from{" "}
          {times(found.least)} to {times(found.most)} of it.
        </span>
      </div>
      <Heat
        title={`Loads of the experts of ${header.layers[layer]}`}
        rows={names}
        steps={found.steps}
        values={found.values}
        log={false}
        rowHeight={Math.max(5, Math.min(18, Math.floor(420 / header.experts)))}
      />
    </section>
  );
}

const times = (load: number): string => (Number.isFinite(load) ? `${load.toFixed(2)}×` : "–");
