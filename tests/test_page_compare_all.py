"""A comparison of all runs of a project, as they come: one goes on, one was logged elsewhere and lacks a metric."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compared_runs import falling, make_run
from served_pages import NEEDED, Page, Served, browser, errors, expect, page  # noqa: F401
from served_runs import trained

pytestmark = NEEDED


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("runs")
    for rate in (1e-3, 1e-2):
        for seed in (0, 1, 2):
            loss = falling(2 + 10 * rate, seed)
            make_run(root, f"lr{rate}-s{seed}", loss, evaluate=loss, project="sweep", config={"lr": rate, "seed": seed})
    make_run(root, "elsewhere", falling(2.5, 9), project="sweep", config={"lr": 3e-3})
    going = trained(root, "going", 300, "sweep", config={"lr": 3e-2})
    server = Served(root)
    yield server
    server.end()
    going.finish()


def test_what_stands_in_the_way_of_an_answer_is_left_out_by_a_click(page: Page, served: Served) -> None:  # noqa: F811
    page.goto(f"{served.url}/?project=sweep&view=table")
    page.get_by_label("Select all runs of the table").click()
    page.get_by_role("button", name="Compare").click()
    sides = page.locator(".sides li")
    expect(sides).to_have_count(4)
    page.get_by_role("button", name="Leave out 1 run still running").click()
    expect(sides).to_have_count(3)
    expect(page.locator(".compare")).not_to_contain_text("going")
    expect(page.get_by_role("button", name="still running")).to_have_count(0)
    metric = page.get_by_label("Metric")
    expect(metric.locator("optgroup option")).to_have_text(["eval/loss: without 1 run"])
    metric.select_option("eval/loss")
    expect(sides).to_have_count(2)
    expect(page.locator(".verdict-block .first")).to_contain_text("eval/loss")
    expect(metric).to_have_value("eval/loss")
