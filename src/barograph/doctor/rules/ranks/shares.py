"""Ranks that train on one share of the data.

In:   the records `ranks` that say which batches, or labels, ranks have in common.
Out:  findings of `SameBatch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import splits_model
from barograph.doctor.rules.ranks.ranks import EventRule, ranks_named

if TYPE_CHECKING:
    from barograph.core.record import Record
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class SameBatch(EventRule):
    """Data-parallel ranks train on the same batch.

    Equal fingerprints in eight steps warn: the sampler was not given each rank's number, and work is done twice. So
    does a batch that another rank had before, by one number of steps up to 16, in eight steps: both read one share.
    Where the configuration says that ranks split one model (tensor, pipeline, context or sequence parallelism) equal
    batches are right.

    Examples that are augmented differ on ranks that draw the same ones; their labels do not. Where the rows of ranks
    have the same labels in the same order, in eight steps in a row that have labels to compare, and other ones in each
    of these steps, it is a warning as well. Labels are known where `run.watch_data` is given them, and where a watched
    classifier's scores are: of a row's scores that of its label gets the least gradient. Labels that are nearly all
    alike, or so few that they are the same by chance, are not compared. Where the configuration says that examples are
    repeated on purpose, for other views of each, or where rewards are logged, as of several answers to one prompt,
    nothing is said.
    """

    name, family, kind, severity = "same_batch", "ranks", "repeated_data", "warning"
    needs = ("!ranks",)
    about = "Data-parallel ranks train on the same batch."
    thresholds: ClassVar = {"steps": (8.0, "ours")}
    event = "ranks"
    causes = ("same data on all ranks: the sampler is not given each rank's number, or all have one seed",)
    remedies = ("use a DistributedSampler, or give the loader `rank` and `world_size`",)

    def reset(self) -> None:
        super().reset()
        self._steps: list[int] = []
        self._behind: dict[tuple[int, ...], list[int]] = {}  # steps, by who is behind whom, and how far
        self._said = False

    def take(self, history: RunHistory, event: Record) -> Iterator[Finding]:
        same, behind = event.fields.get("same_batch"), event.fields.get("batch_behind")
        alike = event.fields.get("same_labels")
        if self._said or not (same or behind or alike) or splits_model(history):
            return
        yield from self._labelled(history, event, alike or ())
        yield from self._late(event, behind or ())
        if not same or self._said:
            return
        self._steps.append(event.step)
        if len(self._steps) < self.at["steps"]:
            return
        self._said = True
        yield self.finding(
            self._steps[0], f"{ranks_named(same[0]).capitalize()} train on the same batches.", found=event.step,
            evidence={"ranks": list(same[0])[:64]}, confidence=0.7,
            )  # fmt: skip

    def _labelled(self, history: RunHistory, event: Record, groups: Iterable[Iterable[int]]) -> Iterator[Finding]:
        """Ranks whose rows have the same labels."""
        steps = event.fields.get("same_labels_for") or 0
        ranks = next((list(some) for some in groups), [])
        meant = history.role("reward") is not None or any(
            value and _REPEATED.search(name.lower()) for name, value in history.options.found.items()
        )
        if ranks and steps >= self.at["steps"] and not meant and not self._said:
            self._said = True
            yield self.finding(
                event.step, f"{ranks_named(ranks).capitalize()} train on rows with the same labels, in the same order, "
                f"for {steps:.0f} steps: the same examples, each changed in its own way.", found=event.step,
                evidence={"ranks": ranks[:64]}, confidence=0.7,
            )  # fmt: skip

    def _late(self, event: Record, behind: Iterable[Iterable[int]]) -> Iterator[Finding]:
        """Ranks whose batches others had before."""
        for rank, other, late in behind:
            steps = self._behind.setdefault((rank, other, late), [])
            steps.append(event.step)
            if len(steps) >= self.at["steps"] and not self._said:
                self._said = True
                yield self.finding(
                    steps[0], f"Rank {rank} trains on the batches that rank {other} had "
                    f"{'one step' if late == 1 else f'{late} steps'} before.", found=event.step,
                    evidence={"ranks": [rank, other], "steps": late}, confidence=0.8, causes=[_ONE_SHARE],
                )  # fmt: skip


_REPEATED = expression(r"repeat|(?<![a-z])(?:ra_?sampler|num_views|n_views|views|multi_?crop)(?![a-z])")
_ONE_SHARE = "same data on all ranks: they read one share of it, one some steps behind the other"


RULES = (SameBatch,)
