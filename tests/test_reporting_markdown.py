"""Markdown files: one a section, all of them joined, and no name of a user is markup in them."""

from __future__ import annotations

from pathlib import Path

from reported_runs import hostile, sound

from barograph.views.report.assemble import assemble
from barograph.views.report.markdown import files


def test_the_joined_file_holds_every_section_in_order(tmp_path: Path) -> None:
    made = assemble(sound(tmp_path))
    found = files(made)
    assert set(found) == {"report.md", *(f"{one.slug}.md" for one in made.sections)}
    places = [found["report.md"].index(found[f"{one.slug}.md"].strip()) for one in made.sections]
    assert places == sorted(places)


def test_charts_are_told_by_their_ends(tmp_path: Path) -> None:
    text = files(assemble(sound(tmp_path)))["loss.md"]
    (row,) = (line for line in text.splitlines() if line.startswith("| training loss, smoothed"))
    assert row.endswith("| 400 |")


def test_hostile_names_are_no_markup(tmp_path: Path) -> None:
    text = files(assemble(hostile(tmp_path)))["report.md"]
    outside, inside = [], False
    for line in text.splitlines():
        if line.startswith("````"):
            inside = not inside
        elif not inside:
            outside.append(line)
    plain = "\n".join(outside).replace("\\<", "").replace("\\>", "")
    assert not inside and "<" not in plain and "# no heading" not in plain
    assert "\x1b" not in text
    cells = [line for line in outside if "a\\|b" in line]
    assert cells and all("a|b" not in line for line in cells)
