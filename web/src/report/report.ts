// The script of a report: charts that zoom together, over the data that the page carries. It loads nothing.
import { Chart } from "./chart.ts";
import { readData } from "./data.ts";
import { explain } from "./heat.ts";
import { Zoom } from "./zoom.ts";

function start(): void {
  const data = readData();
  if (!data) return;
  const zooms = new Map<string, Zoom>();
  const charts: Chart[] = [];

  const make = (figure: HTMLElement): void => {
    const chart = data.charts[figure.dataset.chart ?? ""];
    if (!chart || figure.classList.contains("drawn")) return;
    const zoom = zooms.get(chart.x) ?? new Zoom(chart.x === "step" ? data.span : spanOf(chart.lines));
    zooms.set(chart.x, zoom);
    charts.push(new Chart(figure, chart, zoom));
  };

  // A chart is made when it comes near the screen: a page of fifty opens as fast as one of five.
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        watcher.unobserve(entry.target);
        make(entry.target as HTMLElement);
      }
    },
    { rootMargin: "600px" },
  );
  for (const figure of document.querySelectorAll<HTMLElement>("figure[data-chart]")) watcher.observe(figure);
  for (const figure of document.querySelectorAll<HTMLElement>("figure[data-heat]")) {
    const heat = data.heats[figure.dataset.heat ?? ""];
    if (heat) explain(figure, heat);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const chart of charts) chart.draw();
  });
}

function spanOf(lines: { x?: number[]; gaps?: number[] }[]): [number, number] {
  const ends = lines.flatMap((line) => {
    if (line.x) return [line.x[0] ?? 0, line.x[line.x.length - 1] ?? 0];
    return [line.gaps?.[0] ?? 0, (line.gaps ?? []).reduce((sum, gap) => sum + gap, 0)];
  });
  return [Math.min(...ends), Math.max(...ends)];
}

start();
