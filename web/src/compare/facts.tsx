/** What differs between the sides of a comparison, and the table of its figures.
 *
 * In:   the comparison.
 * Out:  tables; what changes nothing that is measured stays folded.
 */

import { useState } from "preact/hooks";
import { Icon } from "../shell/icon.tsx";
import { count } from "../shell/text.ts";
import { amount, better, change, letter, plusMinus } from "./reckon.ts";
import type { Comparison, Difference, TableRow } from "../api/types.ts";
import { Wide } from "../shell/wide.tsx";

// prettier-ignore
const PARTS: Record<string, string> = {
  config: "Configuration", code: "Code", packages: "Packages", hardware: "Hardware", environment: "Environment", data: "Data",
};

export function Letter({ side, colour }: { side: number; colour: string | undefined }) {
  return (
    <span class="letter">
      <span class="dot" style={{ background: colour }} aria-hidden="true" />
      {letter(side)}
    </span>
  );
}

interface Props {
  made: Comparison;
  colours: readonly string[];
}

export function Differences({ made, colours }: Props) {
  const changes = made.differences.filter((one) => one.change !== null);
  const others = made.differences.filter((one) => one.change === null);
  const unknown = Object.entries(made.not_known);
  return (
    <section class="panel block">
      <h2>What differs</h2>
      {changes.length > 0 ? (
        <Changes rows={changes} made={made} colours={colours} />
      ) : (
        <p class="soft">No known difference that affects the training.</p>
      )}
      {made.code_files.length > 0 && (
        <p class="code-files">
          <span class="quiet">Code that differs:</span>{" "}
          {made.code_files.map((file) => (
            <code key={file}>{file}</code>
          ))}
        </p>
      )}
      {others.length > 0 && (
        <details>
          <summary>{count(others.length, "more difference")} that cannot change the training</summary>
          <Table rows={others} made={made} colours={colours} />
        </details>
      )}
      {Object.keys(made.varies_within_sides).length > 0 && (
        <p class="soft">
          Varies within a group:{" "}
          {Object.entries(made.varies_within_sides)
            .map(([key, values]) => `${key} (${values})`)
            .join(", ")}
          .
        </p>
      )}
      {made.same.length > 0 && (
        <p class="quiet">The same: {made.same.map((part) => (PARTS[part] ?? part).toLowerCase()).join(", ")}.</p>
      )}
      {unknown.length > 0 && (
        <p class="tone-warning">
          <Icon name="unknown" /> Not known:{" "}
          {unknown
            .map(
              ([part, sides]) =>
                `${(PARTS[part] ?? part).toLowerCase()}${sides.length === made.sides.length ? "" : ` of ${sides.map(letter).join(", ")}`}`,
            )
            .join("; ")}
          . What is not known is not taken to be the same.
        </p>
      )}
    </section>
  );
}

const FEW = 12;

/** The first changes, and all of them when asked for. */
function Changes({ rows, made, colours }: Props & { rows: readonly Difference[] }) {
  const [all, setAll] = useState(false);
  return (
    <>
      <Table rows={all ? rows : rows.slice(0, FEW)} made={made} colours={colours} marked />
      {!all && rows.length > FEW && (
        <p>
          <button type="button" class="button" onClick={() => setAll(true)}>
            {count(rows.length - FEW, "more change")}
          </button>
        </p>
      )}
    </>
  );
}

function Table({ rows, made, colours, marked = false }: Props & { rows: readonly Difference[]; marked?: boolean }) {
  return (
    <Wide label="What differs">
      <table class="facts">
        <thead>
          <tr>
            <th scope="col" class="part">
              Part
            </th>
            <th scope="col">Key</th>
            {made.sides.map((side, at) => (
              <th scope="col" key={at} title={side.label}>
                <Letter side={at} colour={colours[at]} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((one) => (
            <tr key={`${one.part} ${one.key}`} class={marked ? "changed" : ""}>
              <td class="quiet part">{PARTS[one.part] ?? one.part}</td>
              <th scope="row" class="mono">
                {one.key}
              </th>
              {one.values.map((value, at) => (
                <td key={at} class={`mono ${at > 0 && value !== one.values[0] ? "other" : ""}`}>
                  {value}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

const WORDS = { 1: "better", [-1]: "worse", 0: "" } as const;

export function Figures({ made, colours }: Props) {
  if (made.rows.length === 0) return null;
  const baseline = made.contrasts[0]?.baseline ?? 0;
  return (
    <section class="panel block">
      <h2>Figures</h2>
      <Wide label="Figures">
        <table class="facts figures">
          <thead>
            <tr>
              <th scope="col">Measure</th>
              {made.sides.map((side, at) => (
                <th scope="col" key={at} class="number" title={side.label} colSpan={at === baseline ? 1 : 2}>
                  <Letter side={at} colour={colours[at]} />
                  {at === baseline && <span class="quiet"> baseline</span>}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {made.rows.map((row) => (
              <tr key={row.name}>
                <th scope="row">{row.name}</th>
                {row.cells.map((_, at) => (
                  <Figure key={at} row={row} side={at} baseline={baseline} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      <p class="quiet small">
        Percent of {letter(baseline)}. Green is better and red is worse, where the good direction is known; a difference
        may be chance all the same, see the verdict.
      </p>
    </section>
  );
}

function Figure({ row, side, baseline }: { row: TableRow; side: number; baseline: number }) {
  const cell = row.cells[side] ?? null;
  const word = WORDS[better(row, side, baseline) as 1 | -1 | 0];
  const against = change(row, side, baseline);
  return (
    <>
      <td class={`number ${cell ? "" : "quiet"}`}>
        {cell ? (cell.value === null ? "NaN" : amount(cell.value, row.unit)) : "–"}
        <span class="quiet">
          {cell && ` ${plusMinus(cell, row.unit)}`}
          {cell && cell.runs < cell.of && ` (${cell.runs} of ${cell.of})`}
        </span>
      </td>
      {side !== baseline && (
        <td class={`against ${against ? word : ""}`} title={word}>
          {against}
          {against && word && <span class="unseen"> {word}</span>}
        </td>
      )}
    </>
  );
}
