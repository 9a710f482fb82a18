// One panel: exact extremes of every bucket, marks where values were not finite, a range that can be chosen.
import uPlot from "uplot";
import { figure, type Line, type Panel } from "./frame.ts";

export const COLOURS = ["#3b82f6", "#d9772b", "#2f9e44", "#9b6bdf", "#e05260", "#1098ad", "#a98600", "#8a94a0"];
const HIGH = 220;

export interface Wishes {
  log: boolean;
  range: [number, number] | null;
  onRange: (low: number, high: number) => void;
  onReset: () => void;
  group: uPlot.SyncPubSub;
}

const shown = (value: number): number | null => (Number.isFinite(value) ? value : null);

/** Columns as uPlot wants them: one x for all; each line has its highs and, where buckets hold several points, its lows. */
export function tabled(panel: Panel, log: boolean): uPlot.AlignedData {
  const tables = panel.lines.map((line) => {
    const value = (one: number): number | null => (log && !(one > 0) ? null : shown(one));
    const columns: (number | null)[][] = [Array.from(line.high, value)];
    if (!line.exact) columns.push(Array.from(line.low, value));
    return [line.x, ...columns] as unknown as uPlot.AlignedData;
  });
  if (!tables.length) return [[]];
  return tables.length === 1 ? (tables[0] as uPlot.AlignedData) : uPlot.join(tables);
}

function series(panel: Panel): { series: uPlot.Series[]; bands: uPlot.Band[] } {
  const made: uPlot.Series[] = [{ label: panel.along }];
  const bands: uPlot.Band[] = [];
  panel.lines.forEach((line, at) => {
    const colour = COLOURS[at % COLOURS.length] ?? "#888";
    const dots = line.few && (at > 0 || line.points === 1);
    const value = (_: uPlot, raw: number | null): string => (raw == null ? "" : figure(raw));
    made.push({
      label: line.exact ? line.name : `${line.name}, highest`,
      stroke: colour,
      width: dots ? 0 : 1.4,
      spanGaps: dots,
      points: dots ? { show: true, size: 7, fill: colour } : { show: false },
      value,
    });
    if (!line.exact) {
      made.push({ label: "lowest", stroke: colour, width: 1.4, points: { show: false }, value });
      bands.push({ series: [made.length - 2, made.length - 1], fill: `${colour}55` });
    }
  });
  return { series: made, bands };
}

/** Crosses on the lower edge: NaN and infinities have no height. */
function marks(lines: () => Line[]): (plot: uPlot) => void {
  return (plot) => {
    const { ctx, bbox } = plot;
    const size = 4 * devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = "#e05260";
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.beginPath();
    for (const line of lines()) {
      for (const x of line.odd) {
        const left = plot.valToPos(x, "x", true);
        if (left < bbox.left || left > bbox.left + bbox.width) continue;
        const bottom = bbox.top + bbox.height - size;
        ctx.moveTo(left - size, bottom - size);
        ctx.lineTo(left + size, bottom + size);
        ctx.moveTo(left + size, bottom - size);
        ctx.lineTo(left - size, bottom + size);
      }
    }
    ctx.stroke();
    ctx.restore();
  };
}

/** A panel's chart in an element; `update` draws other data in the same place. */
export class Chart {
  private plot: uPlot | null = null;
  private shape = "";
  private panel: Panel;

  constructor(
    private readonly element: HTMLElement,
    panel: Panel,
    private readonly wishes: Wishes,
  ) {
    this.panel = panel;
    this.update(panel);
  }

  update(panel: Panel): void {
    this.panel = panel;
    const shape = JSON.stringify([this.wishes.log, panel.along, panel.title, panel.lines.map((one) => [one.name, one.exact, one.few])]);
    const data = tabled(panel, this.wishes.log);
    if (this.plot && shape === this.shape) {
      this.plot.setData(data, false);
      this.plot.redraw(true, true);
      this.place();
      return;
    }
    this.destroy();
    this.shape = shape;
    this.plot = new uPlot(this.options(), data, this.element);
    this.place();
  }

  /** The range that is wished for, else all. */
  place(): void {
    const plot = this.plot;
    const xs = plot?.data[0];
    if (!plot || !xs || !xs.length) return;
    const [low, high] = this.wishes.range ?? [xs[0] as number, xs[xs.length - 1] as number];
    plot.setScale("x", { min: low, max: high > low ? high : low + 1 });
  }

  resize(): void {
    if (this.plot && this.element.clientWidth) this.plot.setSize({ width: this.element.clientWidth, height: HIGH });
  }

  destroy(): void {
    this.plot?.destroy();
    this.plot = null;
  }

  private options(): uPlot.Options {
    // asked at each drawing: a view may be drawn before it is in the page, and a theme may change
    const ink = (): string => getComputedStyle(this.element).color || "#888";
    const grid = { stroke: "rgba(128,128,128,.22)", width: 1 };
    const { series: lines, bands } = series(this.panel);
    return {
      width: Math.max(200, this.element.clientWidth || 480),
      height: HIGH,
      series: lines,
      bands,
      scales: { x: { time: this.panel.along === "time" }, y: { distr: this.wishes.log ? 3 : 1 } },
      axes: [
        { stroke: ink, grid, ticks: grid },
        { stroke: ink, grid, ticks: grid, size: 62, values: (_, ticks) => ticks.map((one) => (one == null ? "" : figure(one))) },
      ],
      legend: { live: true },
      cursor: {
        sync: { key: this.wishes.group.key },
        drag: { x: true, y: false, setScale: false },
        bind: {
          dblclick: () => () => {
            this.wishes.onReset();
            return null;
          },
        },
      },
      hooks: {
        draw: [marks(() => this.panel.lines)],
        setSelect: [
          (plot) => {
            if (plot.select.width < 4) return;
            const low = plot.posToVal(plot.select.left, "x");
            const high = plot.posToVal(plot.select.left + plot.select.width, "x");
            plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            this.wishes.onRange(low, high);
          },
        ],
      },
    };
  }
}
