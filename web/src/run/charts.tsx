/** The charts of a run: panels by family, series by name, one axis, one range, one cursor for all.
 *
 * In:   a run; x, smooth, range, series, at, together, log of the address.
 * Out:  charts; the address follows what is chosen, so that a copied link shows the same.
 */

import { useEffect, useMemo, useState } from "preact/hooks";
import { Browse } from "../chart/browse.tsx";
import { Group } from "../chart/group.ts";
import { Panels } from "../chart/multi.tsx";
import { formatView, parseView } from "../chart/range.ts";
import { AxisChoice, Smoothing } from "../runs/charts.tsx";
import { Icon } from "../shell/icon.tsx";
import { keep, kept } from "../shell/keep.ts";
import { useKeys } from "../shell/keys.ts";
import { Pop } from "../shell/pop.tsx";
import { setQuery } from "../shell/route.ts";
import { flagsOf } from "./data.ts";
import type { TabProps } from "./view.tsx";

const ADDRESS_MS = 250; // the address gets a range after the movement, not in it

export function ChartsTab({ runKey, detail, diagnosis, query }: TabProps) {
  const x = query.get("x") || "step";
  const smooth = number(query.get("smooth"));
  const group = useMemo(
    () =>
      new Group(
        {
          x,
          smooth,
          logX: query.get("logx") === "1",
          logY: readLog(query.get("logy")),
          typical: query.get("typical") === "1",
          branch: query.get("old") === "0" ? "live" : "all",
        },
        parseView(query.get("range")),
      ),
    [runKey],
  );
  const [side, setSide] = useState(() => kept("series-list", false));
  const picked = [...new Set(query.getAll("series"))];
  const together = query.get("together") === "1";
  const flags = useMemo(() => flagsOf(runKey, detail, diagnosis), [runKey, detail, diagnosis]);
  const labels = useMemo(() => ({ [runKey]: detail.name || detail.id }), [runKey, detail.name]);
  const runs = useMemo(() => [runKey], [runKey]);

  const set = (changes: {
    logX?: boolean;
    logY?: boolean | null;
    typical?: boolean;
    branch?: "live" | "all";
  }): void => {
    group.set(changes);
    const { logX, logY, typical, branch } = group.settings;
    setQuery(
      { logx: logX, logy: logY === null ? null : logY ? "1" : "0", typical, old: branch === "live" ? "0" : null },
      true,
    );
  };

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const leave = group.join({
      onRange: (view, settled) => {
        clearTimeout(timer);
        if (settled) timer = setTimeout(() => setQuery({ range: formatView(view) || null }, true), ADDRESS_MS);
      },
    });
    return () => {
      clearTimeout(timer);
      leave();
    };
  }, [group]);

  // another range in the address: the back button, or a link
  const asked = query.get("range");
  useEffect(() => {
    if ((asked ?? "") !== formatView(group.view)) group.range(parseView(asked), true);
  }, [asked, group]);

  const at = query.get("at");
  useEffect(() => {
    if (at === null || !Number.isFinite(Number(at))) return;
    const timer = setTimeout(() => group.point(Number(at), null), 400); // the charts have their data by then
    return () => clearTimeout(timer);
  }, [at, group]);

  const pick = (names: string[]): void => setQuery({ series: names, at: null }, true);
  const show = (open: boolean): void => {
    setSide(open);
    keep("series-list", open);
  };
  const search = (): void => {
    show(true);
    setTimeout(() => document.getElementById("series-search")?.focus(), 30);
  };
  useKeys("Charts", [
    { keys: "/", says: "search series by name", run: search },
    { keys: "[", says: "previous range", run: () => group.back() },
    { keys: "]", says: "next range", run: () => group.forward() },
    { keys: "0", says: "all of the run", run: () => group.range(null, true) },
    {
      keys: "l",
      says: "logarithmic y axes",
      run: () => set({ logY: group.settings.logY === null ? true : group.settings.logY ? false : null }),
    },
  ]);

  return (
    <div class={`run-charts ${side ? "with-side" : ""}`}>
      <div class="charts-bar">
        <button
          type="button"
          class="button"
          aria-expanded={side}
          aria-controls="series-side"
          onClick={() => (side ? show(false) : search())}
        >
          <Icon name="search" /> Series{" "}
          {detail.series_count !== undefined && (
            <span class="count">{detail.series_count.toLocaleString("en-US")}</span>
          )}
        </button>
        {picked.length > 0 && (
          <>
            {picked.length > 1 && (
              <button
                type="button"
                class="button"
                aria-pressed={together}
                onClick={() => setQuery({ together: !together }, true)}
              >
                in one chart
              </button>
            )}
            <button type="button" class="button bare" onClick={() => pick([])}>
              Clear the {picked.length} picked
            </button>
          </>
        )}
        <span class="grow" />
        <AxisChoice
          axis={x}
          set={(axis) => setQuery({ x: axis === "step" ? null : axis, range: null }, true)}
          axes={axesOf(picked)}
        />
        <Smoothing value={smooth} set={(value) => setQuery({ smooth: value || null }, true)} />
        <View group={group} set={set} />
      </div>
      {side && (
        <aside id="series-side" class="series-side" aria-label="Series by name">
          <Browse
            run={runKey}
            picked={picked}
            toggle={(name) => pick(picked.includes(name) ? picked.filter((one) => one !== name) : [...picked, name])}
            addAll={(names) => setQuery({ series: names, together: true }, true)}
          />
        </aside>
      )}
      <div class="charts-main">
        <Panels
          runs={runs}
          labels={labels}
          x={x}
          smooth={smooth}
          project={detail.project}
          group={group}
          flags={flags}
          picked={picked}
          together={together}
          onUnpick={(name) => pick(picked.filter((one) => one !== name))}
        />
      </div>
    </div>
  );
}

/** The axes that everybody has, and what was picked: one metric over another. */
function axesOf(picked: readonly string[]): [string, string][] {
  return [
    ["step", "step"],
    ["relative", "time since start"],
    ["time", "clock time"],
    ["tokens", "tokens"],
    ["samples", "samples"],
    ["train/loss", "train/loss"],
    ...picked.map((name): [string, string] => [name, name]),
  ];
}

interface ViewProps {
  group: Group;
  set: (changes: { logX?: boolean; logY?: boolean | null; typical?: boolean; branch?: "live" | "all" }) => void;
}

function View({ group, set }: ViewProps) {
  const { logX, logY, typical, branch } = group.settings;
  return (
    <Pop
      button={
        <>
          <Icon name="more" /> View
        </>
      }
      label="Chart options"
      class={`button ${logX || logY !== null || typical || branch === "live" ? "on" : ""}`}
      paneClass="view-pane"
    >
      {() => (
        <>
          <label class="choice">
            <input type="checkbox" checked={logX} onChange={(event) => set({ logX: event.currentTarget.checked })} />{" "}
            Logarithmic x axis
          </label>
          <label class="choice">
            y axes
            <select
              class="field"
              value={logY === null ? "own" : logY ? "log" : "linear"}
              onChange={(event) =>
                set({ logY: readLog({ own: null, log: "1", linear: "0" }[event.currentTarget.value] ?? null) })
              }
            >
              <option value="own">automatic</option>
              <option value="log">logarithmic</option>
              <option value="linear">linear</option>
            </select>
          </label>
          <label class="choice">
            <input
              type="checkbox"
              checked={typical}
              onChange={(event) => set({ typical: event.currentTarget.checked })}
            />{" "}
            y axes to the middle 98% of values
          </label>
          <label class="choice">
            <input
              type="checkbox"
              checked={branch === "all"}
              onChange={(event) => set({ branch: event.currentTarget.checked ? "all" : "live" })}
            />{" "}
            Branches that a resume or rewind left behind
          </label>
          <p class="quiet small">
            Drag to zoom, double click for all, Ctrl and the wheel or a pinch to zoom, a sideways wheel or Alt and a
            drag to pan, Shift and a drag to compare a range with the one before it.
          </p>
        </>
      )}
    </Pop>
  );
}

function number(text: string | null): number {
  const value = Number(text ?? 0);
  return Number.isFinite(value) ? Math.max(0, Math.min(0.9999, value)) : 0;
}

function readLog(text: string | null): boolean | null {
  return text === "1" ? true : text === "0" ? false : null;
}
