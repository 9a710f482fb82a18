"""Pictures of charts and heat maps: every extreme is in them, what is not finite is marked, words are escaped."""

from __future__ import annotations

import re
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.views.draw import chart as drawing
from barograph.views.draw import heat
from barograph.views.draw.heat import HeatMap
from barograph.views.report.content import Chart, Flag, line
from barograph.views.report.webpage import picture_of


def of(y: np.ndarray, **about: object) -> Chart:
    return Chart("c", "Title", (line("a", np.arange(len(y)), np.asarray(y, np.float64)),), **about)  # type: ignore[arg-type]


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9))
def test_ticks_are_round_and_within(low: float, width: float) -> None:
    ticks = drawing.nice_ticks(low, low + width)
    slack = width * 1e-6 + abs(low) * 1e-9
    assert 1 <= len(ticks) <= 20
    assert all(low - slack <= tick <= low + width + slack for tick in ticks)
    assert ticks == sorted(ticks)


def test_a_single_spike_of_a_million_points_is_drawn() -> None:
    y = np.zeros(1_000_000)
    y[654_321] = 5.0
    found = picture_of(of(y))
    heights = [float(down) for _, down in re.findall(r"[ML]([\d.]+) ([\d.]+)", found)]
    assert min(heights) < drawing.WIDE.top + 15 and len(heights) < 2 * drawing.POINTS


def test_what_is_not_finite_is_a_gap_and_a_mark() -> None:
    y = np.array([1.0, 2.0, np.nan, 3.0, np.inf, 2.0, 1.0])
    found = picture_of(of(y))
    assert found.count('class="odd"') == 2
    path = re.search(r'class="line c0"[^>]* d="([^"]*)"', found)
    assert path is not None and path[1].count("M") == 3
    assert "nan" not in found.lower().replace('aria-label="title', "")


@pytest.mark.parametrize("y", [[], [1.0], [np.nan], [np.nan] * 5, [0.0, 0.0], [1e300, -1e300], [5.0] * 9])
@pytest.mark.parametrize("log", [False, True])
def test_any_column_can_be_drawn(y: list[float], log: bool) -> None:
    found = picture_of(of(np.array(y), log=log))
    assert bool(found) == bool(y)
    assert not re.search(r'[MLx]"?=?"?(nan|inf)', found)


def test_names_and_messages_are_escaped() -> None:
    flag = Flag(2, "critical", 1, "<script>alert(1)</script>")
    chart = Chart("c", '"><script>', (line("<b>", np.arange(5), np.arange(5.0)),), flags=(flag,))
    found = picture_of(chart)
    assert "<script" not in found and "<b>" not in found and "finding-1" in found


def decoded(png: bytes) -> np.ndarray:
    wide, high = struct.unpack(">II", png[16:24])
    at, body = 8, b""
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            body += png[at + 8 : at + 8 + size]
        at += size + 12
    return np.frombuffer(zlib.decompress(body), np.uint8).reshape(high, wide + 1)[:, 1:]


def test_a_heat_maps_picture_shows_each_cell_as_its_level() -> None:
    values = np.array([[1.0, 10.0, 100.0], [np.nan, 1000.0, 1.0]])
    odd = np.zeros((2, 3), bool)
    odd[1, 2] = True
    made = HeatMap("Heat", ("a", "b"), np.array([0.0, 1.0, 2.0, 3.0]), values, odd, True)
    found, low, high = heat.levels(made)
    assert (low, high) == (0.0, 3.0)
    assert found.tolist() == [[2, 86, 171], [heat.NOTHING, 255, heat.ODD]]
    pixels = decoded(heat.image(found, made.edges))
    rows, columns = pixels.shape[0] // 2, pixels.shape[1] // 3
    assert pixels[::rows, columns // 2 :: columns].tolist() == found.tolist()


def test_zero_on_a_logarithmic_heat_map_is_the_least_and_not_nothing() -> None:
    made = HeatMap("", ("a",), np.array([0.0, 1, 2]), np.array([[0.0, 5.0]]), np.zeros((1, 2), bool), True)
    assert heat.levels(made)[0][0, 0] == heat.FIRST
