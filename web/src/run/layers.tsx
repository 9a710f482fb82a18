/** The model by layer: heat maps, depth profiles, distributions over time, loads of experts, the muP check.
 *
 * In:   a run; table, field, layer, step, scale of the address.
 * Out:  one map with what a click on it opens: the curve of a layer and its distribution.
 */

import { useMemo } from "preact/hooks";
import { Chart } from "../chart/chart.tsx";
import { colourOf } from "../shell/runcolours.ts";
import { setQuery } from "../shell/route.ts";
import { useTheme } from "../shell/theme.ts";
import { whole } from "../shell/text.ts";
import type { LayersHeader } from "../api/types.ts";
import { useFrame } from "./data.ts";
import { Experts } from "./experts.tsx";
import { Heat } from "./heat.tsx";
import { Histograms } from "./histograms.tsx";
import { WidthCheck } from "./mup.tsx";
import { Profile } from "./profile.tsx";
import type { TabProps } from "./view.tsx";

const COLUMNS = 240;
const BEATS = 2; // a new map each other look at a run that goes on

export function LayersTab(props: TabProps) {
  const { runKey, query, beat, detail } = props;
  const theme = useTheme();
  const asked = new URLSearchParams({ buckets: String(COLUMNS) });
  for (const name of ["table", "field"]) if (query.get(name)) asked.set(name, query.get(name) ?? "");
  const answer = useFrame<LayersHeader>(runKey, `/layers?${asked}`, Math.floor(beat / BEATS));
  const frame = answer.value;
  const header = frame?.header;
  const steps = useMemo(() => (frame && header ? frame.column(header.columns.step) : new Float64Array(0)), [frame]);
  const values = useMemo(() => (frame && header ? frame.column(header.columns.value) : new Float64Array(0)), [frame]);
  const positive = useMemo(() => values.every((value) => !(value < 0)) && values.some((value) => value > 0), [values]);

  if (!frame || !header?.layers.length) {
    if (!answer.error && !frame)
      return (
        <p class="quiet" role="status">
          Loading …
        </p>
      );
    return (
      <div class="layers">
        <Experts runKey={runKey} beat={beat}>
          <section class="panel block" aria-label="Layers">
            <h2>No layer statistics</h2>
            <p class="soft">
              {answer.error ? sentence(answer.error) : "This run has no statistics by layer."} After the optimizer is
              made, this line records gradients, weights, updates and activations of each layer:
            </p>
            <pre class="code" tabIndex={0}>
              run.watch(model, optimizer)
            </pre>
          </section>
        </Experts>
      </div>
    );
  }
  const log = query.get("scale") ? query.get("scale") === "log" : positive && spread(values) > 30;
  const chosen = header.layers.indexOf(query.get("layer") ?? "");
  const layer = header.layers[chosen];
  const stepAt = nearestColumn(steps, query.get("step"));
  const series = (name: string): string => `${header.table}/${name}/${header.field}`;
  return (
    <div class="layers">
      <div class="charts-bar">
        <Choice
          label="quantity"
          value={header.table}
          all={header.tables}
          set={(table) => setQuery({ table, field: null, layer: null }, true)}
        />
        <Choice
          label="statistic"
          value={header.field}
          all={header.fields}
          set={(field) => setQuery({ field, table: header.table }, true)}
        />
        <span class="segmented" role="group" aria-label="Scale of the colours">
          {(["linear", "log"] as const).map((kind) => (
            <button
              key={kind}
              type="button"
              class="button"
              aria-pressed={log === (kind === "log")}
              onClick={() => setQuery({ scale: kind }, true)}
            >
              {kind}
            </button>
          ))}
        </span>
        <span class="quiet">
          {whole(header.layers.length)}
          {(header.layers_total ?? 0) > header.layers.length ? ` of ${whole(header.layers_total)}` : ""} layers,{" "}
          {whole(steps.length)} steps
        </span>
      </div>
      <section class="panel block" aria-label="Layers over steps">
        <h2>
          {header.table} · {header.field} <span class="quiet">by layer and step, the first layer on top</span>
        </h2>
        <Heat
          title={`${header.table} ${header.field}`}
          rows={header.layers}
          steps={steps}
          values={values}
          log={log}
          marks={header.marks ?? []}
          chosen={chosen >= 0 ? chosen : null}
          at={query.get("step") ? stepAt : null}
          onPick={(row, column) => setQuery({ layer: header.layers[row] ?? null, step: steps[column] ?? null }, true)}
        />
      </section>
      <div class="two">
        {layer !== undefined && (
          <Chart
            key={series(layer)}
            title={series(layer)}
            series={[{ run: runKey, name: series(layer), label: layer, colour: colourOf(runKey, theme) }]}
            x="step"
            logY={log}
            height={240}
          />
        )}
        <Profile
          title={`${header.table} ${header.field} over depth at step ${whole(steps[stepAt])}`}
          layers={header.layers}
          values={Array.from(header.layers, (_, row) => values[row * steps.length + stepAt] ?? NaN)}
          first={Array.from(header.layers, (_, row) => values[row * steps.length] ?? NaN)}
          log={log}
          chosen={chosen}
          onPick={(row) => setQuery({ layer: header.layers[row] ?? null }, true)}
        />
      </div>
      {steps.length > 1 && (
        <label class="step-slider">
          <span>
            step <strong>{whole(steps[stepAt])}</strong>
          </span>
          <input
            type="range"
            min={0}
            max={steps.length - 1}
            value={stepAt}
            aria-valuetext={`step ${whole(steps[stepAt])}`}
            onInput={(event) => setQuery({ step: steps[Number(event.currentTarget.value)] ?? null }, true)}
          />
        </label>
      )}
      <Histograms
        runKey={runKey}
        table={header.table}
        layer={layer ?? null}
        name={query.get("histogram")}
        beat={Math.floor(beat / BEATS)}
      />
      <Experts runKey={runKey} beat={Math.floor(beat / BEATS)} />
      {(detail.families?.["mup"] ?? 0) > 0 && <WidthCheck runKey={runKey} />}
    </div>
  );
}

export function Choice({
  label,
  value,
  all,
  set,
}: {
  label: string;
  value: string;
  all: readonly string[];
  set: (value: string) => void;
}) {
  return (
    <label class="labelled">
      <span class="quiet">{label}</span>
      <select class="field" value={value} onChange={(event) => set(event.currentTarget.value)}>
        {all.map((one) => (
          <option key={one} value={one}>
            {one}
          </option>
        ))}
      </select>
    </label>
  );
}

const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`.replace(/\.\.$/, ".");

/** How many times the smallest positive value the largest is. */
function spread(values: Float64Array): number {
  let low = Infinity;
  let high = 0;
  for (const value of values) {
    if (!(value > 0) || value === Infinity) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return high / low || 1;
}

function nearestColumn(steps: Float64Array, text: string | null): number {
  if (text === null || !steps.length) return Math.max(0, steps.length - 1);
  const wanted = Number(text);
  let best = 0;
  for (let at = 0; at < steps.length; at++)
    if (Math.abs((steps[at] ?? 0) - wanted) < Math.abs((steps[best] ?? 0) - wanted)) best = at;
  return best;
}
