/** Wheel, pinch, pan, double click and keys on a chart, as changes of its range.
 *
 * In:   pointer, wheel and key events; the plot that they happen on.
 * Out:  ranges, told while the movement goes on (settled: false) and when it is over (true).
 *
 * A plain wheel scrolls the page. With Ctrl or ⌘, and for the pinch of a touchpad, it zooms; sideways it pans.
 */

import type { Plot } from "./plot.ts";
import { panned, sensible, within, zoomed, type Range, type View } from "./range.ts";

export interface GestureCalls {
  /** The whole range that there is, by which a view is held. */
  bounds(): Range;
  log(): boolean;
  /** A wheel alone zooms too: as on a full screen, where there is nothing to scroll. */
  wheelZooms(): boolean;
  change(view: View, settled: boolean): void;
  reset(): void;
}

const SETTLE_MS = 60; // after the last turn of a wheel
const LINE_PIXELS = 16;

export function attachGestures(host: HTMLElement, plot: () => Plot | null, calls: GestureCalls): () => void {
  let settle: ReturnType<typeof setTimeout> | undefined;
  const pointers = new Map<number, { x: number; y: number }>();
  let drag: { kind: "pan" | "pinch"; view: Range; x: number; gap: number } | null = null;

  const change = (range: Range, settled: boolean): void => {
    if (sensible(range)) calls.change(within(range, calls.bounds(), calls.log()), settled);
  };
  const later = (): void => {
    clearTimeout(settle);
    settle = setTimeout(() => {
      const now = plot();
      if (now) change(now.view, true);
    }, SETTLE_MS);
  };
  /** Pixels from the left of the plotting area. */
  const place = (clientX: number): number => {
    const box = plot()?.over?.getBoundingClientRect();
    return box ? Math.max(0, Math.min(box.width, clientX - box.left)) : 0;
  };

  const wheel = (event: WheelEvent): void => {
    const now = plot();
    if (!now?.over) return;
    const unit = event.deltaMode === 1 ? LINE_PIXELS : 1;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (event.ctrlKey || event.metaKey || (calls.wheelZooms() && !sideways)) {
      event.preventDefault();
      const factor = Math.exp(Math.max(-120, Math.min(120, event.deltaY * unit)) * (event.ctrlKey ? 0.006 : 0.003));
      change(zoomed(now.view, now.valueAt(place(event.clientX)), factor, calls.log()), false);
      later();
    } else if (sideways) {
      event.preventDefault();
      const by = (event.deltaX || event.deltaY) * unit;
      change(panned(now.view, by / now.plotWidth, calls.log()), false);
      later();
    }
  };

  const down = (event: PointerEvent): void => {
    const now = plot();
    if (!now?.over || !(event.target instanceof Node) || !now.over.contains(event.target)) return;
    pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()];
      drag = {
        kind: "pinch",
        view: now.view,
        x: ((a?.x ?? 0) + (b?.x ?? 0)) / 2,
        gap: Math.abs((a?.x ?? 0) - (b?.x ?? 0)),
      };
    } else if (event.button === 1 || (event.button === 0 && event.altKey) || event.pointerType === "touch") {
      drag = { kind: "pan", view: now.view, x: event.clientX, gap: 0 };
    } else return;
    if (event.pointerType !== "touch") {
      event.preventDefault();
      host.setPointerCapture(event.pointerId);
    }
  };

  const move = (event: PointerEvent): void => {
    if (!pointers.has(event.pointerId)) return;
    pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    const now = plot();
    if (!drag || !now) return;
    if (drag.kind === "pan") {
      change(panned(drag.view, (drag.x - event.clientX) / now.plotWidth, calls.log()), false);
      return;
    }
    const [a, b] = [...pointers.values()];
    if (!a || !b) return;
    const middle = (a.x + b.x) / 2;
    const gap = Math.max(8, Math.abs(a.x - b.x));
    const log = calls.log();
    const moved = panned(drag.view, (drag.x - middle) / now.plotWidth, log);
    const share = place(middle) / now.plotWidth;
    const around = log ? moved[0] * (moved[1] / moved[0]) ** share : moved[0] + (moved[1] - moved[0]) * share;
    change(zoomed(moved, around, Math.max(8, drag.gap) / gap, log), false);
  };

  const up = (event: PointerEvent): void => {
    if (!pointers.delete(event.pointerId)) return;
    const now = plot();
    if (drag && now) change(now.view, true);
    drag = null;
  };

  const twice = (event: MouseEvent): void => {
    if (event.target instanceof Node && plot()?.over?.contains(event.target)) calls.reset();
  };

  host.addEventListener("wheel", wheel, { passive: false });
  host.addEventListener("pointerdown", down);
  host.addEventListener("pointermove", move);
  host.addEventListener("pointerup", up);
  host.addEventListener("pointercancel", up);
  host.addEventListener("dblclick", twice);
  return () => {
    clearTimeout(settle);
    host.removeEventListener("wheel", wheel);
    host.removeEventListener("pointerdown", down);
    host.removeEventListener("pointermove", move);
    host.removeEventListener("pointerup", up);
    host.removeEventListener("pointercancel", up);
    host.removeEventListener("dblclick", twice);
  };
}

export interface KeyCalls extends GestureCalls {
  /** The cursor's x, null where there is none. */
  cursor(): number | null;
  point(x: number | null): void;
  /** The next place of data to a side. */
  next(x: number | null, forward: boolean, far: boolean): number | null;
  back(): void;
  forward(): void;
  full(): void;
  table(): void;
}

/** Returns whether the key meant something here. */
export function onChartKey(event: KeyboardEvent, plot: Plot, calls: KeyCalls): boolean {
  if (event.ctrlKey || event.metaKey) return false;
  const settle = (range: Range): void => {
    if (sensible(range)) calls.change(within(range, calls.bounds(), calls.log()), true);
  };
  const middle = (): number => {
    const [from, to] = plot.view;
    const at = calls.cursor();
    return at !== null && at >= from && at <= to ? at : calls.log() ? Math.sqrt(from * to) : (from + to) / 2;
  };
  switch (event.key) {
    case "ArrowLeft":
    case "ArrowRight": {
      const right = event.key === "ArrowRight";
      if (!event.altKey) calls.point(calls.next(calls.cursor(), right, event.shiftKey));
      else if (right) calls.forward();
      else calls.back();
      return true;
    }
    case "Home":
    case "End":
      calls.point(calls.next(event.key === "Home" ? -Infinity : Infinity, event.key === "Home", false));
      return true;
    case "+":
    case "=":
      settle(zoomed(plot.view, middle(), 0.5, calls.log()));
      return true;
    case "-":
    case "_":
      settle(zoomed(plot.view, middle(), 2, calls.log()));
      return true;
    case "PageUp":
    case "PageDown":
      settle(panned(plot.view, event.key === "PageUp" ? -0.5 : 0.5, calls.log()));
      return true;
    case "0":
      calls.reset();
      return true;
    case "[":
      calls.back();
      return true;
    case "]":
      calls.forward();
      return true;
    case "f":
      calls.full();
      return true;
    case "t":
      calls.table();
      return true;
    case "Escape":
      if (calls.cursor() === null) return false;
      calls.point(null);
      return true;
    default:
      return false;
  }
}
