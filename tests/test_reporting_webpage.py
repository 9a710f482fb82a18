"""The page carries all it needs, runs nothing else, and no word of a user is markup in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from reported_runs import HOSTILE, hostile, sound, spiked

from barograph.views.report import webpage
from barograph.views.report.assemble import assemble


class Elements(HTMLParser):
    """Every element of a page, and the text of its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def data_of(page: str) -> dict[str, dict[str, dict[str, object]]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A script that stands for the built one."""
    code = "/* built */" + "void 0;" * 200
    path = tmp_path / "report.js"
    path.write_text(code)
    monkeypatch.setattr(webpage, "SCRIPT", path)
    return code


def test_the_page_loads_nothing(tmp_path: Path, built: str) -> None:
    page = Elements(webpage.report_html(sound(tmp_path)))
    for tag, attributes in page.found:
        for name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:image/png;base64,")), (tag, value)
    assert not any("@import" in text or "url(" in text for text in page.texts["style"])


def test_its_policy_names_its_own_script_and_style_and_nothing_else(tmp_path: Path, built: str) -> None:
    text = webpage.report_html(sound(tmp_path))
    page = Elements(text)
    (policy,) = (one["content"] for _, one in page.found if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and "default-src 'none'" in policy and "unsafe" not in policy
    for tag in ("style", "script"):
        body = re.findall(rf"<{tag}(?: type=\"module\")?>(.*?)</{tag}>", text, re.S)
        assert len(body) == 1
        digest = base64.b64encode(hashlib.sha256(body[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not any(name.startswith("on") or name == "style" for _, one in page.found for name in one)


def test_hostile_names_stay_words(tmp_path: Path, built: str) -> None:
    text = webpage.report_html(hostile(tmp_path))
    page = Elements(text)
    scripts = [one for tag, one in page.found if tag == "script"]
    assert [one.get("type") for one in scripts] == ["application/json", "module"]
    assert not any("alert(1)" in piece and '"charts"' not in piece for piece in page.texts["script"])
    assert "\x1b" not in text
    assert any(HOSTILE in str(line["label"]) for chart in data_of(text)["charts"].values() for line in chart["lines"])  # type: ignore[attr-defined]


def test_every_extreme_and_what_is_not_finite_is_in_the_pages_data(tmp_path: Path, built: str) -> None:
    chart = data_of(webpage.report_html(spiked(tmp_path)))["charts"]["loss"]
    raw = chart["lines"][0]  # type: ignore[index]
    steps, at = [], 0
    for gap in raw["gaps"]:
        at += gap
        steps.append(at)
    points = dict(zip(steps, raw["y"], strict=True))
    assert points[12_345] == 77.25 and points[17_345] == "n"
    assert raw["points"] == 30_000 and len(steps) <= 3_000 and raw["odd"] == 1


def test_without_the_built_script_the_charts_stand_still_and_it_says_how_to_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webpage, "SCRIPT", tmp_path / "missing.js")
    text = webpage.report_html(sound(tmp_path))
    page = Elements(text)
    assert "node build.mjs" in text
    assert not [tag for tag, _ in page.found if tag == "script"]
    assert sum(tag == "svg" for tag, _ in page.found) > 4
    assert "script-src &#x27;none&#x27;" in text or "script-src 'none'" in text


def test_a_script_that_could_end_its_element_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.js"
    path.write_text("'</SCRIPT>'" + " " * 2000 + "x" * 2000)
    monkeypatch.setattr(webpage, "SCRIPT", path)
    assert webpage.script() is None


def test_many_lines_share_the_pages_room(tmp_path: Path, built: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = spiked(tmp_path)
    whole = len(webpage.page(assemble(run)))
    monkeypatch.setattr(webpage, "POINTS", 2_000)
    small = webpage.page(assemble(run))
    assert len(small) < whole
    lines = [line for chart in data_of(small)["charts"].values() for line in chart["lines"]]  # type: ignore[attr-defined]
    assert all(len(line["y"]) <= 1_000 for line in lines)
    assert any(77.25 in line["y"] for line in lines)


def test_anchors_are_unique_and_links_have_targets(tmp_path: Path, built: str) -> None:
    page = Elements(webpage.report_html(sound(tmp_path)))
    ids = [one["id"] for _, one in page.found if one.get("id")]
    assert len(ids) == len(set(ids))
    links = {str(one["href"])[1:] for tag, one in page.found if tag == "a" and str(one.get("href", "")).startswith("#")}
    assert links <= set(ids)
