/** The runs table: thousands of rows, of which those in sight are in the page.
 *
 * In:   lines in order, columns, what is chosen.
 * Out:  a table whose head and first column stay where they are.
 */

import { options } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Key } from "../api/types.ts";
import { colourOf } from "../shell/runcolours.ts";
import { Icon } from "../shell/icon.tsx";
import type { Column } from "./columns.ts";
import { Failed, GroupButton, GroupSwatch, GroupValue } from "./group.tsx";
import { highlight } from "./highlight.ts";
import { inSight, type GroupLine, type Sort } from "./order.ts";
import { RunRow, type LinesProps } from "./row.tsx";

export const ROW_PIXELS = 34; // --row of .table-box in style/runs.css

interface Props extends LinesProps {
  sort: Sort;
  setSort: (id: string) => void;
  selectAll: (on: boolean) => void;
  /** How many of the runs in the table are chosen, of how many. */
  chosen: [some: number, all: number];
  selectGroup: (keys: readonly Key[]) => void;
  nameWidth: number;
}

const HEAD_PIXELS = 34;

const PRINTED_MOST = 3000; // rows on paper: sixty pages

export function RunsTable(props: Props) {
  const { lines, columns, sort, setSort, cursor, chosen } = props;
  const box = useRef<HTMLDivElement>(null);
  const [sight, setSight] = useState<[number, number]>([0, 60]);
  const [now, setNow] = useState(() => Date.now() / 1000);

  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), 30_000);
    return () => clearInterval(timer);
  }, []);

  const look = (): void => {
    const own = box.current;
    if (!own) return;
    const next = inSight(own.scrollTop, own.clientHeight, ROW_PIXELS, lines.length);
    setSight((before) => (before[0] === next[0] && before[1] === next[1] ? before : next));
  };

  useLayoutEffect(() => {
    look();
    const own = box.current;
    if (!own) return;
    const watch = new ResizeObserver(look);
    watch.observe(own);
    return () => watch.disconnect();
  }, [lines.length]);

  // paper does not scroll: all rows are there before it is laid out, which waits for no later drawing
  useEffect(() => {
    const all = (): void => {
      const later = options.debounceRendering; // eslint-disable-line @typescript-eslint/unbound-method -- a plain function
      options.debounceRendering = (draw) => draw();
      setSight([0, Math.min(lines.length, PRINTED_MOST)]);
      options.debounceRendering = later;
    };
    addEventListener("beforeprint", all);
    addEventListener("afterprint", look);
    return () => {
      removeEventListener("beforeprint", all);
      removeEventListener("afterprint", look);
    };
  }, [lines.length]);

  // the cursor stays in sight, and takes the focus along if the table has it
  useLayoutEffect(() => {
    const own = box.current;
    if (!own || cursor < 0) return;
    const top = cursor * ROW_PIXELS;
    if (top < own.scrollTop) own.scrollTop = top;
    else if (top + ROW_PIXELS * 2 > own.scrollTop + own.clientHeight - HEAD_PIXELS) {
      own.scrollTop = top + ROW_PIXELS * 2 - own.clientHeight + HEAD_PIXELS;
    }
    look();
  }, [cursor]);
  useEffect(() => {
    const own = box.current;
    const active = document.activeElement;
    if (own && active?.tagName === "TR" && own.contains(active)) {
      own.querySelector<HTMLElement>("tr.current")?.focus({ preventScroll: true });
    }
  }, [cursor, sight]);

  // what is under the pointer in a chart is lit here, without drawing the table again
  useEffect(() => {
    const light = (key: Key | null): void => {
      for (const lit of box.current?.querySelectorAll("tr.lit") ?? []) lit.classList.remove("lit");
      if (key === null) return;
      for (const line of box.current?.querySelectorAll(`tr[data-key="${CSS.escape(key)}"]`) ?? [])
        line.classList.add("lit");
    };
    return highlight.subscribe(light);
  }, []);

  const [from, to] = [Math.min(sight[0], lines.length), Math.min(sight[1], lines.length)];
  const stateInName = !columns.some((one) => one.id === "status");
  const width = props.nameWidth + columns.reduce((sum, one) => sum + one.width, 0);
  return (
    <div class="table-box" ref={box} onScroll={look} role="region" aria-label="Runs" tabIndex={-1}>
      <table
        class="runs-table"
        style={{ width: `max(100%, ${width}px)` }}
        aria-rowcount={lines.length + 1}
        aria-colcount={columns.length + 1}
      >
        <colgroup>
          <col style={{ width: `${props.nameWidth}px` }} />
          {columns.map((one) => (
            <col key={one.id} style={{ width: `${one.width}px` }} />
          ))}
          <col />
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            <th scope="col" class="name" aria-sort={ariaSort(sort, "name")}>
              <span class="name-inside">
                <AllBox chosen={chosen} set={props.selectAll} label="Select all runs of the table" />
                <Head id="name" title="Name" sort={sort} setSort={setSort} />
              </span>
            </th>
            {columns.map((one) => (
              <th key={one.id} scope="col" class={one.numeric ? "number" : ""} aria-sort={ariaSort(sort, one.id)}>
                <Head id={one.id} title={one.title} full={one.full} kind={one.kind} sort={sort} setSort={setSort} />
              </th>
            ))}
            <td aria-hidden="true" />
          </tr>
        </thead>
        <tbody>
          {from > 0 && <Gap lines={from} />}
          {lines
            .slice(from, to)
            .map((line, at) =>
              line.kind === "group" ? (
                <GroupRow
                  key={`group ${line.name}`}
                  line={line}
                  index={from + at}
                  current={from + at === cursor}
                  {...props}
                />
              ) : (
                <RunRow
                  key={`${line.row.key} ${props.several ? from + at : ""}`}
                  row={line.row}
                  columns={columns}
                  index={from + at}
                  selected={props.selected.has(line.row.key)}
                  hidden={!props.visible.run(line.row.key)}
                  drawn={props.drawn.has(line.group ?? line.row.key) && props.visible.run(line.row.key)}
                  drawnAs={line.group ?? line.row.key}
                  colour={colourOf(line.group ?? line.row.key)}
                  current={from + at === cursor}
                  editing={props.editing?.key === line.row.key ? props.editing.what : null}
                  actions={props.actions}
                  now={now}
                  stateInName={stateInName}
                  shared={props.shared}
                />
              ),
            )}
          {to < lines.length && <Gap lines={lines.length - to} />}
        </tbody>
      </table>
    </div>
  );
}

function Gap({ lines }: { lines: number }) {
  return (
    <tr aria-hidden="true" class="gap">
      <td style={{ height: `${lines * ROW_PIXELS}px` }} />
    </tr>
  );
}

function AllBox({
  chosen: [some, all],
  set,
  label,
}: {
  chosen: [number, number];
  set: (on: boolean) => void;
  label: string;
}) {
  const box = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => {
    if (box.current) box.current.indeterminate = some > 0 && some < all;
  }, [some, all]);
  return (
    <input
      ref={box}
      type="checkbox"
      aria-label={label}
      checked={all > 0 && some === all}
      onClick={() => set(some < all)}
    />
  );
}

const ariaSort = (sort: Sort, id: string): "ascending" | "descending" | "none" =>
  sort.id === id ? (sort.down ? "descending" : "ascending") : "none";

interface HeadProps {
  id: string;
  title: string;
  full?: string;
  kind?: Column["kind"];
  sort: Sort;
  setSort: (id: string) => void;
}

function Head({ id, title, full, kind, sort, setSort }: HeadProps) {
  const own = sort.id === id;
  const prefix = kind && kind !== "fact" && kind !== "config" ? kind : "";
  return (
    <button
      type="button"
      class={`head ${own ? "on" : ""}`}
      title={`${prefix ? `${prefix} ` : ""}${full ?? title}: sort`}
      onClick={() => setSort(id)}
    >
      {prefix && <span class="kind">{prefix} </span>}
      <span class="head-title">{title}</span>
      {own && <Icon name={sort.down ? "down" : "up"} />}
    </button>
  );
}

function GroupRow({ line, index, current, ...props }: Props & { line: GroupLine; index: number; current: boolean }) {
  const keys = line.rows.map((row) => row.key);
  const some = keys.filter((key) => props.selected.has(key)).length;
  return (
    <tr
      data-key={line.key}
      class={`group ${current ? "current" : ""}`}
      aria-rowindex={index + 2}
      tabIndex={current ? 0 : -1}
      onMouseEnter={() => props.actions.hover(line.key)}
      onMouseLeave={() => props.actions.hover(null)}
    >
      <th scope="rowgroup" class="name">
        <span class="name-inside">
          <AllBox
            chosen={[some, keys.length]}
            set={() => props.selectGroup(keys)}
            label={`Select all of ${line.name}`}
          />
          <GroupSwatch
            line={line}
            drawn={props.drawn.has(line.key)}
            hidden={!props.visible.group(line.key)}
            hide={props.actions.hide}
          />
          <GroupButton line={line} toggle={props.toggleGroup} />
          {!props.columns.some((one) => one.id === "status") && <Failed group={line.group} />}
        </span>
      </th>
      {props.columns.map((one) => (
        <td key={one.id} class={one.numeric ? "number" : ""}>
          <GroupValue line={line} column={one} />
        </td>
      ))}
      <td />
    </tr>
  );
}
