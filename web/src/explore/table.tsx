/** The same data as a table: for the keyboard, for screen readers, and to copy.
 *
 * In:   heads; rows of cells, each with the address it leads to.
 * Out:  a table that is folded, a hundred rows at a time.
 */

import { useState } from "preact/hooks";
import { count } from "../shell/text.ts";
import { Wide } from "../shell/wide.tsx";

export interface Line {
  label: string;
  href: string;
  /** As text: with the unit of its column. */
  cells: string[];
}

const PAGE = 100;

export function DataTable({
  heads,
  lines,
  label,
}: {
  heads: readonly string[];
  lines: readonly Line[];
  label: string;
}) {
  const [most, setMost] = useState(PAGE);
  const [open, setOpen] = useState(false);
  return (
    <details class="explore-table" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {label} as a table, {count(lines.length, "row")}
      </summary>
      {open && (
        <Wide label={label}>
          <table class="facts">
            <thead>
              <tr>
                {heads.map((head) => (
                  <th key={head} scope="col">
                    {head}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {lines.slice(0, most).map((line, at) => (
                <tr key={at}>
                  <th scope="row">
                    <a href={line.href}>{line.label}</a>
                  </th>
                  {line.cells.map((value, column) => (
                    <td key={column} class={/^[-–\d]|^(nan|inf)$/.test(value) ? "number" : ""}>
                      {value}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
          {lines.length > most && (
            <button type="button" class="button" onClick={() => setMost(most + 5 * PAGE)}>
              {count(lines.length - most, "more row")}
            </button>
          )}
        </Wide>
      )}
    </details>
  );
}
