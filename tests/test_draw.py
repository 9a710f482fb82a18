"""The colours of every picture can be told apart, and a picture shows what is not finite."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from barograph.views.draw import chart, palette
from barograph.views.draw.table import Markup, as_html, as_markdown

# Machado, Oliveira and Fernandes 2009, severity 1: what people who lack a kind of cone see, in linear RGB
SEEN = {
    "all cones": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
LUMINANCE = TO_XYZ[1]


def linear(colour: str) -> np.ndarray:
    part = np.array(palette.rgb(colour)) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def lab(colour: np.ndarray) -> np.ndarray:
    part = TO_XYZ @ np.clip(colour, 0, 1) / np.array([0.9505, 1.0, 1.089])
    root = np.where(part > 0.008856, np.cbrt(part), 7.787 * part + 16 / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


@pytest.mark.parametrize("lines", [palette.LINES, palette.DARK_LINES])
@pytest.mark.parametrize("eyes", SEEN)
def test_two_lines_never_look_alike(lines: tuple[str, ...], eyes: str) -> None:
    places = [lab(SEEN[eyes] @ linear(colour)) for colour in lines]
    assert min(float(np.linalg.norm(one - other)) for one, other in itertools.combinations(places, 2)) >= 20


@pytest.mark.parametrize(("lines", "theme"), [(palette.LINES, palette.LIGHT), (palette.DARK_LINES, palette.DARK)])
def test_a_line_stands_out_from_its_ground(lines: tuple[str, ...], theme: dict[str, str]) -> None:
    ground = float(LUMINANCE @ linear(theme["paper"])) + 0.05
    for colour in lines:
        own = float(LUMINANCE @ linear(colour)) + 0.05
        assert max(own, ground) / min(own, ground) >= 3


def test_what_is_not_finite_is_marked_by_kind() -> None:
    y = np.array([1.0, np.nan, 2.0, np.inf, 2.0, -np.inf, 1.0])
    drawn = chart.picture([chart.ChartCurve("a", np.arange(7), y)], chart.ChartAxes(), "a", "a")
    marks = [part.split('"')[0] for part in drawn.split('class="odd" d="')[1:]]
    bottom, top = chart.WIDE.high - chart.WIDE.below - 8, chart.WIDE.top + 2
    assert [f" {bottom}m" in marks[0], f" {top}v" in marks[1], f" {bottom}v" in marks[2]] == [True] * 3


def test_a_logarithmic_axis_has_three_ticks_or_more() -> None:
    assert chart.log_ticks(-0.1, 1.7) == [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    assert chart.log_ticks(-3.0, 0.0) == [0.001, 0.01, 0.1, 1.0]


def test_a_table_escapes_what_is_no_markup() -> None:
    assert "<td>&lt;b&gt;</td><td><i>x</i></td>" in as_html(["a", "b"], [["<b>", Markup("<i>x</i>")]])
    assert as_markdown(["a"], [["b"]]).splitlines() == ["| a |", "| --- |", "| b |"]


@pytest.mark.parametrize("theme", [palette.LIGHT, palette.DARK])
def test_text_stands_out_from_every_ground(theme: dict[str, str]) -> None:
    def contrast(ink: str, ground: str) -> float:
        light = [float(LUMINANCE @ linear(theme[name])) + 0.05 for name in (ink, ground)]
        return max(light) / min(light)

    for ground in ("paper", "panel", "sunk", "raised"):
        for ink in ("ink", "ink-2", "ink-3", "accent", "good", "warn", "bad", "info"):
            assert contrast(ink, ground) >= 4.5, (ink, ground)
    for tone in ("good", "warn", "bad", "info", "accent"):
        assert contrast(tone, f"{tone}-soft") >= 4.5, tone
