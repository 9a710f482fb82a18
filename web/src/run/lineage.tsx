/** Where a run comes from and what became of it: starts, resumes, rewinds, forks.
 *
 * In:   segments, the parent, the children.
 * Out:  a drawing over steps, and links to the other runs; nothing for a run with one start and no relatives.
 */

import type { Detail } from "../api/types.ts";
import { runPlace } from "../shell/address.ts";
import { moment, whole } from "../shell/words.ts";

interface Segment {
  number: number;
  parent: number | null;
  start: number;
  end: number;
  kind: string;
  time: number | null;
}

interface Relatives {
  parent: { key: string; step: number | null } | null;
  source: string | null;
  children: { key: string; name: string; step: number | null }[];
}

const WIDTH = 640;
const ROW = 26;
const LEFT = 96;

/** What each segment covers: up to where the one that superseded it begins, if it is known. */
export function segmentsOf(raw: readonly Record<string, unknown>[], last: number): Segment[] {
  const number = (value: unknown): number | null => (typeof value === "number" ? value : null);
  const found = raw.map((one) => ({
    number: number(one["segment"]) ?? 0,
    parent: number(one["parent"]),
    start: number(one["start_step"]) ?? 0,
    end: number(one["last_step"]) ?? NaN,
    kind: typeof one["kind"] === "string" ? one["kind"] : "start",
    time: number(one["time"]),
  }));
  return found.map((one, at) => ({ ...one, end: Number.isFinite(one.end) ? one.end : at === found.length - 1 ? Math.max(last, one.start) : Math.max(one.start, found[at + 1]?.start ?? last) }));
}

export function Lineage({ detail }: { detail: Detail }) {
  const relatives = (detail.lineage ?? { parent: null, source: null, children: [] }) as Relatives;
  const last = detail.step ?? 0;
  const segments = segmentsOf(detail.segments ?? [], last);
  const children = relatives.children ?? [];
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
      <svg class="lineage" viewBox={`0 0 ${WIDTH} ${height}`} role="img" aria-label={segments.map((one) => `${one.kind} at step ${one.start}`).join(", ")}>
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
        {!relatives.parent && relatives.source && <li>Forked from a run that is not in this folder: {relatives.source}</li>}
        {children.map((one) => (
          <li key={one.key}>
            <a href={runPlace(one.key)}>{one.name}</a> was forked from it{one.step !== null ? ` at step ${whole(one.step)}` : ""}.
          </li>
        ))}
      </ul>
    </section>
  );
}
