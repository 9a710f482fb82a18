/** A group of runs in the table: what it is called, whether it is drawn, what its runs come to.
 *
 * In:   a line of the table that is a group.
 * Out:  its label, its swatch, and a cell for each column.
 */

import type { Key, RunGroup } from "../api/types.ts";
import { colourOf } from "../shell/runcolours.ts";
import { Icon } from "../shell/icon.tsx";
import { statusWords } from "../shell/states.ts";
import { count, duration, plain, whole } from "../shell/text.ts";
import { cell, numberOf, type Column } from "./columns.ts";
import type { GroupLine } from "./order.ts";

function textOf(key: string, value: unknown): string {
  if (typeof value === "number") return plain(value);
  if (typeof value !== "string") return typeof value === "boolean" ? String(value) : "none";
  return key === "status" ? statusWords(value).word : value;
}

/** Opens and closes the group. */
export function GroupButton({ line, toggle }: { line: GroupLine; toggle: (name: string) => void }) {
  const { group, open, rows } = line;
  const values = Object.entries(group.values);
  return (
    <button
      type="button"
      class="group-button"
      aria-expanded={open}
      title={group.label}
      onClick={() => toggle(line.name)}
    >
      <Icon name={open ? "down" : "right"} />
      <span class="group-label">
        {values.length === 0 && <strong>{group.label}</strong>}
        {values.map(([key, value], at) => (
          <span key={key}>
            {at > 0 && ", "}
            <span class="quiet">{key.split(".").pop()}</span> <strong>{textOf(key, value)}</strong>
          </span>
        ))}
      </span>{" "}
      <span class="count" title={count(rows.length, "run")}>
        {whole(rows.length)}
      </span>
    </button>
  );
}

/** The colour of the group's curve, and whether it is drawn. */
export function GroupSwatch({
  line,
  drawn,
  hidden,
  hide,
}: {
  line: GroupLine;
  drawn: boolean;
  hidden: boolean;
  hide: (key: Key) => void;
}) {
  const says = hidden ? "not drawn: show its curve" : drawn ? "drawn: hide its curve" : "not drawn: too far down";
  return (
    <button
      type="button"
      class={`swatch ${hidden ? "off" : drawn ? "on" : "ring"}`}
      style={{ color: colourOf(line.key) }}
      aria-pressed={!hidden}
      aria-label={`${line.name}: ${says}`}
      title={says}
      tabIndex={-1}
      onClick={(event) => {
        event.stopPropagation();
        hide(line.key);
      }}
    />
  );
}

export function Failed({ group }: { group: RunGroup }) {
  if (!group.failed) return null;
  return (
    <span class="badge bad" title="Runs that failed, crashed, diverged or were killed">
      {whole(group.failed)} failed
    </span>
  );
}

/** Mean and deviation, or the best, with what else is known of a number in its title. */
export function Statistic({ group, id, digits = 4 }: { group: RunGroup; id: string; digits?: number }) {
  const found = Object.hasOwn(group.statistics, id) ? group.statistics[id] : undefined;
  if (!found) return <span class="quiet">–</span>;
  const write = (value: number): string => (id === "duration" ? duration(value) : numberOf(id, value, digits));
  const { mean, deviation, best, count: finite, not_finite: lost } = found;
  const spread =
    mean === null ? "" : `${write(mean)}${deviation === null ? "" : ` ± ${numberOf(id, deviation, 2, false)}`}`;
  const bests = id.startsWith("best:") && best !== null;
  const title = [
    mean === null ? "" : `mean ${mean}`,
    deviation === null ? "" : `standard deviation ${deviation}`,
    best === null ? "" : `best ${best}`,
    `${count(finite, "run")} with a value`,
    lost ? `${whole(lost)} not finite` : "",
  ];
  return (
    <span class="statistic" title={title.filter(Boolean).join("\n")}>
      {lost > 0 && <span class="not-finite">{whole(lost)} NaN</span>}{" "}
      {bests ? (
        <>
          <span class="quiet">{spread}</span> <strong>{write(best)}</strong>
        </>
      ) : (
        <>{spread}</>
      )}
    </span>
  );
}

/** What the runs of a group come to in a column. */
export function GroupValue({ line, column }: { line: GroupLine; column: Column }) {
  const { group, rows } = line;
  switch (column.id) {
    case "status":
      return <Failed group={group} />;
    case "findings": {
      const critical = rows.filter((row) => (row.findings.critical ?? 0) > 0).length;
      return critical ? <span class="badge bad">{whole(critical)} critical</span> : null;
    }
    case "step":
    case "duration":
      return <Statistic group={group} id={column.id} />;
  }
  if (column.kind === "last" || column.kind === "best") return <Statistic group={group} id={column.id} />;
  if (column.kind !== "config") return null;
  const first = rows[0] ? cell(rows[0], column.id) : null;
  if (first === null) return null;
  if (!rows.every((row) => Object.is(cell(row, column.id), first)))
    return <span class="quiet">{whole(new Set(rows.map((row) => cell(row, column.id))).size)} values</span>;
  return <span class="line">{typeof first === "number" ? plain(first) : first}</span>;
}
