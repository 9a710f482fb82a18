/** The menu of a layout: hidden panels, own panels, size, what a project shares.
 *
 * In:   the layout and the families that there are.
 * Out:  changes to the layout.
 */

import { useState } from "preact/hooks";
import { Icon } from "../shell/icon.tsx";
import { Pop } from "../shell/pop.tsx";
import { toast } from "../shell/toast.tsx";
import { whole } from "../shell/text.ts";
import type { Family } from "./families.ts";
import { save } from "./image.ts";
import type { LayoutState } from "./layout.ts";

interface Props {
  state: LayoutState;
  project: string;
  families: readonly Family[];
  example: string;
}

export function LayoutBar({ state, project, families, example }: Props) {
  const { layout, change } = state;
  const all = new Set(families.flatMap((family) => family.panels.map((panel) => panel.id)));
  const hidden = layout.hidden.filter((id) => all.has(id));
  const told = (what: Promise<void>, done: string): void =>
    void what.then(
      () => toast({ text: done }),
      (error: unknown) => toast({ text: (error as Error).message, tone: "bad" }),
    );
  return (
    <div class="layout-bar">
      <Pop
        button={
          <>
            <Icon name="columns" /> Panels
            {hidden.length > 0 && <span class="count">{whole(hidden.length)} hidden</span>}
          </>
        }
        label="Panel layout"
        class="button bare"
        paneClass="layout-pane"
      >
        {(close) => (
          <>
            <NewPanel
              example={example}
              add={(match, title) => {
                close();
                change({ ...layout, own: [...layout.own, { id: `own ${match}`, title, match, logY: false }] });
              }}
            />
            <label class="choice">
              <input
                type="checkbox"
                checked={layout.wide}
                onChange={(event) => change({ ...layout, wide: event.currentTarget.checked })}
              />{" "}
              One panel per row
            </label>
            {hidden.length > 0 && (
              <fieldset>
                <legend>Hidden panels</legend>
                {hidden.slice(0, 40).map((id) => (
                  <button
                    type="button"
                    class="button bare"
                    key={id}
                    onClick={() => change({ ...layout, hidden: layout.hidden.filter((one) => one !== id) })}
                  >
                    Show {id}
                  </button>
                ))}
                {hidden.length > 1 && (
                  <button type="button" class="button" onClick={() => change({ ...layout, hidden: [] })}>
                    Show all {whole(hidden.length)}
                  </button>
                )}
              </fieldset>
            )}
            <div class="layout-acts">
              {project && (
                <button
                  type="button"
                  class="button"
                  title={`Written to ${project}/barograph-layout.json`}
                  onClick={() => {
                    close();
                    told(
                      state.save(),
                      `The layout is saved in ${project}/barograph-layout.json, for everyone who opens this project.`,
                    );
                  }}
                >
                  Save for the project
                </button>
              )}
              <button
                type="button"
                class="button"
                onClick={() => {
                  close();
                  told(state.reset(), state.shared ? "The project's layout." : "The default layout.");
                }}
              >
                {state.shared ? "Reset to project layout" : "Reset to default layout"}
              </button>
              <button
                type="button"
                class="button bare"
                onClick={() =>
                  save(
                    new Blob([JSON.stringify(layout, null, 2)], { type: "application/json" }),
                    "barograph-layout.json",
                  )
                }
              >
                <Icon name="download" /> file
              </button>
            </div>
          </>
        )}
      </Pop>
    </div>
  );
}

function NewPanel({ add, example }: { add: (match: string, title: string) => void; example: string }) {
  const [match, setMatch] = useState("");
  const [title, setTitle] = useState("");
  return (
    <form
      class="new-panel"
      onSubmit={(event) => {
        event.preventDefault();
        if (match) add(match, title || match);
      }}
    >
      <label>
        Series, as a regular expression
        <input
          class="field mono"
          data-first
          value={match}
          placeholder={`^${example}$`}
          spellcheck={false}
          maxLength={500}
          onInput={(event) => setMatch(event.currentTarget.value)}
        />
      </label>
      <label>
        Title
        <input
          class="field"
          value={title}
          placeholder={match || "as the expression"}
          onInput={(event) => setTitle(event.currentTarget.value)}
        />
      </label>
      <button type="submit" class="button" disabled={!match}>
        Add a panel
      </button>
    </form>
  );
}
