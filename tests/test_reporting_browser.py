"""A report opened in a browser from the disk, with the network off: charts are drawn, zoom together, print."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reported_runs import broken, hostile, sound, spiked

from barograph.query.stored import StoredRun
from barograph.views.report import webpage
from barograph.views.report.command import report

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="/usr/bin/chromium is not there")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("playwright")
    started = importlib.import_module("playwright.sync_api").sync_playwright().start()
    opened = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
    yield opened
    opened.close()
    started.stop()


@pytest.fixture(autouse=True)
def _built() -> None:
    if webpage.script() is None:
        pytest.skip("the page's script is not built: cd web && npm ci && node build.mjs")


class Opened:
    """A report in a page, with what its console said."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1100, "height": 900}, **options)
        self.context.set_offline(True)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", self.hear)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def hear(self, message: Any) -> None:
        if "willReadFrequently" not in message.text:  # of `ink` itself
            self.said.append(message.text)

    def scroll(self) -> None:
        """To every chart, so that it is drawn."""
        for chart in self.page.query_selector_all("figure[data-chart]"):
            chart.scroll_into_view_if_needed()
            self.page.wait_for_timeout(30)
        self.page.wait_for_function("document.querySelectorAll('figure[data-chart]:not(.drawn)').length === 0")

    def ink(self, slug: str) -> int:
        """Pixels of a chart's canvas that are not empty."""
        script = """slug => { const canvas = document.querySelector(`#chart-${slug} canvas`);
            const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            let ink = 0; for (let at = 3; at < data.length; at += 4) ink += data[at] > 0; return ink; }"""
        return int(self.page.evaluate(script, slug))

    def range(self, slug: str) -> str:
        return str(self.page.inner_text(f"#chart-{slug} .seen"))


@pytest.fixture
def open_report(browser: Any, tmp_path: Path) -> Iterator[Any]:
    opened: list[Opened] = []

    def show(*runs: StoredRun, **options: Any) -> Opened:
        out = tmp_path / "out"
        assert report(list(runs), out, html_only=True) == 0
        opened.append(Opened(browser, out / "report.html", **options))
        return opened[-1]

    yield show
    for one in opened:
        one.context.close()


def test_charts_are_drawn_from_the_disk_with_nothing_asked_of_a_network(open_report: Any, tmp_path: Path) -> None:
    shown = open_report(sound(tmp_path))
    shown.scroll()
    assert shown.ink("loss") > 500 and shown.ink("learning-rate") > 300
    assert shown.said == []
    assert [url for url in shown.asked if not url.startswith(("file:", "data:"))] == []


def test_all_charts_zoom_together_and_back(open_report: Any, tmp_path: Path) -> None:
    shown = open_report(sound(tmp_path))
    shown.scroll()
    assert shown.range("loss").startswith("step 1 to 400; every logged point")
    shown.page.click("#chart-loss .tools button[title='zoom in']")
    shown.page.wait_for_timeout(100)
    zoomed = shown.range("loss")
    assert zoomed.startswith("step 101 to 300"), zoomed
    assert shown.range("gradient-norm").startswith("step 101 to 300")
    shown.page.click("#chart-loss .tools button[title='show all of it']")
    shown.page.wait_for_timeout(100)
    assert shown.range("gradient-norm").startswith("step 1 to 400")


def test_dragging_zooms_to_what_was_marked_and_a_double_click_shows_all(open_report: Any, tmp_path: Path) -> None:
    shown = open_report(sound(tmp_path))
    shown.scroll()
    over = shown.page.query_selector("#chart-loss .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    mouse = shown.page.mouse
    mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 50)
    mouse.down()
    mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 60, steps=5)
    mouse.up()
    shown.page.wait_for_timeout(150)
    mouse.move(5, 5)
    shown.page.wait_for_timeout(100)
    low, high = (int(word) for word in shown.range("learning-rate").split(";")[0].replace("step ", "").split(" to "))
    assert abs(low - 201) < 6 and abs(high - 300) < 6
    shown.page.mouse.dblclick(box["x"] + 100, box["y"] + 60)
    shown.page.wait_for_timeout(150)
    mouse.move(5, 5)
    shown.page.wait_for_timeout(100)
    assert shown.range("loss").startswith("step 1 to 400")
    assert shown.said == []


def test_a_single_step_out_of_many_is_found_by_zooming(open_report: Any, tmp_path: Path) -> None:
    shown = open_report(spiked(tmp_path))
    shown.scroll()
    assert "minimum and maximum of about" in shown.range("loss")
    over = shown.page.query_selector("#chart-loss .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    shown.page.mouse.move(box["x"] + box["width"] * 12_345 / 29_999, box["y"] + 100)
    shown.page.wait_for_timeout(100)
    assert "77.25" in shown.page.inner_text("#chart-loss .live ~ .tools, #chart-loss .live") or (
        "77.25" in shown.page.inner_text("#chart-loss > .keys")
    )


def test_findings_are_flags_that_lead_to_their_story(open_report: Any, tmp_path: Path) -> None:
    shown = open_report(broken(tmp_path))
    shown.scroll()
    flag = shown.page.query_selector("#chart-loss .flagged.critical a")
    assert flag is not None and "not finite" in flag.get_attribute("aria-label")
    flag.scroll_into_view_if_needed()
    flag.click()
    assert shown.page.url.endswith("#finding-1")
    assert "CRITICAL" in shown.page.inner_text("#finding-1").upper()


def test_hostile_names_run_nothing(open_report: Any, tmp_path: Path) -> None:
    shown = open_report(hostile(tmp_path))
    alerts: list[str] = []
    shown.page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    shown.page.reload()
    shown.scroll()
    assert alerts == [] and shown.said == []
    assert shown.page.evaluate("document.querySelectorAll('script').length") == 2


def test_lines_can_be_hidden_and_the_axis_made_logarithmic_by_keyboard(open_report: Any, tmp_path: Path) -> None:
    shown = open_report(sound(tmp_path))
    shown.scroll()
    before = shown.ink("loss")
    shown.page.focus("#chart-loss > .keys li:nth-child(1) button")
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_timeout(100)
    assert shown.page.get_attribute("#chart-loss > .keys li:nth-child(1) button", "aria-pressed") == "false"
    assert shown.ink("loss") < before
    shown.page.focus("#chart-loss .tools button[title='logarithmic axis']")
    shown.page.keyboard.press("Space")
    shown.page.wait_for_timeout(150)
    assert shown.page.get_attribute("#chart-loss .tools button[title='logarithmic axis']", "aria-pressed") == "true"
    assert shown.ink("loss") > 300 and shown.said == []


def test_dark_and_light_have_other_colours_and_a_phone_needs_no_scrolling_sideways(
    open_report: Any, tmp_path: Path
) -> None:
    shown = open_report(sound(tmp_path), color_scheme="dark")
    dark = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
    shown.page.emulate_media(color_scheme="light")
    assert shown.page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    shown.page.set_viewport_size({"width": 390, "height": 800})
    shown.scroll()
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_paper_gets_the_still_pictures(open_report: Any, tmp_path: Path) -> None:
    shown = open_report(sound(tmp_path))
    shown.scroll()
    shown.page.emulate_media(media="print")
    state = """() => [...document.querySelectorAll('figure.chart')].map(one => [
        one.querySelector('.still svg').getBoundingClientRect().height, one.querySelector('.live').offsetHeight])"""
    for still, live in shown.page.evaluate(state):
        assert still > 50 and live == 0
    pdf = shown.page.pdf(format="A4")
    assert pdf.startswith(b"%PDF") and len(pdf) > 20_000


def test_without_a_script_the_pictures_stand(browser: Any, tmp_path: Path) -> None:
    report([sound(tmp_path)], tmp_path / "out", html_only=True)
    shown = Opened(browser, tmp_path / "out" / "report.html", java_script_enabled=False)
    assert shown.page.locator("#chart-loss .still svg").bounding_box()["height"] > 100
    shown.context.close()


def test_a_comparison_opens_and_zooms(open_report: Any, tmp_path: Path) -> None:
    shown = open_report(sound(tmp_path / "runs", "a"), sound(tmp_path / "runs", "b", lr=2e-3))
    shown.scroll()
    assert shown.ink("curves") > 300
    assert shown.said == []
