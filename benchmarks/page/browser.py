"""What a person waits for in the page: milliseconds in Chromium, from the click to the drawn canvas.

    python benchmarks/page/browser.py [--keep DIR] [--only NAME ...] [--quick]

Each part starts a server of its own and a new browser profile. "Drawn" is when a chart's canvas has ink, as the page
itself sees it in its frames, so the time of this program is not in it. Times count from the start of the navigation or
from the gesture. Runs are written by `made_runs.py`, which takes minutes once; they are kept in DIR.
--quick: fewer turns, and a tenth of the points, for a try.
Needs `playwright` and a Chromium (`CHROMIUM`, else /usr/bin/chromium). The page must be built: cd web && node build.mjs
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import made_runs
from server import SOURCE, Served, keys, line

ASSETS = SOURCE / "barograph" / "assets"
QUICK = "--quick" in sys.argv
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")

# In the page before its own script: notes at each frame how many charts have data, and how long frames take.
WATCH = """
(() => {
  const drawn = (canvas) => {
    if (!canvas.width || !canvas.height) return false;
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    for (let at = 0; at < data.length; at += 64) {
      const [r, g, b, a] = data.subarray(at, at + 4);
      if (a > 60 && Math.max(r, g, b) - Math.min(r, g, b) > 24) return true;
    }
    return false;
  };
  window.inked = 0;
  window.chartAt = [];
  window.frames = null;
  const seen = new WeakSet();
  let last = performance.now();
  const look = (now) => {
    if (window.frames) window.frames.push(now - last);
    last = now;
    if (!window.frames) for (const canvas of document.querySelectorAll('.chart-host canvas')) {
      if (!seen.has(canvas) && drawn(canvas)) {
        seen.add(canvas);
        window.chartAt.push(performance.now());
      }
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
  // when the answer to the last request for series was drawn: one frame after it was read
  window.asked = 0;
  window.answered = 0;
  const fetched = window.fetch;
  window.fetch = async (...given) => {
    const answer = await fetched(...given);
    if (String(given[0]).endsWith('/api/series')) {
      const read = answer.arrayBuffer.bind(answer);
      answer.arrayBuffer = async () => {
        const buffer = await read();
        requestAnimationFrame(() => requestAnimationFrame(() => { window.answered = performance.now(); }));
        return buffer;
      };
    }
    return answer;
  };
})();
"""


def turns(full: int) -> int:
    return max(1, full // 4) if QUICK else full


@contextmanager
def opened(browser: Any, width: int = 1400) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.add_init_script(WATCH)
    yield page
    context.close()


def wait(page: Any, expression: str, seconds: float = 60) -> Any:
    """Until an expression is true; its value. (Playwright's own waiting needs eval, which the page forbids.)"""
    until = time.monotonic() + seconds
    while not (value := page.evaluate(expression)):
        if time.monotonic() > until:
            raise TimeoutError(f"{expression} did not become true in {seconds:.0f} s")
        page.wait_for_timeout(15)
    return value


def milliseconds(value: float) -> str:
    return f"{value:,.0f} ms"


def middle(values: list[float], target: float) -> tuple[str, str, str]:
    ordered = sorted(values)
    return (
        milliseconds(statistics.median(ordered)),
        f"{milliseconds(ordered[0])} … {milliseconds(ordered[-1])}",
        f"target {target:,.0f} ms",
    )


def box_of(page: Any, at: int = 0) -> Any:
    return page.locator(".chart-host .u-over").nth(at).bounding_box()


def drag(page: Any, start: float, end: float, at: int = 0) -> float:
    """A zoom by dragging. Returns when the button was let go, in the page's milliseconds."""
    box = box_of(page, at)
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + (start + end) / 2 * box["width"], y, steps=3)
    page.mouse.move(box["x"] + end * box["width"], y, steps=3)
    page.evaluate(
        "document.addEventListener('mouseup', () => { window.asked = performance.now(); }, {capture: true, once: true})"
    )
    page.mouse.up()
    return float(page.evaluate("window.asked"))


def zooms(page: Any, count: int) -> list[float]:
    """From letting go to exact data drawn, for ranges not seen before."""
    took = []
    for number in range(count):
        asked = drag(page, 0.1 + number * 0.013, 0.8 - number * 0.017)
        took.append(wait(page, f"window.answered > {asked} && window.answered") - asked)
        page.wait_for_timeout(150)
        page.locator("figure.chart").first.focus()
        page.keyboard.press("0")
        page.wait_for_timeout(350)
    return took


def frames(page: Any, what: str, gesture: Callable[[int], None], target: str, times: int = 60) -> None:
    """Prints how many frames a second there are while a gesture goes on."""
    page.evaluate("window.frames = []")
    for step in range(times):
        gesture(step)
        page.wait_for_timeout(8)
    lasted = page.evaluate("(() => { const found = window.frames; window.frames = null; return found; })()")[2:]
    rate = f"{1000 / statistics.mean(lasted):.0f} a second"
    line(f"  frames while {what}", rate, f"the slowest {max(lasted):.0f} ms", f"target {target}")


def frames_while_panning(page: Any) -> None:
    """While a range is moved with Alt and the pointer."""
    drag(page, 0.3, 0.6)
    page.wait_for_timeout(500)
    box = box_of(page)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.keyboard.down("Alt")
    page.mouse.down()
    frames(page, "panning", lambda step: page.mouse.move(x - 3 * step, y), "60 a second")
    page.mouse.up()
    page.keyboard.up("Alt")


def frames_while_zooming(page: Any) -> None:
    """While Ctrl and the wheel zoom in and out."""
    box = box_of(page)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.keyboard.down("Control")
    target = "55 a second, none above 50 ms"
    frames(page, "zooming by wheel", lambda step: page.mouse.wheel(0, -40 if step % 60 < 30 else 40), target, 120)
    page.keyboard.up("Control")


def long(browser: Any, root: Path) -> None:
    first, usable = [], []
    points = 100_000 if QUICK else 1_000_000
    place = made_runs.one_long(root, points)
    for turn in range(turns(5)):
        served = Served(place)
        key = keys_of_folder(place)
        with opened(browser) as page:
            page.goto(f"{served.http.base_url}run/{key}/charts")
            first.append(float(wait(page, "window.chartAt[0]")))
            page.wait_for_timeout(800)
            usable.append(page.evaluate("window.chartAt.length"))
            if turn == turns(5) - 1:
                line(f"zoom to exact data, {points:,} points", *middle(zooms(page, turns(12)), 120))
                frames_while_zooming(page)
                frames_while_panning(page)
        served.close()
    line(f"first chart of {points:,} points, server just started", *middle(first, 400))


def keys_of_folder(folder: Path) -> str:
    """The key of the one run below, without asking the server: it is to be cold."""
    about = next(folder.glob("*/*/run_manifest.json"))
    return f"{about.parent.parent.name}/{about.parent.name}"


def hundred(browser: Any, root: Path) -> None:
    steps = 10_000 if QUICK else 100_000
    place = made_runs.many(root, metrics=20, steps=steps)
    first, screen = [], []
    for turn in range(turns(3)):
        served = Served(place)
        with opened(browser) as page:
            page.goto(f"{served.http.base_url}?view=charts&most=100")
            first.append(float(wait(page, "window.chartAt[0]")))
            wanted = (
                "[...document.querySelectorAll('.chart-host')]"
                ".filter((one) => one.getBoundingClientRect().top < innerHeight).length"
            )
            screen.append(float(wait(page, f"window.chartAt.length >= {wanted} && window.chartAt[{wanted} - 1]")))
            if turn == turns(3) - 1:
                line("  zoom of all charts in sight, 100 runs each", *middle(zooms(page, turns(6)), 700))
                frames_while_panning(page)
        served.close()
    line(f"100 runs, 20 metrics, {steps:,} steps: first chart", *middle(first, 800))
    line("  all charts of the first screen", *middle(screen, 2000))


def names(browser: Any, root: Path) -> None:
    served = Served(made_runs.wide(root))
    key = keys(served)[0]
    usable, searched, shown = [], [], []
    for turn in range(turns(5)):
        with opened(browser) as page:
            page.goto(f"{served.http.base_url}run/{key}/charts")
            page.locator("#page .charts-bar button").first.wait_for()
            usable.append(float(wait(page, "window.chartAt[0]")))
            page.keyboard.press("/")
            page.locator("#series-search").wait_for()
            page.locator("#series-search").fill(f"layers\\.5{turn}.*(norm|std)$")
            page.wait_for_timeout(400)
            mark = "window.begun = performance.now()"
            page.evaluate(
                "new MutationObserver(() => { window.found = performance.now(); })"
                ".observe(document.querySelector('#series-found'),"
                " {childList: true, subtree: true, characterData: true})"
            )
            page.evaluate(
                "document.querySelector('#series-search')"
                f".addEventListener('input', () => {{ {mark} }}, {{once: true}})"
            )
            page.locator("#series-search").fill(f"layers\\.6{turn}.*(norm|std|min)$")
            searched.append(float(wait(page, "window.found > window.begun && window.found - window.begun")))
            page.wait_for_timeout(200)
            before = page.evaluate("window.chartAt.length")
            page.evaluate(f"document.addEventListener('click', () => {{ {mark} }}, {{capture: true, once: true}})")
            page.locator(".name-row").nth(2).click()
            shown.append(
                float(wait(page, f"window.chartAt.length > {before} && window.chartAt[{before}] - window.begun"))
            )
    line("100,000 names: the charts opened", *middle(usable, 1000))
    line("  a search by an expression", *middle(searched, 100))
    line("  one of them drawn", *middle(shown, 300))
    served.close()


LIVE = """
import sys, time, barograph
run = barograph.init(project="p", name="live", dir=sys.argv[1], console="none", machine=False)
for step in range(100):
    run.log({"train/loss": 5.0}, step=step)
print("ready", run.dir, flush=True)
step = 100
for line in sys.stdin:
    run.log({"train/loss": float(step)}, step=step)
    print(time.time(), flush=True)
    step += 1
run.finish()
"""


# Another process that waits for new rows as a program would: it asks again after a hundredth of a second.
READER = """
import sys, time
from pathlib import Path
from barograph.log.follow import Follower
from barograph.query.stored import StoredRun

folder, last = Path(sys.argv[1]), -1
follower, run = Follower(folder), StoredRun(folder)
while True:
    if sys.argv[2] == "follower":
        steps = [entry.item.step for entry in follower.read() if entry.source == "training.json"]
    else:
        steps = run.series("train/loss").step[-1:].tolist()
    moment = time.time()
    if steps and steps[-1] > last:
        last = steps[-1]
        print(last, moment, flush=True)
    time.sleep(0.01)
"""


def seconds_until(logged: Callable[[], tuple[int, float]], arrivals: Iterator[tuple[int, float]]) -> list[float]:
    """Milliseconds from the return of a log call to its step's arrival, at moments that follow no rhythm."""
    took = []
    for number in range(16):
        step, moment = logged()
        arrived = next(at for come, at in arrivals if come >= step)
        if number:  # the first one finds the reader at its start
            took.append(1000 * (arrived - moment))
        time.sleep(0.25 + 0.037 * (number % 7))
    return took


def readers(folder: Path, logged: Callable[[], tuple[int, float]]) -> None:
    """A value logged, until another process has it."""
    for way, name in (
        ("follower", "a follower"),
        ("stored", "`StoredRun.series`"),
    ):
        command = [sys.executable, "-c", READER, str(folder), way]
        environment = os.environ | {"PYTHONPATH": str(SOURCE)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as reader:
            assert reader.stdout is not None
            rows = ((int(step), float(at)) for step, at in (row.split() for row in reader.stdout))
            next(rows)
            line(f"a value logged, until {name} has it", *middle(seconds_until(logged, rows), 50))
            reader.kill()


def streamed(served: Served, key: str, logged: Callable[[], tuple[int, float]]) -> None:
    """A value logged, until the server's stream names its step."""

    def events(lines: Iterator[str]) -> Iterator[tuple[int, float]]:
        for text in lines:
            moment = time.time()
            step = json.loads(text[6:]).get("step") if text.startswith("data: {") else None
            if isinstance(step, int):
                yield step, moment

    with served.http.stream("GET", "/api/live", params={"run": key}) as answer:
        line(
            "a value logged, until the server's stream has it",
            *middle(seconds_until(logged, events(answer.iter_lines())), 250),
        )


def live(browser: Any, root: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPATH": str(SOURCE)}
        training = subprocess.Popen(
            [sys.executable, "-c", LIVE, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert training.stdin is not None and training.stdout is not None
        place = Path(training.stdout.readline().split(maxsplit=1)[1].strip())
        steps = itertools.count(100)

        def logged() -> tuple[int, float]:
            assert training.stdin is not None and training.stdout is not None
            training.stdin.write("\n")
            training.stdin.flush()
            return next(steps), float(training.stdout.readline())

        readers(place, logged)
        served = Served(Path(folder))
        key = keys(served)[0]
        streamed(served, key, logged)
        took = []
        with opened(browser) as page:
            page.goto(f"{served.http.base_url}run/{key}/charts")
            wait(page, "window.chartAt[0]")
            page.wait_for_timeout(1500)
            page.evaluate(
                "new MutationObserver(() => requestAnimationFrame(() => { window.pixel = "
                "[document.querySelector('.chart-now .value')?.innerText, Date.now()]; }))"
                ".observe(document.querySelector('.chart'), {childList: true, subtree: true, characterData: true})"
            )
            for _ in range(15):
                step, moment = logged()
                seen = wait(page, f"window.pixel && window.pixel[0] === '{step}' && window.pixel[1]")
                took.append(seen - 1000 * moment)
                page.wait_for_timeout(400 + 37 * (step % 7))
        line("a value logged, until its pixel", *middle(took, 250))
        training.stdin.close()
        training.wait(20)
        served.close()


def size(browser: Any, root: Path) -> None:
    for name, target in (("page.js", "target 150 kB"), ("page.css", "")):
        content = (ASSETS / name).read_bytes()
        line(
            f"{name}, compressed",
            f"{len(gzip.compress(content, 9, mtime=0)) / 1000:.1f} kB",
            f"plain {len(content) / 1000:.1f} kB",
            target,
        )


PARTS: dict[str, Callable[[Any, Path], None]] = {
    "size": size,
    "long": long,
    "hundred": hundred,
    "names": names,
    "live": live,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder that keeps the runs for the next time")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        root = options.keep or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for part in options.only:
            PARTS[part](browser, root)
        browser.close()


if __name__ == "__main__":
    main()
