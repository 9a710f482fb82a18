/** One run in the table: its name and what is done with it, then a cell a column.
 *
 * In:   a row, the columns, whether it is chosen, drawn, hidden, under the cursor.
 * Out:  a table row; calls for what a person does.
 */

import type { Key, Row } from "../api/types.ts";
import { plainKey, runPlace } from "../shell/address.ts";
import { COLOUR_NAMES, PALETTE } from "../shell/colour.ts";
import { choose, placeOf } from "../shell/runcolours.ts";
import { Icon } from "../shell/icon.tsx";
import { Pop } from "../shell/pop.tsx";
import { FindingBadges, Progress, RowStatus } from "../shell/status.tsx";
import { steady } from "../shell/steady.ts";
import { theme } from "../shell/theme.ts";
import { statusWords } from "../shell/states.ts";
import { ago, duration, moment, plain, title, whole } from "../shell/text.ts";
import { remove, toggleArchive, togglePin } from "./actions.ts";
import { cell, numberOf, type Column, type Distinction } from "./columns.ts";
import { Edit, tagsOf } from "./edit.tsx";
import type { Line, Shown } from "./order.ts";
import { change } from "./store.ts";

/** What is edited in place. */
export type Editable = "name" | "tags" | "notes";

export interface RowActions {
  select: (key: Key, range: boolean) => void;
  hide: (key: Key) => void;
  only: (key: Key) => void;
  edit: (key: Key, what: Editable | null) => void;
  cursor: (key: Key) => void;
  hover: (key: Key | null) => void;
}

/** What the table and the cards are given alike. */
export interface LinesProps {
  lines: readonly Line[];
  columns: readonly Column[];
  /** A run may be in several groups. */
  several: boolean;
  selected: ReadonlySet<Key>;
  visible: Shown;
  drawn: ReadonlyMap<Key, readonly Key[]>;
  cursor: number;
  editing: { key: Key; what: Editable } | null;
  actions: RowActions;
  toggleGroup: (name: string) => void;
  shared: ReadonlyMap<Key, Distinction>;
}

interface Props {
  row: Row;
  columns: readonly Column[];
  index: number;
  selected: boolean;
  drawn: boolean;
  hidden: boolean;
  current: boolean;
  editing: Editable | null;
  actions: RowActions;
  now: number;
  /** The state has no column of its own. */
  stateInName: boolean;
  /** Names that several runs have. */
  shared: ReadonlyMap<Key, Distinction>;
  colour: string;
  /** What is drawn for it: itself, or its group. */
  drawnAs: Key;
}

export const RunRow = steady(function RunRow(props: Props) {
  const { row, columns, index, selected, current, editing, actions, now } = props;
  return (
    <tr
      data-key={row.key}
      class={`run ${selected ? "selected" : ""} ${current ? "current" : ""} ${row.archived ? "archived" : ""}`}
      aria-rowindex={index + 2}
      tabIndex={current ? 0 : -1}
      onMouseEnter={() => actions.hover(props.drawnAs)}
      onMouseLeave={() => actions.hover(null)}
      onClick={() => actions.cursor(row.key)}
      onFocus={(event) => event.target === event.currentTarget && actions.cursor(row.key)}
    >
      <NameCell {...props} />
      {columns.map((column) => (
        <td key={column.id} class={column.numeric ? "number" : ""}>
          <Value row={row} column={column} editing={editing} actions={actions} now={now} />
        </td>
      ))}
    </tr>
  );
});

function NameCell({ row, colour, selected, drawn, hidden, editing, actions, stateInName, shared }: Props) {
  const name = title(row);
  return (
    <th scope="row" class="name">
      <span class="name-inside">
        <input
          type="checkbox"
          aria-label={`Select ${name}`}
          checked={selected}
          tabIndex={-1}
          onClick={(event) => {
            event.stopPropagation();
            actions.select(row.key, event.shiftKey);
          }}
        />
        <Eye row={row} colour={colour} drawn={drawn} hidden={hidden} actions={actions} />
        {stateInName && <RowStatus row={row} bare />}
        <Edit
          text={row.name || row.id}
          label={`New name of ${name}`}
          open={editing === "name"}
          setOpen={(open) => actions.edit(row.key, open ? "name" : null)}
          save={(text) => void change(row.key, { name: text.trim() })}
        >
          <a class="run-link" href={runPlace(row.key)} tabIndex={-1} title={`${name}\n${plainKey(row.key)}`}>
            <FullName row={row} beside={shared.get(row.key)} />
          </a>
        </Edit>
        {row.pinned && <Icon name="pin" label="pinned" />}
        {row.archived && <Icon name="archive" label="archived" />}
        <RowMenu row={row} hidden={hidden} actions={actions} />
      </span>
    </th>
  );
}

/** The name, with what tells runs of one name apart. */
export function FullName({ row, beside }: { row: Row; beside: Distinction | undefined }) {
  return (
    <>
      {beside?.before && <span class="quiet">{beside.before}</span>}
      {title(row)}
      {beside?.behind && <span class="quiet"> {beside.behind}</span>}
    </>
  );
}

/** The run's colour, and whether it is drawn: full, a ring where it is not, struck through where it is hidden. */
export function Eye({
  row,
  colour,
  drawn,
  hidden,
  actions,
}: {
  row: Row;
  colour: string;
  drawn: boolean;
  hidden: boolean;
  actions: RowActions;
}) {
  const says = hidden
    ? "not drawn: show it in the charts"
    : drawn
      ? "drawn: hide it in the charts"
      : "not drawn: too far down; click to hide it";
  return (
    <button
      type="button"
      class={`swatch ${hidden ? "off" : drawn ? "on" : "ring"}`}
      style={{ color: colour }}
      aria-pressed={!hidden}
      aria-label={`${title(row)}: ${says}`}
      title={says}
      tabIndex={-1}
      onClick={(event) => {
        event.stopPropagation();
        actions.hide(row.key);
      }}
    />
  );
}

export function RowMenu({ row, hidden, actions }: { row: Row; hidden: boolean; actions: RowActions }) {
  const name = title(row);
  const running = statusWords(row.status).open;
  return (
    <Pop
      button={<Icon name="more" />}
      label={`Actions for ${name}`}
      class="button bare icon-only row-menu"
      paneClass="menu"
      role="menu"
    >
      {(close) => {
        const item = (text: string, run: () => void, hint = "", disabled = "") => (
          <button
            type="button"
            role="menuitem"
            disabled={disabled !== ""}
            title={disabled}
            onClick={() => {
              close();
              run();
            }}
          >
            <span>{text}</span>
            {hint && <kbd>{hint}</kbd>}
          </button>
        );
        return (
          <>
            <a role="menuitem" href={runPlace(row.key)} onClick={close}>
              <span>Open</span>
              <kbd>Enter</kbd>
            </a>
            <a role="menuitem" href={runPlace(row.key, "doctor")} onClick={close}>
              <span>Doctor</span>
            </a>
            <hr />
            {item(hidden ? "Show in the charts" : "Hide in the charts", () => actions.hide(row.key), "h")}
            {item("Show only this run", () => actions.only(row.key), "o")}
            <Palette row={row} />
            <hr />
            {item("Rename", () => actions.edit(row.key, "name"), "e")}
            {item("Tags", () => actions.edit(row.key, "tags"), "t")}
            {item("Notes", () => actions.edit(row.key, "notes"), "n")}
            <hr />
            {item(row.pinned ? "Unpin" : "Pin to the top", () => togglePin([row.key]), "p")}
            {item(row.archived ? "Unarchive" : "Archive", () => toggleArchive([row.key]), "a")}
            {item("Delete", () => void remove([row.key]), "Del", running ? "A running run cannot be deleted" : "")}
          </>
        );
      }}
    </Pop>
  );
}

function Palette({ row }: { row: Row }) {
  const place = placeOf(row.key);
  return (
    <div class="palette" role="group" aria-label="Colour">
      {PALETTE[theme()].map((colour, at) => (
        <button
          key={colour}
          type="button"
          class={at === place ? "on" : ""}
          style={{ background: colour }}
          aria-label={COLOUR_NAMES[theme()][at]}
          title={COLOUR_NAMES[theme()][at]}
          aria-pressed={at === place}
          onClick={() => choose(row.key, at)}
        />
      ))}
    </div>
  );
}

interface ValueProps {
  row: Row;
  column: Column;
  editing: Editable | null;
  actions: RowActions;
  now: number;
}

function Value({ row, column, editing, actions, now }: ValueProps) {
  const name = title(row);
  switch (column.id) {
    case "status":
      return (
        <>
          <RowStatus row={row} /> <Share row={row} />
        </>
      );
    case "progress":
      return <Progress row={row} />;
    case "findings":
      return <FindingBadges row={row} />;
    case "created":
      return <span title={moment(row.created)}>{ago(row.created, now)}</span>;
    case "duration":
      return <>{duration(row.wall_seconds)}</>;
    case "remaining":
      return <>{statusWords(row.status).open ? duration(row.remaining_seconds) : "–"}</>;
    case "step":
      return <>{whole(row.step)}</>;
    case "tags":
      return (
        <Edit
          text={row.tags.join(", ")}
          label={`Tags of ${name}, separated by commas`}
          placeholder="tag, tag"
          open={editing === "tags"}
          setOpen={(open) => actions.edit(row.key, open ? "tags" : null)}
          save={(text) => void change(row.key, { tags: tagsOf(text) })}
        >
          <span class="tags">
            {row.tags.length ? (
              row.tags.map((tag) => (
                <span class="tag" key={tag}>
                  {tag}
                </span>
              ))
            ) : (
              <Nothing />
            )}
          </span>
        </Edit>
      );
    case "notes":
      return (
        <Edit
          text={row.notes}
          label={`Notes on ${name}`}
          placeholder="what it is about"
          open={editing === "notes"}
          setOpen={(open) => actions.edit(row.key, open ? "notes" : null)}
          save={(text) => void change(row.key, { notes: text })}
        >
          <span class="line" title={row.notes}>
            {row.notes || <Nothing />}
          </span>
        </Edit>
      );
  }
  const value = cell(row, column.id);
  if (value === null) return <Nothing />;
  if (typeof value === "number") {
    return (
      <span class={Number.isFinite(value) ? "" : "not-finite"} title={String(value)}>
        {column.kind === "config" ? plain(value) : numberOf(column.id, value)}
      </span>
    );
  }
  return (
    <span class="line" title={value}>
      {value}
    </span>
  );
}

/** How much of an open run is done. */
function Share({ row }: { row: Row }) {
  if (!statusWords(row.status).open || row.step === null || !row.total_steps) return null;
  return <span class="quiet small">{Math.floor((100 * row.step) / row.total_steps)}%</span>;
}

const Nothing = () => <span class="quiet">–</span>;
