"""Explore and Compare in a browser: every mark leads to its run, the choice is in the address, no dead ends."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from compared_runs import falling, make_run
from served_pages import NEEDED, Page, Served, browser, errors, expect, page  # noqa: F401

from barograph.analysis.compare.comparison import compare
from barograph.analysis.importance.explain import importance

pytestmark = NEEDED

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
WIDTHS = (128, 256)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Served]]:
    root = tmp_path_factory.mktemp("runs")
    for rate in RATES:
        for width in WIDTHS:
            for seed in (0, 1):
                final = 2 + abs(math.log10(rate) + 3) + 64 / width + 0.01 * seed
                config = {"lr": rate, "width": width, "seed": seed, "layers": 12}
                about = {"final_metrics": {"train/loss": final, "train/norm": 1.0 + seed}}
                make_run(root, f"lr{rate}-w{width}-s{seed}", falling(final, seed, 0.001), steps=40, config=config,
                         about=about, project="sweep", extra=lambda step: {"train/norm": 1.0 + step % 3})  # fmt: skip
    server = Served(root)
    yield root, server
    server.end()


def test_a_plot_has_its_data_as_a_table_that_leads_to_runs(page: Page, served: tuple[Path, Served]) -> None:  # noqa: F811
    page.goto(f"{served[1].url}/?view=explore&py=last:train/loss&px=config:lr")
    page.get_by_text("train/loss against lr as a table, 20 rows").click()
    expect(page.locator(".explore-table tbody tr")).to_have_count(20)
    page.get_by_role("button", name="mean of seeds").click()
    expect(page.get_by_text("train/loss against lr as a table, 10 rows")).to_be_visible()
    assert "seeds=mean" in page.url
    link = page.locator(".explore-table tbody a").first
    assert "/compare?run=" in (link.get_attribute("href") or "")  # a mark of two repeats
    page.get_by_role("button", name="Box", exact=True).click()
    expect(page.locator(".explore svg .box")).to_have_count(5)
    page.locator(".explore svg a:has(.point)").first.click()
    expect(page).to_have_url(re.compile(r"/run/sweep/lr"))


def test_a_brush_narrows_and_survives_in_the_address(page: Page, served: tuple[Path, Served]) -> None:  # noqa: F811
    page.goto(f"{served[1].url}/?view=explore&plot=parallel&pk=config:lr,config:width,last:train/loss")
    status = page.locator(".explore-count")
    expect(status).to_contain_text("20 of 20 runs")
    box = page.locator(".explore-host .layer").last.bounding_box()
    assert box is not None
    x = box["x"] + 48
    page.mouse.move(x, box["y"] + box["height"] - 20)
    page.mouse.down()
    page.mouse.move(x, box["y"] + box["height"] * 0.7, steps=4)
    page.mouse.up()
    expect(status).to_contain_text(re.compile(r"\b[48] of 20 runs"))
    shown = status.inner_text().split(" of ")[0]
    assert "pb=" in page.url
    page.reload()
    expect(status).to_contain_text(f"{shown} of 20 runs")
    page.get_by_role("button", name="Clear brushes").click()
    expect(status).to_contain_text("20 of 20 runs")
    assert "pb=" not in page.url


def test_importance_says_what_python_says(page: Page, served: tuple[Path, Served]) -> None:  # noqa: F811
    root, server = served
    page.goto(f"{server.url}/?view=explore&plot=importance&py=last:train/loss")
    found = importance(dir=root, metric="train/loss")
    expect(page.locator(".explore-importance .first")).to_have_text(found.sentences[0])
    expect(page.locator(".explore-importance tbody tr")).to_have_count(len(found.keys))
    page.get_by_role("button", name="lr", exact=True).click()
    expect(page).to_have_url(re.compile("px=config:lr"))


def test_compare_of_one_run_leads_on_to_a_ranking(page: Page, served: tuple[Path, Served]) -> None:  # noqa: F811
    root, server = served
    page.goto(f"{server.url}/compare?run=sweep/lr0.001-w256-s0")
    expect(page.get_by_role("heading", name="Same configuration, another seed")).to_be_visible()
    part = page.locator("section", has=page.get_by_role("heading", name="Differs in lr", exact=True))
    part.get_by_role("button", name="All 8 runs and the repeats").click()
    rows = page.locator(".ranking tbody tr")
    expect(rows).to_have_count(5)
    runs = [root / "sweep" / f"lr{rate}-w256-s{seed}" for rate in RATES for seed in (0, 1)]
    ranking = compare(*map(str, runs)).ranking
    assert ranking is not None
    expect(page.locator(".verdict-block .first")).to_have_text(ranking.sentence)
    expect(rows.first).to_contain_text("lr = 0.001")
    expect(page.get_by_label("Baseline")).to_contain_text("the best")
    small = page.locator(".small-multiples .slot").first
    small.scroll_into_view_if_needed()
    expect(page.locator(".small-multiples canvas").first).to_be_visible()
