/** A heat map: rows (layers, experts) over columns (steps), with the value under the pointer and a legend.
 *
 * In:   values row by row, the names of the rows, the steps of the columns, what a click does.
 * Out:  a canvas that keys can walk over as well, and the value in words for screen readers.
 */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { RAMP } from "../shell/colour.ts";
import { grouped, middleCut, number, whole } from "../shell/text.ts";
import { token, useTheme } from "../shell/theme.ts";
import { parseColour, pixels, ramp, scaleOf, tickPlaces } from "./heatmap.ts";

export interface HeatProps {
  /** What is shown, for screen readers. */
  title: string;
  rows: readonly string[];
  steps: Float64Array;
  values: Float64Array;
  log: boolean;
  /** Cells that are NaN or infinite: row, column, kind. */
  marks?: readonly [number, number, string][];
  /** The row that is looked at closely. */
  chosen?: number | null;
  at?: number | null;
  onPick?: (row: number, column: number) => void;
  unit?: string;
  /** Height of a row in pixels; by default as much as the rows leave room for. */
  rowHeight?: number;
  /** Names at the left in place of those of the rows; null: none there. */
  heads?: readonly (string | null)[];
  /** Rows that belong together: a line below each N. */
  group?: number;
  /** What a column is. */
  column?: string;
}

const TALLEST = 640;
const NAMES = 156; // room for names at the left

export function Heat(props: HeatProps) {
  const { title, rows, steps, values, log, marks = [], chosen = null, at = null, onPick, unit = "" } = props;
  const { heads, group, column: counted = "step" } = props;
  const theme = useTheme();
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const [here, setHere] = useState<[number, number] | null>(null);
  const [width, setWidth] = useState(800);
  const scale = useMemo(() => scaleOf(values, log), [values, log]);
  const height = props.rowHeight ?? Math.max(3, Math.min(18, Math.floor(TALLEST / Math.max(1, rows.length))));
  const tall = height * rows.length;
  const names = width < 560 ? 124 : width > 1000 ? NAMES * 1.3 : NAMES;
  const columns = steps.length;

  useEffect(() => {
    if (!box.current) return;
    const watch = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);

  const colours = useMemo(() => {
    const signed = ["--less-2", "--less-1", "--zero", "--more-1", "--more-2"];
    return ramp((scale.kind === "signed" ? signed.map(token) : RAMP).map(parseColour));
  }, [theme, scale.kind]);

  useEffect(() => {
    const node = canvas.current;
    const context = node?.getContext("2d");
    if (!node || !context || !columns || !rows.length) return;
    node.width = columns;
    node.height = rows.length;
    const odd = parseColour(token("--chart-mark"));
    const image = new ImageData(
      pixels(values, columns, rows.length, scale, colours, odd) as Uint8ClampedArray<ArrayBuffer>,
      columns,
      rows.length,
    );
    context.putImageData(image, 0, 0);
    context.fillStyle = token("--chart-mark");
    for (const [row, column] of marks) context.fillRect(column, row, 1, 1);
  }, [values, scale, colours, columns, rows, marks]);

  const place = (event: MouseEvent): [number, number] | null => {
    const area = canvas.current?.getBoundingClientRect();
    if (!area || !columns) return null;
    const column = Math.floor(((event.clientX - area.left) / area.width) * columns);
    const row = Math.floor(((event.clientY - area.top) / area.height) * rows.length);
    return row >= 0 && row < rows.length && column >= 0 && column < columns ? [row, column] : null;
  };
  const onKey = (event: KeyboardEvent): void => {
    const [row, column] = here ?? [0, columns - 1];
    const jump = event.shiftKey ? 10 : 1;
    // prettier-ignore
    const moves: Record<string, [number, number]> = {
      ArrowUp: [row - jump, column], ArrowDown: [row + jump, column], ArrowLeft: [row, column - jump], ArrowRight: [row, column + jump],
      Home: [row, 0], End: [row, columns - 1],
    };
    const next = moves[event.key];
    if (next) setHere([Math.max(0, Math.min(rows.length - 1, next[0])), Math.max(0, Math.min(columns - 1, next[1]))]);
    else if (event.key === "Enter" || event.key === " ") onPick?.(row, column);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const value = here ? (values[here[0] * columns + here[1]] ?? NaN) : NaN;
  const odd = here ? marks.find(([row, column]) => row === here[0] && column === here[1]) : undefined;
  const KINDS: Record<string, string> = { nan: "nan", "+inf": "inf", "-inf": "-inf" };
  const said = here
    ? `${rows[here[0]]}, ${counted} ${whole(steps[here[1]])}: ${odd ? KINDS[odd[2]] : Number.isNaN(value) ? "no value" : `${number(value, 5)}${unit}`}`
    : "";
  const every = Math.ceil(14 / height); // names of 11 pixels need 14
  const ticks = useMemo(() => tickPlaces(steps, Math.max(2, Math.floor((width - names) / 90))), [steps, width, names]);

  return (
    <div class="heat" ref={box}>
      <div class="heat-grid" style={{ gridTemplateColumns: `${names}px minmax(0, 1fr)` }}>
        <div class="heat-names" style={{ height: `${tall}px` }} aria-hidden="true">
          {rows.map((name, row) =>
            (heads ? heads[row] : row % every === 0) || row === here?.[0] || row === chosen ? (
              <span
                key={name}
                class={`${row === here?.[0] ? "here" : ""} ${row === chosen ? "chosen" : ""}`}
                style={{ top: `${Math.max(0, row * height + height / 2 - 7)}px` }}
                title={name}
              >
                {middleCut(
                  row === here?.[0] || row === chosen ? name : (heads?.[row] ?? name),
                  Math.floor((names - 10) / 5.9),
                )}
              </span>
            ) : null,
          )}
        </div>
        <div class="heat-cells" style={{ height: `${tall}px` }}>
          <canvas
            ref={canvas}
            tabIndex={0}
            role="img"
            aria-label={`${title}: ${rows.length} rows over ${columns} steps, from ${number(scale.low)} to ${number(scale.high)}. Arrow keys read cells, Enter opens one.`}
            onMouseMove={(event) => setHere(place(event))}
            onMouseLeave={() => setHere(null)}
            onFocus={() => setHere((now) => now ?? [0, columns - 1])}
            onBlur={() => setHere(null)}
            onKeyDown={onKey}
            onClick={(event) => {
              const found = place(event);
              if (found) onPick?.(found[0], found[1]);
            }}
          />
          {group && height * group >= 8 && (
            <i class="heat-groups" style={{ backgroundSize: `100% ${group * height}px` }} />
          )}
          {here && <i class="heat-row" style={{ top: `${here[0] * height}px`, height: `${height}px` }} />}
          {chosen !== null && (
            <i class="heat-row chosen" style={{ top: `${chosen * height}px`, height: `${height}px` }} />
          )}
          {at !== null && columns > 0 && <i class="heat-column" style={{ left: `${((at + 0.5) / columns) * 100}%` }} />}
          {here && (
            <div
              class={`chart-tip heat-tip ${here[1] > columns / 2 ? "left" : ""}`}
              style={{
                left: `${((here[1] + 0.5) / columns) * 100}%`,
                top: `${Math.min(here[0] * height + height + 6, Math.max(0, tall - 44))}px`,
              }}
            >
              <div class="tip-x">
                {counted} {whole(steps[here[1]])}
              </div>
              <div>
                {rows[here[0]]}{" "}
                <strong>{odd ? KINDS[odd[2]] : Number.isNaN(value) ? "no value" : `${number(value, 5)}${unit}`}</strong>
              </div>
            </div>
          )}
        </div>
        <span />
        <div class="heat-steps" aria-hidden="true">
          {ticks.map(({ step, column }) => (
            <span key={step} style={{ left: `${((column + 0.5) / columns) * 100}%` }}>
              {grouped(String(step))}
            </span>
          ))}
        </div>
      </div>
      <Legend colours={colours} low={scale.low} high={scale.high} kind={scale.kind} odd={marks.length} />
      <div class="unseen" aria-live="polite">
        {document.activeElement === canvas.current ? said : ""}
      </div>
    </div>
  );
}

function Legend({
  colours,
  low,
  high,
  kind,
  odd,
}: {
  colours: Uint8ClampedArray;
  low: number;
  high: number;
  kind: string;
  odd: number;
}) {
  const bar = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = bar.current?.getContext("2d");
    if (!context) return;
    const image = context.createImageData(256, 1);
    for (let at = 0; at < 256; at++) {
      for (let channel = 0; channel < 3; channel++) image.data[at * 4 + channel] = colours[at * 3 + channel] ?? 0;
      image.data[at * 4 + 3] = 255;
    }
    context.putImageData(image, 0, 0);
  }, [colours]);
  return (
    <div class="heat-legend small">
      <span>{number(low, 3)}</span>
      <canvas ref={bar} width={256} height={1} aria-hidden="true" />
      <span>{number(high, 3)}</span>
      <span class="quiet">
        {kind === "log"
          ? "logarithmic; empty: zero or no value"
          : `${kind === "signed" ? "around zero" : "linear"}; empty: no value`}
      </span>
      {odd > 0 && <span class="bad">{whole(odd)} not finite</span>}
    </div>
  );
}
