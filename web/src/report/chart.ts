// One chart of a report: its lines from the page's data; zoom, legend, findings as flags.
import { type Curve, extent, plainCurve, read, signAt } from "../chart/curve.ts";
import { LocalChart } from "../chart/local.ts";
import type { Drawn } from "../chart/paint.ts";
import type { PlotInks } from "../chart/scene.ts";
import { duration, number, whole } from "../shell/text.ts";
import { type ChartData, type LineData, xOf, yOf } from "./data.ts";
import { button, element } from "../shell/element.ts";
import type { Zoom } from "./zoom.ts";

const HEIGHT = 240;
const FLAG_ROOM = 20;

export class Chart {
  private readonly plot: LocalChart;
  private readonly lines: Drawn[];
  private readonly bands: Drawn[];
  private readonly live = element("div", "live");
  private readonly note = element("span", "seen");
  private readonly values: HTMLOutputElement[] = [];
  private readonly shown: boolean[];
  private readonly keys = element("ul", "keys");

  constructor(
    figure: HTMLElement,
    private readonly data: ChartData,
    private readonly zoom: Zoom,
  ) {
    this.lines = data.lines.map(drawnLine);
    this.shown = this.lines.map(() => true);
    this.bands = data.bands.map(([low, high]) => {
      const curve = plainCurve("", xOf(low), new Float64Array(low.y.length).fill(Number.NaN), [yOf(low), yOf(high)]);
      return { curve, look: { label: "", colour: "", interval: true } };
    });
    figure.querySelector(".still")?.after(this.keys, this.live, this.tools());
    this.fillKeys();
    figure.classList.add("drawn"); // until then the still picture stays
    const options = {
      x: data.x === "seconds" ? "relative" : data.x,
      logX: false,
      logY: data.log,
      typical: null,
      height: HEIGHT,
      zeroLine: data.zero,
      unit: data.unit,
      top: data.flags.length ? FLAG_ROOM : 8,
    };
    this.plot = new LocalChart(this.live, options, inks, {
      onRange: ([low, high]) => zoom.set(low, high),
      onReset: () => zoom.reset(),
      onCursor: (x) => zoom.point(x, this),
      onDrawn: () => queueMicrotask(() => this.placeFlags()),
    });
    this.draw();
    zoom.listen({ range: () => this.show(), cursor: (x, from) => this.readAt(x, from === this) });
  }

  /** Draw again, with the colours of the theme that is on now. */
  draw(): void {
    for (const drawn of [this.lines, this.bands]) {
      drawn.forEach((one, at) => {
        one.look.colour = custom(`--c${this.data.lines[at]?.tint ?? 0}`);
      });
    }
    this.plot.plot.restyle();
    this.show();
  }

  private show(log = this.plot.log): void {
    const drawn = [...this.bands, ...this.lines.filter((_, at) => this.shown[at])];
    this.plot.set(drawn, this.zoom.range, log === this.plot.log ? {} : { logY: log });
    this.describe();
  }

  private xWords(value: number): string {
    return this.data.x === "step" ? whole(value) : number(value, 5);
  }

  /** The values at a place, each line's nearest drawn point. */
  private readAt(x: number | null, own: boolean): void {
    if (!own) this.plot.plot.setCursor(x);
    if (x === null) {
      for (const output of this.values) output.textContent = "";
      this.describe();
      return;
    }
    let place: number | null = null;
    this.values.forEach((output, at) => {
      const curve = this.lines[at]?.curve;
      const found = curve ? read(curve, x) : null;
      place ??= found?.x ?? null;
      if (!curve || !found) output.textContent = "";
      else
        output.textContent = this.valueWords(
          curve,
          x,
          found.value,
          (this.data.lines[at]?.points ?? 0) > curve.x.length,
        );
    });
    if (place !== null) this.note.textContent = `${this.data.x} ${this.xWords(place)}`;
  }

  /** thinned: points were left out; all that stand within a pixel count, so that a spike of one step can be read. */
  private valueWords(curve: Curve, x: number, value: number, thinned: boolean): string {
    const text = (one: number): string => (this.data.unit === "seconds" ? duration(one) : number(one, 5));
    if (!thinned) return text(value);
    const [from, to] = this.zoom.range;
    const pixel = (to - from) / this.plot.plot.plotWidth;
    const { low, high } = extent([curve], x - pixel, x + pixel, false);
    return low < high ? `${text(low)} … ${text(high)}` : text(value);
  }

  private placeFlags(): void {
    const { over } = this.plot.plot;
    if (!over) return;
    for (const old of over.querySelectorAll(".flagged")) old.remove();
    const [low, high] = this.zoom.range;
    for (const flag of this.data.flags) {
      if (flag.step < low || flag.step > high) continue;
      const line = element("div", `flagged ${flag.severity}`);
      const link = element("a", "", String(flag.number));
      link.href = `#finding-${flag.number}`;
      link.title = flag.message;
      link.setAttribute("aria-label", `finding ${flag.number} at step ${whole(flag.step)}: ${flag.message}`);
      link.addEventListener("mousedown", (event) => event.stopPropagation());
      line.append(link);
      line.style.left = `${((flag.step - low) / (high - low)) * over.clientWidth}px`;
      over.append(line);
    }
  }

  /** What is in view, and how many points a drawn one stands for. */
  private describe(): void {
    const [low, high] = this.zoom.range;
    const range = `${this.data.x} ${this.xWords(Math.ceil(low))} to ${this.xWords(Math.floor(high))}`;
    const line = this.data.lines[0];
    const x = this.lines[0]?.curve.x;
    if (!line?.points || !x) {
      this.note.textContent = range;
      return;
    }
    const [first, last] = [x[0] ?? 0, x[x.length - 1] ?? 0];
    const inside = x.filter((value) => value >= low && value <= high).length;
    const logged = (last - first) / Math.max(1, line.points - 1);
    const each = (Math.min(high, last) - Math.max(low, first)) / Math.max(1, inside - 1);
    const detail =
      line.points > x.length
        ? `minimum and maximum of about ${whole(Math.max(2 * logged, 2 * each))} ${this.data.x}s each`
        : "every logged point";
    const { count } = this.plot.plot.hidden;
    const hidden =
      this.plot.log && count ? `; ${whole(count)} at or below zero have no place on a logarithmic axis` : "";
    this.note.textContent = `${range}; ${detail}${hidden}`;
  }

  private fillKeys(): void {
    this.data.lines.forEach((line, at) => {
      const item = element("li");
      const toggle = button("", `show or hide ${line.label}`, () => {
        this.shown[at] = !this.shown[at];
        toggle.setAttribute("aria-pressed", String(this.shown[at]));
        this.show();
      });
      toggle.setAttribute("aria-pressed", "true");
      const value = document.createElement("output");
      toggle.append(element("span", `key c${line.tint}${line.look === "faint" ? " faint" : ""}`), line.label, value);
      this.values.push(value);
      item.append(toggle);
      this.keys.append(item);
    });
  }

  private tools(): HTMLElement {
    const bar = element("div", "tools");
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", `zoom ${this.data.title}`);
    const log = button("log", "logarithmic axis", () => {
      this.show(!this.plot.log);
      log.setAttribute("aria-pressed", String(this.plot.log));
    });
    log.setAttribute("aria-pressed", String(this.data.log));
    bar.append(
      button("+", "zoom in", () => this.zoom.scale(0.5)),
      button("−", "zoom out", () => this.zoom.scale(2)),
      button("◀", "earlier", () => this.zoom.shift(-0.5)),
      button("▶", "later", () => this.zoom.shift(0.5)),
      button("all", "show all of it", () => this.zoom.reset()),
      log,
      this.note,
    );
    return bar;
  }
}

function drawnLine(line: LineData): Drawn {
  const [x, y] = [xOf(line), yOf(line)];
  const signs = Array.from(y, (value, at) => signAt(x[at] ?? 0, value)).filter((_, at) => !Number.isFinite(y[at]));
  return {
    curve: plainCurve(line.label, x, y, undefined, signs),
    look: { label: line.label, colour: "", faint: line.look === "faint", dots: line.look === "dots" },
  };
}

/** The colour that the page gives a name now. */
function custom(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const inks = (): PlotInks => ({
  mark: custom("--chart-mark"),
  axis: custom("--chart-axis"),
  grid: custom("--chart-grid"),
  select: "transparent",
  font: "system-ui,sans-serif",
});
