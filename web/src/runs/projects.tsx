/** The list of projects at the left, with the views that were saved for each.
 *
 * In:   the rows; the project and the parameters of the address.
 * Out:  links, each the address of a project or a view; changes of what is saved, by the server.
 *
 * What is saved is a file in the project's folder, the same for everybody who has it.
 */

import { useEffect, useMemo, useState } from "preact/hooks";
import { changeViews, getViews } from "../api/client.ts";
import type { Row, SavedViews, ViewChanges } from "../api/types.ts";
import { formatQuery } from "../shell/address.ts";
import { Icon } from "../shell/icon.tsx";
import { Pop } from "../shell/pop.tsx";
import { go } from "../shell/route.ts";
import { statusWords } from "../shell/states.ts";
import { whole } from "../shell/text.ts";
import { toast } from "../shell/toast.tsx";
import { byName } from "./columns.ts";
import { placeOfView, settingsOf, viewOf } from "./state.ts";

export interface ProjectEntry {
  name: string;
  runs: number;
  open: number;
}

/** Projects of these rows in natural order; archived runs count only if they are shown. */
export function projectsOf(rows: readonly Row[], archived: boolean): ProjectEntry[] {
  const found = new Map<string, ProjectEntry>();
  for (const row of rows) {
    if (row.archived && !archived) continue;
    const entry = found.get(row.project) ?? { name: row.project, runs: 0, open: 0 };
    found.set(row.project, entry);
    entry.runs += 1;
    if (statusWords(row.status).open) entry.open += 1;
  }
  return [...found.values()].sort((a, b) => byName(a.name, b.name));
}

interface Saved {
  saved: SavedViews;
  error: string;
  change: (changes: ViewChanges, undo?: ViewChanges) => Promise<boolean>;
}

/** What is saved for a project; "" for all. */
function useViews(project: string): Saved {
  const [state, set] = useState<{ saved: SavedViews; error: string }>({ saved: {}, error: "" });
  useEffect(() => {
    let live = true;
    set({ saved: {}, error: "" });
    getViews(project).then(
      (saved) => live && set({ saved, error: "" }),
      (error: Error) => live && set({ saved: {}, error: error.message }),
    );
    return () => {
      live = false;
    };
  }, [project]);
  const change = async (changes: ViewChanges, undo?: ViewChanges): Promise<boolean> => {
    try {
      set({ saved: await changeViews(project, changes), error: "" });
      if (undo) toast({ text: "The view is removed.", undo: () => void change(undo) });
      return true;
    } catch (error) {
      toast({ text: `Not saved: ${(error as Error).message}`, tone: "bad" });
      return false;
    }
  };
  return { ...state, change };
}

interface Props {
  rows: readonly Row[];
  project: string;
  archived: boolean;
  query: URLSearchParams;
}

export function ProjectList({ rows, project, archived, query }: Props) {
  const entries = useMemo(() => projectsOf(rows, archived), [rows, archived]);
  const views = useViews(project);
  const total = entries.reduce((sum, one) => sum + one.runs, 0);
  const item = (name: string, title: string, count: number, open: number) => (
    <li key={name}>
      <a
        class={`project ${name === project ? "on" : ""}`}
        href={placeOfView(name)}
        aria-current={name === project ? "page" : undefined}
        onClick={(event) => {
          if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
          event.preventDefault();
          void openProject(name);
        }}
      >
        <span class="line">{title}</span>
        {open > 0 && <i class="dot" title={`${whole(open)} running`} />}
        <span class="count">{whole(count)}</span>
      </a>
      {name === project && <Views project={project} query={query} {...views} />}
    </li>
  );
  return (
    <nav class="projects" aria-label="Projects">
      <ul>
        {item("", "All projects", total, 0)}
        {entries.map((one) => item(one.name, one.name, one.runs, one.open))}
      </ul>
    </nav>
  );
}

/** Goes to a project as it is set up to begin. */
async function openProject(name: string): Promise<void> {
  let settings: Record<string, string> = {};
  try {
    settings = (await getViews(name)).settings ?? {};
  } catch {
    // it opens without; the list says what is wrong with the file
  }
  go(placeOfView(name, settings));
}

function Views({ project, query, saved, error, change }: Saved & { project: string; query: URLSearchParams }) {
  const [naming, setNaming] = useState(false);
  const names = Object.keys(saved.views ?? {}).sort(byName);
  const here = formatQuery(new URLSearchParams({ ...viewOf(query) }));
  const save = async (text: string): Promise<void> => {
    const name = text.trim();
    setNaming(false);
    if (name) await change({ views: { [name]: viewOf(query) } });
  };
  const begin = (): void => {
    const now = settingsOf(query);
    const gone = Object.keys(saved.settings ?? {}).filter((name) => !Object.hasOwn(now, name));
    void change({ settings: { ...Object.fromEntries(gone.map((name) => [name, null])), ...now } }).then(
      (done) => done && toast({ text: "The columns, groups and order of now are where this project begins." }),
    );
  };
  return (
    <ul class="views">
      {error && <li class="bad small">{error}</li>}
      {names.map((name) => {
        const parameters = saved.views?.[name] ?? {};
        const on = formatQuery(new URLSearchParams(parameters)) === here;
        return (
          <li key={name}>
            <a class={on ? "on" : ""} aria-current={on ? "true" : undefined} href={placeOfView(project, parameters)}>
              <span class="line">{name}</span>
            </a>
            <button
              type="button"
              class="button bare icon-only tiny"
              aria-label={`Remove the view ${name}`}
              title="Remove this view"
              onClick={() => void change({ views: { [name]: null } }, { views: { [name]: parameters } })}
            >
              <Icon name="close" />
            </button>
          </li>
        );
      })}
      <li>
        {naming ? (
          <input
            class="field"
            aria-label="Name of the view"
            placeholder="Name of the view"
            maxLength={100}
            ref={(field) => field?.focus()}
            onBlur={() => setNaming(false)}
            onKeyDown={(event) => {
              event.stopPropagation();
              if (event.key === "Enter" && !event.isComposing) void save(event.currentTarget.value);
              else if (event.key === "Escape") setNaming(false);
            }}
          />
        ) : (
          <>
            <button type="button" class="button bare small" onClick={() => setNaming(true)}>
              <Icon name="plus" /> Save view
            </button>
            {project && (
              <button
                type="button"
                class="button bare small"
                title="Everybody who opens this project begins with the columns, groups, order and axis of now"
                onClick={begin}
              >
                Set as default
              </button>
            )}
          </>
        )}
      </li>
    </ul>
  );
}

/** The same list where there is no room at the left. */
export function ProjectMenu(props: Props) {
  return (
    <Pop
      button={
        <>
          <Icon name="archive" /> <span class="cut">{props.project || "All projects"}</span>
        </>
      }
      label={`Project: ${props.project || "all"}`}
      class={`button ${props.project ? "on" : ""}`}
      paneClass="picker narrow"
    >
      {() => <ProjectList {...props} />}
    </Pop>
  );
}
