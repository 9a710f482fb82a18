/** The sides of a comparison from the best on, and which of them do not differ from it significantly.
 *
 * In:   the ranking of the comparison.
 * Out:  a table.
 */

import { number } from "../shell/text.ts";
import type { Comparison, Rank } from "../api/types.ts";
import { Letter } from "./facts.tsx";
import { Wide } from "../shell/wide.tsx";

const TONES: Record<string, string> = { best: "tone-good", worse: "tone-bad" };

/** Half of the interval's width, where there is one. */
const half = ({ low, high }: Rank): string => (low === null || high === null ? "" : `± ${number((high - low) / 2, 2)}`);
const signed = (value: number): string => `${value > 0 ? "+" : value < 0 ? "−" : ""}${number(Math.abs(value), 3)}`;

const HEADS = ["runs", "from the best", "p"] as const;

export function RankingTable({ made, colours }: { made: Comparison; colours: readonly string[] }) {
  if (!made.ranking) return null;
  return (
    <section class="panel block">
      <h2>Ranking</h2>
      <Wide label="Ranking">
        <table class="facts ranking">
          <thead>
            <tr>
              <th scope="col" class="number">
                #
              </th>
              <th scope="col">Group</th>
              {[made.ranking.metric, ...HEADS].map((head) => (
                <th key={head} scope="col" class="number">
                  {head}
                </th>
              ))}
              <th scope="col">Outcome</th>
            </tr>
          </thead>
          <tbody>
            {made.ranking.ranks.map((rank, at) => (
              <tr key={rank.side}>
                <td class="number quiet">{rank.value === null || rank.why ? "" : at + 1}</td>
                <th scope="row">
                  <Letter side={rank.side} colour={colours[rank.side]} /> {rank.label}
                </th>
                <td class="number">
                  {rank.value === null ? "–" : number(rank.value)} <span class="quiet">{half(rank)}</span>
                </td>
                <td class="number">{rank.runs === rank.of ? rank.of : `${rank.runs} of ${rank.of}`}</td>
                <td class="number">{rank.difference === null ? "" : signed(rank.difference)}</td>
                <td class="number">{rank.p === null ? "" : rank.p < 0.0001 ? "< 0.0001" : number(rank.p, 2)}</td>
                <td class={TONES[rank.outcome] ?? ""}>{rank.why || rank.outcome}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      <p class="quiet small">
        ± is half of the 95% interval of the mean. A difference counts where p is below {number(made.ranking.level, 2)}:
        every pair counts as a test, so that choosing the best adds no false verdict.
      </p>
    </section>
  );
}
