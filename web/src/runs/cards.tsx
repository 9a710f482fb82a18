/** The runs on a narrow screen: a card each, of which those in sight are in the page.
 *
 * In:   lines in order, columns, what is chosen.
 * Out:  a list that scrolls.
 */

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Row } from "../api/types.ts";
import { runPlace } from "../shell/address.ts";
import { colourOf } from "../shell/runcolours.ts";
import { Icon } from "../shell/icon.tsx";
import { FindingBadges, Progress, RowStatus } from "../shell/status.tsx";
import { ago, title } from "../shell/text.ts";
import { cell, numberOf, type Column } from "./columns.ts";
import { Failed, GroupButton, GroupSwatch, Statistic } from "./group.tsx";
import type { Line } from "./order.ts";
import { Eye, RowMenu, type LinesProps, FullName } from "./row.tsx";
import { Edit, tagsOf } from "./edit.tsx";
import { change } from "./store.ts";

const CARD_PIXELS = 86; // .card in style/runs.css
const GROUP_PIXELS = 64; // .card-group

/** Where each line begins, and where the last ends. */
function topsOf(lines: readonly Line[]): number[] {
  const tops = [0];
  for (const line of lines)
    tops.push((tops[tops.length - 1] ?? 0) + (line.kind === "group" ? GROUP_PIXELS : CARD_PIXELS));
  return tops;
}

/** The first line that ends below a height. */
function firstBelow(tops: readonly number[], height: number): number {
  let [low, high] = [0, tops.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((tops[middle + 1] ?? Infinity) > height) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The first columns that the run has something in. */
function valuesOf(row: Row, columns: readonly Column[]): [Column, string | number][] {
  const found: [Column, string | number][] = [];
  for (const one of columns) {
    const value = cell(row, one.id);
    if (value !== null) found.push([one, value]);
    if (found.length === 2) break;
  }
  return found;
}

export function RunCards({
  lines,
  columns,
  selected,
  visible,
  drawn,
  cursor,
  editing,
  actions,
  toggleGroup,
  shared,
}: LinesProps) {
  const box = useRef<HTMLDivElement>(null);
  const [[from, to], setSight] = useState<[number, number]>([0, 20]);
  const tops = useMemo(() => topsOf(lines), [lines]);
  const look = (): void => {
    const own = box.current;
    if (!own) return;
    const first = firstBelow(tops, own.scrollTop);
    const last = firstBelow(tops, own.scrollTop + own.clientHeight);
    setSight([Math.max(0, first - 6), Math.min(lines.length, last + 6)]);
  };
  useLayoutEffect(look, [tops]);
  const told = columns.filter((one) => one.kind !== "fact");
  const now = Date.now() / 1000;
  return (
    <div class="cards-box" ref={box} onScroll={look} role="region" aria-label="Runs" tabIndex={-1}>
      <ul class="cards" style={{ height: `${tops[lines.length]}px` }}>
        {lines.slice(from, to).map((line, at) => {
          const place = { position: "absolute", top: `${tops[from + at]}px`, left: 0, right: 0 } as const;
          if (line.kind === "group") {
            return (
              <li key={`group ${line.name}`} class="card-group" style={place}>
                <GroupSwatch
                  line={line}
                  drawn={drawn.has(line.key)}
                  hidden={!visible.group(line.key)}
                  hide={actions.hide}
                />
                <GroupButton line={line} toggle={toggleGroup} />
                <Failed group={line.group} />
                <span class="card-numbers">
                  {told
                    .slice(0, 3)
                    .map(
                      (one) =>
                        line.group.statistics[one.id] && <Statistic key={one.id} group={line.group} id={one.id} />,
                    )}
                </span>
              </li>
            );
          }
          const { row } = line;
          const name = title(row);
          const what = editing?.key === row.key ? editing.what : null;
          const text = what === "tags" ? row.tags.join(", ") : what === "notes" ? row.notes : row.name || row.id;
          return (
            <li
              key={row.key}
              data-key={row.key}
              class={`card ${selected.has(row.key) ? "selected" : ""} ${from + at === cursor ? "current" : ""} ${row.archived ? "archived" : ""}`}
              style={place}
              aria-posinset={from + at + 1}
              aria-setsize={lines.length}
            >
              <div class="card-head">
                <input
                  type="checkbox"
                  aria-label={`Select ${name}`}
                  checked={selected.has(row.key)}
                  onClick={() => actions.select(row.key, false)}
                />
                <Eye
                  row={row}
                  colour={colourOf(line.group ?? row.key)}
                  drawn={drawn.has(line.group ?? row.key) && visible.run(row.key)}
                  hidden={!visible.run(row.key)}
                  actions={actions}
                />
                <Edit
                  text={text}
                  label={`${what ?? "name"} of ${name}`}
                  open={what !== null}
                  setOpen={(open) => actions.edit(row.key, open ? "name" : null)}
                  save={(value) =>
                    void change(
                      row.key,
                      what === "tags"
                        ? { tags: tagsOf(value) }
                        : what === "notes"
                          ? { notes: value }
                          : { name: value.trim() },
                    )
                  }
                >
                  <a class="run-link" href={runPlace(row.key)}>
                    <FullName row={row} beside={shared.get(row.key)} />
                  </a>
                </Edit>
                {row.pinned && <Icon name="pin" label="pinned" />}
                <RowMenu row={row} hidden={!visible.run(row.key)} actions={actions} />
              </div>
              <div class="card-line">
                <RowStatus row={row} />
                <FindingBadges row={row} />
                <span class="grow" />
                <span class="quiet">{ago(row.created, now)}</span>
              </div>
              <div class="card-line">
                <Progress row={row} />
                {valuesOf(row, told).map(([one, value]) => (
                  <span key={one.id} class="card-value">
                    <span class="quiet">{one.title.split("/").slice(-2).join("/")}</span>{" "}
                    {typeof value === "number" ? numberOf(one.id, value, 5, false) : value}
                  </span>
                ))}
              </div>
            </li>
          );
        })}
      </ul>
    </div>
  );
}
