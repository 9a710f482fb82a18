"""A best evaluation that is the worst one."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from rule_columns import findings, noisy, only, random_columns, same_when_cut

from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.evaluation.best import BestReversed

AT = numpy.arange(0, 400, 20)
LOSS = (0.5 + numpy.exp(-AT / 90)) * noisy(len(AT), 1, 0.1, 3)
HIGHEST, LOWEST = numpy.maximum.accumulate(LOSS), numpy.minimum.accumulate(LOSS)


def said(columns: dict[str, Any], saved: Any = ()) -> list[Finding]:
    facts = {"checkpoints": [(int(step), "path") for step in saved]}
    found = findings([BestReversed()], {name: (AT, column) for name, column in columns.items()}, facts=facts)
    return only(found, "best_reversed")


@pytest.mark.parametrize("name", ["best_val_loss", "best", "val/best_loss", "best_so_far", "eval/best"])
def test_a_logged_best_that_is_the_highest_is_known(name: str) -> None:
    (one,) = said({"eval/loss": LOSS, name: HIGHEST})
    assert (one.severity, one.step) == ("warning", 0) and one.causes[0].startswith("sign reversed")


@pytest.mark.parametrize(
    "columns",
    [
        {"eval/loss": LOSS, "best_val_loss": LOWEST},
        {"eval/loss": LOSS, "best_acc": HIGHEST},
        {"eval/loss": LOSS, "best_epoch": AT},
        {"eval/loss": LOSS, "best_loss": numpy.full(len(AT), 0.3)},  # of another run
        {"eval/loss": 0 * LOSS + 1, "best_loss": 0 * LOSS + 1},
        {"eval/loss": 0.5 + AT / 400, "best_loss": 0.5 + AT / 400},  # none was lower
        {"eval/loss": LOSS},
    ],
)
def test_other_bests_are_not(columns: dict[str, Any]) -> None:
    assert not said(columns)


RISES = numpy.where(numpy.arange(len(AT)) % 2, 1.0 + AT / 400, 1.0 - AT / 500)  # two kinds of evaluation, in turn


@pytest.mark.parametrize(
    ("saved", "count"),
    [(AT[1::2], 1), (AT[1::2] + 3, 1), (AT[::2], 0), (AT, 0), (AT[1:5:2], 0), ((), 0), (numpy.arange(0, 400, 60), 0)],
)
def test_checkpoints_of_the_worst_evaluations_alone_are_known(saved: Any, count: int) -> None:
    assert len(said({"eval/loss": RISES}, saved)) == count


@pytest.mark.parametrize("seed", range(8))
def test_where_rows_are_cut_changes_nothing(seed: int) -> None:
    same_when_cut([BestReversed], random_columns(seed, ["eval/loss", "best_loss"]), seed)
    same_when_cut([BestReversed], {"eval/loss": (AT, LOSS), "best_loss": (AT, HIGHEST)}, seed)
