"""What people come to the page for, each as the clicks that end in the answer, and how many of them there are.

In:   a sweep of learning rate, width and seed in which two runs diverge, and a run with layers of which one goes bad;
      the page in Chromium, opened at the project.
Out:  clicks a job. `MOST` has beside each an estimate of what W&B's workspace needs from the open project, unmeasured:
      a click, a choice in a list (two) and a drag count, typing doesn't.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from compared_runs import falling, make_run

import barograph
from barograph.query.groups import groups

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Locator, Page, expect
from served_pages import NEEDED, Served, browser, errors, names, row, served, watched

__all__ = ["browser", "errors", "served"]  # fixtures

pytestmark = NEEDED

# job: (clicks here, clicks in W&B; None where it has no such thing)
MOST: dict[str, tuple[int, int | None]] = {
    "best run of a sweep": (1, 3),
    "two losses over a logarithmic x axis": (4, 6),
    "learning rate against final loss": (1, 7),
    "which settings matter": (2, 3),
    "why it diverged": (1, None),
    "zoom into a spike": (1, 1),
    "which layer went bad": (2, None),
    "mean and band of groups": (2, 2),
    "what differs between two runs": (3, 5),
    "delete and undo": (3, None),
    "picture of a chart": (2, 3),
    "data of a chart": (2, 3),
    "share what is seen": (0, 2),
}
DIVERGED, SPIKE = 90, 120


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs")
    for rate in (1e-4, 3e-4, 1e-3, 1e-2):
        for width in (64, 128, 256):
            for seed in (0, 1):
                final = 2 + abs(math.log10(rate) + 3) + 32 / width + 0.01 * seed
                smooth = falling(final, seed, 0.001)
                bad = rate == 1e-2 and width == 256

                def loss(step: int, smooth=smooth, bad: bool = bad) -> float:  # type: ignore[no-untyped-def]
                    if bad and step >= DIVERGED:
                        return math.nan
                    return smooth(step) + 9 * (step == SPIKE)

                config = {"lr": rate, "width": width, "seed": seed, "layers": 12}
                about = {"final_metrics": {"step": 200, "loss": "NaN"}} if bad else None
                make_run(made, f"lr{rate:g}-w{width}-s{seed}", loss, evaluate=loss, eval_every=20, config=config,
                         project="sweep", about=about)  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MACHINE", "WATCHDOG", "SIDECAR"):
            patch.setenv(f"BAROGRAPH_{name}", "false")
        run = barograph.init(project="deep", name="inside", id="inside", dir=made, console="none")
        for step in range(1, 41):
            table = {
                f"blocks.{at}.weight": {"norm": 1.0 if (at, step > 20) != (7, True) else 900.0} for at in range(12)
            }
            run.log_layers(step, table, prefix="gradients")
            run.log({"train/loss": 3 / step}, step=step)
        run.finish()
    return made


class Hand:
    """Does what a person does with a pointer, and counts it."""

    def __init__(self, page: Page, address: str):
        self.page, self.address, self.clicks, self.job = page, address, 0, ""

    def open(self, path: str) -> None:
        self.page.goto(self.address + path)

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()

    def choose(self, what: Locator, option: str) -> None:
        self.clicks += 2
        what.select_option(option)

    def drag(self, what: Locator, start: float, end: float) -> None:
        self.clicks += 1
        box = what.bounding_box()
        assert box is not None
        y = box["y"] + box["height"] / 2
        self.page.mouse.move(box["x"] + start * box["width"], y)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + (start + end) / 2 * box["width"], y, steps=3)
        self.page.mouse.move(box["x"] + end * box["width"], y, steps=3)
        self.page.mouse.up()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def chart(self, title: str) -> Locator:
        head = self.page.locator(".chart-title", has_text=re.compile(f"^{re.escape(title)}"))
        found = self.page.locator("figure.chart", has=head).first
        expect(found.locator("canvas").first).to_be_visible()
        return found


@pytest.fixture
def hand(browser: Browser, served: Served, errors: list[str]) -> Iterator[Hand]:
    """At the page of the sweep, in a new browser profile."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    made = Hand(watched(context.new_page(), errors), served.url)
    made.open("/?project=sweep")
    expect(made.page.locator("tr.run").first).to_be_visible()
    yield made
    here, theirs = MOST[made.job]
    context.close()
    assert errors == []
    assert made.clicks == here
    assert theirs is None or here <= theirs


def test_the_best_run_of_a_sweep(hand: Hand) -> None:
    hand.job = "best run of a sweep"
    hand.click(hand.page.get_by_role("columnheader", name="best eval/loss").get_by_role("button"))
    expect(hand.page.locator("tr.run .run-link").first).to_contain_text("lr0.001-w256-s0")
    assert names(hand.page)[:2] == ["lr0.001-w256-s0", "lr0.001-w256-s1"]


def test_two_losses_over_a_logarithmic_x_axis(hand: Hand) -> None:
    hand.job = "two losses over a logarithmic x axis"
    for name in ("lr0.001-w256-s0", "lr0.001-w128-s0"):
        hand.click(row(hand.page, name).get_by_role("checkbox"))
    hand.click(hand.button("Compare"))
    hand.click(hand.button("log x"))
    hand.page.wait_for_url(re.compile("logx=1"))
    expect(hand.chart("eval/loss").locator(".chart-legend button")).to_have_count(2)


def test_the_learning_rate_against_the_final_loss(hand: Hand) -> None:
    hand.job = "learning rate against final loss"
    hand.click(hand.button("Explore"))
    expect(hand.page.get_by_text(re.compile("eval/loss against lr as a table, 24 rows"))).to_be_visible()
    expect(hand.page.get_by_label("colour")).to_have_value("config:width")
    expect(hand.button("log x")).to_have_attribute("aria-pressed", "true")


def test_which_settings_matter(hand: Hand) -> None:
    hand.job = "which settings matter"
    hand.click(hand.button("Explore"))
    hand.click(hand.button("Importance"))
    expect(hand.page.locator(".explore-importance")).to_contain_text(re.compile(r"lr explains \d+% of the variation"))


def test_why_a_run_diverged(hand: Hand) -> None:
    hand.job = "why it diverged"
    hand.click(row(hand.page, "lr0.01-w256-s0").get_by_role("link", name="diverged: open the doctor"))
    expect(hand.page.get_by_role("heading", name=f"The loss is NaN since step {DIVERGED}")).to_be_visible()
    expect(hand.page.get_by_text("What to try").first).to_be_visible()


def test_a_zoom_into_a_spike(hand: Hand) -> None:
    hand.job = "zoom into a spike"
    hand.drag(hand.chart("train/loss").locator(".u-over"), 0.55, 0.65)
    hand.page.wait_for_url(re.compile(r"range=\d+\.\.\d+"))
    low, high = map(int, re.findall(r"range=(\d+)\.\.(\d+)", hand.page.url)[0])
    assert low < SPIKE < high < low + 40


def test_which_layer_went_bad(hand: Hand) -> None:
    hand.job = "which layer went bad"
    hand.open("/run/deep/inside/overview")
    hand.click(hand.page.get_by_role("link", name="Layers", exact=True))
    canvas = hand.page.locator(".heat canvas").first
    expect(canvas).to_be_visible()
    box = canvas.bounding_box()
    assert box is not None
    hand.clicks += 1
    canvas.click(position={"x": box["width"] * 0.9, "y": box["height"] * 7.5 / 12.6})
    expect(hand.page.get_by_text("blocks.7.weight").first).to_be_visible()


def test_mean_and_band_of_groups(hand: Hand, root: Path) -> None:
    hand.job = "mean and band of groups"
    hand.click(hand.button("Group"))
    hand.click(hand.page.locator(".pick", has_text="width").last)
    expect(hand.page.locator("tr.group")).to_have_count(3)
    expect(hand.chart("eval/loss").locator(".chart-legend button")).to_have_count(3)
    assert [group.label for group in groups(str(root / "sweep"), "width")] == [
        "width = 64",
        "width = 128",
        "width = 256",
    ]


def test_what_differs_between_two_runs(hand: Hand) -> None:
    hand.job = "what differs between two runs"
    for name in ("lr0.001-w256-s0", "lr0.001-w128-s0"):
        hand.click(row(hand.page, name).get_by_role("checkbox"))
    hand.click(hand.button("Compare"))
    differs = hand.page.locator("section", has=hand.page.get_by_role("heading", name="What differs"))
    expect(differs.locator("tbody tr")).to_have_count(1)
    expect(differs).to_contain_text("width")


def test_a_run_is_deleted_and_comes_back(hand: Hand) -> None:
    hand.job = "delete and undo"
    gone = row(hand.page, "lr0.0001-w64-s0")
    gone.hover()
    hand.click(gone.get_by_role("button", name="Actions for lr0.0001-w64-s0"))
    hand.click(hand.page.get_by_role("menuitem", name="Delete"))
    expect(hand.page.locator("tr.run")).to_have_count(23)
    hand.click(hand.button("Undo"))
    expect(hand.page.locator("tr.run")).to_have_count(24)


def downloaded(hand: Hand, metric: str, kind: str) -> bytes:
    """What a chart's menu gives."""
    chart = hand.chart(metric)
    chart.hover()
    hand.click(chart.get_by_role("button", name=re.compile("^Actions for")))
    with hand.page.expect_download() as saved:
        hand.click(hand.page.get_by_role("menuitem", name=re.compile(f"^Download {kind}")))
    return saved.value.path().read_bytes()


def test_a_picture_of_a_chart(hand: Hand) -> None:
    hand.job = "picture of a chart"
    assert downloaded(hand, "train/loss", "PNG").startswith(b"\x89PNG")


def test_the_data_of_a_chart(hand: Hand) -> None:
    hand.job = "data of a chart"
    lines = list(csv.DictReader(downloaded(hand, "eval/loss", "CSV").decode().splitlines()))
    assert {line["name"] for line in lines} == {"eval/loss"}
    assert len(lines) == 100  # ten runs, an evaluation each 20 steps


def test_what_is_seen_is_shared_by_its_address(hand: Hand, browser: Browser, errors: list[str]) -> None:
    hand.job = "share what is seen"
    hand.open("/?project=sweep&group=config:width&sort=last:train/loss&range=40..80&logx=1")
    expect(hand.page.locator("tr.group")).to_have_count(3)
    colours = "(all) => all.map((one) => [one.innerText, getComputedStyle(one.querySelector('.key')).color])"
    mine = hand.chart("train/loss").locator(".chart-legend button")
    expect(mine).to_have_count(3)
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    other = Hand(watched(context.new_page(), errors), hand.address)
    other.page.goto(hand.page.url)
    theirs = other.chart("train/loss").locator(".chart-legend button")
    expect(theirs).to_have_count(3)
    assert theirs.evaluate_all(colours) == mine.evaluate_all(colours)
    assert names(other.page) == names(hand.page)
    context.close()
