/** The line of bars that a finding carries, as a drawing.
 *
 * In:   characters from ▁ to █; × for NaN, ^ and v for the infinities; the steps it reaches over.
 * Out:  where to draw what, in a box of `bars` by 8.
 */

import type { Spark } from "../api/types.ts";

const LEVELS = "▁▂▃▄▅▆▇█";

export interface Drawing {
  /** Stretches of finite values: x from 0 to the number of bars, y from 0 (low) to 7. */
  lines: [number, number][][];
  marks: { x: number; kind: "nan" | "inf" | "-inf" }[];
  width: number;
  /** Where the finding's step is, within [0, width]; null outside. */
  at: number | null;
}

export function drawSpark(spark: Spark, step: number): Drawing {
  const bars = [...spark.bars];
  const lines: [number, number][][] = [];
  const marks: Drawing["marks"] = [];
  let line: [number, number][] = [];
  bars.forEach((bar, x) => {
    const level = LEVELS.indexOf(bar);
    if (level >= 0) {
      line.push([x + 0.5, level]);
      return;
    }
    if (line.length) lines.push(line);
    line = [];
    marks.push({ x: x + 0.5, kind: bar === "^" ? "inf" : bar === "v" ? "-inf" : "nan" });
  });
  if (line.length) lines.push(line);
  const span = spark.to - spark.from;
  const share = span > 0 ? (step - spark.from) / span : 0;
  const at = share >= 0 && share <= 1 ? 0.5 + share * Math.max(0, bars.length - 1) : null;
  return { lines, marks, width: Math.max(1, bars.length), at };
}
