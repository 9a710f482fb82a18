"""The charts and the run view in a browser, with the real server over real runs.

In:   runs made here; Chromium.
Out:  what a person sees in the charts, and does with pointer and keys; what travels to the server meanwhile.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas
import pytest

import barograph
from barograph.sidecar.attend import attend

pytest.importorskip("playwright")
from playwright.sync_api import Browser, FloatRect, Locator, Page, Route, expect
from served_pages import NEEDED, PATIENCE_MS, SCRIPT, Served, browser, served, watched

__all__ = ["browser", "page", "root", "served"]  # fixtures

SPIKE = 12_345  # the step of the one high value among 20,000

pytestmark = NEEDED
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


# -- one chart everywhere ---------------------------------------------------------------------------------------------


def menu(page: Page, found: Locator, entry: str) -> None:
    found.hover()
    found.get_by_role("button", name="Actions for").click()
    page.get_by_role("menuitem", name=entry).click()


def test_the_points_are_downloaded_as_they_were_logged(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "spike", query="?range=12000..12600")
    loss = chart(page, "train/loss")
    with page.expect_download() as taken:
        menu(page, loss, "Download CSV")
    rows = list(csv.DictReader(Path(taken.value.path()).read_text().splitlines()))
    wanted = barograph.StoredRun(root / key_of(root, "spike")).series("train/loss")
    inside = (wanted.step >= 12_000) & (wanted.step <= 12_600)
    assert [int(row["step"]) for row in rows] == wanted.step[inside].tolist()
    assert [float(row["value"]) for row in rows] == wanted.value[inside].tolist()


def test_the_svg_has_the_curve_the_title_and_every_tick(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "broken")
    loss = chart(page, "loss")
    with page.expect_download() as taken:
        menu(page, loss, "Download SVG")
    picture = ElementTree.fromstring(Path(taken.value.path()).read_text())
    texts = [one.text for one in picture.iter() if one.tag.endswith("text")]
    assert {"loss", "step", "train/loss", "eval/loss"} <= set(texts)
    width = float(picture.attrib["width"])
    for one in picture.iter():
        if one.attrib.get("text-anchor") == "middle":
            assert float(one.attrib["x"]) + 4 * len(one.text or "") < width - 12  # no tick is cut
    assert sum(one.attrib.get("stroke", "").lower() == "#0e30cf" for one in picture.iter()) <= 4


@pytest.mark.parametrize("query", ["", "?range=20..200&smooth=0.5", "?x=train/norm&series=train/loss - eval/loss"])
def test_the_python_code_gives_the_numbers_of_the_chart(
    browser: Browser, served: Served, root: Path, tmp_path: Path, query: str
) -> None:
    pytest.importorskip("matplotlib")
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    opened(page, served, root, "broken", query=query)
    title = "train/loss - eval/loss" if "series" in query else "loss"
    menu(page, chart(page, title), "Copy as Python")
    expect(page.get_by_text("in the clipboard")).to_be_visible()
    code = page.evaluate("navigator.clipboard.readText()")
    context.close()
    taken = f"frame.to_pickle({str(tmp_path / 'frame')!r}); figure.savefig({str(tmp_path / 'a.png')!r})"
    code = code.replace("plt.show()", taken)
    environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": str(Path(barograph.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=tmp_path)
    assert (tmp_path / "a.png").stat().st_size > 1000
    made = pandas.read_pickle(tmp_path / "frame")
    run = barograph.StoredRun(root / key_of(root, "broken"))
    if "series" in query:
        wanted = run.series("train/loss - eval/loss", x="train/norm")
        assert sorted(made["step"]) == wanted.step.tolist()
    else:
        wanted = run.series("ema(train/loss, 0.5)" if "smooth" in query else "train/loss")
        part = made[made["label"] == "train/loss"]
        inside = (wanted.step >= 20) & (wanted.step <= 200) if "range" in query else wanted.step >= 0
        assert part["step"].tolist() == wanted.step[inside].tolist()
        np.testing.assert_array_equal(part["value"], wanted.value[inside])


def test_an_expression_is_a_panel_of_its_own_and_in_the_address(page: Page, served: Served, root: Path) -> None:
    page.goto(f"{served.url}/?view=charts")
    page.get_by_role("button", name="Add a panel of an expression").click()
    page.get_by_label("Expression of metrics").fill("train/loss - eval/loss")
    page.keyboard.press("Enter")
    found = chart(page, "train/loss - eval/loss")
    expect(found).to_have_attribute("aria-label", re.compile(r"from -0\.1 "))
    page.wait_for_url(re.compile(r"expr=train/loss"))
    page.reload()
    chart(page, "train/loss - eval/loss")
    page.goto(f"{served.url}/?view=charts&expr=ema(train/loss")
    expect(page.get_by_text("the expression cannot be read at its end: expected )")).to_be_visible()


def test_the_runs_page_has_every_axis_and_scale_and_its_zoom_in_the_address(
    page: Page, served: Served, root: Path
) -> None:
    page.goto(f"{served.url}/?view=charts&q=project+%3D+odd")
    chart(page, "train/loss")
    page.get_by_role("button", name="log x").click()
    page.wait_for_url(re.compile("logx=1"))
    page.get_by_label("x-axis").select_option("train/norm")
    page.wait_for_url(re.compile("x=train/norm"))
    page.goto(f"{served.url}/?view=charts&q=project+%3D+odd")
    drag(page, chart(page, "train/loss"), 0.3, 0.7)
    page.wait_for_url(re.compile(r"range=\d+\.\.\d+(&|$)"))  # whole steps


def test_the_tooltip_stays_with_its_chart_after_a_zoom(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "broken")
    loss = chart(page, "loss")
    chart(page, "train/norm")
    drag(page, loss, 0.3, 0.6)
    page.wait_for_url(re.compile("range="))
    expect(page.locator(".chart-tip")).to_have_count(1)
    expect(loss.locator(".chart-tip")).to_have_count(1)


def test_a_flag_of_a_finding_stands_in_the_charts_of_its_metric_alone(page: Page, served: Served, root: Path) -> None:
    opened(page, served, root, "broken")
    expect(chart(page, "loss").locator("a.flag").first).to_be_attached()
    expect(chart(page, "train/norm").locator(".flag.checkpoint")).to_have_count(1)
    expect(chart(page, "train/norm").locator("a.flag[href*='non_finite_loss']")).to_have_count(0)


def test_lines_are_named_at_their_ends_and_only_those_that_have_the_metric(
    page: Page, served: Served, root: Path
) -> None:
    page.goto(f"{served.url}/?view=charts&q=project+%3D+odd")
    names = chart(page, "train/loss").locator(".chart-legend.ends button")
    expect(names).to_have_count(3)
    boxes = sorted((box["y"], box["height"]) for one in names.all() if (box := one.bounding_box()))
    assert all(second[0] - first[0] >= 12 for first, second in itertools.pairwise(boxes))
    # which one run alone has
    expect(chart(page, "eval/loss").locator(".chart-legend")).to_have_count(0)


def test_colours_are_the_same_in_every_browser_and_never_twice(browser: Browser, served: Served, root: Path) -> None:
    seen = []
    for first in ("/", "/run/deep/nothing/charts"):  # whatever was looked at before
        context = browser.new_context(viewport={"width": 1300, "height": 900})
        page = context.new_page()
        page.goto(served.url + first)
        page.goto(f"{served.url}/?view=charts&q=project+in+(odd,deep)")
        names = chart(page, "train/loss").locator(".chart-legend button")
        expect(names).to_have_count(4)
        colours = "(all) => all.map((one) => [one.innerText, one.querySelector('.key').style.color])"
        seen.append(sorted(names.evaluate_all(colours)))
        context.close()
    assert seen[0] == seen[1]
    assert len({colour for _, colour in seen[0]}) == 4
