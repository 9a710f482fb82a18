/** Panels made from the names of series alone: by family, what belongs together in one chart.
 *
 * In:   names such as train/loss, gpu/0/power, gradients/blocks.0.qkv/norm; for one run or for many.
 * Out:  families in reading order, each with its panels. Pure.
 *
 * Reading order: what was learned, then how (rates and norms), how fast, from what, the tables of layers; the machines
 * and where the time went last.
 */

export interface Panel {
  /** The same for the same names: a saved layout knows panels by it. */
  id: string;
  title: string;
  family: string;
  names: string[];
  logY: boolean;
  zero: boolean;
  /** Lines are layers in order, or ranks: coloured as a sequence. */
  sequence: boolean;
  /** Names that were left out, as there were too many for one chart. */
  left: number;
}

export interface Family {
  id: string;
  title: string;
  panels: Panel[];
  /** Closed until a person opens it. */
  closed: boolean;
}

const ORDER = ["loss", "evaluation", "model", "speed", "moe", "data"];
const LAST = ["machine", "accounts"]; // of what the training runs on, after all that is of the model
const TITLES: Record<string, string> = {
  loss: "Loss",
  evaluation: "Evaluation",
  model: "Learning rate and norms",
  speed: "Speed",
  machine: "Machine",
  moe: "Experts",
  data: "Data",
  accounts: "Time and energy",
};
export const LAYER_TABLES = new Set(["gradients", "weights", "updates", "activations", "optimizer", "spectral", "mup"]);
const SPLITS = new Set(["train", "training", "eval", "evaluation", "val", "valid", "validation", "test", "dev"]);
// prettier-ignore
const HEADS: Record<string, string> = {
  model: "model", norm: "model", norms: "model", optim: "model", mu: "model",
  speed: "speed", sol: "speed", span: "speed", perf: "speed", throughput: "speed", time: "speed", timing: "speed",
  goodput: "accounts", energy: "accounts",
  gpu: "machine", host: "machine", memory: "machine", allocator: "machine", ranks: "machine", system: "machine",
  moe: "moe", router: "moe", experts: "moe",
  data: "data", dataset: "data",
};
const MOST_LINES = 96; // of one panel: more can't be distinguished, the heat map of layers shows all

const LOSS = /(^|[_.\-/])(loss|losses|bpb|bits_per_byte|perplexity|ppl|nll|cross_entropy|ce)([_.-]|$)/i;
const RATE =
  /(^|[_.-])(lr|lrm|learning_rate|wd|weight_decay|momentum|beta\d?|(grad|param|weight)?_?norm\w*|clip\w*|grad_\w+|ratio|scale|z_?loss)$/i;
const FAST =
  /(^|[_.\-/])(tok(ens)?_?(per)?_?s(ec(ond)?)?|tps|dt|mfu|hfu|\w*duration\w*|step_time\w*|\w+_ms|\w*tflops\w*|samples_per_second|sol|it_s)$/i;
const SOURCE = /(^|[_.-])(epoch|pq|rg|tokens|step_tokens|samples|sequences|position)$/i;

/** A metric may be called `constructor/loss`, and every object has a `constructor`. */
function own<Value>(record: Record<string, Value>, name: string): Value | undefined {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}

export function familyOf(name: string): string {
  const parts = name.split("/");
  const head = (parts[0] ?? "").toLowerCase();
  const last = parts[parts.length - 1] ?? name;
  if (parts.length > 1 && LAYER_TABLES.has(head)) return head;
  const known = own(HEADS, head);
  if (known && parts.length > 1) return known;
  if (/^moe[_.]/i.test(last)) return "moe";
  if (SPLITS.has(head) || parts.length === 1) {
    if (FAST.test(last)) return "speed";
    if (LOSS.test(last) && !/z_?loss$/i.test(last)) return "loss";
    if (head !== "train" && head !== "training" && parts.length > 1) return SOURCE.test(last) ? "data" : "evaluation";
    if (RATE.test(last)) return "model";
    if (SOURCE.test(last)) return "data";
    return parts.length === 1 ? "other" : head;
  }
  return LOSS.test(last) && parts.length === 2 ? "loss" : parts[0] || "other";
}

/** What comes first in its family; the rest follows by name. */
const FIRST: Record<string, RegExp[]> = {
  loss: [/^(train\/)?loss$/, /loss/, /bpb|bits_per_byte/],
  evaluation: [/acc|score|reward/],
  model: [/lr$|learning_rate/, /lrm$/, /^train\/norm$|grad_norm$/, /grad_norm/, /param_norm/, /update/, /clip/],
  speed: [/tokens_per_second$|tok.*sec|tps$/, /mfu$|sol$/, /duration_ms$|step_ms$|dt$/, /phase/],
  machine: [/util/, /power/, /memory|dram/, /temperature/, /ranks\/by_rank/, /ranks/, /host/],
  moe: [/aux/, /imbal/, /utili/, /z_loss/, /load/],
  data: [/tokens/, /epoch/],
  accounts: [/goodput\/goodput/],
};

function place(family: string, name: string): number {
  const rules = own(FIRST, family) ?? [];
  const at = rules.findIndex((rule) => rule.test(name));
  return at < 0 ? rules.length : at;
}

/** Names of one stem share a panel; the stem is the panel's title. */
export function stemOf(name: string, family: string): string {
  const parts = name.split("/");
  if (LAYER_TABLES.has(parts[0] ?? "") && parts.length > 2) return `${parts[0]}/*/${parts[parts.length - 1]}`;
  const last = parts[parts.length - 1] ?? "";
  if (
    (family === "loss" || family === "evaluation") &&
    parts.length > 1 &&
    SPLITS.has((parts[0] ?? "").toLowerCase())
  ) {
    return parts
      .slice(1)
      .join("/")
      .replace(/_(smooth|ema|raw)$/, "");
  }
  if (/^(speed\/)?phase\//.test(name)) return "speed/phase/*";
  if (/^goodput\/.*_seconds$/.test(name)) return "goodput/*_seconds";
  if (parts[0] === "allocator" && parts.length === 3) return `allocator/*/${last}`;
  const starred = parts.map((part) => (/^\d+$/.test(part) ? "*" : part));
  const ending = starred[starred.length - 1] ?? "";
  if (/^(min|max|mean|std|median|p\d+)$/.test(ending) && starred.length > 1) return starred.slice(0, -1).join("/");
  starred[starred.length - 1] = ending
    .replace(/_(min|max|mean|std|p\d+|rx|tx|read|write|in|out|low|high)$/, "_*")
    .replace(/^(flow|update)_(\w+)$/, (all: string, one: string, two: string) =>
      /^(p\d+|\*|spread|outside)$/.test(two) ? `${one}_*` : all,
    );
  return starred.join("/");
}

function logarithmic(id: string, family: string): boolean {
  if (/(^|\/)(gradients|updates|optimizer)\//.test(id))
    return !/mean|min$|max$|zeros|nan|inf$|non_finite|p\d+$/.test(id);
  if (family === "loss") return /perplexity|ppl/i.test(id);
  return family === "model" && /grad_norm|(^|\/)norm$|update_|flow_(first|p|\*)|z_loss|_norm_before/.test(id);
}

function zeroed(id: string, family: string): boolean {
  return (family === "speed" && !/\*_seconds$/.test(id)) || /util|share$|load\/\*$|mfu|_ms$/.test(id);
}

function panel(family: string, stem: string, names: string[], together: boolean): Panel {
  const sequence = /\*/.test(stem) && names.length > 6;
  let shown = names;
  if (names.length > MOST_LINES) {
    shown = Array.from(
      { length: MOST_LINES },
      (_, at) => names[Math.round((at * (names.length - 1)) / (MOST_LINES - 1))] ?? "",
    );
  }
  const id = together && names.length > 1 ? stem : (names[0] ?? stem);
  // prettier-ignore
  return {
    id, family, sequence,
    title: id,
    names: shown,
    left: names.length - shown.length,
    logY: logarithmic(id, family),
    zero: zeroed(id, family),
  };
}

/** As people count: blocks.2 before blocks.10. */
export const byNumber = new Intl.Collator("en", { numeric: true }).compare;

/** together: names of one stem share a chart, as for one run; else each has its own, as for many runs.
 *
 * losses: names that the server takes for losses of these runs, whatever they are called.
 */
export function familiesOf(names: readonly string[], together: boolean, losses: readonly string[] = []): Family[] {
  const found = new Map<string, Map<string, string[]>>();
  for (const name of names) {
    const family = losses.includes(name) ? "loss" : familyOf(name);
    const stem = together ? stemOf(name, family) : name;
    const stems = found.get(family) ?? new Map<string, string[]>();
    found.set(family, stems);
    const same = stems.get(stem);
    if (same) same.push(name);
    else stems.set(stem, [name]);
  }
  const ids = [...found.keys()].sort((a, b) => rank(a) - rank(b) || byNumber(a, b));
  return ids.map((id) => {
    const panels = [...(found.get(id) ?? [])].map(([stem, names]) => panel(id, stem, names.sort(inPanel), together));
    panels.sort((a, b) => place(id, a.id) - place(id, b.id) || byNumber(a.id, b.id));
    return {
      id,
      title: own(TITLES, id) ?? id,
      panels,
      closed: LAYER_TABLES.has(id) || id === "accounts",
    };
  });
}

/** Where a family stands among the families. */
export function rank(family: string): number {
  const at = ORDER.indexOf(family);
  if (at >= 0) return at;
  // what a run calls by names of its own comes before the tables of layers
  if (LAST.includes(family)) return ORDER.length + 2 + LAST.indexOf(family);
  return LAYER_TABLES.has(family) ? ORDER.length + 1 : ORDER.length;
}

/** The training's own before those of evaluations. */
function inPanel(a: string, b: string): number {
  const first = (name: string): number => (/^train(ing)?\//.test(name) ? (/_(smooth|ema)$/.test(name) ? 1 : 0) : 2);
  return first(a) - first(b) || byNumber(a, b);
}

/** What tells a line from its neighbours in a panel. */
export function lineLabel(name: string, panel: Panel): string {
  if (panel.names.length < 2) return name;
  if (panel.id.includes("*")) {
    const pattern = panel.id.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    const found = new RegExp(`^${pattern.join("(.+?)")}$`).exec(name);
    if (found) return found.slice(1).join(" ");
  }
  if (name.startsWith(`${panel.id}/`)) return name.slice(panel.id.length + 1);
  return name;
}
