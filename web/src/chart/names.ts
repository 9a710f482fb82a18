/** The names of the series of a few or many runs, of ten or a hundred thousand each.
 *
 * In:   keys of runs.
 * Out:  all names of small runs; of large ones those that everybody looks at, and families to open.
 */

import { useEffect, useState } from "preact/hooks";
import { getNames, getTree } from "../api/client.ts";
import type { Key, Tree } from "../api/types.ts";
import { listen } from "../api/live.ts";
import { useReturns } from "../shell/returns.ts";

export interface Known {
  names: string[];
  /** Families whose names are asked for when they are opened. */
  lazy: { name: string; count: number }[];
  total: number;
}

const MOST = 4000; // names held at once: sorted into panels in a few milliseconds
const COMMON =
  "^((train|training|eval|val|valid|test|model|speed|moe|data|memory|gpu|host|ranks|perf|sol|span|goodput|energy)/|[^/]+$)";
const SAMPLE = 6; // of many runs, this many are asked before the first panels are drawn
const REST_MS = 5000; // the others are asked after the first charts, which need the server more
const AGAIN_SECONDS = 8; // a run in progress may log new names

export const escapeRegex = (text: string): string =>
  text.replace(/[.*+?^${}()|[\]\\/-]/g, (sign) => (sign === "/" || sign === "-" ? sign : `\\${sign}`));

const warm = new Map<Key, Promise<Tree>>();

/** Asks ahead of those who will want them. */
export function warmNames(run: Key): void {
  if (warm.has(run) || asked.has(run)) return;
  asked.add(run);
  const answer = getTree(run, "");
  answer.catch(() => undefined);
  warm.set(run, answer);
}

const asked = new Set<Key>();

export async function knownNames(run: Key, signal?: AbortSignal): Promise<Known> {
  const ahead = warm.get(run);
  warm.delete(run); // once: names may have been added when they are asked for again
  // the top of the tree is small, and says whether all names would be many
  const tree = await (ahead ?? getTree(run, "", signal));
  const total = tree.leaves.length + tree.groups.reduce((sum, group) => sum + group.count, 0);
  if (total <= MOST) return { names: (await getNames(run, undefined, undefined, signal)).names, lazy: [], total };
  const common = await getNames(run, COMMON, MOST, signal);
  const heads = new Set(common.names.map((name) => name.split("/")[0] ?? name));
  const whole = (common.total ?? common.names.length) <= common.names.length;
  const lazy = tree.groups.filter((group) => !heads.has(group.name) || !whole);
  return { names: whole ? common.names : common.names.filter((name) => !name.includes("/")), lazy, total };
}

function joined(parts: readonly Known[]): Known {
  const names = new Set<string>();
  const lazy = new Map<string, number>();
  let total = 0;
  for (const part of parts) {
    for (const name of part.names) names.add(name);
    for (const { name, count } of part.lazy) lazy.set(name, Math.max(count, lazy.get(name) ?? 0));
    total = Math.max(total, part.total);
  }
  return { names: [...names], lazy: [...lazy].map(([name, count]) => ({ name, count })), total };
}

/** null while nothing is known; the error of all that could be asked. */
export function useNames(runs: readonly Key[]): { known: Known | null; error: string } {
  const [state, set] = useState<{ known: Known | null; error: string }>({ known: null, error: "" });
  const keys = runs.join(" ");
  const returns = useReturns();
  useEffect(() => {
    const control = new AbortController();
    const found = new Map<Key, Known>();
    let error = "";
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async (run: Key): Promise<void> => {
      try {
        found.set(run, await knownNames(run, control.signal));
      } catch (reason) {
        if (!control.signal.aborted) error = (reason as Error).message;
      }
    };
    let last = "";
    const tell = (): void => {
      if (control.signal.aborted) return;
      const known = found.size ? joined([...found.values()]) : null;
      const text = known ? `${known.names.join("\n")}${known.lazy.length}` : "";
      if (known && text === last) return; // the panels stay as they are
      last = text;
      set({ known, error: known ? "" : error });
    };
    const spread = runs.filter((_, at) => runs.length <= SAMPLE || at % Math.ceil(runs.length / SAMPLE) === 0);
    void (async () => {
      await Promise.all(spread.map(ask));
      tell();
      const rest = runs.filter((run) => !spread.includes(run));
      if (rest.length) await new Promise((done) => setTimeout(done, REST_MS));
      for (let at = 0; at < rest.length && !control.signal.aborted; at += 2)
        await Promise.all(rest.slice(at, at + 2).map(ask));
      if (rest.length) tell();
    })();
    const again = (run: Key): void => {
      timer ??= setTimeout(() => {
        timer = undefined;
        void ask(run).then(tell);
      }, AGAIN_SECONDS * 1000);
    };
    const stop = listen({ runs: runs.slice(0, 200), onPoints: again });
    return () => {
      control.abort();
      clearTimeout(timer);
      stop();
    };
  }, [keys, returns]);
  return state;
}
