"""Whether the training's loss and the evaluation's are of one kind, so that their sizes can be compared.

In:   their names, what the watch knows of the training's loss, and what both begin with.
Out:  `of_other_kind`; `both_losses`, which are not known where they are of two kinds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from barograph.core.patterns import expression
from barograph.core.roles import RECORDED, is_of_held_out, is_of_other_kind
from barograph.doctor.kernel.cursor import known, usual

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory

_COLUMNS = 3  # logistic losses of an example: a cross-entropy of two classes begins as a logistic loss does
_NEW = 0.15  # of ln 2, and of ln C, within which a model's loss is that of a guess
_REBUILT = expression(r"(?i)(?<![a-z])recon(?:s|struct(?:ion)?s?)?(?![a-z])")
_ABOVE = 1.3  # times the training's first loss, the evaluation's: one of the same kind would be worse than a guess


def of_other_kind(history: RunHistory, evaluation: Channel | None, step: int, time: int, segment: int) -> bool:
    """Whether the evaluation's loss is of another kind than the training's: by both names; by its name and what the
    training's is by its graph, an entropy of classes, squares, or logistic losses of three columns or more; where it is
    a reconstruction, which the training logs as a term beside its loss; or by sizes, where the training's, of C such
    columns, began at ln 2 (within 15%), and the first evaluation is 1.3 times that or more, up to ln C (and 15%)."""
    loss = history.role("loss")
    if loss is None or evaluation is None or not loss.end or not evaluation.end:
        return False
    if is_of_other_kind(evaluation.name, loss.name) or _is_of_a_term(history, evaluation.name, loss.name):
        return True
    columns, classes, error = (
        known(history.channel(f"model/{name}"), step, time, segment)
        for name in ("loss_logistic", "loss_classes", "loss_error")
    )
    kind = "bce" if columns >= _COLUMNS else "mse" if error == 1 and columns == 0 else "ce" if classes > 1 else ""
    if kind and is_of_other_kind(evaluation.name, kind):
        return True
    drawn = abs(loss.first / math.log(2) - 1) <= _NEW
    return columns >= _COLUMNS and drawn and _ABOVE * loss.first <= evaluation.first <= (1 + _NEW) * math.log(columns)


def _is_of_a_term(history: RunHistory, evaluation: str, loss: str) -> bool:
    """Whether an evaluation is of the reconstruction alone, which the training's loss has other terms beside."""
    if _REBUILT.search(evaluation) is None or _REBUILT.search(loss):
        return False
    logged = (name for name in history.channels if not name.startswith(RECORDED) and not is_of_held_out(name))
    return any(_REBUILT.search(name) for name in logged)


def both_losses(history: RunHistory, step: int, time: int, segment: int) -> tuple[float, float]:
    """The training's usual loss, and the evaluation's last one; NaN where they are of two kinds."""
    evaluation = history.role("eval_loss")
    if of_other_kind(history, evaluation, step, time, segment):
        return math.nan, math.nan
    return usual(history.role("loss"), step, time, segment, 8), known(evaluation, step, time, segment)
