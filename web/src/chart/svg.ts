/** A chart as an SVG, drawn by the same `paint` as on the page.
 *
 * In:   a plot that is drawn, its title, the looks of its curves.
 * Out:  the text of an SVG that needs nothing else.
 */

import { token } from "../shell/theme.ts";
import type { Look } from "./curve.ts";
import { paint, type Pen } from "./paint.ts";
import type { Plot } from "./plot.ts";

const FONT = 11;
const short = (value: number): string => String(Math.round(value * 100) / 100);

export const escaped = (text: string): string =>
  text
    // eslint-disable-next-line no-control-regex
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "")
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");

/** What `paint` needs of a canvas, written down as elements. */
export class SvgPen implements Pen {
  lineJoin: CanvasLineJoin = "miter";
  lineCap: CanvasLineCap = "butt";
  lineWidth = 1;
  strokeStyle = "#000";
  fillStyle = "#000";
  globalAlpha = 1;
  readonly parts: string[] = [];
  #path: string[] = [];
  #dash: readonly number[] = [];

  save(): void {}
  restore(): void {}
  clip(): void {
    this.#path = []; // the drawing has a clip of its own
  }
  beginPath(): void {
    this.#path = [];
  }
  closePath(): void {
    this.#path.push("Z");
  }
  moveTo(x: number, y: number): void {
    this.#path.push(`M${short(x)} ${short(y)}`);
  }
  lineTo(x: number, y: number): void {
    this.#path.push(`L${short(x)} ${short(y)}`);
  }
  rect(): void {}
  arc(x: number, y: number, radius: number): void {
    const r = short(radius);
    this.#path.push(`M${short(x - radius)} ${short(y)}a${r} ${r} 0 1 0 ${short(2 * radius)} 0`);
    this.#path.push(`a${r} ${r} 0 1 0 ${short(-2 * radius)} 0`);
  }
  setLineDash(dash: readonly number[]): void {
    this.#dash = dash;
  }
  stroke(): void {
    const dash = this.#dash.length ? ` stroke-dasharray="${this.#dash.map(short).join(" ")}"` : "";
    const ends = `stroke-linejoin="${this.lineJoin}" stroke-linecap="${this.lineCap}"`;
    this.#put(`fill="none" stroke="${this.strokeStyle}" stroke-width="${short(this.lineWidth)}" ${ends}${dash}`);
  }
  fill(): void {
    this.#put(`fill="${this.fillStyle}"`);
  }
  #put(look: string): void {
    if (!this.#path.length) return;
    const alpha = this.globalAlpha < 1 ? ` opacity="${short(this.globalAlpha)}"` : "";
    this.parts.push(`<path d="${this.#path.join("")}" ${look}${alpha}/>`);
  }
}

export function svgOf(plot: Plot, title: string, note: string, looks: readonly Look[]): string {
  const { frame, drawn, x, y, width, height, inks } = plot.drawing();
  const pen = new SvgPen();
  paint(pen, drawn, frame, inks);
  const head = 28;
  const row = 18;
  const named = looks.length > 1 ? looks : [];
  const bottom = frame.top + frame.height;
  const places = legend(named, width);
  const rows = places.length ? (places[places.length - 1]?.row ?? 0) + 1 : 0;
  const tall = head + height + row + rows * row + 12;
  const text = (at: number, top: number, says: string, more = ""): string =>
    `<text x="${short(at)}" y="${short(top)}" ${more}>${escaped(says)}</text>`;
  const grid = (d: string): string => `<path d="${d}" stroke="${inks.grid}" fill="none"/>`;
  const ink = token("--ink") || "#222";
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width + 24} ${short(tall)}" width="${width + 24}" ` +
      `height="${short(tall)}" font-family="${escaped(inks.font)}" font-size="${FONT}" fill="${inks.axis}">`,
    `<title>${escaped(title)}</title>`,
    `<rect width="100%" height="100%" fill="${token("--panel") || "#fff"}"/>`,
    text(12, 20, title, `font-size="14" font-weight="600" fill="${ink}"`),
    `<g transform="translate(12 ${head})">`,
    `<clipPath id="plot"><rect x="${short(frame.left - 3)}" y="${short(frame.top - 3)}" ` +
      `width="${short(frame.width + 6)}" height="${short(frame.height + 6)}"/></clipPath>`,
    ...x.map((tick) => grid(`M${short(tick.at)} ${short(frame.top)}V${short(bottom + 4)}`)),
    ...y.map((tick) => grid(`M${short(frame.left - 4)} ${short(tick.at)}H${short(frame.left + frame.width)}`)),
    ...x.flatMap((tick) =>
      tick.text.split("\n").map((says, at) => text(tick.at, bottom + 17 + 12 * at, says, 'text-anchor="middle"')),
    ),
    ...y.map((tick) => text(frame.left - 8, tick.at + 4, tick.text, 'text-anchor="end"')),
    `<g clip-path="url(#plot)">`,
    ...pen.parts,
    "</g>",
    text(0, height + 12, note),
    ...places.map(({ look, left, row: at }) => {
      const top = height + row * (at + 1) + 12;
      return `<rect x="${short(left)}" y="${short(top - 9)}" width="10" height="10" fill="${look.colour}"/>${text(left + 15, top, look.label)}`;
    }),
    "</g>",
    "</svg>",
  ].join("\n");
}

function legend(looks: readonly Look[], width: number): { look: Look; left: number; row: number }[] {
  let [left, row] = [0, 0];
  return looks.map((look) => {
    const long = look.label.length * FONT * 0.58 + 28;
    if (left > 0 && left + long > width) [left, row] = [0, row + 1];
    const place = { look, left, row };
    left += long;
    return place;
  });
}
