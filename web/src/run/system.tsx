/** The machines of a run: where the time and the money went, ranks as a wall, devices, the host.
 *
 * In:   what the server knows of phases, goodput, ranks, devices and cost.
 * Out:  bars, walls of tiles with what is wrong said in words, and the charts behind them.
 */

import { useMemo, useState } from "preact/hooks";
import { Chart } from "../chart/chart.tsx";
import type { Line } from "../chart/control.ts";
import { Group } from "../chart/group.ts";
import { lineColours, sequence } from "../shell/colour.ts";
import { placeOf } from "../shell/runcolours.ts";
import { Lazy } from "../chart/lazy.tsx";
import { runPlace } from "../shell/address.ts";
import { useTheme } from "../shell/theme.ts";
import { duration, number, size, whole, percent } from "../shell/text.ts";
import type { System } from "../api/types.ts";
import { num, word } from "../api/values.ts";
import { useJson } from "./data.ts";
import { Figure } from "./figures.tsx";
import { CAUSES, cost as costText, devicesOf, ranksOf, type Rank } from "./machines.ts";
import type { TabProps } from "./view.tsx";

const BEATS = 2;

export function SystemTab({ runKey, beat }: TabProps) {
  const { value, error } = useJson<System>(runKey, "/system", Math.floor(beat / BEATS));
  const group = useMemo(() => new Group({ x: "step" }), [runKey]);
  if (!value)
    return error ? (
      <p class="bad" role="alert">
        {error}
      </p>
    ) : (
      <p class="quiet" role="status">
        Loading …
      </p>
    );
  const { totals, cost } = value;
  return (
    <div class="system">
      <dl class="figures-strip" aria-label="Time and cost">
        <Figure says="wall time" value={duration(num(totals?.["wall_seconds"]))} />
        <Figure
          says="goodput"
          value={totals?.["goodput"] !== undefined ? `${((num(totals["goodput"]) ?? 0) * 100).toFixed(1)}%` : "–"}
        />
        {num(cost?.["gpu_hours"]) ? <Figure says="GPU hours" value={number(num(cost?.["gpu_hours"]), 3)} /> : null}
        {cost?.["cost"] !== undefined && <Figure says="cost" value={costText(num(cost["cost"]), cost)} />}
        {cost?.["kwh"] !== undefined && <Figure says="energy" value={`${number(num(cost["kwh"]), 3)} kWh`} />}
        {cost?.["tokens_per_joule"] !== undefined && (
          <Figure says="tokens per joule" value={number(num(cost["tokens_per_joule"]), 3)} />
        )}
        {num(totals?.["crashes"]) ? <Figure says="crashes" value={whole(num(totals?.["crashes"]))} /> : null}
        {num(totals?.["redone_steps"]) ? (
          <Figure says="repeated steps" value={whole(num(totals?.["redone_steps"]))} />
        ) : null}
      </dl>
      <Goodput system={value} />
      <Phases system={value} runKey={runKey} group={group} />
      <Ranks system={value} runKey={runKey} group={group} />
      <Devices system={value} runKey={runKey} group={group} />
      <Host system={value} runKey={runKey} group={group} />
      {!value.ranks.length && !value.gpus.length && !value.phases.length && (
        <p class="quiet">
          No phases, ranks or devices were recorded: <a href={runPlace(runKey, "charts")}>the charts</a> have what there
          is.
        </p>
      )}
    </div>
  );
}

/** One bar for all the time; what was not training stands out. */
function Goodput({ system }: { system: System }) {
  const shown = system.goodput.filter((one) => one.percent > 0.005);
  if (!shown.length) return null;
  const said = shown.map((one) => `${one.cause} ${percent(one.percent / 100)}`).join(", ");
  return (
    <section class="panel block" aria-label="Where the time went">
      <h2>Where the time went</h2>
      <div class="stack-bar" role="img" aria-label={said}>
        {shown.map((one) => (
          <span
            key={one.cause}
            class={`cause ${one.cause}`}
            style={{ width: `${one.percent}%` }}
            title={`${one.cause}: ${duration(one.seconds)}, ${percent(one.percent / 100)}`}
          />
        ))}
      </div>
      <table class="facts causes-table">
        <tbody>
          {shown.map((one) => (
            <tr key={one.cause}>
              <th scope="row">
                <i class={`dot cause ${one.cause}`} /> {one.cause}
              </th>
              <td class="quiet">{CAUSES[one.cause] ?? ""}</td>
              <td class="number">{percent(one.percent / 100)}</td>
              <td class="number">{duration(one.seconds)}</td>
              {system.goodput.some((cause) => cause.money) && (
                <td class="number">{costText(one.money, system.cost)}</td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

interface Part {
  system: System;
  runKey: string;
  group: Group;
}

function Phases({ system, runKey, group }: Part) {
  const theme = useTheme();
  const phases = [...system.phases].sort((a, b) => b.ms - a.ms);
  const colours = lineColours(0, phases.length, theme);
  const lines = useMemo(
    (): Line[] =>
      phases.map((phase, at) => ({
        run: runKey,
        name: phase.series,
        label: phase.name,
        colour: colours[at] ?? "#888888",
      })),
    [phases.map((phase) => phase.series).join(), theme],
  );
  if (!phases.length) return null;
  const whole = phases.reduce((sum, phase) => sum + phase.ms, 0);
  return (
    <section class="panel block" aria-label="Phases of a step">
      <h2>
        Phases of a step <span class="quiet">medians, {number(whole, 4)} ms together</span>
      </h2>
      <div
        class="stack-bar"
        role="img"
        aria-label={phases.map((phase) => `${phase.name} ${number(phase.ms, 3)} ms`).join(", ")}
      >
        {phases.map((phase, at) => (
          <span
            key={phase.name}
            style={{ width: `${(phase.ms / whole) * 100}%`, background: colours[at] ?? "" }}
            title={`${phase.name}: ${number(phase.ms, 4)} ms, ${((phase.ms / whole) * 100).toFixed(1)}%`}
          />
        ))}
      </div>
      <ul class="chart-legend">
        {phases.map((phase, at) => (
          <li key={phase.name} class="small legend-word">
            <i class="key" style={{ color: colours[at] ?? "" }} /> {phase.name}{" "}
            <span class="quiet">{number(phase.ms, 3)} ms</span>
          </li>
        ))}
      </ul>
      <Lazy height={250}>
        <Chart series={lines} x="step" group={group} title="Milliseconds by phase" height={210} zero />
      </Lazy>
    </section>
  );
}

/** Every rank a tile. In a synchronous training the one that waits least is the one all others wait for. */
function Ranks({ system, runKey, group }: Part) {
  const theme = useTheme();
  const [field, setField] = useState<"own" | "wait_ms" | "step_ms">("own");
  const found = useMemo(() => ranksOf(system), [system]);
  const [chosen, choose] = useState<number | null>(null);
  const lines = useMemo((): Line[] => {
    const own = field === "own" ? "wait_ms" : field;
    const some = found.ranks
      .filter(
        (rank) => rank.series?.[own] && (chosen === null || rank.rank === chosen || found.slow.includes(rank.rank)),
      )
      .slice(0, 64);
    const colours = some.length > 8 ? sequence(some.length, theme) : lineColours(0, some.length, theme);
    return some.map((rank, at) => ({
      run: runKey,
      name: rank.series?.[own] ?? "",
      label: `rank ${rank.rank}`,
      colour: colours[at] ?? "#888888",
    }));
  }, [found, field, chosen, theme]);
  const timed = found.ranks.some((rank) => rank.step_ms !== undefined);
  if (!found.ranks.length || (found.ranks.length === 1 && !timed && !found.gone.length)) return null;
  const words: Record<typeof field, string> = { own: "own work", wait_ms: "waiting", step_ms: "whole step" };
  return (
    <section class="panel block" aria-label="Ranks">
      <div class="charts-bar">
        <h2>
          Ranks <span class="quiet">{whole(found.ranks.length)}</span>
        </h2>
        {timed && (
          <span class="segmented" role="group" aria-label="What the tiles show">
            {(["own", "wait_ms", "step_ms"] as const).map((one) => (
              <button key={one} type="button" class="button" aria-pressed={field === one} onClick={() => setField(one)}>
                {words[one]}
              </button>
            ))}
          </span>
        )}
      </div>
      <p class={found.slow.length || found.gone.length ? "soft" : "quiet small"}>{found.sentence}</p>
      <ul class="wall">
        {found.ranks.map((rank) => (
          <Tile
            key={rank.rank}
            rank={rank}
            field={field}
            most={found.most[field]}
            slow={found.slow.includes(rank.rank)}
            chosen={chosen === rank.rank}
            choose={() => choose(chosen === rank.rank ? null : rank.rank)}
          />
        ))}
      </ul>
      {lines.length > 0 && (
        <Lazy height={250}>
          <Chart
            series={lines}
            x="step"
            group={group}
            title={field === "step_ms" ? "Step of each rank, ms" : "Waiting of each rank, ms"}
            height={210}
            zero
          />
        </Lazy>
      )}
      {system.stragglers.length > 0 && (
        <ul class="plain-list small">
          {system.stragglers.slice(-6).map((one, at) => (
            <li key={at}>
              Step {whole(num(one["step"]))}: rank {word(one["rank"])}
              {one["host"] ? ` on ${word(one["host"])}` : ""}{" "}
              {one["recovered"]
                ? "has recovered"
                : `is ${((num(one["slower_by"]) ?? 0) * 100).toFixed(0)}% slower than the others, since step ${whole(num(one["since"]))}`}
              .
            </li>
          ))}
        </ul>
      )}
      {(system.stalls?.length ?? 0) > 0 && (
        <ul class="plain-list small">
          {system.stalls?.slice(-6).map((one, at) => (
            <li key={at}>
              Step {whole(num(one["step"]))}: nothing for {duration(num(one["waited_seconds"]))}; rank{" "}
              {word(one["rank"], "0")} was in {word(one["where"], "an unknown place")}.
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

interface TileProps {
  rank: Rank;
  field: "own" | "wait_ms" | "step_ms";
  most: number;
  slow: boolean;
  chosen: boolean;
  choose: () => void;
}

function Tile({ rank, field, most, slow, chosen, choose }: TileProps) {
  const value = rank[field];
  const gone = rank.alive === false && rank.status !== "ended" && rank.status !== "finished";
  const state = gone ? "gone" : slow ? "the others wait for it" : rank.alive === false ? "ended" : "";
  const words = `rank ${rank.rank}${rank.host ? ` on ${rank.host}` : ""}${value !== undefined ? `: ${number(value, 4)} ms` : ""}${state ? `, ${state}` : ""}`;
  return (
    <li>
      <button
        type="button"
        class={`tile ${gone ? "gone" : slow ? "slow" : ""} ${chosen ? "on" : ""}`}
        title={words}
        aria-pressed={chosen}
        onClick={choose}
      >
        <span class="tile-name">
          <span class="unseen">rank </span>
          {rank.rank}
        </span>
        <span class="tile-bar">
          <span style={{ height: `${value !== undefined && most > 0 ? Math.max(2, (value / most) * 100) : 0}%` }} />
        </span>
        <span class="tile-value">{gone ? "gone" : value !== undefined ? number(value, 3) : (rank.status ?? "–")}</span>
        {state && <span class="unseen">, {state}</span>}
      </button>
    </li>
  );
}

const CHARTED: [string, string][] = [
  ["gpu_util", "Utilisation, %"],
  ["power", "Power"],
  ["temperature", "Temperature, °C"],
  ["dram_free", "Free memory"],
  ["clock", "Clock, MHz"],
  ["sm_active", "Active multiprocessors"],
  ["tensor_active", "Active tensor cores"],
];

function Devices({ system, runKey, group }: Part) {
  const theme = useTheme();
  const devices = useMemo(() => devicesOf(system), [system]);
  if (!devices.length) return null;
  const colours = devices.length > 8 ? sequence(devices.length, theme) : lineColours(0, devices.length, theme);
  return (
    <section class="panel block" aria-label="Devices">
      <h2>
        Devices <span class="quiet">{devices[0]?.name ?? ""}</span>
      </h2>
      <ul class="wall wide">
        {devices.map((device) => (
          <li key={device.id}>
            <div class={`tile device ${device.trouble ? "slow" : ""}`} title={device.words}>
              <span class="tile-name">
                GPU {device.id}{" "}
                <strong>{device.utilisation !== undefined ? `${Math.round(device.utilisation)}%` : "–"}</strong>
              </span>
              <span class="meter" role="img" aria-label={`utilisation ${device.utilisation ?? "unknown"}%`}>
                <span style={{ width: `${Math.max(0, Math.min(100, device.utilisation ?? 0))}%` }} />
              </span>
              <span class="small quiet">{device.words}</span>
              {device.trouble && <span class="small bad">{device.trouble}</span>}
            </div>
          </li>
        ))}
      </ul>
      <div class="panels">
        {CHARTED.map(([field, title]) => {
          const lines = devices.flatMap((device, at): Line[] =>
            device.series[field]
              ? [
                  {
                    run: runKey,
                    name: device.series[field] ?? "",
                    label: `GPU ${device.id}`,
                    colour: colours[at] ?? "#888888",
                  },
                ]
              : [],
          );
          return lines.length ? (
            <Lazy key={field} height={252}>
              <Chart series={lines} x="step" group={group} title={title} height={200} zero={field !== "temperature"} />
            </Lazy>
          ) : null;
        })}
      </div>
    </section>
  );
}

function Host({ system, runKey, group }: Part) {
  const theme = useTheme();
  const { host, host_series: names = [] } = system;
  if (!host || !names.length) return null;
  const used = num(host["host/memory_used"]);
  const limit = num(host["host/memory_limit"]);
  const colours = lineColours(placeOf(runKey), 2, theme);
  const charts: [string, string[]][] = [
    ["CPU of the machine, % of all cores", ["host/cpu_util"]],
    ["CPU of the process, % of one core", ["host/process_cpu"]],
    ["Memory", ["host/memory_used", "host/process_rss"]],
    ["Disk", ["host/disk_read", "host/disk_write"]],
    ["Network", ["host/network_rx", "host/network_tx"]],
  ];
  return (
    <section class="panel block" aria-label="Host">
      <h2>
        Host{" "}
        <span class="quiet">
          {number(num(host["host/cpu_util"]), 3)}% of {number(num(host["host/cpu_cores"]), 3)} cores, {size(used)} of{" "}
          {size(limit)}
        </span>
      </h2>
      <div class="panels">
        {charts.map(([title, all]) => {
          const found = all.filter((name) => names.includes(name));
          return found.length ? (
            <Lazy key={title} height={252}>
              <Chart
                series={found.map((name, at) => ({
                  run: runKey,
                  name,
                  label: name.slice(5),
                  colour: colours[at] ?? "#888888",
                }))}
                x="step"
                group={group}
                title={title}
                height={200}
                zero
              />
            </Lazy>
          ) : null;
        })}
      </div>
    </section>
  );
}
