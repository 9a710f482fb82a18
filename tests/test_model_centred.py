"""Tables of evaluations whose batches are standardised each by its own rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings

torch = pytest.importorskip("torch")

from barograph.doctor.rules.data.sides import EvaluationCentred  # noqa: E402
from barograph.probes.model import columns  # noqa: E402
from barograph.probes.model.rounds import ModelRound  # noqa: E402

ROWS, FEATURES = 48, 6


def batch(seed: int, own: bool, rows: int = ROWS, features: int = FEATURES, biased: bool = False) -> Any:
    given = torch.randn(rows, features, generator=torch.Generator().manual_seed(seed))
    given[:, -1] = 1.0  # a column of one number
    spread = given.std(0, correction=0 if biased else 1) + 1e-8
    return (given - given.mean(0)) / spread if own else given


def told(training: list[Any], evaluated: list[Any]) -> dict[str, float]:
    look = columns.InputColumns()
    for rows in training:
        look.given([rows], True, True)
    for rows in evaluated:
        look.given([rows], False, False)
    current = ModelRound(1, frozenset())
    look.put(current)
    current.send()
    return columns.fields_of(current.numbers())


@pytest.mark.parametrize("biased", [False, True])
def test_a_batch_that_is_standardised_by_its_own_rows_is_off_by_nothing(biased: bool) -> None:
    drawn = [batch(seed, False) for seed in range(4)]
    found = told(drawn, [batch(seed, True, biased=biased) for seed in (8, 9)])
    assert found["centred_eval"] < 1e-5 and found["centred_training"] > 0.05
    assert found["centred_passes"] == 2 and found["centred_looks"] == 4
    assert told(drawn, [batch(8, True), batch(9, False)])["centred_eval"] > 0.05  # the most of its passes
    assert told([batch(3, True), *drawn], [batch(8, True)])["centred_training"] < 1e-5  # the least of its looks


def test_what_is_no_table_of_some_columns_says_nothing() -> None:
    assert "centred_eval" not in told([batch(1, False, rows=8)], [batch(2, True, rows=8)])
    assert "centred_eval" not in told([batch(1, False).view(4, 12, FEATURES)], [batch(2, True).view(4, 12, FEATURES)])
    assert told([batch(1, False)], [torch.ones(ROWS, FEATURES)])["centred_eval"] == np.inf
    grid = torch.linspace(-1, 1, ROWS)[:, None].expand(ROWS, FEATURES)
    assert told([batch(1, False)], [grid])["centred_eval"] > 0.1


@pytest.mark.parametrize(
    ("change", "says"),
    [({}, True), ({"eval": 2e-3}, False), ({"training": 0.009}, False), ({"passes": 1.0}, False),
     ({"looks": 2.0}, False)],
)  # fmt: skip
@pytest.mark.parametrize("count", [1, 3])
def test_batches_of_evaluations_that_have_statistics_of_their_own_are_a_finding(
    change: dict[str, float], says: bool, count: int
) -> None:
    at = 20 * np.arange(1, count + 1)
    figures = {"eval": 1e-6, "training": 0.2, "passes": 3.0, "looks": 5.0} | change
    given = {f"model/centred_{name}": (at, np.full(count, value)) for name, value in figures.items()}
    assert bool(findings([EvaluationCentred()], given)) is (says and count > 1)
