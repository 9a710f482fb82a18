"""`barograph compare` as people and programs see it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from compared_runs import falling, make_run

from barograph.analysis.compare.comparison import compare
from barograph.core.text import fit, width
from barograph.views.compare.command import UNEQUAL, run_compare

HOSTILE = "x\x1b[31m<script>alert(1)</script>|`*_\n\u202eb"


def pair(root: Path, **config: Any) -> tuple[str, str]:
    a = make_run(root, "a", falling(2.0, 1), config={"lr": 1e-3, "seed": 1} | config, evaluate=falling(2, 3))
    b = make_run(root, "b", falling(1.9, 2), config={"lr": 2e-3, "seed": 2} | config, evaluate=falling(1.9, 4))
    return str(a.dir), str(b.dir)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, columns: int) -> None:
    long = {"some": {"very": {"long": {"key_of_a_configuration": "a value that goes on and on " * 4}}}}
    a = make_run(tmp_path, "a" * 70, falling(2.0, 1), config={"lr": 1e-3} | long)
    b = make_run(tmp_path, "b" * 70, falling(2.0, 1), config={"lr": 2e-3, "名前": "日本語" * 20}, steps=90)
    for made in (compare(a, b), compare(a, b, metric="train/loss", x="tokens")):
        text = made.text(columns)
        assert max(width([line]) for line in text.splitlines()) <= columns
        assert "\x1b" not in text and "WHAT DIFFERS" in text and "VERDICT" in text


def test_many_sides_stand_below_each_other(tmp_path: Path) -> None:
    for at in range(6):
        make_run(tmp_path, f"r{at}", falling(2.0 - at / 10, at), config={"lr": float(at)})
    made = compare(tmp_path, group="lr")
    text = made.text(80)
    assert max(width([line]) for line in text.splitlines()) <= 80
    assert re.search(r"^  A {2,}lr = 5.*baseline\n  F {2,}lr = 4", text, re.MULTILINE) and "SIDE" in text
    assert made.markdown().count("\n| F |") == 2


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    a = make_run(
        tmp_path, "a", falling(2, 1), config={"lr": 1, HOSTILE: HOSTILE}, about={"name": HOSTILE, "project": HOSTILE}
    )
    b = make_run(tmp_path, "b", falling(2, 2), config={"lr": 2, HOSTILE: "other"}, about={"name": "b", "project": "q"})
    made = compare(a, b)
    for text in (made.text(100), made.markdown(), made.html()):
        assert "\x1b" not in text and "\u202e" not in text
    assert "<script>" not in made.html() and "&lt;script&gt;" in made.html()
    assert not re.search(r"(?<!\\)<script", made.markdown())
    for line in made.markdown().splitlines():
        if line.startswith("| A |"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 5


class Balanced(HTMLParser):
    """Notes tags that are not closed, or closed in the wrong order."""

    VOID = ("meta", "rect", "line", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID or self.get_starttag_text() is None:
            return
        if self.open and self.open[-1] == tag:
            self.open.pop()
        elif not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.wrong.append(tag)


def test_the_html_is_whole_and_needs_no_network(tmp_path: Path) -> None:
    made = compare(*pair(tmp_path))
    page = made.html()
    parser = Balanced()
    parser.feed(page)
    assert not parser.wrong and not parser.open and not parser.links
    assert "http:" not in page and "https:" not in page and page.count("<svg") == 2 and 'class="line c1"' in page


def test_json_holds_everything_and_is_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = pair(tmp_path)
    assert run_compare([a, b], to="json") == 0

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert found["verdict"]["changes"] == ["lr"] and found["metric"] == "eval/loss" and found["axis"] == "step"
    assert found["contrasts"][0]["outcome"] == "cannot tell"
    assert found["rows"][0]["percent"][0] == 0 and found["rows"][0]["cells"][1]["value"] == pytest.approx(1.9, abs=0.1)


def test_a_file_is_written_where_one_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = pair(tmp_path)
    for to in ("text", "md", "html", "json"):
        out = tmp_path / f"made.{to}"
        assert run_compare([a, b], to=to, out=str(out)) == 0
        assert str(out) in capsys.readouterr().out and out.read_text().strip()
    with pytest.raises(ValueError, match="written as one of"):
        run_compare([a, b], to="pdf")
    with pytest.raises(OSError):
        run_compare([a, b], out=str(tmp_path / "no" / "folder" / "x.md"))


def test_unequal_runs_have_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = pair(tmp_path)
    assert run_compare([a, b], equal=True) == UNEQUAL
    assert "First difference at step 1" in capsys.readouterr().out
    (tmp_path / "other").mkdir()
    same = make_run(tmp_path / "other", "a", falling(2.0, 1), config={"lr": 1e-3, "seed": 1}, evaluate=falling(2, 3))
    assert run_compare([a, str(same.dir)], equal=True) == 0
    with pytest.raises(ValueError, match="asked of two"):
        run_compare([a, b, str(same.dir)], equal=True)


def test_logs_that_import_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, level in (("one", 2.0), ("two", 1.5)):
        rows = [f"{step},{level + 4 / step}" for step in range(1, 101)]
        (tmp_path / f"{name}.csv").write_text("step,train_loss\n" + "\n".join(rows))
    assert run_compare([str(tmp_path / "one.csv"), str(tmp_path / "two.csv")], to="json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metric"] == "train/loss" and found["contrasts"][0]["difference"] == pytest.approx(-0.5, abs=1e-6)
    assert "none of the runs has a configuration" in found["verdict"]["sentences"][0]


def test_text_is_cut_in_its_middle_to_the_column() -> None:
    assert fit("abcdefgh", 8) == "abcdefgh"
    assert fit("abcdefgh", 5) == "ab…gh"
    assert width([fit("日本語日本語", 7)]) <= 7


@pytest.mark.parametrize(("size", "tolerance", "code"), [
    (1e-8, 1e-6, 0), (1e-8, None, UNEQUAL), (1e-3, 1e-6, UNEQUAL), (0.0, None, 0), (float("nan"), 1.0, UNEQUAL),
])  # fmt: skip
def test_a_tolerance_decides_the_exit_code(tmp_path: Path, size: float, tolerance: float | None, code: int) -> None:
    a = make_run(tmp_path / "a", "one", lambda step: 2 + 4 / step, config={"lr": 1e-3})
    b = make_run(tmp_path / "b", "one", lambda step: 2 + 4 / step + (size if step > 50 else 0.0), config={"lr": 1e-3})
    assert run_compare([str(a.dir), str(b.dir)], equal=True, tolerance=tolerance) == code


def test_steps_that_are_missing_are_unequal_within_any_tolerance(tmp_path: Path) -> None:
    a = make_run(tmp_path / "a", "one", falling(2.0, 1), config={"lr": 1e-3})
    b = make_run(tmp_path / "b", "one", falling(2.0, 1), every=2, config={"lr": 1e-3})
    assert run_compare([str(a.dir), str(b.dir)], equal=True, tolerance=1.0) == UNEQUAL
