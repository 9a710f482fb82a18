/** The one toolbar of charts: x-axis, smoothing, scales, panels of expressions.
 *
 * In:   the group of charts that it rules.
 * Out:  changes to the group's settings; the address follows (`choice.ts`).
 */

import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { Icon } from "../shell/icon.tsx";
import { Pop } from "../shell/pop.tsx";
import { familyOf, LAYER_TABLES } from "./families.ts";
import { smoothOf, type Group, type Settings } from "./group.ts";

export const AXES: readonly (readonly [string, string])[] = [
  ["step", "step"],
  ["relative", "time since start"],
  ["time", "clock time"],
  ["tokens", "tokens"],
  ["samples", "samples"],
];

const MOST_NAMES = 300; // in the list of axes; any other is typed
const OTHER = "\n"; // no series is called so

/** The group's settings, and a new drawing when they change. */
export function useSettings(group: Group): Settings {
  const [, again] = useReducer((count: number) => count + 1, 0);
  useEffect(() => group.join({ onSettings: () => again(0), onNames: () => again(0) }), [group]);
  return group.settings;
}

interface Props {
  group: Group;
  expressions?: boolean;
  /** What the axis is called where another one has that name. */
  axisLabel?: string;
}

export function ChartToolbar({ group, expressions = true, axisLabel }: Props) {
  const settings = useSettings(group);
  return (
    <>
      <AxisChoice axis={settings.x} set={(x) => group.set({ x })} names={axisNames(group.names)} label={axisLabel} />
      <button
        type="button"
        class="button"
        aria-pressed={settings.logX}
        title="Logarithmic x-axis"
        onClick={() => group.set({ logX: !settings.logX })}
      >
        log x
      </button>
      <Smoothing value={settings.smooth} set={(smooth) => group.set({ smooth })} />
      {expressions && <NewExpression group={group} />}
      <Scales group={group} />
    </>
  );
}

/** Metrics over which others can be drawn: those of the whole model, not of its layers or devices. */
export function axisNames(names: readonly string[]): string[] {
  return names.filter((name) => !LAYER_TABLES.has(familyOf(name)) && familyOf(name) !== "machine").slice(0, MOST_NAMES);
}

interface AxisProps {
  axis: string;
  set: (axis: string) => void;
  axes?: readonly (readonly [string, string])[];
  /** Series, below the axes that every run has. */
  names?: readonly string[];
  label?: string | undefined;
}

export function AxisChoice({ axis, set, axes = AXES, names = [], label = "x-axis" }: AxisProps) {
  const [typed, setTyped] = useState<string | null>(null);
  const known = axes.some(([name]) => name === axis) || names.includes(axis);
  if (typed !== null)
    return (
      <form
        class="labelled"
        onSubmit={(event) => {
          event.preventDefault();
          setTyped(null);
          if (typed.trim()) set(typed.trim());
        }}
      >
        <span class="quiet">{label}</span>
        <input
          class="field mono"
          aria-label={`${label}, a metric or an expression`}
          placeholder="train/loss - eval/loss"
          value={typed}
          spellcheck={false}
          ref={(node) => node?.focus()}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Escape" && setTyped(null)}
        />
      </form>
    );
  return (
    <label class="labelled">
      <span class="quiet">{label}</span>
      <select
        class="field"
        aria-label={label}
        value={axis}
        onChange={(event) => {
          if (event.currentTarget.value !== OTHER) return set(event.currentTarget.value);
          event.currentTarget.value = axis;
          setTyped("");
        }}
      >
        {axes.map(([name, says]) => (
          <option key={name} value={name}>
            {says}
          </option>
        ))}
        {!known && <option value={axis}>{axis}</option>}
        {names.length > 0 && (
          <optgroup label="Metrics">
            {names.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </optgroup>
        )}
        {axes === AXES && <option value={OTHER}>Metric or expression …</option>}
      </select>
    </label>
  );
}

const KINDS: readonly (readonly [string, string])[] = [
  ["ema", "Exponential average"],
  ["mean", "Running mean"],
  ["gaussian", "Gaussian"],
];
const SMOOTHEST = 0.999;
const WIDEST = 1000; // points of a running mean that the slider reaches

/** A slider that is finer near its end for the average, and in ratios for a number of points. */
export function Smoothing({ value, set }: { value: string | number; set: (value: string) => void }) {
  const given = smoothOf(value);
  const [own, setOwn] = useState(given);
  const [kind, setKind] = useState(given.includes(":") ? (given.split(":")[0] ?? "ema") : "ema");
  const timer = useRef<ReturnType<typeof setTimeout>>();
  useEffect(() => {
    setOwn(given);
    if (given) setKind(given.includes(":") ? (given.split(":")[0] ?? "ema") : "ema");
  }, [given]);
  const amount = Number(own.split(":").pop() || 0);
  const average = kind === "ema";
  const place = !own
    ? 0
    : average
      ? 1 - Math.sqrt(Math.max(0, 1 - amount / SMOOTHEST))
      : Math.log(Math.max(1, amount)) / Math.log(WIDEST);
  const at = (place: number, kind: string): string => {
    if (place <= 0) return "";
    if (kind === "ema") return smoothOf(Math.round(SMOOTHEST * (1 - (1 - place) ** 2) * 1000) / 1000);
    return smoothOf(`${kind}:${Math.max(2, Math.round(WIDEST ** place))}`);
  };
  const change = (next: string): void => {
    setOwn(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => set(next), 120);
  };
  const says = !own ? "none" : average ? amount.toFixed(amount > 0.99 ? 3 : 2) : `${amount} points`;
  return (
    <Pop
      button={
        <>
          <Icon name="chart" /> {own ? `Smoothing ${says}` : "Smoothing"}
        </>
      }
      label="Smoothing"
      class={`button ${own ? "on" : ""}`}
      paneClass="smoothing"
    >
      {() => (
        <>
          <label for="smoothing-kind">Kind</label>
          <select
            id="smoothing-kind"
            class="field"
            value={kind}
            onChange={(event) => {
              const next = event.currentTarget.value;
              setKind(next);
              if (own) change(at(place, next));
            }}
          >
            {KINDS.map(([name, says]) => (
              <option key={name} value={name}>
                {says}
              </option>
            ))}
          </select>
          <label for="smoothing">Smoothing</label>
          <input
            id="smoothing"
            type="range"
            min="0"
            max="1"
            step="0.01"
            value={String(place)}
            aria-valuetext={says}
            onInput={(event) => change(at(Number(event.currentTarget.value), kind))}
          />
          <output>{says}</output>
          <button type="button" class="button bare" onClick={() => change("")}>
            none
          </button>
          <p class="quiet small">The values stay behind it.</p>
        </>
      )}
    </Pop>
  );
}

function NewExpression({ group }: { group: Group }) {
  const [text, setText] = useState("");
  return (
    <Pop
      button={
        <>
          <Icon name="plus" /> Expression
        </>
      }
      label="Add a panel of an expression"
      class="button"
      paneClass="view-pane"
    >
      {(close) => (
        <form
          class="new-panel"
          onSubmit={(event) => {
            event.preventDefault();
            const said = text.trim();
            if (!said) return;
            close();
            setText("");
            group.set({ expressions: [...new Set([...group.settings.expressions, said])] });
          }}
        >
          <label>
            Expression of metrics
            <input
              class="field mono"
              data-first
              value={text}
              placeholder="train/loss - eval/loss"
              spellcheck={false}
              maxLength={500}
              onInput={(event) => setText(event.currentTarget.value)}
            />
          </label>
          <p class="quiet small">
            Blanks around - and /, since names have them. Functions: ema(x, 0.99), mean(x, 25), gaussian(x, 25),
            slope(x), best(x), log(x), exp(x), min(x, y) …
          </p>
          <button type="submit" class="button" disabled={!text.trim()}>
            Add a panel
          </button>
        </form>
      )}
    </Pop>
  );
}

const onOff = (value: boolean | null): string => (value === null ? "own" : value ? "yes" : "no");
const read = (text: string): boolean | null => (text === "own" ? null : text === "yes");

function Scales({ group }: { group: Group }) {
  const { logY, typical, branch } = group.settings;
  const choice = (says: string, value: boolean | null, options: string[], set: (value: boolean | null) => void) => (
    <label class="choice">
      {says}
      <select class="field" value={onOff(value)} onChange={(event) => set(read(event.currentTarget.value))}>
        {["own", "yes", "no"].map((name, at) => (
          <option key={name} value={name}>
            {options[at]}
          </option>
        ))}
      </select>
    </label>
  );
  const tick = (says: string, value: boolean, set: (value: boolean) => void) => (
    <label class="choice">
      <input type="checkbox" checked={value} onChange={(event) => set(event.currentTarget.checked)} /> {says}
    </label>
  );
  return (
    <Pop
      button={
        <>
          <Icon name="more" /> Scales
        </>
      }
      label="Scales of the charts"
      class={`button ${logY !== null || typical !== null || branch === "live" ? "on" : ""}`}
      paneClass="view-pane"
    >
      {() => (
        <>
          {choice("y axes", logY, ["automatic", "logarithmic", "linear"], (logY) => group.set({ logY }))}
          {choice("y range", typical, ["without divergence", "middle 98% of values", "all values"], (typical) =>
            group.set({ typical }),
          )}
          {tick("Branches that a resume or rewind left behind", branch === "all", (on) =>
            group.set({ branch: on ? "all" : "live" }),
          )}
          <p class="quiet small">
            Drag to zoom, double click for all, Ctrl and the wheel or a pinch to zoom, a sideways wheel or Alt and a
            drag to pan, Shift and a drag to compare a range with the one before it.
          </p>
        </>
      )}
    </Pop>
  );
}
