/** The charts beside the table: a panel per metric, with the runs that are drawn.
 *
 * In:   the runs that are drawn, the state of the table.
 * Out:  panels; the axis, the smoothing and how many runs are drawn, as a person sets them.
 */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { groupLabel, isGroup, oneOf, runsOf } from "../api/groups.ts";
import type { Key, Row } from "../api/types.ts";
import { Panels } from "../chart/multi.tsx";
import { Pop } from "../shell/pop.tsx";
import { Icon } from "../shell/icon.tsx";
import { count, whole } from "../shell/text.ts";
import { labelsOf } from "./columns.ts";
import { useLit } from "./highlight.ts";
import { MOST, SMOOTHEST, type TableState } from "./state.ts";

export const AXES: readonly [string, string][] = [
  ["step", "step"],
  ["relative", "time since start"],
  ["time", "clock time"],
  ["tokens", "tokens"],
  ["samples", "samples"],
];

interface Props {
  drawn: readonly Key[];
  /** How many runs or groups there are. */
  of: number;
  grouped: boolean;
  rows: ReadonlyMap<Key, Row>;
  state: TableState;
  update: (changes: Partial<TableState>, replace?: boolean) => void;
}

export function RunCharts({ drawn, of, grouped, rows, state, update }: Props) {
  const lit = useLit();
  const keys = drawn.join(" ");
  const runs = useMemo(() => [...drawn], [keys]);
  const told = labelsOf(runs.flatMap((key) => rows.get(key) ?? []));
  for (const key of runs) if (isGroup(key)) told.set(key, `${groupLabel(key)} (n = ${runsOf(key).length})`);
  const labels = useMemo(() => Object.fromEntries(told), [keys, [...told.values()].join("\n")]);
  const projects = new Set(runs.map((key) => rows.get(oneOf(key))?.project ?? ""));
  return (
    <section class="charts-pane" aria-label="Charts of the runs that are drawn">
      <div class="pane-bar">
        <span
          class="soft"
          title={grouped ? "Mean over the runs of each group; the band is its standard deviation" : undefined}
        >
          {runs.length === 0 ? "Nothing is drawn" : `${whole(runs.length)} of ${count(of, grouped ? "group" : "run")}`}
        </span>
        {of > MOST[0] && (
          <label class="labelled">
            <span class="unseen">Maximum runs drawn</span>
            <select
              class="field"
              value={String(state.most)}
              title="Maximum runs drawn"
              onChange={(event) => update({ most: Number(event.currentTarget.value) })}
            >
              {[...new Set([...MOST, state.most])]
                .sort((a, b) => a - b)
                .map((most) => (
                  <option key={most} value={String(most)}>
                    Show top {most}
                  </option>
                ))}
            </select>
          </label>
        )}
        {state.only.size > 0 && (
          <button type="button" class="button bare" onClick={() => update({ only: new Set() })}>
            Show the others too
          </button>
        )}
        {state.only.size === 0 && state.hidden.size > 0 && (
          <button type="button" class="button bare" onClick={() => update({ hidden: new Set() })}>
            Show the {whole(state.hidden.size)} hidden
          </button>
        )}
        <span class="grow" />
        <AxisChoice axis={state.axis} set={(axis) => update({ axis })} />
        <Smoothing value={state.smooth} set={(smooth) => update({ smooth }, true)} />
      </div>
      <div class="charts-inside">
        {runs.length === 0 ? (
          <div class="empty small-empty">
            <p class="soft">
              Every run of the table is hidden. The coloured squares before the names show and hide runs, and{" "}
              <kbd>h</kbd> does for the one under the cursor.
            </p>
          </div>
        ) : (
          <Panels
            runs={runs}
            labels={labels}
            x={state.axis}
            smooth={state.smooth}
            project={projects.size === 1 ? ([...projects][0] ?? "") : ""}
            highlight={lit}
          />
        )}
      </div>
    </section>
  );
}

export function AxisChoice({
  axis,
  set,
  axes = AXES,
}: {
  axis: string;
  set: (axis: string) => void;
  axes?: readonly (readonly [string, string])[];
}) {
  const known = axes.some(([name]) => name === axis);
  return (
    <label class="labelled">
      <span class="quiet">x-axis</span>
      <select class="field" aria-label="x-axis" value={axis} onChange={(event) => set(event.currentTarget.value)}>
        {axes.map(([name, says]) => (
          <option key={name} value={name}>
            {says}
          </option>
        ))}
        {!known && <option value={axis}>{axis}</option>}
      </select>
    </label>
  );
}

/** A slider that is finer near its end, where smoothing is felt. */
export function Smoothing({ value, set }: { value: number; set: (value: number) => void }) {
  const [own, setOwn] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>();
  useEffect(() => setOwn(value), [value]);
  const place = own <= 0 ? 0 : 1 - Math.sqrt(Math.max(0, 1 - own / SMOOTHEST));
  return (
    <Pop
      button={
        <>
          <Icon name="chart" /> {own > 0 ? `Smoothing ${own.toFixed(own > 0.99 ? 3 : 2)}` : "Smoothing"}
        </>
      }
      label="Smoothing"
      class={`button ${own > 0 ? "on" : ""}`}
      paneClass="smoothing"
    >
      {() => (
        <>
          <label for="smoothing">Smoothing</label>
          <input
            id="smoothing"
            type="range"
            min="0"
            max="1"
            step="0.01"
            value={String(place)}
            aria-valuetext={own.toFixed(3)}
            onInput={(event) => {
              const at = Number(event.currentTarget.value);
              const next = at <= 0 ? 0 : Math.round(SMOOTHEST * (1 - (1 - at) ** 2) * 1000) / 1000;
              setOwn(next);
              clearTimeout(timer.current);
              timer.current = setTimeout(() => set(next), 120);
            }}
          />
          <output>{own.toFixed(3)}</output>
          <button
            type="button"
            class="button bare"
            onClick={() => {
              setOwn(0);
              set(0);
            }}
          >
            none
          </button>
          <p class="quiet small">A moving mean; the values stay behind it as a band.</p>
        </>
      )}
    </Pop>
  );
}
