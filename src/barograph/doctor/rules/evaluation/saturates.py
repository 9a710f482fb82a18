"""Losses of an evaluation that are added up in bfloat16, until the sum stops growing.

In:   evaluation losses, and those of the training.
Out:  findings of `EvaluationSaturates`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_LEAST, _MOST = 128, 160  # of the numbers of eight bits that a sum in bfloat16 has: those just above a power of two
_EXACT = 1e-4  # of such a number, that a logged one may be off
_KEPT, _DECIMALS = 8, 5  # evaluations; of a loss that may be printed


class EvaluationSaturates(WatchRule):
    """Losses of an evaluation are a sum in bfloat16, divided: it stopped growing just above a power of two.

    A sum in bfloat16 has eight bits. What is added to it one by one is lost where it is less than half of the last of
    them, and that one doubles at each power of two: there the sum of many like numbers stays. In the last four
    evaluations or more, eight at most, the losses are whole multiples of one number, to a ten-thousandth of it, all
    between 128 and 160 of it, with three different ones; none of them is itself a number of bfloat16, as a loss is that
    was only rounded; and the training's loss is half as large again as each of them or more.

    What to do: add up losses in float32, or with `.item()`.
    """

    name, family, kind, severity = "evaluation_saturates", "eval", "eval", "warning"
    proves = "evaluation"
    needs = ("eval_loss", "loss")
    least = 4
    about = "Losses of an evaluation are added up in bfloat16, until the sum stops growing."
    thresholds: ClassVar = {
        "evaluations": (4.0, "ours"),
        "different": (3.0, "numbers of them; ours"),
        "below": (1.5, "times each of them, the training's loss; ours"),
    }
    causes = ("sum saturates in bfloat16: losses are added one by one to a sum of 16 bits, in which they are lost",)
    remedies = ("add up losses in float32, or as numbers of Python: `total += loss.item()`",)

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("eval_loss")

    def begin(self) -> None:
        self._losses: list[tuple[int, float]] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._losses = [*self._losses[1 - _KEPT :], (place[0], value)]
        losses = numpy.array([one[1] for one in self._losses])
        if len(losses) < self.at["evaluations"] or not (numpy.isfinite(losses).all() and losses.min() > 0):
            return
        ours = usual(history.role("loss"), *place, _KEPT)
        if not ours >= self.at["below"] * losses.max() or len(set(losses.tolist())) < self.at["different"]:
            return
        whole = 0 if _is_rounded(losses) else _whole(losses)
        if whole and not _is_short(losses) and self.first(place[2]):
            unit = float(losses.min()) / whole
            yield self.finding(
                self._losses[0][0], f"Losses of evaluations are {whole} to {losses.max() / unit:.0f} times {unit:.4g}, "
                f"all of them whole multiples, and the training's is {ours:.4g}: a sum in bfloat16 that stops growing "
                "at a power of two.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"unit": rounded(unit), "training": rounded(ours)},
            )  # fmt: skip


def _whole(losses: numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]) -> int:
    """What number of a unit the least of them is, of which each is a whole multiple; 0 if none is."""
    for least in range(_LEAST, _MOST):
        times = losses / losses.min() * least
        if times.max() <= _MOST and (abs(times - times.round()) <= _EXACT).all():
            return least
    return 0


def _is_rounded(losses: numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]) -> bool:
    """Whether all of them have five decimals or fewer, as printed ones do: whole multiples of a part of one anyway."""
    return bool((abs(losses - losses.round(_DECIMALS)) <= 1e-9 * losses).all())


def _is_short(losses: numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]) -> bool:
    """Whether all of them are numbers of bfloat16 themselves."""
    bits = [math.frexp(one)[0] * 2 * _LEAST for one in losses.tolist()]
    return all(abs(one - round(one)) <= _EXACT for one in bits)


RULES = (EvaluationSaturates,)
