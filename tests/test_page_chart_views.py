"""One chart everywhere: its downloads, expressions, addresses, names at the ends of lines and colours."""

from __future__ import annotations

import csv
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas
import pytest

import barograph

pytest.importorskip("playwright")
from charted_pages import chart, drag, key_of, opened, page, root
from playwright.sync_api import Browser, Locator, Page, expect
from served_pages import NEEDED, Served, browser, served

__all__ = ["browser", "page", "root", "served"]  # fixtures

pytestmark = NEEDED


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
