/** Series by name: a tree by family, and a box for a regular expression, over a hundred thousand names.
 *
 * In:   a run, the names that are picked.
 * Out:  names picked and put back. The server keeps and matches the names; here are only those that are seen.
 */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { getNames, getTree } from "../api/client.ts";
import type { Key, Tree } from "../api/types.ts";
import { Icon } from "../shell/icon.tsx";
import { whole } from "../shell/text.ts";
import { byNumber } from "./families.ts";

interface Props {
  run: Key;
  picked: readonly string[];
  toggle: (name: string) => void;
  /** Draw all that an expression matches. */
  addAll: (names: string[]) => void;
}

const ROW = 24; // pixels
const FOUND = 2000; // matches that are held; the count of all is shown
const WAIT_MS = 12; // after the last key

type Line =
  | { kind: "group"; prefix: string; text: string; count: number; depth: number; open: boolean }
  | { kind: "leaf"; name: string; text: string; depth: number };

export function Browse({ run, picked, toggle, addAll }: Props) {
  const [text, setText] = useState("");
  const [found, setFound] = useState<{ names: string[]; total: number } | null>(null);
  const [error, setError] = useState("");
  const [trees, setTrees] = useState<Record<string, Tree>>({});
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set([""]));

  useEffect(() => {
    setTrees({});
    setOpen(new Set([""]));
  }, [run]);

  useEffect(() => {
    const missing = [...open].filter((prefix) => !(prefix in trees));
    if (!missing.length) return;
    const control = new AbortController();
    for (const prefix of missing) {
      getTree(run, prefix, control.signal).then(
        (tree) => setTrees((now) => ({ ...now, [prefix]: tree })),
        (reason: unknown) => !control.signal.aborted && setError((reason as Error).message),
      );
    }
    return () => control.abort();
  }, [open, run]);

  useEffect(() => {
    setError("");
    if (!text.trim()) return setFound(null);
    const control = new AbortController();
    const timer = setTimeout(() => {
      getNames(run, text.trim(), FOUND, control.signal).then(
        ({ names, total }) => {
          setFound({ names, total: total ?? names.length });
          setError("");
        },
        (reason: unknown) => !control.signal.aborted && setError((reason as Error).message),
      );
    }, WAIT_MS);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [text, run]);

  const lines = useMemo((): Line[] => {
    if (found) return [...found.names].sort(byNumber).map((name) => ({ kind: "leaf", name, text: name, depth: 0 }));
    const all: Line[] = [];
    const walk = (prefix: string, depth: number): void => {
      const tree = trees[prefix];
      if (!tree) return;
      for (const { name, count } of [...tree.groups].sort((a, b) => byNumber(a.name, b.name))) {
        const inner = `${prefix}${name}/`;
        all.push({ kind: "group", prefix: inner, text: name, count, depth, open: open.has(inner) });
        if (open.has(inner)) walk(inner, depth + 1);
      }
      for (const name of [...tree.leaves].sort(byNumber))
        all.push({ kind: "leaf", name, text: name.slice(prefix.length), depth });
    };
    walk("", 0);
    return all;
  }, [found, trees, open]);

  const act = (line: Line): void => {
    if (line.kind === "leaf") {
      toggle(line.name);
      return;
    }
    const next = new Set(open);
    if (!next.delete(line.prefix)) next.add(line.prefix);
    setOpen(next);
  };

  return (
    <div class="browse">
      <label class="unseen" for="series-search">
        Search series by a regular expression
      </label>
      <input
        id="series-search"
        class="field mono"
        type="search"
        placeholder="search: blocks\.[0-3].*/norm$"
        value={text}
        spellcheck={false}
        aria-invalid={error ? "true" : undefined}
        aria-describedby="series-found"
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <p id="series-found" class={`small ${error ? "bad" : "quiet"}`} role="status">
        {error ||
          (found
            ? found.total > found.names.length
              ? `${whole(found.total)} series, the first ${whole(found.names.length)} are listed`
              : `${whole(found.total)} series`
            : "Select series to draw them.")}
      </p>
      <List lines={lines} picked={picked} act={act} />
      {found && found.total > 1 && (
        <button type="button" class="button" onClick={() => addAll(found.names.slice(0, 96))}>
          Draw {found.total > 96 ? "the first 96" : `these ${found.total}`} in one chart
        </button>
      )}
    </div>
  );
}

/** Of all lines only those in sight are in the page. */
function List({
  lines,
  picked,
  act,
}: {
  lines: readonly Line[];
  picked: readonly string[];
  act: (line: Line) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [here, setHere] = useState(0);
  const set = useMemo(() => new Set(picked), [picked]);
  const height = box.current?.clientHeight ?? 560;
  const first = Math.max(0, Math.floor(top / ROW) - 6);
  const last = Math.min(lines.length, Math.ceil((top + height) / ROW) + 6);
  const at = Math.min(here, lines.length - 1);

  const go = (next: number): void => {
    const place = Math.max(0, Math.min(lines.length - 1, next));
    setHere(place);
    const node = box.current;
    if (!node) return;
    if (place * ROW < node.scrollTop) node.scrollTop = place * ROW;
    else if ((place + 1) * ROW > node.scrollTop + node.clientHeight)
      node.scrollTop = (place + 1) * ROW - node.clientHeight;
  };
  const onKey = (event: KeyboardEvent): void => {
    const line = lines[at];
    const page = Math.floor(height / ROW) - 1;
    const moves: Record<string, number> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: lines.length - 1,
    };
    const next = moves[event.key];
    if (next !== undefined) go(next);
    else if (line && (event.key === "Enter" || event.key === " ")) act(line);
    else if (line?.kind === "group" && event.key === "ArrowRight" && !line.open) act(line);
    else if (line?.kind === "group" && event.key === "ArrowLeft" && line.open) act(line);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div
      ref={box}
      class="names"
      role="tree"
      aria-label="Series"
      aria-multiselectable="true"
      tabIndex={0}
      aria-activedescendant={lines[at] ? `name-${at}` : undefined}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      onKeyDown={onKey}
    >
      <div class="run-of-names" style={{ height: `${lines.length * ROW}px` }}>
        {lines.slice(first, last).map((line, index) => {
          const place = first + index;
          const chosen = line.kind === "leaf" && set.has(line.name);
          return (
            <div
              key={line.kind === "leaf" ? line.name : line.prefix}
              id={`name-${place}`}
              class={`name-row ${place === at ? "here" : ""}`}
              role="treeitem"
              aria-level={line.depth + 1}
              aria-setsize={lines.length}
              aria-posinset={place + 1}
              aria-expanded={line.kind === "group" ? line.open : undefined}
              aria-selected={chosen}
              title={line.kind === "leaf" ? line.name : line.prefix}
              style={{ top: `${place * ROW}px`, paddingLeft: `${8 + line.depth * 14}px` }}
              onClick={() => {
                setHere(place);
                act(line);
              }}
            >
              {line.kind === "group" ? (
                <Icon name={line.open ? "down" : "right"} />
              ) : (
                <input type="checkbox" tabIndex={-1} checked={chosen} aria-hidden="true" readOnly />
              )}
              <span class="text">{line.text}</span>
              {line.kind === "group" && <span class="count">{whole(line.count)}</span>}
            </div>
          );
        })}
      </div>
    </div>
  );
}
