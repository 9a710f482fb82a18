/** One finding: what, since when, the curve around it, why, and what to do.
 *
 * In:   a finding.
 * Out:  an entry of the list; a link to the chart at its step.
 */

import { useMemo, useState } from "preact/hooks";
import type { Finding, Key, Spark } from "../api/types.ts";
import { formatQuery, runPlace, withQuery } from "../shell/address.ts";
import { Icon } from "../shell/icon.tsx";
import { count, whole } from "../shell/text.ts";
import { Chart } from "../chart/chart.tsx";
import { Group } from "../chart/group.ts";
import { Lazy } from "../chart/lazy.tsx";
import { colourOf } from "../shell/runcolours.ts";
import { useTheme } from "../shell/theme.ts";
import { split } from "./headline.ts";
import { stretchOf } from "./stretch.ts";
import { evidenceRows, lastLines, seriesOf } from "./evidence.ts";
import { drawSpark } from "./spark.ts";

const CHART = 190; // pixels of the plot

/** The series of a finding from before its onset to behind the worst of it. */
function FindingChart({ finding, runKey, series }: { finding: Finding; runKey: Key; series: string }) {
  const theme = useTheme();
  const { step, found, evidence, severity, message } = finding;
  const group = useMemo(
    () => new Group({ x: "step" }, stretchOf({ step, found, spark: evidence.spark, story: evidence.story ?? [] })),
    [runKey, series, step, found],
  );
  if (!evidence.spark) return null;
  return (
    <Lazy height={CHART + 36}>
      <Chart
        series={[{ run: runKey, name: series, label: series, colour: colourOf(runKey, theme) }]}
        x="step"
        group={group}
        title={series}
        level={3}
        height={CHART}
        flags={[{ x: step, kind: severity, label: `Step ${step}: ${message}` }]}
      />
    </Lazy>
  );
}

const NAMES = { critical: "Critical", warning: "Warning", info: "Info" } as const;
const MOST_CAUSES = 4;

export function chartAt(key: Key, step: number, series: string): string {
  return runPlace(key, "charts") + formatQuery(withQuery(new URLSearchParams(), { at: step, series }));
}

interface CardProps {
  finding: Finding;
  runKey: Key;
  open?: boolean;
  /** The page's headline says its first sentence. */
  first?: boolean;
}

export function FindingCard({ finding, runKey, open = false, first = false }: CardProps) {
  const [shown, setShown] = useState(open);
  const { severity, step, last_step: last, message, rule, evidence, causes, remedies, confidence } = finding;
  const where = last > step ? `steps ${whole(step)} to ${whole(last)}` : `step ${whole(step)}`;
  const series = seriesOf(finding);
  const says = first ? split(message)[1] : message;
  const story = evidence.story ?? [];
  return (
    <li class={`finding ${severity}`} id={`${rule}-${step}`}>
      <header>
        <span class={`badge ${severity}`}>
          <Icon name={severity} /> {NAMES[severity]}
        </span>
        <a class="where" href={chartAt(runKey, step, series)} title={`See ${series} there`}>
          {where}
        </a>
        <span class="rule quiet">{rule.replaceAll("_", " ")}</span>
        <span class="grow" />
        <span class="quiet small" title="The rule's confidence in this finding">
          confidence {Math.round(confidence * 100)}%
        </span>
      </header>
      {says && (
        <p class="says">
          <Told text={says} />
        </p>
      )}
      {open ? (
        <FindingChart finding={finding} runKey={runKey} series={series} />
      ) : (
        evidence.spark && <SparkLine spark={evidence.spark} step={step} />
      )}
      {!shown ? (
        <button type="button" class="button bare small" onClick={() => setShown(true)}>
          <Icon name="right" /> Evidence{remedies.length ? ", causes, remedies" : ""}
        </button>
      ) : (
        <div class="finding-body">
          {remedies.length > 0 && (
            <section class="do">
              <h3>What to try</h3>
              <ul>
                {remedies.map((one) => (
                  <li key={one}>
                    <Told text={one} />
                  </li>
                ))}
              </ul>
            </section>
          )}
          {causes.length > 0 && <Causes causes={causes} />}
          {story.length > 0 && (
            <section>
              <h3>Related events</h3>
              <ol class="story">
                {story.map((one) => (
                  <li key={`${one.rule} ${one.step}`}>
                    <a href={chartAt(runKey, one.step, series)}>step {whole(one.step)}</a>
                    <span class={`tone-${one.severity}`}>
                      <Icon name={one.severity} label={one.severity} />
                    </span>
                    <span>{one.message}</span>
                  </li>
                ))}
              </ol>
            </section>
          )}
          <Evidence finding={finding} />
          <p class="finding-links">
            <a class="button" href={chartAt(runKey, step, series)}>
              <Icon name="chart" /> {series} at step {whole(step)}
            </a>
          </p>
        </div>
      )}
    </li>
  );
}

/** What stands between backticks is code. */
function Told({ text }: { text: string }) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) return <>{text}</>; // one that is not closed
  return <>{parts.map((part, at) => (at % 2 ? <code key={at}>{part}</code> : part))}</>;
}

function Causes({ causes }: { causes: readonly string[] }) {
  const [all, setAll] = useState(false);
  const shown = all ? causes : causes.slice(0, MOST_CAUSES);
  return (
    <section>
      <h3>Likely causes</h3>
      <ol class="causes">
        {shown.map((one, at) => (
          <li key={one} class={at === 0 ? "first" : ""}>
            <Told text={one} />
          </li>
        ))}
      </ol>
      {causes.length > shown.length && (
        <button type="button" class="button bare small" onClick={() => setAll(true)}>
          {count(causes.length - shown.length, "more cause")}
        </button>
      )}
    </section>
  );
}

function Evidence({ finding }: { finding: Finding }) {
  const rows = evidenceRows(finding.evidence);
  if (finding.found > finding.step) rows.push(["detectable from step", whole(finding.found)]);
  if (finding.segment > 1) rows.push(["segment", whole(finding.segment)]);
  const lines = lastLines(finding.evidence);
  if (rows.length === 0 && lines.length === 0) return null;
  return (
    <section>
      <h3>Evidence</h3>
      <dl class="evidence">
        {rows.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {lines.length > 0 && <pre class="last">{lines.join("\n")}</pre>}
    </section>
  );
}

const HEIGHT = 34;

export function SparkLine({ spark, step }: { spark: Spark; step: number }) {
  const { lines, marks, width, at } = drawSpark(spark, step);
  const y = (level: number): number => HEIGHT - 3 - (level / 7) * (HEIGHT - 8);
  return (
    <figure class="spark">
      <svg
        viewBox={`0 0 ${width * 6} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${spark.series} from step ${whole(spark.from)} to ${whole(spark.to)}${marks.length ? `, ${count(marks.length, "value")} not finite` : ""}`}
      >
        {at !== null && <line class="spark-at" x1={at * 6} x2={at * 6} y1={0} y2={HEIGHT} />}
        {lines.map((line, index) => (
          <polyline
            key={index}
            class="spark-line"
            points={line.map(([x, level]) => `${x * 6},${y(level).toFixed(1)}`).join(" ")}
          />
        ))}
        {marks.map((mark) => (
          <line key={mark.x} class="spark-mark" x1={mark.x * 6} x2={mark.x * 6} y1={2} y2={9} />
        ))}
      </svg>
      <figcaption>
        <span class="mono">{spark.series}</span>
        <span class="quiet">
          steps {whole(spark.from)} to {whole(spark.to)}
          {marks.length > 0 && <span class="tone-bad">, {count(marks.length, "value")} not finite</span>}
        </span>
      </figcaption>
    </figure>
  );
}
