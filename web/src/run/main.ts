/** The few curves that everybody looks at first.
 *
 * In:   the names of a run's series.
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

const MOST_LOSSES = 6;

/** Losses of evaluations among some names, the one that most look at first. */
export function evaluationsOf(names: readonly string[]): string[] {
  const found = names.filter((name) => /^(eval|val|valid|validation|test|dev)[/_.].*loss$/i.test(name));
  return found.sort((a, b) => a.length - b.length || byNumber(a, b));
}

export function pickMain(names: readonly string[]): Main {
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
  return {
    rate: first(/^train\/lr$/, /(^|\/)(lr|learning_rate)$/i, /(^|[/_-])lr([/_-]|$)/i),
    losses: losses.slice(0, MOST_LOSSES),
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
