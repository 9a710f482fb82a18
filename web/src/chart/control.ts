/** What happens in one chart: asks for data, keeps the plot and the group together.
 *
 * In:   the series to draw, the group's settings, range, cursor and live points; whether the chart is in sight.
 * Out:  a plot that is never blank once it had data; a state for what stands around it.
 *
 * A chart out of sight asks for nothing and draws nothing; what it missed it makes up for when it is seen again.
 */

import type { ChartSeries } from "../api/contract.ts";
import type { Key } from "../api/types.ts";
import { onTheme, token } from "../shell/theme.ts";
import { extent, nearest, placeOf, read, type Curve, type Look, type Reading } from "./curve.ts";
import type { Group, Settings } from "./group.ts";
import { onPointed, point, pointed } from "./highlight.ts";
import type { Loader } from "./loader.ts";
import { loader as shared } from "./loader.ts";
import { Plot } from "./plot.ts";
import type { PlotInks, PlotOptions } from "./scene.ts";
import { same, type Range, type View } from "./range.ts";
import { unitOf } from "./units.ts";

export interface Line extends ChartSeries {
  dash?: boolean;
  rank?: number;
  /** Low and high are the edges of an interval around the line, as of a group of runs around its mean. */
  interval?: boolean;
}

export interface Setup {
  lines: readonly Line[];
  height: number;
  /** Logarithmic by default. */
  logY: boolean;
  /** What a person chose for this chart. */
  logOwn?: boolean | null;
  zero?: boolean;
  /** false: no room for the names of lines. */
  named?: boolean;
}

export interface State {
  phase: "waiting" | "ready" | "empty" | "failed";
  error: string;
  /** Points that a logarithmic axis leaves out. */
  hidden: number;
  hiddenExact: boolean;
  odd: number;
  compare: Range | null;
  /** Curves that go on beyond the y axis. */
  beyond: number;
  /** Lines that have points, by `keyOf`. */
  there: string;
}

export const keyOf = (line: { run: Key; name: string }): string => `${line.run}\n${line.name}`;

export interface Readout {
  line: Line;
  curve: Curve;
  reading: Reading;
}

/** The inks of the page's charts: custom properties of `style/tokens.css`. */
export const chartInks = (): PlotInks => ({
  mark: token("--chart-mark"),
  axis: token("--chart-axis"),
  grid: token("--chart-grid"),
  select: token("--chart-select"),
  font: token("--sans") || "sans-serif",
});

const WIDE = 8; // the largest value beside the smallest: below, a linear axis shows as much and is read easier
const MARGIN = 0.04; // beyond both ends of a zoom, so that a pan has something to show
const LABELS_MOST = 12; // lines that are named at their ends
const LABEL_ROW = 14; // CSS pixels
const LABEL_WIDEST = [132, 240] as const; // in narrow charts and in wide ones
const LABEL_SHARE = 0.34; // of the chart
const LABEL_ROOM = 440; // a chart that is wide enough for them
const POINTED_MS = 40; // a pointer on its way across a hundred lines is not followed
const FEW_BUCKETS = 240; // for each of a hundred curves: more than a pixel's worth is not seen in the crowd

export class Control {
  readonly plot: Plot;
  state: State = {
    phase: "waiting",
    error: "",
    hidden: 0,
    hiddenExact: true,
    odd: 0,
    compare: null,
    beyond: 0,
    there: "",
  };
  readonly group: Group;
  #setup: Setup;
  #whole: Curve[] = [];
  #detail: { view: Range; curves: Curve[] } | null = null;
  #seen = false;
  #stale = true;
  #stalePaint = false;
  #control: AbortController | null = null;
  #asking = "";
  #again = false;
  #hiddenLines = new Set<string>();
  #loader: Loader;
  #leave: (() => void)[] = [];
  readonly onState: () => void;
  readonly onCursor: (x: number | null, y: number | null, own: boolean) => void;
  #y: number | null = null;
  #wide = true;

  constructor(
    host: HTMLElement,
    group: Group,
    setup: Setup,
    calls: {
      onState: () => void;
      onCursor: (x: number | null, y: number | null, own: boolean) => void;
      onDrawn: () => void;
    },
    from: Loader = shared,
  ) {
    this.group = group;
    this.#setup = setup;
    this.#loader = from;
    this.onState = calls.onState;
    this.onCursor = calls.onCursor;
    this.plot = new Plot(host, this.#options(), chartInks, {
      onCursor: (x, y) => {
        this.#y = y;
        group.point(x, this);
      },
      onSelect: (range, compare) => (compare ? this.compare(range) : group.range(range, true, this)),
      onDrawn: calls.onDrawn,
    });
    this.#leave.push(
      group.join({
        owner: this,
        onRange: (view, settled, from) => this.#ranged(view, settled, from === this),
        onCursor: (x, from) => {
          if (!this.#seen) return;
          if (from !== this) this.plot.setCursor(x);
          this.onCursor(x, from === this ? this.#y : null, from === this);
        },
        onSettings: (settings) => this.#changed(settings),
        onPoints: (runs) => this.#points(runs),
      }),
      onTheme(() => this.plot.restyle()),
      onPointed(() => this.#pointed()),
    );
  }

  #options(): PlotOptions {
    const { x, logX, typical } = this.group.settings;
    const { height, zero } = this.#setup;
    const unit = unitOf(this.lines.map((line) => line.name));
    return { x, logX, typical, logY: this.logY, height, zero, right: this.labelRoom, unit };
  }

  /** CSS pixels at the right for the names of lines; 0 where they stand below. */
  labelRoom = 0;

  #measureLabels(): void {
    const named = this.lines.filter((line) => this.has(line));
    const fits =
      this.#setup.named !== false &&
      named.length > 1 &&
      named.length <= LABELS_MOST &&
      this.plot.hostWidth >= LABEL_ROOM;
    const high = fits && named.length * LABEL_ROW <= this.#setup.height - 40;
    const widest = Math.min(LABEL_WIDEST[1], Math.max(LABEL_WIDEST[0], this.plot.hostWidth * LABEL_SHARE));
    const room = high
      ? Math.min(Math.floor(widest), Math.ceil(this.plot.widest(named.map((line) => line.label))) + 22)
      : 0;
    if (room === this.labelRoom) return;
    this.labelRoom = room;
    this.plot.setOptions(this.#options());
  }

  /** Whether a line has points on this axis, as far as is known. */
  has(line: Line): boolean {
    return this.#there.size === 0 || this.#there.has(keyOf(line));
  }

  #there = new Set<string>();

  #pointedTimer: ReturnType<typeof setTimeout> | undefined;
  #ours: string | null = null;

  /** Another key is pointed at: lines that are not its become fainter. */
  #pointed(): void {
    const key = pointed();
    const ours = key !== null && this.lines.some((line) => line.run === key) ? key : null;
    if (ours === this.#ours) return;
    this.#ours = ours;
    this.#draw();
  }

  /** The line that is nearest to the pointer. */
  nearest(line: Line | null): void {
    clearTimeout(this.#pointedTimer);
    const several = new Set(this.lines.map((one) => one.run)).size > 1;
    if (several) this.#pointedTimer = setTimeout(() => point(line?.run ?? null), POINTED_MS);
  }

  get lines(): readonly Line[] {
    return this.#setup.lines;
  }

  /** A person's choice for this chart, for all charts, else the default, where the values span enough for it. */
  get logY(): boolean {
    return this.#setup.logOwn ?? this.group.settings.logY ?? (this.#setup.logY && this.#wide);
  }

  /** Whether a logarithmic axis by default would pay: values of all of the series, not of the range in view. */
  #measure(): void {
    const { low, high } = extent(this.#whole, -Infinity, Infinity, true);
    const wide = high / low >= WIDE;
    if (wide === this.#wide || !(low <= high)) return;
    this.#wide = wide;
    this.plot.setOptions(this.#options());
  }

  update(setup: Setup): void {
    const before = this.#setup;
    this.#setup = setup;
    const named = (lines: readonly Line[]): string =>
      JSON.stringify(lines.map((line) => [line.run, line.name, line.rank]));
    this.plot.setOptions(this.#options());
    if (named(before.lines) !== named(setup.lines)) {
      const had = new Map(this.#whole.map((curve) => [keyOf(curve), curve]));
      this.#whole = setup.lines.flatMap((line) => had.get(keyOf(line)) ?? []);
      this.#detail = null;
      this.#asking = "";
      this.#want();
    }
    this.#draw();
  }

  /** In sight or not. */
  see(seen: boolean): void {
    if (seen === this.#seen) return;
    this.#seen = seen;
    if (!seen) return;
    if (this.#stale) void this.#load(true);
    if (this.#stalePaint) this.#draw();
  }

  #want(first = false): void {
    if (this.#seen) void this.#load(first);
    else this.#stale = true;
  }

  #ranged(view: View, settled: boolean, mine: boolean): void {
    this.#draw(!settled);
    if (!settled) return;
    // the chart under the hand is served first, the others with the next breath
    if (mine) this.#want();
    else setTimeout(() => same(view, this.group.view) && this.#want(), 0);
  }

  #changed(settings: Settings): void {
    this.plot.setOptions(this.#options());
    if (this.#asking && this.#key(this.group.view, settings) !== this.#asking) this.#want();
    this.#draw();
    this.onState();
  }

  #key(view: View, settings: Settings): string {
    return JSON.stringify([view, settings.x, settings.logX, settings.smooth, settings.branch]);
  }

  #points(runs: ReadonlySet<Key> | null): void {
    if (runs !== null && !this.#setup.lines.some((line) => runs.has(line.run))) return;
    if (!this.#seen) {
      this.#stale = true;
      return;
    }
    if (this.#control) this.#again = true;
    else void this.#load(false, true);
  }

  #buckets(lines: number): number {
    const wide = Math.ceil(this.plot.plannedWidth / 100) * 100;
    return Math.max(100, Math.min(lines > 20 ? FEW_BUCKETS : 1200, wide));
  }

  async #load(first = false, live = false): Promise<void> {
    const { lines } = this.#setup;
    const { settings, view } = this.group;
    this.#stale = false;
    this.#control?.abort();
    if (!lines.length) return this.#tell({ phase: "empty" });
    const control = new AbortController();
    this.#control = control;
    this.#asking = this.#key(view, settings);
    const wish = { x: settings.x, logX: settings.logX, branch: settings.branch, smooth: settings.smooth };
    const buckets = this.#buckets(lines.length);
    const wanted = lines.map(({ run, name, rank }) => (rank === undefined ? { run, name } : { run, name, rank }));
    const ask = (range: View): Promise<Curve[]> =>
      this.#loader.load(wanted, { ...wish, view: range, buckets }, control.signal);
    try {
      if (view === null || live) this.#whole = await ask(null);
      if (view !== null) {
        const room = settings.logX ? 0 : (view[1] - view[0]) * MARGIN;
        const curves = await ask([view[0] - room, view[1] + room]);
        if (control.signal.aborted) return;
        this.#detail = { view, curves };
        if (!this.#whole.length) void this.#ground(ask);
      } else this.#detail = null;
    } catch (error) {
      if (control.signal.aborted || (error as Error).name === "AbortError") return;
      this.#control = null;
      if (!this.#whole.length && !this.#detail) this.#tell({ phase: "failed", error: (error as Error).message });
      return;
    }
    if (this.#control === control) this.#control = null;
    if (this.#setup.logY) this.#measure();
    this.#draw();
    if (view === null || live) this.group.reached(this.bounds()[1]);
    void first;
    if (this.#again) {
      this.#again = false;
      void this.#load(false, true);
    }
  }

  /** What a zoom from the address is a part of. */
  async #ground(ask: (view: View) => Promise<Curve[]>): Promise<void> {
    try {
      this.#whole = await ask(null);
      this.group.reached(this.bounds()[1]);
    } catch {
      // asked again when it is needed
    }
  }

  bounds(): Range {
    let low = Infinity;
    let high = -Infinity;
    for (const curve of this.#whole.length ? this.#whole : (this.#detail?.curves ?? [])) {
      if (!curve.x.length) continue;
      let first = curve.x[0] ?? 0;
      if (this.group.settings.logX && first <= 0) first = curve.x[placeOf(curve.x, Number.MIN_VALUE)] ?? Infinity;
      low = Math.min(low, first);
      high = Math.max(high, curve.x[curve.x.length - 1] ?? 0);
    }
    return low < high ? [low, high] : [0, 1];
  }

  /** The curves to draw for a view: exact ones where they cover it, else the whole, stretched. */
  get curves(): Curve[] {
    const { view } = this.group;
    const detail = this.#detail;
    if (view === null || !detail) return this.#whole.length ? this.#whole : (detail?.curves ?? []);
    const room = (detail.view[1] - detail.view[0]) * MARGIN * 1.5;
    const covers = view[0] >= detail.view[0] - room && view[1] <= detail.view[1] + room;
    return covers || !this.#whole.length ? detail.curves : this.#whole;
  }

  #draw(moving = false): void {
    if (!this.#seen) {
      this.#stalePaint = true;
      return;
    }
    this.#stalePaint = false;
    const curves = this.curves;
    const looks = new Map<string, Line>(this.#setup.lines.map((line) => [keyOf(line), line]));
    this.#there = new Set(curves.filter((curve) => curve.total > 0).map(keyOf));
    this.#measureLabels();
    const drawn: { curve: Curve; look: Look }[] = [];
    this.#shown = [];
    let odd = 0;
    let points = 0;
    for (const curve of curves) {
      const look = looks.get(keyOf(curve));
      if (!look || this.#hiddenLines.has(keyOf(curve))) continue;
      this.#shown.push(look);
      const faint = this.#ours !== null && look.run !== this.#ours;
      drawn.push({ curve, look: faint ? { ...look, dim: true } : look });
      odd += curve.markCount;
      points += curve.total;
    }
    this.plot.set(drawn, this.group.view, moving);
    if (curves.length) {
      const errors = curves.map((curve) => curve.error).filter(Boolean);
      const none = curves.every((curve) => curve.total === 0);
      const { count, exact } = this.plot.hidden;
      this.#tell({
        phase: none && !points ? (errors.length === curves.length && errors[0] ? "failed" : "empty") : "ready",
        error: none ? (errors[0] ?? "") : "",
        hidden: this.logY ? count : 0,
        hiddenExact: exact,
        odd,
        beyond: this.plot.beyond,
        there: [...this.#there].join("\0"),
      });
    }
  }

  #tell(changes: Partial<State>): void {
    const next = { ...this.state, ...changes };
    const changed = Object.keys(next).some((key) => next[key as keyof State] !== this.state[key as keyof State]);
    this.state = next;
    if (changed || this.state.phase === "ready") this.onState();
  }

  isHidden(line: Line): boolean {
    return this.#hiddenLines.has(keyOf(line));
  }

  toggle(line: Line, alone: boolean): void {
    if (alone) {
      const others = this.lines.filter((one) => keyOf(one) !== keyOf(line));
      const isAlone = !this.isHidden(line) && others.every((one) => this.isHidden(one));
      this.#hiddenLines = new Set(isAlone ? [] : others.map(keyOf));
    } else if (!this.#hiddenLines.delete(keyOf(line))) this.#hiddenLines.add(keyOf(line));
    this.#draw();
    this.onState();
  }

  compare(range: Range | null): void {
    this.plot.setCompare(range);
    this.#tell({ compare: range });
  }

  /** The height at which each line that is drawn leaves the plot, in CSS pixels; NaN where it has no value in sight. */
  ends(): [Line, number][] {
    const tops = this.plot.ends();
    return this.#shown.map((line, at) => [line, tops[at] ?? NaN]);
  }

  #shown: Line[] = [];

  /** What each visible line has at x, the largest value first. */
  readouts(x: number): Readout[] {
    const { view } = this.plot;
    const reach = ((view[1] - view[0]) / Math.max(1, this.plot.plotWidth)) * 12;
    const found: Readout[] = [];
    for (const curve of this.curves) {
      const line = this.lines.find((one) => one.run === curve.run && one.name === curve.name);
      if (!line || this.isHidden(line)) continue;
      const few = curve.exact && curve.x.length < this.plot.plotWidth / 12;
      const reading = read(curve, x, few ? Infinity : Math.max(reach, (view[1] - view[0]) / 40));
      if (reading) found.push({ line, curve, reading });
    }
    const height = (one: Readout): number => {
      const value = one.reading.smooth ?? one.reading.value;
      return Number.isNaN(value) ? -Infinity : value;
    };
    return found.sort((a, b) => height(b) - height(a));
  }

  /** The x of the next point or bucket of the first line, for the arrow keys. */
  next(x: number | null, forward: boolean, far: boolean): number | null {
    const curve = this.curves.reduce<Curve | null>(
      (most, one) => (one.x.length > (most?.x.length ?? 0) ? one : most),
      null,
    );
    if (!curve) return null;
    const [from, to] = this.plot.view;
    const low = placeOf(curve.x, from);
    let high = placeOf(curve.x, to);
    if (high === curve.x.length || (curve.x[high] ?? 0) > to) high -= 1;
    if (x === null) return curve.x[forward ? low : high] ?? null;
    if (x === -Infinity) return curve.x[low] ?? null;
    if (x === Infinity) return curve.x[high] ?? null;
    const at = nearest(curve.x, x) + (forward ? 1 : -1) * (far ? 10 : 1);
    return curve.x[Math.max(low, Math.min(high, at))] ?? null;
  }

  /** Curves of the range in view, for the table and for statistics. */
  byLine(): { line: Line; curve: Curve }[] {
    return this.curves.flatMap((curve) => {
      const line = this.lines.find((one) => one.run === curve.run && one.name === curve.name);
      return line ? [{ line, curve }] : [];
    });
  }

  destroy(): void {
    this.#control?.abort();
    clearTimeout(this.#pointedTimer);
    for (const leave of this.#leave) leave();
    this.plot.destroy();
  }
}
