"""Ranks that train on rows of other classes each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.ranks.classes import RanksClasses

EVALUATED = np.arange(20, 161, 20)
LEARNT = (0.3, 0.5, 0.7, 0.8, 0.85, 0.86, 0.87, 0.87)


def told(
    recall: Any = LEARNT,
    *,
    lacks: float = 3.0,
    named: float = 6.0,
    width: float = 6.0,
    each: float = 32.0,
    world: int = 2,
    config: dict[str, Any] | None = None,
    pieces: tuple[int, ...] = (),
) -> list[str]:
    """Severities."""
    looks = np.arange(0, 160, 4)
    full = np.ones(len(EVALUATED))
    series = {
        "model/compared_recall": (EVALUATED, np.asarray(recall)),
        "model/compared_named": (EVALUATED, named * full),
        "model/compared_width": (EVALUATED, width * full),
        "model/output_width": ([0], [6.0]),
        "model/untargeted_classes": (looks, np.full(40, lacks)),
        "model/class_targets": (looks, each * np.arange(1, 41)),
    }
    findings = found([RanksClasses()], series, pieces, world_size=world, config=config or {})
    assert all(one.rule == "ranks_classes" and one.family == "ranks" for one in findings)
    return [one.severity for one in findings]


@pytest.mark.parametrize("pieces", [(), (10, 25), (3, 4, 5)])
@pytest.mark.parametrize("lacks", [2.0, 3.0, 5.0])
def test_classes_that_only_other_ranks_have_are_told_of(lacks: float, pieces: tuple[int, ...]) -> None:
    assert told(lacks=lacks, recall=[min(1.0, one * (1.2 if lacks == 2 else 1)) for one in LEARNT], pieces=pieces) == [
        "warning"
    ]


@pytest.mark.parametrize(
    ("recall", "how"),
    [
        (LEARNT, {"world": 1}),
        (LEARNT, {"lacks": 0.0}),
        (LEARNT, {"lacks": 1.0}),  # one more would be right by a better model alone
        (LEARNT, {"each": 4.0}),  # few targets: rare classes may be among the others
        (LEARNT, {"named": 3.0}),  # the evaluation has none of them
        (LEARNT, {"width": 12.0}),  # another head
        ((0.1, 0.3, 0.45, 0.5, 0.5, 0.5, 0.5, 0.5), {}),  # no more than this rank's classes
        ((0.86,) * 8, {}),  # pretrained: it was known before
        (LEARNT, {"config": {"tensor_parallel_size": 2}}),
    ],
)
def test_what_a_rank_may_have_learnt_by_itself_says_nothing(recall: Any, how: dict[str, Any]) -> None:
    assert told(recall, **how) == []


@pytest.mark.parametrize("config", [{"federated": True}, {"classes_per_client": 2}, {"local_steps": 8}])
def test_classes_that_are_dealt_out_on_purpose_are_information(config: dict[str, Any]) -> None:
    assert told(config=config) == ["info"]
