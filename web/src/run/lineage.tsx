/** Where a run comes from and what became of it: starts, resumes, rewinds, forks.
 *
 * In:   segments, the parent, the children.
 * Out:  a drawing over steps, and links to the other runs; nothing for a run with one start and no relatives.
 */

import type { Relatives, Segment } from "../api/types.ts";
import { runPlace } from "../shell/address.ts";
import { moment, whole } from "../shell/text.ts";
import type { RunDetail } from "./data.ts";

interface Stretch {
  number: number;
  parent: number | null;
  start: number;
  end: number;
  kind: string;
  time: number | null;
}

const WIDTH = 640;
const ROW = 26;
const LEFT = 96;

/** What each segment covers: up to where the one that superseded it begins. */
export function segmentsOf(segments: readonly Segment[], last: number): Stretch[] {
  return segments.map((one, at) => {
    const start = one.start_step ?? 0;
    const next = segments[at + 1];
    return {
      number: one.segment,
      parent: one.parent ?? null,
      start,
      end: Math.max(start, next ? (next.start_step ?? 0) : last),
      kind: one.kind,
      time: one.time,
    };
  });
}

export function Lineage({ detail }: { detail: RunDetail }) {
  const relatives: Relatives = detail.lineage ?? { parent: null, source: null, children: [] };
  const last = detail.step ?? 0;
  const segments = segmentsOf(detail.segments ?? [], last);
  const { children } = relatives;
  if (segments.length < 2 && !relatives.parent && !relatives.source && !children.length) return null;
  const most = Math.max(1, last, ...segments.map((one) => one.end), ...children.map((one) => one.step ?? 0));
  const x = (step: number): number => LEFT + (step / most) * (WIDTH - LEFT - 20);
  const rows = (relatives.parent || relatives.source ? 1 : 0) + segments.length + children.length;
  let row = 0;
  const y = (): number => row++ * ROW + 16;
  const height = rows * ROW + 26;
  return (
    <section class="panel block" aria-label="Lineage">
      <h2>Lineage</h2>
      <svg
        class="lineage"
        viewBox={`0 0 ${WIDTH} ${height}`}
        role="img"
        aria-label={segments.map((one) => `${one.kind} at step ${one.start}`).join(", ")}
      >
        {(relatives.parent || relatives.source) && (
          <g transform={`translate(0 ${y()})`}>
            <text class="axis" x={LEFT - 10} y={4} text-anchor="end">
              parent
            </text>
            <line class="old" x1={x(0)} x2={x(relatives.parent?.step ?? segments[0]?.start ?? 0)} y1={0} y2={0} />
            <circle class="fork" cx={x(relatives.parent?.step ?? segments[0]?.start ?? 0)} cy={0} r={3.5} />
          </g>
        )}
        {segments.map((one) => (
          <g key={one.number} transform={`translate(0 ${y()})`}>
            <text class="axis" x={LEFT - 10} y={4} text-anchor="end">
              {one.kind}
            </text>
            <line class="live" x1={x(one.start)} x2={x(one.end)} y1={0} y2={0} />
            <circle class="begin" cx={x(one.start)} cy={0} r={3.5}>
              <title>{`${one.kind} at step ${whole(one.start)}${one.time ? `, ${moment(one.time)}` : ""}`}</title>
            </circle>
            <text class="axis" x={x(one.start) + 6} y={-5}>
              {one.start > 0 ? whole(one.start) : ""}
            </text>
          </g>
        ))}
        {children.map((one) => (
          <g key={one.key} transform={`translate(0 ${y()})`}>
            <text class="axis" x={LEFT - 10} y={4} text-anchor="end">
              fork
            </text>
            <line class="old" x1={x(one.step ?? 0)} x2={WIDTH - 20} y1={0} y2={0} />
            <circle class="fork" cx={x(one.step ?? 0)} cy={0} r={3.5} />
          </g>
        ))}
        <text class="axis" x={LEFT} y={height - 4}>
          0
        </text>
        <text class="axis" x={WIDTH - 20} y={height - 4} text-anchor="end">
          step {whole(most)}
        </text>
      </svg>
      <ul class="plain-list small">
        {relatives.parent && (
          <li>
            Forked from <a href={runPlace(relatives.parent.key)}>{relatives.parent.key}</a>
            {relatives.parent.step !== null ? ` at step ${whole(relatives.parent.step)}` : ""}.
          </li>
        )}
        {!relatives.parent && relatives.source && (
          <li>Forked from a run that is not in this folder: {relatives.source}</li>
        )}
        {children.map((one) => (
          <li key={one.key}>
            <a href={runPlace(one.key)}>{one.name}</a> was forked from it
            {one.step !== null ? ` at step ${whole(one.step)}` : ""}.
          </li>
        ))}
      </ul>
    </section>
  );
}
