"""What a notebook draws keeps every extreme and every NaN; its bytes say what they hold."""

from __future__ import annotations

import json
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from barograph.core.text import short
from barograph.views.draw.chart import nice_ticks
from barograph.views.notebook.panels import Panel, chosen, frame, line
from barograph.views.notebook.svg import picture, told
from barograph.views.notebook.widget import answer_to

_VALUES = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=300)


def _read(data: bytes) -> tuple[dict, np.ndarray]:  # type: ignore[type-arg]
    length = int.from_bytes(data[:4], "little")
    assert (4 + length) % 8 == 0
    return json.loads(data[4 : 4 + length]), np.frombuffer(data[4 + length :], "<f8")


@given(_VALUES, st.integers(1, 50))
def test_a_line_has_the_extremes_of_its_points_and_counts_the_others(values: list[float], most: int) -> None:
    made = line("loss", range(len(values)), values, most)
    finite = [value for value in values if math.isfinite(value)]
    assert made.odd_count == len(values) - len(finite) and made.points == len(values)
    assert len(made.x) == len(made.low) == len(made.high) <= max(most, 1)
    if finite:
        assert np.nanmin(made.low) == min(finite) and np.nanmax(made.high) == max(finite)
    assert made.exact == (len(values) <= most)


@given(_VALUES, st.integers(0, 300), st.integers(0, 300))
def test_a_range_holds_its_own_points_alone(values: list[float], low: int, high: int) -> None:
    made = line("loss", range(len(values)), values, 1000, low, high)
    assert made.x.tolist() == [float(at) for at in range(len(values)) if low <= at <= high]


@given(_VALUES, st.text(max_size=12))
def test_a_frame_is_read_back_as_it_was(values: list[float], name: str) -> None:
    made = line(name, range(len(values)), values, 40)
    header, numbers = _read(frame({"title": "t"}, [Panel("p", "step", [made, made])]))
    for described in header["panels"][0]["lines"]:
        for column in ("x", "low", "high", "odd"):
            at, n = described[column]["at"], described[column]["n"]
            assert np.array_equal(numbers[at : at + n], getattr(made, column), equal_nan=True)
        assert described["odd_count"] == made.odd_count
    assert header["title"] == "t" and header["panels"][0]["lines"][0]["name"] == short(name)


@given(_VALUES, st.text(max_size=40), st.integers(1, 40))
def test_a_picture_is_whole_xml_of_shapes_and_text(values: list[float], name: str, most: int) -> None:
    from xml.etree import ElementTree

    panel = Panel(name, "step", [line(name, range(len(values)), values, most), line("<b>&", [1.0], [2.0], 9)])
    tree = ElementTree.fromstring(picture(panel))
    tags = {element.tag.removeprefix("{http://www.w3.org/2000/svg}") for element in tree.iter()}
    assert tags <= {"svg", "rect", "path", "circle", "text", "tspan"}
    assert not any(key.startswith("on") or "href" in key for element in tree.iter() for key in element.keys())  # noqa: SIM118
    assert told(panel)
    for element in tree.iter():  # a place that is not a number draws nothing, or everything
        for key in ("d", "cx", "cy", "x", "y"):
            assert "nan" not in element.get(key, "") and "inf" not in element.get(key, "")


def test_the_loss_comes_first_with_its_evaluations_and_wide_series_last() -> None:
    names = ["eval/loss", "gradients/a/norm", "layers/0/x", "train/loss", "train/lr", "train/norm"]
    assert chosen(names)[0] == ("train/loss", ["train/loss", "eval/loss"])
    assert [title for title, _ in chosen(names)] == ["train/loss", "train/norm", "train/lr"]
    assert chosen(["zeta", "a/b/c"]) == [("zeta", ["zeta"]), ("a/b/c", ["a/b/c"])]
    assert chosen([]) == []


def test_labels_are_round() -> None:
    assert nice_ticks(0.0, 10.0) == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert nice_ticks(2.1, 2.34) == [2.1, 2.15, 2.2, 2.25, 2.3]


@given(
    st.dictionaries(
        st.sampled_from(["kind", "id", "low", "high", "buckets"]),
        st.none() | st.floats() | st.text() | st.just("range"),
    )
)
def test_no_message_of_a_page_breaks_the_kernel(content: dict[str, object]) -> None:
    class Nothing:
        def panels(self, most: int, low: float | None = None, high: float | None = None) -> list[Panel]:
            assert 2 <= most <= 4000
            return []

    answer = answer_to(Nothing(), {"kind": "range", "id": 1, **content})  # type: ignore[arg-type]
    assert answer is None or answer[:4]
