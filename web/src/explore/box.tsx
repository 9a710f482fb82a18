/** A metric by the values of a key: boxes with quartiles, or bars with the mean and its deviation.
 *
 * In:   boxes.
 * Out:  a drawing in which every mark is a link to its run, every box one to its runs.
 */

import { useMemo, useRef } from "preact/hooks";
import { unitOfColumn } from "../chart/units.ts";
import { cell, type ColumnId } from "../runs/columns.ts";
import { runPlace } from "../shell/address.ts";
import { count, title } from "../shell/text.ts";
import { useWidth, plotHeight } from "./canvas.ts";
import { cellText, scaleOf, type Box } from "./data.ts";
import { placeOfMark } from "./scatter.tsx";

interface Props {
  boxes: readonly Box[];
  metric: ColumnId;
  names: { by: string; metric: string };
  bars: boolean;
  log: boolean;
}

const EDGE = { left: 64, right: 16, top: 12, bottom: 44 };
const MOST_POINTS = 400; // links: of more, those outside the whiskers alone

export function Boxes({ boxes, metric, names, bars, log }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  const height = plotHeight();
  const scale = useMemo(() => {
    const values = boxes.flatMap((box) => box.values);
    return scaleOf(bars && !log ? [...values, 0] : values, log, 6, unitOfColumn(metric));
  }, [boxes, bars, log, metric]);
  const [wide, high] = [Math.max(1, width - EDGE.left - EDGE.right), height - EDGE.top - EDGE.bottom];
  const y = (value: number): number => {
    const place = scale.at(value);
    return EDGE.top + (1 - (Number.isNaN(place) ? 0 : Math.min(1, Math.max(0, place)))) * high;
  };
  const each = wide / Math.max(1, boxes.length);
  const half = Math.min(34, each * 0.36);
  const points = boxes.reduce((sum, box) => sum + box.values.length, 0);
  return (
    <figure class="explore-chart">
      <div ref={host} class="explore-host">
        <svg width={width} height={height} role="group" aria-label={`${names.metric} by ${names.by}`}>
          {scale.ticks.map((tick) => (
            <g key={tick.text}>
              <line
                class="grid"
                x1={EDGE.left}
                x2={EDGE.left + wide}
                y1={y(Number(scale.back(tick.at)))}
                y2={y(Number(scale.back(tick.at)))}
              />
              <text class="tick" x={EDGE.left - 6} y={y(Number(scale.back(tick.at))) + 4} text-anchor="end">
                {tick.text}
              </text>
            </g>
          ))}
          {boxes.map((box, at) => {
            const x = EDGE.left + (at + 0.5) * each;
            const says = `${names.by} ${box.label}: ${count(box.values.length, "run")}, median ${cellText(metric, box.median)}, mean ${cellText(metric, box.mean)} ± ${cellText(metric, Number(box.deviation.toPrecision(2)))}${box.lost ? `, ${box.lost} not finite` : ""}`;
            return (
              <g key={box.label}>
                <a href={placeOfMark({ keys: box.rows.slice(0, 100).map((row) => row.key) })} aria-label={says}>
                  <title>{says}</title>
                  {box.values.length === 0 ? null : bars ? (
                    <>
                      <rect
                        class="box"
                        x={x - half}
                        width={2 * half}
                        y={y(box.mean)}
                        height={Math.max(1, EDGE.top + high - y(box.mean))}
                      />
                      <line
                        class="whisker"
                        x1={x}
                        x2={x}
                        y1={y(box.mean - box.deviation)}
                        y2={y(box.mean + box.deviation)}
                      />
                    </>
                  ) : (
                    <>
                      <line class="whisker" x1={x} x2={x} y1={y(box.low)} y2={y(box.high)} />
                      <rect
                        class="box"
                        x={x - half}
                        width={2 * half}
                        y={y(box.third)}
                        height={Math.max(2, y(box.first) - y(box.third))}
                      />
                      <line class="median" x1={x - half} x2={x + half} y1={y(box.median)} y2={y(box.median)} />
                    </>
                  )}
                </a>
                {box.rows.map((row, place) => {
                  const value = cell(row, metric);
                  if (typeof value !== "number" || !Number.isFinite(value)) return null;
                  if (points > MOST_POINTS && value >= box.low && value <= box.high) return null;
                  const aside = box.rows.length > 1 ? ((place % 7) - 3) * Math.min(5, half / 4) : 0;
                  return (
                    <a key={row.key} href={runPlace(row.key)} aria-label={`${title(row)}: ${cellText(metric, value)}`}>
                      <title>
                        {title(row)}: {cellText(metric, value)}
                      </title>
                      <circle class="point" cx={x + aside} cy={y(value)} r={3.5} />
                    </a>
                  );
                })}
                <text class="tick" x={x} y={height - 28} text-anchor="middle">
                  {box.label.length * 6.5 > each
                    ? `${box.label.slice(0, Math.max(1, Math.floor(each / 7)))}…`
                    : box.label}
                </text>
                {box.lost > 0 && (
                  <text class="tick lost" x={x} y={EDGE.top + 10} text-anchor="middle">
                    {box.lost} ×<title>{count(box.lost, "run")} ended with NaN or infinity</title>
                  </text>
                )}
              </g>
            );
          })}
          <text class="axis" x={EDGE.left + wide / 2} y={height - 8} text-anchor="middle">
            {names.by}
          </text>
          <text class="axis" transform={`translate(12 ${EDGE.top + high / 2}) rotate(-90)`} text-anchor="middle">
            {names.metric}
          </text>
        </svg>
      </div>
      {boxes.some((box) => box.lost > 0) && (
        <p class="quiet small">“×” above a value: runs that ended with NaN or infinity, which no box contains.</p>
      )}
    </figure>
  );
}
