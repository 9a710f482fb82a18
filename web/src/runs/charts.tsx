/** The charts beside the table: a panel per metric, with the runs that are drawn.
 *
 * In:   the runs that are drawn, the state of the table.
 * Out:  panels; the axis, the smoothing and how many runs are drawn, as a person sets them.
 */

import { useMemo } from "preact/hooks";
import { groupLabel, isGroup, oneOf, runsOf } from "../api/groups.ts";
import type { Key, Row } from "../api/types.ts";
import { useChartGroup } from "../chart/choice.ts";
import { Panels } from "../chart/multi.tsx";
import { ChartToolbar } from "../chart/toolbar.tsx";
import { lossesOf } from "../run/main.ts";
import { useRoute } from "../shell/route.ts";
import { count, whole } from "../shell/text.ts";
import { labelsOf } from "./columns.ts";
import { MOST, type TableState } from "./state.ts";

/** The paths of keys in a label: `width = 64` says what `model.width = 64` does, where there is room for few letters. */
const PATHS = /(^|, )[\w./-]+\.(?=[\w-]+ = )/g;
const KEYS = /(^|, )([\w./-]+) = /g; // as the heads of the table have them

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
  const group = useChartGroup(useRoute().query, "runs");
  const keys = drawn.join(" ");
  const runs = useMemo(() => [...drawn], [keys]);
  const told = labelsOf(runs.flatMap((key) => rows.get(key) ?? []));
  for (const key of runs)
    if (isGroup(key))
      told.set(key, `${groupLabel(key).replace(PATHS, "$1").replace(KEYS, "$1$2 ")} (${runsOf(key).length})`);
  const labels = useMemo(() => Object.fromEntries(told), [keys, [...told.values()].join("\n")]);
  const losses = lossesOf(runs.flatMap((key) => rows.get(oneOf(key)) ?? []));
  const projects = new Set(runs.map((key) => rows.get(oneOf(key))?.project ?? ""));
  return (
    <section class="charts-pane" aria-label="Charts of the runs that are drawn">
      <div class="pane-bar">
        <span
          class="soft"
          title={grouped ? "Mean over the runs of each group; the band is its standard deviation" : undefined}
        >
          {runs.length === 0
            ? "Nothing is drawn"
            : `Drawing ${whole(runs.length)} of ${grouped ? count(of, "group") : whole(of)}`}
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
        <ChartToolbar group={group} />
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
            losses={losses}
            group={group}
            project={projects.size === 1 ? ([...projects][0] ?? "") : ""}
          />
        )}
      </div>
    </section>
  );
}
