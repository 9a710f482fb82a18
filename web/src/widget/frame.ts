// A frame of the notebook's widget (panels.py makes it): its header in the widget's words, and the panels' columns.
import { decodeFrame } from "../api/frame.ts";
import type { ColumnRef } from "../api/types.ts";

export interface Line {
  name: string;
  points: number;
  exact: boolean;
  few: boolean;
  oddCount: number;
  last: number;
  x: Float64Array;
  /** The extremes of each bucket; both the value itself where `exact`. */
  low: Float64Array;
  high: Float64Array;
  /** Where values are not finite, and which they are. */
  odd: Float64Array;
  oddValues: Float64Array;
}

export interface Panel {
  title: string;
  along: string;
  lines: Line[];
}

export interface Frame {
  title: string;
  facts: [string, string][];
  live: boolean;
  heads: string[];
  rows: string[][];
  panels: Panel[];
}

type Columns = Record<"last" | "x" | "low" | "high" | "odd" | "odd_values", ColumnRef>;

interface RawLine extends Columns {
  name: string;
  points: number;
  exact: boolean;
  few: boolean;
  odd_count: number;
}

type Header = Partial<Omit<Frame, "panels">> & { panels: { title: string; along: string; lines: RawLine[] }[] };

/** A frame's content; null for bytes that are none. */
export function readFrame(view: DataView): Frame | null {
  if (view.byteLength < 4) return null;
  // the bytes come at any place of a larger buffer; columns begin at multiples of eight of their own
  const copy = view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength) as ArrayBuffer;
  const { header, column } = decodeFrame<Header>(copy);
  return {
    title: header.title ?? "",
    facts: header.facts ?? [],
    live: header.live ?? false,
    heads: header.heads ?? [],
    rows: header.rows ?? [],
    panels: header.panels.map((panel) => ({
      title: panel.title,
      along: panel.along,
      lines: panel.lines.map((line) => ({
        name: line.name,
        points: line.points,
        exact: line.exact,
        few: line.few,
        oddCount: line.odd_count,
        last: column(line.last)[0] ?? NaN,
        x: column(line.x),
        low: column(line.low),
        high: column(line.high),
        odd: column(line.odd),
        oddValues: column(line.odd_values),
      })),
    })),
  };
}
