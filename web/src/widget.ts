// The notebook's widget (notebook/widget.py): a run's or a comparison's charts, with no server behind them.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { Chart, COLOURS, type Wishes } from "./widget/chart.ts";
import { figure, type Frame, type Panel, readFrame } from "./widget/frame.ts";
import "./widget/widget.css";

/** What anywidget hands to a view. */
interface Model {
  get(name: "frame"): DataView | undefined;
  on(event: string, handler: (...given: never[]) => void): void;
  off(event: string, handler: (...given: never[]) => void): void;
  send(content: unknown): void;
}

const MOST_BUCKETS = 4000;
let count = 0;

function element<K extends keyof HTMLElementTagNameMap>(name: K, style = "", text = ""): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  if (style) made.className = style;
  if (text) made.textContent = text; // names are hostile input: never as HTML
  return made;
}

class View {
  private charts: Chart[] = [];
  private captions: HTMLElement[] = [];
  private readonly wishes: Wishes;
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
    this.wishes = {
      log: false,
      range: null,
      onRange: (low, high) => this.zoom(low, high),
      onReset: () => this.unzoom(),
      group: uPlot.sync(`barograph-${++count}`),
    };
    const box = element("div", "barograph");
    box.append(this.head, this.grid, this.below);
    root.append(box);
    for (const button of [this.log, this.reset]) button.type = "button";
    this.log.title = "logarithmic axes; points at or below zero are left out";
    this.reset.title = "show everything again; drag over a chart to look closer";
    this.log.onclick = () => {
      this.wishes.log = !this.wishes.log;
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
    if (this.wishes.range && this.charts.length) this.ask();
    else this.draw(frame.panels);
  };

  /** The kernel has answered. */
  readonly answered = (content: { kind?: string; id?: number }, buffers: DataView[]): void => {
    if (content.kind !== "range" || content.id !== this.asked || !buffers[0]) return;
    const frame = readFrame(buffers[0]);
    if (frame && this.wishes.range) this.draw(frame.panels);
  };

  readonly resized = (): void => {
    for (const chart of this.charts) chart.resize();
  };

  close(): void {
    for (const chart of this.charts) chart.destroy();
    this.charts = [];
  }

  private zoom(low: number, high: number): void {
    this.wishes.range = [low, high];
    this.reset.disabled = false;
    for (const chart of this.charts) chart.place(); // what is there already, until the exact answer comes
    this.ask();
  }

  private unzoom(): void {
    this.wishes.range = null;
    this.reset.disabled = true;
    if (this.whole) this.draw(this.whole.panels);
  }

  private ask(): void {
    const range = this.wishes.range;
    if (!range) return;
    const wide = this.grid.querySelector("figure")?.clientWidth ?? 480;
    const buckets = Math.min(MOST_BUCKETS, Math.ceil(wide * devicePixelRatio));
    this.asked += 1;
    this.model.send({ kind: "range", id: this.asked, low: range[0], high: range[1], buckets });
  }

  private paint(): void {
    this.log.setAttribute("aria-pressed", String(this.wishes.log));
    if (!this.whole) return;
    this.draw(this.whole.panels);
    if (this.wishes.range) this.ask();
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
    this.log.setAttribute("aria-pressed", String(this.wishes.log));
    this.reset.disabled = !this.wishes.range;
    tools.append(this.log, this.reset);
    this.head.append(tools);
    if (frame.rows.length) this.below.append(table(frame));
  }

  private draw(panels: Panel[]): void {
    if (this.charts.length !== panels.length) {
      this.close();
      this.captions = [];
      this.grid.replaceChildren();
      for (const panel of panels) {
        const figureElement = element("figure");
        const caption = element("figcaption");
        const place = element("div");
        figureElement.append(caption, place);
        this.grid.append(figureElement);
        this.captions.push(caption);
        this.charts.push(new Chart(place, panel, this.wishes));
      }
    }
    panels.forEach((panel, at) => {
      this.charts[at]?.update(panel);
      this.caption(this.captions[at], panel);
    });
  }

  private caption(caption: HTMLElement | undefined, panel: Panel): void {
    if (!caption) return;
    caption.replaceChildren();
    panel.lines.forEach((line, at) => {
      const item = element("span");
      const dot = element("span", "dot");
      dot.style.background = COLOURS[at % COLOURS.length] ?? "#888";
      item.title = line.name;
      const short = line.name.length > 60 ? `${line.name.slice(0, 30)}…${line.name.slice(-29)}` : line.name;
      item.append(dot, short, " ", element("span", "last", figure(line.last)));
      if (line.oddCount) item.append(element("span", "odd", ` ${line.oddCount.toLocaleString("en")} not finite`));
      caption.append(item);
    });
    if (!panel.lines.length) caption.textContent = panel.title;
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
  model.on("msg:custom", view.answered as (...given: never[]) => void);
  const watcher = new ResizeObserver(view.resized);
  watcher.observe(el);
  return () => {
    model.off("change:frame", view.changed);
    model.off("msg:custom", view.answered as (...given: never[]) => void);
    watcher.disconnect();
    view.close();
  };
}

export default { render };
