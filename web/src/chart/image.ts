/** A chart as a picture, with its title and legend.
 *
 * In:   the canvas of a plot, words, the looks of its curves.
 * Out:  a PNG, to the clipboard or as a file.
 */

import { token } from "../shell/theme.ts";
import type { Look } from "./curve.ts";

export interface Picture {
  canvas: HTMLCanvasElement;
  title: string;
  looks: readonly Look[];
  /** Below the chart: what the x axis is. */
  note: string;
}

const MOST = 24; // names in a legend; more would leave no chart

export function draw(picture: Picture): HTMLCanvasElement {
  const ratio = picture.canvas.width / Math.max(1, picture.canvas.clientWidth || picture.canvas.width);
  const pad = 12 * ratio;
  const row = 18 * ratio;
  const sans = token("--sans") || "sans-serif";
  const out = document.createElement("canvas");
  const context = out.getContext("2d");
  if (!context) return picture.canvas;
  const named = picture.looks.slice(0, MOST);
  context.font = `${12 * ratio}px ${sans}`;
  const width = picture.canvas.width;
  const places: { look: Look; x: number; y: number }[] = [];
  let [x, y] = [0, 0];
  for (const look of named) {
    const long = context.measureText(look.label).width + 24 * ratio;
    if (x > 0 && x + long > width) [x, y] = [0, y + row];
    places.push({ look, x, y });
    x += long;
  }
  const legend = named.length > 1 ? y + row : 0;
  const head = 26 * ratio;
  out.width = width + 2 * pad;
  out.height = head + picture.canvas.height + legend + row + 2 * pad;
  context.fillStyle = token("--panel");
  context.fillRect(0, 0, out.width, out.height);
  context.fillStyle = token("--ink");
  context.textBaseline = "top";
  context.font = `600 ${14 * ratio}px ${sans}`;
  context.fillText(picture.title, pad, pad);
  context.drawImage(picture.canvas, pad, pad + head);
  context.font = `${12 * ratio}px ${sans}`;
  const below = pad + head + picture.canvas.height;
  context.fillStyle = token("--ink-3");
  context.fillText(picture.note, pad, below);
  if (legend) {
    for (const { look, x, y } of places) {
      context.fillStyle = look.colour;
      context.fillRect(pad + x, below + row + y + 2 * ratio, 10 * ratio, 10 * ratio);
      context.fillStyle = token("--ink-2");
      context.fillText(look.label, pad + x + 15 * ratio, below + row + y);
    }
  }
  return out;
}

function blob(canvas: HTMLCanvasElement): Promise<Blob> {
  return new Promise((done, failed) => {
    canvas.toBlob((found) => (found ? done(found) : failed(new Error("the browser made no picture"))), "image/png");
  });
}

export function save(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name.replace(/[^\w.-]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export async function download(picture: Picture): Promise<void> {
  save(await blob(draw(picture)), `${picture.title}.png`);
}

/** Throws where the browser has no clipboard for pictures. */
export async function copy(picture: Picture): Promise<void> {
  if (typeof ClipboardItem === "undefined" || !navigator.clipboard?.write) {
    throw new Error("this browser copies no pictures here; download it instead");
  }
  await navigator.clipboard.write([new ClipboardItem({ "image/png": blob(draw(picture)) })]);
}
