/** The path under which the page is reached through a proxy.
 *
 * In:   what the server wrote into the page.
 * Out:  the page's own addresses, which begin with /, as the browser must ask for them; and back.
 */

import { options } from "preact";

const meta = globalThis.document?.querySelector<HTMLMetaElement>('meta[name="barograph-base"]');
const BASE = meta?.content ?? "";

export const outside = (path: string): string => (path.startsWith("/") ? BASE + path : path);

/** null: the address is not one of the page's. */
export function inside(pathname: string): string | null {
  if (pathname === BASE) return "/";
  return pathname.startsWith(`${BASE}/`) ? pathname.slice(BASE.length) : null;
}

/** Links, pictures and sounds are asked for under it. */
export function startBase(): void {
  if (!BASE) return;
  const before = options.vnode?.bind(options);
  options.vnode = (node) => {
    if (typeof node.type === "string") {
      const props = node.props as Record<string, unknown>;
      for (const name of ["href", "src", "poster"])
        if (typeof props[name] === "string") props[name] = outside(props[name]);
    }
    before?.(node);
  };
}
