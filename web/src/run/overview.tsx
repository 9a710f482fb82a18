/** A run as one reads it: what it is, what it was asked to do, what it did, what it cost, what it says.
 *
 * In:   the run's detail and findings.
 * Out:  key figures, how it stands, losses, then the other main curves; configuration, metadata, checkpoints, samples.
 */

import { useEffect, useMemo, useState } from "preact/hooks";
import { num } from "../api/values.ts";
import { Chart } from "../chart/chart.tsx";
import type { Line } from "../chart/control.ts";
import { familyOf } from "../chart/families.ts";
import { Group } from "../chart/group.ts";
import { lineColours } from "../shell/colour.ts";
import { placeOf } from "../shell/runcolours.ts";
import { Lazy } from "../chart/lazy.tsx";
import { knownNames } from "../chart/names.ts";
import { runPlace } from "../shell/address.ts";
import { useTheme } from "../shell/theme.ts";
import { useNarrow } from "../shell/width.ts";
import { statusWords } from "../shell/states.ts";
import { commandText, ago, count, duration, moment, number, plain, size, whole } from "../shell/text.ts";
import { flagsOf, type RunDetail, useAnswer } from "./data.ts";
import { Figures } from "./figures.tsx";
import { Lineage } from "./lineage.tsx";
import { cost } from "./machines.ts";
import { pickMain } from "./main.ts";
import { Samples } from "./samples.tsx";
import { Standing } from "./standing.tsx";
import type { TabProps } from "./view.tsx";
import { Wide } from "../shell/wide.tsx";

const LOW = 252; // pixels of a chart with its title

export function Overview({ runKey, detail, diagnosis, beat }: TabProps) {
  const theme = useTheme();
  const narrow = useNarrow(1199);
  const tall = narrow ? LOW : 2 * LOW + 16; // as two below each other
  const group = useMemo(() => new Group({ x: "step" }), [runKey]);
  const known = useAnswer(`names ${runKey}`, (signal) => knownNames(runKey, signal), Math.floor(beat / 4));
  const main = useMemo(
    () => (known.value ? pickMain(known.value.names, detail) : null),
    [known.value, detail.loss, detail.eval_loss],
  );
  const others = useMemo(
    () => (known.value?.names ?? []).filter((name) => familyOf(name) !== "accounts"),
    [known.value],
  ); // a run is accounted for whatever it logs
  const flags = useMemo(
    () => flagsOf(runKey, detail, diagnosis),
    [runKey, detail.checkpoints, detail.segments, diagnosis],
  );
  useEffect(() => group.live([runKey]), [group, runKey]);
  // which of these a run has decides how they stand: none leaves a row half empty
  const beside = main ? [main.norm, main.rate, main.speed, main.mfu, main.machine].filter((one) => one.length) : [];
  const places = main?.losses.length ? ` beside-${beside.length}` : "";
  const chart = (title: string, names: string[], logY = false, zero = false) => {
    if (!names.length) return null;
    const colours = lineColours(placeOf(runKey), names.length, theme);
    const lines: Line[] = names.map((name, at) => ({
      run: runKey,
      name,
      label: name,
      colour: colours[at] ?? "#888888",
    }));
    return (
      <Lazy key={title} height={title === "Losses" ? tall : LOW}>
        <Chart
          series={lines}
          x="step"
          group={group}
          title={title}
          level={2}
          height={(title === "Losses" ? tall : LOW) - 36 - (names.length > 1 ? 22 : 0)}
          logY={logY}
          zero={zero}
          flags={flags.filter((flag) => (flag.names ?? main?.losses ?? []).some((name) => names.includes(name)))}
        />
      </Lazy>
    );
  };
  return (
    <div class="overview">
      <Figures detail={detail} />
      <Standing {...{ runKey, detail, diagnosis }} />
      {detail.notes && (
        <section class="panel notes" aria-label="Notes">
          <p>{detail.notes}</p>
        </section>
      )}
      <section class={`panels reading${places}`} aria-label="The main curves, in the order to read them">
        {main === null && !known.error && detail.step !== null && (
          <div class="slot chart" style={{ minHeight: `${tall}px` }}>
            <span class="skeleton" />
          </div>
        )}
        {known.error && <p class="bad">{known.error}</p>}
        {main && chart("Losses", main.losses)}
        {main && chart("Gradient norm", main.norm, true)}
        {main && chart("Learning rate", main.rate)}
        {main && chart("Throughput", main.speed, false, true)}
        {main && chart("Model FLOPs utilization", main.mfu, false, true)}
        {main && chart("GPU utilization", main.machine, false, true)}
        {main && !main.losses.length && !main.rate.length && others.slice(0, 6).map((name) => chart(name, [name]))}
        {known.value && !others.length && (
          <p class="quiet">
            {statusWords(detail.status).open
              ? "No metric has been logged yet. Curves appear here when logged."
              : "The run ended without logging a metric."}
          </p>
        )}
        {known.value && others.length > 0 && (
          <p class="whole">
            <a href={runPlace(runKey, "charts")}>All {whole(detail.series_count ?? known.value.total)} series</a>
          </p>
        )}
      </section>
      {/* what is below would be pushed down by charts that come */}
      {(known.value || known.error || detail.step === null) && <Rest detail={detail} />}
    </div>
  );
}

function Rest({ detail }: { detail: RunDetail }) {
  return (
    <>
      <div class="beside">
        <Configuration detail={detail} />
        <About detail={detail} />
      </div>
      <Checkpoints detail={detail} />
      {(detail.samples?.length ?? 0) > 0 && <Samples samples={detail.samples ?? []} />}
      <Lineage detail={detail} />
      {(detail.problems?.length ?? 0) > 0 && (
        <section class="panel block" aria-label="What could not be read">
          <h2>What could not be read</h2>
          <ul class="plain-list">
            {detail.problems?.map((problem) => (
              <li key={problem}>{problem}</li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

function text(value: unknown): string {
  return value === null || value === undefined || value === "" ? "" : plain(value);
}

/** Who, when, where, on what, from which code, for how much. */
function About({ detail }: { detail: RunDetail }) {
  const about = detail.manifest ?? {};
  const inner = (name: string): Record<string, unknown> =>
    typeof about[name] === "object" && about[name] !== null && !Array.isArray(about[name])
      ? (about[name] as Record<string, unknown>)
      : {};
  const [git, environment, hardware, dataset] = ["git", "environment", "hardware", "dataset"].map(inner);
  const energy = detail.energy ?? {};
  const command = commandText(about["command"]);
  const gpus = Array.isArray(hardware?.["gpus"]) ? (hardware["gpus"] as Record<string, unknown>[]) : [];
  const cpu = (hardware?.["cpu"] ?? {}) as Record<string, unknown>;
  const commit = text(git?.["commit"] ?? about["repo_commit"]);
  const rows: [string, preact.ComponentChildren][] = [
    ["started", detail.created ? `${moment(detail.created)} (${ago(detail.created, Date.now() / 1000)})` : ""],
    ["wall time", detail.wall_seconds ? duration(detail.wall_seconds) : ""],
    ["tokens", energy["tokens"] !== undefined ? whole(num(energy["tokens"])) : ""],
    [
      "hardware",
      [
        gpus.length ? `${gpus.length} × ${text(gpus[0]?.["name"]) || "GPU"}` : "",
        text(cpu["model"]) ? `${text(cpu["model"])}, ${count(Number(cpu["usable"] ?? cpu["cores"] ?? 0), "core")}` : "",
        typeof hardware?.["memory_bytes"] === "number" ? size(hardware["memory_bytes"]) : "",
      ]
        .filter(Boolean)
        .join("; "),
    ],
    ["processes", typeof about["world_size"] === "number" && about["world_size"] > 1 ? whole(about["world_size"]) : ""],
    ["cost", energy["cost"] !== undefined ? cost(num(energy["cost"]), energy) : ""],
    ["energy", energy["kwh"] !== undefined ? `${number(num(energy["kwh"]), 3)} kWh` : ""],
    [
      "data",
      Object.entries(dataset ?? {})
        .slice(0, 6)
        .map(([name, value]) => `${name} ${text(value)}`)
        .join(", "),
    ],
    [
      "code",
      commit
        ? `${commit.slice(0, 10)}${text(git?.["branch"]) ? ` on ${text(git?.["branch"])}` : ""}${git?.["dirty"] ? ", with changes not committed" : ""}`
        : "",
    ],
    ["command", command ? <code>{command}</code> : ""],
    [
      "host",
      [text(about["host"]), text(environment?.["python"]) && `Python ${text(environment?.["python"])}`]
        .filter(Boolean)
        .join(", "),
    ],
  ];
  return (
    <section class="panel block about" aria-label="About the run">
      <h2>Run</h2>
      <dl class="pairs">
        {rows.map(([name, value]) =>
          value ? (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ) : null,
        )}
      </dl>
    </section>
  );
}

const FEW = 18;

function Configuration({ detail }: { detail: RunDetail }) {
  const [all, setAll] = useState(false);
  const [find, setFind] = useState("");
  const flat = Object.entries(
    (detail as unknown as { config_flat?: Record<string, unknown> }).config_flat ?? detail.config,
  );
  if (!flat.length) return null;
  const matching = flat.filter(
    ([name, value]) => !find || `${name} ${text(value)}`.toLowerCase().includes(find.toLowerCase()),
  );
  const shown = all || find ? matching : matching.slice(0, FEW);
  return (
    <section class="panel block" aria-label="Configuration">
      <div class="charts-bar">
        <h2>
          Configuration <span class="quiet">{whole(flat.length)}</span>
        </h2>
        {flat.length > FEW && (
          <input
            class="field"
            type="search"
            placeholder="find a key or a value"
            aria-label="Find in the configuration"
            value={find}
            onInput={(event) => setFind(event.currentTarget.value)}
          />
        )}
      </div>
      <dl class="pairs config">
        {shown.map(([name, value]) => (
          <div key={name}>
            <dt class="mono">{name}</dt>
            <dd class="mono">{text(value) || "–"}</dd>
          </div>
        ))}
      </dl>
      {!find && flat.length > FEW && (
        <button type="button" class="button bare" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Fewer" : `All ${whole(flat.length)}`}
        </button>
      )}
    </section>
  );
}

function Checkpoints({ detail }: { detail: RunDetail }) {
  const all = detail.checkpoints ?? [];
  const [open, setOpen] = useState(false);
  if (!all.length) return null;
  const losses = all
    .map((one) => num(one["val_loss"]))
    .filter((loss): loss is number => loss !== null && Number.isFinite(loss));
  const best = losses.length ? Math.min(...losses) : NaN;
  const shown = open ? all : all.slice(-6);
  return (
    <section class="panel block" aria-label="Checkpoints">
      <h2>
        Checkpoints <span class="quiet">{whole(all.length)}</span>
      </h2>
      <Wide label="Checkpoints">
        <table class="facts">
          <thead>
            <tr>
              <th scope="col" class="number">
                step
              </th>
              <th scope="col" class="number">
                validation loss
              </th>
              <th scope="col" class="number">
                bits per byte
              </th>
              <th scope="col">file</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((one, at) => {
              const loss = num(one["val_loss"]);
              return (
                <tr key={at}>
                  <td class="number">{whole(num(one["step"]))}</td>
                  <td class="number">
                    {number(loss)}{" "}
                    {loss !== null && loss === best && losses.length > 1 && <span class="badge good">best</span>}
                  </td>
                  <td class="number">{number(num(one["val_bpb"]))}</td>
                  <td class="mono small">{text(one["path"])}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Wide>
      {all.length > 6 && (
        <button type="button" class="button bare" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "The last six" : `All ${whole(all.length)}`}
        </button>
      )}
    </section>
  );
}
