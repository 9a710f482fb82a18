/** The charts of a run: panels by family, series by name, one axis, one range, one cursor for all.
 *
 * In:   a run; series, at, together of the address, and what `chart/choice.ts` has there.
 * Out:  charts; the address follows what is chosen, so that a copied link shows the same.
 */

import { useEffect, useMemo, useState } from "preact/hooks";
import { Browse } from "../chart/browse.tsx";
import { useChartGroup } from "../chart/choice.ts";
import { Panels } from "../chart/multi.tsx";
import { ChartToolbar } from "../chart/toolbar.tsx";
import { Icon } from "../shell/icon.tsx";
import { keep, kept } from "../shell/keep.ts";
import { useKeys } from "../shell/keys.ts";
import { setQuery } from "../shell/route.ts";
import { flagsOf } from "./data.ts";
import { lossesOf } from "./main.ts";
import type { TabProps } from "./view.tsx";

export function ChartsTab({ runKey, detail, diagnosis, query }: TabProps) {
  const group = useChartGroup(query, runKey);
  const [side, setSide] = useState(() => kept("series-list", false));
  const picked = [...new Set(query.getAll("series"))];
  const together = query.get("together") === "1";
  const flags = useMemo(() => flagsOf(runKey, detail, diagnosis), [runKey, detail, diagnosis]);
  const labels = useMemo(() => ({ [runKey]: detail.name || detail.id }), [runKey, detail.name]);
  const runs = useMemo(() => [runKey], [runKey]);

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
      run: () => group.set({ logY: group.settings.logY === null ? true : group.settings.logY ? false : null }),
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
        <ChartToolbar group={group} />
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
          project={detail.project}
          group={group}
          flags={flags}
          losses={lossesOf([detail])}
          picked={picked}
          together={together}
          onUnpick={(name) => pick(picked.filter((one) => one !== name))}
        />
      </div>
    </div>
  );
}
