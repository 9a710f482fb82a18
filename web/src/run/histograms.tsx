/** Distributions over time: as ridges, one behind the other, or as heat, with quantiles.
 *
 * In:   a run, the layer that is looked at, or a histogram by name.
 * Out:  a canvas; the steps and the widths in words.
 */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ColumnRef, HistogramsHeader } from "../api/types.ts";
import { ticks, tickText } from "../chart/ticks.ts";
import { setQuery } from "../shell/route.ts";
import { token, useTheme } from "../shell/theme.ts";
import { number, whole } from "../shell/text.ts";
import { useFrame } from "./data.ts";
import { Heat } from "./heat.tsx";
import { quantile, rebin } from "./heatmap.ts";
import { Choice } from "./layers.tsx";

interface Props {
  runKey: string;
  table: string;
  layer: string | null;
  name: string | null;
  beat: number;
}

const BINS = 96;
const MOST = 120;

export function Histograms({ runKey, table, layer, name, beat }: Props) {
  const first = useFrame<HistogramsHeader>(
    runKey,
    `/histograms?most=${MOST}${name ? `&name=${encodeURIComponent(name)}` : ""}`,
    beat,
  );
  const names = first.value?.header.names ?? [];
  // the layer that was clicked, in its own table first
  const wanted =
    !name && layer
      ? (names.find((one) => one === `${table}_hist/${layer}`) ??
        names.find((one) => one.endsWith(`/${layer}`)) ??
        null)
      : null;
  const second = useFrame<HistogramsHeader>(
    runKey,
    `/histograms?most=${MOST}&name=${encodeURIComponent(wanted ?? names[0] ?? "")}`,
    wanted ? beat : -1,
  );
  const answer = wanted ? second : first;
  const [kind, setKind] = useState<"ridge" | "heat">("ridge");
  if (!first.value && !first.error) return null;
  if (first.error) return <p class="bad">{first.error}</p>;
  if (!names.length) {
    return (
      <section class="panel block" aria-label="Distributions over time">
        <h2>Distribution over time</h2>
        <p class="quiet">
          None is recorded. <code>run.watch(model, optimizer, histograms=500)</code> keeps one of each layer every 500
          steps.
        </p>
      </section>
    );
  }
  const frame = answer.value;
  return (
    <section class="panel block" aria-label="Distributions over time">
      <div class="charts-bar">
        <h2>Distribution over time</h2>
        <Choice
          label="of"
          value={name ?? wanted ?? frame?.header.name ?? ""}
          all={names}
          set={(next) => setQuery({ histogram: next }, true)}
        />
        <span class="segmented" role="group" aria-label="Kind of drawing">
          {(["ridge", "heat"] as const).map((one) => (
            <button key={one} type="button" class="button" aria-pressed={kind === one} onClick={() => setKind(one)}>
              {one === "ridge" ? "ridges" : "heat"}
            </button>
          ))}
        </span>
      </div>
      {frame ? <Distribution key={frame.header.name} frame={frame} kind={kind} /> : <p class="quiet">Loading …</p>}
    </section>
  );
}

interface Rows {
  steps: number[];
  onto: Float64Array;
  /** A row of densities each step, each row's sum 1. */
  rows: Float64Array[];
  quantiles: { low: number; middle: number; high: number }[];
}

function useRows(frame: { header: HistogramsHeader; column(ref: ColumnRef): Float64Array }): Rows {
  return useMemo(() => {
    const { header } = frame;
    const edges = frame.column(header.columns.edges);
    const counts = frame.column(header.columns.counts);
    const offsets = frame.column(header.columns.offsets);
    let low = Infinity;
    let high = -Infinity;
    for (const edge of edges) {
      if (!Number.isFinite(edge)) continue;
      low = Math.min(low, edge);
      high = Math.max(high, edge);
    }
    const onto = Float64Array.from({ length: BINS + 1 }, (_, at) => low + ((high - low) * at) / BINS);
    const rows: Float64Array[] = [];
    const quantiles: Rows["quantiles"] = [];
    header.steps.forEach((_, at) => {
      const [from, to] = [offsets[at] ?? 0, offsets[at + 1] ?? 0];
      const own = edges.subarray(from, to);
      const mine = counts.subarray(from - at, to - at - 1);
      const row = rebin(own, mine, onto);
      const sum = row.reduce((total, one) => total + one, 0) || 1;
      rows.push(row.map((one) => one / sum));
      quantiles.push({
        low: quantile(own, mine, 0.05),
        middle: quantile(own, mine, 0.5),
        high: quantile(own, mine, 0.95),
      });
    });
    return { steps: header.steps, onto, rows, quantiles };
  }, [frame]);
}

function Distribution({
  frame,
  kind,
}: {
  frame: { header: HistogramsHeader; column(ref: ColumnRef): Float64Array };
  kind: "ridge" | "heat";
}) {
  const found = useRows(frame);
  const { steps, onto, rows, quantiles } = found;
  const last = quantiles[quantiles.length - 1];
  const said = `${whole(steps.length)} of ${whole(frame.header.total)} steps. At step ${whole(steps[steps.length - 1])} nine tenths lie between ${number(last?.low, 3)} and ${number(last?.high, 3)}, the middle at ${number(last?.middle, 3)}.`;
  const heat = useMemo(() => {
    // bins from high to low downwards, as on a y axis
    const values = new Float64Array(BINS * steps.length).fill(NaN);
    rows.forEach((row, column) => {
      row.forEach((one, bin) => {
        values[(BINS - 1 - bin) * steps.length + column] = one > 0 ? one : NaN;
      });
    });
    return {
      values,
      names: Array.from({ length: BINS }, (_, at) => number(onto[BINS - 1 - at], 3)),
      steps: Float64Array.from(steps),
    };
  }, [found]);
  return (
    <>
      {kind === "heat" ? (
        <Heat title={frame.header.name} rows={heat.names} steps={heat.steps} values={heat.values} log rowHeight={3} />
      ) : (
        <Ridges {...found} title={frame.header.name} />
      )}
      <p class="quiet small">{said}</p>
    </>
  );
}

const SHOWN = 40; // ridges that can be distinguished
const TALL = 340;

function Ridges({ steps, onto, rows, title }: Rows & { title: string }) {
  const theme = useTheme();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const node = canvas.current?.parentElement;
    if (!node) return;
    const watch = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(node);
    return () => watch.disconnect();
  }, []);

  useEffect(() => {
    const node = canvas.current;
    const context = node?.getContext("2d");
    if (!node || !context || !width || !rows.length) return;
    const ratio = devicePixelRatio || 1;
    node.width = width * ratio;
    node.height = TALL * ratio;
    node.style.height = `${TALL}px`;
    context.scale(ratio, ratio);
    const count = Math.min(SHOWN, rows.length);
    const chosen = Array.from({ length: count }, (_, at) =>
      Math.round((at * (rows.length - 1)) / Math.max(1, count - 1)),
    );
    const [left, right, bottom] = [12, 64, TALL - 24];
    const most = Math.max(...chosen.map((at) => Math.max(...(rows[at] ?? [0]))));
    const rise = Math.min(110, TALL / 3);
    const gap = (bottom - rise - 8) / Math.max(1, count - 1);
    const x = (bin: number): number => left + ((bin + 0.5) / BINS) * (width - left - right);
    const [panel, ink, line] = [token("--panel"), token("--ink-3"), token("--accent")];
    context.font = `11px ${token("--sans") || "sans-serif"}`;
    chosen.forEach((at, place) => {
      const row = rows[at];
      if (!row) return;
      const base = count === 1 ? bottom : rise + 8 + place * gap;
      context.beginPath();
      context.moveTo(x(0), base);
      row.forEach((one, bin) => {
        context.lineTo(x(bin), base - (one / most) * rise);
      });
      context.lineTo(x(BINS - 1), base);
      context.closePath();
      context.globalAlpha = 0.86;
      context.fillStyle = panel;
      context.fill();
      context.globalAlpha = 0.35 + (0.65 * (place + 1)) / count; // the newest the strongest, in front
      context.strokeStyle = line;
      context.lineWidth = 1.2;
      context.stroke();
      context.globalAlpha = 1;
      if (place % Math.ceil(14 / Math.max(gap, 1)) === 0 || place === count - 1) {
        context.fillStyle = ink;
        context.fillText(tickText(steps[at] ?? 0, 1), width - right + 8, base + 3);
      }
    });
    context.fillStyle = ink;
    context.textAlign = "center";
    const zero = onto.findIndex((edge) => edge >= 0);
    const [from, to] = [onto[0] ?? 0, onto[BINS] ?? 1];
    const values = ticks(from, to, (width - left - right) / 120);
    const [step, greatest] = [(values[1] ?? 1) - (values[0] ?? 0), Math.max(...values.map(Math.abs))];
    for (const value of values)
      context.fillText(
        tickText(value, step, greatest),
        Math.max(left + 16, x(((value - from) / (to - from)) * BINS - 0.5)),
        TALL - 6,
      );
    if (zero > 0 && (onto[0] ?? 0) < 0) {
      context.globalAlpha = 0.5;
      context.strokeStyle = ink;
      context.setLineDash([2, 3]);
      context.beginPath();
      context.moveTo(x(zero - 0.5), 6);
      context.lineTo(x(zero - 0.5), bottom);
      context.stroke();
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
  }, [rows, width, theme]);

  return (
    <div class="ridges">
      <canvas
        ref={canvas}
        role="img"
        aria-label={`${title} at ${steps.length} steps, as ridges from the first at the back to the last in front`}
      />
    </div>
  );
}
