/** Puts curves, marks and flags on a canvas.
 *
 * In:   columns, a rectangle in canvas pixels, the ranges of both axes, colours.
 * Out:  ink. A bucket is drawn from its minimum to its maximum, so that a spike of one step is always seen.
 */

import type { Columns, Curve, Look } from "./curve.ts";
import { placeOf } from "./curve.ts";
import type { Range } from "./range.ts";

export interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
  x: Range;
  y: Range;
  logX: boolean;
  logY: boolean;
  /** Canvas pixels a CSS pixel. */
  ratio: number;
}

export interface Drawn {
  curve: Curve;
  look: Look;
}

export interface Inks {
  mark: string;
}

/** What a drawing needs of a canvas; the SVG of a chart has it too (`svg.ts`). */
// prettier-ignore
export type Pen = Pick<
  CanvasRenderingContext2D,
  | "save" | "restore" | "beginPath" | "closePath" | "moveTo" | "lineTo" | "arc" | "rect" | "clip" | "stroke" | "fill"
  | "setLineDash" | "lineJoin" | "lineCap" | "lineWidth" | "globalAlpha"
> & { strokeStyle: unknown; fillStyle: unknown };

/** x (or y) → canvas pixels, as one multiplication and one addition. */
export function along(frame: Frame): (x: number) => number {
  const [from, to] = frame.logX ? [Math.log10(frame.x[0]), Math.log10(frame.x[1])] : frame.x;
  const scale = frame.width / (to - from);
  const start = frame.left - from * scale;
  return frame.logX ? (x) => start + Math.log10(x) * scale : (x) => start + x * scale;
}

export function upward(frame: Frame): (y: number) => number {
  const [from, to] = frame.logY ? [Math.log10(frame.y[0]), Math.log10(frame.y[1])] : frame.y;
  const scale = frame.height / (to - from);
  const bottom = frame.top + frame.height + from * scale;
  // far outside, browsers lose precision: what is out of sight may be anywhere out of sight
  const least = frame.top - 4000;
  const most = frame.top + frame.height + 4000;
  const held = (at: number): number => (at < least ? least : Math.min(at, most));
  return frame.logY ? (y) => held(bottom - Math.log10(y) * scale) : (y) => held(bottom - y * scale);
}

/** The places to draw: those in sight and one more at each side. */
export function visible(columns: Columns, frame: Frame): [number, number] {
  const start = Math.max(0, placeOf(columns.x, frame.x[0]) - 1);
  const end = Math.min(columns.x.length, placeOf(columns.x, frame.x[1]) + 2);
  return [start, end];
}

function line(context: Pen, columns: Columns, values: Float64Array, frame: Frame): number {
  const toX = along(frame);
  const toY = upward(frame);
  const [start, end] = visible(columns, frame);
  let open = false;
  let drawn = 0;
  context.beginPath();
  for (let at = start; at < end; at++) {
    const value = values[at] ?? NaN;
    const x = columns.x[at] ?? NaN;
    if (!Number.isFinite(value) || (frame.logY && value <= 0) || (frame.logX && x <= 0)) {
      open = false;
      continue;
    }
    if (open) context.lineTo(toX(x), toY(value));
    else context.moveTo(toX(x), toY(value));
    open = true;
    drawn += 1;
  }
  context.stroke();
  return drawn;
}

/** Points by themselves: where there are few, so that what was logged can be distinguished from what lies between. */
function dots(context: Pen, columns: Columns, frame: Frame, radius: number): void {
  const toX = along(frame);
  const toY = upward(frame);
  const [start, end] = visible(columns, frame);
  context.beginPath();
  for (let at = start; at < end; at++) {
    const value = columns.y[at] ?? NaN;
    const x = columns.x[at] ?? NaN;
    if (!Number.isFinite(value) || (frame.logY && value <= 0) || (frame.logX && x <= 0)) continue;
    const [px, py] = [toX(x), toY(value)];
    context.moveTo(px + radius, py);
    context.arc(px, py, radius, 0, 2 * Math.PI);
  }
  context.fill();
}

/** From minimum to maximum of each bucket: a surface, and a stroke for each, so that a narrow spike has its full ink;
 *  of an interval the surface alone. */
function band(context: Pen, columns: Columns, frame: Frame, alpha: number, interval: boolean): void {
  const toX = along(frame);
  const toY = upward(frame);
  const [start, end] = visible(columns, frame);
  const floor = frame.logY ? frame.y[0] : -Infinity;
  const edges: [number, number, number][] = [];
  let run: number[] = [];
  context.beginPath();
  const close = (): void => {
    if (run.length > 1) {
      run.forEach((at, index) => {
        const [x, y] = [toX(columns.x[at] ?? 0), toY(columns.high[at] ?? 0)];
        if (index) context.lineTo(x, y);
        else context.moveTo(x, y);
      });
      for (const at of run.reverse())
        context.lineTo(toX(columns.x[at] ?? 0), toY(Math.max(columns.low[at] ?? 0, floor)));
      context.closePath();
    }
    run = [];
  };
  for (let at = start; at < end; at++) {
    const low = columns.low[at] ?? NaN;
    const high = columns.high[at] ?? NaN;
    const x = columns.x[at] ?? NaN;
    if (!Number.isFinite(high) || (frame.logY && high <= 0) || (frame.logX && x <= 0)) {
      close();
      continue;
    }
    run.push(at);
    const [px, top, bottom] = [toX(x), toY(high), toY(Math.max(low, floor))];
    if (bottom - top > 0.5 && !interval) edges.push([px, top, bottom]);
  }
  close();
  context.globalAlpha = alpha * 0.6;
  context.fill();
  context.globalAlpha = alpha;
  context.beginPath();
  for (const [x, top, bottom] of edges) {
    context.moveTo(x, top);
    context.lineTo(x, bottom);
  }
  context.stroke();
}

const MANY = 12; // curves from which on bands would hide each other

/** moving: the range changes with each frame; of many curves only their lines are drawn until it stands. */
export function paint(context: Pen, drawn: readonly Drawn[], frame: Frame, inks: Inks, moving = false): void {
  context.save();
  context.beginPath();
  const room = 3 * frame.ratio; // a point on the edge is seen whole
  context.rect(frame.left - room, frame.top - room, frame.width + 2 * room, frame.height + 2 * room);
  context.clip();
  const many = drawn.length > MANY;
  context.lineJoin = many ? "bevel" : "round";
  context.lineCap = many ? "butt" : "round";
  const behind = ({ look }: Drawn): boolean => Boolean(look.dim || look.faint);
  const ordered = [...drawn.filter(behind), ...drawn.filter((one) => !behind(one))];
  for (const { curve, look } of ordered) {
    const faint = look.dim ? 0.3 : look.faint ? 0.5 : 1;
    context.strokeStyle = look.colour;
    context.fillStyle = look.colour;
    context.setLineDash(look.dash ? [5 * frame.ratio, 3 * frame.ratio] : []);
    for (const old of curve.old) {
      context.globalAlpha = 0.6 * faint;
      context.lineWidth = frame.ratio;
      context.setLineDash([2 * frame.ratio, 2.5 * frame.ratio]);
      line(context, old, old.y, frame);
    }
    context.setLineDash(look.dash ? [5 * frame.ratio, 3 * frame.ratio] : []);
    const smoothed = curve.smooth.length > 0;
    if (!curve.exact && many && !look.interval) {
      if (!moving) {
        // the edges of the band as hairlines: surfaces would hide each other
        context.globalAlpha = 0.28 * faint;
        context.lineWidth = 1;
        line(context, curve, curve.high, frame);
        line(context, curve, curve.low, frame);
      }
    } else if (!curve.exact) {
      const [start, end] = visible(curve, frame);
      // a pixel each, a little wider where the buckets are wider, as while old data are stretched
      const wide = end - start > 1 ? frame.width / (end - start) : 1;
      context.lineWidth = Math.max(frame.ratio, Math.min(wide, 1.5 * frame.ratio));
      context.lineCap = "butt";
      context.setLineDash([]);
      band(context, curve, frame, (smoothed || look.interval ? 0.26 : 0.42) * faint, look.interval ?? false);
      context.lineCap = "round";
      context.setLineDash(look.dash ? [5 * frame.ratio, 3 * frame.ratio] : []);
    }
    if (smoothed && (curve.exact || !many)) {
      context.globalAlpha = (many ? 0.16 : 0.3) * faint;
      context.lineWidth = frame.ratio;
      line(context, curve, curve.y, frame);
    }
    context.globalAlpha = faint * (many && !look.dim ? 0.9 : 1);
    context.lineWidth = many ? Math.max(1, Math.round(frame.ratio)) : 1.6 * frame.ratio; // a hairline is drawn many times faster
    const count = line(context, curve, smoothed ? curve.smooth : curve.y, frame);
    context.setLineDash([]);
    const few = count <= Math.min(60, frame.width / frame.ratio / 9) && (!smoothed || count === 1);
    if (count > 0 && (look.dots || (curve.exact && few))) {
      dots(context, curve, frame, (many ? 1.6 : 2.2) * frame.ratio);
    }
    context.globalAlpha = 1;
  }
  if (!moving || drawn.length <= MANY) beyond(context, drawn, frame);
  marks(context, drawn, frame, inks);
  context.restore();
}

/** A triangle at the edge wherever a curve goes on beyond the y axis: at the beginning of each such stretch. */
function beyond(context: Pen, drawn: readonly Drawn[], frame: Frame): void {
  const toX = along(frame);
  const [low, high] = frame.y;
  const size = 3.5 * frame.ratio;
  const taken = new Set<number>();
  for (const { curve, look } of drawn) {
    const [start, end] = visible(curve, frame);
    let side = 0;
    for (let at = start; at < end; at++) {
      const x = curve.x[at] ?? NaN;
      if (!(x >= frame.x[0] && x <= frame.x[1])) continue;
      const next = (curve.high[at] ?? NaN) > high ? 1 : (curve.low[at] ?? NaN) < low && !frame.logY ? -1 : 0;
      const before = side;
      side = next;
      if (!next || next === before) continue;
      const px = toX(x);
      const place = next * (1 + Math.round(px / (2.5 * size)));
      if (taken.has(place)) continue;
      taken.add(place);
      const tip = next > 0 ? frame.top : frame.top + frame.height;
      context.fillStyle = look.colour;
      context.globalAlpha = look.dim ? 0.3 : 1;
      context.beginPath();
      context.moveTo(px, tip);
      context.lineTo(px + size, tip + next * 1.5 * size);
      context.lineTo(px - size, tip + next * 1.5 * size);
      context.closePath();
      context.fill();
    }
  }
  context.globalAlpha = 1;
}

/** NaN as ×, infinities as arrows, on the axis where they happened. */
function marks(context: Pen, drawn: readonly Drawn[], frame: Frame, inks: Inks): void {
  const toX = along(frame);
  const size = 3.2 * frame.ratio;
  const bottom = frame.top + frame.height - size - 2 * frame.ratio;
  const top = frame.top + size + 2 * frame.ratio;
  const taken = new Set<string>();
  context.lineWidth = 1.6 * frame.ratio;
  context.strokeStyle = inks.mark;
  for (const { curve } of drawn) {
    for (const mark of curve.signs) {
      const x = toX(mark.x);
      if (!(x >= frame.left - size && x <= frame.left + frame.width + size)) continue;
      const key = `${mark.kind}${Math.round(x / frame.ratio / 3)}`; // one a place is enough to be seen
      if (taken.has(key)) continue;
      taken.add(key);
      context.beginPath();
      if (mark.kind === "nan") {
        context.moveTo(x - size, bottom - size);
        context.lineTo(x + size, bottom + size);
        context.moveTo(x + size, bottom - size);
        context.lineTo(x - size, bottom + size);
      } else {
        const up = mark.kind === "+inf";
        const tip = up ? top - size : bottom + size;
        const tail = up ? top + size * 1.6 : bottom - size * 1.6;
        const wing = up ? tip + size : tip - size;
        context.moveTo(x, tail);
        context.lineTo(x, tip);
        context.moveTo(x - size, wing);
        context.lineTo(x, tip);
        context.lineTo(x + size, wing);
      }
      context.stroke();
    }
  }
}
