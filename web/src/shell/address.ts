/** Addresses: every state of the page has one, and reads back from it.
 *
 * In:   a path and a query, as the browser has them; a place and parameters to go to.
 * Out:  the place that is meant; addresses that a person can read.
 *
 *   /                    the runs              ?q= sort= group= cols= sel= hide= only= view= x= smooth=
 *   /run/KEY/TAB         one run
 *   /compare             runs against runs     ?run=KEY&run=KEY…&metric= x= group= baseline=
 *
 * A key's parts are percent-encoded already and stay so. TAB stands last since a key may end in a dot and letters,
 * which servers take for a file.
 */

import type { Key } from "../api/types.ts";

export type Place =
  { view: "runs" } | { view: "run"; key: Key; tab: string } | { view: "compare" } | { view: "nowhere"; path: string };

const TABS = new Set(["overview", "charts", "layers", "media", "system", "doctor"]);

export function placeOf(path: string): Place {
  if (path === "/" || path === "/index.html") return { view: "runs" };
  if (path === "/compare" || path === "/compare/") return { view: "compare" };
  const parts = path.split("/").filter((part) => part !== "");
  if (parts[0] === "run" && parts.length >= 2) {
    const last = parts[parts.length - 1] ?? "";
    const named = parts.length >= 3 && TABS.has(last); // an address without a tab, as people shorten it, is that of the run
    return { view: "run", key: parts.slice(1, named ? -1 : undefined).join("/"), tab: named ? last : "overview" };
  }
  return { view: "nowhere", path };
}

export const runPlace = (key: Key, tab = "overview"): string => `/run/${key}/${tab}`;

/** What may be in a query as it is: readable, and read back the same. */
function encode(text: string): string {
  return encodeURIComponent(text)
    .replace(/%(2F|2C|3A|40|24|3B)/g, (code) => decodeURIComponent(code))
    .replace(/%20/g, "+");
}

/** "?a=b&c=d", or "" for nothing. Empty values are left out. */
export function formatQuery(query: URLSearchParams): string {
  const parts: string[] = [];
  for (const [name, value] of query) if (value !== "") parts.push(`${encode(name)}=${encode(value)}`);
  return parts.length ? `?${parts.join("&")}` : "";
}

/** A query with some parameters changed: null or "" takes one away, a list repeats it. */
export function withQuery(
  query: URLSearchParams,
  changes: Record<string, string | number | boolean | readonly string[] | null | undefined>,
): URLSearchParams {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    if (value === null || value === undefined || value === false || value === "") continue;
    if (Array.isArray(value)) for (const one of value as readonly string[]) next.append(name, one);
    else next.set(name, value === true ? "1" : String(value));
  }
  return next;
}

/** A list in one parameter: joined by commas, with the commas within written as %2C. */
export function joinList(items: Iterable<string>): string {
  return [...items].map((item) => item.replace(/%/g, "%25").replace(/,/g, "%2C")).join(",");
}

export function splitList(text: string | null): string[] {
  if (!text) return [];
  return text
    .split(",")
    .filter(Boolean)
    .map((item) => item.replace(/%2C/gi, ",").replace(/%25/g, "%"));
}

/** Keys are encoded already: no comma is in them, and their percent signs stay. */
export const joinKeys = (keys: Iterable<Key>): string => [...keys].join(",");
export const splitKeys = (text: string | null): Key[] => (text ? text.split(",").filter(Boolean) : []);

/** A key as a person reads it. */
export function plainKey(key: Key): string {
  return key
    .split("/")
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    })
    .join("/");
}
