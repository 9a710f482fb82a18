"""Every view of the page under axe-core, in both themes: no violation.

In:   runs of every kind, among them one that crashed, one with layers and experts, one without a step; Chromium.
Out:  the rules of axe-core that a view breaks, with the elements.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect
from served_pages import NEEDED, Served, browser, errors, record, watched

import barograph

__all__ = ["browser", "errors"]  # fixtures

AXE = Path(__file__).parents[1] / "web" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = [*NEEDED, pytest.mark.skipif(not AXE.exists(), reason="axe-core is missing: cd web && npm ci")]

CRASH = """
import os, sys, barograph
run = barograph.init(project="gpt", name="crashed", dir=sys.argv[1], console="none", total_steps=100)
for step in range(1, 50):
    run.log({"train/loss": 3 / step, "host/cpu_util": 50.0, "host/process_cpu": 150.0}, step=step)
os._exit(9)
"""
# an address, what is there once the view stands, and what is opened then
VIEWS: dict[str, tuple[str, str, str]] = {
    "runs": ("/?sel=gpt/good,gpt/broken", "tr.run", ""),
    "groups": ("/?group=config:lr", "tr.group", ""),
    "cards": ("/?view=charts", ".chart canvas", ""),
    "overview": ("/run/gpt/good/overview", ".figures-strip", ""),
    "overview, diverged": ("/run/gpt/broken/overview", ".ending", ".ending summary"),
    "overview, crashed": ("/run/gpt/crashed/overview", ".ending pre", ""),
    "overview, no step": ("/run/gpt/empty/overview", ".figures-strip", ""),
    "charts": ("/run/gpt/good/charts", ".chart canvas", ".charts-bar button[aria-controls='series-side']"),
    "layers": ("/run/gpt/inside/layers", ".heat canvas", ""),
    "no layers": ("/run/gpt/good/layers", ".layers h2", ""),
    "system": ("/run/gpt/crashed/system", ".figures-strip", ""),
    "doctor": ("/run/gpt/broken/doctor", ".finding", ".looked summary"),
    "compare": ("/compare?run=gpt/good&run=gpt/broken", ".figures", ""),
    "compare, one run": ("/compare?run=gpt/good", "h1, h2", ""),
    "nowhere": ("/nowhere", "h1", ""),
}
CHECK = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"], rules: { "label-content-name-mismatch": {
    enabled: true } } });
  return found.violations.map((one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))]);
}"""
QUIET = "() => !document.querySelector('.skeleton') && !/Checking the rules|Loading/.test(document.body.innerText)"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MACHINE", "WATCHDOG", "SIDECAR"):
            patch.setenv(f"BAROGRAPH_{name}", "false")
        record(root, "gpt", "good", config={"lr": 1e-3}, tags=["base"], notes="the first")
        record(root, "gpt", "broken", bad=True, config={"lr": 3e-3})
        barograph.init(project="gpt", name="empty", dir=root, console="none").finish()
        run = barograph.init(project="gpt", name="inside", dir=root, console="none")
        for step in range(1, 21):
            run.log({"train/loss": 3 / step}, step=step)
            run.log_layers(step, {f"blocks.{at}": {"norm": 1.0 + at, "std": 0.1} for at in range(4)}, prefix="weights")
            run.log_expert_loads(step, {f"layers.{at}": [10, 30, 0 if at else 20, 20] for at in range(2)})
        run.finish()
        subprocess.run([sys.executable, "-c", CRASH, str(root)], check=False, env=os.environ, timeout=120)
    server = Served(root)
    yield server
    server.end()


def violations(page: Page) -> Any:
    page.wait_for_function(QUIET, timeout=60_000)
    # by the debugger: the page's own policy lets no script in
    page.evaluate(AXE.read_text() + "; void 0")
    return page.evaluate(CHECK)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_breaks_no_rule_of_axe(
    browser: Browser, served: Served, errors: list[str], view: str, scheme: Any
) -> None:
    path, ready, opened = VIEWS[view]
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
    page = watched(context.new_page(), errors)
    page.goto(served.url + path)
    expect(page.locator(ready).first).to_be_visible()
    if opened:
        page.locator(opened).first.click()
    assert violations(page) == []
    context.close()


def test_a_phone_breaks_no_rule_of_axe(browser: Browser, served: Served, errors: list[str]) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = watched(context.new_page(), errors)
    for path, ready in (("/", "li.card"), ("/run/gpt/broken/overview", ".ending"), ("/run/gpt/inside/layers", ".heat")):
        page.goto(served.url + path)
        expect(page.locator(ready).first).to_be_visible()
        assert violations(page) == [], path
    context.close()
