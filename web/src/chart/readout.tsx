/** What a chart says of the place under the pointer: values, the nearest line, marks close by.
 *
 * In:   readouts of a chart's lines at one x.
 * Out:  a tip beside the pointer, values beside the titles of other charts, a sentence for screen readers.
 */

import { number, whole } from "../shell/text.ts";
import { keyOf, type Control, type Readout } from "./control.ts";
import { xText } from "./ticks.ts";
import { amount, unitOf, type Unit } from "./units.ts";

const TIP_MOST = 12;
const NEAR = 24; // CSS pixels from a line at which it is meant

/** In the other charts: the values beside their titles. */
export function Linked({ readouts }: { readouts: Readout[] }) {
  const shown = readouts.length > 3 ? [] : readouts;
  if (!shown.length && readouts.length) {
    const values = readouts.map((one) => one.reading.smooth ?? one.reading.value).filter(Number.isFinite);
    if (!values.length) return null;
    return (
      <span class="value">
        {between(Math.min(...values), Math.max(...values), unitOf(readouts.map((one) => one.line.name)))}
      </span>
    );
  }
  return (
    <>
      {shown.map(({ line, reading }) => (
        <span class="value" key={keyOf(line)}>
          {readouts.length > 1 && <i class="key" style={{ color: line.colour }} />}
          {said({ line, reading })}
        </span>
      ))}
    </>
  );
}

/** The line nearest to the pointer, if one is near; of one line alone there is nothing to say. */
export function nearestOf(made: Control, readouts: readonly Readout[], y: number | null): Readout | null {
  if (y === null || readouts.length < 2) return null;
  const top = made.plot.top(y);
  let found: Readout | null = null;
  let least = NEAR;
  for (const one of readouts) {
    const value = one.reading.smooth ?? one.reading.value;
    const away = Number.isFinite(value) ? Math.abs(made.plot.top(value) - top) : Infinity;
    if (away < least) [found, least] = [one, away];
  }
  return found;
}

export function Tip({
  readouts,
  x,
  at,
  made,
  nearest,
}: {
  readouts: Readout[];
  x: string;
  at: { x: number; y: number | null };
  made: Control | null;
  nearest: Readout | null;
}) {
  let shown = readouts.slice(0, TIP_MOST);
  // the one under the pointer is always named
  if (nearest && !shown.includes(nearest)) shown = [...shown.slice(0, -1), nearest];
  const marks = made ? nearMarks(made, at.x) : [];
  return (
    <>
      <div class="tip-x">{xText(x, at.x)}</div>
      {marks.map((mark) => (
        <div class="tip-mark" key={mark}>
          {mark}
        </div>
      ))}
      <table>
        <tbody>
          {shown.map((one) => (
            <tr key={keyOf(one.line)} class={one === nearest ? "near" : ""}>
              <td>
                <i class="key" style={{ color: one.line.colour }} />
              </td>
              <td class="name">{one.line.label}</td>
              <td class="number">{said(one)}</td>
              <td class="number quiet">{range(one)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {readouts.length > shown.length && <div class="quiet">and {readouts.length - shown.length} more</div>}
    </>
  );
}

const said = ({ line, reading }: Pick<Readout, "line" | "reading">): string =>
  amount(reading.smooth ?? reading.value, unitOf([line.name]));

/** Two numbers in the same digits: 3.70 … 3.88. */
function between(low: number, high: number, unit: Unit): string {
  const text = (value: number): string => (unit ? amount(value, unit) : number(value, 3, true));
  const [a, b] = [text(low), text(high)];
  return a === b ? a : `${a} … ${b}`;
}

function range({ line, reading }: Readout): string {
  const unit = unitOf([line.name]);
  if (!reading.exact && reading.low < reading.high) return between(reading.low, reading.high, unit);
  return reading.smooth !== null ? `raw ${amount(reading.value, unit, 3)}` : "";
}

const KINDS = { nan: "nan", "+inf": "inf", "-inf": "-inf" };

function nearMarks(made: Control, x: number): string[] {
  const { view, plotWidth } = made.plot;
  const reach = ((view[1] - view[0]) / plotWidth) * 6;
  const found: string[] = [];
  for (const { line, curve } of made.byLine()) {
    for (const mark of curve.marks) {
      if (Math.abs(mark.x - x) > reach || found.length >= 4) continue;
      found.push(`${line.label}: ${KINDS[mark.kind]} at step ${whole(mark.step)}`);
    }
  }
  return found;
}

export function placeTip(tip: HTMLElement, made: Control, at: { x: number; y: number | null }): void {
  const left = made.plot.left(at.x);
  if (left === null) return;
  const box = tip.parentElement?.getBoundingClientRect();
  if (!box) return;
  // beside the cursor, within the window: the chart itself may be smaller than what is said of it
  const right = box.left + left + 16 + tip.offsetWidth <= innerWidth - 4;
  const place = right ? left + 16 : left - 16 - tip.offsetWidth;
  const y = at.y === null ? 8 : made.plot.top(at.y);
  const top = y > box.height / 2 ? y - tip.offsetHeight - 10 : y + 10;
  tip.style.left = `${Math.max(4 - box.left, place)}px`;
  tip.style.top = `${Math.max(4 - box.top, top)}px`;
}

export function spoken(readouts: Readout[], x: string, at: number): string {
  if (!readouts.length) return "";
  const values = readouts.slice(0, 5).map(({ line, reading }) => `${line.label} ${said({ line, reading })}`);
  return `${xText(x, at)}: ${values.join(", ")}`;
}
