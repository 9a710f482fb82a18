"""Groups, projects and columns of the runs table in a browser, with the real server over small real runs.

In:   a sweep of two widths and two seeds, and a project with hostile names; Chromium.
Out:  what a person sees and does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import barograph
from barograph.core.text import number
from barograph.query.groups import groups

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect
from served_pages import CONTRAST, NEEDED, SCRIPT, Served, browser, errors, names, page, record, watched

__all__ = ["browser", "errors", "page"]  # fixtures

pytestmark = NEEDED


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MACHINE", "WATCHDOG", "SIDECAR"):
            patch.setenv(f"BAROGRAPH_{name}", "false")
        for width in (64, 128):
            for seed in (0, 1):
                config = {"model": {"width": width, "layers": 2}, "seed": seed, "lr": 1e-3 * (1 + seed + width / 64)}
                bad = width == 128 and seed == 1
                record(made, "sweep", f"w{width}-s{seed}", bad=bad, config=config)
        record(made, "odd", SCRIPT, config={"key": SCRIPT, "<b>": 1})
    return made


@pytest.fixture
def served(root: Path) -> Iterator[Served]:
    made = Served(root)
    yield made
    made.end()
    for path in root.glob("**/barograph-views.json"):
        path.unlink()


def test_a_group_has_a_head_of_numbers_and_a_curve_of_its_colour(page: Page, served: Served, root: Path) -> None:
    page.goto(f"{served.url}/?project=sweep&group=config:model.width&cols=last:train/loss,best:eval/loss")
    heads = page.locator("tr.group")
    expect(heads).to_have_count(2)
    expect(page.locator("tr.run")).to_have_count(4)
    low, _ = groups(str(root / "sweep"), "width")
    loss, evaluation = low.last("train/loss"), low.best("eval/loss")
    assert loss.mean and evaluation.best
    expect(heads.first).to_contain_text("width 64 2")
    expect(heads.first).to_contain_text(re.compile(rf"{re.escape(number(loss.mean, 4)[:4])}\S* ± "))
    expect(heads.first.locator(".statistic strong")).to_contain_text(number(evaluation.best, 4)[:4])
    expect(heads.nth(1)).to_contain_text("1 NaN")
    expect(page.get_by_text("Drawing 2 of 2 groups")).to_be_visible()
    legend = page.locator("figure.chart").first.locator(".chart-legend button")
    expect(legend).to_have_text(["width 64 (2)", "width 128 (2)"])
    colour = "(one) => getComputedStyle(one).color"
    assert heads.first.locator(".swatch").evaluate(colour) == legend.first.locator(".key").evaluate(colour)
    heads.first.locator(".swatch").click()
    expect(page.get_by_text("Drawing 1 of 2 groups")).to_be_visible()
    page.reload()
    expect(page.get_by_text("Drawing 1 of 2 groups")).to_be_visible()
    expect(page.locator("tr.group")).to_have_count(2)


def test_groups_are_chosen_by_several_keys_and_by_all_but_the_seed(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/?project=sweep&view=table")
    expect(page.locator("tr.run")).to_have_count(4)
    page.get_by_role("button", name="Group", exact=True).click()
    page.locator(".pick", has_text="seed").last.click()
    expect(page.locator("tr.group")).to_have_count(2)
    page.get_by_role("button", name="Grouped by seed").click()
    page.get_by_role("button", name="Group also by model.width").click()
    expect(page.locator("tr.group")).to_have_count(4)
    assert "group=config:seed,config:model.width" in page.url
    page.locator(".pick", has_text="all but seed").click()
    expect(page.locator("tr.group .group-button").first).to_contain_text("lr")
    page.goto(f"{served.url}/?group=config:nothing&view=table")
    expect(page.get_by_role("alert")).to_contain_text("no configuration has a key")
    expect(page.locator("tr.run")).to_have_count(5)


def test_hostile_names_of_groups_and_projects_are_text(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/?group=config:key")
    expect(page.locator("tr.group").first).to_contain_text(SCRIPT)
    expect(page.locator(".chart-legend").first).to_contain_text(SCRIPT)
    assert page.locator("main script, main b script").count() == 0 and page.title() != "broken"


def test_columns_are_what_varies_among_the_runs_shown(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/?project=sweep")
    for name in ("lr", "width", "seed"):
        expect(page.get_by_role("columnheader", name=name, exact=True)).to_be_visible()
    expect(page.locator(".same")).to_contain_text(re.compile(r"Same in all 4:\s*model.layers 2"))
    page.get_by_label("Filter the runs").fill("config.model.width = 64")
    expect(page.locator("tr.run")).to_have_count(2)
    expect(page.get_by_role("columnheader", name="width", exact=True)).to_have_count(0)
    expect(page.locator(".same")).to_contain_text("model.width 64")


def test_a_project_is_chosen_and_its_views_are_everybodys(
    browser: Browser, page: Page, served: Served, root: Path, errors: list[str]
) -> None:
    page.goto(served.url)
    projects = page.get_by_role("navigation", name="Projects")
    projects.get_by_role("link", name="sweep 4").click()
    expect(page.locator("tr.run")).to_have_count(4)
    assert "project=sweep" in page.url
    page.get_by_role("columnheader", name="Name").get_by_role("button").click()
    projects.get_by_role("button", name="Set as default").click()
    expect(page.get_by_text("where this project begins")).to_be_visible()
    context = browser.new_context(viewport={"width": 1400, "height": 800})
    other = watched(context.new_page(), errors)
    other.goto(f"{served.url}/?project=sweep&q=w64")
    for who, name in ((page, "by name"), (other, SCRIPT)):
        expect(who.get_by_role("button", name="Save view")).to_be_visible()
        who.get_by_role("button", name="Save view").click()
        who.get_by_label("Name of the view").fill(name)
        who.keyboard.press("Enter")
        expect(who.get_by_role("link", name=name, exact=True)).to_be_visible()
    kept = json.loads((root / "sweep" / "barograph-views.json").read_text())
    assert kept["views"] == {"by name": {"sort": "name"}, SCRIPT: {"q": "w64"}} and kept["settings"] == {"sort": "name"}
    other.goto(served.url)
    other.get_by_role("link", name="sweep 4").click()
    expect(other.get_by_role("link", name="by name")).to_have_attribute("aria-current", "true")
    assert "sort=name" in other.url
    other.get_by_role("link", name=SCRIPT).last.click()
    expect(other.locator("tr.run")).to_have_count(2)
    assert names(other) == ["w64-s1", "w64-s0"]
    other.get_by_role("button", name="Remove the view by name").click()
    expect(other.get_by_role("link", name="by name")).to_have_count(0)
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_of_groups_and_projects_can_be_read(
    browser: Browser, served: Served, errors: list[str], theme: str
) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=theme)
    made = watched(context.new_page(), errors)
    made.goto(f"{served.url}/?project=sweep&group=config:model.width")
    expect(made.locator("tr.group")).to_have_count(2)
    expect(made.get_by_role("button", name="Save view")).to_be_visible()
    assert made.evaluate(CONTRAST) == []
    context.close()
    assert errors == []


def test_on_a_phone_groups_are_heads_of_cards(browser: Browser, served: Served, errors: list[str]) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    made = watched(context.new_page(), errors)
    made.goto(f"{served.url}/?project=sweep&group=config:model.width")
    expect(made.locator(".card-group")).to_have_count(2)
    expect(made.locator(".card-group").first).to_contain_text("±")
    assert made.evaluate("document.documentElement.scrollWidth") <= 390
    made.get_by_role("button", name="Project: sweep").click()
    made.get_by_role("link", name="odd 1").click()
    expect(made.locator(".card-group, .card")).to_have_count(1)
    context.close()
    assert errors == []


def test_a_group_of_a_live_run_follows_it(page: Page, tmp_path: Path) -> None:
    record(tmp_path, "p", "ended", steps=5, config={"w": 1})
    run = barograph.init(project="p", name="live", dir=tmp_path, console="none", config={"w": 1})
    run.log({"train/loss": 5.0}, step=1)
    served = Served(tmp_path)
    try:
        page.goto(f"{served.url}/?group=config:w&cols=last:train/loss&view=table")
        head = page.locator("tr.group .statistic")
        expect(head).to_contain_text("±")
        before = head.inner_text()
        run.log({"train/loss": 500.0}, step=2)
        expect(head).not_to_have_text(before)
    finally:
        run.finish()
        served.end()
