"""The runs in a browser: table, filter, edits, keys, live, with the real server over small real runs.

In:   runs made here; Chromium.
Out:  what a person sees and does, also with hostile names and a server that goes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import barograph

pytest.importorskip("playwright")
from charted_pages import until
from playwright.sync_api import APIResponse, Page, Route, expect
from served_pages import NEEDED, SCRIPT, Served, browser, errors, free_port, names, page, record, root, row, served

__all__ = ["browser", "errors", "page", "root", "served"]  # fixtures

pytestmark = NEEDED


# -- the table -----------------------------------------------------------------------------------------


def test_the_table_shows_every_run_with_its_state_in_words(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/?view=table")
    expect(page.locator("tr.run")).to_have_count(4)
    table = page.get_by_role("table").first
    expect(table).to_have_attribute("aria-rowcount", "5")
    expect(row(page, "fast").get_by_text("finished")).to_be_visible()
    expect(row(page, "broken").locator("a.badge.critical")).to_have_attribute("href", "/run/gpt/broken/doctor")
    expect(page.get_by_role("columnheader", name="last train/loss")).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="4 runs")).to_be_visible()
    expect(page).to_have_title("Runs · Barograph")


def test_runs_are_asked_for_once_before_the_page_is_there_and_once_when_changes_arrive(
    page: Page, served: Served
) -> None:
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url.removeprefix(served.url)) if "/api/runs" in one.url else None)
    page.goto(f"{served.url}/?view=table")
    expect(page.locator("tr.run")).to_have_count(4)
    until(page, lambda: "/api/runs" in asked)
    assert asked == ["/api/runs?within=300", "/api/runs"]


def test_names_are_text_and_never_markup(page: Page, served: Served) -> None:
    columns = f"tags,notes,config:<b>key</b>,last:{SCRIPT}"
    page.goto(f"{served.url}/?view=table&group=tags&cols={quote(columns, safe='')}")
    odd = page.locator("tr.run", has=page.get_by_role("link", name=SCRIPT))
    expect(odd.first).to_be_visible()
    assert odd.first.inner_text().count(SCRIPT) >= 3  # name, notes, configuration
    assert page.locator("main script, main b").count() == 0
    page.get_by_role("link", name=SCRIPT).first.click()
    expect(page.locator(".crumb.here")).to_have_text(SCRIPT)
    assert page.title() != "broken"


def test_a_click_on_a_head_sorts_and_the_address_keeps_it(page: Page, served: Served) -> None:
    page.goto(served.url)
    head = page.get_by_role("columnheader", name="Name")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    first = names(page)
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert names(page) == first[::-1]
    assert "sort=-name" in page.url
    page.reload()
    expect(page.locator("tr.run")).to_have_count(4)
    assert names(page) == first[::-1]
    page.go_back()
    expect(page.get_by_role("columnheader", name="Name")).to_have_attribute("aria-sort", "ascending")


def test_a_filter_takes_words_and_conditions_and_says_kindly_what_it_cannot_read(page: Page, served: Served) -> None:
    page.goto(served.url)
    expect(page.locator("tr.run")).to_have_count(4)
    page.keyboard.press("/")
    expect(page.get_by_label("Filter the runs")).to_be_focused()
    page.keyboard.type("higher")
    expect(page.locator("tr.run")).to_have_count(1)
    assert names(page) == ["fast"]
    page.get_by_label("Filter the runs").fill("config.lr > 2e-3 and status = finished")
    expect(page.locator("tr.run")).to_have_count(1)
    expect(page.get_by_role("status").filter(has_text="1 of 4 runs")).to_be_visible()
    page.get_by_label("Filter the runs").fill("config.lr >")
    expect(page.locator("#filter-error")).to_contain_text("expected a value")
    expect(page.get_by_label("Filter the runs")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("tr.run")).to_have_count(1)  # those of before stay
    page.keyboard.press("Escape")
    expect(page.locator("tr.run")).to_have_count(4)
    page.goto(f"{served.url}/?q=nothing-has-this")
    expect(page.get_by_role("heading", name="No run matches")).to_be_visible()
    page.locator(".empty").get_by_role("button", name="Clear the filter").click()
    expect(page.locator("tr.run")).to_have_count(4)


def test_groups_open_and_close_with_their_counts(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/?group=config:lr&view=table")
    expect(page.locator("tr.group")).to_have_count(2)
    group = page.get_by_role("button", name="lr 0.001 3")
    group.click()
    expect(group).to_have_attribute("aria-expanded", "false")
    assert names(page) == ["fast"]
    page.reload()
    expect(page.locator("tr.group")).to_have_count(2)
    assert names(page) == ["fast"]


def test_columns_are_chosen_with_a_search(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/?view=table")
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("Find a column").fill("best eval")
    page.get_by_label("best eval/loss").uncheck()
    expect(page.get_by_role("columnheader", name="best eval/loss")).to_have_count(0)
    page.get_by_label("Find a column").fill("config seed")
    page.get_by_label("config seed").set_checked(False)
    expect(page.get_by_role("columnheader", name="seed")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.get_by_label("Find a column")).to_have_count(0)
    assert "cols=" in page.url


# -- edits ---------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    """Two runs that a test may change."""
    record(tmp_path, "gpt", "one", steps=12, config={"lr": 1e-3})
    record(tmp_path, "gpt", "two", steps=12, config={"lr": 2e-3})
    made = Served(tmp_path)
    yield made
    made.end()


def test_name_tags_and_notes_are_edited_in_place_and_kept(page: Page, own: Served, tmp_path: Path) -> None:
    page.goto(f"{own.url}/?view=table&cols=tags,notes&sort=name")
    expect(page.locator("tr.run")).to_have_count(2)
    page.keyboard.press("j")
    for key, text in (("e", "renamed"), ("t", f"a, b,{SCRIPT}"), ("n", "a note")):
        page.keyboard.press(key)
        field = page.locator("input.edit-field")
        expect(field).to_be_focused()
        field.fill(text)
        page.keyboard.press("Enter")
        expect(field).to_have_count(0)
    expect(row(page, "renamed")).to_contain_text("a note")
    page.reload()
    expect(row(page, "renamed").locator(".tag")).to_have_text(["a", "b", SCRIPT])
    kept = json.loads((tmp_path / "gpt" / "one" / "curation.json").read_text())
    assert (kept["name"], kept["notes"], kept["tags"]) == ("renamed", "a note", ["a", "b", SCRIPT])


def test_an_edit_that_the_server_refuses_is_taken_back_and_said(page: Page, own: Served) -> None:
    page.goto(f"{own.url}/?view=table&sort=name")
    expect(page.locator("tr.run")).to_have_count(2)
    page.route("**/api/runs/gpt/one", lambda route: route.fulfill(status=400, json={"error": "it is frozen"}))
    page.keyboard.press("j")
    page.keyboard.press("p")
    expect(page.locator(".toast")).to_contain_text("Not saved: it is frozen")
    expect(row(page, "one").get_by_label("pinned")).to_have_count(0)


def test_what_was_read_before_an_edit_does_not_take_it_back(page: Page, own: Served) -> None:
    held: list[tuple[Route, APIResponse]] = []
    page.route("**/api/live*", lambda route: route.abort())  # the page connects again, and then asks for all runs
    page.goto(f"{own.url}/?view=table&sort=name")
    expect(page.locator("tr.run")).to_have_count(2)
    page.route("**/api/runs", lambda route: held.append((route, route.fetch())))
    page.unroute("**/api/live*")
    until(page, lambda: bool(held))  # the answer is here, and not handed over yet
    page.keyboard.press("j")
    page.keyboard.press("j")
    with page.expect_response("**/api/runs/gpt/two"):
        page.keyboard.press("p")
    with page.expect_response("**/api/runs"):
        for route, answer in held:
            route.fulfill(response=answer)
    page.wait_for_timeout(300)
    assert names(page) == ["two", "one"]
    expect(row(page, "two").get_by_label("pinned")).to_be_visible()


def test_pinned_runs_stand_first_and_archived_ones_step_aside(page: Page, own: Served) -> None:
    page.goto(f"{own.url}/?view=table&sort=name")
    expect(page.locator("tr.run")).to_have_count(2)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("p")
    expect(row(page, "two").get_by_label("pinned")).to_be_visible()
    assert names(page) == ["two", "one"]
    page.keyboard.press("a")
    expect(page.locator("tr.run")).to_have_count(1)
    page.get_by_role("button", name="1 archived").click()
    expect(page.locator("tr.run")).to_have_count(2)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("tr.run.archived")).to_have_count(0)


def test_a_deleted_run_comes_back_when_undone(page: Page, own: Served, tmp_path: Path) -> None:
    page.goto(f"{own.url}/?view=table&sort=name")
    expect(page.locator("tr.run")).to_have_count(2)
    page.keyboard.press("j")
    page.keyboard.press("Delete")
    expect(page.locator(".toast")).to_contain_text("“one” deleted.")
    expect(page.locator("tr.run")).to_have_count(1)
    assert not (tmp_path / "gpt" / "one").exists()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("tr.run")).to_have_count(2)
    assert (tmp_path / "gpt" / "one" / "run_manifest.json").exists()


# -- live, empty, gone ---------------------------------------------------------------------------------


def test_an_empty_folder_says_what_to_type_and_shows_the_first_run_by_itself(page: Page, tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        page.goto(served.url)
        expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
        for text in ("barograph demo", "import barograph", "barograph import PATH"):
            expect(page.get_by_text(text, exact=False).first).to_be_visible()
        page.keyboard.press("v")  # the table alone, with the state in words
        run = barograph.init(project="gpt", name="first", dir=tmp_path, total_steps=100)
        run.log({"train/loss": 3.0}, step=10)
        expect(row(page, "first")).to_contain_text("training")
        run.log({"train/loss": 2.5}, step=50)
        expect(row(page, "first")).to_contain_text("50 / 100")
        run.finish()
        expect(row(page, "first")).to_contain_text("finished")
    finally:
        served.end()


@pytest.mark.slow
def test_a_server_that_is_gone_is_said_and_found_again(page: Page, tmp_path: Path) -> None:
    record(tmp_path, "gpt", "one", steps=5)
    served = Served(tmp_path, free_port())
    page.goto(served.url)
    expect(row(page, "one")).to_be_visible()
    served.end()
    expect(page.locator(".banner")).to_contain_text("The server does not respond")
    expect(row(page, "one")).to_be_visible()
    again = Served(tmp_path, served.port)
    try:
        expect(page.locator(".banner")).to_have_count(0)
        page.keyboard.press("j")
        page.keyboard.press("p")  # an edit works although the server has another token now
        expect(row(page, "one").get_by_label("pinned")).to_be_visible()
    finally:
        again.end()


# -- keys ----------------------------------------------------------------------------------------------


def test_all_is_done_with_keys_from_the_table_to_a_comparison_and_back(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/?sort=name&q=project+%3D+gpt")
    expect(page.locator("tr.run")).to_have_count(3)
    for key in ("j", "j", "x", "j", "x"):
        page.keyboard.press(key)
    expect(page.get_by_text("2 selected")).to_be_visible()
    page.keyboard.press("c")
    expect(page.get_by_role("heading", name="Verdict")).to_be_visible()
    assert "/compare?run=gpt/fast&run=gpt/slow" in page.url
    page.keyboard.press("Escape")
    expect(page.locator("tr.run").first).to_be_visible()
    page.keyboard.press("j")
    page.locator("tr.current").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/run/**/overview")
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/run/**/doctor")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url(served.url + "/")


def test_the_help_lists_the_keys_and_escape_closes_it(page: Page, served: Served) -> None:
    page.goto(served.url)
    expect(page.locator("tr.run").first).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    expect(page.get_by_text("compare the selected")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_what_is_hidden_is_not_drawn(page: Page, served: Served) -> None:
    page.goto(served.url)
    expect(page.get_by_text("Drawing 4 of 4")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("h")
    expect(page.get_by_text("Drawing 3 of 4")).to_be_visible()
    expect(page.locator("tr.current .swatch")).to_have_attribute("aria-pressed", "false")
    assert "hide=" in page.url
    page.keyboard.press("o")
    expect(page.get_by_text("Drawing 1 of 4")).to_be_visible()
    page.get_by_role("button", name="Show the others too").click()
    expect(page.get_by_text("Drawing 3 of 4")).to_be_visible()


def test_focus_is_seen_and_every_control_has_a_name(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/?sel=gpt/fast,gpt/slow")
    expect(page.locator("tr.run").first).to_be_visible()
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button, a[href], input, select')].filter((one) => one.checkVisibility())
        .filter((one) => !(one.getAttribute('aria-label') || one.innerText?.trim() || one.labels?.length || one.title))
        .map((one) => one.outerHTML.slice(0, 120))"""
    )
    assert unnamed == []
    for _ in range(12):
        page.keyboard.press("Tab")
        seen = page.evaluate("getComputedStyle(document.activeElement).outlineStyle + document.activeElement.className")
        assert not seen.startswith("none"), seen
