"""Texts that come in the order of a sorted file.

In:   how much of their beginnings neighbouring rows have in common, as the watch saw it; losses.
Out:  findings of `SortedTexts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import known, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.stages import is_curriculum
from barograph.doctor.rules.data.examples import Place, WatchRule, carries_state, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class SortedTexts(WatchRule):
    """Texts come in the order of a sorted file: each begins as the one before it, from batch to batch.

    In five looks in a row, a row and the one before it begin with three tokens more in common than rows of steps that
    are far apart, and half as many again; so do, over the first steps, the first row of a batch and the last one of the
    batch before; and rows half a batch apart have less in common than neighbours have (`model/beginnings_next`,
    `beginnings_far`, `beginnings_border`, `beginnings_half`). Batches of one prompt or one task each end where the next
    one begins, and what all rows begin with, any two have. And the order does harm, as far as is logged: the evaluation
    loss is 1.15 times the training loss, or more, and 0.05 above it. Of a log that is read once, in the order of time,
    and foretells what comes, of a curriculum, of rewards, and of states that are carried from batch to batch, nothing
    is said.

    What to do: shuffle, in each epoch anew, whatever the file's order is.
    """

    name, family, kind, severity = "sorted_texts", "data", "data", "warning"
    proves = "training"
    series = "model/beginnings_next"
    needs = ("=model/beginnings_next", "loss", "eval_loss")
    least = 5
    about = "Texts come in the order of a sorted file."
    thresholds: ClassVar = {
        "tokens": (3.0, "more in common; ours"),
        "times": (1.5, "as many as of rows that are far apart; ours"),
        "worse": (1.15, "times the training loss, an evaluation's; ours"),
        "above": (0.05, "above the training loss; ours"),
        "looks": (5.0, "in a row; ours"),
    }
    causes = ("data sorted: texts come in the order of a sorted file, and are not shuffled",)
    remedies = ("shuffle the examples anew in each epoch: `DataLoader(..., shuffle=True)`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        half, border, far = (watched(history, f"beginnings_{name}", place) for name in ("half", "border", "far"))
        least = max(far + self.at["tokens"], self.at["times"] * far)
        if not (value >= least and border >= least and value > half):
            self._row = []
            return
        self._row = [*self._row, place][-int(self.at["looks"]) :]
        ours, theirs = usual(history.role("loss"), *place, 16), known(history.role("eval_loss"), *place)
        harm = theirs >= max(self.at["worse"] * ours, ours + self.at["above"])
        other = is_curriculum(history) or history.role("reward") is not None or carries_state(history, place)
        if harm and not other and len(self._row) >= self.at["looks"] and self.first(place[2]):
            yield self.finding(
                0, f"A row begins with {value:.3g} tokens that the one before it begins with, and with {far:.3g} of "
                f"those of rows of another time: they come in the order of a sorted file. The evaluation loss is "
                f"{theirs:.4g}, and the training's {ours:.4g}.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"next": rounded(value), "far": rounded(far), "standing": True},
            )  # fmt: skip


RULES = (SortedTexts,)
