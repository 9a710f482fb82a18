// A heat map: the value of the cell under the pointer.
import type { HeatData } from "./data.ts";
import { element } from "../shell/element.ts";
import { number, whole } from "../shell/text.ts";

const NOTHING = 0;
const ODD = 1;
const FIRST = 2;
const LAST = 255;

/** Tell of the cell under the pointer, in a line below the map. */
export function explain(figure: HTMLElement, data: HeatData): void {
  const map = figure.querySelector<HTMLElement>(".map");
  const picture = map?.querySelector("svg");
  if (!map || !picture) return;
  const levels = Uint8Array.from(atob(data.levels), (letter) => letter.charCodeAt(0));
  const columns = data.edges.length - 1;
  const tip = element("p", "tip");
  tip.textContent = "Point at a cell to read it.";
  map.after(tip);
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const scale = data.wide / box.width;
    const x = (event.clientX - box.left) * scale - data.left;
    const row = Math.floor(((event.clientY - box.top) * scale - data.top) / data.each);
    const part = x / (data.wide - data.left - data.right);
    if (part < 0 || part >= 1 || row < 0 || row >= data.rows.length) return;
    const first = data.edges[0] ?? 0;
    const last = data.edges[columns] ?? 1;
    const step = first + part * (last - first);
    let column = data.edges.findIndex((edge) => edge > step) - 1;
    if (column < 0) column = columns - 1;
    const level = levels[row * columns + column] ?? NOTHING;
    const from = whole(Math.ceil(data.edges[column] ?? 0));
    const to = whole(Math.ceil((data.edges[column + 1] ?? 0) - 1));
    const where = `${data.rows[row]}, ${from === to ? `step ${from}` : `steps ${from} to ${to}`}`;
    tip.textContent = `${where}: ${cellText(level, data)}`;
  });
}

function cellText(level: number, data: HeatData): string {
  if (level === NOTHING) return "nothing logged";
  if (level === ODD) return "not finite";
  const scaled = data.low + ((level - FIRST) / (LAST - FIRST)) * (data.high - data.low);
  const value = data.log ? 10 ** scaled : scaled;
  const least = data.log && level === FIRST ? "at most " : "about ";
  return least + number(value, 2);
}
