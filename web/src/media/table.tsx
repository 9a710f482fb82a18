/** A table of a run: sorted by a click on a column, filtered, a page at a time.
 *
 * In:   the run and the table's file; the server sorts and filters, so that a table of 100,000 rows is quick too.
 * Out:  the rows; cells are text, images where a cell is one.
 */

import { useState } from "preact/hooks";
import { runPath } from "../api/client.ts";
import type { Key, MediaTable } from "../api/types.ts";
import { useJson } from "../run/data.ts";
import { count, number, whole } from "../shell/text.ts";
import { cellImage, cellText } from "./pick.ts";

const ROWS = 50;

export const fileOf = (run: Key, file: string): string => runPath(run, `/media?file=${encodeURIComponent(file)}`);

const ROW_PIXELS = 31;

/** rows: as many as it is said to have, whose place is kept while it loads. */
export function Table({ run, file, label, rows = 0 }: { run: Key; file: string; label: string; rows?: number }) {
  const [sort, setSort] = useState<{ column: number; falling: boolean } | null>(null);
  const [start, setStart] = useState(0);
  const [word, setWord] = useState("");
  const asked = new URLSearchParams({ table: file, start: String(start), most: String(ROWS) });
  if (sort) asked.set("sort", String(sort.column));
  if (sort?.falling) asked.set("falling", "1");
  if (word) asked.set("word", word);
  const answer = useJson<MediaTable>(run, `/media?${asked.toString()}`);
  const [last, keep] = useState<MediaTable | null>(null);
  const held = answer.value ?? last;
  if (answer.value && answer.value !== last) keep(answer.value);
  if (!held)
    return (
      <div class="media-table" style={{ minHeight: `${Math.min(482, ROW_PIXELS * (rows + 1)) + 34}px` }}>
        <p class="quiet">{answer.error || "Loading …"}</p>
      </div>
    );
  const turn = (column: number): void => {
    setStart(0);
    setSort(sort?.column !== column ? { column, falling: false } : sort.falling ? null : { column, falling: true });
  };
  const end = Math.min(held.total, held.start + held.rows.length);
  return (
    <div class="media-table">
      <div class="media-scroll" tabIndex={0} role="group" aria-label={label}>
        <table class="facts">
          <thead>
            <tr>
              {held.columns.map((name, column) => {
                const here = sort?.column === column;
                return (
                  <th key={column} aria-sort={here ? (sort.falling ? "descending" : "ascending") : "none"}>
                    <button type="button" class="media-sort" onClick={() => turn(column)}>
                      {name}
                      <span aria-hidden="true">{here ? (sort.falling ? " ↓" : " ↑") : ""}</span>
                    </button>
                  </th>
                );
              })}
            </tr>
          </thead>
          <tbody>
            {held.rows.map((row, at) => (
              <tr key={held.start + at}>
                {row.map((cell, column) => (
                  <Cell key={column} run={run} cell={cell} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="media-foot small quiet">
        <span>
          {held.total === 0
            ? "no rows"
            : held.total > held.rows.length
              ? `rows ${whole(held.start + 1)} to ${whole(end)} of ${whole(held.total)}`
              : count(held.total, "row")}
          {held.total < held.every && `, filtered from ${whole(held.every)}`}
        </span>
        {(held.every > 8 || word) && (
          <input
            class="field"
            type="search"
            placeholder="filter rows"
            aria-label={`Filter the rows of ${label}`}
            value={word}
            onInput={(event) => {
              setStart(0);
              setWord(event.currentTarget.value);
            }}
          />
        )}
        {held.total > ROWS && (
          <span class="segmented">
            <button type="button" class="button" disabled={start === 0} onClick={() => setStart(start - ROWS)}>
              Previous
            </button>
            <button type="button" class="button" disabled={end >= held.total} onClick={() => setStart(start + ROWS)}>
              Next
            </button>
          </span>
        )}
      </p>
    </div>
  );
}

function Cell({ run, cell }: { run: Key; cell: unknown }) {
  const image = cellImage(cell);
  if (image)
    return (
      <td>
        <img class="media-cell" src={fileOf(run, image)} alt="" loading="lazy" />
      </td>
    );
  if (typeof cell === "number") return <td class="number">{Number.isInteger(cell) ? whole(cell) : number(cell)}</td>;
  return <td class="media-words">{cellText(cell)}</td>;
}
