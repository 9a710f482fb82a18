/** The frame around every view: where one is, the theme, the help, and whether the server is there.
 *
 * In:   the route; what the last requests came to.
 * Out:  the bar at the top, a banner while the server is gone, notices, the view.
 */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { getAbout, watchServer } from "../api/client.ts";
import { retryNow } from "../api/live.ts";
import { useRuns } from "../runs/store.ts";
import { plainKey, runPlace } from "./address.ts";
import { Help } from "./help.tsx";
import { Icon, Mark } from "./icon.tsx";
import { useKeys } from "./keys.ts";
import { go, type Route } from "./route.ts";
import { choice, choose, type Choice } from "./theme.ts";
import { Toasts, undoLast } from "./toast.tsx";
import { title } from "./text.ts";

const THEMES: Record<Choice, { next: Choice; icon: "system" | "sun" | "moon"; says: string }> = {
  system: { next: "light", icon: "system", says: "Theme: as the system" },
  light: { next: "dark", icon: "sun", says: "Theme: light" },
  dark: { next: "system", icon: "moon", says: "Theme: dark" },
};

function ThemeButton() {
  const [now, set] = useState(choice);
  const { next, icon, says } = THEMES[now];
  const turn = (): void => {
    choose(next);
    set(next);
  };
  useKeys("Everywhere", [{ keys: "Shift+T", says: "theme: system, light, dark", run: turn }]);
  return (
    <button type="button" class="button bare icon-only" title={says} aria-label={says} onClick={turn}>
      <Icon name={icon} />
    </button>
  );
}

/** Gone is said after two seconds: a server that is started again is back by then. */
const PATIENCE_MILLISECONDS = 2000;
const KNOCK_MILLISECONDS = 3000;

function Banner() {
  const [gone, setGone] = useState(false);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = watchServer((reached) => {
      if (reached) {
        clearTimeout(timer);
        timer = undefined;
        setGone(false);
      } else timer ??= setTimeout(() => setGone(true), PATIENCE_MILLISECONDS);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, []);
  const knock = (): void => {
    getAbout(true).then(retryNow, () => undefined);
  };
  useEffect(() => {
    if (!gone) return;
    const timer = setInterval(knock, KNOCK_MILLISECONDS);
    return () => clearInterval(timer);
  }, [gone]);
  if (!gone) return null;
  return (
    <div class="banner" role="alert">
      <Icon name="warning" />
      <span>
        The server does not respond. What you see is from before. Start it again with <code>barograph view</code>; this
        page finds it.
      </span>
      <button type="button" class="button" onClick={knock}>
        Try now
      </button>
    </div>
  );
}

function Crumbs({ route }: { route: Route }) {
  const { rows } = useRuns();
  const { place } = route;
  if (place.view === "compare") return <span class="crumb here">Compare</span>;
  if (place.view !== "run") return null;
  const row = rows.get(place.key);
  return (
    <>
      {row?.project && (
        <a class="crumb" href={`/?q=${encodeURIComponent(`project = "${row.project}"`)}`}>
          {row.project}
        </a>
      )}
      <a class="crumb here" href={runPlace(place.key)} title={plainKey(place.key)}>
        {row ? title(row) : plainKey(place.key).split("/").pop()}
      </a>
    </>
  );
}

const TABS = [
  ["o", "overview"],
  ["c", "charts"],
  ["l", "layers"],
  ["s", "system"],
  ["d", "doctor"],
] as const;

export function Frame({ route, children }: { route: Route; children: ComponentChildren }) {
  const [help, setHelp] = useState(false);
  const { place, query } = route;
  const run = place.view === "run" ? place.key : null;
  useKeys("Everywhere", [
    { keys: "?", says: "this list", run: () => setHelp(!help) },
    { keys: "g r", says: "runs", run: () => go("/") },
    ...(run
      ? TABS.map(([letter, tab]) => ({
          keys: `g ${letter}`,
          says: `${tab} of this run`,
          run: () => go(runPlace(run, tab)),
        }))
      : []),
    { keys: "u", says: "undo", run: undoLast },
  ]);
  useEffect(() => {
    if (place.view === "runs") document.title = "Runs · Barograph";
    if (place.view === "compare") document.title = `Compare ${query.getAll("run").length} runs · Barograph`;
  }, [place.view, query]);
  return (
    <div class={`page page-${place.view}`}>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header class="top">
        <a class="brand" href="/" aria-label="Barograph, all runs">
          <Mark />
          <span>Barograph</span>
        </a>
        <nav class="crumbs" aria-label="Where you are">
          <a
            class={`crumb ${place.view === "runs" ? "here" : ""}`}
            href="/"
            aria-current={place.view === "runs" ? "page" : undefined}
          >
            Runs
          </a>
          <Crumbs route={route} />
        </nav>
        <span class="grow" />
        <ThemeButton />
        <button
          type="button"
          class="button bare icon-only"
          title="Keys (?)"
          aria-label="Keys"
          onClick={() => setHelp(true)}
        >
          <Icon name="help" />
        </button>
      </header>
      <Banner />
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      <Toasts />
      {help && <Help close={() => setHelp(false)} />}
    </div>
  );
}
