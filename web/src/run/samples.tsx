/** What the model wrote, before and after: the same prompt at two steps side by side.
 *
 * In:   samples with their steps, prompts and texts.
 * Out:  two columns, and a choice of the steps.
 */

import { useState } from "preact/hooks";
import type { Sample } from "../api/types.ts";
import { whole } from "../shell/text.ts";

export function Samples({ samples }: { samples: readonly Sample[] }) {
  const steps = [...new Set(samples.map((one) => one.step))].sort((a, b) => a - b);
  const [before, setBefore] = useState<number | null>(null);
  const [after, setAfter] = useState<number | null>(null);
  const left = before ?? steps[0] ?? 0;
  const right = after ?? steps[steps.length - 1] ?? 0;
  const prompts = [...new Set(samples.map((one) => one.prompt ?? ""))];
  const at = (step: number, prompt: string): Sample | undefined =>
    samples.find((one) => one.step === step && (one.prompt ?? "") === prompt);
  return (
    <section class="panel block" aria-label="Samples">
      <h2>
        Samples <span class="quiet">model output</span>
      </h2>
      <div class={`samples ${steps.length > 1 ? "" : "one"}`}>
        <Column label="before" step={left} steps={steps} set={setBefore} />
        {steps.length > 1 && <Column label="after" step={right} steps={steps} set={setAfter} />}
        {prompts.slice(0, 20).map((prompt) => (
          <Pair
            key={prompt}
            prompt={prompt}
            sides={steps.length > 1 ? [at(left, prompt), at(right, prompt)] : [at(left, prompt)]}
          />
        ))}
      </div>
    </section>
  );
}

function Column({
  label,
  step,
  steps,
  set,
}: {
  label: string;
  step: number;
  steps: readonly number[];
  set: (step: number) => void;
}) {
  return (
    <label class="labelled small">
      <span class="quiet">{label}: step</span>
      <select class="field" value={String(step)} onChange={(event) => set(Number(event.currentTarget.value))}>
        {steps.map((one) => (
          <option key={one} value={String(one)}>
            {whole(one)}
          </option>
        ))}
      </select>
    </label>
  );
}

function Pair({ prompt, sides }: { prompt: string; sides: (Sample | undefined)[] }) {
  if (!sides.some(Boolean)) return null;
  return (
    <>
      {sides.map((side, at) => {
        const text = side?.text ?? "";
        const rest = prompt && text.startsWith(prompt) ? text.slice(prompt.length) : side?.text;
        return (
          <pre
            class="sample"
            key={at}
            tabIndex={0}
            aria-label={side ? `At step ${side.step}` : "No sample at this step"}
          >
            {prompt && <b>{prompt}</b>}
            {rest ?? <i class="quiet">no sample of this prompt at this step</i>}
          </pre>
        );
      })}
    </>
  );
}
