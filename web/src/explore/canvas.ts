/** A canvas as wide as its place, sharp on every screen, drawn again when the place or the theme changes.
 *
 * In:   a canvas, a function that draws in pixels of the page.
 * Out:  its width; tokens of the theme.
 */

import { useEffect, useLayoutEffect, useState, type MutableRef } from "preact/hooks";

export const token = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The width of an element, as it is now. */
export function useWidth(host: MutableRef<HTMLElement | null>): number {
  const [width, set] = useState(0);
  useLayoutEffect(() => {
    const node = host.current;
    if (!node) return;
    const read = (): void => set(Math.floor(node.clientWidth));
    const watch = new ResizeObserver(read);
    watch.observe(node);
    read();
    return () => watch.disconnect();
  }, []);
  return width;
}

/** keep: what is drawn already stays. */
export function pen(
  canvas: HTMLCanvasElement | null,
  width: number,
  height: number,
  keep = false,
): CanvasRenderingContext2D | null {
  const made = canvas?.getContext("2d");
  if (!canvas || !made || width <= 0) return null;
  const scale = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  made.setTransform(scale, 0, 0, scale, 0, 0);
  if (!keep) made.clearRect(0, 0, width, height);
  made.font = `11px ${token("--sans") || "sans-serif"}`;
  return made;
}

/** Draw once in a frame, however often it is asked for. */
export function useFrame(draw: () => void, changes: readonly unknown[]): void {
  useEffect(() => {
    const frame = requestAnimationFrame(draw);
    return () => cancelAnimationFrame(frame);
  }, [...changes]);
}

export function cutText(pen: CanvasRenderingContext2D, text: string, most: number): string {
  if (pen.measureText(text).width <= most) return text;
  let kept = text;
  while (kept.length > 1 && pen.measureText(`${kept}…`).width > most) kept = kept.slice(0, -1);
  return `${kept}…`;
}

/** CSS pixels of a plot: what the window has left below the bars, so that a wide screen is used. */
export const plotHeight = (): number => Math.round(Math.max(360, Math.min(820, innerHeight - 300)));
