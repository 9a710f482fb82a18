/** What the runs page says when it has nothing to show: always with what to type next.
 *
 * In:   why there is nothing.
 * Out:  a few sentences, commands that can be copied.
 */

import { useState } from "preact/hooks";
import type { About } from "../api/types.ts";
import { Icon } from "../shell/icon.tsx";
import { toast } from "../shell/toast.tsx";

export function Command({ text, says }: { text: string; says: string }) {
  const [done, setDone] = useState(false);
  const copy = (): void => {
    navigator.clipboard?.writeText(text).then(
      () => {
        setDone(true);
        setTimeout(() => setDone(false), 1500);
      },
      () => toast({ text: "The browser does not allow copying here.", tone: "bad" }),
    );
  };
  return (
    <div class="command">
      <p>{says}</p>
      <pre>
        <code>{text}</code>
        <button
          type="button"
          class="button bare icon-only"
          aria-label={`Copy: ${text.split("\n")[0]}`}
          title="Copy"
          onClick={copy}
        >
          <Icon name={done ? "check" : "copy"} />
        </button>
      </pre>
    </div>
  );
}

const PROGRAM = `import barograph

run = barograph.init(project="gpt", config={"lr": 3e-4})
for step in range(1000):
    run.log({"train/loss": loss}, step=step)
run.finish()`;

export function NoRuns({ about }: { about: About | null }) {
  return (
    <div class="empty">
      <h1>No runs yet</h1>
      <p class="soft">
        There is no run in {about ? <code>{about.root}</code> : "this folder"}. The first one appears here by itself as
        soon as it begins.
      </p>
      <Command says="Try it: trains a small GPT on this machine, in about a minute." text="barograph demo" />
      <Command says="Record your own training." text={PROGRAM} />
      <Command
        says="Import runs of another tool: TensorBoard, W&B, Aim, MLflow, Trackio, JSON, CSV, logs."
        text="barograph import PATH"
      />
    </div>
  );
}

export function NoMatch({
  filter,
  archived,
  showArchived,
  clear,
}: {
  filter: string;
  archived: number;
  showArchived: () => void;
  clear: () => void;
}) {
  return (
    <div class="empty small-empty">
      <h1>{filter ? "No run matches" : "All runs are archived"}</h1>
      {filter && (
        <p class="soft">
          Nothing fits <code>{filter}</code>. Words are looked for in names, tags and notes; conditions are such as{" "}
          <code>config.lr &gt; 1e-3</code>.
        </p>
      )}
      <p class="buttons">
        {filter && (
          <button type="button" class="button" onClick={clear}>
            Clear the filter
          </button>
        )}
        {archived > 0 && (
          <button type="button" class="button" onClick={showArchived}>
            Show the archive ({archived})
          </button>
        )}
      </p>
    </div>
  );
}

export function Unreadable({ error, again }: { error: string; again: () => void }) {
  return (
    <div class="empty small-empty" role="alert">
      <h1>The runs cannot be read</h1>
      <p class="soft">{error}</p>
      <p class="buttons">
        <button type="button" class="button" onClick={again}>
          Try again
        </button>
      </p>
    </div>
  );
}

export function Waiting() {
  return (
    <div class="waiting" aria-busy="true" aria-label="Reading the runs">
      {Array.from({ length: 14 }, (_, at) => (
        <div key={at} class="waiting-row">
          <span class="skeleton" style={{ width: `${120 + ((at * 53) % 110)}px` }} />
          <span class="skeleton" style={{ width: "70px" }} />
          <span class="skeleton" style={{ width: `${60 + ((at * 31) % 80)}px` }} />
        </div>
      ))}
    </div>
  );
}
