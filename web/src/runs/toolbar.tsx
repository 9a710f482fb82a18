/** What stands above the table: the filter, how the table is made up, and what is done with the chosen runs.
 *
 * In:   the state, the runs.
 * Out:  changes of the state.
 */

import type { ComponentChildren } from "preact";
import type { Key, Row } from "../api/types.ts";
import { Icon, type IconName } from "../shell/icon.tsx";
import { Pop } from "../shell/pop.tsx";
import { statusWords } from "../shell/states.ts";
import { count, whole } from "../shell/text.ts";
import { remove, toggleArchive, togglePin } from "./actions.ts";
import type { ColumnId } from "./columns.ts";
import { FilterBox } from "./filter.tsx";
import { formatSort, parseSort } from "./order.ts";
import { ColumnPicker, GroupPicker } from "./picker.tsx";
import type { Layout, TableState } from "./state.ts";
import { rowOf, type Matched } from "./store.ts";

interface Props {
  state: TableState;
  update: (changes: Partial<TableState>, replace?: boolean) => void;
  matched: Matched;
  rows: readonly Row[];
  shown: readonly Row[];
  archived: number;
  leftOut: readonly string[];
  /** Runs that are still to come. */
  unread: number;
  ids: readonly ColumnId[];
  layout: Layout;
  narrow: boolean;
  /** The filter of the address; the state's may be newer. */
  filter: string;
  typing: (text: string | null) => void;
  /** The choice of a project, where it is not at the left. */
  projects: ComponentChildren;
}

const LAYOUTS: [Layout, IconName, string][] = [
  ["table", "table", "Table"],
  ["split", "split", "Table and charts"],
  ["charts", "chart", "Charts"],
  ["explore", "scatter", "Explore"],
];

// prettier-ignore
const SORTS: [string, string][] = [
  ["-created", "newest first"], ["created", "oldest first"], ["name", "by name"], ["status", "by status"], ["-findings", "by findings"], ["-progress", "by progress"],
];

export function Toolbar({
  state,
  update,
  matched,
  rows,
  shown,
  archived,
  leftOut,
  unread,
  ids,
  layout,
  narrow,
  projects,
  filter,
  typing,
}: Props) {
  return (
    <div class="toolbar" role="toolbar" aria-label="Table">
      {projects}
      <FilterBox
        text={filter}
        set={(filter) => update({ filter }, true)}
        typing={typing}
        matched={matched}
        rows={rows}
      />
      {unread > 0 && (
        <span class="chip" role="status">
          {whole(rows.length)} of {count(rows.length + unread, "run")} read …
        </span>
      )}
      <Count shown={shown} all={rows.length} archived={archived} state={state} matched={matched} update={update} />
      {leftOut.length > 0 && <LeftOut sentences={leftOut} />}
      <span class="grow" />
      {narrow && <SortChoice state={state} update={update} ids={ids} />}
      <GroupPicker rows={shown} groups={state.groups} set={(groups) => update({ groups })} />
      <ColumnPicker
        rows={shown}
        shown={ids}
        set={(columns) => update({ columns }, true)}
        custom={state.columns !== null}
      />
      <div class="segmented" role="group" aria-label="What is shown">
        {LAYOUTS.filter(([name]) => !narrow || name !== "split").map(([name, icon, title]) => (
          <button
            key={name}
            type="button"
            class="button icon-only"
            title={`${title} (v)`}
            aria-label={title}
            aria-pressed={layout === name}
            onClick={() => update({ layout: name })}
          >
            <Icon name={icon} />
          </button>
        ))}
      </div>
    </div>
  );
}

function LeftOut({ sentences }: { sentences: readonly string[] }) {
  return (
    <Pop
      button={
        <>
          <Icon name="warning" /> {whole(sentences.length)} left out
        </>
      }
      label="Runs that are not shown"
      class="chip"
    >
      {() => (
        <ul>
          {sentences.map((one) => (
            <li key={one}>{one}</li>
          ))}
        </ul>
      )}
    </Pop>
  );
}

function SortChoice({ state, update, ids }: Pick<Props, "state" | "update" | "ids">) {
  const own = formatSort(state.sort);
  const options: [string, string][] = [
    ...SORTS,
    ...ids.filter((id) => id.includes(":")).map((id): [string, string] => [id, `by ${id.replace(":", " ")}`]),
  ];
  if (!options.some(([id]) => id === own)) options.push([own, own]);
  return (
    <select
      class="field"
      aria-label="Order"
      value={own}
      onChange={(event) => update({ sort: parseSort(event.currentTarget.value) })}
    >
      {options.map(([id, says]) => (
        <option key={id} value={id}>
          {says}
        </option>
      ))}
    </select>
  );
}

const RUNNING = ["running", "silent", "stuck", "stalled"];
const RUNNING_FILTER = `status in (${RUNNING.join(", ")})`;

/** How many there are, and shortcuts to those that want a person's eyes. */
function Count({
  shown,
  all,
  archived,
  state,
  matched,
  update,
}: { shown: readonly Row[]; all: number; archived: number } & Pick<Props, "state" | "matched" | "update">) {
  const training = shown.filter((row) => RUNNING.includes(row.status)).length;
  const critical = shown.filter((row) => (row.findings.critical ?? 0) > 0).length;
  const filtered = matched.keys !== null || state.project !== "";
  return (
    <div class="counts" role="status">
      <span>{filtered ? `${whole(shown.length)} of ${count(all, "run")}` : count(shown.length, "run")}</span>
      {training > 0 && (
        <button
          type="button"
          class="chip"
          title={`Filter: ${RUNNING_FILTER}`}
          onClick={() => update({ filter: RUNNING_FILTER })}
        >
          <Icon name="run" /> {whole(training)} running
        </button>
      )}
      {critical > 0 && (
        <button
          type="button"
          class="chip bad"
          title="The worst first"
          onClick={() => update({ sort: { id: "findings", down: true } })}
        >
          <Icon name="critical" /> {whole(critical)} critical
        </button>
      )}
      {(archived > 0 || state.archived) && (
        <button
          type="button"
          class="chip"
          aria-pressed={state.archived}
          onClick={() => update({ archived: !state.archived })}
        >
          <Icon name="archive" /> {whole(archived)} archived
        </button>
      )}
    </div>
  );
}

interface SelectionProps {
  keys: readonly Key[];
  state: TableState;
  update: (changes: Partial<TableState>, replace?: boolean) => void;
  compare: () => void;
}

/** What is done with the chosen runs. */
export function Selection({ keys, state: { hidden, only }, update, compare }: SelectionProps) {
  const open = keys.some((key) => statusWords(rowOf(key)?.status ?? "").open);
  const allHidden = keys.every((key) => hidden.has(key));
  const hide = (): void => {
    const next = new Set(hidden);
    for (const key of keys) allHidden ? next.delete(key) : next.add(key);
    update({ hidden: next, only: new Set() }, true);
  };
  const alone = only.size === keys.length && keys.every((key) => only.has(key));
  const pinned = keys.every((key) => rowOf(key)?.pinned);
  const archived = keys.every((key) => rowOf(key)?.archived);
  return (
    <div class="selection" role="toolbar" aria-label="Selected runs">
      <strong>{whole(keys.length)} selected</strong>
      <button
        type="button"
        class="button main"
        disabled={keys.length < 2}
        title={keys.length < 2 ? "Select at least two runs" : "Compare (c)"}
        onClick={compare}
      >
        <Icon name="compare" /> Compare
      </button>
      <button type="button" class="button" onClick={hide}>
        <Icon name={allHidden ? "eye" : "hidden"} /> {allHidden ? "Show" : "Hide"}
      </button>
      <button
        type="button"
        class="button"
        aria-pressed={alone}
        onClick={() => update({ only: alone ? new Set() : new Set(keys) }, true)}
      >
        <Icon name="chart" /> Show only
      </button>
      <button type="button" class="button" onClick={() => togglePin(keys)}>
        <Icon name="pin" /> {pinned ? "Unpin" : "Pin"}
      </button>
      <button type="button" class="button" onClick={() => toggleArchive(keys)}>
        <Icon name="archive" /> {archived ? "Unarchive" : "Archive"}
      </button>
      <button
        type="button"
        class="button"
        disabled={open}
        title={open ? "A running run cannot be deleted" : "Delete (can be undone)"}
        onClick={() => void remove(keys)}
      >
        <Icon name="trash" /> Delete
      </button>
      <button type="button" class="button bare" onClick={() => update({ selected: new Set() }, true)}>
        Clear selection
      </button>
    </div>
  );
}
