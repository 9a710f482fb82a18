"""The table of 5,000 runs in Chromium: milliseconds until it can be used, from a click to the rows asked for, and of
all of them as a scatter plot and as parallel coordinates.

    python benchmarks/page/table.py [--keep DIR] [--runs 5000] [--settings 2] [--quick]

"never served" is a server that was just started and has no rows kept of the folder; "served before" one that has those
that the last server kept. --settings: keys in each run's configuration. --quick: a quarter of the turns, for a try.
Times are the page's own, from the navigation or the click to the frame after the rows are there. "server" is what the
server itself takes for the same groups. Needs `playwright` and a Chromium; the page must be built.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import made_runs
from browser import CHROMIUM, frames, middle, opened, turns, wait
from server import Served, line

TURNS = 9
SETTLED_MILLISECONDS = 700  # after a click: what the page does later is not in the next time

# Notes when the rows in sight, or how many there are, are others: one frame after the table changed.
NOTE = """
(() => {
  const text = () => {
    const rows = [...document.querySelectorAll('.runs-table tbody tr')].slice(0, 12);
    if (!rows.length) return before; // groups are on their way
    return rows.map((row) => row.dataset.key + row.className).join() + document.querySelector('.counts')?.textContent;
  };
  let before = '';
  before = text();
  window.changed = 0;
  new MutationObserver(() => {
    const now = text();
    if (now === before) return;
    before = now;
    requestAnimationFrame(() => { window.changed = performance.now(); });
  }).observe(document.querySelector('#page, main, body'), {childList: true, subtree: true, attributes: true});
  document.addEventListener('click', () => { window.asked = performance.now(); }, {capture: true});
  document.addEventListener('input', () => { window.asked = performance.now(); }, {capture: true});
})();
"""
ROWS = "document.querySelectorAll('tr.run .run-link').length > 5 && performance.now()"


def clicked(page: Any, click: Any) -> float:
    """From a click to the frame in which other rows are there."""
    page.wait_for_timeout(SETTLED_MILLISECONDS)
    page.evaluate("window.changed = 0")
    click()
    return float(wait(page, "window.changed > window.asked && window.changed - window.asked"))


def started(browser: Any, place: Path, count: int, keep: bool) -> list[float]:
    """Milliseconds until rows can be used, of servers that were just started. keep: each has what the last one kept."""
    usable = []
    for _ in range(count):
        if not keep:
            shutil.rmtree(Path(os.environ["XDG_CACHE_HOME"]), ignore_errors=True)
        served = Served(place)
        with opened(browser, 1440) as page:
            page.goto(f"{served.http.base_url}?view=table")
            usable.append(float(wait(page, ROWS)))
        served.close()
    return usable


def table(browser: Any, root: Path, runs: int, settings: int) -> None:
    place = made_runs.many(root, runs, 6, 200, settings)
    few = 1 + turns(3)
    line(f"{runs:,} runs usable, server started, never served", *middle(started(browser, place, few, False), 1000))
    line("  server started, served before", *middle(started(browser, place, few, True), 1000))

    served = Served(place)
    served.get("/api/runs")
    while any(row["best"] == {} for row in served.get("/api/runs").json()["runs"]):  # until all rows are filled in
        time.sleep(1)
    with opened(browser, 1440) as page:
        page.goto(f"{served.http.base_url}?view=table&cols=config:lr,config:seed,last:train/loss,best:train/loss")
        usable = [float(wait(page, ROWS))]
        for _ in range(few):
            page.wait_for_timeout(SETTLED_MILLISECONDS)
            page.reload()
            usable.append(float(wait(page, ROWS)))
        line("  server warm", *middle(usable, 1000))
        page.wait_for_timeout(SETTLED_MILLISECONDS)
        page.evaluate(NOTE)
        head = page.locator("thead .head", has_text="train/loss").first
        line("  sort", *middle([clicked(page, head.click) for _ in range(turns(TURNS))], 100))

        took = []
        for turn in range(turns(TURNS)):
            took.append(
                clicked(
                    page, lambda turn=turn: page.locator("#filter").fill(f"config.seed < {runs - 100 * (turn + 1)}")
                )
            )
        line("  filter", *middle(took, 100))
        page.locator("#filter").fill("")
        for name, columns in (("lr", 7), ("seed", runs)):
            took = []
            for _ in range(turns(TURNS)):
                page.get_by_role("button", name="Group", exact=True).click()
                pick = page.locator(".pick").get_by_text(name, exact=True).first
                took.append(clicked(page, pick.click))
                page.get_by_role("button", name="Grouped by").click()
                clicked(page, page.locator(".pick", has_text="No groups").click)
            line(f"  group by {name}: {columns:,} groups", *middle(took, 100))
        asked = "/api/groups?by=config.lr&column=last:train/loss&column=best:train/loss"
        took = []
        for _ in range(turns(TURNS)):
            began = time.perf_counter()
            served.get(asked)
            took.append(1000 * (time.perf_counter() - began))
        line("  server: groups by lr", *middle(took, 60))
    explore(browser, served)
    served.close()


# Notes when a plot that is not there yet has ink: in the frame in which it is.
INK = """
(() => {
  window.asked = performance.now();
  window.plotted = 0;
  const inked = (canvas) => {
    if (!canvas.width || !canvas.height) return false;
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    for (let at = 3; at < data.length; at += 4) if (data[at]) return true;
    return false;
  };
  const before = new Set(document.querySelectorAll('.explore-host canvas'));
  const look = () => {
    const canvases = [...document.querySelectorAll('.explore-host canvas')].filter((one) => !before.has(one));
    if (canvases.length && canvases.every(inked)) window.plotted = performance.now();
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})();
"""


def explore(browser: Any, served: Served) -> None:
    """From the click on a plot to its marks, and the frames while a brush is drawn."""
    columns = "py=last:train/loss&px=config:seed&pk=config:lr,config:seed,last:train/loss,best:train/loss"
    took: dict[str, list[float]] = {"Scatter": [], "Parallel coordinates": []}
    with opened(browser, 1440) as page:
        page.goto(f"{served.http.base_url}?view=explore&plot=box&{columns}")
        page.locator(".explore svg").first.wait_for()
        for _ in range(turns(TURNS)):
            for name, taken in took.items():
                page.wait_for_timeout(300)
                page.evaluate(INK)
                page.get_by_role("button", name=name, exact=True).click()
                taken.append(float(wait(page, "window.plotted > window.asked && window.plotted - window.asked")))
        for name, taken in took.items():
            line(f"  {name.lower()} of all runs", *middle(taken, 500))
        box = page.locator(".explore-host .layer").last.bounding_box()
        x, bottom = box["x"] + 48, box["y"] + box["height"] - 24
        page.mouse.move(x, bottom)
        page.mouse.down()
        frames(page, "brushing", lambda step: page.mouse.move(x, bottom - 3 * step), "60 a second", 90)
        page.mouse.up()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder that keeps the runs for the next time")
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--settings", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        root = options.keep or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        os.environ["XDG_CACHE_HOME"] = str(Path(temporary) / "cache")  # of its own: whether rows are kept is measured
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        table(browser, root, options.runs, options.settings)
        browser.close()


if __name__ == "__main__":
    main()
