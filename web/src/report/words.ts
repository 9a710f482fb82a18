// Numbers as people read them; the same as in reporting/figures.py as far as a reader can tell.

const LARGE: [number, string][] = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** Four or five digits that mean something. */
export function number(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "infinity" : "-infinity";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e9 || size < 1e-4) return trimmed(value.toExponential(3));
  if (Number.isInteger(value) || size >= 1e4) return Math.round(value).toLocaleString("en");
  return trimmed(value.toPrecision(size >= 1000 ? 5 : 4));
}

/** A tick of an axis, or a value in a unit. */
export function tick(value: number, unit: string): string {
  const size = Math.abs(value);
  if (unit === "seconds") return duration(value);
  if (size >= 1e5) {
    for (const [one, letter] of LARGE) if (size >= one) return `${trimmed((value / one).toPrecision(4))} ${letter}`;
  }
  return number(Number(value.toPrecision(6)));
}

/** A step, in full. */
export function whole(value: number): string {
  return Math.round(value).toLocaleString("en");
}

function duration(seconds: number): string {
  if (seconds < 60) return `${trimmed(seconds.toPrecision(3))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)}h${String(minutes % 60).padStart(2, "0")}m`;
}

function trimmed(text: string): string {
  const [digits = "", power] = text.split("e");
  const short = digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;
  return power === undefined ? short : `${short}e${power.replace("+", "")}`;
}
