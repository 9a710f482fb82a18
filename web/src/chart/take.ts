/** What is taken away from a chart: its picture, its points, the Python code that gives both.
 *
 * In:   a chart.
 * Out:  files, or text in the clipboard. Errors are sentences.
 */

import { getAbout, getPoints } from "../api/client.ts";
import { isGroup, runsOf } from "../api/groups.ts";
import { plainKey } from "../shell/address.ts";
import type { Control } from "./control.ts";
import type { Look } from "./curve.ts";
import { save } from "./image.ts";
import { pythonOf } from "./python.ts";
import { svgOf } from "./svg.ts";
import { axisName } from "./ticks.ts";

export function saveSvg(made: Control, title: string, looks: readonly Look[]): void {
  const text = svgOf(made.plot, title, axisName(made.group.settings.x), looks);
  save(new Blob([text], { type: "image/svg+xml" }), `${title}.svg`);
}

/** Every point of the range in view, as it was logged. */
export async function savePoints(made: Control, title: string, format: "csv" | "parquet"): Promise<void> {
  const { view, settings } = made.group;
  const series = linesOf(made).map(({ run, name, rank }) => (rank === undefined ? { run, name } : { run, name, rank }));
  const from = view?.[0] ?? null;
  const to = view?.[1] ?? null;
  save(await getPoints({ series, x: settings.x, from, to }, format), `${title}.${format}`);
}

export async function copyPython(made: Control, title: string): Promise<void> {
  const { root } = await getAbout();
  const { settings, view } = made.group;
  const shown = linesOf(made);
  const lines = shown.flatMap(({ run, name, label, rank }) =>
    runsOf(run).map((one) => ({ folder: plainKey(one), name, label, rank })),
  );
  const grouped = shown.some(({ run }) => isGroup(run));
  const text = pythonOf({ root, title, lines, settings, logY: made.logY, view, grouped });
  if (!navigator.clipboard?.writeText) throw new Error("This browser gives no access to the clipboard here.");
  await navigator.clipboard.writeText(text);
}

const linesOf = (made: Control) => made.lines.filter((line) => made.has(line) && !made.isHidden(line));
