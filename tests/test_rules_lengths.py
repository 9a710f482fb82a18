"""Vectors that are brought to unit length in the training, and not in evaluations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.rules.evaluation.lengths import EvaluationLengths

LOOKS, EVALUATIONS = np.arange(0, 60, 5), np.arange(19, 80, 20)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, True),
        ({"span": 25.0}, False),  # a larger table, or one that is surer
        ({"unit": 1.0}, False),  # nor is the training's of unit length
        ({"evaluated": 0.5}, False),
        ({"looks": 2}, False),
        ({"evaluations": 1}, False),
    ],
)
@pytest.mark.parametrize("cuts", [(), (3, 25, 47)])
def test_similarities_that_lie_too_far_apart_in_evaluations_are_told(
    changed: dict[str, Any], told: bool, cuts: tuple[int, ...]
) -> None:
    at = {"span": 90.0, "unit": 0.0, "evaluated": 2.0, "looks": 12, "evaluations": 3} | changed
    looks, evaluations = LOOKS[: at["looks"]], EVALUATIONS[: at["evaluations"]]
    columns: dict[str, Any] = {
        "train/loss": (np.arange(80), np.ones(80)),
        "val/loss": (evaluations, np.full(len(evaluations), at["evaluated"])),
        "model/pairs_any_length": (looks[:1], np.full(1, at["unit"])),
        "model/pairs_range": (looks, np.full(len(looks), 12.0)),
        "model/answer_span": (evaluations + 1, np.full(len(evaluations), at["span"])),
    }
    found = findings([EvaluationLengths()], columns, cuts=cuts).values()
    assert [one.severity for one in found] == ["warning"] * told


@pytest.mark.parametrize("size", [8, 64, 90])
@pytest.mark.parametrize("kind", ["both ways", "one way", "embeddings"])
def test_how_far_a_table_s_numbers_lie_apart_is_told_of_tables_alone(size: int, kind: str) -> None:
    torch = pytest.importorskip("torch")
    from barograph.probes.model.outputs import FIGURES, figures

    torch.manual_seed(0)
    left, right = (torch.nn.functional.normalize(torch.randn(size, size), dim=1).requires_grad_() for _ in "ab")
    output = left if kind == "embeddings" else (7 * left @ right.T).detach().requires_grad_()
    table = 7 * output @ right.detach().T if kind == "embeddings" else output
    labels = torch.arange(size)
    loss = torch.nn.functional.cross_entropy(table, labels)
    if kind != "one way":
        loss = (loss + torch.nn.functional.cross_entropy(table.T, labels)) / 2
    gradient = torch.autograd.grad(loss, output)[0]
    rows = slice(0, 64)  # that are looked at
    said = dict(zip(FIGURES, figures(output.detach()[rows], gradient[rows]).tolist(), strict=True))["pairs_range"]
    if kind == "embeddings" or size > 64:
        assert np.isnan(said)
    else:
        assert said == pytest.approx(float((output.amax(1) - output.amin(1)).max().detach()))
