/** Which images, sounds and tables stand at a step.
 *
 * In:   a run's list of them, a step, words that names have to have.
 * Out:  names in their order, the steps there are, and for each name what it was last at the step. Pure.
 */

import type { MediaItem } from "../api/types.ts";
import { byNumber } from "../chart/families.ts";

export const KINDS = ["image", "audio", "table", "video", "file"] as const;
export type Kind = (typeof KINDS)[number];

/** Those of a type ("" for all) whose names have the words. */
export function fitting(items: readonly MediaItem[], type: string, words: string): MediaItem[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return items.filter(
    (item) => (!type || item.type === type) && wanted.every((word) => item.name.toLowerCase().includes(word)),
  );
}

/** The types that there are, with how many of each, in the order of `KINDS`. */
export function kindsOf(items: readonly MediaItem[]): [Kind, number][] {
  return KINDS.map((kind): [Kind, number] => [kind, items.filter((item) => item.type === kind).length]).filter(
    ([, count]) => count > 0,
  );
}

export function stepsOf(items: readonly MediaItem[]): number[] {
  return [...new Set(items.map((item) => item.step))].sort((a, b) => a - b);
}

/** The place of the last of the steps (ascending) that is not behind this one; 0 where all are. */
export function placeAt(steps: readonly number[], step: number): number {
  let place = 0;
  steps.forEach((one, at) => {
    if (one <= step) place = at;
  });
  return place;
}

/** Names in the order of numbers in them, images first. */
export function namesOf(items: readonly MediaItem[]): string[] {
  const rank = new Map<string, number>();
  for (const item of items) {
    const kind = KINDS.indexOf(item.type as Kind);
    rank.set(item.name, Math.min(rank.get(item.name) ?? KINDS.length, kind < 0 ? KINDS.length : kind));
  }
  return [...rank.keys()].sort((a, b) => (rank.get(a) ?? 0) - (rank.get(b) ?? 0) || byNumber(a, b));
}

/** What a name was last at a step: all of its latest step up to it, so that runs with other steps can be compared. */
export function lastAt(items: readonly MediaItem[], name: string, step: number): MediaItem[] {
  let latest = -Infinity;
  for (const item of items) if (item.name === name && item.step <= step) latest = Math.max(latest, item.step);
  return items.filter((item) => item.name === name && item.step === latest);
}

/** A table's cell as text. */
export function cellText(cell: unknown): string {
  if (cell === null || cell === undefined) return "";
  return typeof cell === "string" ? cell : JSON.stringify(cell);
}

/** The file of an image in a table's cell, "" for any other cell. */
export function cellImage(cell: unknown): string {
  const path = (cell as { media?: unknown } | null | undefined)?.media;
  return typeof path === "string" && path.startsWith("media/") ? path.slice("media/".length) : "";
}
