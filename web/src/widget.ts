// The notebook's widget (notebook/widget.py): a run's or a comparison's charts, with no server behind them.
import "uplot/dist/uPlot.min.css";
import { element } from "./shell/element.ts";
import { Chart, type Shared } from "./widget/chart.ts";
import { type Frame, type Panel, readFrame } from "./widget/frame.ts";
import "./widget/widget.css";

/** What anywidget hands to a view. */
interface Model {
  get(name: "frame"): DataView | undefined;
  on(event: string, handler: (...given: never[]) => void): void;
  off(event: string, handler: (...given: never[]) => void): void;
  send(content: unknown): void;
}

const MOST_BUCKETS = 4000;

class View {
  private charts: Chart[] = [];
  private readonly shared: Shared;
  private readonly head = element("header");
  private readonly grid = element("div", "panels");
  private readonly below = element("div");
  private readonly log = element("button", "", "log");
  private readonly reset = element("button", "", "whole run");
  private whole: Frame | null = null;
  private asked = 0;

  constructor(
    private readonly model: Model,
    root: HTMLElement,
  ) {
    this.shared = {
      log: false,
      range: null,
      onRange: (low, high) => this.zoom(low, high),
      onReset: () => this.unzoom(),
      onCursor: (x, from) => {
        for (const chart of this.charts) chart.readAt(x, chart === from);
      },
    };
    const box = element("div", "barograph");
    box.append(this.head, this.grid, this.below);
    root.append(box);
    for (const button of [this.log, this.reset]) button.type = "button";
    this.log.title = "logarithmic axes; points at or below zero are left out";
    this.reset.title = "show everything again; drag over a chart to look closer";
    this.log.onclick = () => {
      this.shared.log = !this.shared.log;
      this.paint();
    };
    this.reset.onclick = () => this.unzoom();
    this.changed();
  }

  /** The kernel has sent the whole again. */
  readonly changed = (): void => {
    const view = this.model.get("frame");
    const frame = view ? readFrame(view) : null;
    if (!frame) return;
    this.whole = frame;
    this.heading(frame);
    if (this.shared.range && this.charts.length) this.ask();
    else this.draw(frame.panels);
  };

  /** The kernel has answered. */
  readonly answered = (content: { kind?: string; id?: number }, buffers: DataView[]): void => {
    if (content.kind !== "range" || content.id !== this.asked || !buffers[0]) return;
    const frame = readFrame(buffers[0]);
    if (frame && this.shared.range) this.draw(frame.panels);
  };

  close(): void {
    for (const chart of this.charts) chart.destroy();
    this.charts = [];
  }

  private zoom(low: number, high: number): void {
    this.shared.range = [low, high];
    this.reset.disabled = false;
    for (const chart of this.charts) chart.show(); // what is there already, until the exact answer comes
    this.ask();
  }

  private unzoom(): void {
    this.shared.range = null;
    this.reset.disabled = true;
    if (this.whole) this.draw(this.whole.panels);
  }

  private ask(): void {
    const range = this.shared.range;
    if (!range) return;
    const wide = this.grid.querySelector("figure")?.clientWidth ?? 480;
    const buckets = Math.min(MOST_BUCKETS, Math.ceil(wide * devicePixelRatio));
    this.asked += 1;
    this.model.send({ kind: "range", id: this.asked, low: range[0], high: range[1], buckets });
  }

  private paint(): void {
    this.log.setAttribute("aria-pressed", String(this.shared.log));
    if (!this.whole) return;
    this.draw(this.whole.panels);
    if (this.shared.range) this.ask();
  }

  private heading(frame: Frame): void {
    this.head.replaceChildren(element("strong", "", frame.title));
    const sentences = frame.rows.length > 0 || frame.facts.some(([, said]) => said.length > 80);
    this.below.replaceChildren();
    for (const [key, said] of frame.facts) {
      if (sentences) {
        this.below.append(element("p", "", key && key !== "verdict" ? `${key}: ${said}` : said));
      } else {
        const fact = element("span", "fact", `${key} `);
        fact.append(element("b", "", said));
        this.head.append(fact);
      }
    }
    const tools = element("span", "tools");
    if (frame.live) tools.append(element("span", "fact", "live"));
    this.log.setAttribute("aria-pressed", String(this.shared.log));
    this.reset.disabled = !this.shared.range;
    tools.append(this.log, this.reset);
    this.head.append(tools);
    if (frame.rows.length) this.below.append(table(frame));
  }

  private draw(panels: Panel[]): void {
    if (this.charts.length === panels.length) {
      panels.forEach((panel, at) => {
        this.charts[at]?.update(panel);
      });
      return;
    }
    this.close();
    this.grid.replaceChildren();
    for (const panel of panels) {
      const figure = element("figure");
      this.grid.append(figure);
      this.charts.push(new Chart(figure, panel, this.shared));
    }
  }
}

function table(frame: Frame): HTMLElement {
  const made = element("table", "figures");
  const row = (cells: string[], name: "th" | "td"): HTMLElement => {
    const line = element("tr");
    line.append(...cells.map((cell) => element(name, "", cell)));
    return line;
  };
  made.append(row(frame.heads, "th"), ...frame.rows.map((cells) => row(cells, "td")));
  return made;
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const view = new View(model, el);
  model.on("change:frame", view.changed);
  model.on("msg:custom", view.answered);
  return () => {
    model.off("change:frame", view.changed);
    model.off("msg:custom", view.answered);
    view.close();
  };
}

export default { render };
