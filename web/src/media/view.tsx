/** The tab of images, sound, tables and texts of a run: by name, at a step, beside other runs.
 *
 * In:   a run; of the address `type`, `name`, `at`, `with` (runs beside it), `large`.
 * Out:  a gallery with a slider over the steps.
 */

import { useEffect, useState } from "preact/hooks";
import type { Key, MediaItem, MediaList, Sample } from "../api/types.ts";
import { useJson } from "../run/data.ts";
import { Samples } from "../run/samples.tsx";
import { useRuns } from "../runs/store.ts";
import { joinKeys, plainKey, splitKeys } from "../shell/address.ts";
import { Icon } from "../shell/icon.tsx";
import { useKeys } from "../shell/keys.ts";
import { setQuery } from "../shell/route.ts";
import { useColours } from "../shell/runcolours.ts";
import { title, whole } from "../shell/text.ts";
import { Item, Large } from "./item.tsx";
import { fitting, kindsOf, lastAt, namesOf, placeAt, stepsOf, type Kind } from "./pick.ts";
import "./media.css";

const WORDS: Record<Kind, string> = { image: "Images", audio: "Audio", table: "Tables", video: "Video", file: "Files" };
const MOST_NAMES = 40; // sections at first; a filter or a click shows the others
const MOST_BESIDE = 3;

interface Props {
  runKey: Key;
  beat: number;
  query: URLSearchParams;
  samples: readonly Sample[];
  /** The runs beside it where a view has chosen them; nothing is said then of a run without media. */
  against?: readonly Key[];
}

export function MediaTab({ runKey, beat, query, samples, against }: Props) {
  const beside = (against ?? splitKeys(query.get("with"))).filter((key) => key !== runKey).slice(0, MOST_BESIDE);
  const keys = [runKey, ...beside];
  // a list for each: hooks may not be in a loop of changing length
  const lists = [
    useJson<MediaList>(runKey, "/media", beat),
    useJson<MediaList>(beside[0] ?? runKey, "/media", beat),
    useJson<MediaList>(beside[1] ?? runKey, "/media", beat),
    useJson<MediaList>(beside[2] ?? runKey, "/media", beat),
  ].slice(0, keys.length);
  const own = (against ? lists : lists.slice(0, 1)).flatMap((list) => list.value?.items ?? []);
  const type = query.get("type") ?? "";
  const name = query.get("name") ?? "";
  const all = lists.map((list) => fitting(list.value?.items ?? [], type, name));
  const steps = stepsOf(all.flat());
  const asked = query.get("at");
  const place = asked === null ? steps.length - 1 : placeAt(steps, Number(asked));
  const step = steps[place] ?? 0;
  const names = namesOf(all.flat());
  const [most, setMost] = useState(MOST_NAMES);
  const [large, setLarge] = useState<{ key: Key; name: string; at: number } | null>(null);
  const go = (to: number): void => {
    const next = Math.max(0, Math.min(steps.length - 1, to));
    setQuery({ at: next === steps.length - 1 ? null : steps[next] }, true);
  };
  useKeys("Media", [
    { keys: "[", says: "previous step", run: () => go(place - 1) },
    { keys: "]", says: "next step", run: () => go(place + 1) },
  ]);
  const shown = large && lastAt(all[keys.indexOf(large.key)] ?? [], large.name, step)[large.at];
  useEffect(() => {
    if (large && !shown) setLarge(null);
  }, [large, shown]);

  if (against && !own.length) return null;
  if (!lists[0]?.value)
    return (
      <p class="quiet" aria-busy={!lists[0]?.error}>
        {lists[0]?.error || "Loading …"}
      </p>
    );
  if (!own.length && !samples.length) return <Nothing />;
  const total = lists[0].value.total;
  return (
    <div class="media">
      {against && <h2>Images, audio and tables</h2>}
      {own.length > 0 && (
        <div class="toolbar media-bar" role="toolbar" aria-label="Media">
          <Kinds items={own} type={type} />
          <input
            class="field"
            type="search"
            placeholder="filter names"
            aria-label="Filter names"
            value={name}
            onInput={(event) => setQuery({ name: event.currentTarget.value }, true)}
          />
          {steps.length > 1 && (
            <div class="media-steps">
              <button
                type="button"
                class="button icon-only"
                aria-label="Previous step"
                disabled={place === 0}
                onClick={() => go(place - 1)}
              >
                <span class="media-left">
                  <Icon name="right" />
                </span>
              </button>
              <input
                type="range"
                min={0}
                max={steps.length - 1}
                value={place}
                aria-label="Step"
                aria-valuetext={`step ${whole(step)}`}
                onInput={(event) => go(Number(event.currentTarget.value))}
              />
              <button
                type="button"
                class="button icon-only"
                aria-label="Next step"
                disabled={place === steps.length - 1}
                onClick={() => go(place + 1)}
              >
                <Icon name="right" />
              </button>
              <output>step {whole(step)}</output>
            </div>
          )}
          {!against && <Beside runKey={runKey} beside={beside} />}
        </div>
      )}
      {!against && total > own.length && (
        <p class="quiet small">
          {whole(own.length)} of {whole(total)} files, evenly over the steps of each name. `barograph export --to media`
          writes all.
        </p>
      )}
      {own.length > 0 && !names.length && <p class="quiet">No name fits the filter.</p>}
      {names.slice(0, most).map((each) => (
        <Section key={each} name={each} keys={keys} all={all} step={step} open={setLarge} />
      ))}
      {names.length > most && (
        <button type="button" class="button" onClick={() => setMost(most + MOST_NAMES)}>
          {whole(names.length - most)} more names
        </button>
      )}
      {samples.length > 0 && !type && <Samples samples={samples} />}
      {large && shown && (
        <Large run={large.key} item={shown} close={() => setLarge(null)} turn={(by) => go(place + by)} />
      )}
    </div>
  );
}

function Kinds({ items, type }: { items: readonly MediaItem[]; type: string }) {
  const kinds = kindsOf(items);
  if (kinds.length < 2) return null;
  return (
    <span class="segmented" role="group" aria-label="Type">
      <button type="button" class="button" aria-pressed={!type} onClick={() => setQuery({ type: null }, true)}>
        All
      </button>
      {kinds.map(([kind, count]) => (
        <button
          key={kind}
          type="button"
          class="button"
          aria-pressed={type === kind}
          onClick={() => setQuery({ type: kind }, true)}
        >
          {WORDS[kind]} <span class="count">{whole(count)}</span>
        </button>
      ))}
    </span>
  );
}

/** Other runs beside this one: those of its project first. */
function Beside({ runKey, beside }: { runKey: Key; beside: readonly Key[] }) {
  const { rows } = useRuns();
  const project = rows.get(runKey)?.project;
  const others = [...rows.values()]
    .filter((row) => row.key !== runKey && !beside.includes(row.key))
    .sort((a, b) => Number(b.project === project) - Number(a.project === project))
    .slice(0, 500);
  return (
    <span class="media-beside">
      {beside.map((key) => (
        <button
          key={key}
          type="button"
          class="button"
          aria-label={`Remove ${plainKey(key)}`}
          onClick={() => setQuery({ with: joinKeys(beside.filter((one) => one !== key)) })}
        >
          {title(rows.get(key) ?? { name: "", id: plainKey(key) })} <Icon name="close" />
        </button>
      ))}
      {beside.length < MOST_BESIDE && others.length > 0 && (
        <select
          class="field"
          aria-label="Compare with a run"
          value=""
          onChange={(event) => setQuery({ with: joinKeys([...beside, event.currentTarget.value]) })}
        >
          <option value="">Compare with …</option>
          {others.map((row) => (
            <option key={row.key} value={row.key}>
              {row.project === project ? title(row) : `${row.project}/${title(row)}`}
            </option>
          ))}
        </select>
      )}
    </span>
  );
}

interface SectionProps {
  name: string;
  keys: readonly Key[];
  all: readonly MediaItem[][];
  step: number;
  open: (large: { key: Key; name: string; at: number }) => void;
}

function Section({ name, keys, all, step, open }: SectionProps) {
  const { rows } = useRuns();
  const colour = useColours(keys);
  const alone = keys.length === 1;
  const at = lastAt(all[0] ?? [], name, step)[0]?.step;
  return (
    <section class="panel block media-of" aria-label={name}>
      <h2>
        {name} {alone && at !== undefined && at !== step && <span class="quiet small">last at step {whole(at)}</span>}
      </h2>
      <div class={alone ? "" : "media-columns"}>
        {keys.map((key, column) => {
          const found = lastAt(all[column] ?? [], name, step);
          return (
            <div key={key}>
              {!alone && (
                <h3>
                  <span class="dot" style={{ background: colour(key) }} />{" "}
                  {title(rows.get(key) ?? { name: "", id: plainKey(key) })}{" "}
                  <span class="quiet">{found[0] ? `step ${whole(found[0].step)}` : ""}</span>
                </h3>
              )}
              {found.length ? (
                <div class={`media-grid ${found[0]?.type ?? ""}`}>
                  {found.map((item, place) => (
                    <Item
                      key={`${place} ${item.file}`}
                      run={key}
                      item={item}
                      open={() => open({ key, name, at: place })}
                    />
                  ))}
                </div>
              ) : (
                <p class="quiet small">nothing up to step {whole(step)}</p>
              )}
            </div>
          );
        })}
      </div>
    </section>
  );
}

function Nothing() {
  return (
    <div class="message">
      <h1>No images, audio, tables or texts</h1>
      <p class="soft">They appear here when the training logs them:</p>
      <pre class="code" tabIndex={0}>
        {
          'run.log_image("samples", image, step, caption="…")\nrun.log_audio("speech", samples, step, rate=24_000)\nrun.log_table("answers", rows, step)\nrun.log_sample(step, text, prompt)'
        }
      </pre>
    </div>
  );
}
