"""Rules over histogram shapes: each shape of the stability guide is named, a bell never, on a real run too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_columns import findings

import barograph
from barograph.doctor.diagnosis import diagnose
from barograph.doctor.kernel.shapes import shape_of
from barograph.doctor.rules.gradient.shapes import HistogramShape

DICE = numpy.random.default_rng(3)
SHAPES: dict[str, Any] = {
    "modes": numpy.concatenate([DICE.normal(-4, 1, 3000), DICE.normal(4, 1, 1500)]),
    "tails": numpy.concatenate([DICE.normal(0, 1, 5000), [60.0, -80.0, 90.0]]),
    "shifted": DICE.normal(2, 1, 4000),
    "collapsed": numpy.zeros(4000),
}
BELLS = {"normal": DICE.normal(0, 1e-3, 4000), "laplace": DICE.laplace(0, 2, 4000), "t": DICE.standard_t(5, 4000)}


def columns(values: Any, times: int = 3) -> dict[str, Any]:
    counts, edges = numpy.histogram(values, 64)
    return {f"shape/h/{name}": numpy.full(times, value) for name, value in shape_of(edges, counts).items()}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_is_named_after_three_histograms(shape: str) -> None:
    found = findings([HistogramShape()], columns(SHAPES[shape]))
    assert [one.key for one in found.values()] == [shape]
    assert not findings([HistogramShape()], columns(SHAPES[shape], 2))


@pytest.mark.parametrize("bell", BELLS)
def test_a_bell_is_none_of_them(bell: str) -> None:
    assert not findings([HistogramShape()], columns(BELLS[bell]))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(300, 3000), st.floats(1e-9, 1e9))
def test_a_shape_does_not_depend_on_scale_and_normal_numbers_have_one_mode(seed: int, count: int, scale: float) -> None:
    values = numpy.random.default_rng(seed).normal(size=count)
    counts, edges = numpy.histogram(values, 64)
    one, other = shape_of(edges, counts), shape_of(edges * scale, counts)
    assert one == pytest.approx(other, rel=1e-6, abs=1e-9) and one["modes"] == 1


def test_too_few_numbers_and_broken_edges_have_no_shape() -> None:
    assert shape_of(numpy.linspace(-1, 1, 9), numpy.full(8, 30.0)) == {}
    assert shape_of([0.0, float("nan")], [1000.0]) == {} and shape_of([0.0], [1000.0]) == {}


def test_the_doctor_reads_histograms_of_gradients_and_leaves_others_alone(tmp_path: Path) -> None:
    with barograph.init(project="p", dir=tmp_path, console="none", git=False, machine=False) as run:
        for step in range(1, 6):
            run.log_step(step, 0, 100, 1.0, 1.0, 3.0, 1e-3)
            for name in ("gradients_hist/layer.1", "weights_hist/layer.1"):
                run.log_histogram(name, SHAPES["modes"], step)
    told = [one for one in diagnose(run)["findings"] if one["rule"] == "histogram_shape"]
    assert [(one["key"], one["evidence"]["layers"]) for one in told] == [("modes", ["gradients_hist/layer.1"])]
