/** A thin coat over uPlot: it keeps the axes, the cursor and the selection; the curves are painted by `paint.ts`.
 *  The one chart of lines of the page, of reports and of notebooks.
 *
 * In:   curves with their looks, a range of x, options, the inks of where it stands; gestures.
 * Out:  a drawing; calls for cursor, zoom and selection in values of x.
 *
 * Curves keep their own x: a hundred runs are not joined to one table. While new data are on their way, those that
 * there are get stretched, since they are drawn in values and not in pixels.
 */

import uPlot from "uplot";
import { centre, extent, placeOf, type Curve, type Extent } from "./curve.ts";
import { paint, type Drawn, type Frame } from "./paint.ts";
import { padded, type Range, type View } from "./range.ts";
import { fence } from "./robust.ts";
import type { PlotCalls, PlotInks, PlotOptions, Tick } from "./scene.ts";
import { COUNTS, SECONDS } from "./ticks.ts";
import { unitTicks, unitTickTexts } from "./units.ts";

const LEFT = 56; // of the y axis: the same in all charts, so that they are aligned, but for one whose numbers are wider
const RIGHT = 22; // half of the last tick's text stands beyond the plot
const GAPS = 14; // of it, what is not text
const BUILT = ["x", "logX", "logY", "unit"] as const; // options that uPlot takes once
const COUNTED = new Set(["step", "samples", "tokens"]);

const pen = document.createElement("canvas").getContext("2d");

/** CSS pixels of the widest of some texts. */
function widest(texts: readonly string[], font: string): number {
  if (!pen) return 0;
  pen.font = font;
  return Math.max(0, ...texts.map((text) => pen.measureText(text ?? "").width));
}

export class Plot {
  readonly #host: HTMLElement;
  #options: PlotOptions;
  readonly #calls: PlotCalls;
  #u: uPlot | null = null;
  #drawn: Drawn[] = [];
  #view: View = null;
  #extent: Extent = { low: NaN, high: NaN, hidden: 0, hiddenExact: true };
  #frame: Frame | null = null;
  #silent = false;
  #moving = false;
  #shift = false;
  #compare: Range | null = null;
  #inside = false;
  #lastTick = 0; // half of the width of its text, in CSS pixels
  #beyond = 0;
  #fence: { curves: readonly Curve[]; logY: boolean; range: Range | null } | null = null;
  readonly #inksNow: () => PlotInks;
  #inks: PlotInks;

  /** inks: asked at the start and after each change of the theme. */
  constructor(host: HTMLElement, options: PlotOptions, inks: () => PlotInks, calls: PlotCalls) {
    this.#host = host;
    this.#options = options;
    this.#calls = calls;
    this.#inksNow = inks;
    this.#inks = inks();
    this.#build();
  }

  get view(): Range {
    return this.#frame?.x ?? this.#wholeX();
  }

  get hidden(): { count: number; exact: boolean } {
    return { count: this.#extent.hidden, exact: this.#extent.hiddenExact };
  }

  /** How many curves go on beyond the y axis. */
  get beyond(): number {
    return this.#beyond;
  }

  get over(): HTMLElement | null {
    return this.#u?.over ?? null;
  }

  get canvas(): HTMLCanvasElement | null {
    return this.#u?.ctx.canvas ?? null;
  }

  /** All x that there are, of everything drawn. */
  bounds(): Range {
    return this.#wholeX();
  }

  #build(): void {
    this.#inks = this.#inksNow();
    this.#lastTick = 0;
    this.#u?.destroy();
    const { logX, logY, x, unit } = this.#options;
    const font = `11px ${this.#inks.font}`;
    const seconds = x === "relative" && !logX;
    const shared = (): Pick<uPlot.Axis, "stroke" | "font" | "grid" | "ticks"> => ({
      stroke: () => this.#inks.axis,
      font,
      grid: { stroke: () => this.#inks.grid, width: 1 },
      ticks: { stroke: () => this.#inks.grid, width: 1, size: 4 },
    });
    // uPlot knows steps from 1e-32 to 1e32, and of 2.5, which needs a digit more; a logarithmic axis it counts from its
    // lower end on, round or not. It gets a step that always fits, and our own ticks.
    const round = (log: boolean, unit = ""): Pick<uPlot.Axis, "incrs" | "splits" | "filter"> => {
      let room = 1;
      return {
        incrs: (_u, _axis, low, high, size, space) => {
          room = size / space;
          return [Math.max(high - low, 5)];
        },
        splits: (_u, _axis, low, high) => unitTicks(low, high, room, log, unit),
        filter: (_u, splits) => splits,
      };
    };
    const options: uPlot.Options = {
      width: this.#width(),
      height: this.#options.height,
      padding: [this.#options.top ?? 8, () => this.#right(), 0, 0],
      legend: { show: false },
      scales: {
        x: { time: x === "time" && !logX, distr: logX ? 3 : 1, range: () => [...this.#rangeX()] as [number, number] },
        y: { distr: logY ? 3 : 1, range: () => [...this.#rangeY()] as [number, number] },
      },
      axes: [
        {
          ...shared(),
          size: 26,
          gap: 3,
          space: 60,
          ...(seconds
            ? { incrs: SECONDS }
            : COUNTED.has(x) && !logX
              ? { incrs: COUNTS }
              : x === "time" && !logX
                ? {}
                : round(logX)),
          ...(x === "time" && !logX
            ? {}
            : {
                values: (_u: uPlot, values: number[]) => {
                  const texts = this.#words(values, "x");
                  this.#lastTick = widest(texts.slice(-1), font) / 2;
                  return texts;
                },
              }),
        },
        {
          ...shared(),
          ...round(logY, unit),
          size: (_u, texts) => Math.max(LEFT, widest(texts ?? [], font) + GAPS),
          gap: 4,
          space: 34,
          values: (_u, values) => this.#words(values, "y"),
        },
      ],
      series: [{}, { show: true, paths: () => null, points: { show: false } }],
      cursor: {
        x: true,
        y: false,
        points: { show: false },
        drag: { x: true, y: false, setScale: false, dist: 4 },
        focus: { prox: -1 },
        bind: {
          mousedown: (_u, _target, handler) => (event) => {
            this.#shift = event.shiftKey;
            // the middle button and Alt move the range, see gestures.ts
            if (event.button === 0 && !event.altKey) handler(event);
            return null;
          },
          dblclick: () => () => null,
        },
      },
      hooks: {
        draw: [(u) => this.#paint(u)],
        setCursor: [(u) => this.#moved(u)],
        setSelect: [(u) => this.#selected(u)],
      },
    };
    this.#u = new uPlot(
      options,
      [
        [0, 1],
        [null, null],
      ],
      this.#host,
    );
    this.#u.root.setAttribute("aria-hidden", "true");
    this.#inside = false;
    this.#u.over.addEventListener("mouseenter", () => (this.#inside = true));
    this.#u.over.addEventListener("mouseleave", () => (this.#inside = false));
  }

  /** The last tick's text is never cut. */
  #right(): number {
    return Math.max(RIGHT, this.#options.right ?? 0, Math.ceil(this.#lastTick) + 2);
  }

  #width(): number {
    return Math.max(120, Math.floor(this.#host.clientWidth || 480));
  }

  #words(values: (number | null)[], scale: "x" | "y"): string[] {
    const { x, logX, logY, unit } = this.#options;
    return scale === "y"
      ? unitTickTexts(values, logY, unit)
      : unitTickTexts(values, logX, x === "relative" ? "seconds" : "");
  }

  #wholeX(): Range {
    let low = Infinity;
    let high = -Infinity;
    for (const { curve } of this.#drawn) {
      for (const columns of [curve, ...curve.old]) {
        const { x } = columns;
        if (!x.length) continue;
        let first = x[0] ?? 0;
        if (this.#options.logX) for (let at = 0; first <= 0 && at < x.length; at++) first = x[at] ?? 0;
        if ((!this.#options.logX || first > 0) && first < low) low = first;
        high = Math.max(high, x[x.length - 1] ?? 0);
      }
      for (const mark of curve.marks) {
        if (this.#options.logX && mark.x <= 0) continue;
        low = Math.min(low, mark.x);
        high = Math.max(high, mark.x);
      }
    }
    if (!(low <= high)) return this.#options.logX ? [1, 10] : [0, 1];
    if (low === high) return this.#options.logX ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
    return [low, high];
  }

  #rangeX(): Range {
    if (this.#view === null) return this.#wholeX();
    const [from, to] = this.#view;
    return this.#options.logX && from <= 0 ? [Math.min(this.#wholeX()[0], to / 10), to] : this.#view;
  }

  #rangeY(): Range {
    const [from, to] = this.#rangeX();
    const { logY, typical, zero } = this.#options;
    const curves: Curve[] = this.#drawn.map((one) => one.curve);
    const columns = curves.flatMap((curve) => [curve, ...curve.old]);
    const found = extent(columns, from, to, logY);
    this.#extent = found;
    let { low, high } = found;
    this.#beyond = 0;
    const least = typical === false ? null : typical ? centre(curves, from, to) : this.#fenceOf(curves);
    if (least && (!logY || least[0] > 0)) {
      // of the range in view: where all of it is beyond, it is what is looked at
      const [below, above] = typical ? least : [Math.max(low, least[0]), Math.min(high, least[1])];
      if (below < above) {
        this.#beyond = columns.filter((one) => {
          const own = extent([one], from, to, logY);
          return own.high > above || own.low < below;
        }).length;
        [low, high] = [below, above];
      }
    }
    if (zero && !logY && low >= 0) [low, high] = [0, high > 0 ? high : 1];
    if (this.#options.zeroLine && !logY) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
    return padded(low, high, logY);
  }

  /** Of the same curves once, not for each frame of a movement. */
  #fenceOf(curves: readonly Curve[]): Range | null {
    const { logY } = this.#options;
    const known = this.#fence;
    const held = known?.logY === logY && known.curves.length === curves.length;
    if (known && held && curves.every((one, at) => one === known.curves[at])) return known.range;
    this.#fence = { curves, logY, range: fence(curves, logY) };
    return this.#fence.range;
  }

  #paint(u: uPlot): void {
    const { left, top, width, height } = u.bbox;
    const scaleX = u.scales["x"];
    const scaleY = u.scales["y"];
    if (!scaleX || !scaleY) return;
    // prettier-ignore
    this.#frame = {
      left, top, width, height,
      x: [scaleX.min ?? 0, scaleX.max ?? 1],
      y: [scaleY.min ?? 0, scaleY.max ?? 1],
      logX: this.#options.logX,
      logY: this.#options.logY,
      ratio: uPlot.pxRatio,
    };
    if (this.#compare) {
      const [from, to] = this.#compare;
      const a = Math.max(left, u.valToPos(from, "x", true));
      const b = Math.min(left + width, u.valToPos(to, "x", true));
      u.ctx.fillStyle = this.#inks.select;
      if (b > a) u.ctx.fillRect(a, top, b - a, height);
    }
    if (this.#options.zeroLine && !this.#options.logY) {
      const y = u.valToPos(0, "y", true);
      u.ctx.fillStyle = this.#inks.axis;
      u.ctx.fillRect(left, y - uPlot.pxRatio / 2, width, uPlot.pxRatio);
    }
    paint(u.ctx, this.#drawn, this.#frame, this.#inks, this.#moving);
    this.#calls.onDrawn();
  }

  #moved(u: uPlot): void {
    // a chart that is drawn anew has a cursor too: only that under the pointer is a person's
    if (this.#silent || !this.#inside) return;
    const left = u.cursor.left ?? -1;
    const top = u.cursor.top ?? -1;
    if (left < 0) this.#calls.onCursor(null, null);
    else this.#calls.onCursor(u.posToVal(left, "x"), top < 0 ? null : u.posToVal(top, "y"));
  }

  #selected(u: uPlot): void {
    const { left, width } = u.select;
    if (width < 3) return;
    const range: Range = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.#calls.onSelect(range, this.#shift);
  }

  /** What to draw, for a range. moving: it will change with the next frame, and speed counts more than all detail. */
  set(drawn: Drawn[], view: View, moving = false): void {
    this.#drawn = drawn;
    this.#view = view;
    this.#moving = moving;
    this.refresh();
  }

  setCompare(range: Range | null): void {
    this.#compare = range;
    this.#u?.redraw(false, false);
  }

  setOptions(options: PlotOptions): void {
    const before = this.#options;
    this.#options = options;
    if (BUILT.some((name) => before[name] !== options[name])) this.#build();
    else if (before.height !== options.height) this.resize();
    else if (before.right !== options.right) this.#u?.redraw(false, true);
    this.refresh();
  }

  /** The ranges anew, and everything drawn. */
  refresh(): void {
    const u = this.#u;
    if (!u) return;
    const [min, max] = this.#rangeX();
    const silent = this.#silent;
    this.#silent = true; // uPlot tells of its cursor again where a scale changes, though nobody moved it
    u.batch(() => {
      u.setData(
        [
          [min, max],
          [null, null],
        ],
        false,
      );
      u.setScale("x", { min, max });
      const [low, high] = this.#rangeY();
      u.setScale("y", { min: low, max: high });
    });
    this.#silent = silent;
    const left = u.cursor.left ?? -1;
    // what is under a pointer that rests is another x now
    if (this.#inside && left >= 0 && !silent && !this.#moving) this.#moved(u);
  }

  resize(): void {
    const width = this.#width();
    if (this.#u && (this.#u.width !== width || this.#u.height !== this.#options.height)) {
      this.#u.setSize({ width, height: this.#options.height });
    }
  }

  /** After the theme changed. */
  restyle(): void {
    this.#inks = this.#inksNow();
    this.#u?.redraw(false, true);
  }

  /** The cursor by value, as another chart or a key sets it; it is not passed on. */
  setCursor(x: number | null): void {
    const u = this.#u;
    if (!u) return;
    this.#silent = true;
    const left = x === null ? -10 : u.valToPos(x, "x");
    const out = !(left >= 0 && left <= u.over.clientWidth);
    u.setCursor({ left: out ? -10 : left, top: -10 });
    this.#silent = false;
  }

  /** CSS pixels from the left of the host; null where x is out of sight. */
  left(x: number): number | null {
    const u = this.#u;
    if (!u) return null;
    const left = u.valToPos(x, "x");
    if (!(left >= -0.5 && left <= u.over.clientWidth + 0.5)) return null;
    return left + u.bbox.left / uPlot.pxRatio;
  }

  top(y: number): number {
    const u = this.#u;
    return u ? u.valToPos(y, "y") + u.bbox.top / uPlot.pxRatio : 0;
  }

  /** The height in CSS pixels at which each curve leaves the plot at its right, NaN where it has no value in sight. */
  ends(): number[] {
    const u = this.#u;
    if (!u) return [];
    const [from, to] = this.view;
    const { top, bottom } = this.area;
    return this.#drawn.map(({ curve }) => {
      const source = curve.smooth.length ? curve.smooth : curve.y;
      for (let at = placeOf(curve.x, to + Number.MIN_VALUE); at >= 0; at--) {
        const x = curve.x[at] ?? NaN;
        const value = source[at] ?? NaN;
        if (x < from) break;
        if (!(x <= to) || !Number.isFinite(value) || (this.#options.logY && value <= 0)) continue;
        return Math.max(top, Math.min(bottom, u.valToPos(value, "y") + top));
      }
      return NaN;
    });
  }

  /** What stands around the curves, in CSS pixels, for a drawing elsewhere. */
  drawing(): {
    frame: Frame;
    drawn: readonly Drawn[];
    x: Tick[];
    y: Tick[];
    width: number;
    height: number;
    inks: PlotInks;
  } {
    const u = this.#u;
    const frame = this.#frame;
    if (!u || !frame) throw new Error("the chart is not drawn yet");
    const by = 1 / frame.ratio;
    // prettier-ignore
    const small = {
      ...frame, ratio: 1,
      left: frame.left * by, top: frame.top * by, width: frame.width * by, height: frame.height * by,
    };
    const ticks = (at: 0 | 1): Tick[] => {
      const axis = u.axes[at] as { _splits?: number[]; _values?: (string | null)[] } | undefined;
      return (axis?._splits ?? []).flatMap((value, place) => {
        const text = axis?._values?.[place] ?? "";
        return text ? [{ at: u.valToPos(value, at ? "y" : "x") + (at ? small.top : small.left), text }] : [];
      });
    };
    return {
      frame: small,
      drawn: this.#drawn,
      x: ticks(0),
      y: ticks(1),
      width: u.width,
      height: u.height,
      inks: this.#inks,
    };
  }

  valueAt(leftInOver: number): number {
    return this.#u?.posToVal(leftInOver, "x") ?? 0;
  }

  /** Where the plot is in its host, in CSS pixels. */
  get area(): { top: number; bottom: number } {
    const top = (this.#u?.bbox.top ?? 0) / uPlot.pxRatio;
    return { top, bottom: top + (this.#u?.bbox.height ?? 0) / uPlot.pxRatio };
  }

  get hostWidth(): number {
    return this.#width();
  }

  /** CSS pixels of the widest of some texts, as the axes are written. */
  widest(texts: readonly string[]): number {
    return widest(texts, `11px ${this.#inks.font}`);
  }

  get plotWidth(): number {
    return this.#u?.over.clientWidth ?? 1;
  }

  /** The same before the first drawing, with one bucket a pixel. */
  get plannedWidth(): number {
    return Math.max(60, this.#width() - LEFT - RIGHT);
  }

  destroy(): void {
    this.#u?.destroy();
    this.#u = null;
  }
}
