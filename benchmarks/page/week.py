"""A week with the page open on a live run, in some minutes: the memory of the tab must stay as it is.

    python benchmarks/page/week.py [--events 20000] [--view charts] [--quick]

The run and the server are real; the week is made short on the way of the events. A live run of one step a second sends
about one event of points a second, 604,800 in a week, and the page looks at new points four times a second at most. So
the stream of events is replaced, before the page's script, by one that gives as many events as the page can take (four
a second of its own clock, which runs as fast as the page lets it), each of which makes the page ask the server and draw
again as the real one does: `--events` of them, spread over the run's growing log. Every --every events the garbage is
collected and the heap measured by the debugger, with the page's nodes and listeners.

Out: the heap after the first tenth and at the end, their ratio (flat: within 1.2), nodes and listeners. Exits 1 if the
heap, the nodes or the listeners grew by more than a fifth.
Needs `playwright` and a Chromium (`CHROMIUM`, else /usr/bin/chromium). The page must be built: cd web && node build.mjs
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from server import Served

import barograph

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
KEY = "week/live"
FLAT = 1.2

# In place of the browser's stream of events: `pulse(n)` gives n of them, as fast as frames come.
STREAM = """
(() => {
  const open = new Set();
  let given = 0;
  window.EventSource = class extends EventTarget {
    constructor() {
      super();
      open.add(this);
      setTimeout(() => this.dispatchEvent(new Event("open")), 0);
    }
    close() { open.delete(this); }
  };
  window.pulse = async (count, key) => {
    const row = (await (await fetch(`/api/runs?filter=live`)).json()).runs.find((one) => one.key === key);
    for (let at = 0; at < count; at++) {
      given += 1;
      const points = JSON.stringify({ run: key, step: row ? row.step + given : given, time: Date.now() / 1000 });
      const rows = JSON.stringify({ rows: row ? [{ ...row, step: row.step + given }] : [], gone: [] });
      for (const one of open) {
        one.dispatchEvent(new MessageEvent("points", { data: points }));
        one.dispatchEvent(new MessageEvent("rows", { data: rows }));
      }
      await new Promise((done) => setTimeout(done, 4));
    }
    return open.size;
  };
})();
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=1_000)
    parser.add_argument("--view", choices=("overview", "charts", "layers", "system", "doctor"), default="charts")
    parser.add_argument("--quick", action="store_true", help="1,000 events, for a try")
    options = parser.parse_args()
    if options.quick:
        options.events, options.every = 1_000, 100
    with tempfile.TemporaryDirectory() as folder:
        run = barograph.init(project="week", name="live", dir=folder, console="none", total_steps=604_800)
        stop = threading.Event()
        writer = threading.Thread(target=write, args=(run, stop), daemon=True)
        writer.start()
        served = Served(Path(folder))
        try:
            return watch(str(served.http.base_url).rstrip("/"), options)
        finally:
            served.close()
            stop.set()
            writer.join()
            run.finish()


def write(run: Any, stop: threading.Event) -> None:
    step = 0
    while not stop.is_set():
        for _ in range(20):
            step += 1
            run.log({"train/loss": 2 + 6 * step**-0.5, "train/grad_norm": 1.0, "train/lr": 1e-3}, step=step)
        time.sleep(0.2)


def watch(url: str, options: Any) -> int:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(600_000)
        page.add_init_script(STREAM)
        debugger = page.context.new_cdp_session(page)
        page.goto(f"{url}/run/{KEY}/{options.view}")
        page.locator(".chart canvas, .heat canvas, .figures-strip, .verdict").first.wait_for()
        page.wait_for_timeout(5_000)
        page.evaluate(
            "([count, key]) => window.pulse(count, key)", [options.every, KEY]
        )  # all charts are drawn by then
        found: list[tuple[float, int, int]] = []
        given = 0
        while given < options.events:
            page.evaluate("([count, key]) => window.pulse(count, key)", [options.every, KEY])
            given += options.every
            found.append(measured(debugger))
            heap, nodes, listeners = found[-1]
            print(f"{given:>8,} events  {heap:6.1f} MB  {nodes:>6,} nodes  {listeners:>6,} listeners", flush=True)
        browser.close()
    first, last = found[max(0, len(found) // 10 - 1)], found[-1]
    ratios = [later / before if before else 1.0 for before, later in zip(first, last, strict=True)]
    words = (f"{name} × {ratio:.2f}" for name, ratio in zip(("heap", "nodes", "listeners"), ratios, strict=True))
    print(f"from the first tenth to the end: {', '.join(words)}")
    return int(max(ratios) > FLAT)


def measured(debugger: Any) -> tuple[float, int, int]:
    """Megabytes of the heap after a collection, nodes, listeners."""
    debugger.send("HeapProfiler.collectGarbage")
    used = debugger.send("Runtime.getHeapUsage")["usedSize"] / 1e6
    counters = debugger.send("Memory.getDOMCounters")
    return used, counters["nodes"], counters["jsEventListeners"]


if __name__ == "__main__":
    sys.exit(main())
