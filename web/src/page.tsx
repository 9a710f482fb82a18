/** The page: from the address to the view.
 *
 * In:   the browser's address.
 * Out:  the runs, one run, a comparison; a sentence where the address leads nowhere.
 */

import { render } from "preact";
import { startBase } from "./api/base.ts";
import { CompareView } from "./compare/view.tsx";
import { RunView } from "./run/view.tsx";
import { RunsView } from "./runs/view.tsx";
import { Crash } from "./shell/crash.tsx";
import { Frame } from "./shell/frame.tsx";
import { startKeys } from "./shell/keys.ts";
import { route, startRoute, useRoute, type Route } from "./shell/route.ts";
import { startTheme } from "./shell/theme.ts";
import { readRuns } from "./runs/store.ts";
import "./style/tokens.css";
import "./style/base.css";
import "./style/shell.css";
import "./style/runs.css";
import "./style/compare.css";
import "./style/doctor.css";
import "./style/print.css";

function View({ route }: { route: Route }) {
  const { place, query } = route;
  switch (place.view) {
    case "runs":
      return <RunsView query={query} />;
    case "run":
      return <RunView key={place.key} runKey={place.key} tab={place.tab} query={query} />;
    case "compare":
      return <CompareView query={query} />;
    case "nowhere":
      return (
        <div class="message">
          <h1>There is nothing at {place.path}</h1>
          <p>
            <a href="/">See all runs</a>
          </p>
        </div>
      );
  }
}

function Page() {
  const route = useRoute();
  return (
    <Frame route={route}>
      <Crash at={route.address}>
        <View route={route} />
      </Crash>
    </Frame>
  );
}

const root = document.getElementById("page");
if (root) {
  startBase();
  startTheme();
  startRoute();
  startKeys();
  if (route().place.view === "runs") void readRuns(); // on its way while the page is drawn
  render(<Page />, root);
}
