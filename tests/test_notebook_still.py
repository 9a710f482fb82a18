"""The HTML of a notebook: whole without script and style, and safe whatever a run is called."""

from __future__ import annotations

import base64
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import barograph
from barograph.views.notebook import display
from barograph.views.notebook.display import charts

_ALLOWED = {"div", "p", "b", "img", "table", "thead", "tbody", "tr", "th", "td"}
_EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x1b]0;x\x07\u202e\udcff&amp;"


class _Parsed(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.images: list[dict[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in _ALLOWED, tag
        if tag == "img":
            self.images.append(dict(attributes))
            assert set(dict(attributes)) == {"width", "alt", "src"}
        else:
            assert not attributes
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def _pictures(parsed: _Parsed) -> list[ElementTree.Element]:
    found = []
    for image in parsed.images:
        lead, _, content = str(image["src"]).partition(",")
        assert lead == "data:image/svg+xml;base64"
        found.append(ElementTree.fromstring(base64.b64decode(content)))
    return found


@pytest.fixture
def run(tmp_path: Path) -> barograph.StoredRun:
    made = barograph.init(
        project="p", name="r", dir=tmp_path, verbosity=-2, machine=False, git=False, config={"lr": 0.1}, tags=["t"]
    )
    for step in range(50):
        made.log({"train/loss": math.nan if step == 30 else 5.0 - step / 20, "train/norm": 1.0}, step=step)
    made.finish()
    return barograph.StoredRun(made.dir)


def test_a_run_shows_its_charts_and_facts(run: barograph.StoredRun) -> None:
    shown = charts(run)._repr_html_()
    parsed = _Parsed(shown)
    assert not parsed.open and len(_pictures(parsed)) == 2
    assert (
        "train/loss by step. train/loss from 5 to 2.55, minimum 2.55, maximum 5, 50 points, last 2.55, 1 not finite"
        in str(parsed.images[0]["alt"])
    )
    assert "finished" in parsed.text and "lr 0.1" in parsed.text and "tags t" in parsed.text
    assert len(shown) < 20_000


def test_no_name_is_more_than_text(tmp_path: Path) -> None:
    made = barograph.init(
        project=_EVIL[:60], name=_EVIL, dir=tmp_path, verbosity=-2, machine=False, git=False,
        config={_EVIL: _EVIL}, tags=[_EVIL], notes=_EVIL,
    )  # fmt: skip
    for step in range(5):
        made.log({_EVIL: 1.0, "train/loss": 2.0}, step=step)
    made.finish()
    for stored in barograph.runs(dir=tmp_path):
        parsed = _Parsed(charts(stored)._repr_html_())
        assert "<script>" in parsed.text and not parsed.open
        for picture in _pictures(parsed):
            assert all("script" not in element.tag for element in picture.iter())
        bundle = display.of_run(stored)
        assert all("\x1b" not in str(content) and "\u202e" not in str(content) for content in (bundle["text/html"],))
        str(bundle["text/html"]).encode()


def test_series_and_axis_are_chosen(run: barograph.StoredRun) -> None:
    parsed = _Parsed(charts(run, ["train/loss", "norm"], x="time")._repr_html_())
    assert len(parsed.images) == 1 and str(parsed.images[0]["alt"]).startswith("train/loss by time. ")
    assert "train/norm" in str(parsed.images[0]["alt"])
    with pytest.raises(KeyError, match="nearest is 'train/norm'"):
        charts(run, "train/nrm")


def test_a_comparison_shows_its_verdict_curves_and_figures(tmp_path: Path) -> None:
    for name, rate in (("a", 20.0), ("b", 30.0)):
        made = barograph.init(
            project="p", name=name, dir=tmp_path, verbosity=-2, machine=False, git=False, config={"lr": rate}
        )
        for step in range(300):
            made.log({"train/loss": 1 + 4 * math.exp(-step / rate)}, step=step)
        made.finish()
    comparison = barograph.compare(*barograph.runs(dir=tmp_path))
    parsed = _Parsed(charts(comparison)._repr_html_())
    assert comparison.verdict.sentences[0] in parsed.text
    assert len(_pictures(parsed)) == 1 and "train/loss" in parsed.text and "A a" in parsed.text
    assert str(parsed.images[0]["alt"]).count("points") == 2
    assert display.of_comparison(comparison)["text/plain"] == str(comparison)


@pytest.mark.parametrize("steps", [0, 1])
def test_runs_of_no_or_one_step_are_shown(tmp_path: Path, steps: int) -> None:
    made = barograph.init(project="p", name="r", dir=tmp_path, verbosity=-2, machine=False, git=False)
    for step in range(steps):
        made.log({"train/loss": 1.0}, step=step)
    made.finish()
    parsed = _Parsed(charts(made)._repr_html_())
    assert len(parsed.images) == steps and "p/r" in parsed.text


def test_a_run_in_progress_is_read_from_its_folder(tmp_path: Path) -> None:
    made = barograph.init(project="p", name="r", dir=tmp_path, verbosity=-2, machine=False, git=False)
    for step in range(9):
        made.log({"train/loss": 1.0}, step=step)
    shown: dict[str, Any] = display.of_folder(made.dir, "words")
    assert shown["text/plain"] == "words" and "running" in shown["text/html"] and "9 points" in shown["text/html"]
    made.finish()


def test_what_can_not_be_read_is_told_and_not_raised(run: barograph.StoredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(source: object) -> str:
        raise OSError("the disk is gone")

    monkeypatch.setattr(display, "still", fails)
    assert display.of_run(run) == {"text/plain": f"{run!r}\n(no charts: the disk is gone)"}
