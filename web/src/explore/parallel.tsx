/** Parallel coordinates: an axis a column, a line a run; a brush on an axis narrows the runs.
 *
 * In:   rows, columns, brushes of the address.
 * Out:  a canvas; brushes when a person has drawn them; how many runs are within.
 */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Row } from "../api/types.ts";
import { unitOfColumn } from "../chart/units.ts";
import { cell, type ColumnId } from "../runs/columns.ts";
import { runPlace } from "../shell/address.ts";
import { go } from "../shell/route.ts";
import { title, whole } from "../shell/text.ts";
import { useTheme } from "../shell/theme.ts";
import { cutText, pen, token, useWidth, plotHeight } from "./canvas.ts";
import { inksOf } from "./colours.ts";
import { scaleOf, suitsLog, within, type Brush, type Brushes } from "./data.ts";
import { Painted } from "./painted.ts";

interface Props {
  rows: readonly Row[];
  ids: readonly ColumnId[];
  nameOf: (id: ColumnId) => string;
  colour: ColumnId | null;
  brushes: Brushes;
  setBrushes: (brushes: Brushes) => void;
}

const EDGE = { left: 48, right: 48, top: 34, bottom: 16 };
const HALF = 14; // pixels to each side of an axis that belong to it
const PART = 500; // lines in one frame
const GROUND = 1500; // grey lines behind

export function Parallel({ rows, ids, nameOf, colour, brushes, setBrushes }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const [ground, front] = [useRef<HTMLCanvasElement>(null), useRef<HTMLCanvasElement>(null)];
  const words = useRef<HTMLCanvasElement>(null);
  const width = useWidth(host);
  const height = plotHeight();
  const theme = useTheme();
  const axes = useMemo(
    () =>
      ids.map((id) => {
        const values = rows.map((row) => cell(row, id));
        const scale = scaleOf(values, suitsLog(values), 8, unitOfColumn(id));
        return { id, scale, places: Float64Array.from(values, (value) => scale.at(value)) };
      }),
    [rows, ids.join("\n")],
  );
  const inks = useMemo(() => {
    const values = colour === null ? [] : rows.map((row) => cell(row, colour));
    const scale = colour === null ? null : scaleOf(values, suitsLog(values), 6, unitOfColumn(colour));
    const made = inksOf(scale, theme, token("--accent"));
    return { ...made, each: rows.map((_, at) => made.of(values[at] ?? null)) };
  }, [rows, colour, theme]);

  /** The brush that is drawn now; it is in the address when the pointer is let go. */
  const [moving, setMoving] = useState<{ id: ColumnId; from: number; to: number } | null>(null);
  const [over, setOver] = useState(-1);
  const bounds = useMemo(
    () =>
      axes.map(({ id, scale }): readonly [number, number] | null => {
        if (moving?.id === id) return [Math.min(moving.from, moving.to), Math.max(moving.from, moving.to)];
        const brush = brushes.get(id);
        if (!brush) return null;
        const [a, b] = [scale.at(brush[0]), scale.at(brush[1])];
        return Number.isNaN(a) || Number.isNaN(b) ? null : [Math.min(a, b), Math.max(a, b)];
      }),
    [axes, brushes, moving],
  );
  const chosen = useMemo(
    () =>
      within(
        axes.map((axis) => axis.places),
        bounds,
      ),
    [axes, bounds],
  );
  const number = useMemo(() => chosen.reduce((sum, one) => sum + one, 0), [chosen]);

  const high = height - EDGE.top - EDGE.bottom;
  const xOf = (at: number): number =>
    EDGE.left + (axes.length < 2 ? 0.5 : at / (axes.length - 1)) * (width - EDGE.left - EDGE.right);
  const yOf = (share: number): number => EDGE.top + (1 - share) * high;

  const trace = (ink: Pick<CanvasRenderingContext2D, "moveTo" | "lineTo">, row: number): void => {
    let on = false;
    axes.forEach(({ places }, at) => {
      const place = places[row] as number;
      if (Number.isNaN(place)) on = false;
      else if (on) ink.lineTo(xOf(at), yOf(place));
      else {
        ink.moveTo(xOf(at), yOf(place));
        on = true;
      }
    });
  };
  const pathOf = (row: number): string => {
    let path = "";
    const add = (letter: string, x: number, y: number): string => (path += `${letter}${x} ${y}`);
    trace({ moveTo: (x, y) => add("M", x, y), lineTo: (x, y) => add("L", x, y) }, row);
    return path;
  };
  useEffect(() => {
    const ink = pen(ground.current, width, height);
    if (!ink) return;
    const every = Math.max(1, Math.ceil(rows.length / GROUND));
    ink.strokeStyle = token("--rule-2");
    ink.globalAlpha = rows.length > 300 ? 0.25 : 0.5;
    for (let row = 0; row < rows.length; row += every) {
      ink.beginPath();
      trace(ink, row);
      ink.stroke();
    }
    ink.globalAlpha = 1;
  }, [axes, width, theme]);

  const thin = number > 1000 ? 0.25 : number > 100 ? 0.5 : 0.85;
  const painted = useMemo(() => new Painted(rows.length), [axes, inks, width, height, thin]);
  /** The lines that are still to come, a part of them; whether there are more. */
  const paint = (): boolean => {
    const anew = painted.empty || painted.hasOthers(chosen);
    if (anew) painted.clear();
    const ink = pen(front.current, width, height, !anew);
    if (!ink) return false;
    ink.globalAlpha = thin;
    ink.lineWidth = number > 100 ? 1 : 1.5;
    const part = painted.next(chosen, PART);
    for (const row of part) {
      ink.strokeStyle = inks.each[row] ?? "";
      ink.beginPath();
      trace(ink, row);
      ink.stroke();
    }
    return part.length === PART;
  };
  useEffect(() => {
    const go = (): void => {
      frame = paint() ? requestAnimationFrame(go) : 0;
    };
    let frame = requestAnimationFrame(go);
    return () => cancelAnimationFrame(frame);
  }, [painted, chosen]);

  const room = (width - EDGE.left - EDGE.right) / Math.max(1, axes.length - 1) - 12;
  // names and ticks stay while a brush moves: a canvas of their own, above the lines
  useEffect(() => {
    const ink = pen(words.current, width, height);
    if (!ink) return;
    const [dark, soft, paper] = [token("--ink"), token("--chart-axis"), token("--panel")];
    axes.forEach(({ id, scale }, at) => {
      const x = xOf(at);
      ink.lineWidth = 1;
      ink.strokeStyle = soft;
      ink.beginPath();
      ink.moveTo(x, EDGE.top);
      ink.lineTo(x, EDGE.top + high);
      ink.stroke();
      const [first, last] = [at === 0, at === axes.length - 1];
      ink.textAlign = first ? "left" : last ? "right" : "center";
      ink.fillStyle = dark;
      const shift = first ? -EDGE.left + 4 : last ? EDGE.right - 4 : 0;
      ink.fillText(cutText(ink, nameOf(id), Math.max(40, room)), x + shift, 14);
      ink.textAlign = first ? "right" : "left";
      ink.lineWidth = 3;
      ink.strokeStyle = paper;
      ink.fillStyle = soft;
      for (const tick of scale.ticks) {
        const [left, y] = [x + (first ? -7 : 7), yOf(tick.at) + 4];
        const text = cutText(ink, tick.text, first || last ? EDGE.left - 8 : Math.max(30, room / 2));
        ink.strokeText(text, left, y); // legible over the lines
        ink.fillText(text, left, y);
      }
    });
  }, [axes, width, height, theme]);

  const where = (event: PointerEvent): { axis: number; share: number; x: number; y: number } => {
    const box = front.current?.getBoundingClientRect();
    const [x, y] = [event.clientX - (box?.left ?? 0), event.clientY - (box?.top ?? 0)];
    const axis = axes.findIndex((_, at) => Math.abs(x - xOf(at)) <= HALF);
    return { axis, x, y, share: Math.min(1, Math.max(0, 1 - (y - EDGE.top) / high)) };
  };
  /** The run whose line passes nearest to a point between two axes. */
  const lineAt = (x: number, y: number): number => {
    let found = -1;
    let best = 6;
    for (let at = 0; at + 1 < axes.length; at++) {
      const [left, right] = [xOf(at), xOf(at + 1)];
      if (x < left || x > right) continue;
      const part = (x - left) / (right - left);
      const [a, b] = [axes[at]?.places, axes[at + 1]?.places];
      for (let row = 0; a && b && row < rows.length; row++) {
        if (!chosen[row]) continue;
        const share = (a[row] as number) * (1 - part) + (b[row] as number) * part;
        const distance = Math.abs(yOf(share) - y);
        if (distance < best) [best, found] = [distance, row];
      }
    }
    return found;
  };
  const settle = (): void => {
    if (!moving) return;
    const axis = axes.find(({ id }) => id === moving.id);
    const next = new Map<ColumnId, Brush>(brushes);
    const [low, high] = [Math.min(moving.from, moving.to), Math.max(moving.from, moving.to)];
    if (axis && high - low > 0.01) next.set(moving.id, [axis.scale.back(low), axis.scale.back(high)]);
    else next.delete(moving.id);
    setMoving(null);
    setBrushes(next);
  };
  const row = rows[over];
  return (
    <figure class="explore-chart">
      <p class="explore-count" role="status">
        <strong>{whole(number)}</strong> of {whole(rows.length)} runs
        {brushes.size > 0 && (
          <button type="button" class="button" onClick={() => setBrushes(new Map())}>
            Clear brushes
          </button>
        )}
        <span class="quiet">
          {" "}
          {row ? title(row) : "Drag along an axis to narrow the runs; a click on it clears its brush."}
        </span>
      </p>
      <div ref={host} class="explore-host" style={{ height: `${height}px` }}>
        <canvas ref={ground} class="layer" aria-hidden="true" />
        <canvas
          ref={front}
          class="layer"
          role="img"
          aria-label={`${ids.map(nameOf).join(", ")} of ${number} runs; the table below has the same data`}
          style={{ cursor: over >= 0 ? "pointer" : "crosshair", touchAction: "none" }}
          onPointerDown={(event) => {
            const { axis, share } = where(event);
            const id = axes[axis]?.id;
            if (id === undefined) return;
            event.currentTarget.setPointerCapture(event.pointerId);
            setOver(-1);
            setMoving({ id, from: share, to: share });
          }}
          onPointerMove={(event) => {
            const { axis, share, x, y } = where(event);
            if (moving) setMoving({ ...moving, to: share });
            else setOver(axis >= 0 ? -1 : lineAt(x, y));
          }}
          onPointerUp={settle}
          onPointerCancel={() => setMoving(null)}
          onPointerLeave={() => setOver(-1)}
          onClick={() => row && go(runPlace(row.key))}
        />
        <svg class="layer" width={width} height={height} aria-hidden="true">
          {row && <path class="explore-over" d={pathOf(over)} />}
          {bounds.map(
            (bound, at) =>
              bound && (
                <rect
                  key={axes[at]?.id}
                  class="explore-brush"
                  x={xOf(at) - 7}
                  y={yOf(bound[1])}
                  width="14"
                  height={Math.max(2, yOf(bound[0]) - yOf(bound[1]))}
                />
              ),
          )}
        </svg>
        <canvas ref={words} class="layer words" aria-hidden="true" />
      </div>
      <Ranges axes={axes} nameOf={nameOf} brushes={brushes} setBrushes={setBrushes} />
      <ul class="chart-legend">
        {inks.legend.length > 0 && colour && <li class="quiet">{nameOf(colour)}</li>}
        {inks.legend.map((entry) => (
          <li key={entry.text}>
            <i class="key" style={{ color: entry.colour }} /> {entry.text}
          </li>
        ))}
      </ul>
    </figure>
  );
}

/** The brushes as fields, for those who do not draw. */
function Ranges({
  axes,
  nameOf,
  brushes,
  setBrushes,
}: Pick<Props, "nameOf" | "brushes" | "setBrushes"> & { axes: { id: ColumnId; scale: ReturnType<typeof scaleOf> }[] }) {
  const set = (id: ColumnId, side: 0 | 1, text: string): void => {
    const axis = axes.find((one) => one.id === id);
    if (!axis) return;
    const value = axis.scale.kind === "words" ? text : Number(text);
    const before = brushes.get(id) ?? [axis.scale.back(0), axis.scale.back(1)];
    const next = new Map<ColumnId, Brush>(brushes);
    if (text === "" || (typeof value === "number" && Number.isNaN(value))) next.delete(id);
    else next.set(id, side === 0 ? [value, before[1]] : [before[0], value]);
    setBrushes(next);
  };
  return (
    <details class="explore-table">
      <summary>Ranges</summary>
      <ul class="explore-ranges">
        {axes.map(({ id }) => (
          <li key={id}>
            <span>{nameOf(id)}</span>
            {([0, 1] as const).map((side) => (
              <input
                key={side}
                class="field"
                aria-label={`${nameOf(id)}, ${side === 0 ? "from" : "to"}`}
                value={String(brushes.get(id)?.[side] ?? "")}
                onChange={(event) => set(id, side, event.currentTarget.value.trim())}
              />
            ))}
          </li>
        ))}
      </ul>
    </details>
  );
}
