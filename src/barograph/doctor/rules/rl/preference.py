"""Preferences learnt against a frozen reference: is it one?

In:   the implicit rewards that trainers of preferences log, in which the reference is subtracted.
Out:  findings of `ReferenceMoves`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import RowCursor, known
from barograph.doctor.kernel.rule import Rule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_NAMES = ("rewards/chosen", "train/rewards/chosen", "rewards_chosen", "train/rewards_chosen", "reward_chosen")


class ReferenceMoves(Rule):
    """The implicit reward of a preference is exactly 0, step after step: the reference is the policy itself.

    DPO's reward is β times the difference of the policy's and the reference's log probability. At the first step both
    models are one, and it is 0. In eight rows in a row behind the first update, with a learning rate above 0, a reward
    of exactly 0 says that the reference is the same object, or is copied anew at each step: the margin is 0, and the
    loss stays at ln 2.

    What to do: `reference = copy.deepcopy(policy).requires_grad_(False)`, before the training.
    """

    name, family, kind, severity = "reference_moves", "rl", "rl", "critical"
    needs = tuple(["|".join(f"={name}" for name in _NAMES)])
    about = "The reference of a preference is the policy itself."
    sources = ()
    thresholds: ClassVar = {"rows": (8.0, "ours")}
    causes = ("reference is the policy: both are one model, so that the margin is 0",)
    remedies = ("make the reference a frozen copy: `copy.deepcopy(policy).requires_grad_(False)`",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._began = self._count = 0
        self._segment = -1

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        name = next((name for name in _NAMES if history.channel(name) is not None), "")
        rows = self._cursor.new(history.channel(name))
        for at in range(len(rows) if rows is not None else 0):
            assert rows is not None
            step, time, segment = int(rows.step[at]), int(rows.time[at]), int(rows.segment[at])
            if segment != self._segment or rows.value[at] != 0:
                self._segment, self._count, self._began = segment, 0, step
            idle = known(history.role("lr"), step, time, segment) == 0
            if rows.value[at] != 0 or idle or numpy.isnan(rows.value[at]):
                continue
            self._count += 1
            if self._count == self.at["rows"] + 1 and self.first(segment):
                yield self.finding(
                    self._began, f"The reward of chosen answers is exactly 0 in each row since step {self._began}: "
                    "policy and reference are one model.", found=step, segment=segment, confidence=0.95,
                )  # fmt: skip


RULES = (ReferenceMoves,)
