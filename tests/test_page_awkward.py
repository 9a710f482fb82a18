"""Runs that nobody hopes for in a browser: empty, long, gone, with numbers and names at the ends of what there is.

In:   runs made here; Chromium.
Out:  what a person sees: nothing cut off, nothing claimed that was not looked at, a way on from every dead end.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import barograph
from barograph.sidecar.attend import attend

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect
from served_pages import NEEDED, Served, browser, errors, free_port, page, row, watched

__all__ = ["browser", "errors", "page"]  # fixtures

pytestmark = NEEDED

LONG = "L" * 180
LINES = "# first\n<img src=x onerror=alert(1)>\n" + "word " * 300


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("awkward")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAROGRAPH_MACHINE", "false")
        patch.setenv("BAROGRAPH_WATCHDOG", "false")
        nothing = barograph.init(project="p", name="nothing", dir=root)
        nothing.finish()
        attend(Path(nothing.dir), quiet=True)
        for name in ("one", "two", "three"):
            long = f"{name} {LONG}"
            run = barograph.init(
                project="p", id=name, name=long, dir=root, config={"lr": 1.0, "text": long}, notes=LINES
            )
            for step in range(50):
                run.log({"train/loss": 3 - step / 50, "constructor/x": step, "/starts": step}, step=step)
            run.finish()
        run = barograph.init(project="p", name="spread", dir=root)
        for step in range(5000):
            run.log({"train/loss": 1e300 * (step + 1)}, step=step)
        run.finish()
        for at in range(62):
            run = barograph.init(project="many", name=f"run {at}", dir=root, config={"lr": at})
            for step in range(3):
                run.log({"train/loss": 3 - step / 50 + at}, step=step)
            run.finish()
    made = Served(root)
    yield made
    made.end()


def comparison(served: Served, *keys: str) -> str:
    return f"{served.url}/compare?" + "&".join(f"run={quote(key)}" for key in keys)


# -- nothing, and much ---------------------------------------------------------------------------------


def test_a_run_without_metrics_says_so_and_is_not_called_sound(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/run/p/nothing")
    expect(page.get_by_text("The run ended without logging a metric.")).to_be_visible()
    expect(page.get_by_role("region", name="Findings")).to_contain_text("No verdict: no loss was found")
    assert page.locator(".overview canvas").count() == 0
    page.get_by_role("link", name="Doctor").click()
    expect(page.locator(".verdict.unknown")).to_contain_text("No verdict: no loss was found")
    page.get_by_role("link", name="Charts", exact=True).click()
    accounts = page.get_by_role("button", name="Time and energy")
    expect(accounts).to_have_attribute("aria-expanded", "false")  # no chart of what is not a metric
    expect(page.locator(".chart canvas")).to_have_count(0)


def test_notes_keep_their_lines_and_long_ones_their_place(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/run/p/one")
    notes = page.locator(".notes p")
    expect(notes).to_contain_text("<img src=x")
    assert notes.inner_text().startswith("# first\n<img")
    box = notes.bounding_box()
    assert box and box["height"] < 200 and box["width"] > 400
    buttons = [page.locator(".run-acts .button").nth(at).bounding_box() for at in (0, 1)]
    assert buttons[0] and buttons[1] and buttons[0]["y"] == buttons[1]["y"]  # beside each other below a long name


def test_metrics_called_like_what_every_object_has_are_drawn_with_a_family(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/run/p/one/charts")
    for family in ("constructor", "other"):
        expect(page.locator(".families").get_by_role("button", name=family).first).to_be_visible()


# -- comparing -----------------------------------------------------------------------------------------


def test_long_values_leave_room_for_the_other_runs(page: Page, served: Served) -> None:
    page.goto(comparison(served, "p/one", "p/two", "p/three"))
    cells = page.locator("tr.changed", has_text="text").locator("td.mono")
    expect(cells).to_have_count(3)
    last = cells.last.bounding_box()
    assert last and last["x"] + last["width"] <= 1400
    name = page.locator(".sides .cut").first
    assert name.get_attribute("title") == f"one {LONG}"
    box = name.bounding_box()
    assert box and box["width"] < 500 and box["height"] < 30


def test_a_run_that_is_gone_can_be_left_out(page: Page, served: Served) -> None:
    page.goto(comparison(served, "p/one", "p/gone", "p/two"))
    expect(page.get_by_role("alert")).to_contain_text("p/gone")
    page.get_by_role("button", name="Compare the other 2").click()
    expect(page.locator(".sides li")).to_have_count(2)
    assert "gone" not in page.url


def test_more_than_sixty_runs_are_drawn_all(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/?view=table&q=project%20%3D%20many")
    expect(page.get_by_role("status").filter(has_text="62 of")).to_be_visible()
    page.get_by_label("Select all runs of the table").check()
    page.keyboard.press("c")
    expect(page.locator(".sides li")).to_have_count(62, timeout=60_000)
    sides = page.locator(".sides").bounding_box()
    assert sides and sides["height"] < 320
    page.locator(".curves").scroll_into_view_if_needed()
    expect(page.locator(".curves .u-over").first).to_be_visible()


def test_paper_has_the_rows_that_would_have_to_be_scrolled_to(page: Page, served: Served) -> None:
    page.set_viewport_size({"width": 1400, "height": 500})
    page.goto(f"{served.url}/?view=table")
    expect(page.locator("tr.run").first).to_be_visible()
    assert page.locator("tr.run").count() < 60
    count = "dispatchEvent(new Event('beforeprint')), document.querySelectorAll('tr.run').length"
    assert page.evaluate(count) == 67
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator("tr.run").nth(60)).to_have_count(0)


# -- axes and narrow screens ---------------------------------------------------------------------------


def test_a_logarithmic_x_axis_asks_for_buckets_of_its_own(page: Page, served: Served) -> None:
    with page.expect_request(lambda request: "/api/series" in request.url) as asked:
        page.goto(f"{served.url}/run/p/spread/charts?logx=1")
    assert asked.value.post_data_json["log"] is True
    with page.expect_request(lambda request: "/api/series" in request.url) as again:
        page.get_by_role("button", name="log x").click()
    assert again.value.post_data_json["log"] is False


def test_all_tabs_of_a_run_are_in_sight_on_a_phone(browser: Browser, served: Served, errors: list[str]) -> None:
    context = browser.new_context(viewport={"width": 375, "height": 812}, has_touch=True, is_mobile=True)
    page = watched(context.new_page(), errors)
    page.goto(f"{served.url}/run/p/one/doctor")
    tab = page.locator(".tab").last
    expect(tab).to_be_visible()
    box = tab.bounding_box()
    assert box and box["x"] + box["width"] <= 375
    page.goto(comparison(served, "p/one", "p/two"))
    expect(page.locator(".sides .cut").first).to_be_visible()
    for name in page.locator(".sides .cut").all():
        place = name.bounding_box()
        assert place and place["x"] + place["width"] <= 375
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    context.close()
    assert errors == []


# -- what goes away ------------------------------------------------------------------------------------


def small(root: Path, name: str) -> Path:
    run = barograph.init(project="p", name=name, dir=root)
    for step in range(5):
        run.log({"train/loss": 3 - step}, step=step)
    run.finish()
    return Path(run.dir)


@pytest.mark.slow
def test_what_was_asked_while_the_server_was_away_is_asked_again(page: Page, tmp_path: Path) -> None:
    small(tmp_path, "one")
    served = Served(tmp_path, free_port())
    page.goto(f"{served.url}/?view=table")
    expect(row(page, "one")).to_be_visible()
    served.end()
    row(page, "one").get_by_role("link", name="one").click()
    expect(page.get_by_role("alert").filter(has_text="This run cannot be shown")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.get_by_role("button", name="Charts").first.click()
    expect(page.locator(".chart-error")).to_contain_text("does not respond")
    again = Served(tmp_path, served.port)
    try:
        expect(page.locator(".chart canvas").first).to_be_visible()
    finally:
        again.end()


@pytest.mark.slow
def test_a_run_that_is_deleted_while_it_is_shown_is_said_to_be_gone(page: Page, tmp_path: Path) -> None:
    folder = small(tmp_path, "one")
    small(tmp_path, "two")
    served = Served(tmp_path, free_port())
    try:
        page.goto(f"{served.url}/run/p/one/charts")
        expect(page.locator(".chart canvas").first).to_be_visible()
        assert page.get_by_text("no longer in its folder").count() == 0
        shutil.rmtree(folder)
        expect(page.get_by_role("alert")).to_contain_text("no longer in its folder")
    finally:
        served.end()
