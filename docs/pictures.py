"""Takes docs/pictures/: the page in Chromium and the demo in a terminal, from real runs of the demo.

    python docs/pictures.py                    # trains four small runs first, one broken on purpose: some minutes
    python docs/pictures.py --runs FOLDER      # with those that a call before has made, by `--keep FOLDER`
    python docs/pictures.py --only runs demo   # these pictures

Needs `playwright` and a Chromium (the variable CHROMIUM, else /usr/bin/chromium), and a quiet machine: on a busy one
the doctor rightly says in the pictures that throughput fell.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection
from io import StringIO
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).parent / "pictures"
# name, address ({gpt}, {moe}, … are runs), theme, width, height
PAGES = (
    ("runs", "/", "light", 1440, 720),
    ("charts", "/run/{gpt}/charts", "dark", 1280, 720),
    ("layers", "/run/{moe}/layers", "light", 1280, 850),
    ("doctor", "/run/{gpt-bad-batch}/doctor", "light", 1280, 760),
    ("compare", "/compare?run={gpt}&run={gpt-seed1}", "light", 1280, 880),
    ("phone", "/run/{gpt-bad-batch}/doctor", "dark", 390, 780),
)
DEMOS: tuple[list[str], ...] = ([], ["--seed", "1"], ["--moe"], ["--fault", "bad-batch"])
COLUMNS = 108  # of the terminal
WAITING = """() => !document.querySelector(".skeleton")
    && !/Checking the rules|Reading/.test(document.body.innerText)"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="a folder with the demo's runs")
    parser.add_argument("--keep", type=Path, help="where the runs are made, and stay")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", nargs="+", choices=[name for name, *_ in PAGES] + ["demo"], default=())
    options = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    wanted = set(options.only) or {name for name, *_ in PAGES} | {"demo"}
    with tempfile.TemporaryDirectory() as folder:
        place = (options.runs or options.keep or Path(folder) / "runs").absolute()
        if not options.runs and wanted != {"demo"}:
            train(place, options.steps)
        if wanted - {"demo"}:
            take_pages(place, wanted)
        if "demo" in wanted:
            draw_terminal(Path(folder), options.steps)


# -- the page ------------------------------------------------------------------------------------------


def train(place: Path, steps: int) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    for arguments in DEMOS:
        command = [sys.executable, "-m", "barograph", "demo", "--quiet", "--dir", place.name, "--steps", str(steps)]
        subprocess.run([*command, *arguments], check=False, cwd=place.parent, stdout=subprocess.DEVNULL)


def take_pages(place: Path, wanted: Collection[str]) -> None:
    from barograph.query.catalog import runs

    addresses = {run.name: f"{run.project}/{run.id}" for run in runs(place)}
    server = subprocess.Popen(
        [sys.executable, "-m", "barograph", "view", str(place), "--no-open"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        (address,) = re.findall(r"http://\S+?(?=/  )", server.stdout.readline())
        photograph(address, addresses, wanted)
    finally:
        server.terminate()
        server.wait()


def photograph(address: str, addresses: dict[str, str], wanted: Collection[str]) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, path, theme, width, height in PAGES:
            if name not in wanted:
                continue
            shape: Any = {"width": width, "height": height}
            page = browser.new_page(viewport=shape, color_scheme="dark" if theme == "dark" else "light")
            page.goto(address + path.format(**addresses))
            page.wait_for_timeout(2500)  # the diagnosis begins when the charts stand
            page.wait_for_function(WAITING, timeout=60_000)
            page.wait_for_timeout(1500)
            page.screenshot(path=PICTURES / f"{name}.png")
            page.close()
        browser.close()


# -- the terminal --------------------------------------------------------------------------------------


def draw_terminal(folder: Path, steps: int) -> None:
    """The demo in a pseudo terminal, its middle left out, colours and all."""
    from rich.console import Console
    from rich.text import Text

    os.chdir(folder)
    shown = in_terminal([sys.executable, "-m", "barograph", "demo", "--dir", "runs", "--steps", str(steps)])
    shown = re.sub(r"\S*python\S* -m barograph", "barograph", shown)
    shown = re.sub(r"\x1b\[\d*[A-DJKG]|.*\r(?!\n)", "", shown)  # a line drawn over itself: its last state
    console = Console(record=True, width=COLUMNS, file=StringIO(), color_system="truecolor", legacy_windows=False)
    for line in ["$ barograph demo", *shortened(shown.rstrip().split("\n"))]:
        console.print(Text.from_ansi(line), no_wrap=True, overflow="ellipsis", crop=True)
    svg = console.export_svg(title="barograph demo")
    # the terminal's own fonts: the picture loads nothing from anywhere
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (PICTURES / "demo.svg").write_text(svg.replace("Fira Code, monospace", "monospace") + "\n")


def in_terminal(command: list[str]) -> str:
    """Everything that a command writes to a terminal of COLUMNS columns."""
    pieces: list[bytes] = []

    def keep(descriptor: int) -> bytes:
        pieces.append(os.read(descriptor, 65536))
        return pieces[-1]

    os.environ |= {"COLUMNS": str(COLUMNS), "LINES": "40", "TERM": "xterm-256color"}
    pty.spawn(command, keep)
    return b"".join(pieces).decode("utf-8", "replace").replace("\r\n", "\n")


def shortened(lines: list[str]) -> list[str]:
    """The beginning and the end; of the steps between only those around an evaluation."""
    steps = [at for at, line in enumerate(lines) if re.match(r"(\x1b\[[\d;]*m)*(:: )?step ", line)]
    return lines if len(steps) < 20 else [*lines[: steps[5]], "   …", *lines[steps[-6] :]]


if __name__ == "__main__":
    main()
