/** Any column against any other: a mark a run, or a mark a group of repeats with its deviations.
 *
 * In:   marks, scales, colours.
 * Out:  a canvas; the mark under the pointer; the run that a click leads to.
 */

import { useMemo, useRef, useState } from "preact/hooks";
import { num } from "../api/values.ts";
import type { ColumnId } from "../runs/columns.ts";
import { formatQuery, runPlace, withQuery } from "../shell/address.ts";
import { go } from "../shell/route.ts";
import { count } from "../shell/text.ts";
import { useTheme } from "../shell/theme.ts";
import { cutText, pen, token, useFrame, useWidth, plotHeight } from "./canvas.ts";
import { inksOf } from "./colours.ts";
import { cellText, type Mark, type Scale } from "./data.ts";

interface Props {
  marks: readonly Mark[];
  scales: { x: Scale; y: Scale; colour: Scale | null; size: Scale | null };
  ids: { x: ColumnId; y: ColumnId; colour: ColumnId | null; size: ColumnId | null };
  names: { x: string; y: string; colour: string; size: string };
}

const EDGE = { left: 64, right: 16, top: 12, bottom: 44 };
const NEAR = 14;

/** Where a mark leads: its run, or its runs beside each other. */
export const placeOfMark = (mark: Pick<Mark, "keys">): string =>
  mark.keys.length === 1
    ? runPlace(mark.keys[0] ?? "")
    : `/compare${formatQuery(withQuery(new URLSearchParams(), { run: mark.keys }))}`;

export function Scatter({ marks, scales, ids, names }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(host);
  const height = plotHeight();
  const theme = useTheme();
  const [over, setOver] = useState(-1);
  const inks = useMemo(() => inksOf(scales.colour, theme, token("--accent")), [scales.colour, theme]);
  const [wide, high] = [Math.max(1, width - EDGE.left - EDGE.right), height - EDGE.top - EDGE.bottom];
  const placed = useMemo(() => {
    const x = Float64Array.from(marks, (mark) => EDGE.left + scales.x.at(mark.x) * wide);
    const y = Float64Array.from(marks, (mark) => EDGE.top + (1 - scales.y.at(mark.y)) * high);
    const size = Float64Array.from(marks, (mark) => {
      const share = scales.size ? scales.size.at(mark.size) : 0.25;
      return 3 + 6 * (Number.isNaN(share) ? 0 : share);
    });
    return { x, y, size };
  }, [marks, scales, wide, high]);
  const shown = useMemo(
    () => marks.filter((_, at) => Number.isFinite(placed.x[at]) && Number.isFinite(placed.y[at])).length,
    [placed],
  );

  const draw = (): void => {
    const ink = pen(canvas.current, width, height);
    if (!ink) return;
    const [axis, grid] = [token("--chart-axis"), token("--chart-grid")];
    ink.lineWidth = 1;
    for (const tick of scales.x.ticks) {
      const x = Math.round(EDGE.left + tick.at * wide) + 0.5;
      line(ink, grid, x, EDGE.top, x, EDGE.top + high);
      ink.fillStyle = axis;
      ink.textAlign = "center";
      ink.fillText(cutText(ink, tick.text, wide / Math.max(1, scales.x.ticks.length) + 12), x, height - 28);
    }
    for (const tick of scales.y.ticks) {
      const y = Math.round(EDGE.top + (1 - tick.at) * high) + 0.5;
      line(ink, grid, EDGE.left, y, EDGE.left + wide, y);
      ink.fillStyle = axis;
      ink.textAlign = "right";
      ink.fillText(cutText(ink, tick.text, EDGE.left - 20), EDGE.left - 6, y + 4);
    }
    ink.fillStyle = token("--ink-2");
    ink.textAlign = "center";
    ink.fillText(cutText(ink, names.x, wide), EDGE.left + wide / 2, height - 8);
    ink.save();
    ink.translate(11, EDGE.top + high / 2);
    ink.rotate(-Math.PI / 2);
    ink.fillText(cutText(ink, names.y, high), 0, 0);
    ink.restore();
    ink.globalAlpha = marks.length > 1000 ? 0.45 : marks.length > 200 ? 0.65 : 0.85;
    marks.forEach((mark, at) => dot(ink, mark, at));
    ink.globalAlpha = 1;
    const chosen = marks[over];
    if (chosen) {
      dot(ink, chosen, over);
      ink.strokeStyle = token("--ink");
      ink.lineWidth = 2;
      ink.stroke();
    }
  };
  const dot = (ink: CanvasRenderingContext2D, mark: Mark, at: number): void => {
    const [x, y, size] = [placed.x[at] as number, placed.y[at] as number, placed.size[at] as number];
    if (!Number.isFinite(x) || !Number.isFinite(y)) return;
    const colour = inks.of(mark.colour);
    if (mark.dy > 0) bar(ink, colour, x, y, scales.y, num(mark.y) ?? NaN, mark.dy, false);
    if (mark.dx > 0) bar(ink, colour, x, y, scales.x, num(mark.x) ?? NaN, mark.dx, true);
    ink.beginPath();
    ink.arc(x, y, size, 0, 2 * Math.PI);
    ink.fillStyle = colour;
    ink.fill();
  };
  /** A deviation to both sides; on a logarithmic axis not below its end. */
  const bar = (
    ink: CanvasRenderingContext2D,
    colour: string,
    x: number,
    y: number,
    scale: Scale,
    value: number,
    deviation: number,
    across: boolean,
  ): void => {
    // prettier-ignore
    const share = (one: number): number => {
      const place = scale.at(one);
      return Number.isNaN(place) ? 0 : Math.min(1.05, Math.max(-0.05, place));
    };
    const [a, b] = [share(value - deviation), share(value + deviation)];
    if (across) line(ink, colour, EDGE.left + a * wide, y, EDGE.left + b * wide, y);
    else line(ink, colour, x, EDGE.top + (1 - a) * high, x, EDGE.top + (1 - b) * high);
  };
  useFrame(draw, [marks, placed, over, theme, width, inks]);

  const find = (event: PointerEvent): number => {
    const box = canvas.current?.getBoundingClientRect();
    if (!box) return -1;
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    let best = NEAR * NEAR;
    let found = -1;
    for (let at = 0; at < marks.length; at++) {
      const distance = ((placed.x[at] as number) - px) ** 2 + ((placed.y[at] as number) - py) ** 2;
      if (distance < best) [best, found] = [distance, at];
    }
    return found;
  };
  const mark = marks[over];
  return (
    <figure class="explore-chart">
      <div ref={host} class="explore-host">
        <canvas
          ref={canvas}
          role="img"
          aria-label={`${names.y} against ${names.x}, ${count(shown, "mark")}; the table below has the same data`}
          style={{ height: `${height}px`, cursor: over >= 0 ? "pointer" : "default" }}
          onPointerMove={(event) => setOver(find(event))}
          onPointerLeave={() => setOver(-1)}
          onClick={(event) => {
            const chosen = marks[find(event as unknown as PointerEvent)];
            if (chosen) go(placeOfMark(chosen));
          }}
        />
        {mark && (
          <div
            class="explore-tip"
            style={{ left: `${Math.min(placed.x[over] ?? 0, width - 240)}px`, top: `${(placed.y[over] ?? 0) + 14}px` }}
          >
            <strong>{mark.label}</strong>
            {mark.keys.length > 1 && <span class="quiet"> and {count(mark.keys.length - 1, "repeat")}</span>}
            <Value id={ids.x} name={names.x} value={mark.x} deviation={mark.dx} />
            <Value id={ids.y} name={names.y} value={mark.y} deviation={mark.dy} />
            {scales.colour && <Value id={ids.colour} name={names.colour} value={mark.colour} deviation={0} />}
            {scales.size && <Value id={ids.size} name={names.size} value={mark.size} deviation={0} />}
          </div>
        )}
      </div>
      <ul class="chart-legend">
        {inks.legend.length > 0 && <li class="quiet">{names.colour}</li>}
        {inks.legend.map((entry) => (
          <li key={entry.text}>
            <i class="key" style={{ color: entry.colour }} /> {entry.text}
          </li>
        ))}
        {shown < marks.length && (
          <li class="quiet">{count(marks.length - shown, "run")} without a finite value of both</li>
        )}
      </ul>
    </figure>
  );
}

interface ValueProps {
  id: ColumnId | null;
  name: string;
  value: Mark["x"];
  deviation: number;
}

function Value({ id, name, value, deviation }: ValueProps) {
  return (
    <div>
      <span class="quiet">{name}</span> {cellText(id, value)}
      {deviation > 0 && ` ± ${cellText(id, Number(deviation.toPrecision(2)))}`}
    </div>
  );
}

function line(ink: CanvasRenderingContext2D, colour: string, x: number, y: number, x2: number, y2: number): void {
  ink.strokeStyle = colour;
  ink.beginPath();
  ink.moveTo(x, y);
  ink.lineTo(x2, y2);
  ink.stroke();
}
