"""What tests of the page share: small runs, the server over them, a browser, what is looked at in it.

In:   a folder.
Out:  fixtures and functions for `test_page_*.py`.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.sidecar.attend import attend

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
PATIENCE_MS = 30_000  # how long what is looked for may take on a machine that others use too
expect.set_options(timeout=PATIENCE_MS)
ASSETS = Path(barograph.__file__).parent / "assets"
SCRIPT = "<script>document.title = 'broken'</script>"

NEEDED = [
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"there is no browser {CHROMIUM}"),
    pytest.mark.skipif(not (ASSETS / "page.js").exists(), reason="the page is not built: cd web && node build.mjs"),
]


class Served:
    """`barograph view` over a folder, in a process of its own."""

    def __init__(self, root: Path, port: int = 0, **options: str):
        program = (
            "import json, sys; from barograph.views.server.command import view; "
            "view(sys.argv[1], port=int(sys.argv[2]), open_browser=False, **json.loads(sys.argv[3]))"
        )
        environment = os.environ | {"PYTHONPATH": str(Path(barograph.__file__).parents[1])}
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(root), str(port), json.dumps(options)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.url = next(word for word in line.split() if word.startswith("http://")).rstrip("/")
        if "url" in options:
            line = self.process.stdout.readline()
        self.port = int(re.findall(r"127\.0\.0\.1:(\d+)", line)[0])

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=20)


def free_port() -> int:
    """One that no other server takes while this one is away."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def record(root: Path, project: str, name: str, bad: bool = False, steps: int = 60, **options: Any) -> Path:
    """A small run that has ended. bad: its loss becomes NaN. Returns its folder."""
    run = barograph.init(project=project, name=name, dir=root, total_steps=steps, **options)
    rate = float(run.config.get("lr", 1e-3)) if isinstance(run.config, dict) else 1e-3
    for step in range(steps):
        loss = math.nan if bad and step > steps // 2 else 4 * math.exp(-step * rate * 20) + 2
        run.log({"train/loss": loss, "train/grad_norm": 1 + step % 3, SCRIPT: step}, step=step)
        if step % 10 == 9:
            run.log({"eval/loss": loss + 0.1}, step=step)
    run.finish()
    attend(Path(run.dir), quiet=True)  # what its sidecar would have done
    return Path(run.dir)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAROGRAPH_MACHINE", "false")
        patch.setenv("BAROGRAPH_WATCHDOG", "false")
        patch.setenv("BAROGRAPH_SIDECAR", "false")
        record(made, "gpt", "slow", config={"lr": 1e-3, "seed": 1}, tags=["base"])
        record(made, "gpt", "fast", config={"lr": 3e-3, "seed": 1}, notes="higher rate")
        record(made, "gpt", "broken", bad=True, config={"lr": 1e-3, "seed": 2})
        record(made, "odd", SCRIPT, config={"lr": 1e-3, "seed": 3, "<b>key</b>": SCRIPT}, tags=[SCRIPT], notes=SCRIPT)
    return made


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[Served]:
    made = Served(root)
    yield made
    made.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def errors() -> list[str]:
    return []


@pytest.fixture
def page(browser: Browser, errors: list[str]) -> Iterator[Page]:
    """A page of a new browser profile. Nothing may be thrown in it, and no content policy violated."""
    context = browser.new_context(viewport={"width": 1400, "height": 800})
    made = watched(context.new_page(), errors)
    yield made
    context.close()
    assert errors == []


def watched(page: Page, errors: list[str]) -> Page:
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(f"a dialog: {dialog.message}"))
    page.on("console", lambda said: errors.append(said.text) if "Content Security Policy" in said.text else None)
    return page


def row(page: Page, name: str) -> Any:
    return page.locator("tr.run", has=page.get_by_role("link", name=name, exact=True))


def names(page: Page) -> list[str]:
    return [text.strip().split("/")[-1] for text in page.locator("tr.run .run-link").all_inner_texts()]


# texts whose ink is less than 4.5 : 1 against what lies under them
CONTRAST = """() => {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext('2d', { willReadFrequently: true });
  const rgba = (text) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = text;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, under) => top.slice(0, 3).map((one, at) => (one * top[3] + under[at] * (255 - top[3])) / 255);
  const linear = (one) => (one / 255 <= 0.04045 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = (one) => {
    const stack = [];
    for (let at = one; at; at = at.parentElement) stack.unshift(rgba(getComputedStyle(at).backgroundColor));
    return stack.reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const words = (one) => [...one.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join('');
  const poor = [];
  for (const one of document.querySelectorAll('body *')) {
    if (!one.checkVisibility() || one.closest('svg, canvas, [disabled], option, .unseen')) continue;
    const text = (one.tagName === 'INPUT' ? one.value || one.placeholder : words(one)).trim();
    if (!text) continue;
    const under = ground(one);
    const [a, b] = [light(over(rgba(getComputedStyle(one).color), under)), light(under)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`${one.tagName}.${one.className} ${text.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return poor;
}"""
