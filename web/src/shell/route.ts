/** Where the page is, and going elsewhere.
 *
 * In:   the browser's address and history; clicks on links.
 * Out:  the place and its parameters; a new drawing when they change.
 */

import { useEffect, useState } from "preact/hooks";
import { inside, outside } from "../api/base.ts";
import { formatQuery, placeOf, withQuery, type Place } from "./address.ts";

export interface Route {
  place: Place;
  query: URLSearchParams;
  /** Path and query: the same text is the same state. */
  address: string;
}

const listeners = new Set<(route: Route) => void>();

function read(): Route {
  const { search } = location;
  const pathname = inside(location.pathname) ?? location.pathname;
  return { place: placeOf(pathname), query: new URLSearchParams(search), address: pathname + search };
}

let now: Route | null = null;

export function route(): Route {
  now ??= read();
  return now;
}

function tell(): void {
  now = read();
  for (const listener of [...listeners]) listener(now);
}

/** Go to an address. replace: the back button passes it by, as for what changes while a person types. */
export function go(address: string, replace = false): void {
  if (address === route().address) return;
  if (replace) history.replaceState(history.state, "", outside(address));
  else history.pushState(null, "", outside(address));
  const before = route().place;
  tell();
  if (!replace && JSON.stringify(before) !== JSON.stringify(route().place)) scrollTo(0, 0);
}

/** Change some parameters of the address; null takes one away, a list repeats it. */
export function setQuery(changes: Parameters<typeof withQuery>[1], replace = false): void {
  go((inside(location.pathname) ?? "/") + formatQuery(withQuery(route().query, changes)), replace);
}

export function useRoute(): Route {
  const [found, set] = useState(route);
  useEffect(() => {
    listeners.add(set);
    set(route());
    return () => void listeners.delete(set);
  }, []);
  return found;
}

/** Links within the page change the address without loading it again. */
export function startRoute(): void {
  // the token of the first visit is in a cookie by now, and needs to be in no address that is copied
  if (route().query.has("token")) setQuery({ token: null }, true);
  addEventListener("popstate", tell);
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest?.("a[href]");
    if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download")) return;
    const path = inside(link.pathname);
    if (link.origin !== location.origin || path === null || /^\/(api|assets)\//.test(path)) return;
    if (link.hash && link.pathname === location.pathname && link.search === location.search) return;
    event.preventDefault();
    go(path + link.search);
  });
}
