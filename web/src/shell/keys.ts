/** Keys: what they do where the page is now, and the list of them for the help.
 *
 * In:   bindings such as `j`, `?`, `Escape`, `Shift+X`, and two keys one after the other, `g r`.
 * Out:  calls; nothing while a person types into a field, but for Escape.
 */

import { useEffect, useRef } from "preact/hooks";

export interface Binding {
  keys: string;
  /** What it does, for the help; none: not listed. */
  says?: string;
  /** May return false: not handled, the next binding is tried. */
  run: (event: KeyboardEvent) => unknown;
  /** Also while a field has the focus. */
  inFields?: boolean;
}

interface Scope {
  title: string;
  bindings: () => Binding[];
}

const scopes: Scope[] = [];
const SECOND_KEY_MILLISECONDS = 1500;
let first: { key: string; at: number } | null = null;

/** The later a scope came, the earlier it is asked, and listed. */
export function useKeys(title: string, bindings: Binding[]): void {
  const latest = useRef(bindings);
  latest.current = bindings;
  useEffect(() => {
    const scope = { title, bindings: () => latest.current };
    scopes.push(scope);
    return () => {
      scopes.splice(scopes.indexOf(scope), 1);
    };
  }, [title]);
}

export function keyList(): { title: string; bindings: Binding[] }[] {
  const found = new Map<string, Binding[]>();
  for (const { title, bindings } of [...scopes].reverse()) {
    found.set(title, [...(found.get(title) ?? []), ...bindings().filter((one) => one.says)]);
  }
  return [...found].map(([title, bindings]) => ({ title, bindings }));
}

/** `Shift+X` for a letter with shift, else the key as the browser names it: `?`, `j`, `Enter`, `ArrowDown`. */
export function nameOf(event: Pick<KeyboardEvent, "key" | "shiftKey">): string {
  if (event.key === " ") return "Space";
  return event.shiftKey && /^(\p{L}|[A-Z][a-z]+\w*)$/u.test(event.key)
    ? `Shift+${event.key.length === 1 ? event.key.toUpperCase() : event.key}`
    : event.key;
}

export function typing(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  if (!element?.tagName) return false;
  if (element.isContentEditable || element.tagName === "TEXTAREA" || element.tagName === "SELECT") return true;
  return element.tagName === "INPUT" && !/^(checkbox|radio|button|range)$/.test((element as HTMLInputElement).type);
}

function handle(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.querySelector("dialog[open]") && event.key !== "?") return;
  const field = typing(event.target);
  const name = nameOf(event);
  const pair = !field && first && Date.now() - first.at < SECOND_KEY_MILLISECONDS ? `${first.key} ${name}` : null;
  first = null;
  for (const wanted of pair ? [pair, name] : [name]) {
    for (const scope of [...scopes].reverse()) {
      for (const one of scope.bindings()) {
        if (one.keys !== wanted || (field && !one.inFields)) continue;
        if (one.run(event) === false) continue;
        event.preventDefault();
        return;
      }
    }
  }
  if (field) return;
  if (scopes.some((scope) => scope.bindings().some((one) => one.keys.startsWith(`${name} `)))) {
    first = { key: name, at: Date.now() };
  }
}

export function startKeys(): void {
  document.addEventListener("keydown", handle);
}
