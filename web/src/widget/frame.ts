// A frame: the length of a JSON header, the header, float64 columns; all little-endian (panels.py makes it).

export interface Column {
  at: number;
  n: number;
}

export interface Line {
  name: string;
  points: number;
  exact: boolean;
  few: boolean;
  oddCount: number;
  last: number;
  x: Float64Array;
  low: Float64Array;
  high: Float64Array;
  odd: Float64Array;
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

interface RawLine {
  name: string;
  points: number;
  exact: boolean;
  few: boolean;
  odd_count: number;
  last: Column;
  x: Column;
  low: Column;
  high: Column;
  odd: Column;
}

/** A frame's content; null for bytes that are none. */
export function readFrame(view: DataView): Frame | null {
  if (view.byteLength < 4) return null;
  const length = view.getUint32(0, true);
  if (4 + length > view.byteLength) return null;
  const bytes = new Uint8Array(view.buffer, view.byteOffset + 4, length);
  const header = JSON.parse(new TextDecoder().decode(bytes)) as Partial<Omit<Frame, "panels">> & {
    panels: { title: string; along: string; lines: RawLine[] }[];
  };
  const start = 4 + length;
  const column = ({ at, n }: Column): Float64Array => {
    const values = new Float64Array(n);
    for (let i = 0; i < n; i++) values[i] = view.getFloat64(start + 8 * (at + i), true);
    return values;
  };
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
      })),
    })),
  };
}

/** Four digits that count. */
export function figure(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Inf" : "-Inf";
  const size = Math.abs(value);
  if (value === 0 || (Number.isInteger(value) && size < 1e6)) return value.toLocaleString("en");
  if (size >= 1e-3 && size < 1e6) return size < 1000 ? String(Number(value.toPrecision(4))) : Math.round(value).toLocaleString("en");
  return value.toExponential(2);
}
