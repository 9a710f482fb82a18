/** Loads of experts in times of an even share, and who gets next to nothing.
 *
 * In:   loads [layer × step × expert]: shares, counts of tokens, whatever they are.
 * Out:  rows of a map, a layer's experts below each other; experts that are dead or overloaded. Pure.
 */

export interface Loads {
  layers: readonly string[];
  experts: number;
  steps: Float64Array;
  load: Float64Array;
}

export interface Odd {
  layer: string;
  expert: number;
  /** In times of an even share, at the last step. */
  share: number;
  /** The first step from which on it is below DEAD; for an overloaded one the last. */
  since: number;
}

export const DEAD = 0.05; // of an even share

/** The share of expert e of layer l at step s at [(l × experts + e) × steps + s], in times of an even one. */
export function evenShares({ layers, experts, steps, load }: Loads): Float64Array {
  const out = new Float64Array(layers.length * experts * steps.length).fill(NaN);
  for (let layer = 0; layer < layers.length; layer++) {
    for (let step = 0; step < steps.length; step++) {
      const first = (layer * steps.length + step) * experts;
      let sum = 0;
      let known = 0;
      for (let expert = 0; expert < experts; expert++) {
        const value = load[first + expert] ?? NaN;
        if (!Number.isFinite(value)) continue;
        sum += value;
        known++;
      }
      if (!(sum > 0)) continue;
      for (let expert = 0; expert < experts; expert++)
        out[(layer * experts + expert) * steps.length + step] = ((load[first + expert] ?? NaN) * known) / sum;
    }
  }
  return out;
}

/** Experts that are below DEAD of an even share at the last step, the first to die first. */
export function deadExperts({ layers, experts, steps }: Omit<Loads, "load">, shares: Float64Array): Odd[] {
  const found: Odd[] = [];
  const last = steps.length - 1;
  for (let row = 0; row < layers.length * experts; row++) {
    let at = last;
    while (at >= 0 && (shares[row * steps.length + at] ?? NaN) < DEAD) at--;
    if (at === last) continue;
    found.push({
      layer: layers[Math.floor(row / experts)] ?? "",
      expert: row % experts,
      share: shares[row * steps.length + last] ?? NaN,
      since: steps[at + 1] ?? NaN,
    });
  }
  return found.sort((a, b) => a.since - b.since);
}

/** The shares of one step, [layer × expert]. */
export function sharesAt(shares: Float64Array, steps: number, at: number): Float64Array {
  return Float64Array.from({ length: shares.length / Math.max(1, steps) }, (_, row) => shares[row * steps + at] ?? NaN);
}
