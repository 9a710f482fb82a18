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
import { number, whole } from "../shell/text.ts";
import { Control, type Line, type Readout } from "./control.ts";
import { statistics } from "./curve.ts";
import { FlagLayer } from "./flags.tsx";
import { attachGestures, onChartKey, type KeyCalls } from "./gestures.ts";
import { Group } from "./group.ts";
import { copy, download, save } from "./image.ts";
import type { Flag } from "./plot.ts";
import { Comparison, Table, tableText } from "./table.tsx";
import { axisName, xText } from "./ticks.ts";
import "uplot/dist/uPlot.min.css";
import "./chart.css";

export interface Props extends Omit<ChartProps, "series"> {
  series: readonly Line[];
  group?: Group;
  flags?: readonly Flag[];
  zero?: boolean;
  /** The unit or a word behind the title. */
  unit?: string;
  /** More entries for the chart's menu. */
  menu?: (close: () => void) => ComponentChildren;
  level?: 2 | 3 | 4;
}

const LEGEND_MOST = 8; // lines that are named below the chart; more are named at the cursor
const TIP_MOST = 12;

export function Chart(props: Props) {
  const {
    series,
    x,
    title = series[0]?.name ?? "",
    height = 220,
    smooth = 0,
    logX = false,
    logY = false,
    zero,
  } = props;
  const own = useMemo(() => new Group({ x, smooth, logX }), []);
  const group = props.group ?? own;
  const [, again] = useReducer((count: number) => count + 1, 0);
  const [full, setFull] = useState(false);
  const [tabled, setTabled] = useState(false);
  const [logOwn, setLogOwn] = useState<boolean | null>(null);
  const host = useRef<HTMLDivElement>(null);
  const figure = useRef<HTMLElement>(null);
  const tip = useRef<HTMLDivElement>(null);
  const flagBox = useRef<HTMLDivElement>(null);
  const control = useRef<Control | null>(null);
  const place = useRef<(() => void) | null>(null);
  const tall = full ? Math.max(260, innerHeight - 150) : height;
  const setup = { lines: series, height: tall, logY, logOwn, zero };
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
      onDrawn: () => place.current?.(),
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
  const picture = () => ({
    canvas: made?.plot.canvas as HTMLCanvasElement,
    title,
    looks: series,
    note: axisName(group.settings.x),
  });
  const act = (what: Promise<void>, done?: string): void =>
    void what.then(
      () => done && toast({ text: done }),
      (error: unknown) => toast({ text: (error as Error).message, tone: "bad" }),
    );

  useLayoutEffect(() => {
    if (tip.current && cursor && made) placeTip(tip.current, made, cursor);
  });

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
          {cursor && !cursor.own ? <Linked readouts={readouts} /> : <Notes made={made} log={made?.logY ?? false} />}
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
              <Entry close={close} run={() => act(download(picture()))} says="Download as PNG" />
              <Entry
                close={close}
                run={() => made && save(new Blob([tableText(made)], { type: "text/csv" }), `${title}.csv`)}
                says="Download CSV"
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
        {cursor?.own && readouts.length > 0 && (
          <div ref={tip} class="chart-tip" role="presentation">
            <Tip readouts={readouts} x={group.settings.x} at={cursor} made={made} />
          </div>
        )}
      </div>
      {series.length > 1 && series.length <= LEGEND_MOST && made && (
        <ul class="chart-legend">
          {series.map((line) => (
            <li key={`${line.run}\n${line.name}`}>
              <button
                type="button"
                aria-pressed={!made.isHidden(line)}
                title={`${line.label}: a click hides it, a double click leaves it alone`}
                onClick={() => made.toggle(line, false)}
                onDblClick={() => made.toggle(line, true)}
              >
                <i class={line.dash ? "key dashed" : "key"} style={{ color: line.colour }} />
                {line.label}
              </button>
            </li>
          ))}
        </ul>
      )}
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
function Notes({ made, log }: { made: Control | null; log: boolean }) {
  if (made?.state.phase !== "ready") return null;
  const { hidden, hiddenExact, odd } = made.state;
  const only = made.lines.length === 1 ? made.byLine()[0] : undefined;
  const last = only?.curve.lastValue;
  return (
    <>
      {odd > 0 && <span class="badge bad">{whole(odd)} not finite</span>}
      {log && hidden > 0 && (
        <span class="badge" title="A logarithmic axis can't show zero or negative values">
          {hiddenExact ? "" : "≥ "}
          {whole(hidden)} ≤ 0 left out
        </span>
      )}
      {last !== undefined && last !== null && <span class="value">{number(last)}</span>}
    </>
  );
}

/** In the other charts: the values beside their titles. */
function Linked({ readouts }: { readouts: Readout[] }) {
  const shown = readouts.length > 3 ? [] : readouts;
  if (!shown.length && readouts.length) {
    const values = readouts.map((one) => one.reading.smooth ?? one.reading.value).filter(Number.isFinite);
    if (!values.length) return null;
    const [low, high] = [number(Math.min(...values), 3), number(Math.max(...values), 3)];
    return <span class="value">{low === high ? low : `${low} … ${high}`}</span>;
  }
  return (
    <>
      {shown.map(({ line, reading }) => (
        <span class="value" key={`${line.run}\n${line.name}`}>
          {readouts.length > 1 && <i class="key" style={{ color: line.colour }} />}
          {number(reading.smooth ?? reading.value)}
        </span>
      ))}
    </>
  );
}

function Tip({
  readouts,
  x,
  at,
  made,
}: {
  readouts: Readout[];
  x: string;
  at: { x: number; y: number | null };
  made: Control | null;
}) {
  const close = (one: Readout): number => {
    if (!made || at.y === null) return Infinity;
    const value = one.reading.smooth ?? one.reading.value;
    return Number.isFinite(value) ? Math.abs(made.plot.top(value) - made.plot.top(at.y)) : Infinity;
  };
  let nearest: Readout | null = null;
  if (readouts.length > 1) for (const one of readouts) if (close(one) < (nearest ? close(nearest) : 24)) nearest = one;
  let shown = readouts.slice(0, TIP_MOST);
  // the one under the pointer is always named
  if (nearest && !shown.includes(nearest)) shown = [...shown.slice(0, -1), nearest];
  const marks = made ? nearMarks(made, at.x) : [];
  return (
    <>
      <div class="tip-x">{xText(x, at.x)}</div>
      {marks.map((mark) => (
        <div class="tip-mark" key={mark}>
          {mark}
        </div>
      ))}
      <table>
        <tbody>
          {shown.map((one) => (
            <tr key={`${one.line.run}\n${one.line.name}`} class={one === nearest ? "near" : ""}>
              <td>
                <i class="key" style={{ color: one.line.colour }} />
              </td>
              <td class="name">{one.line.label}</td>
              <td class="number">{number(one.reading.smooth ?? one.reading.value, 5)}</td>
              <td class="number quiet">{range(one)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {readouts.length > shown.length && <div class="quiet">and {readouts.length - shown.length} more</div>}
    </>
  );
}

function range({ reading }: Readout): string {
  if (!reading.exact && reading.low < reading.high) return `${number(reading.low, 3)} … ${number(reading.high, 3)}`;
  return reading.smooth !== null ? `raw ${number(reading.value, 3)}` : "";
}

const KINDS = { nan: "nan", "+inf": "inf", "-inf": "-inf" };

function nearMarks(made: Control, x: number): string[] {
  const { view, plotWidth } = made.plot;
  const reach = ((view[1] - view[0]) / plotWidth) * 6;
  const found: string[] = [];
  for (const { line, curve } of made.byLine()) {
    for (const mark of curve.marks) {
      if (Math.abs(mark.x - x) > reach || found.length >= 4) continue;
      found.push(`${line.label}: ${KINDS[mark.kind]} at step ${whole(mark.step)}`);
    }
  }
  return found;
}

function placeTip(tip: HTMLElement, made: Control, at: { x: number; y: number | null }): void {
  const left = made.plot.left(at.x);
  if (left === null) return;
  const box = tip.parentElement?.getBoundingClientRect();
  if (!box) return;
  // beside the cursor, within the window: the chart itself may be smaller than what is said of it
  const right = box.left + left + 16 + tip.offsetWidth <= innerWidth - 4;
  const place = right ? left + 16 : left - 16 - tip.offsetWidth;
  const y = at.y === null ? 8 : made.plot.top(at.y);
  const top = y > box.height / 2 ? y - tip.offsetHeight - 10 : y + 10;
  tip.style.left = `${Math.max(4 - box.left, place)}px`;
  tip.style.top = `${Math.max(4 - box.top, top)}px`;
}

function spoken(readouts: Readout[], x: string, at: number): string {
  if (!readouts.length) return "";
  const values = readouts
    .slice(0, 5)
    .map(({ line, reading }) => `${line.label} ${number(reading.smooth ?? reading.value)}`);
  return `${xText(x, at)}: ${values.join(", ")}`;
}

/** The chart in one sentence. */
function describe(title: string, made: Control | null, group: Group): string {
  const lines = made?.byLine() ?? [];
  const over = axisName(group.settings.x);
  if (!made || made.state.phase === "waiting" || !lines.length) return `Chart of ${title} over ${over}.`;
  const parts = lines.slice(0, 4).map(({ line, curve }) => {
    const [from, to] = made.plot.view;
    const { first, last, low, high } = statistics(curve, from, to);
    return `${lines.length > 1 ? `${line.label} ` : ""}from ${number(first)} to ${number(last)}, between ${number(low)} and ${number(high)}`;
  });
  const more = lines.length > 4 ? `; and ${lines.length - 4} more` : "";
  const odd = made.state.odd ? ` ${made.state.odd} values are not finite.` : "";
  return `Chart of ${title} over ${over}: ${parts.join("; ")}${more}.${odd} Arrow keys read values, plus and minus zoom, T shows a table.`;
}
