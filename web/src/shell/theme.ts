/** Light or dark: what the system says, or what was chosen here.
 *
 * In:   the system's preference, the choice kept in this browser.
 * Out:  `data-theme` on the root element, calls to those who draw by themselves.
 */

import { useEffect, useState } from "preact/hooks";
import { keep, kept } from "./keep.ts";

export type Theme = "light" | "dark";
export type Choice = Theme | "system";

const listeners = new Set<(theme: Theme) => void>();
const dark = typeof matchMedia === "undefined" ? null : matchMedia("(prefers-color-scheme: dark)");

export function choice(): Choice {
  const found = kept<string>("theme", "system");
  return found === "light" || found === "dark" ? found : "system";
}

export function theme(): Theme {
  const chosen = choice();
  return chosen === "system" ? (dark?.matches ? "dark" : "light") : chosen;
}

export function choose(next: Choice): void {
  keep("theme", next);
  apply();
}

function apply(wanted: Theme | Event = theme()): void {
  const now = typeof wanted === "string" ? wanted : theme();
  document.documentElement.dataset.theme = now;
  for (const listener of listeners) listener(now);
}

export function startTheme(): void {
  apply();
  dark?.addEventListener("change", apply);
  // what is drawn on a canvas has to be drawn again for white paper
  addEventListener("beforeprint", () => apply("light"));
  addEventListener("afterprint", () => apply());
}

export function onTheme(listener: (theme: Theme) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The theme, and a new drawing when it changes. */
export function useTheme(): Theme {
  const [now, set] = useState(theme);
  useEffect(() => onTheme(set), []);
  return now;
}

/** The value of a custom property of `style/tokens.css`, such as `token("--ink")`, for a canvas. */
export function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
