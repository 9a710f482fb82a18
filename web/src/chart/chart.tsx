/** One chart: its title, plot, legend, values under the cursor, and what can be done with it.
 *
 * In:   lines (series of runs), a group to share axis, range and cursor with, flags.
 * Out:  a figure for eyes, keys and screen readers.
 */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import type { ChartProps } from "../api/contract.ts";
import { Icon } from "../shell/icon.tsx";
import { Pop } from "../shell/pop.tsx";
import { toast } from "../shell/toast.tsx";
import { whole } from "../shell/text.ts";
import { Control, keyOf, type Line } from "./control.ts";
import { statistics } from "./curve.ts";
import { FlagLayer } from "./flags.tsx";
import { attachGestures, onChartKey, type KeyCalls } from "./gestures.ts";
import { Group, smoothOf } from "./group.ts";
import { copy, download, type Picture } from "./image.ts";
import { point } from "./highlight.ts";
import type { Flag } from "./scene.ts";
import { Linked, nearestOf, placeTip, spoken, Tip } from "./readout.tsx";
import { copyPython, savePoints, saveSvg } from "./take.ts";
import { spread } from "./robust.ts";
import { Comparison, Table } from "./table.tsx";
import { axisName } from "./ticks.ts";
import { amount, unitOf } from "./units.ts";
import "uplot/dist/uPlot.min.css";
import "./chart.css";

export interface Props extends Omit<ChartProps, "series"> {
  series: readonly Line[];
  group?: Group;
  flags?: readonly Flag[];
  zero?: boolean;
  /** The unit or a word behind the title. */
  unit?: string;
  /** The height is that of the plot with its legend. */
  legendInside?: boolean;
  /** false: no names of lines beside the plot or below it, as where many charts have the same ones. */
  legend?: boolean;
  /** More entries for the chart's menu. */
  menu?: (close: () => void) => ComponentChildren;
  level?: 2 | 3 | 4;
}

const LEGEND_HIGH = 22;
const LEGEND_MOST = 8; // lines that are named below the chart; more are named at the cursor
const LABEL_GAP = 13;

export function Chart(props: Props) {
  const { series, x, title = series[0]?.name ?? "", height = 220, logX = false, logY = false, zero } = props;
  const smooth = smoothOf(props.smooth);
  const own = useMemo(() => new Group({ x, smooth, logX }), []);
  const group = props.group ?? own;
  const [, again] = useReducer((count: number) => count + 1, 0);
  const [full, setFull] = useState(false);
  const [tabled, setTabled] = useState(false);
  const [logOwn, setLogOwn] = useState<boolean | null>(null);
  const host = useRef<HTMLDivElement>(null);
  const figure = useRef<HTMLElement>(null);
  const tip = useRef<HTMLDivElement>(null);
  const wasOwn = useRef(false);
  const names = useRef<HTMLUListElement>(null);
  const flagBox = useRef<HTMLDivElement>(null);
  const control = useRef<Control | null>(null);
  const place = useRef<(() => void) | null>(null);
  const before = control.current;
  const several = series.filter((line) => before?.has(line) ?? true).length;
  const below = props.legend !== false && several > 1 && several <= LEGEND_MOST && !before?.labelRoom;
  const tall = full ? Math.max(260, innerHeight - 150) : height - (below && props.legendInside ? LEGEND_HIGH : 0);
  const setup = { lines: series, height: tall, logY, logOwn, zero, named: props.legend !== false };
  const [cursor, setCursor] = useState<{ x: number; y: number | null; own: boolean } | null>(null);

  if (!props.group && (own.settings.x !== x || own.settings.smooth !== smooth || own.settings.logX !== logX)) {
    own.set({ x, smooth, logX });
  }

  useLayoutEffect(() => {
    const box = host.current;
    if (!box || !figure.current) return;
    const made = new Control(box, group, setup, {
      onState: () => again(0),
      onCursor: (x, y, own) => setCursor(x === null ? null : { x, y, own }),
      onDrawn: () => {
        place.current?.();
        if (control.current) placeNames(names.current, control.current);
      },
    });
    control.current = made;
    const sight = new IntersectionObserver(([entry]) => made.see(entry?.isIntersecting ?? false), {
      rootMargin: "200px",
    });
    sight.observe(box);
    const around = box.getBoundingClientRect();
    if (around.top < innerHeight && around.bottom > 0) made.see(true); // the observer would tell a frame later
    const size = new ResizeObserver(() => made.plot.resize());
    size.observe(box);
    const gestures = attachGestures(box, () => made.plot, calls(made));
    again(0);
    return () => {
      sight.disconnect();
      size.disconnect();
      gestures();
      made.destroy();
      control.current = null;
    };
  }, [group]);

  useLayoutEffect(() => control.current?.update(setup), [series, tall, logY, logOwn, zero]);

  useEffect(() => {
    const changed = (): void => setFull(document.fullscreenElement === figure.current);
    document.addEventListener("fullscreenchange", changed);
    return () => document.removeEventListener("fullscreenchange", changed);
  }, []);

  const toggleFull = (): void => {
    if (document.fullscreenElement) void document.exitFullscreen();
    else
      void figure.current
        ?.requestFullscreen?.()
        .catch(() => toast({ text: "The browser does not allow full screen here.", tone: "bad" }));
  };

  const calls = (made: Control): KeyCalls => ({
    bounds: () => made.bounds(),
    log: () => group.settings.logX,
    wheelZooms: () => document.fullscreenElement === figure.current,
    change: (view, settled) => group.range(view, settled, made),
    reset: () => group.range(null, true, made),
    cursor: () => group.cursor,
    point: (x) => {
      made.plot.setCursor(x);
      group.point(x, made);
    },
    next: (x, forward, far) => made.next(x, forward, far),
    back: () => group.back(),
    forward: () => group.forward(),
    full: toggleFull,
    table: () => setTabled((shown) => !shown),
  });

  const made = control.current;
  const state = made?.state;
  const readouts = cursor && made ? made.readouts(cursor.x) : [];
  const near = made && cursor?.own ? nearestOf(made, readouts, cursor.y) : null;
  useEffect(() => {
    if (made && cursor?.own) made.nearest(near?.line ?? null);
    else if (made && wasOwn.current) made.nearest(null);
    wasOwn.current = cursor?.own ?? false;
  }, [near?.line, cursor?.own]);
  const named = made ? series.filter((line) => made.has(line)) : [];
  const picture = (): Picture => ({
    canvas: made?.plot.canvas as HTMLCanvasElement,
    title,
    looks: named,
    note: axisName(group.settings.x),
  });
  const act = (what: Promise<void>, done?: string): void =>
    void what.then(
      () => done && toast({ text: done }),
      (error: unknown) => toast({ text: (error as Error).message, tone: "bad" }),
    );

  useLayoutEffect(() => {
    if (tip.current && cursor && made) placeTip(tip.current, made, cursor);
    if (made) placeNames(names.current, made);
  });

  const legend = made &&
    props.legend !== false &&
    state?.phase === "ready" &&
    named.length > 1 &&
    (made.labelRoom || named.length <= LEGEND_MOST) && (
      <ul
        ref={names}
        class={made.labelRoom ? "chart-legend ends" : "chart-legend"}
        style={made.labelRoom ? { width: `${made.labelRoom - 6}px` } : undefined}
      >
        {named.map((line) => (
          <li key={keyOf(line)}>
            <button
              type="button"
              aria-pressed={!made.isHidden(line)}
              title={`${line.label}: a click hides it, a double click leaves it alone`}
              onClick={() => made.toggle(line, false)}
              onDblClick={() => made.toggle(line, true)}
              onPointerEnter={() => series.some((one) => one.run !== line.run) && point(line.run)}
              onPointerLeave={() => point(null)}
            >
              <i class={line.dash ? "key dashed" : "key"} style={{ color: line.colour }} />
              <span>{line.label}</span>
            </button>
          </li>
        ))}
      </ul>
    );
  const Title = `h${props.level ?? 3}` as "h3";
  return (
    <figure
      ref={figure}
      class={`chart ${full ? "full" : ""}`}
      tabIndex={0}
      aria-label={describe(title, made, group)}
      onKeyDown={(event) => {
        if (made && event.target === figure.current && onChartKey(event, made.plot, calls(made))) {
          event.preventDefault();
          event.stopPropagation();
        }
      }}
    >
      <figcaption class="chart-head">
        <Title class="chart-title" title={title}>
          {title}
          {props.unit && <span class="quiet"> {props.unit}</span>}
        </Title>
        <span class="chart-now" aria-live="off">
          {cursor && !cursor.own ? (
            <Linked readouts={readouts} />
          ) : (
            <Notes made={made} log={made?.logY ?? false} group={group} />
          )}
        </span>
        <button
          type="button"
          class="button bare tiny"
          aria-pressed={made?.logY ?? false}
          title="Logarithmic y axis"
          onClick={() => setLogOwn(!(control.current?.logY ?? logY))}
        >
          log
        </button>
        <Pop
          button={<Icon name="more" />}
          label={`Actions for ${title}`}
          class="button bare icon-only tiny"
          role="menu"
          paneClass="menu"
        >
          {(close) => (
            <>
              <Entry
                close={close}
                run={() => act(copy(picture()), "The image is in the clipboard.")}
                says="Copy image"
              />
              <Entry close={close} run={() => act(download(picture()))} says="Download PNG" />
              <Entry close={close} run={() => made && saveSvg(made, title, named)} says="Download SVG" />
              <Entry
                close={close}
                run={() => made && act(savePoints(made, title, "csv"))}
                says="Download CSV, every point"
              />
              <Entry
                close={close}
                run={() => made && act(savePoints(made, title, "parquet"))}
                says="Download Parquet, every point"
              />
              <Entry
                close={close}
                run={() => made && act(copyPython(made, title), "Python code is in the clipboard.")}
                says="Copy as Python"
              />
              <Entry close={close} run={toggleFull} says={full ? "Leave full screen" : "Full screen"} keys="f" />
              <Entry
                close={close}
                run={() => setTabled(!tabled)}
                says={tabled ? "Hide the table" : "Show as a table"}
                keys="t"
              />
              <Entry close={close} run={() => group.range(null, true)} says="Reset zoom" keys="0" />
              {props.menu?.(close)}
            </>
          )}
        </Pop>
      </figcaption>
      <div class="chart-box">
        <div ref={host} class={state?.phase === "ready" ? "chart-host" : "chart-host blank"} />
        {props.flags && props.flags.length > 0 && (
          <FlagLayer flags={props.flags} control={control} place={place} box={flagBox} x={group.settings.x} />
        )}
        {(!state || state.phase === "waiting") && (
          <p class="chart-says quiet" role="status">
            Loading …
          </p>
        )}
        {state?.phase === "empty" && (
          <p class="chart-says quiet">
            {group.settings.x === "step"
              ? "No point has been logged yet."
              : `No point has a value on the axis “${axisName(group.settings.x)}”.`}
          </p>
        )}
        {state?.phase === "failed" && (
          <p class="chart-says bad" role="status">
            {state.error}
          </p>
        )}
        {made?.labelRoom ? legend : null}
        {cursor?.own && readouts.length > 0 && (
          <div ref={tip} class="chart-tip" role="presentation">
            <Tip readouts={readouts} x={group.settings.x} at={cursor} made={made} nearest={near} />
          </div>
        )}
      </div>
      {!made?.labelRoom && legend}
      {made && state?.compare && (
        <Comparison made={made} range={state.compare} close={() => made.compare(null)} statistics={statistics} />
      )}
      {made && tabled && <Table made={made} close={() => setTabled(false)} />}
      <div class="unseen" aria-live="polite">
        {cursor?.own && document.activeElement === figure.current ? spoken(readouts, group.settings.x, cursor.x) : ""}
      </div>
    </figure>
  );
}

function Entry({ close, run, says, keys }: { close: () => void; run: () => void; says: string; keys?: string }) {
  return (
    <button
      type="button"
      role="menuitem"
      onClick={() => {
        close();
        run();
      }}
    >
      <span>{says}</span>
      {keys && <kbd>{keys}</kbd>}
    </button>
  );
}

/** What should be known of the chart before anybody points at it. */
function Notes({ made, log, group }: { made: Control | null; log: boolean; group: Group }) {
  if (made?.state.phase !== "ready") return null;
  const { hidden, hiddenExact, odd, beyond } = made.state;
  const only = made.lines.length === 1 ? made.byLine()[0] : undefined;
  const last = only?.curve.lastValue;
  return (
    <>
      {odd > 0 && <span class="badge bad">{whole(odd)} not finite</span>}
      {beyond > 0 && (
        <button
          type="button"
          class="badge"
          title="Triangles at the edge are where curves go on beyond the axis. A click shows all values."
          onClick={() => group.set({ typical: false })}
        >
          {made.lines.length > 1 ? `${whole(beyond)} beyond` : "goes on beyond"}
        </button>
      )}
      {log && hidden > 0 && (
        <span class="badge" title="A logarithmic axis can't show zero or negative values">
          {hiddenExact ? "" : "≥ "}
          {whole(hidden)} ≤ 0 left out
        </span>
      )}
      {last !== undefined && last !== null && (
        <span class="value">{amount(last, unitOf(made.lines.map((line) => line.name)))}</span>
      )}
    </>
  );
}

/** The names of lines at their ends, none over another; hidden ones at the bottom. */
function placeNames(list: HTMLUListElement | null, made: Control): void {
  if (!list || !made.labelRoom) return;
  const lines = made.lines.filter((line) => made.has(line));
  const tops = new Map(made.ends().map(([line, top]) => [line, top]));
  const { top, bottom } = made.plot.area;
  const wanted = lines.map((line, at) => ({ at, top: tops.get(line) ?? NaN }));
  for (const one of wanted) if (Number.isNaN(one.top)) one.top = bottom;
  wanted.sort((a, b) => a.top - b.top || a.at - b.at);
  const places = spread(
    wanted.map((one) => one.top),
    LABEL_GAP,
    top + LABEL_GAP / 2,
    bottom - LABEL_GAP / 2,
  );
  wanted.forEach(({ at }, order) => {
    const item = list.children[at];
    if (item instanceof HTMLElement) item.style.top = `${Math.round(places[order] ?? 0)}px`;
  });
}

/** The chart in one sentence. */
function describe(title: string, made: Control | null, group: Group): string {
  const lines = made?.byLine() ?? [];
  const over = axisName(group.settings.x);
  if (!made || made.state.phase === "waiting" || !lines.length) return `Chart of ${title} over ${over}.`;
  const parts = lines.slice(0, 4).map(({ line, curve }) => {
    const [from, to] = made.plot.view;
    const { first, last, low, high } = statistics(curve, from, to);
    const said = (value: number): string => amount(value, unitOf([line.name]));
    return `${lines.length > 1 ? `${line.label} ` : ""}from ${said(first)} to ${said(last)}, between ${said(low)} and ${said(high)}`;
  });
  const more = lines.length > 4 ? `; and ${lines.length - 4} more` : "";
  const odd = made.state.odd ? ` ${made.state.odd} values are not finite.` : "";
  return `Chart of ${title} over ${over}: ${parts.join("; ")}${more}.${odd} Arrow keys read values, plus and minus zoom, T shows a table.`;
}
