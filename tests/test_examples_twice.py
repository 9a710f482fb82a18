"""Examples that are in the data twice, where batches come again."""

from __future__ import annotations

import numpy

from barograph.probes.model.examples import ExampleLook


def looks_at(batches: list[list[int]]) -> list[float]:
    """Which part of each batch came in one batch before."""
    look = ExampleLook()
    rows = [numpy.array([batch], float) for batch in batches]
    found = [look.fields_of({"examples": ((), row)}, step) for step, row in enumerate(rows)]
    return [one.get("batch_again", 0.0) for one in found]


def test_a_batch_comes_again_though_one_of_its_examples_was_in_another_one_too() -> None:
    first, second = list(range(16)), [3, *range(20, 35)]
    assert looks_at([first, second, list(range(40, 56)), first, second]) == [0, 1 / 16, 0, 1, 1]


def test_a_batch_of_examples_of_several_batches_does_not_come_again() -> None:
    first, second, dice = list(range(16)), list(range(16, 32)), numpy.random.default_rng(1)
    mixed = dice.permutation([*first, *second])[:16].tolist()
    assert max(looks_at([first, second, mixed])) < 0.8
