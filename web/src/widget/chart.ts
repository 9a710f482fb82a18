// One panel of the widget: its lines, their values at the cursor, a range that can be chosen.
import { plainCurve, read, signAt } from "../chart/curve.ts";
import { LocalChart } from "../chart/local.ts";
import type { Drawn } from "../chart/paint.ts";
import type { PlotInks } from "../chart/scene.ts";
import { colourAt, MARK } from "../shell/colour.ts";
import { amount, unitOf, type Unit } from "../chart/units.ts";
import { whole } from "../shell/text.ts";
import type { Theme } from "../shell/theme.ts";
import { element } from "../shell/element.ts";
import type { Line, Panel } from "./frame.ts";

const HIGH = 220;

/** What all panels of a view share. */
export interface Shared {
  log: boolean;
  range: [number, number] | null;
  onRange: (low: number, high: number) => void;
  onReset: () => void;
  onCursor: (x: number | null, from: Chart) => void;
}

/** A panel's chart and its caption in an element; `update` draws other data in the same place. */
export class Chart {
  private readonly plot: LocalChart;
  private readonly caption = element("figcaption");
  private readonly values: HTMLElement[] = [];
  private readonly host = element("div");
  private drawn: Drawn[] = [];

  constructor(
    private readonly figure: HTMLElement,
    private panel: Panel,
    private readonly shared: Shared,
  ) {
    figure.append(this.caption, this.host);
    const options = { x: panel.along, logX: false, logY: shared.log, typical: null, height: HIGH };
    this.plot = new LocalChart(this.host, options, () => this.inks(), {
      onRange: ([low, high]) => shared.onRange(low, high),
      onReset: () => shared.onReset(),
      onCursor: (x) => shared.onCursor(x, this),
    });
    this.update(panel);
  }

  update(panel: Panel): void {
    this.panel = panel;
    this.fillCaption();
    this.show();
  }

  /** In the range that is wished for, else all. */
  show(): void {
    const theme = this.theme();
    this.drawn = this.panel.lines.map((line, at) => drawnLine(line, colourAt(at, theme), at));
    const { range, log } = this.shared;
    const changed = log !== this.plot.log || this.panel.along !== this.plot.x;
    const unit = this.unit();
    this.plot.set(
      this.drawn,
      range,
      changed || unit !== this.plot.unit ? { logY: log, x: this.panel.along, unit } : {},
    );
  }

  /** The values at a place; null: the last ones. */
  readAt(x: number | null, own: boolean): void {
    if (!own) this.plot.plot.setCursor(x);
    this.panel.lines.forEach((line, at) => {
      const output = this.values[at];
      if (output)
        output.textContent = x === null ? amount(line.last, this.unit()) : valueAt(this.drawn[at], x, this.unit());
    });
  }

  destroy(): void {
    this.plot.destroy();
  }

  private fillCaption(): void {
    const theme = this.theme();
    this.values.length = 0;
    this.caption.replaceChildren();
    this.panel.lines.forEach((line, at) => {
      const item = element("span");
      const dot = element("span", "dot");
      dot.style.background = colourAt(at, theme);
      item.title = line.name;
      const name = line.name.length > 60 ? `${line.name.slice(0, 30)}…${line.name.slice(-29)}` : line.name;
      const value = element("span", "last", amount(line.last, this.unit()));
      this.values.push(value);
      item.append(dot, name, " ", value);
      if (line.oddCount) item.append(element("span", "odd", ` ${whole(line.oddCount)} not finite`));
      this.caption.append(item);
    });
    const coarse = this.panel.lines.find((line) => !line.exact);
    if (coarse) {
      const note = `${whole(coarse.points)} points, minimum to maximum of each pixel`;
      this.caption.append(element("span", "detail", note));
    }
    if (!this.panel.lines.length) this.caption.textContent = this.panel.title;
  }

  /** What all lines are counted in. */
  private unit(): Unit {
    return unitOf([this.panel.title]) || unitOf(this.panel.lines.map((line) => line.name));
  }

  /** Light text stands on a dark ground. Asked at each drawing: a view is made before it is in the page. */
  private theme(): Theme {
    const channels = getComputedStyle(this.figure)
      .color.match(/[\d.]+/g)
      ?.map(Number) ?? [0, 0, 0];
    const [r = 0, g = 0, b = 0] = channels;
    return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "dark" : "light";
  }

  private inks(): PlotInks {
    const ink = getComputedStyle(this.figure).color || "#888888";
    return {
      mark: MARK[this.theme()],
      axis: ink,
      grid: "rgba(128,128,128,.22)",
      select: "transparent",
      font: "system-ui,sans-serif",
    };
  }
}

function drawnLine(line: Line, colour: string, at: number): Drawn {
  const middle = line.exact ? line.low : line.low.map((low, place) => (low + (line.high[place] ?? low)) / 2);
  const signs = Array.from(line.odd, (x, place) => signAt(x, line.oddValues[place] ?? Number.NaN));
  const curve = plainCurve(line.name, line.x, middle, line.exact ? undefined : [line.low, line.high], signs);
  return { curve, look: { label: line.name, colour, dots: line.few && (at > 0 || line.points === 1) } };
}

function valueAt(drawn: Drawn | undefined, x: number, unit: Unit): string {
  const found = drawn ? read(drawn.curve, x) : null;
  if (!found) return "";
  const high = amount(found.high, unit);
  return found.low < found.high ? `${amount(found.low, unit)} … ${high}` : high;
}
