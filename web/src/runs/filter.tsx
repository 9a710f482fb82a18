/** The filter: a line of plain words or of conditions, read by the server, with its answer in place.
 *
 * In:   the filter of the address; what the server said of it.
 * Out:  the filter as a person types it.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Row } from "../api/types.ts";
import { Icon } from "../shell/icon.tsx";
import { varying } from "./columns.ts";
import type { Matched } from "./store.ts";

const SETTLED_MILLISECONDS = 180;

interface Props {
  /** As the address has it. */
  text: string;
  set: (text: string) => void;
  /** With every letter, before it is in the address; null: as the address has it. */
  typing: (text: string | null) => void;
  matched: Matched;
  rows: readonly Row[];
}

export function FilterBox({ text, set, typing, matched, rows }: Props) {
  const [typed, setTyped] = useState(text);
  const [focused, setFocused] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>();
  const sent = useRef(text);

  // the address changed otherwise: back, a link, a chip
  useEffect(() => {
    if (text === sent.current) return;
    clearTimeout(timer.current);
    sent.current = text;
    setTyped(text);
    typing(null);
  }, [text]);
  useEffect(() => () => clearTimeout(timer.current), []);

  const send = (value: string): void => {
    clearTimeout(timer.current);
    sent.current = value;
    set(value);
    typing(null);
  };
  const change = (value: string): void => {
    setTyped(value);
    typing(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => send(value), SETTLED_MILLISECONDS);
  };
  const put = (value: string): void => {
    setTyped(value);
    send(value);
    field.current?.focus();
  };

  const error = typed === text ? matched.error : null; // not of half a word
  return (
    <div
      class="filter"
      role="search"
      onFocusIn={() => setFocused(true)}
      onFocusOut={(event) => !event.currentTarget.contains(event.relatedTarget as Node) && setFocused(false)}
    >
      <Icon name="search" />
      <input
        ref={field}
        id="filter"
        class="field mono"
        type="text"
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        placeholder="Filter:  words,  or  config.lr > 1e-3 and status = finished"
        aria-label="Filter the runs"
        aria-invalid={error !== null}
        aria-describedby={error !== null ? "filter-error" : undefined}
        value={typed}
        onInput={(event) => change(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter") send(typed);
          if (event.key === "Escape") {
            event.preventDefault();
            event.stopPropagation();
            if (typed) put("");
            else event.currentTarget.blur();
          }
        }}
      />
      {matched.busy && <span class="busy" aria-hidden="true" />}
      {typed && (
        <button
          type="button"
          class="button bare icon-only clear"
          aria-label="Clear the filter"
          title="Clear (Esc)"
          onClick={() => put("")}
        >
          <Icon name="close" />
        </button>
      )}
      {error !== null ? (
        <p id="filter-error" class="filter-said error" role="status">
          <Icon name="info" /> <span>{kindly(error)}</span>
        </p>
      ) : (
        focused && !typed && <Examples rows={rows} put={put} />
      )}
    </div>
  );
}

/** A sentence begins with a capital. */
const kindly = (text: string): string =>
  `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

function Examples({ rows, put }: { rows: readonly Row[]; put: (text: string) => void }) {
  const examples: [string, string][] = [
    ["status = running", "those that train now"],
    ["status in (failed, crashed, killed)", "those that went wrong"],
  ];
  for (const name of varying(rows, 2)) {
    const value = rows.find((row) => row.config[name] !== undefined && row.config[name] !== null)?.config[name];
    if (typeof value === "number") examples.push([`config.${name} >= ${value}`, "a number of the configuration"]);
    else if (typeof value === "string" || typeof value === "boolean") {
      examples.push([
        `config.${name} = ${/^[\w./-]+$/.test(String(value)) ? value : JSON.stringify(value)}`,
        "a word of the configuration",
      ]);
    }
  }
  const tag = rows.find((row) => row.tags.length)?.tags[0];
  if (tag) examples.push([`tag = ${/^[\w./-]+$/.test(tag) ? tag : JSON.stringify(tag)}`, "a tag"]);
  examples.push(["loss < 3 and not tag = old", "and, or, not, brackets"], ["name ~ *warmup*", "a pattern"]);
  return (
    <div class="filter-said examples">
      {examples.map(([text, says]) => (
        <button key={text} type="button" onClick={() => put(text)}>
          <code>{text}</code>
          <span class="quiet">{says}</span>
        </button>
      ))}
    </div>
  );
}
