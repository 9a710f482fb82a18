/** Choosing columns, and what to group by: with a search, among thousands.
 *
 * In:   the rows, which columns are shown.
 * Out:  the columns in the order chosen; the column to group by.
 */

import { useMemo, useState } from "preact/hooks";
import type { Row } from "../api/types.ts";
import { Icon } from "../shell/icon.tsx";
import { Pop } from "../shell/pop.tsx";
import { whole } from "../shell/text.ts";
import { ALL_BUT_SEED, available, column, GROUP_FACTS, varying, type ColumnId } from "./columns.ts";

const MOST_SHOWN = 60; // of a group: more are found by typing

/** All words, in any order, in the title or the kind. */
export function fits(id: ColumnId, search: string): boolean {
  const one = column(id);
  const text = `${one?.kind ?? ""} ${one?.title ?? ""} ${id}`.toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

export function ColumnPicker({
  rows,
  shown,
  set,
  custom,
}: {
  rows: readonly Row[];
  shown: readonly ColumnId[];
  set: (ids: ColumnId[] | null) => void;
  custom: boolean;
}) {
  return (
    <Pop
      button={
        <>
          <Icon name="columns" /> <span class="wide">Columns</span>
        </>
      }
      label="Columns"
      paneClass="picker"
    >
      {() => <PickerPane rows={rows} shown={shown} set={set} custom={custom} />}
    </Pop>
  );
}

function PickerPane({
  rows,
  shown,
  set,
  custom,
}: {
  rows: readonly Row[];
  shown: readonly ColumnId[];
  set: (ids: ColumnId[] | null) => void;
  custom: boolean;
}) {
  const [search, setSearch] = useState("");
  const groups = useMemo(() => available(rows), [rows]);
  const toggle = (id: ColumnId): void => set(shown.includes(id) ? shown.filter((one) => one !== id) : [...shown, id]);
  const move = (at: number, by: number): void => {
    const next = [...shown];
    const [one] = next.splice(at, 1);
    if (one !== undefined) next.splice(Math.max(0, at + by), 0, one);
    set(next);
  };
  const found = groups
    .map((group) => ({ ...group, ids: group.ids.filter((id) => fits(id, search)) }))
    .filter((group) => group.ids.length);
  return (
    <>
      <input
        class="field"
        type="search"
        placeholder="Find a metric or a setting"
        aria-label="Find a column"
        value={search}
        onInput={(event) => setSearch(event.currentTarget.value)}
      />
      <div class="picker-lists">
        {!search && (
          <section>
            <h3>
              Shown
              {custom && (
                <button type="button" class="button bare small" onClick={() => set(null)}>
                  as by default
                </button>
              )}
            </h3>
            <ul>
              {shown.map((id, at) => (
                <li key={id}>
                  <Choice id={id} on toggle={toggle} />
                  <button
                    type="button"
                    class="button bare icon-only"
                    aria-label={`${id}: to the left`}
                    title="to the left"
                    disabled={at === 0}
                    onClick={() => move(at, -1)}
                  >
                    <Icon name="up" />
                  </button>
                  <button
                    type="button"
                    class="button bare icon-only"
                    aria-label={`${id}: to the right`}
                    title="to the right"
                    disabled={at === shown.length - 1}
                    onClick={() => move(at, 1)}
                  >
                    <Icon name="down" />
                  </button>
                </li>
              ))}
            </ul>
          </section>
        )}
        {found.map((group) => (
          <section key={group.title}>
            <h3>
              {group.title} <span class="quiet">{whole(group.ids.length)}</span>
            </h3>
            <ul>
              {group.ids.slice(0, MOST_SHOWN).map((id) => (
                <li key={id}>
                  <Choice id={id} on={shown.includes(id)} toggle={toggle} />
                </li>
              ))}
            </ul>
            {group.ids.length > MOST_SHOWN && (
              <p class="quiet small">{whole(group.ids.length - MOST_SHOWN)} more: type to find them</p>
            )}
          </section>
        ))}
        {found.length === 0 && <p class="quiet">No column has “{search}” in it.</p>}
      </div>
    </>
  );
}

function Choice({ id, on, toggle }: { id: ColumnId; on: boolean; toggle: (id: ColumnId) => void }) {
  const one = column(id);
  return (
    <label class="choice">
      <input type="checkbox" checked={on} onChange={() => toggle(id)} />
      {one && one.kind !== "fact" && <span class="kind">{one.kind} </span>}
      <span class={one?.kind === "fact" ? "" : "mono"}>{one?.title ?? id}</span>
    </label>
  );
}

const KEYS_MOST = 3; // keys that runs are grouped by at once

interface GroupProps {
  rows: readonly Row[];
  groups: readonly ColumnId[];
  set: (ids: ColumnId[]) => void;
}

const nameOf = (id: ColumnId): string => column(id)?.title ?? id;

export function GroupPicker(props: GroupProps) {
  const { groups } = props;
  const title = groups.map(nameOf).join(", ");
  return (
    <Pop
      button={
        <>
          <Icon name="group" /> <span class={title ? "cut" : "wide"}>{title || "Group"}</span>
        </>
      }
      label={title ? `Grouped by ${title}` : "Group"}
      class={`button ${title ? "on" : ""}`}
      paneClass="picker narrow"
    >
      {(close) => <GroupPane {...props} close={close} />}
    </Pop>
  );
}

function GroupPane({ rows, groups, set, close }: GroupProps & { close: () => void }) {
  const [search, setSearch] = useState("");
  const [telling, rest] = useMemo(() => {
    const differ = varying(rows, 40).map((name) => `config:${name}`);
    const all = available(rows).find((one) => one.title === "Configuration")?.ids ?? [];
    return [[ALL_BUT_SEED, ...differ, ...GROUP_FACTS], all.filter((id) => !differ.includes(id))];
  }, [rows]);
  const ids = [...telling, ...(search ? rest : [])].filter((id) => fits(id, search)).slice(0, MOST_SHOWN);
  const pick = (id: ColumnId): void => {
    close();
    set([id]);
  };
  const add = (id: ColumnId): void =>
    set(groups.includes(id) ? groups.filter((one) => one !== id) : [...groups, id].slice(-KEYS_MOST));
  const several = !groups.includes(ALL_BUT_SEED);
  return (
    <>
      <input
        class="field"
        type="search"
        placeholder="Find a setting"
        aria-label="Find a key to group by"
        value={search}
        onInput={(event) => setSearch(event.currentTarget.value)}
      />
      <div class="picker-lists">
        <ul>
          {groups.length > 0 && (
            <li>
              <button
                type="button"
                class="pick"
                onClick={() => {
                  close();
                  set([]);
                }}
              >
                No groups
              </button>
            </li>
          )}
          {ids.map((id) => (
            <li key={id}>
              <button
                type="button"
                class={`pick ${groups.includes(id) ? "on" : ""}`}
                aria-pressed={groups.includes(id)}
                onClick={() => pick(id)}
              >
                {id.startsWith("config:") && <span class="kind">config </span>}
                <span class={id.startsWith("config:") ? "mono" : ""}>{nameOf(id)}</span>
              </button>
              {groups.length > 0 && several && id !== ALL_BUT_SEED && (
                <button
                  type="button"
                  class="button bare icon-only"
                  aria-label={groups.includes(id) ? `Do not group by ${nameOf(id)}` : `Group also by ${nameOf(id)}`}
                  title={groups.includes(id) ? "Remove this key" : "Group also by this key"}
                  onClick={() => add(id)}
                >
                  <Icon name={groups.includes(id) ? "close" : "plus"} />
                </button>
              )}
            </li>
          ))}
        </ul>
        {ids.length === 0 && <p class="quiet">No setting has “{search}” in it.</p>}
      </div>
    </>
  );
}
