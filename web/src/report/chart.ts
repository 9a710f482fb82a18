// One chart: its lines from the page's data, drawn by uPlot; zoom, legend, findings as flags.
import uPlot from "uplot";
import { type ChartData, type Column, oddOf, xOf, yOf } from "./data.ts";
import { button, element } from "./elements.ts";
import { number, tick, whole } from "./words.ts";
import type { Range, Zoom } from "./zoom.ts";

const HEIGHT = 240;
const FLAG_ROOM = 18;

interface Drawn {
  label: string;
  tint: number;
  look: string;
  points: number;
  x: number[];
  y: (number | null)[];
  odd: [number, string][];
  band: boolean;
}

export class Chart {
  private plot: uPlot | null = null;
  private log: boolean;
  private readonly lines: Drawn[];
  private readonly live = element("div", "live");
  private readonly seen = element("span", "seen");
  private readonly values: HTMLOutputElement[] = [];
  private readonly shown: boolean[];
  private readonly keys = element("ul", "keys");
  private moving = false;

  constructor(
    private readonly figure: HTMLElement,
    private readonly data: ChartData,
    private readonly zoom: Zoom,
  ) {
    this.log = data.log;
    this.lines = data.lines.map((line) => {
      const x = xOf(line);
      return { ...line, x, y: yOf(line), odd: oddOf(line, x), band: false };
    });
    this.shown = this.lines.map(() => true);
    data.bands.forEach((pair, at) => {
      for (const edge of pair) this.lines.push(bandEdge(edge, this.lines[at]?.tint ?? 0));
    });
    const still = figure.querySelector(".still");
    still?.after(this.keys, this.live, this.tools());
    this.fillKeys();
    this.draw();
    zoom.listen((range, source) => {
      if (source !== this) this.showRange(range);
    });
    new ResizeObserver(() => this.resize()).observe(this.live);
  }

  /** Draw again, with the colours of the theme that is on now. */
  draw(): void {
    this.plot?.destroy();
    const tables = this.lines.map((line) => [line.x, this.drawable(line)] as [number[], (number | null)[]]);
    const joined = tables.length > 1 ? uPlot.join(tables as uPlot.AlignedData[]) : (tables[0] as uPlot.AlignedData);
    this.moving = true;
    this.plot = new uPlot(this.options(), joined, this.live);
    this.plot.setScale("x", { min: this.zoom.range[0], max: this.zoom.range[1] });
    this.moving = false;
    this.plot.over.addEventListener("dblclick", (event) => {
      event.stopImmediatePropagation();
      this.zoom.reset();
    });
    this.placeFlags();
    this.tell();
  }

  private drawable(line: Drawn): (number | null)[] {
    return this.log ? line.y.map((value) => (value !== null && value > 0 ? value : null)) : line.y;
  }

  private options(): uPlot.Options {
    const ink = colour("--dim");
    const grid = { stroke: colour("--line"), width: 1 };
    const font = "11px system-ui,sans-serif";
    const count = this.data.lines.length;
    const filter = this.log ? { filter: powers } : {};
    return {
      width: Math.max(200, this.live.clientWidth || this.figure.clientWidth),
      height: HEIGHT,
      padding: [this.data.flags.length ? FLAG_ROOM : 8, 18, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: false, range: (_, low, high) => padded([low ?? this.zoom.range[0], high ?? this.zoom.range[1]]) },
        y: this.log ? { distr: 3 } : { range: (_, low, high) => around(low, high, this.data.zero) },
      },
      axes: [
        { stroke: ink, grid: { show: false }, ticks: { ...grid, size: 4 }, font, space: 60, size: 30, gap: 3,
          values: (_, splits) => splits.map((one) => this.xWords(one)) },
        { stroke: ink, grid: { ...grid, ...filter }, ticks: { show: false }, font, size: 62, ...filter,
          values: (_, splits) => splits.map((one) => (one === null ? "" : tick(one, this.data.unit))) },
      ],
      series: [{}, ...this.lines.map((line, at): uPlot.Series => {
        const stroke = colour(`--c${line.tint}`);
        return {
          label: line.label,
          stroke: line.band ? undefined : line.look === "faint" ? `${stroke}66` : stroke,
          width: line.band ? 0 : line.look === "line" ? 1.6 : 1,
          points: line.look === "dots" || line.x.length === 1 ? { show: true, size: 5, fill: stroke } : { show: false },
          show: line.band || this.shown[at],
          spanGaps: false,
        };
      })],
      bands: this.data.bands.map((_, at) => ({
        series: [count + 2 * at + 2, count + 2 * at + 1] as [number, number],
        fill: `${colour(`--c${this.lines[at]?.tint ?? 0}`)}30`,
      })),
      cursor: {
        sync: { key: `x-${this.data.x}`, setSeries: false, scales: ["x", null] },
        drag: { x: true, y: false, dist: 4, setScale: true },
        points: { show: (u, at) => (this.lines[at - 1]?.band ? (null as never) : point(u, at)) },
        focus: { prox: -1 },
      },
      hooks: {
        ready: [() => this.figure.classList.add("drawn")], // until then the still picture stays
        setScale: [(u, key) => this.scaled(u, key)],
        setCursor: [(u) => this.read(u)],
        draw: [(u) => this.drawMarks(u)],
      },
    };
  }

  private xWords(value: number): string {
    if (this.data.x === "step") return Number.isInteger(value) ? (value >= 1e6 ? tick(value, "") : whole(value)) : "";
    return tick(value, this.data.x);
  }

  private scaled(u: uPlot, key: string): void {
    if (key !== "x") return;
    const { min, max } = u.scales.x ?? {};
    if (!this.moving && min != null && max != null) {
      this.zoom.set(min, max, this);
      this.moving = true;
      u.setScale("x", { min: this.zoom.range[0], max: this.zoom.range[1] });
      this.moving = false;
    }
    queueMicrotask(() => {
      this.placeFlags();
      this.tell();
    });
  }

  private showRange([low, high]: Range): void {
    this.moving = true;
    this.plot?.setScale("x", { min: low, max: high });
    this.moving = false;
  }

  private resize(): void {
    const width = this.live.clientWidth;
    if (this.plot && width > 0 && Math.abs(width - this.plot.width) > 1) {
      this.plot.setSize({ width, height: HEIGHT });
      this.placeFlags();
    }
  }

  /** The values under the cursor, each line's nearest drawn point. */
  private read(u: uPlot): void {
    const left = u.cursor.left ?? -1;
    if (left < 0) {
      this.values.forEach((output) => (output.textContent = ""));
      this.tell();
      return;
    }
    const x = u.posToVal(left, "x");
    let place: number | null = null;
    this.values.forEach((output, at) => {
      const line = this.lines[at];
      const near = line ? nearest(line.x, x) : -1;
      if (!line || near < 0) return;
      const value = line.y[near];
      place ??= line.x[near] ?? null;
      const odd = line.odd.find(([where]) => where === line.x[near]);
      output.textContent = value != null ? tick(value, this.data.unit) : odd ? odd[1] : "";
    });
    if (place !== null) this.seen.textContent = `${this.data.x} ${this.xWords(place) || number(place)}`;
  }

  /** Marks for what is not finite, and the line at zero. */
  private drawMarks(u: uPlot): void {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    if (this.data.zero && !this.log) {
      const y = u.valToPos(0, "y", true);
      ctx.strokeStyle = colour("--dim");
      ctx.lineWidth = ratio;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
    }
    ctx.strokeStyle = colour("--bad");
    ctx.lineWidth = 1.5 * ratio;
    const half = 2.5 * ratio;
    const top = bbox.top + 5 * ratio;
    let last = -1e9;
    for (const [x] of this.lines.flatMap((line, at) => (this.shown[at] ? line.odd : [])).sort((a, b) => a[0] - b[0])) {
      const at = u.valToPos(x, "x", true);
      if (at - last < 3 * ratio) continue;
      last = at;
      ctx.beginPath();
      ctx.moveTo(at - half, top - half);
      ctx.lineTo(at + half, top + half);
      ctx.moveTo(at - half, top + half);
      ctx.lineTo(at + half, top - half);
      ctx.stroke();
    }
    ctx.restore();
  }

  private placeFlags(): void {
    const plot = this.plot;
    if (!plot) return;
    plot.over.querySelectorAll(".flagged").forEach((old) => old.remove());
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
      line.style.left = `${plot.valToPos(flag.step, "x")}px`;
      plot.over.append(line);
    }
  }

  /** What is in view, and how much a drawn point stands for. */
  private tell(): void {
    const [low, high] = this.zoom.range;
    const line = this.lines.find((one) => !one.band);
    if (!line) return;
    const inside = line.x.filter((x) => x >= low && x <= high).length;
    const range = `${this.data.x} ${this.xWords(Math.ceil(low)) || number(low)} to ${this.xWords(Math.floor(high)) || number(high)}`;
    const first = line.x[0] ?? 0;
    const last = line.x[line.x.length - 1] ?? 0;
    const logged = (last - first) / Math.max(1, line.points - 1);
    if (!line.points) {
      this.seen.textContent = range;
      return;
    }
    const drawn = line.points > line.x.length;
    const each = (Math.min(high, last) - Math.max(low, first)) / Math.max(1, inside - 1);
    const words = drawn
      ? `two points for each ${whole(Math.max(2 * logged, 2 * each))} or so ${this.data.x}s: their least and greatest value`
      : "every logged point";
    const hidden = this.log ? this.lines.reduce((sum, one) => sum + one.y.filter((y) => y !== null && y <= 0).length, 0) : 0;
    const left = hidden ? `; ${hidden} at or below zero can't stand on a logarithmic axis` : "";
    this.seen.textContent = `${range}; ${words}${left}`;
  }

  private fillKeys(): void {
    this.data.lines.forEach((line, at) => {
      const item = element("li");
      const toggle = button("", `show or hide ${line.label}`, () => {
        this.shown[at] = !this.shown[at];
        toggle.setAttribute("aria-pressed", String(this.shown[at]));
        this.plot?.setSeries(at + 1, { show: this.shown[at] });
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
      this.log = !this.log;
      log.setAttribute("aria-pressed", String(this.log));
      this.draw();
    });
    log.setAttribute("aria-pressed", String(this.log));
    bar.append(
      button("+", "zoom in", () => this.zoom.scale(0.5)),
      button("−", "zoom out", () => this.zoom.scale(2)),
      button("◀", "earlier", () => this.zoom.shift(-0.5)),
      button("▶", "later", () => this.zoom.shift(0.5)),
      button("all", "show all of it", () => this.zoom.reset()),
      log,
      this.seen,
    );
    return bar;
  }
}

function bandEdge(column: Column, tint: number): Drawn {
  const x = xOf(column);
  return { label: "", tint, look: "line", points: x.length, x, y: yOf(column), odd: [], band: true };
}

/** The colour that the page gives a name now. */
function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function padded([low, high]: Range): Range {
  return high > low ? [low, high] : [low - 0.5, high + 0.5];
}

/** Room above and below the values. */
function around(low: number | null, high: number | null, zero: boolean): Range {
  if (low === null || high === null) return [0, 1];
  const least = zero ? Math.min(0, low) : low;
  const most = zero ? Math.max(0, high) : high;
  const room = (most - least) * 0.05 || Math.abs(most) * 0.02 || 1;
  return [least - room, most + room];
}

/** Of a logarithmic axis over more than two powers of ten the powers alone; else the halves and fifths too. */
function powers(u: uPlot, splits: number[]): (number | null)[] {
  const { min, max } = u.scales.y ?? {};
  const many = (max ?? 1) / Math.max(min ?? 1, 1e-300) > 200;
  return splits.map((one) => {
    const first = Math.round(one / 10 ** Math.floor(Math.log10(one) + 1e-9));
    return first === 1 || first === 10 || (!many && (first === 2 || first === 5)) ? one : null;
  });
}

function point(u: uPlot, at: number): HTMLElement {
  const mark = document.createElement("div");
  const stroke = u.series[at]?.stroke;
  mark.style.background = typeof stroke === "function" ? String(stroke(u, at)) : String(stroke ?? "");
  return mark;
}

/** The place of the x that is next to another; −1 of none. */
function nearest(xs: number[], x: number): number {
  let low = 0;
  let high = xs.length - 1;
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((xs[middle] ?? 0) <= x) low = middle;
    else high = middle;
  }
  return Math.abs((xs[low] ?? 0) - x) <= Math.abs((xs[high] ?? 0) - x) ? low : high;
}
