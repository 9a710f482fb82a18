"""The charts and the run view in a browser, with the real server over real runs.

In:   runs made here; Chromium.
Out:  what a person sees in the charts, and does with pointer and keys; what travels to the server meanwhile.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import barograph

pytest.importorskip("playwright")
from charted_pages import chart, drag, ink, opened, page, plot, root, settled_ink, until
from playwright.sync_api import Browser, Page, Route, expect
from served_pages import NEEDED, SCRIPT, Served, browser, served

__all__ = ["browser", "page", "root", "served"]  # fixtures

pytestmark = NEEDED


def test_a_spike_of_one_step_among_twenty_thousand_is_seen(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "spike")
    loss = chart(page, "train/loss")
    seen = ink(loss)
    assert seen["coloured"] > 100
    assert seen["top"] < 0.15  # the spike reaches the top, all else is below a tenth of it
    expect(loss).to_have_attribute("aria-label", re.compile(r"between .* and 4\d\."))


def test_a_zoom_brings_exact_points_and_keys_lead_back(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "spike")
    loss = chart(page, "train/loss")
    with page.expect_request(
        lambda one: "/api/series" in one.url and '"from":null' not in (one.post_data or "")
    ) as asked:
        drag(page, loss, 0.60, 0.61)
    body = asked.value.post_data_json
    assert body is not None
    assert 11_500 < body["from"] < body["to"] < 12_700  # about the hundredth that was dragged over
    page.wait_for_url(re.compile(r"range="))
    drag(page, loss, 0.2, 0.5)
    page.wait_for_timeout(400)
    loss.focus()
    page.keyboard.press("t")
    expect(loss.locator(".chart-table")).to_contain_text(re.compile(r"\d+ points"))
    page.keyboard.press("t")
    page.keyboard.press("[")
    page.keyboard.press("0")
    expect(page).not_to_have_url(re.compile(r"range="))


def test_old_data_stay_while_new_ones_are_on_their_way(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "spike")
    loss = chart(page, "train/loss")
    given_up: list[str] = []
    page.on("requestfailed", lambda one: given_up.append(one.url))

    held: list[Route] = []
    page.route("**/api/series", lambda route: held.append(route))
    drag(page, loss, 0.2, 0.8)
    until(page, lambda: bool(held))
    assert ink(loss)["coloured"] > 100
    drag(page, loss, 0.2, 0.8)
    until(page, lambda: any("/api/series" in url for url in given_up))
    page.unroute("**/api/series")
    assert ink(loss)["coloured"] > 100


def test_a_link_to_a_range_opens_at_it_and_a_double_click_shows_all(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "spike", query="?range=12000..12600")
    loss = chart(page, "train/loss")
    expect(loss).to_have_attribute("aria-label", re.compile("from"))
    box = plot(loss)
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + 20)
    expect(page).not_to_have_url(re.compile(r"range="))


def test_keys_read_values_and_zoom(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "broken")
    loss = chart(page, "loss")
    loss.focus()
    page.keyboard.press("Home")
    spoken = loss.locator(".unseen[aria-live=polite]")
    expect(spoken).to_contain_text("step 0")
    page.keyboard.press("ArrowRight")
    expect(spoken).to_contain_text("step 1")
    page.keyboard.press("+")
    page.wait_for_url(re.compile("range="))
    expect(loss).to_have_attribute("aria-label", re.compile("Arrow keys"))


def test_nan_and_infinities_are_marks_that_say_where(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "broken")
    loss = chart(page, "loss")
    expect(loss.locator(".badge.bad")).to_have_text("3 not finite")
    box = plot(loss)
    page.mouse.move(box["x"] + box["width"] * 200 / 299, box["y"] + box["height"] / 2)
    expect(loss.locator(".tip-mark").first).to_contain_text("nan at step 200")


def test_a_logarithmic_axis_says_how_many_points_it_leaves_out(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "spike")
    signed = chart(page, "own/signed")
    signed.hover()
    signed.get_by_role("button", name="log").click()
    expect(signed.locator(".chart-head .badge")).to_have_text(re.compile(r"≥ [\d,]+ ≤ 0 left out"))


def test_the_cursor_is_one_for_all_charts(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "broken")
    loss, norm = chart(page, "loss"), chart(page, "train/norm")
    box = plot(loss)
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 30)
    expect(loss.locator(".chart-tip")).to_contain_text("eval/loss")
    expect(norm.locator(".chart-now .value")).to_have_text(re.compile(r"^[123]$"))
    line = norm.locator(".u-cursor-x")
    assert "translate(-" not in (line.get_attribute("style") or "")


def test_shift_and_a_drag_compare_a_range_with_the_one_before(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "broken")
    loss = chart(page, "loss")
    page.keyboard.down("Shift")
    drag(page, loss, 0.4, 0.6)
    page.keyboard.up("Shift")
    table = loss.locator(".comparison")
    expect(table).to_contain_text("change of the mean")
    expect(table.get_by_role("row", name=re.compile("^slope")).locator("td").first).to_have_text(re.compile("^-"))
    assert "range=" not in page.url


def test_flags_lead_to_the_story_and_marks_stand_where_things_happened(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "broken")
    loss = chart(page, "loss")
    expect(loss.locator(".flag.checkpoint:not([hidden])")).to_have_count(1)
    flag = loss.locator("a.flag:visible").first
    flag.locator("span").first.click()
    page.wait_for_url(re.compile(r"/doctor\?finding="))
    expect(page.locator(".finding.told")).to_be_in_viewport()


def test_a_branch_that_was_left_is_drawn_behind_and_marked(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "rewound")
    loss = chart(page, "train/loss")
    expect(loss.locator(".flag.resume")).to_have_count(1)
    address = page.url
    page.goto(address + "?old=0")
    with_old, without = -1, settled_ink(chart(page, "train/loss"))
    page.goto(address)
    until = time.monotonic() + 20  # the first paint may be before the old branch has come
    while with_old <= without and time.monotonic() < until:
        with_old = ink(chart(page, "train/loss"))["coloured"]
        page.wait_for_timeout(100)
    assert with_old > without


def test_series_are_found_by_an_expression_and_drawn(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "layers")
    chart(page, "train/loss")
    page.keyboard.press("/")
    page.keyboard.type("blocks.[3-4]..*/norm$")
    expect(page.locator("#series-found")).to_have_text("2 series")
    page.get_by_role("treeitem").first.click()
    chart(page, "gradients/blocks.3.weight/norm")
    assert "series=gradients/blocks.3.weight/norm" in page.url
    page.locator("#series-search").fill("(")
    expect(page.locator("#series-found")).to_contain_text("is not a regular expression")
    page.locator("#series-search").fill("")
    page.get_by_role("tree").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("treeitem", expanded=True)).to_have_count(1)


def test_layers_open_their_curve_and_their_distribution(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "layers", "layers")
    cells = page.locator(".heat-cells canvas").first
    expect(page.locator(".heat-names span")).not_to_have_count(0)
    box = cells.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 40, box["y"] + box["height"] * 4.5 / 12)
    expect(page.locator(".heat-tip")).to_contain_text("blocks.4.weight")
    page.mouse.click(box["x"] + 40, box["y"] + box["height"] * 4.5 / 12)
    chart(page, "gradients/blocks.4.weight/norm")
    expect(page.get_by_label("Distributions over time")).to_contain_text("nine tenths lie between")
    expect(page.get_by_label("Loads of experts")).to_contain_text("1 layer of 4 experts")
    page.get_by_label("statistic").select_option("mean")
    expect(page.locator(".heat-legend").first).to_contain_text("around zero")
    cells.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".heat .unseen").first).to_contain_text("blocks.1.weight")


def test_a_run_with_nothing_by_layer_says_so_and_the_console_is_quiet(page: Page, served: Served, root: Path) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    opened(page, served, root, "broken", "layers")
    expect(page.get_by_role("heading", name="No layer statistics")).to_be_visible()
    page.wait_for_timeout(500)
    expect(page.get_by_label("Loads of experts")).to_have_count(0)
    assert said == []


def test_the_overview_is_in_the_order_to_read_it(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "broken", "overview")
    chart(page, "Losses")
    order = page.locator(".overview section").evaluate_all("(all) => all.map((one) => one.ariaLabel.split(',')[0])")
    assert order[:4] == ["State and findings", "Notes", "The main curves", "Configuration"]
    assert order[4:] == ["About the run", "Checkpoints", "Samples"]
    expect(page.locator(".notes")).to_contain_text(SCRIPT)
    expect(page.locator(".sample").nth(1)).to_contain_text("upon a time")


def test_where_the_time_went_is_shown(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "broken", "system")
    expect(page.get_by_label("Where the time went")).to_contain_text("steps that count")


def test_a_layout_hides_a_panel_and_is_saved_for_the_project(
    page: Page, browser: Browser, served: Served, root: Path
) -> None:
    opened(page, served, root, "broken")
    norm = chart(page, "train/norm")
    norm.hover()
    norm.get_by_role("button", name="Actions for").click()
    page.get_by_role("menuitem", name="Hide this panel").click()
    expect(norm).to_have_count(0)
    page.get_by_role("button", name="Panel layout").click()
    page.get_by_role("button", name="Save for the project").click()
    expect(page.get_by_text("for everyone who opens this project")).to_be_visible()
    saved = json.loads((root / "odd" / "barograph-layout.json").read_text())
    assert saved["hidden"] == ["train/norm"]
    other = browser.new_context().new_page()
    opened(other, served, root, "broken")
    chart(other, "loss")
    expect(other.get_by_role("heading", name="train/norm")).to_have_count(0)
    other.context.close()
    (root / "odd" / "barograph-layout.json").unlink()


@pytest.mark.parametrize("page", [{"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"}], indirect=True)
def test_a_phone_shows_everything_without_scrolling_sideways(page: Page, served: Served, root: Path) -> None:
    for name, tab in (("broken", "overview"), ("broken", "charts"), ("layers", "layers"), ("broken", "system")):
        opened(page, served, root, name, tab)
        expect(page.locator(".run-head")).to_be_visible()
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab


def test_a_chart_is_drawn_anew_when_the_theme_changes(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "broken")
    canvas = chart(page, "loss").locator("canvas").first
    light = canvas.evaluate("(canvas) => canvas.toDataURL()")
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(300)
    assert canvas.evaluate("(canvas) => canvas.toDataURL()") != light


def test_points_of_a_run_in_progress_come_by_themselves(page: Page, served: Served, root: Path) -> None:
    program = (
        "import sys, time, barograph\n"
        "run = barograph.init(project='live', name='live', dir=sys.argv[1], console='none', machine=False, git=False)\n"
        "for step in range(10_000):\n"
        "    run.log({'train/loss': 1.0 + step}, step=step); print(run.dir, flush=True); time.sleep(0.1)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(barograph.__file__).parents[1])}
    training = subprocess.Popen(
        [sys.executable, "-c", program, str(root)], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert training.stdout is not None
        training.stdout.readline()
        page.wait_for_timeout(1000)
        opened(page, served, root, "live")
        loss = chart(page, "train/loss")
        value = loss.locator(".chart-now .value")
        first = float(value.inner_text())
        until = time.monotonic() + 8
        while float(value.inner_text()) <= first + 5:
            assert time.monotonic() < until, "no new point came"
            page.wait_for_timeout(100)
    finally:
        training.terminate()
        training.wait(20)


def test_a_run_without_points_says_so_and_one_that_is_not_there_too(page: Page, served: Served, root: Path) -> None:
    page.goto(f"{served.url}/run/odd/nothing/charts")
    expect(page.get_by_role("alert")).to_contain_text("This run cannot be shown")
