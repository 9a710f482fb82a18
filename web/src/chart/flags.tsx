/** Flags above a chart: findings, checkpoints, resumes, where they happened.
 *
 * In:   flags with their x and what they say, the plot that knows where an x is.
 * Out:  links and marks at their places; of those too close to each other the gravest, with how many more.
 */

import type { RefObject } from "preact";
import { useLayoutEffect } from "preact/hooks";
import type { Control } from "./control.ts";
import type { Flag } from "./scene.ts";

interface Props {
  flags: readonly Flag[];
  control: RefObject<Control>;
  /** Called after every drawing of the plot. */
  place: { current: (() => void) | null };
  box: RefObject<HTMLDivElement>;
  x: string;
}

const ORDER: Record<Flag["kind"], number> = { critical: 0, warning: 1, info: 2, resume: 3, checkpoint: 4, eval: 5 };
const CLOSE = 13; // pixels between two flags that can be distinguished
const SIGNS: Record<Flag["kind"], string> = {
  critical: "!",
  warning: "!",
  info: "i",
  checkpoint: "",
  resume: "",
  eval: "",
};

export function FlagLayer({ flags, control, place, box, x }: Props) {
  const ordered = [...flags].sort((a, b) => ORDER[a.kind] - ORDER[b.kind] || a.x - b.x);

  useLayoutEffect(() => {
    place.current = () => {
      const plot = control.current?.plot;
      const layer = box.current;
      if (!plot || !layer) return;
      const taken: { left: number; of: HTMLElement; more: number; story: boolean }[] = [];
      for (const [at, node] of [...layer.children].entries()) {
        const flag = ordered[at];
        if (!(node instanceof HTMLElement) || !flag) continue;
        const left = plot.left(flag.x);
        const story = ORDER[flag.kind] < 3;
        const near =
          left === null ? undefined : taken.find((one) => one.story === story && Math.abs(one.left - left) < CLOSE);
        node.hidden = left === null || near !== undefined;
        if (near) {
          near.more += 1;
          near.of.dataset["more"] = `+${near.more}`;
        } else if (left !== null) {
          delete node.dataset["more"];
          node.style.left = `${Math.round(left)}px`;
          taken.push({ left, of: node, more: 0, story });
        }
      }
    };
    place.current();
    return () => {
      place.current = null;
    };
  });

  if (x !== "step") return null; // what happened at a step has no known place on another axis
  return (
    <div ref={box} class="chart-flags">
      {ordered.map((flag) =>
        flag.href ? (
          <a
            key={`${flag.kind}${flag.x}${flag.label}`}
            class={`flag ${flag.kind}`}
            href={flag.href}
            title={flag.label}
            aria-label={flag.label}
            hidden
          >
            <span>
              <b>{SIGNS[flag.kind]}</b>
            </span>
          </a>
        ) : (
          <span key={`${flag.kind}${flag.x}${flag.label}`} class={`flag ${flag.kind}`} title={flag.label} hidden>
            <span />
          </span>
        ),
      )}
    </div>
  );
}
