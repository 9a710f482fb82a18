"""The order of examples from epoch to epoch.

In:   figures of the watch: examples that come again, and the epoch that a sampler was given.
Out:  findings of `SamplerEpoch`, `SameOrder`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_REMEDY = "call `sampler.set_epoch(epoch)` before each epoch: the order is drawn from the seed and this number"


class SamplerEpoch(WatchRule):
    """A `DistributedSampler` that shuffles is never given the epoch's number, and two epochs or more have passed.

    The watch reads its epoch, and how many examples it has for a rank. It is 0 still when the steps of this launch have
    trained on two and a half times as many, as far as they were counted (64 of a batch at most): the third epoch
    has the order of the first.

    What to do: `sampler.set_epoch(epoch)` before each epoch.
    """

    name, family, kind, severity = "sampler_epoch", "data", "repeated_data", "warning"
    series = "model/sampler_epoch"
    needs = ("=model/sampler_epoch",)
    least = 2
    about = "A distributed sampler is never given the epoch's number."
    thresholds: ClassVar = {"epochs": (2.5, "that have passed; ours")}
    causes = ("same order in each epoch: `set_epoch` is never called",)
    remedies = (_REMEDY,)

    def begin(self) -> None:
        self._first = -1

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._first = place[0] if self._first < 0 else self._first
        rows, examples = watched(history, "example_rows", place), watched(history, "sampler_rows", place)
        passes = max(1.0, watched(history, "backwards", place))
        epochs = (place[0] - self._first) * rows * passes / examples if examples > 0 else 0.0
        if value == 0 and epochs >= self.at["epochs"] and self.first(place[2]):
            yield self.finding(
                self._first, f"{epochs:.1f} epochs of {examples:.0f} examples a rank have passed, and the sampler's "
                "epoch is still 0: each has the same order.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"epochs": round(epochs, 2), "standing": True},
            )  # fmt: skip


class SameOrder(WatchRule):
    """Each epoch has the same batches, in the same order.

    In three looks all examples of a batch, four at least, came together in one batch before, and the steps between are
    multiples of the least of them, three at least; in no look were examples that had come before in several batches.
    The training has three batches of different examples or more. A batch that stays, and a policy's, which is trained
    on several times, are other things. An info finding: of a text that is read from its beginning it is meant so.

    What to do: shuffle anew in each epoch; of a `DistributedSampler`, `set_epoch`.
    """

    name, family, kind, severity = "same_order", "data", "repeated_data", "info"
    series = "model/batch_again"
    needs = ("=model/batch_again",)
    least = 3
    about = "Each epoch has the same batches, in the same order."
    thresholds: ClassVar = {
        "looks": (3.0, "whose whole batch came before; ours"),
        "rows": (4.0, "of a batch; ours"),
        "steps": (3.0, "between two of the same, at least; ours"),
        "batches": (3.0, "of different examples; ours"),
        "again": (0.9, "of a batch, that came before in several others: they are drawn anew; ours"),
    }
    causes = ("same order in each epoch: the sampler's epoch, or its seed, never changes", "data not shuffled")
    remedies = (_REMEDY, "give the loader `shuffle=True`, and set no seed within an epoch")

    def begin(self) -> None:
        self._same: list[tuple[int, float]] = []  # step, and how many steps before
        self._drawn = False

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        again = watched(history, "rows_again", place)
        self._drawn = self._drawn or (again >= self.at["again"] and value < 1)
        rows = watched(history, "example_rows", place)
        several = watched(history, "distinct_rows", place) >= self.at["batches"] * rows
        if self._drawn or value < 1 or rows < self.at["rows"] or history.role("reward") is not None or not several:
            return
        after, looks = watched(history, "rows_again_after", place), history.channel("model/example_rows")
        if looks is None or place[0] - after == _step_before(looks, place):
            return  # the batch of the look before: it may have stayed
        self._same.append((place[0], after))
        least = min(steps for _, steps in self._same)
        periodic = all(steps % least == 0 for _, steps in self._same)
        if len(self._same) >= self.at["looks"] and periodic and least >= self.at["steps"] and self.first(place[2]):
            yield self.finding(
                self._same[0][0], f"In {len(self._same)} looks the batch was that of {least:.0f} steps before, or of a "
                "multiple of these: each epoch has the same batches, in the same order.", found=place[0],
                segment=place[2], confidence=0.6, evidence={"steps": least},
            )  # fmt: skip


def _step_before(looks: Channel, place: Place) -> int:
    """The step of the look before; -1 if there is none."""
    rows = looks.rows()
    steps = rows.step[(rows.segment == place[2]) & (rows.step < place[0]) & (rows.time <= place[1])]
    return int(steps[-1]) if len(steps) else -1


RULES = (SamplerEpoch, SameOrder)
