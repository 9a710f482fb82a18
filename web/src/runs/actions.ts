/** What a person does to runs: pin, archive, delete, each with a way back.
 *
 * In:   keys.
 * Out:  the edit on the server, a notice that undoes it.
 */

import { deleteRun, restoreRun } from "../api/client.ts";
import type { Key } from "../api/types.ts";
import { plainKey } from "../shell/address.ts";
import { toast } from "../shell/toast.tsx";
import { count, title } from "../shell/text.ts";
import { change, forgetRow, readAgain, rowOf } from "./store.ts";

const nameOf = (key: Key): string => {
  const row = rowOf(key);
  return row ? title(row) : plainKey(key);
};

const named = (keys: readonly Key[]): string => {
  const [only] = keys;
  return keys.length === 1 && only !== undefined ? `“${nameOf(only)}”` : count(keys.length, "run");
};

/** All at once: pinned if one of them was not. */
export function togglePin(keys: readonly Key[]): void {
  const pinned = keys.some((key) => !rowOf(key)?.pinned);
  for (const key of keys) void change(key, { pinned });
}

export function toggleArchive(keys: readonly Key[]): void {
  const archived = keys.some((key) => !rowOf(key)?.archived);
  for (const key of keys) void change(key, { archived });
  toast({
    text: `${named(keys)} ${archived ? "archived" : "taken out of the archive"}.`,
    undo: () => {
      for (const key of keys) void change(key, { archived: !archived });
    },
  });
}

/** To the trash: the folder is moved, and nothing is lost until the trash is emptied. */
export async function remove(keys: readonly Key[]): Promise<void> {
  const words = named(keys);
  const trashed: string[] = [];
  const refused: string[] = [];
  for (const key of keys) {
    try {
      trashed.push(await deleteRun(key));
      forgetRow(key);
    } catch (error) {
      refused.push((error as Error).message);
    }
  }
  if (refused.length) {
    toast({
      text: `Not deleted: ${refused[0]}${refused.length > 1 ? ` (and ${refused.length - 1} more)` : ""}`,
      tone: "bad",
    });
  }
  if (trashed.length) {
    toast({
      text: `${trashed.length === keys.length ? words : count(trashed.length, "run")} deleted.`,
      undo: () => void bringBack(trashed),
    });
  }
}

async function bringBack(ids: readonly string[]): Promise<void> {
  try {
    for (const id of ids) await restoreRun(id);
  } catch (error) {
    toast({ text: `Not restored: ${(error as Error).message}`, tone: "bad" });
  }
  await readAgain();
}
