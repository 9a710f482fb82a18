"""The same runs in this page and in other trackers' pages: milliseconds in Chromium, from the navigation to the charts.

    python -m venv peers && peers/bin/pip install tensorboard aim mlflow trackio
    python benchmarks/page/peers.py --python peers/bin/python [--only TOOL ...] [--keep DIR] [--pictures DIR]

Two pages of each tool: one run whose one series has 1,000,000 points, and RUNS runs × 20 metrics × 1,000 steps, which
all of them can take in; this page also at 100 runs × 20 metrics × 100,000 steps, in a line of its own. The numbers are
the same (`peer_data.py`), written before by the fastest way in that a tool documents; RUNS is the most that TensorBoard
shows without being asked. Every round starts the tool's server anew, waits until it answers (TensorBoard: until it has
read its files) and opens the page in a new profile, which reaches nothing but the server.

Times are those of the frames that the browser put on its screen: "first" is the first one with the curves of a chart,
"all" the first one with those of all charts in the window of 1400 × 900: half of their ink as it is at the end, at its
place and in its colour. "kB" is what came over the wire until then. "spike" says whether the one value that stands
alone near the middle of the long series is in any answer that the page got: in 32 or 64 bits, or as text.
Needs `playwright`, `pillow` and a Chromium (`CHROMIUM`, else /usr/bin/chromium). What is not installed is left out.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import shutil
import signal
import socket
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import made_runs
import peer_data
from browser import CHROMIUM
from server import SOURCE, Served

RUNS = 40
ONE = (1, 1, 1_000_000)
MANY = (RUNS, 20, 1_000)
WRITE_SECONDS = 600.0
STILL_SECONDS = 4.0  # the charts have not changed for so long: this is how they stay
MOST_SECONDS = 120.0
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "AIM_UI_TELEMETRY_ENABLED": "0",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "BROWSER": "true",  # the program of this name: nothing is opened
}
ARGUMENTS = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
BOXES = """
(selector) => [...document.querySelectorAll(selector)].flatMap((one) => {
  const { left, top, right, bottom } = one.getBoundingClientRect();
  const box = [Math.max(0, left), Math.max(0, top), Math.min(innerWidth, right), Math.min(innerHeight, bottom)];
  const seen = document.elementFromPoint((box[0] + box[2]) / 2, (box[1] + box[3]) / 2); // not behind something else
  return box[2] - box[0] > 100 && box[3] - box[1] > 40 && one.contains(seen) ? [box.map(Math.round)] : [];
})
"""


@dataclass
class Tool:
    """How a tool's server is started and where its charts are. start: folder, port → arguments, variables."""

    charts: str  # what holds the curves, as a CSS selector
    address: Callable[[str, Path, int], str]  # its server's address, its folder, how many runs → the page
    start: Callable[[Path, int], tuple[list[str], dict[str, str]]] | None = None
    ready: Callable[[str, int, int], bool] | None = None  # address, runs, steps; else: that it answers


def tensorboard_ready(address: str, runs: int, steps: int) -> bool:
    """Whether it has read all files to their ends."""
    for run in range(runs):
        asked = {"run": peer_data.run_name(run), "tag": "train/loss"}
        answer = httpx.get(f"{address}/data/plugin/scalars/scalars", params=asked)
        if answer.status_code != 200 or answer.json()[-1][1] != steps - 1:
            return False
    return True


def mlflow_page(address: str, folder: Path, runs: int) -> str:
    with sqlite3.connect(folder / "mlflow.db") as database:
        run, experiment = database.execute("select run_uuid, experiment_id from runs").fetchone()
    place = f"{address}/#/experiments/{experiment}/runs"
    return f"{place}/{run}/model-metrics" if runs == 1 else f"{place}?compareRunsMode=CHART"


def aim_page(address: str, folder: Path, runs: int) -> str:
    """The page of one run; of many the explorer, asked for all metrics with a chart for each name."""
    if runs == 1:
        return f"{address}/runs/{next((folder / '.aim' / 'meta' / 'chunks').iterdir()).name}/metrics"
    each = {"color": [], "stroke": [], "chart": ["name"]}
    flags = dict.fromkeys(each, False)
    state = {
        "select": {
            "options": [],
            "query": "",
            "advancedMode": True,
            "advancedQuery": "metric.name.startswith('train')",
        },
        "grouping": each
        | {"reverseMode": flags, "isApplied": dict.fromkeys(each, True)}
        | {"persistence": {"color": False, "stroke": False}, "seed": {"color": 10, "stroke": 10}, "paletteIndex": 0},
    }

    def packed(value: Any) -> str:  # as its own addresses are
        text = quote(json.dumps(value, separators=(",", ":")), safe=";,/?:@&=+$-_.!~*'()#")
        return "O-" + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    return f"{address}/metrics?" + "&".join(f"{key}={packed(value)}" for key, value in state.items())


TOOLS = {
    "barograph": Tool(
        ".chart-host",
        lambda address, folder, runs: address + ("/run/p/run_000/charts" if runs == 1 else "/?view=charts&most=100"),
    ),
    "tensorboard": Tool(
        "line-chart .series-view",
        lambda address, folder, runs: f"{address}/",
        lambda folder, port: (["tensorboard", "--logdir", str(folder), "--port", str(port)], {}),
        tensorboard_ready,
    ),
    "aim": Tool(
        ".LineChart",
        aim_page,
        lambda folder, port: (["aim", "up", "--repo", str(folder), "--port", str(port), "--yes"], {}),
    ),
    "mlflow": Tool(
        ".js-plotly-plot",
        mlflow_page,
        lambda folder, port: (
            ["mlflow", "ui", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--port", str(port)],
            {},
        ),
    ),
    "trackio": Tool(
        ".vega-embed",
        lambda address, folder, runs: f"{address}/?project=p",
        lambda folder, port: (
            ["trackio", "show", "--project", "p"],
            {"TRACKIO_DIR": str(folder), "GRADIO_SERVER_PORT": str(port), "GRADIO_NUM_PORTS": "1"},
        ),
    ),
}


class PeerServer:
    """A tool's own server over its files, in a process group of its own."""

    def __init__(self, name: str, folder: Path, python: Path, runs: int, steps: int):
        tool = TOOLS[name]
        assert tool.start is not None
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        (program, *rest), variables = tool.start(folder, port)
        self.address = f"http://127.0.0.1:{port}"
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [str(python.parent / program), *rest], cwd=folder.parent, env=environment(folder) | variables,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        while not self._answers(tool, runs, steps):
            if time.perf_counter() - began > MOST_SECONDS or self.process.poll() is not None:
                self.close()
                raise RuntimeError("its server does not answer")
            time.sleep(0.1)
        self.started = time.perf_counter() - began

    def _answers(self, tool: Tool, runs: int, steps: int) -> bool:
        try:
            answered = httpx.get(self.address, timeout=10).status_code == 200
            return answered and (tool.ready is None or tool.ready(self.address, runs, steps))
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            time.sleep(1.0)
        self.process.wait(20)


def environment(folder: Path) -> dict[str, str]:
    return os.environ | QUIET | {"HOME": str(folder.parent), "TRACKIO_DIR": str(folder)}


def written(name: str, size: tuple[int, int, int], root: Path, python: Path) -> tuple[Path, int]:
    """The tool's files with the runs in them, and how many steps a run has; written if they are not there yet."""
    folder = root / "runs_{}_{}_{}".format(*size) / name
    note = folder.with_suffix(".written")
    if not note.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        ours = name == "barograph"
        done = subprocess.run(
            [sys.executable if ours else str(python), peer_data.__file__, name, str(folder)]
            + [str(one) for one in (*size, WRITE_SECONDS)],
            capture_output=True, text=True, env=environment(folder) | ({"PYTHONPATH": str(SOURCE)} if ours else {}),
        )  # fmt: skip
        last = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("written ")]
        if not last:
            raise RuntimeError((done.stderr.strip() or "it wrote nothing").splitlines()[-1])
        note.write_text(last[-1])
    return folder, int(note.read_text())


@dataclass
class Watched:
    """What a browser showed and got while a page was opened."""

    frames: list[tuple[float, bytes]] = field(default_factory=list)  # seconds since the epoch, a JPEG
    sizes: list[tuple[float, int]] = field(default_factory=list)  # when a request had ended, its bytes on the wire
    answers: list[Any] = field(default_factory=list)
    boxes: list[list[int]] = field(default_factory=list)
    began: float = 0.0


def pixels(picture: bytes, boxes: list[list[int]]) -> list[Any]:
    """Of each box: height × width × (red, green, blue)."""
    import numpy
    from PIL import Image

    whole = numpy.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(numpy.int16)
    return [whole[top:bottom, left:right] for left, top, right, bottom in boxes]


def coloured(box: Any) -> Any:
    """Height × width: the pixels that are not shade of grey, as curves are and axes are not."""
    return box.max(axis=2) - box.min(axis=2) > 24


def ink(picture: bytes, boxes: list[list[int]]) -> list[int]:
    """How many coloured pixels each box has."""
    return [int(coloured(box).sum()) for box in pixels(picture, boxes)]


def when_drawn(frames: list[tuple[float, bytes]], boxes: list[list[int]]) -> tuple[float, float]:
    """When the first box and when every box had half of its ink, at its place and in its colour."""
    final = [(box[coloured(box)], coloured(box)) for box in pixels(frames[-1][1], boxes)]
    first = 0.0
    for at, picture in frames:
        boxed = pixels(picture, boxes)
        close = [abs(box[mask] - last).max(axis=1) < 64 for box, (last, mask) in zip(boxed, final, strict=True)]
        share = [float(one.mean()) for one in close]
        first = first or (at if max(share) >= 0.5 else 0.0)
        if min(share) >= 0.5:
            return first, at
    raise AssertionError("the last frame has all of the last frame's ink")


def still(before: list[int], now: list[int]) -> bool:
    return len(before) == len(now) > 0 and all(
        one > 30 and abs(one - other) <= 0.05 * one for one, other in zip(now, before, strict=True)
    )


def watch(browser: Any, address: str, charts: str) -> Watched:
    """Opens an address and looks until its charts stay as they are."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(1000 * MOST_SECONDS)
    seen = Watched()
    protocol = context.new_cdp_session(page)

    def frame(event: dict[str, Any]) -> None:
        seen.frames.append((event["metadata"]["timestamp"], base64.b64decode(event["data"])))
        protocol.send("Page.screencastFrameAck", {"sessionId": event["sessionId"]})

    protocol.on("Page.screencastFrame", frame)
    protocol.on("Network.loadingFinished", lambda event: seen.sizes.append((time.time(), event["encodedDataLength"])))
    page.on("response", lambda answer: seen.answers.append(answer))  # it looks into what it calls
    protocol.send("Network.enable")
    protocol.send("Page.startScreencast", {"format": "jpeg", "quality": 90, "everyNthFrame": 1})
    page.goto(address, wait_until="commit")
    seen.began = page.evaluate("performance.timeOrigin") / 1000
    counts: list[int] = []
    since = time.monotonic()
    while time.monotonic() - since < STILL_SECONDS:
        page.wait_for_timeout(500)
        seen.boxes = page.evaluate(BOXES, charts)
        now = ink(seen.frames[-1][1], seen.boxes) if seen.frames else []
        if not still(counts, now):
            counts, since = now, time.monotonic()
        if time.time() - seen.began > MOST_SECONDS:
            raise RuntimeError(f"no charts that stay within {MOST_SECONDS:.0f} s")
    seen.answers = [one for one in seen.answers if one.request.resource_type in ("xhr", "fetch")]
    protocol.send("Page.stopScreencast")
    return seen


def has_spike(answers: list[Any]) -> bool:
    signs = [repr(peer_data.SPIKE).encode(), struct.pack("<d", peer_data.SPIKE), struct.pack("<f", peer_data.SPIKE)]
    for answer in answers:
        if "event-stream" in answer.headers.get("content-type", ""):
            continue  # it has no end
        body = answer.body()
        if any(sign in body for sign in signs):
            return True
    return False


@dataclass
class Opened:
    server: float  # milliseconds, as the next two
    first: float
    every: float
    sent: int
    charts: int
    spike: bool
    picture: bytes


def opened(browser: Any, name: str, folder: Path, python: Path, runs: int, steps: int) -> Opened:
    """One round: a new server, a new profile."""
    served = Served(folder) if name == "barograph" else PeerServer(name, folder, python, runs, steps)
    address = str(served.http.base_url).rstrip("/") if isinstance(served, Served) else served.address
    try:
        seen = watch(browser, TOOLS[name].address(address, folder, runs), TOOLS[name].charts)
        spike = runs == 1 and has_spike(seen.answers)
    finally:
        served.close()
        for context in browser.contexts:
            context.close()
    first, whole = when_drawn(seen.frames, seen.boxes)
    size = sum(size for at, size in seen.sizes if at <= whole)
    began = seen.began
    return Opened(
        1000 * served.started, 1000 * (first - began), 1000 * (whole - began), size, len(seen.boxes), spike,
        seen.frames[-1][1],
    )  # fmt: skip


def table(browser: Any, title: str, rows: list[tuple[str, Callable[[], tuple[Path, int]], int]], options: Any) -> None:
    """title; what a line is called, how to get its files and steps, how many runs they have."""
    print(f"\n{title}")
    heads = ("steps", "server, ms", "first, ms", "all, ms", "charts", "kB", "spike")
    print(f"{'':<26}" + "".join(f"{head:>12}" for head in heads), flush=True)
    for line, files, runs in rows:
        try:
            folder, steps = files()
            name = line.split(",")[0]
            rounds = [opened(browser, name, folder, options.python, runs, steps) for _ in range(options.rounds)]
        except Exception as error:
            print(f"{line:<26}  left out: {str(error).splitlines()[0][:90] if str(error) else type(error).__name__}")
            continue
        if options.pictures:
            options.pictures.mkdir(parents=True, exist_ok=True)
            (options.pictures / f"{runs}_runs_{line.replace(', ', '_')}.jpg").write_bytes(rounds[-1].picture)
        middle = [
            statistics.median(getattr(one, key) for one in rounds) for key in ("server", "first", "every", "sent")
        ]
        found = (
            "yes"
            if all(one.spike for one in rounds)
            else "in some rounds"
            if any(one.spike for one in rounds)
            else "no"
        )
        shown = [f"{one:,.0f}" for one in (steps, *middle[:3], rounds[-1].charts, middle[3] / 1000)]
        print(f"{line:<26}" + "".join(f"{one:>12}" for one in (*shown, found if runs == 1 else "")), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="where the other trackers are installed"
    )
    parser.add_argument("--only", nargs="*", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--keep", type=Path, help="folder that keeps the runs for the next time")
    parser.add_argument("--pictures", type=Path, help="folder for what each page looked like at the end")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary, sync_playwright() as playwright:
        root = options.keep or Path(temporary)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)

        def line(name: str, size: tuple[int, int, int]) -> tuple[str, Callable[[], tuple[Path, int]], int]:
            return name, lambda: written(name, size, root, options.python), size[0]

        table(browser, "one run, one series", [line(name, ONE) for name in options.only], options)
        full = ("barograph, full size", lambda: (made_runs.many(root, metrics=20), 100_000), 100)
        rows = [line(name, MANY) for name in options.only] + ([full] if "barograph" in options.only else [])
        table(browser, f"{RUNS} runs × 20 metrics (full size: 100 runs)", rows, options)
        browser.close()


if __name__ == "__main__":
    main()
