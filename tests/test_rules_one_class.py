"""Evaluations whose rows are of one class alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import falling, found

from barograph.doctor.rules.evaluation.one_class import EvaluationOneClass

STEPS, EVALUATED = np.arange(160), np.arange(19, 160, 20)


def told(
    *,
    named: float = 1.0,
    rows: float = 300.0,
    targets: float | None = None,
    top: float = 0.45,
    width: float = 6.0,
    untargeted: float = 0.0,
    world: int = 1,
    off: float = 0.0,
    config: dict[str, Any] | None = None,
    pieces: tuple[int, ...] = (),
    **others: Any,
) -> list[tuple[str, str]]:
    """Severities and first causes. off: of the logged loss, by which that of this rank differs."""
    loss = falling(160, 1.8, 0.3, 0.005)
    theirs, here = loss[EVALUATED], EVALUATED + 1
    full = np.ones(len(EVALUATED))
    series = {"train/loss": (STEPS, loss), "val/loss": (EVALUATED, theirs)}
    figures = {
        "compared_named": named, "compared_rows": rows, "compared_width": width,
        "evaluated_targets": rows if targets is None else targets,
    }  # fmt: skip
    series |= {f"model/{name}": (here, value * full) for name, value in figures.items()}
    series["model/evaluated_loss"] = (here, theirs * (1 + off))
    looks = np.arange(0, 160, 4)
    series |= {
        "model/output_width": ([0], [width]),
        "model/untargeted_classes": (looks, np.full(40, untargeted)),
        "model/class_targets": (looks, 32.0 * np.arange(1, 41)),
        "model/top_target_share": (looks, top + 0.03 * np.sin(looks)),
    }
    findings = found([EvaluationOneClass()], series | others, pieces, world_size=world, config=config or {})
    assert all(one.rule == "evaluation_one_class" and len(one.message) < 300 for one in findings)
    return [(one.severity, one.causes[0]) for one in findings]


CUT = "split not shuffled: evaluations have rows of one class alone"
PART = "evaluated on one rank's part alone: the rows of other ranks, of other classes, are not in what is logged"


@pytest.mark.parametrize("pieces", [(), (30, 70), (21, 41, 61, 62)])
@pytest.mark.parametrize(("how", "said"), [({}, CUT), ({"world": 2}, PART)])
def test_one_class_of_many_is_told_of(how: dict[str, Any], said: str, pieces: tuple[int, ...]) -> None:
    assert told(pieces=pieces, **how) == [("warning", said)]


@pytest.mark.parametrize(
    "how",
    [
        {"named": 2.0},
        {"named": 6.0},
        {"rows": 40.0},
        {"targets": 3000.0},  # the first rows of a sorted file alone were looked at
        {"top": 0.9},  # so they are in the training
        {"world": 2, "off": 0.3},  # that of all ranks is logged
        {"untargeted": 5.0},  # in the training, too
        {"width": 40.0},  # of forty classes few have eight rows
    ],
)
def test_evaluations_of_several_classes_or_of_which_part_was_seen_say_nothing(how: dict[str, Any]) -> None:
    assert told(**how) == []


@pytest.mark.parametrize(
    "how",
    [
        {"config": {"sampler": "balanced"}},
        {"config": {"oversample_rare": True}},
        {"config": {"curriculum": True}},
        {"width": 3.0},
        {"top": 0.64, "width": 5.0},
    ],
)
def test_rare_classes_may_have_few_rows(how: dict[str, Any]) -> None:
    assert [severity for severity, _ in told(**how)] == ["info"]


def test_class_weights_are_no_sampler() -> None:
    assert [severity for severity, _ in told(config={"balance": "sqrt", "sampler": "random"})] == ["warning"]
