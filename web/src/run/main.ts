/** The few curves that everybody looks at first.
 *
 * In:   the names of a run's series; which of them the server takes for its losses.
 * Out:  losses, gradient norm, learning rate, speed, utilization. Pure.
 */

import { byNumber, familyOf } from "../chart/families.ts";

export interface Main {
  rate: string[];
  losses: string[];
  norm: string[];
  speed: string[];
  mfu: string[];
  machine: string[];
}

type Known = { loss: string | null; eval_loss: string | null };

/** The names of the losses of some runs, as the server knows them. */
export function lossesOf(runs: readonly Known[]): string[] {
  const names = new Set<string>();
  for (const { loss, eval_loss } of runs) for (const name of [loss, eval_loss]) if (name) names.add(name);
  return [...names];
}

const MOST_LOSSES = 6;

/** Losses of evaluations among some names, the one that most look at first. */
export function evaluationsOf(names: readonly string[]): string[] {
  const found = names.filter((name) => /^(eval|val|valid|validation|test|dev)[/_.].*loss$/i.test(name));
  return found.sort((a, b) => a.length - b.length || byNumber(a, b));
}

/** known: the run's losses as the server knows them, which may have names of their own. */
export function pickMain(names: readonly string[], known: Known = { loss: null, eval_loss: null }): Main {
  const first = (...patterns: RegExp[]): string[] => {
    for (const pattern of patterns) {
      const found = names.filter((name) => pattern.test(name)).sort((a, b) => a.length - b.length || byNumber(a, b));
      if (found[0] !== undefined) return [found[0]];
    }
    return [];
  };
  const losses = names.filter(
    (name) => familyOf(name) === "loss" && /(^|\/)(\w+_)?loss$/i.test(name) && !/aux|z_loss|smooth/i.test(name),
  );
  // the training's own first, then evaluations
  losses.sort((a, b) => Number(!/^train|^loss$/.test(a)) - Number(!/^train|^loss$/.test(b)) || byNumber(a, b));
  const beside = (name: string | null) => (name && names.includes(name) && !losses.includes(name) ? [name] : []);
  const [own, evaluation] = [beside(known.loss), beside(known.eval_loss)];
  return {
    rate: first(/^train\/lr$/, /(^|\/)(lr|learning_rate)$/i, /(^|[/_-])lr([/_-]|$)/i),
    losses: [...own, ...losses.slice(0, MOST_LOSSES - own.length - evaluation.length), ...evaluation],
    norm: first(/^train\/norm$/, /(^|\/)grad(ient)?_?norm$/i, /grad.*norm/i),
    speed: first(
      /^train\/tokens_per_second$/,
      /tok(ens)?_?(per|\/)?_?s(ec(ond)?)?$/i,
      /(samples|it)_per_s(ec(ond)?)?$/i,
      /(duration|step)_ms$|(^|\/)dt$/i,
    ),
    mfu: first(/^speed\/mfu$/, /(^|\/)mfu$/i),
    machine: first(/^gpu\/0\/gpu_util$/, /^gpu\/\d+\/gpu_util$/, /gpu.*util/i),
  };
}
