"""How sure a classifier is in evaluations, as the watch sees it, and a softmax that evaluations take twice."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rule_columns import findings
from torch.nn import functional

from barograph.doctor.rules.loss.floor import EvaluationTwice
from barograph.probes.model.answers import EvaluationAnswers, figures

AT = np.arange(10, 130, 10)
LEARNS = np.linspace(0.2, 0.97, len(AT))  # accuracy


class Round:
    def __init__(self) -> None:
        self.found: list[tuple[str, tuple[str, ...], torch.Tensor]] = []

    def put(self, *column: object) -> None:
        self.found.append(column)  # type: ignore[arg-type]


@pytest.mark.parametrize("twice", [False, True])
def test_the_loss_of_logits_is_within_what_the_figures_allow_and_that_of_chances_is_not(twice: bool) -> None:
    torch.manual_seed(0)
    wanted = torch.arange(64) % 8
    logits = 4.0 * functional.one_hot(wanted, 8) + torch.randn(64, 8)
    least, span, level, chance = figures(logits).tolist()
    wrong = float((logits.argmax(1) != wanted).float().mean())
    loss = float(functional.cross_entropy(logits.softmax(1) if twice else logits, wanted))
    assert (loss > least + wrong * span) is twice
    assert (level - chance - 0.01 <= loss <= level - chance + wrong + 0.01) is twice


@pytest.mark.parametrize(
    ("output", "sees"),
    [
        (torch.randn(16, 8), True),
        ((torch.randn(16, 8), torch.randn(16)), True),
        (SimpleNamespace(logits=torch.randn(16, 8).half()), True),
        (torch.randn(4, 8), False),
        (torch.randn(16, 2), False),
        (torch.randn(16, 8, 3), False),
        (torch.randint(0, 4, (16, 8)), False),
        ("text", False),
    ],
)
def test_only_rows_of_logits_are_looked_at_and_no_tensor_is_kept(output: object, sees: bool) -> None:
    look, current = EvaluationAnswers(), Round()
    look.of_copy(output)
    look.put(current)  # type: ignore[arg-type]
    assert not current.found  # nobody waits for it
    look.awaited = True
    before = copy.deepcopy(output)
    look.of_copy(output)
    look.put(current)  # type: ignore[arg-type]
    assert bool(current.found) is sees
    assert not any(isinstance(one, torch.Tensor) for one in vars(look).values())
    if isinstance(output, torch.Tensor):
        assert torch.equal(output, before)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, True),
        ({"percent": 100.0}, True),
        ({"honest": 1.0}, False),
        ({"span": 12.0}, False),  # wrong answers may cost as much
        ({"share": 0.6}, False),  # rare classes may have weights
        ({"twice": 1.0}, False),  # the training's has it too
        ({"classes": 2.0}, False),
        ({"begins": 3.5}, False),  # was not what chances have at first
        ({"evaluations": 4.0}, False),
        ({"accuracy": 0.25}, False),
    ],
)
def test_an_evaluation_that_is_given_chances_for_logits_is_told(change: dict[str, float], told: bool) -> None:
    its = {"percent": 1.0, "honest": 0.0, "span": 5.0, "share": 0.2, "twice": 0.0, "classes": 8.0, "accuracy": 1.0}
    its |= {"evaluations": len(AT), "begins": math.nan} | change
    at, right = AT[-int(its["evaluations"]) :], its["accuracy"] * LEARNS[-int(its["evaluations"]) :]
    chance = 0.75 * right
    loss = 1.3 * (1 - right) + 0.3 if its["honest"] else 2.23 - chance + 0.3 * (1 - right)
    loss[0] = its["begins"] if its["begins"] == its["begins"] else loss[0]
    series = {
        "train/loss": (np.arange(140), np.linspace(2.1, 1.0, 140)),
        "eval/loss": (at, loss), "eval/accuracy": (at, its["percent"] * right),
    }  # fmt: skip
    seen = {"least": 2.0 - 1.8 * right, "span": its["span"], "level": 2.23, "chance": chance}
    for name, value in seen.items():
        series[f"model/answer_{name}"] = at + 1, value * np.ones(len(at))
    for name, value in (("output_width", its["classes"]), ("top_target_share", its["share"])):
        series[f"model/{name}"] = np.arange(0, 140, 10), np.full(14, value)
    series["model/softmax_twice"] = np.arange(0, 140, 10), np.full(14, its["twice"])
    assert bool(findings([EvaluationTwice()], series)) is told
