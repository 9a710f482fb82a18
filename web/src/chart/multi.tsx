/** Charts by family for one or many runs.
 *
 * In:   runs with their labels, the axis and the smoothing; a group of charts, flags and chosen names, if there are any.
 * Out:  sections of charts that are made when they come into sight and let go when they are far away.
 */

import { useEffect, useMemo, useReducer, useState } from "preact/hooks";
import { getNames } from "../api/client.ts";
import type { PanelsProps } from "../api/contract.ts";
import { isGroup } from "../api/groups.ts";
import type { Key } from "../api/types.ts";
import { placeOf, useColours } from "../shell/runcolours.ts";
import { Icon } from "../shell/icon.tsx";
import { useTheme } from "../shell/theme.ts";
import { count, whole } from "../shell/text.ts";
import { Chart } from "./chart.tsx";
import type { Line } from "./control.ts";
import { familiesOf, lineLabel, rank, type Family, type Panel } from "./families.ts";
import { Group, smoothOf } from "./group.ts";
import { point } from "./highlight.ts";
import { useSettings } from "./toolbar.tsx";
import { lineColours, sequence } from "../shell/colour.ts";
import { arranged, moved, useLayout, type LayoutState } from "./layout.ts";
import { LayoutBar } from "./layoutbar.tsx";
import { escapeRegex, useNames } from "./names.ts";
import type { Flag } from "./scene.ts";
import { Lazy, More } from "./lazy.tsx";

export interface Props extends PanelsProps {
  group?: Group;
  flags?: readonly Flag[];
  /** Names that were picked by hand: a section of their own at the top. */
  picked?: readonly string[];
  onUnpick?: (name: string) => void;
  /** Draw what was picked in one chart. */
  together?: boolean;
  /** Series that the server takes for losses of these runs, whatever they are called. */
  losses?: readonly string[];
  /** Only these families; none: all. */
  only?: readonly string[];
}

const PAGE = 24; // panels of a family at first; more come when the end is reached
const OWN_MOST = 60;

export function Panels(props: Props) {
  const { runs, x, project, highlight } = props;
  const smooth = props.smooth === undefined ? undefined : smoothOf(props.smooth);
  const made = useMemo(() => new Group({ ...(x && { x }), ...(smooth && { smooth }) }), []);
  const group = props.group ?? made;
  const settings = useSettings(group);
  useEffect(() => {
    if (x !== undefined && settings.x !== x) group.set({ x });
    if (smooth !== undefined && settings.smooth !== smooth) group.set({ smooth });
  }, [group, x, smooth]);
  useEffect(() => {
    if (highlight !== undefined) point(highlight);
  }, [highlight]);
  const keys = runs.join(" ");
  useEffect(() => group.live(runs.slice(0, 200)), [group, keys]);

  const state = useLayout(project);
  const { known, error } = useNames(runs);
  const single = runs.length === 1;
  const losses = props.losses ?? [];
  const families = useMemo(
    () => (known ? familiesOf(known.names, single, losses) : []),
    [known, single, losses.join("\n")],
  );
  useEffect(() => {
    if (known) group.know(families.flatMap((family) => family.panels.flatMap((panel) => panel.names)));
  }, [group, families]);
  const own = useOwnPanels(state, runs);
  const written = useMemo(() => expressionPanels(settings.expressions), [settings.expressions.join("\n")]);
  const picked = props.picked ?? [];
  const chosen = useMemo(() => pickedPanels(picked, props.together ?? false), [picked.join("\n"), props.together]);

  if (error && !known)
    return (
      <p class="chart-error" role="alert">
        {error}
      </p>
    );
  if (!known) return <Waiting />;
  const lazy: Family[] = known.lazy.map(({ name, count }) => ({
    id: name,
    title: `${name} · ${whole(count)} series`,
    panels: [],
    closed: true,
  }));
  const shown = [...families.filter((family) => !known.lazy.some(({ name }) => name === family.id)), ...lazy]
    .filter((family) => !props.only || props.only.includes(family.id))
    .sort((a, b) => rank(a.id) - rank(b.id));
  if (!shown.length && !picked.length)
    return <p class="quiet">No series has been logged yet. They appear here when logged.</p>;
  return (
    <div class="families">
      <LayoutBar state={state} project={project} families={families} example={known.names[0] ?? "train/loss"} />
      {chosen.length > 0 && (
        <Section
          {...props}
          group={group}
          state={state}
          family={{ id: "picked", title: "Selected", panels: chosen, closed: false }}
          fixed
        />
      )}
      {written.length > 0 && (
        <Section
          {...props}
          group={group}
          state={state}
          family={{ id: "expressions", title: "Expressions", panels: written, closed: false }}
          fixed
        />
      )}
      {own.length > 0 && (
        <Section
          {...props}
          group={group}
          state={state}
          family={{ id: "own", title: "Custom panels", panels: own, closed: false }}
          fixed
        />
      )}
      {shown.map((family, at) => (
        <Section
          key={family.id}
          first={at === 0 && !chosen.length && !own.length}
          {...props}
          group={group}
          state={state}
          family={family}
          lazy={lazy.includes(family)}
        />
      ))}
    </div>
  );
}

function Waiting() {
  return (
    <div class="panels" role="status" aria-label="Reading the names of the series">
      {[0, 1, 2].map((at) => (
        <div class="slot chart" key={at}>
          <span class="skeleton" />
        </div>
      ))}
    </div>
  );
}

function pickedPanels(names: readonly string[], together: boolean): Panel[] {
  // prettier-ignore
  const panel = (id: string, title: string, names: string[]): Panel => ({
    id, title, names, family: "picked", logY: false, zero: false, sequence: names.length > 12, left: 0,
  });
  if (together && names.length > 1) return [panel("picked", `${names.length} series`, [...names])];
  return names.map((name) => panel(`picked ${name}`, name, [name]));
}

const expressionPanels = (texts: readonly string[]): Panel[] =>
  // prettier-ignore
  texts.map((text) => ({
    id: `expression ${text}`, title: text, names: [text], family: "expressions", logY: false, zero: false,
    sequence: false, left: 0,
  }));

/** Own panels name their series by a regular expression; the server matches it. */
function useOwnPanels(state: LayoutState, runs: readonly Key[]): Panel[] {
  const [found, set] = useState<Panel[]>([]);
  const run = runs[0];
  const text = JSON.stringify(state.layout.own);
  useEffect(() => {
    if (!run || !state.layout.own.length) return set([]);
    const control = new AbortController();
    void Promise.all(
      state.layout.own.map(async (own): Promise<Panel> => {
        const base = { id: own.id, title: own.title, family: "own", logY: own.logY, zero: false };
        if (own.expression) return { ...base, names: [own.match], sequence: false, left: 0 };
        try {
          const { names, total } = await getNames(run, own.match, OWN_MOST, control.signal);
          return { ...base, names, sequence: names.length > 12, left: (total ?? names.length) - names.length };
        } catch (error) {
          return { ...base, title: `${own.title}: ${(error as Error).message}`, names: [], sequence: false, left: 0 };
        }
      }),
    ).then((panels) => !control.signal.aborted && set(panels));
    return () => control.abort();
  }, [run, text]);
  return found;
}

const EAGER = 3; // panels of the first section are made at once

interface SectionProps extends Props {
  first?: boolean;
  group: Group;
  state: LayoutState;
  family: Family;
  lazy?: boolean;
  fixed?: boolean;
}

function Section(props: SectionProps) {
  const { family, state, runs, group, fixed } = props;
  const { layout, change } = state;
  const open = family.closed === layout.toggled.includes(family.id);
  const [most, grow] = useReducer((now: number) => now + PAGE, PAGE);
  const [loaded, setLoaded] = useState<{ panels: Panel[]; names: number; total: number } | null>(null);
  const [failed, setFailed] = useState("");
  const run = runs[0];

  useEffect(() => {
    if (!props.lazy || !open || loaded || !run) return;
    const control = new AbortController();
    getNames(run, `^${escapeRegex(family.id)}/`, 4000, control.signal).then(
      ({ names, total }) =>
        setLoaded({
          panels: familiesOf(names, runs.length === 1).flatMap((one) => one.panels),
          names: names.length,
          total: total ?? names.length,
        }),
      (error: unknown) => !control.signal.aborted && setFailed((error as Error).message),
    );
    return () => control.abort();
  }, [open, props.lazy, run]);

  const all = useMemo(
    () => arranged(loaded ? { ...family, panels: loaded.panels } : family, layout),
    [family, loaded, layout],
  );
  const ids = all.map((panel) => panel.id);
  const toggle = (): void =>
    change({
      ...layout,
      toggled: layout.toggled.includes(family.id)
        ? layout.toggled.filter((one) => one !== family.id)
        : [...layout.toggled, family.id],
    });
  if (!all.length && !props.lazy) return null;
  const series = family.panels.reduce((sum, panel) => sum + panel.names.length + panel.left, 0);
  return (
    <section class="family" aria-label={family.title}>
      <h2>
        <button type="button" aria-expanded={open} onClick={toggle}>
          <Icon name={open ? "down" : "right"} />
          {family.title}
          {!props.lazy && (
            <span class="quiet small">
              {series === all.length ? whole(all.length) : `${count(all.length, "panel")}, ${whole(series)} series`}
            </span>
          )}
        </button>
      </h2>
      {open && failed && <p class="bad">{failed}</p>}
      {open && loaded && loaded.total > loaded.names && (
        <p class="quiet small">
          The first {whole(loaded.names)} of {whole(loaded.total)} series. Search by name for the others.
        </p>
      )}
      {open && (
        <div class={`panels ${layout.wide ? "wide" : ""}`}>
          {all.slice(0, most).map((panel, at) => (
            <Lazy key={panel.id} height={layout.wide ? 336 : 252} eager={props.first && at < EAGER}>
              <One
                {...props}
                group={group}
                panel={panel}
                menu={(close) => (
                  <PanelMenu
                    panel={panel}
                    group={group}
                    ids={ids}
                    state={state}
                    fixed={fixed}
                    onUnpick={props.onUnpick}
                    close={close}
                  />
                )}
              />
            </Lazy>
          ))}
        </div>
      )}
      {open && all.length > most && <More onSeen={() => grow(undefined)} left={all.length - most} />}
    </section>
  );
}

interface MenuProps {
  panel: Panel;
  group: Group;
  ids: string[];
  state: LayoutState;
  fixed?: boolean;
  onUnpick?: (name: string) => void;
  close: () => void;
}

function PanelMenu({ panel, group, ids, state, fixed, onUnpick, close }: MenuProps) {
  const { layout, change } = state;
  const entry = (says: string, run: () => void) => (
    <button
      type="button"
      role="menuitem"
      onClick={() => {
        close();
        run();
      }}
    >
      <span>{says}</span>
    </button>
  );
  if (panel.family === "picked") return onUnpick ? entry("Remove", () => panel.names.forEach(onUnpick)) : null;
  if (panel.family === "expressions") {
    const text = panel.title;
    const remove = (): void => group.set({ expressions: group.settings.expressions.filter((one) => one !== text) });
    const own = { id: `own ${text}`, title: text, match: text, logY: false, expression: true };
    return (
      <>
        <hr />
        {entry("Keep in the layout", () => {
          change({ ...layout, own: [...layout.own.filter((one) => one.id !== own.id), own] });
          remove();
        })}
        {entry("Remove this panel", remove)}
      </>
    );
  }
  if (panel.family === "own")
    return entry("Delete this panel", () =>
      change({ ...layout, own: layout.own.filter((one) => one.id !== panel.id) }),
    );
  if (fixed) return null;
  return (
    <>
      <hr />
      {ids[0] !== panel.id &&
        entry("Move to the front", () => change(moved(layout, ids, panel.id, -ids.indexOf(panel.id))))}
      {ids[0] !== panel.id && entry("Move earlier", () => change(moved(layout, ids, panel.id, -1)))}
      {ids[ids.length - 1] !== panel.id && entry("Move later", () => change(moved(layout, ids, panel.id, 1)))}
      {entry("Hide this panel", () => change({ ...layout, hidden: [...layout.hidden, panel.id] }))}
    </>
  );
}

interface OneProps extends SectionProps {
  panel: Panel;
  menu: (close: () => void) => preact.ComponentChildren;
}

function One({ panel, runs, labels, group, flags, menu, state }: OneProps) {
  const theme = useTheme();
  const colourOf = useColours(runs);
  const names = panel.names.join("\n");
  const keys = runs.map((run) => `${run} ${placeOf(run)}`).join(" ");
  const lines = useMemo((): Line[] => {
    if (runs.length === 1 && !isGroup(runs[0] ?? "")) {
      const run = runs[0] ?? "";
      const colours = panel.sequence
        ? sequence(panel.names.length, theme)
        : lineColours(placeOf(run), panel.names.length, theme);
      return panel.names.map((name, at) => ({
        run,
        name,
        label: lineLabel(name, panel),
        colour: colours[at] ?? "#888888",
      }));
    }
    const several = panel.names.length > 1;
    return runs.flatMap((run) =>
      panel.names.map((name, at) => ({
        run,
        name,
        label: several ? `${labels[run] ?? run} · ${name}` : (labels[run] ?? run),
        colour: colourOf(run),
        dash: several && at > 0,
        interval: isGroup(run),
      })),
    );
  }, [keys, names, theme, labels, colourOf]);
  const about = useMemo(
    () => flags?.filter((flag) => !flag.names || flag.names.some((name) => panel.names.includes(name))),
    [flags, names],
  );
  const most = 1000;
  const drawn = lines.length > most ? lines.slice(0, most) : lines;
  const left = panel.left + (lines.length - drawn.length);
  const tall = state.layout.wide ? 300 : 216;
  if (!lines.length)
    return (
      <div class="chart">
        <p class="chart-title">{panel.title}</p>
        <p class="quiet small">No series matches.</p>
      </div>
    );
  return (
    <Chart
      series={drawn}
      x={group.settings.x}
      title={panel.title}
      unit={left > 0 ? `${whole(panel.names.length)} of ${whole(panel.names.length + left)} lines` : ""}
      height={tall}
      legendInside
      logY={panel.logY}
      zero={panel.zero}
      group={group}
      flags={about}
      menu={menu}
    />
  );
}
