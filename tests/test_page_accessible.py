"""Every view of the page under axe-core, in both themes and on a phone: no violation, nothing cut, nothing that jumps.

In:   runs of every kind, among them one that crashed, one with layers and experts, one with media and ranks, one
      without a step; Chromium.
Out:  the rules of axe-core that a view breaks, with the elements; texts beyond the edge of a phone; layout shifts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
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
    "table": ("/?view=table&q=project+%3D+gpt", "tr.run", ""),
    "saved views": ("/?project=gpt", ".projects .views", ".projects .views button.small"),
    "scatter": ("/?view=explore&py=last:train/loss&px=config:lr", ".explore-host canvas", ".explore-table summary"),
    "parallel": ("/?view=explore&plot=parallel&pk=config:lr,last:train/loss", ".explore-host canvas", "summary"),
    "importance": ("/?view=explore&plot=importance&py=last:train/loss", ".explore-importance", ""),
    "box": ("/?view=explore&plot=box&py=last:train/loss&px=config:lr", ".explore svg .box", ".explore-table summary"),
    "bar": ("/?view=explore&plot=bar&py=last:train/loss&px=config:lr", ".explore svg .box", ""),
    "overview": ("/run/gpt/good/overview", ".figures-strip", ""),
    "overview, diverged": ("/run/gpt/broken/overview", ".ending", ".ending summary"),
    "overview, crashed": ("/run/gpt/crashed/overview", ".ending pre", ""),
    "overview, no step": ("/run/scratch/empty/overview", ".figures-strip", ""),
    "charts": ("/run/gpt/good/charts", ".chart canvas", ".charts-bar button[aria-controls='series-side']"),
    "layers": ("/run/gpt/inside/layers", ".heat canvas", ""),
    "no layers": ("/run/gpt/good/layers", ".layers h2", ""),
    "media": ("/run/gpt/seen/media?with=gpt/heard", ".media-open img", ".media-open"),
    "no media": ("/run/gpt/good/media", ".message h1", ""),
    "system": ("/run/gpt/crashed/system", ".figures-strip", ""),
    "system, ranks": ("/run/gpt/seen/system", "button.tile", ""),
    "doctor": ("/run/gpt/broken/doctor", ".finding", ".looked summary"),
    "compare": ("/compare?run=gpt/good&run=gpt/broken", ".figures", ""),
    "compare, samples, diffs": ("/compare?run=gpt/seen&run=gpt/heard", ".media-open img", "details summary"),
    "compare, groups": ("/compare?run=gpt/good&run=gpt/seen&run=gpt/heard&run=gpt/other", ".ranking", ""),
    "compare, one run": ("/compare?run=gpt/good", "h1, h2", ""),
    "nowhere": ("/nowhere", "h1", ""),
}
PHONE = dict.fromkeys(("runs", "table"), "li.card") | {"groups": ".card-group", "saved views": "li.card"}
CHECK = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"], rules: { "label-content-name-mismatch": {
    enabled: true } } });
  return found.violations.map((one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))]);
}"""
# nothing in sight is on its way
QUIET = """() => ![...document.querySelectorAll('.skeleton, [role=status], .quiet')].some((one) => {
  const { top, bottom } = one.getBoundingClientRect();
  return top < innerHeight && bottom > 0
    && (one.classList.contains('skeleton') || /^(Loading|Reading|Checking the rules)/.test(one.textContent));
})"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MACHINE", "WATCHDOG", "SIDECAR"):
            patch.setenv(f"BAROGRAPH_{name}", "false")
        record(root, "gpt", "good", config={"lr": 1e-3}, tags=["base"], notes="the first")
        record(root, "gpt", "broken", bad=True, config={"lr": 3e-3})
        barograph.init(project="scratch", id="empty", name="empty", dir=root, console="none").finish()
        run = barograph.init(project="gpt", name="inside", dir=root, console="none")
        for step in range(1, 21):
            run.log({"train/loss": 3 / step}, step=step)
            run.log_layers(step, {f"blocks.{at}": {"norm": 1.0 + at, "std": 0.1} for at in range(4)}, prefix="weights")
            run.log_expert_loads(step, {f"layers.{at}": [10, 30, 0 if at else 20, 20] for at in range(2)})
        run.finish()
        for name, code in (("seen", "-lr = 1\n+lr = 2"), ("heard", "-lr = 1\n+lr = 3"), ("other", "")):
            with_media(root, name, code)
        subprocess.run([sys.executable, "-c", CRASH, str(root)], check=False, env=os.environ, timeout=120)
    server = Served(root)
    yield server
    server.end()


def with_media(root: Path, name: str, code: str) -> None:
    """A run with images, audio, a table, samples, ranks and uncommitted changes."""
    config = {"lr": 1e-3 * len(name), "width": len(code), "dropout": 0.1}
    run = barograph.init(project="gpt", name=name, id=name, dir=root, console="none", git=False, config=config)
    for step in (0, 10, 20):
        run.log({"train/loss": 3 / (1 + step), "memory/allocated_bytes": 3e9}, step=step)
        run.log_image("attention", np.full((40, 60), step * 9, np.uint8), step, caption="head 0")
        run.log_audio("speech", np.sin(np.arange(800) / 9), step, rate=8000)
        run.log_table("answers", [{"question": f"{at} + 1", "answer": at + 1} for at in range(20)], step)
        run.log_sample(step, f"once upon a time, {name}", "once")
        run.record("ranks", step, {"by_rank": {str(rank): {"step_ms": 10.0 + 9 * rank} for rank in range(3)}})
    run.finish()
    about = Path(run.dir, "run_manifest.json")
    diff = f"diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n{code}\n" if code else ""
    known = json.loads(about.read_text()) | {"git": {"commit": "c" * 40, "dirty": bool(code), "diff": diff}}
    about.write_text(json.dumps(known))


def violations(page: Page) -> Any:
    page.wait_for_function(QUIET, timeout=60_000)
    # by the debugger: the page's own policy lets no script in
    page.evaluate(AXE.read_text() + "; void 0")
    return page.evaluate(CHECK)


# what a person cannot read on a narrow screen: text beyond its edges, or cut off where nothing says it in full
CUT = """(width) => {
  const bad = [];
  if (document.documentElement.scrollWidth > width) bad.push(`scrolls to ${document.documentElement.scrollWidth}`);
  const words = (one) => [...one.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join('');
  const scrolls = (one) => /auto|scroll/.test(getComputedStyle(one).overflowX);
  for (const one of document.querySelectorAll('body *')) {
    const text = words(one).trim();
    if (!text || !one.checkVisibility() || one.closest('.unseen, canvas, [aria-expanded=false]')) continue;
    const { left, right } = one.getBoundingClientRect();
    let inside = false;
    for (let at = one; at && !inside; at = at.parentElement) inside = scrolls(at);
    if (!inside && right > left && (left < -1 || right > width + 1)) bad.push(`beyond: ${text.slice(0, 60)}`);
    const hidden = /hidden|clip/.test(getComputedStyle(one).overflowX) && one.scrollWidth > one.clientWidth + 1;
    if (hidden && !one.closest('[title]')) bad.push(`cut: ${text.slice(0, 60)}`);
  }
  return bad;
}"""


SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) {
    const what = (one.sources ?? []).map(({ node }) => node?.className ?? node?.parentElement?.className);
    if (!one.hadRecentInput) window.shifts.push([one.value, what]);
  }
}).observe({ type: 'layout-shift', buffered: true });
"""
MOST_SHIFTED = 0.1  # "good" by the definition of the cumulative layout shift
STEADY = dict.fromkeys(("runs", "groups", "overview", "overview, crashed", "compare", "compare, groups"), 0.02)


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_accessible_steady_and_whole_on_a_phone(
    browser: Browser, served: Served, errors: list[str], view: str
) -> None:
    path, ready, opened = VIEWS[view]
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, color_scheme="light", reduced_motion="reduce"
    )
    context.add_init_script(SHIFTS)
    page = watched(context.new_page(), errors)
    page.goto(served.url + path)
    expect(page.locator(ready).first).to_be_visible()
    page.wait_for_function(QUIET)
    shifts = page.evaluate("window.shifts")
    assert sum(value for value, _ in shifts) < STEADY.get(view, MOST_SHIFTED), shifts
    if opened:
        page.locator(opened).first.click()
    assert violations(page) == []
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert violations(page) == []
    if page.get_by_role("dialog").count():
        page.keyboard.press("Escape")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator(PHONE.get(view, ready)).first).to_be_visible()
    assert violations(page) == []
    assert page.evaluate(CUT, 390) == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_breaks_no_rule_of_axe(browser: Browser, served: Served, tmp_path: Path, scheme: Any) -> None:
    report = tmp_path / "report.html"
    with urllib.request.urlopen(f"{served.url}/api/runs/gpt/seen/report.html", timeout=120) as answer:
        report.write_bytes(answer.read())
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    page.goto(report.as_uri())
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()
