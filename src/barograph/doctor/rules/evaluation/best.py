"""The best evaluation, as a loop keeps it: in the wrong direction.

In:   evaluations, a logged best, checkpoints that were saved.
Out:  findings of `BestReversed`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.heldout import HELD_OUT
from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import known, named
from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_BEST = expression(
    rf"(?i)(?!.*(?:step|epoch|iter|time|acc|f1|bleu|auc|score|reward|iou|dice|r2|map))"
    rf"(?:.*[/_. ])?best(?:[/_. ](?:so_far|{HELD_OUT}|loss|metric|value|mean|avg|mse|mae))*|"
    rf"(?:.*[/_. ])?{HELD_OUT}[/_. ](?:loss[/_. ])?best(?:[/_. ](?:so_far|loss))?"
)


class BestReversed(WatchRule):
    """The loop takes the worst evaluation for the best: its comparison has the wrong direction.

    Either a logged best of the evaluation's loss is the highest loss so far in each of six rows or more, though there
    were three lower ones that it should have taken. Or of eight evaluations or more each at which a checkpoint was
    saved, the first aside, had the highest loss so far: three at least, and at none of three or more with the lowest.
    What is kept, restored at the end, or waited for by early stopping is then the worst.

    What to do: `if loss < best`, with `best = float("inf")` before the first; `mode="min"`.
    """

    name, family, kind, severity = "best_reversed", "eval", "config", "warning"
    needs = ("eval_loss",)
    least = 6
    about = "The loop takes the worst evaluation for the best."
    thresholds: ClassVar = {
        "rows": (6.0, "of a logged best; ours"),
        "others": (3.0, "evaluations with the lowest loss so far that were not taken; ours"),
        "evaluations": (8.0, "beside checkpoints; ours"),
        "saved": (3.0, "of them; ours"),
    }
    causes = ("sign reversed: the highest loss is taken for the best",)
    remedies = ('`if loss < best`, with `best = float("inf")` before the first; `mode="min"` for a loss',)

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("eval_loss")

    def begin(self) -> None:
        self._seen: list[tuple[int, float]] = []
        self._high, self._low = -math.inf, math.inf
        self._highest = self._lower = 0
        self._over = False

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if not math.isfinite(value):
            return
        if self._seen and not self._over:
            yield from self._of_rows(history, place)
        self._high, self._low = max(self._high, value), min(self._low, value)
        self._seen.append((place[0], value))
        if len(self._seen) >= self.at["evaluations"]:
            yield from self._of_checkpoints(history, place)

    def _of_rows(self, history: RunHistory, place: Place) -> Iterator[Finding]:
        """What the log had for the best at the evaluation before this one."""
        channel = named(history, _BEST)
        best = known(channel, place[0] - 1, *place[1:])
        if channel is None or channel is history.role("eval_loss") or not math.isfinite(best):
            return
        near = 1e-4 * max(abs(self._high), abs(self._low))
        if len(self._seen) > 1 and abs(best - self._high) > near:
            self._over = True  # it is something else
            return
        self._highest += 1
        lowest = len(self._seen) > 1 and self._seen[-1][1] <= self._low and self._high - self._low > 10 * near
        self._lower += lowest
        enough = self._highest >= self.at["rows"] and self._lower >= self.at["others"]
        if enough and self.first(place[2], "logged"):
            yield self.finding(
                self._seen[0][0], f"`{channel.name}` is {best:.4g}, the highest of {len(self._seen)} evaluations, "
                f"whose lowest loss is {self._low:.4g}.", found=place[0], segment=place[2], confidence=_PROOF,
                key="logged", evidence={"best": best, "lowest": self._low},
            )  # fmt: skip

    def _of_checkpoints(self, history: RunHistory, place: Place) -> Iterator[Finding]:
        """At which evaluations before this one a checkpoint was saved."""
        steps = sorted(step for step, _ in history.facts.get("checkpoints", ()))
        if len(steps) < self.at["saved"]:
            return
        high = low = self._seen[0][1]
        saved = missed = 0
        for (step, value), (following, _) in zip(self._seen[1:], self._seen[2:], strict=False):
            kept = any(step <= one < following for one in steps)
            if kept and value <= high:
                return
            saved += kept
            missed += not kept and value < low
            high, low = max(high, value), min(low, value)
        enough = saved >= self.at["saved"] and missed >= self.at["others"]
        if enough and self.first(place[2], "saved"):
            yield self.finding(
                self._seen[0][0], f"Checkpoints were saved at {saved} evaluations, each with the highest loss so far, "
                f"and at none of {missed} with the lowest.", found=place[0], segment=place[2], confidence=_PROOF,
                key="saved", evidence={"saved": saved, "missed": missed},
            )  # fmt: skip


RULES = (BestReversed,)
