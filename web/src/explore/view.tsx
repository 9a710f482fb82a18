/** Explore: what the filtered runs show together. Scatter, parallel coordinates, importance, box and bar.
 *
 * In:   the filtered rows, the query of the address.
 * Out:  the view; every choice is in the address.
 */

import { useMemo } from "preact/hooks";
import type { Row } from "../api/types.ts";
import { ALL_BUT_SEED, available, cell, column, defaultColumns, varying, type ColumnId } from "../runs/columns.ts";
import { useGroups } from "../runs/store.ts";
import { unitOfColumn } from "../chart/units.ts";
import { runPlace } from "../shell/address.ts";
import { setQuery } from "../shell/route.ts";
import { count, whole } from "../shell/text.ts";
import { Boxes } from "./box.tsx";
import { boxesOf, cellText, formatBrushes, marksOf, parseBrushes, scaleOf, suitsLog, within } from "./data.ts";
import { ImportanceView } from "./importance.tsx";
import { Parallel } from "./parallel.tsx";
import { placeOfMark, Scatter } from "./scatter.tsx";
import { DataTable } from "./table.tsx";
import "../style/explore.css";

interface Props {
  rows: readonly Row[];
  /** Which runs these are. */
  state: { filter: string; project: string; archived: boolean };
  query: URLSearchParams;
  /** Grows when runs change. */
  version: number;
}

const PLOTS = [
  ["scatter", "Scatter"],
  ["parallel", "Parallel coordinates"],
  ["importance", "Importance"],
  ["box", "Box"],
  ["bar", "Bar"],
] as const;

const SHORT: Record<string, string> = { last: "", best: "best ", config: "" };

/** A column as a person reads it: `train/loss`, `best eval/loss`, `optimizer.lr`. */
export function nameOf(id: ColumnId): string {
  const cut = id.indexOf(":");
  return cut < 0 ? (column(id)?.title ?? id) : `${SHORT[id.slice(0, cut)] ?? ""}${id.slice(cut + 1)}`;
}

export function Explore({ rows, state, query, version }: Props) {
  const offered = useMemo(() => available(rows), [rows]);
  const metrics = useMemo(() => offered.flatMap(({ ids }) => ids.filter((id) => /^(last|best):/.test(id))), [offered]);
  const configs = useMemo(() => varying(rows, 40).map((name) => `config:${name}`), [rows]);
  const usual = useMemo(
    () => defaultColumns(rows).find((id) => /^(last|best):/.test(id)) ?? metrics[0] ?? "step",
    [rows, metrics],
  );
  const plot = PLOTS.find(([name]) => name === query.get("plot"))?.[0] ?? "scatter";
  const y = chosen(query.get("py")) ?? usual;
  const x = chosen(query.get("px")) ?? configs[0] ?? "step";
  const colour =
    query.get("pc") === "none" ? null : (chosen(query.get("pc")) ?? (plot === "parallel" ? y : (configs[1] ?? null)));
  const size = chosen(query.get("ps"));
  const values = useMemo(
    () => ({ x: rows.map((row) => cell(row, x)), y: rows.map((row) => cell(row, y)) }),
    [rows, x, y],
  );
  const said = query.get("plog");
  const log =
    said === null ? { x: suitsLog(values.x), y: suitsLog(values.y) } : { x: said.includes("x"), y: said.includes("y") };
  const setLog = (changes: Partial<typeof log>): void => {
    const next = { ...log, ...changes };
    setQuery({ plog: `${next.x ? "x" : ""}${next.y ? "y" : ""}` || "none" }, true);
  };
  const repeats = query.get("seeds") === "mean";
  const groups = useRepeats({ rows, state, version }, repeats && plot === "scatter");
  const axes = useMemo(() => {
    const asked = (query.get("pk") ?? "")
      .split(",")
      .map((id) => id.replace(/%2C/g, ","))
      .filter((id) => column(id) !== null);
    return asked.length > 1 ? asked : [...configs.filter((id) => !/seed$/.test(id)).slice(0, 5), y];
  }, [query.get("pk"), configs, y]);
  const brushes = useMemo(() => parseBrushes(query.get("pb")), [query.get("pb")]);
  const [drawn, scales] = useMemo(() => {
    const marks = marksOf(rows, { x, y, colour, size }, groups);
    const of = (name: "colour" | "size", id: ColumnId | null) => {
      const all = marks.map((mark) => mark[name]);
      return id === null ? null : scaleOf(all, suitsLog(all), 6, unitOfColumn(id));
    };
    return [
      marks,
      {
        x: scaleOf(values.x, log.x, 6, unitOfColumn(x)),
        y: scaleOf(values.y, log.y, 6, unitOfColumn(y)),
        colour: of("colour", colour),
        size: of("size", size),
      },
    ] as const;
  }, [rows, groups, x, y, colour, size, log.x, log.y]);
  const boxes = useMemo(() => (plot === "box" || plot === "bar" ? boxesOf(rows, x, y) : []), [rows, x, y, plot]);
  if (rows.length === 0) return <p class="message quiet">No runs to explore.</p>;
  const isMetric = /^(last|best):/.test(y);
  return (
    <section class="explore" aria-label="Explore">
      <h2 class="unseen">Explore {count(rows.length, "run")}</h2>
      <div class="toolbar" role="toolbar" aria-label="Explore">
        <div class="segmented" role="group" aria-label="Plot">
          {PLOTS.map(([name, title]) => (
            <button
              key={name}
              type="button"
              class="button"
              aria-pressed={plot === name}
              onClick={() => setQuery({ plot: name === "scatter" ? null : name })}
            >
              {title}
            </button>
          ))}
        </div>
        <Choice
          label={plot === "scatter" ? "y" : "metric"}
          value={y}
          offered={
            plot === "importance" ? offered.filter(({ ids }) => ids.some((id) => /^(last|best):/.test(id))) : offered
          }
          set={(id) => setQuery({ py: id === usual ? null : id })}
        />
        {plot !== "parallel" && plot !== "importance" && (
          <Choice
            label={plot === "scatter" ? "x" : "by"}
            value={x}
            offered={offered}
            set={(id) => setQuery({ px: id })}
          />
        )}
        {(plot === "scatter" || plot === "parallel") && (
          <Choice label="colour" value={colour} offered={offered} none set={(id) => setQuery({ pc: id ?? "none" })} />
        )}
        {plot === "scatter" && (
          <Choice label="size" value={size} offered={offered} none set={(id) => setQuery({ ps: id })} />
        )}
        {plot === "scatter" && <Toggle label="log x" on={log.x} set={(on) => setLog({ x: on })} />}
        {plot !== "parallel" && plot !== "importance" && (
          <Toggle label="log y" on={log.y} set={(on) => setLog({ y: on })} />
        )}
        {plot === "scatter" && (
          <Toggle label="mean of seeds" on={repeats} set={(on) => setQuery({ seeds: on ? "mean" : null })} />
        )}
        {plot === "parallel" && <AxisPicker axes={axes} offered={offered} />}
      </div>
      {plot === "scatter" && (
        <>
          <Scatter
            marks={drawn}
            scales={scales}
            ids={{ x, y, colour, size }}
            names={{ x: nameOf(x), y: nameOf(y), colour: colour ? nameOf(colour) : "", size: size ? nameOf(size) : "" }}
          />
          <DataTable
            label={`${nameOf(y)} against ${nameOf(x)}`}
            heads={[
              "Run",
              nameOf(x),
              nameOf(y),
              ...(repeats ? ["deviation", "runs"] : []),
              ...(colour ? [nameOf(colour)] : []),
              ...(size ? [nameOf(size)] : []),
            ]}
            lines={drawn.map((mark) => ({
              label: mark.label,
              href: placeOfMark(mark),
              cells: [
                cellText(x, mark.x),
                cellText(y, mark.y),
                ...(repeats ? [cellText(y, mark.dy), whole(mark.keys.length)] : []),
                ...(colour ? [cellText(colour, mark.colour)] : []),
                ...(size ? [cellText(size, mark.size)] : []),
              ],
            }))}
          />
        </>
      )}
      {plot === "parallel" && (
        <>
          <Parallel
            rows={rows}
            ids={axes}
            nameOf={nameOf}
            colour={colour}
            brushes={brushes}
            setBrushes={(next) => setQuery({ pb: formatBrushes(next) || null }, true)}
          />
          <Within rows={rows} ids={axes} brushes={brushes} />
        </>
      )}
      {plot === "importance" &&
        (isMetric ? (
          <ImportanceView metric={y} within={state} version={version} show={(id) => setQuery({ plot: null, px: id })} />
        ) : (
          <p class="quiet">Choose a metric that keys may explain.</p>
        ))}
      {(plot === "box" || plot === "bar") && (
        <>
          <Boxes
            boxes={boxes}
            metric={y}
            names={{ by: nameOf(x), metric: nameOf(y) }}
            bars={plot === "bar"}
            log={log.y}
          />
          <DataTable
            label={`${nameOf(y)} by ${nameOf(x)}`}
            heads={[nameOf(x), "runs", "mean", "deviation", "median", "first quartile", "third quartile", "not finite"]}
            lines={boxes.map((box) => ({
              label: box.label,
              href: placeOfMark({ keys: box.rows.slice(0, 100).map((row) => row.key) }),
              cells: [
                whole(box.values.length),
                ...[box.mean, box.deviation, box.median, box.first, box.third].map((value) => cellText(y, value)),
                whole(box.lost),
              ],
            }))}
          />
        </>
      )}
    </section>
  );
}

const chosen = (id: string | null): ColumnId | null => (id !== null && column(id) !== null ? id : null);

/** The runs within the brushes. */
function Within({
  rows,
  ids,
  brushes,
}: {
  rows: readonly Row[];
  ids: readonly ColumnId[];
  brushes: ReturnType<typeof parseBrushes>;
}) {
  const kept = useMemo(() => {
    const axes = ids.map((id) => {
      const values = rows.map((row) => cell(row, id));
      const scale = scaleOf(values, suitsLog(values));
      const brush = brushes.get(id);
      const [a, b] = brush ? [scale.at(brush[0]), scale.at(brush[1])] : [NaN, NaN];
      const bound = Number.isNaN(a) || Number.isNaN(b) ? null : ([Math.min(a, b), Math.max(a, b)] as const);
      return { places: Float64Array.from(values, (value) => scale.at(value)), bound };
    });
    const flags = within(
      axes.map((axis) => axis.places),
      axes.map((axis) => axis.bound),
    );
    return rows.filter((_, at) => flags[at]);
  }, [rows, ids.join("\n"), brushes]);
  return (
    <DataTable
      label="Runs within the brushes"
      heads={["Run", ...ids.map(nameOf)]}
      lines={kept.map((row) => ({
        label: row.name || row.id,
        href: runPlace(row.key),
        cells: ids.map((id) => cellText(id, cell(row, id))),
      }))}
    />
  );
}

interface ChoiceProps {
  label: string;
  value: ColumnId | null;
  offered: { title: string; ids: ColumnId[] }[];
  none?: boolean;
  set: (id: ColumnId | null) => void;
}

function Choice({ label, value, offered, none = false, set }: ChoiceProps) {
  return (
    <label class="labelled">
      <span class="quiet">{label}</span>
      <select class="field" value={value ?? ""} onChange={(event) => set(event.currentTarget.value || null)}>
        {none && <option value="">none</option>}
        {value !== null && !offered.some(({ ids }) => ids.includes(value)) && (
          <option value={value}>{nameOf(value)}</option>
        )}
        {offered.map((group) => (
          <optgroup key={group.title} label={group.title}>
            {group.ids.map((id) => (
              <option key={id} value={id}>
                {nameOf(id)}
              </option>
            ))}
          </optgroup>
        ))}
      </select>
    </label>
  );
}

function Toggle({ label, on, set }: { label: string; on: boolean; set: (on: boolean) => void }) {
  return (
    <button type="button" class="button" aria-pressed={on} onClick={() => set(!on)}>
      {label}
    </button>
  );
}

/** Which columns are axes: a list to take from, and one to add. */
function AxisPicker({ axes, offered }: { axes: readonly ColumnId[]; offered: ChoiceProps["offered"] }) {
  const write = (ids: readonly ColumnId[]): void =>
    setQuery({ pk: ids.map((id) => id.replace(/,/g, "%2C")).join(",") || null });
  return (
    <>
      <Choice
        label="add axis"
        value={null}
        none
        offered={offered.map((group) => ({ ...group, ids: group.ids.filter((id) => !axes.includes(id)) }))}
        set={(id) => id !== null && write([...axes, id])}
      />
      {axes.length > 2 && (
        <Choice
          label="take out"
          value={null}
          none
          offered={[{ title: "Axes", ids: [...axes] }]}
          set={(id) => id !== null && write(axes.filter((one) => one !== id))}
        />
      )}
    </>
  );
}

/** Runs that differ in the seed alone, as the server's groups have them; null while they are not asked for or known. */
function useRepeats({ rows, state, version }: Omit<Props, "query">, wanted: boolean): Row[][] | null {
  const { groups } = useGroups(wanted ? [ALL_BUT_SEED] : [], state, [], version);
  return useMemo(() => {
    if (!wanted || !groups) return null;
    const own = new Map(rows.map((row) => [row.key, row]));
    return groups.map(({ runs }) => runs.flatMap((key) => own.get(key) ?? [])).filter((lot) => lot.length > 0);
  }, [wanted, groups, rows]);
}
