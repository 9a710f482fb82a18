"""One batch that comes again and again: by mistake, to be learnt by heart, or because there is no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rule_columns import findings
from test_rules_objective import EVALUATIONS, FALLS, every, of_graph, warned

from barograph.doctor.rules.data.examples import RepeatedExamples


@pytest.mark.parametrize(
    ("rows", "evaluated", "is_warned"), [(32, 240, True), (32, 64, False), (64, 500, False), (32, None, False)]
)
def test_one_batch_for_ever_is_a_warning_where_an_evaluation_has_far_more(
    rows: int, evaluated: int | None, is_warned: bool
) -> None:
    looks = np.arange(0, 100, 5)
    columns = {"model/rows_again": (looks, np.ones(20)), "model/rows_again_after": (looks, np.full(20, 5.0))}
    columns |= of_graph(distinct_rows=float(rows), example_rows=float(rows))
    if evaluated is not None:
        columns["model/evaluated_rows"] = np.array([20]), np.array([float(evaluated)])
    assert ("repeated_examples" in warned(columns)) is is_warned


@pytest.mark.parametrize(
    ("config", "severity"),
    [({}, "warning"), ({"overfit_batches": 0}, "warning"), ({"overfit_batches": 1}, "info"),
     ({"dataset": "overfit_smoke_32_rows"}, "info"), ({"dataset": "overfit_32_rows"}, "info"),
     ({"mode": "sanity-overfit"}, "info"), ({"data": {"kind": "overfit on one batch"}}, "info"),
     ({"note": "to prevent overfit on few samples"}, "warning"), ({"callback": "overfit_stopper"}, "warning")],
)  # fmt: skip
@pytest.mark.parametrize("evaluated", [64, 240])
def test_one_batch_that_is_to_be_learnt_by_heart_is_an_info_finding(
    config: dict[str, Any], severity: str, evaluated: int
) -> None:
    looks = np.arange(0, 100, 5)
    columns = {"model/rows_again": (looks, np.ones(20)), "model/rows_again_after": (looks, np.full(20, 5.0))}
    columns |= of_graph(distinct_rows=32.0, example_rows=32.0)
    columns["model/evaluated_rows"] = np.array([20]), np.array([float(evaluated)])
    found = findings([RepeatedExamples()], columns, facts={"config": {"batch_size": 32, **config}})
    assert [one.severity for one in found.values()] == [severity]


@pytest.mark.parametrize(
    ("config", "severity"),
    [({"train_rows": 32}, "info"), ({"data.num_train_samples": 32}, "info"), ({"n_train": 32}, "info"),
     ({"train_rows": 320}, "warning"), ({"train_rows": 8}, "warning"), ({"rows": 32}, "warning")],
)  # fmt: skip
@pytest.mark.parametrize(("evaluated", "worse"), [(64, False), (240, True)])
def test_one_batch_is_all_of_it_where_the_training_has_no_more_examples(
    config: dict[str, int], severity: str, evaluated: int, worse: bool
) -> None:
    looks = np.arange(0, 100, 5)
    columns = {"model/rows_again": (looks, np.ones(20)), "model/rows_again_after": (looks, np.full(20, 5.0))}
    columns |= of_graph(distinct_rows=32.0, example_rows=32.0)
    columns["model/evaluated_rows"] = np.array([20]), np.array([float(evaluated)])
    found = findings([RepeatedExamples()], columns, facts={"config": {"batch_size": 32, **config}})
    assert [one.severity for one in found.values()] == ["warning" if worse else severity]


@pytest.mark.parametrize(
    ("config", "trained", "worse", "severity"),
    [
        ({"batch_size": 1600}, 0.0, 1.1, "info"),  # a full batch, as LBFGS has it
        ({"batch_size": 1600}, 1.0, 9.0, "info"),  # one picture that is learnt by heart: its evaluation is of it
        ({"batch_size": 1600}, 0.0, 9.0, "warning"),
        ({"batch_size": 1600}, None, 1.0, "info"),
        ({"batch_size": 64}, 0.0, 1.1, "warning"),
        ({"batch_size": 128, "full_batch": True}, 0.0, 1.1, "info"),
        ({"batch_size": 1600, "full_batch": True}, 0.0, 9.0, "info"),  # overfitting then
        ({"batch_size": 128, "full_batch": False}, 0.0, 1.1, "warning"),
    ],
)
def test_one_batch_that_is_large_may_be_all_examples_until_an_evaluation_is_worse(
    config: dict[str, int], trained: float | None, worse: float, severity: str
) -> None:
    looks = np.arange(0, 100, 5)
    columns = {"model/rows_again": (looks, np.ones(20)), "loss": every(FALLS)} | of_graph(
        distinct_rows=64.0, example_rows=64.0
    )
    if trained is not None:
        columns["val_loss"] = EVALUATIONS, worse * FALLS[EVALUATIONS]
        columns["model/evaluated_trained"] = EVALUATIONS + 1, np.full(10, trained)
        columns["model/evaluated_rows"] = EVALUATIONS + 1, np.full(10, 64.0)
    columns["model/rows_again_after"] = looks, np.full(20, 5.0)
    found = findings([RepeatedExamples()], columns, facts={"config": config})
    assert [one.severity for one in found.values()] == [severity]


@pytest.mark.parametrize(
    ("written", "told"), [([5, 10], False), ([], True), ([3, 5], True), ([4], True), (range(1, 14), True)]
)  # fmt: skip
def test_a_batch_that_comes_again_within_an_inner_loop_is_meant(written: Sequence[int], told: bool) -> None:
    looks = np.arange(1, 14)
    columns = {"model/rows_again": (looks, (looks % 5 > 0).astype(float)),
               "model/rows_again_after": (looks, np.ones(13)), "loss": every(FALLS),
               "model/written": (np.array(list(written)), np.full(len(written), 0.02))}  # fmt: skip
    columns = {name: column for name, column in columns.items() if len(column[0])}
    found = warned(columns | of_graph(distinct_rows=60.0, example_rows=20.0))
    assert ("repeated_examples" in found) is told
