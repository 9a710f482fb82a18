/** Two sides beside each other: uncommitted code, what the models wrote, images, sound and tables.
 *
 * In:   the comparison, which run is which key.
 * Out:  for two sides, the first run of each: the changes of files that differ; samples and media at the same step.
 */

import { useEffect, useState } from "preact/hooks";
import { getRun } from "../api/client.ts";
import type { Comparison, Detail, Key, Sample } from "../api/types.ts";
import { MediaTab } from "../media/view.tsx";
import { whole } from "../shell/text.ts";
import { patchesOf } from "./patches.ts";
import { letter } from "./reckon.ts";

interface Props {
  made: Comparison;
  members: readonly Key[][];
  query: URLSearchParams;
}

const LONGEST = 40_000; // characters of one file's changes

export function Beside({ made, members, query }: Props) {
  const [chosen, setChosen] = useState(1);
  const other = Math.min(chosen, made.sides.length - 1);
  const pair = [members[0]?.[0], members[other]?.[0]] as const;
  const [found, set] = useState<readonly (Detail | null)[]>([]);
  useEffect(() => {
    const stop = new AbortController();
    set([]);
    void Promise.all(
      pair.map((key) => (key ? getRun(key, stop.signal).catch(() => null) : Promise.resolve(null))),
    ).then((details) => !stop.signal.aborted && set(details));
    return () => stop.abort();
  }, [pair.join(" ")]);
  const [a, b] = found;
  if (!a || !b) return null;
  const patches = [patchesOf(a.manifest), patchesOf(b.manifest)] as const;
  const files = made.code_files.filter((file) => patches.some((own) => own.has(file)));
  const samples = a.samples.length > 0 && b.samples.length > 0;
  const media = pair[0] !== undefined && pair[1] !== undefined && (
    <MediaTab runKey={pair[0]} against={[pair[1]]} beat={0} query={query} samples={[]} />
  );
  if (files.length === 0 && !samples) return media || null;
  const heads = [`A ${a.name}`, `${letter(other)} ${b.name}`];
  return (
    <section class="panel block">
      <h2>Beside each other</h2>
      {made.sides.length > 2 && (
        <label class="labelled">
          <span class="quiet">A and</span>
          <select
            class="field"
            value={String(other)}
            onChange={(event) => setChosen(Number(event.currentTarget.value))}
          >
            {made.sides.slice(1).map((side, at) => (
              <option key={at} value={String(at + 1)}>
                {letter(at + 1)} {side.label}
              </option>
            ))}
          </select>
        </label>
      )}
      {files.map((file) => (
        <details key={file}>
          <summary>
            Uncommitted changes of <code>{file}</code>
          </summary>
          <div class="beside">
            {patches.map((own, at) => (
              <div key={at}>
                <h3>{heads[at]}</h3>
                <Patch text={own.get(file)} />
              </div>
            ))}
          </div>
        </details>
      ))}
      {samples && <SamplePairs sides={[a.samples, b.samples]} heads={heads} />}
      {media}
    </section>
  );
}

function Patch({ text }: { text: string | undefined }) {
  if (text === undefined) return <p class="quiet">No uncommitted changes.</p>;
  const shown = text.slice(0, LONGEST);
  return (
    <pre class="patch" tabIndex={0}>
      {shown.split("\n").map((line, at) => (
        <span key={at} class={line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : ""}>
          {`${line}\n`}
        </span>
      ))}
      {shown.length < text.length && "…"}
    </pre>
  );
}

function SamplePairs({ sides, heads }: { sides: readonly (readonly Sample[])[]; heads: readonly string[] }) {
  const steps = [...new Set(sides.flatMap((samples) => samples.map((one) => one.step)))].sort((a, b) => a - b);
  const [place, setPlace] = useState(steps.length - 1);
  const step = steps[Math.min(place, steps.length - 1)] ?? 0;
  // the newest up to the step: two runs need not have written at the same ones
  const newest = (samples: readonly Sample[], prompt: string): Sample | undefined =>
    samples
      .filter((one) => (one.prompt ?? "") === prompt && one.step <= step)
      .sort((one, two) => two.step - one.step)[0];
  const prompts = [...new Set(sides.flatMap((samples) => samples.map((one) => one.prompt ?? "")))].slice(0, 20);
  return (
    <>
      <h3>Samples</h3>
      <label class="labelled">
        <span class="quiet">up to step {whole(step)}</span>
        <input
          type="range"
          min={0}
          max={steps.length - 1}
          value={place}
          aria-label="Step"
          aria-valuetext={whole(step)}
          onInput={(event) => setPlace(Number(event.currentTarget.value))}
        />
      </label>
      {prompts.map((prompt) => (
        <div key={prompt}>
          <p class="quiet">{prompt || "no prompt"}</p>
          <div class="beside">
            {sides.map((samples, side) => {
              const sample = newest(samples, prompt);
              return (
                <div key={side}>
                  <h4>
                    {heads[side]} {sample && <span class="quiet">step {whole(sample.step)}</span>}
                  </h4>
                  {sample ? (
                    <pre class="sample">{sample.text ?? ""}</pre>
                  ) : (
                    <p class="quiet">Nothing up to this step.</p>
                  )}
                </div>
              );
            })}
          </div>
        </div>
      ))}
    </>
  );
}
