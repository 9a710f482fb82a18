"""Takes docs/pictures/*.png: the page with real runs of the demo, in Chromium.

    python docs/page_pictures.py [--runs FOLDER] [--steps N]

Trains a few runs first (some minutes on two cores), of which one is broken on purpose; with `--runs` those that are
there are taken. Needs `playwright` and a Chromium (the variable CHROMIUM, else /usr/bin/chromium).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "pictures"
# name, address ({healthy}, {moe} and {faulty} are runs), theme, width, height
PICTURES = (
    ("runs", "/", "light", 1440, 780),
    ("charts", "/run/{healthy}/charts", "dark", 1280, 720),
    ("layers", "/run/{moe}/layers", "light", 1280, 720),
    ("doctor", "/run/{faulty}/doctor", "light", 1280, 720),
    ("compare", "/compare?run={healthy}&run={other}", "light", 1280, 720),
    ("phone", "/run/{faulty}/doctor", "dark", 390, 780),
)
DEMOS = (
    ("healthy", []),
    ("other", ["--seed", "1"]),
    ("moe", ["--moe"]),
    ("faulty", ["--fault", "bad-batch"]),
)


def train(folder: str, steps: int) -> None:
    for _, words in DEMOS:
        command = [sys.executable, "-m", "barograph", "demo", "--quiet", "--dir", folder, "--steps", str(steps), *words]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", help="a folder with the demo's runs, in the order in which they were made")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = options.runs or os.path.join(made, "runs")
        if not options.runs:
            train(folder, options.steps)
        from barograph.query.catalog import runs

        named = {
            name: f"{run.dir.parent.name}/{run.dir.name}" for (name, _), run in zip(DEMOS, runs(folder), strict=True)
        }
        serving = subprocess.Popen(
            [sys.executable, "-m", "barograph", "view", folder, "--no-open"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert serving.stdout is not None
            (address,) = re.findall(r"http://\S+?(?=/  )", serving.stdout.readline())
            take(address, named)
        finally:
            serving.terminate()


def take(address: str, named: dict[str, str]) -> None:
    from playwright.sync_api import sync_playwright

    HERE.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        where = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=where, args=["--no-sandbox"])
        for name, path, theme, width, height in PICTURES:
            shape: Any = {"width": width, "height": height}
            page = browser.new_page(viewport=shape, color_scheme="dark" if theme == "dark" else "light")
            page.goto(address + path.format(**named))
            page.wait_for_timeout(4000)  # charts and findings are there when the last answer has come
            page.screenshot(path=HERE / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
