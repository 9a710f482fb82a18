/** What a person chose for the charts of a view, and its place in the address.
 *
 * In:   the query of the address; changes.
 * Out:  a group of charts whose settings and range are those of the address, and the other way round.
 *
 *   x= smooth= logx= logy= yrange= old= expr= range=
 *
 * What is as it is by default is not in the address.
 */

import { useEffect, useMemo } from "preact/hooks";
import { setQuery } from "../shell/route.ts";
import { Group, PLAIN, smoothOf, type Settings } from "./group.ts";
import { formatView, parseView } from "./range.ts";

const ADDRESS_MS = 250; // the address gets a range after the movement, not in it
const MOST_PANELS = 20;

const flag = (text: string | null): boolean | null => (text === "1" ? true : text === "0" ? false : null);

/** The axis' parameter, and what the axis is without it. */
export interface Axes {
  name: string;
  axis: string;
}

const STEPS: Axes = { name: "x", axis: PLAIN.x };

export function readSettings(query: URLSearchParams, { name, axis }: Axes = STEPS): Settings {
  const range = query.get("yrange");
  return {
    x: query.get(name) || axis,
    smooth: smoothOf(query.get("smooth")),
    logX: query.get("logx") === "1",
    logY: flag(query.get("logy")),
    typical: range === "all" ? false : range === "middle" || query.get("typical") === "1" ? true : null,
    branch: query.get("old") === "0" ? "live" : "all",
    expressions: [...new Set(query.getAll("expr").filter(Boolean))].slice(0, MOST_PANELS),
  };
}

export function writeSettings(
  settings: Settings,
  { name, axis }: Axes = STEPS,
): Record<string, string | boolean | readonly string[] | null> {
  const { logX, logY, typical, branch } = settings;
  return {
    [name]: settings.x === axis ? null : settings.x,
    smooth: settings.smooth || null,
    logx: logX,
    logy: logY === null ? null : logY ? "1" : "0",
    yrange: typical === null ? null : typical ? "middle" : "all",
    typical: null,
    old: branch === "live" ? "0" : null,
    expr: settings.expressions,
  };
}

/** The group of a view's charts. id: another one, another group. axes: fixed for an id, but for its `axis`. */
export function useChartGroup(query: URLSearchParams, id: string, axes: Axes = STEPS): Group {
  const group = useMemo(() => new Group(readSettings(query, axes), parseView(query.get("range"))), [id]);
  const text = query.toString();

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const leave = group.join({
      onRange: (view, settled) => {
        clearTimeout(timer);
        if (settled) timer = setTimeout(() => setQuery({ range: formatView(view) || null }, true), ADDRESS_MS);
      },
      onSettings: (settings) => setQuery(writeSettings(settings, axes), true),
    });
    return () => {
      clearTimeout(timer);
      leave();
    };
  }, [group, axes.axis]);

  // another choice in the address: the back button, or a link
  useEffect(() => {
    const asked = readSettings(query, axes);
    if (JSON.stringify(writeSettings(asked)) !== JSON.stringify(writeSettings(group.settings))) group.set(asked);
    const range = query.get("range");
    if ((range ?? "") !== formatView(group.view)) group.range(parseView(range), true);
  }, [group, text, axes.axis]);
  return group;
}
