"""Runs, fixtures and what a hand does, for the tests of charts in a browser."""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.sidecar.attend import attend

pytest.importorskip("playwright")
from playwright.sync_api import Browser, FloatRect, Locator, Page, expect
from served_pages import PATIENCE_MS, SCRIPT, Served, watched

SPIKE = 12_345  # the step of the one high value among 20,000

QUIET: dict[str, Any] = {"console": "none", "machine": False, "blackbox": False, "git": False}


def make_runs(root: Path) -> None:
    chance = random.Random(1)
    run = barograph.init(project="odd", name="spike", id="spike-a", dir=root, total_steps=20_000, **QUIET)
    for step in range(20_000):
        loss = 3 * math.exp(-step / 9000) + chance.gauss(0, 0.02) + (40 if step == SPIKE else 0)
        run.log({"train/loss": loss, "own/signed": chance.gauss(0, 1), "train/lr": 1e-3}, step=step)
    run.finish()
    attend(Path(run.dir), quiet=True)
    run = barograph.init(
        project="odd", name="broken", id="broken", dir=root, total_steps=300, notes=SCRIPT, config={SCRIPT: 1}, **QUIET
    )
    for step in range(300):
        loss = math.nan if step in (200, 201) else math.inf if step == 250 else 4 * math.exp(-step / 99) + 1
        run.log({"train/loss": loss, SCRIPT: float(step), "train/norm": 1 + step % 3}, step=step)
        if step % 50 == 0:
            run.log({"eval/loss": 4 * math.exp(-step / 99) + 1.1}, step=step)
    run.save_checkpoint(Path(run.dir) / "checkpoint.pt", 100, val_loss=2.0)
    run.log_sample(0, "Once there", "Once")
    run.log_sample(300, "Once upon a time", "Once")
    run.finish()
    attend(Path(run.dir), quiet=True)
    run = barograph.init(project="odd", name="rewound", id="rewound", dir=root, **QUIET)
    for step in range(100):
        run.log({"train/loss": 5.0}, step=step)
    run.rewind(60)
    for step in range(60, 140):
        run.log({"train/loss": 2.0}, step=step)
    run.finish()
    attend(Path(run.dir), quiet=True)
    run = barograph.init(project="deep", name="layers", id="layers", dir=root, **QUIET)
    for step in range(0, 200, 10):
        table = {f"blocks.{at}.weight": {"norm": 10.0 ** -(at % 5) * (1 + step), "mean": at - 3.0} for at in range(12)}
        run.log_layers(step, table, prefix="gradients")
        run.log_histogram("gradients_hist/blocks.4.weight", [chance.gauss(0, 1 + step) for _ in range(500)], step=step)
        run.log({f"moe/h.0/load/{at}": 0.25 for at in range(4)} | {"train/loss": 1.0}, step=step)
    run.finish()
    attend(Path(run.dir), quiet=True)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAROGRAPH_WATCHDOG", "false")
        make_runs(made)
    return made


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page of a new browser profile. Nothing may be thrown in it, and no content policy violated."""
    errors: list[str] = []
    options = getattr(request, "param", {})
    context = browser.new_context(**{"viewport": {"width": 1300, "height": 900}} | options)
    made = watched(context.new_page(), errors)
    made.set_default_timeout(PATIENCE_MS)
    yield made
    assert made.title() != "broken"
    context.close()
    assert errors == []


def key_of(root: Path, name: str) -> str:
    for about in root.glob("*/*/run_manifest.json"):
        if json.loads(about.read_text())["name"] == name:
            return f"{about.parent.parent.name}/{about.parent.name}"
    raise KeyError(name)


def opened(page: Page, served: Served, root: Path, name: str, tab: str = "charts", query: str = "") -> None:
    page.goto(f"{served.url}/run/{key_of(root, name)}/{tab}{query}")


def chart(page: Page, title: str) -> Locator:
    """The chart of a title, with its data."""
    found = page.locator(
        "figure.chart", has=page.locator(".chart-title", has_text=re.compile(f"^{re.escape(title)}"))
    ).first
    expect(found.locator("canvas").first).to_be_visible()
    expect(found.locator(".chart-says")).to_have_count(0)
    return found


INK = """(canvas) => {
  const { data, width, height } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let coloured = 0, top = height;
  for (let at = 0; at < data.length; at += 4) {
    const [r, g, b, a] = data.subarray(at, at + 4);
    if (a > 60 && Math.max(r, g, b) - Math.min(r, g, b) > 60) {
      coloured += 1;
      top = Math.min(top, Math.floor(at / 4 / width));
    }
  }
  return { coloured, top: top / height };
}"""


def ink(found: Locator) -> Any:
    """How many pixels have a colour, and how high up the first of them is, as a share of the height."""
    return found.locator("canvas").first.evaluate(INK)


def settled_ink(found: Locator) -> int:
    """Coloured pixels once they stay as many."""
    seen, before = -1, -2
    until = time.monotonic() + 20
    while seen != before or seen <= 0:
        assert time.monotonic() < until, "the chart does not settle"
        before, seen = seen, int(ink(found)["coloured"])
        found.page.wait_for_timeout(300)
    return seen


def plot(found: Locator) -> FloatRect:
    box = found.locator(".u-over").bounding_box()
    assert box is not None
    return box


def drag(page: Page, found: Locator, start: float, end: float) -> None:
    box = plot(found)
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + (start + end) / 2 * box["width"], y, steps=3)
    page.mouse.move(box["x"] + end * box["width"], y, steps=3)
    page.mouse.up()


def until(page: Page, holds: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait until something holds, however slow the machine is."""
    for _ in range(int(seconds * 10)):
        if holds():
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"not within {seconds} s")
