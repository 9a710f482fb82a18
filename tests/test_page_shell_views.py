"""Comparison, doctor, themes, phone and paper in a browser, with the real server over small real runs.

In:   runs made here; Chromium.
Out:  what a person sees; contrast, widths, sizes.
"""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect
from served_pages import ASSETS, CONTRAST, NEEDED, Served, browser, errors, page, root, row, served, watched

__all__ = ["browser", "errors", "page", "root", "served"]  # fixtures

pytestmark = NEEDED


# -- comparison and doctor -----------------------------------------------------------------------------


def test_a_comparison_says_its_verdict_first_and_then_what_differs(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/compare?run=gpt/slow&run=gpt/fast")
    verdict = page.get_by_role("region", name="Verdict")
    expect(verdict).to_contain_text("One thing changed")
    expect(verdict).to_contain_text("lr (0.001 → 0.003)")
    expect(page.locator("tr.changed")).to_contain_text("lr")
    figures = page.locator(".figures tbody tr", has_text="eval/loss, final")
    expect(figures.locator("td.against.better")).to_contain_text("-")
    expect(page.locator(".curves canvas").first).to_be_visible()
    page.get_by_label("Metric").select_option("train/loss")
    expect(verdict).to_contain_text("train/loss")
    assert "metric=train/loss" in page.url
    page.get_by_label("x-axis", exact=True).select_option("tokens")
    expect(page.get_by_role("alert")).to_contain_text("Not compared")
    page.get_by_role("button", name="Compare with the defaults").click()
    expect(verdict).to_contain_text("One thing changed")


def test_groups_are_compared_as_bands(page: Page, served: Served, root: Path) -> None:
    odd = next((root / "odd").iterdir()).name
    page.goto(f"{served.url}/compare?run=gpt/slow&run=odd/{quote(odd)}&run=gpt/fast&group=lr")
    expect(page.locator(".sides li")).to_have_count(2)
    first = page.locator(".curves .chart").first
    expect(first.locator("canvas").first).to_be_attached()
    expect(first).to_contain_text("mean and standard deviation of each group")
    expect(first).to_contain_text("(2 runs)")


def test_a_comparison_of_one_run_says_how_to_choose_more(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/compare?run=gpt/slow")
    expect(page.get_by_role("heading", name="Compare slow with …")).to_be_visible()
    page.get_by_role("button", name="fast", exact=True).click()
    expect(page.locator(".sides li")).to_have_count(2)


def test_the_doctor_tells_findings_with_evidence_and_leads_to_the_chart(page: Page, served: Served) -> None:
    page.goto(served.url)
    row(page, "broken").locator("a.badge.critical").click()
    page.wait_for_url("**/run/gpt/broken/doctor")
    finding = page.locator(".finding.critical").first
    expect(finding).to_contain_text("NaN")
    expect(page.locator(".verdict")).to_contain_text("NaN since step 31")
    expect(finding.locator(".chart canvas").first).to_be_attached()
    expect(finding.get_by_role("heading", name="What to try")).to_be_visible()
    link = finding.locator("header a.where")
    assert "/run/gpt/broken/charts?at=" in str(link.get_attribute("href"))
    page.get_by_text("Rules not checked").click()
    expect(page.get_by_role("columnheader", name="Metric to log")).to_be_visible()


# -- themes, phone, paper, size ------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_text_has_contrast_and_nothing_is_wider_than_the_screen(
    browser: Browser, served: Served, errors: list[str], scheme: Any, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = watched(context.new_page(), errors)
    for path, ready in (
        ("/?sel=gpt/fast,gpt/slow", "tr.run, li.card"),
        ("/?group=config:lr", "tr.group, .card-group"),
        ("/compare?run=gpt/slow&run=gpt/fast", ".figures"),
        ("/run/gpt/broken/doctor", ".finding"),
    ):
        page.goto(served.url + path)
        expect(page.locator(ready).first).to_be_visible()
        assert page.evaluate(CONTRAST) == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    context.close()
    assert errors == []


def test_a_phone_shows_cards_that_can_be_worked_with(browser: Browser, served: Served, errors: list[str]) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = watched(context.new_page(), errors)
    page.goto(f"{served.url}/?q=project+%3D+gpt")
    expect(page.locator("li.card")).to_have_count(3)
    for name in ("slow", "fast"):
        page.get_by_label(f"Select {name}").tap()
    page.get_by_role("button", name="Compare").tap()
    expect(page.get_by_role("region", name="Verdict")).to_be_visible()
    context.close()
    assert errors == []


def test_the_theme_is_chosen_and_remembered(page: Page, served: Served) -> None:
    page.goto(served.url)
    root = page.locator("html")
    expect(root).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("button", name="Theme").click()
    expect(root).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(root).to_have_attribute("data-theme", "dark")


def test_on_paper_there_is_nothing_to_press(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/run/gpt/broken/doctor")
    expect(page.locator(".finding").first).to_be_visible()
    page.emulate_media(media="print")
    expect(page.get_by_role("button", name="Theme")).to_be_hidden()
    expect(page.locator(".finding").first).to_be_visible()


@pytest.mark.slow
def test_ten_thousand_runs_scroll_with_a_few_rows_in_the_page(page: Page, served: Served) -> None:
    row_of = {
        "project": "p", "status": "finished", "wall_seconds": 60, "tags": [], "notes": "", "pinned": False,
        "archived": False, "step": 100, "total_steps": 100, "remaining_seconds": None, "findings": {}, "parent": None,
        "fork_step": None,
    }  # fmt: skip
    runs = [
        row_of | {
            "key": f"p/r{at}", "id": f"r{at}", "name": f"r{at}", "created": at, "config": {"lr": at % 7},
            "last": {"train/loss": math.sin(at)}, "best": {"train/loss": -1.0},
        }
        for at in range(10_000)
    ]  # fmt: skip
    body = json.dumps({"runs": runs, "projects": ["p"], "stamp": "1", "left_out": []})
    page.route("**/api/runs", lambda route: route.fulfill(body=body, content_type="application/json"))
    page.goto(f"{served.url}/?view=table")
    expect(page.locator("tr.run").first).to_be_visible()
    expect(page.get_by_role("table").first).to_have_attribute("aria-rowcount", "10001")
    assert page.locator("tr.run").count() < 80
    frames = page.evaluate(
        """async () => {
          const box = document.querySelector('.table-box'); const times = []; let last = performance.now();
          for (let at = 0; at < 60; at++) {
            box.scrollTop += 900;
            await new Promise(requestAnimationFrame);
            const now = performance.now(); times.push(now - last); last = now;
          }
          return times.sort((a, b) => a - b);
        }"""
    )
    # 17 ms on a free machine, several times that where other tests have the cores; a table of all rows takes seconds
    assert frames[len(frames) // 2] < 200, frames
    page.keyboard.press("Shift+G")
    expect(page.locator("tr.run.current")).to_contain_text("r0")
    assert page.locator("tr.run").count() < 80


def test_the_scripts_are_small_and_hold_their_licences() -> None:
    script = (ASSETS / "page.js").read_bytes()
    assert len(gzip.compress(script, 9)) <= 150_000
    assert b"dangerouslySetInnerHTML" not in b"".join(
        path.read_bytes() for path in (Path(__file__).parents[1] / "web" / "src").rglob("*.ts*")
    )


def test_an_address_that_leads_nowhere_says_so(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/nowhere")
    expect(page.get_by_role("heading", name="There is nothing at /nowhere")).to_be_visible()
