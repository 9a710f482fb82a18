"""What is seen first: before the curves are there, before the list of runs is there, without a click on the columns.

In:   a small sweep; the page in Chromium, with answers of the server held back.
Out:  no axes of nothing, colours that stay, the columns that a person compares by, every axis in the comparison too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from compared_runs import falling, make_run

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, Route, expect
from served_pages import NEEDED, Served, browser, errors, page, watched

__all__ = ["browser", "errors", "page"]  # fixtures

pytestmark = NEEDED


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("runs")
    for width in (64, 128):
        for seed in (0, 1):
            loss = falling(2 + 32 / width, seed)
            make_run(root, f"w{width}-s{seed}", loss, evaluate=loss, project="sweep",
                     config={"model": {"width": width, "layers": 12}, "optimizer": {"lr": 1e-3 * (1 + seed)}},
                     extra=lambda step: {"memory/peak_bytes": 2.0**30 * (1 + step / 200)})  # fmt: skip
    make_run(root, "alone", falling(1.0, 0), project="other", config={"lr": 1})
    server = Served(root)
    yield server
    server.end()


class Held:
    """Keeps requests back until they are let go."""

    def __init__(self, page: Page, pattern: str):
        self.routes: list[Route] = []
        self.open = False
        page.route(re.compile(pattern), self.take)

    def take(self, route: Route) -> None:
        route.continue_() if self.open else self.routes.append(route)

    def let_go(self) -> None:
        self.open = True
        while self.routes:
            self.routes.pop().continue_()


@pytest.mark.parametrize("path", ["/?view=charts", "/run/sweep/w64-s0/charts", "/run/sweep/w64-s0/overview"])
def test_a_chart_that_loads_has_no_axes(page: Page, served: Served, path: str) -> None:
    held = Held(page, "/api/series$")
    page.goto(served.url + path)
    waiting = page.locator("figure.chart .chart-says", has_text="Loading").first
    expect(waiting).to_be_visible()
    expect(page.locator("figure.chart canvas").first).to_be_attached()
    drawn = (
        "(all) => all.filter((one) => one.checkVisibility({ visibilityProperty: true, opacityProperty: true })).length"
    )
    assert page.locator("figure.chart canvas").evaluate_all(drawn) == 0
    held.let_go()
    first = page.locator("figure.chart").first
    expect(first.locator(".chart-says")).to_have_count(0)
    assert first.locator("canvas").evaluate_all(drawn) > 0


def test_a_run_has_its_colour_before_the_list_of_runs_is_there(
    browser: Browser, served: Served, errors: list[str]
) -> None:
    colours = []
    for late in (False, True):
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        made = watched(context.new_page(), errors)
        held = Held(made, r"/api/runs(\?|$)") if late else None
        made.goto(f"{served.url}/run/sweep/w128-s1/charts?series=train/loss")
        key = made.locator("figure.chart .key").first
        expect(key).to_be_attached()
        colours.append(key.evaluate("(one) => getComputedStyle(one).color"))
        if held is not None:
            assert held.routes
            held.let_go()
        made.goto(f"{served.url}/?project=sweep")
        swatch = made.locator("tr.run", has_text="w128-s1").locator(".swatch")
        expect(swatch).to_be_visible()
        colours.append(swatch.evaluate("(one) => getComputedStyle(one).color"))
        context.close()
    assert len(set(colours)) == 1 and errors == []


def test_the_split_view_has_what_varies_and_the_losses_in_sight(page: Page, served: Served) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{served.url}/?project=sweep")
    for name in ("lr", "width", "best eval/loss", "last train/loss"):
        head = page.get_by_role("columnheader", name=name, exact=True)
        expect(head).to_be_visible()
        expect(head).to_be_in_viewport(ratio=0.9)
    expect(page.get_by_role("navigation", name="Projects")).to_be_visible()


def test_a_comparison_has_every_axis_too_and_writes_values_in_their_unit(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/compare?run=sweep/w64-s0&run=sweep/w128-s0&metric=memory/peak_bytes")
    chart = page.locator(".curves figure.chart").first
    expect(chart.locator("canvas").first).to_be_visible()
    axis = page.get_by_label("x-axis of the charts")
    axis.select_option("train/loss")
    page.wait_for_url(re.compile("along=train/loss"))
    expect(chart).to_have_attribute("aria-label", re.compile("over train/loss"))
    axis.select_option("step")
    page.get_by_role("button", name="log x").click()
    page.wait_for_url(re.compile("logx=1"))
    page.get_by_role("button", name="Actions for memory/peak_bytes").first.click()
    page.get_by_role("menuitem", name="Show as a table").click()
    expect(chart.locator(".chart-table")).to_contain_text("GiB")
    difference = page.locator(".band-chart")
    difference.locator(".u-over").hover()
    expect(difference.locator(".chart-legend strong").first).to_have_text(re.compile(r" (\w+)?B$|^0$"))
