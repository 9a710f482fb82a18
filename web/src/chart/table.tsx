/** A chart's numbers as tables: the values in view, and two ends of a range compared.
 *
 * In:   the curves that a chart draws.
 * Out:  tables for reading, and text with commas for other programs.
 */

import { useState } from "preact/hooks";
import { Icon } from "../shell/icon.tsx";
import { change, whole } from "../shell/text.ts";
import type { Control } from "./control.ts";
import { placeOf, type Columns, type RangeStatistics } from "./curve.ts";
import type { Range } from "./range.ts";
import { axisName, xText } from "./ticks.ts";
import { amount, unitOf, type Unit } from "./units.ts";

const ROWS = 50;

/** The rows of all lines in view, in the order of x. */
function rowsOf(
  made: Control,
): { label: string; x: number; low: number; value: number; high: number; exact: boolean; unit: Unit }[] {
  const [from, to] = made.plot.view;
  const rows = [];
  for (const { line, curve } of made.byLine()) {
    if (made.isHidden(line)) continue;
    for (let at = placeOf(curve.x, from); at < curve.x.length && (curve.x[at] ?? 0) <= to; at++) {
      rows.push({
        label: line.label,
        x: curve.x[at] ?? NaN,
        low: curve.low[at] ?? NaN,
        value: curve.y[at] ?? NaN,
        high: curve.high[at] ?? NaN,
        exact: curve.exact,
        unit: unitOf([line.name]),
      });
    }
  }
  return rows.sort((a, b) => a.x - b.x);
}

export function tableText(made: Control): string {
  const quote = (text: string): string => {
    // a name that begins like a formula stays a name in a spreadsheet
    const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const lines = rowsOf(made).map((row) => [quote(row.label), row.x, row.low, row.value, row.high].join(","));
  return [`series,${quote(made.group.settings.x)},minimum,value,maximum`, ...lines].join("\n");
}

export function Table({ made, close }: { made: Control; close: () => void }) {
  const [page, setPage] = useState(0);
  const rows = rowsOf(made);
  const pages = Math.max(1, Math.ceil(rows.length / ROWS));
  const now = Math.min(page, pages - 1);
  const exact = rows.every((row) => row.exact);
  const axis = made.group.settings.x;
  return (
    <div class="chart-table">
      <div class="bar">
        <span class="quiet">
          {exact ? `${whole(rows.length)} points` : `${whole(rows.length)} ranges of points: zoom in for each point`}
        </span>
        <span class="grow" />
        <button type="button" class="button bare" disabled={now === 0} onClick={() => setPage(now - 1)}>
          before
        </button>
        <span class="quiet">
          {now + 1} of {pages}
        </span>
        <button type="button" class="button bare" disabled={now >= pages - 1} onClick={() => setPage(now + 1)}>
          after
        </button>
        <button type="button" class="button bare icon-only" aria-label="Close the table" onClick={close}>
          <Icon name="close" />
        </button>
      </div>
      <table class="facts">
        <thead>
          <tr>
            <th scope="col">{axisName(axis)}</th>
            <th scope="col">series</th>
            <th scope="col" class="number">
              {exact ? "value" : "mean"}
            </th>
            {!exact && (
              <th scope="col" class="number">
                minimum
              </th>
            )}
            {!exact && (
              <th scope="col" class="number">
                maximum
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {rows.slice(now * ROWS, (now + 1) * ROWS).map((row, at) => (
            <tr key={at}>
              <td>{xText(axis, row.x)}</td>
              <td>{row.label}</td>
              <td class="number">{amount(row.value, row.unit, 6)}</td>
              {!exact && <td class="number">{amount(row.low, row.unit, 6)}</td>}
              {!exact && <td class="number">{amount(row.high, row.unit, 6)}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface Compared {
  made: Control;
  range: Range;
  close: () => void;
  statistics: (columns: Columns, from: number, to: number) => RangeStatistics;
}

const LINES = 12;

/** What a range comes to, beside the range of the same width just before it. */
export function Comparison({ made, range, close, statistics }: Compared) {
  const [from, to] = range;
  const axis = made.group.settings.x;
  const lines = made.byLine().filter(({ line }) => !made.isHidden(line));
  const per = axis === "step" ? 1000 : axis === "time" || axis === "relative" ? 3600 : to - from;
  const unit =
    axis === "step" ? "per 1,000 steps" : axis === "time" || axis === "relative" ? "per hour" : "over the range";
  const all = lines.map(({ line, curve }) => ({
    line,
    now: statistics(curve, from, to),
    before: statistics(curve, 2 * from - to, from),
  }));
  const shown = all.slice(0, LINES);
  const counted = unitOf(lines.map(({ line }) => line.name));
  const said = (value: number, digits = 5): string => amount(value, counted, digits);
  type Value = (now: RangeStatistics, before: RangeStatistics) => string;
  const some =
    (value: Value): Value =>
    (now, before) =>
      now.points ? value(now, before) : "–";
  const rows: [string, Value, string?][] = [
    ["points", (now) => whole(now.points)],
    ["mean", some((now) => said(now.mean))],
    [
      "mean before",
      (_, before) => (before.points ? said(before.mean) : "–"),
      "of the range of the same width just before",
    ],
    [
      "change of the mean",
      some((now, before) =>
        before.points && before.mean !== 0 ? change(((now.mean - before.mean) / Math.abs(before.mean)) * 100) : "–",
      ),
    ],
    [`slope ${unit}`, (now) => (Number.isNaN(now.slope) ? "–" : said(now.slope * per, 3)), "by least squares"],
    ["first → last", some((now) => `${said(now.first)} → ${said(now.last)}`)],
    ["change", some((now) => said(now.change, 3))],
    ["minimum … maximum", some((now) => `${said(now.low)} … ${said(now.high)}`)],
  ];
  return (
    <div class="chart-table comparison">
      <div class="bar">
        <strong>
          {xText(axis, from)} … {xText(axis, to)}
        </strong>
        {!all.every(({ now }) => now.exact) && (
          <span class="quiet" title="From buckets of points: exact except at both ends">
            ≈
          </span>
        )}
        <span class="grow" />
        <button type="button" class="button bare" onClick={() => made.group.range(range, true)}>
          zoom here
        </button>
        <button type="button" class="button bare icon-only" aria-label="Close the comparison" onClick={close}>
          <Icon name="close" />
        </button>
      </div>
      <table class="facts">
        <thead>
          <tr>
            <th scope="col" />
            {shown.map(({ line }) => (
              <th scope="col" class="number" key={`${line.run}\n${line.name}`}>
                <i class="key" style={{ color: line.colour }} /> {line.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(([says, value, title]) => (
            <tr key={says}>
              <th scope="row" title={title}>
                {says}
              </th>
              {shown.map((one) => (
                <td class="number" key={`${one.line.run}\n${one.line.name}`}>
                  {value(one.now, one.before)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {all.length > LINES && <p class="quiet small">and {all.length - LINES} more</p>}
    </div>
  );
}
