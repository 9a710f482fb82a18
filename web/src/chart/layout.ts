/** How a person wants the panels: order, what is hidden or closed, panels of their own.
 *
 * In:   what this browser remembers, what the project's folder holds, changes.
 * Out:  a layout; families put in its order. Anything damaged or too long reads as nothing.
 */

import { useEffect, useState } from "preact/hooks";
import { getLayout, putLayout } from "../api/client.ts";
import { keep, kept } from "../shell/keep.ts";
import type { Family, Panel } from "./families.ts";

export interface OwnPanel {
  id: string;
  title: string;
  /** A regular expression on names of series; or an expression of series. */
  match: string;
  logY: boolean;
  expression?: boolean;
}

export interface Layout {
  version: 1;
  /** Panels that were moved, by id, in the order they are wanted. */
  order: string[];
  hidden: string[];
  /** Families opened or closed against their default. */
  toggled: string[];
  own: OwnPanel[];
  wide: boolean;
}

export const EMPTY: Layout = { version: 1, order: [], hidden: [], toggled: [], own: [], wide: false };
const MOST = 500;

/** A layout from a file that anybody may have written. */
export function readLayout(value: unknown): Layout {
  if (typeof value !== "object" || value === null) return EMPTY;
  const given = value as Record<string, unknown>;
  const texts = (list: unknown): string[] =>
    Array.isArray(list) ? list.filter((one): one is string => typeof one === "string").slice(0, MOST) : [];
  const own = (Array.isArray(given["own"]) ? given["own"] : []).slice(0, 60).flatMap((one: unknown): OwnPanel[] => {
    if (typeof one !== "object" || one === null) return [];
    const { id, title, match, logY, expression } = one as Record<string, unknown>;
    if (typeof match !== "string" || !match || match.length > 500) return [];
    return [
      {
        id: typeof id === "string" && id ? id : match,
        title: typeof title === "string" && title ? title.slice(0, 200) : match,
        match,
        logY: logY === true,
        ...(expression === true && { expression }),
      },
    ];
  });
  return {
    version: 1,
    order: texts(given["order"]),
    hidden: texts(given["hidden"]),
    toggled: texts(given["toggled"]),
    own,
    wide: given["wide"] === true,
  };
}

/** Panels in the order of the layout: those that were moved first, then the others as they are. */
export function arranged(family: Family, layout: Layout): Panel[] {
  const place = new Map(layout.order.map((id, at) => [id, at]));
  const hidden = new Set(layout.hidden);
  return family.panels
    .filter((panel) => !hidden.has(panel.id))
    .map((panel, at) => ({ panel, at: place.get(panel.id) ?? layout.order.length + at }))
    .sort((a, b) => a.at - b.at)
    .map(({ panel }) => panel);
}

/** A panel one place earlier (-1) or later (1) among those shown. */
export function moved(layout: Layout, shown: readonly string[], id: string, by: number): Layout {
  const at = shown.indexOf(id);
  const next = [...shown];
  next.splice(at, 1);
  next.splice(Math.max(0, at + by), 0, id);
  const others = layout.order.filter((one) => !shown.includes(one));
  // only as far as something was moved: what comes later keeps its default place
  const last = Math.max(at, at + by, ...shown.map((one, place) => (layout.order.includes(one) ? place : -1)));
  return { ...layout, order: [...others, ...next.slice(0, last + 1)] };
}

export interface LayoutState {
  layout: Layout;
  change: (next: Layout) => void;
  save: () => Promise<void>;
  reset: () => Promise<void>;
  shared: boolean;
}

export function useLayout(project: string): LayoutState {
  const name = `layout.${project}`;
  const [layout, set] = useState<Layout>(() => readLayout(kept<unknown>(name, null)));
  const [shared, setShared] = useState(false);
  const load = async (): Promise<Layout> => {
    if (!project) return EMPTY;
    try {
      const found = readLayout(await getLayout<unknown>(project));
      setShared(true);
      return found;
    } catch {
      return EMPTY; // none is saved
    }
  };
  useEffect(() => {
    const own = kept<unknown>(name, null);
    set(readLayout(own));
    let live = true;
    if (own === null) void load().then((found) => live && set(found));
    return () => {
      live = false;
    };
  }, [project]);
  const change = (next: Layout): void => {
    set(next);
    keep(name, next);
  };
  return {
    layout,
    change,
    shared,
    save: async () => {
      await putLayout(project, layout);
      setShared(true);
    },
    reset: async () => {
      const found = await load();
      set(found);
      try {
        localStorage.removeItem(`barograph.${name}`);
      } catch {
        // nothing was remembered
      }
    },
  };
}
