/** A chart as a few lines of Python that read the same numbers and draw them.
 *
 * In:   the folder that is served, the lines of the chart, its axis, range, smoothing and scales.
 * Out:  text to paste into a notebook.
 */

import type { Settings } from "./group.ts";
import type { View } from "./range.ts";

export interface Script {
  root: string;
  title: string;
  /** Keys as folders below the root, with the labels of their lines and the names of their series. */
  lines: readonly { folder: string; label: string; name: string; rank?: number | undefined }[];
  settings: Pick<Settings, "x" | "smooth" | "logX">;
  logY: boolean;
  view: View;
  /** Lines of one label are the runs of a group: their mean is drawn, with the deviation as a band. */
  grouped?: boolean;
}

/** A text as Python writes it. */
export function quoted(text: string): string {
  let made = "";
  for (const sign of text) {
    const code = sign.codePointAt(0) ?? 0;
    if (sign === '"' || sign === "\\") made += `\\${sign}`;
    else if (sign === "\n") made += "\\n";
    else if (code < 32 || (code >= 127 && code < 160) || (code >= 0xd800 && code < 0xe000))
      made += code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16)}`;
    else if (code >= 0x2000 && code < 0x2070) made += `\\u${code.toString(16)}`;
    else made += sign;
  }
  return `"${made}"`;
}

/** The series smoothed, as an expression. */
export function smoothed(name: string, smooth: string): string {
  const [amount = "", kind = "ema"] = smooth.split(":").reverse();
  // a name with signs of its own is quoted; what is an expression stays one
  const inner =
    /^[^\s()+*^,'"]+$/.test(name) || / [-+/*^] |^\w+\(.*\)$/.test(name) ? name : `'${name.replace(/['\\]/g, "\\$&")}'`;
  return smooth ? `${kind}(${inner}, ${amount})` : name;
}

const GROUPED = [
  '    over = part.groupby("x")["value"].agg(["mean", "std"])',
  '    axes.plot(over.index, over["mean"], label=label)',
  '    axes.fill_between(over.index, over["mean"] - over["std"], over["mean"] + over["std"], alpha=0.2)',
];

export function pythonOf({ root, title, lines, settings, logY, view, grouped }: Script): string {
  const { x, smooth, logX } = settings;
  const entry = (one: Script["lines"][number]): string => {
    const rank = one.rank === undefined ? "None" : String(one.rank);
    return `    (${quoted(one.folder)}, ${quoted(smoothed(one.name, smooth))}, ${rank}, ${quoted(one.label)}),`;
  };
  return [
    "import barograph",
    "import matplotlib.pyplot as plt",
    "import pandas as pd",
    "",
    `folder = ${quoted(root)}`,
    "lines = [  # run, series, rank, label",
    ...lines.map(entry),
    "]",
    "parts = []",
    "for run, name, rank, label in lines:",
    `    series = barograph.StoredRun(f"{folder}/{run}").series(name, x=${quoted(x)}, rank=rank)`,
    '    parts.append(pd.DataFrame({"label": label, "x": series.x, "step": series.step, "value": series.value}))',
    'frame = pd.concat(parts, ignore_index=True).dropna(subset="x").sort_values("x", kind="stable")',
    ...(view ? [`frame = frame[frame.x.between(${view[0]}, ${view[1]})]`] : []),
    "",
    "figure, axes = plt.subplots()",
    'for label, part in frame.groupby("label", sort=False):',
    ...(grouped ? GROUPED : ['    axes.plot(part["x"], part["value"], label=label)']),
    `axes.set(title=${quoted(title)}, xlabel=${quoted(x)})`,
    ...(logX ? ['axes.set_xscale("log")'] : []),
    ...(logY ? ['axes.set_yscale("log")'] : []),
    "axes.legend()",
    "plt.show()",
    "",
  ].join("\n");
}
