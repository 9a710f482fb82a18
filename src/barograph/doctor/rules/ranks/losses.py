"""A rank whose loss stays where it began, while that of the others falls.

In:   the series `ranks/{name}/max`, `mean` and `max_rank` of a loss that ranks reduce.
Out:  findings of `RankLossStays`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import RowCursor, averages_workers, known, splits_model, whole
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_LOSS = expression(r"(?i)^ranks/(?:.*[/_.-])?(?:loss|nll|ce|bce|xent|cross_?entropy|mse)/max$")
_FIRST, _PART = 3, 10  # rows


class _Row(NamedTuple):
    step: int
    rank: int
    high: float
    others: float


class RankLossStays(Rule):
    """One rank's loss stays where it began, and that of the others falls, though all train one model.

    Of a loss that ranks reduce (`run.reduce`), the first three rows were alike on all ranks, to a quarter. In 40 rows
    that follow one another one rank has the highest loss, nine tenths of its first one or more and not falling in them,
    and the others' mean is six tenths of theirs or less. What the model learns of the others' rows is nothing for that
    rank's: its targets belong to other rows, or its data is broken, and it spoils the gradients of all. Where ranks
    hold parts of one model, or workers are averaged now and then, nothing is said.

    What to do: print a row and its target on that rank. Of rows that were gathered from all ranks a rank's own begin at
    rank × rows.
    """

    name, family, kind, severity = "rank_loss_stays", "ranks", "data", "warning"
    needs = ("ranks/*",)
    about = "One rank's loss stays where it began, while the others' falls."
    thresholds: ClassVar = {
        "begun": (1.25, "times the others' loss in the first three rows, at most; ours"),
        "stays": (0.9, "of its first loss; ours"),
        "falls": (0.6, "of the others' first loss; ours"),
        "rows": (40.0, "in a row; ours"),
        "level": (0.97, "of the first ten of these rows, what the last ten have; ours"),
    }
    causes = (
        "labels shifted: on one rank targets belong to other rows, as where each rank counts gathered rows from 0",
        "data broken on one rank: its share of the files, or what prepares it",
    )
    remedies = (
        "print rows beside their targets on that rank",
        "labels of gathered rows: `torch.arange(rows) + rank * rows`",
    )

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._names, self._series = -1, list[str]()
        self._rows: dict[tuple[int, str], list[_Row]] = {}
        self._begun: dict[tuple[int, str], list[tuple[float, float]]] = {}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        if len(history.channels) != self._names:
            self._names = len(history.channels)
            self._series = sorted(name for name in history.channels if _LOSS.search(name))
        for name in self._series:
            mean, ranks = (history.channel(f"{name[:-4]}/{what}") for what in ("mean", "max_rank"))
            if mean is None or ranks is None or splits_model(history) or averages_workers(history):
                continue
            rows = self._cursor.new(history.channel(name))
            if rows is None:
                continue
            places = zip(
                rows.step.tolist(), rows.time.tolist(), rows.segment.tolist(), rows.value.tolist(), strict=True
            )
            for step, time, segment, high in places:
                yield from self._row(history, name, (step, time, segment), high, (mean, ranks))

    def _row(
        self, history: RunHistory, name: str, place: tuple[int, int, int], high: float, beside: tuple[Channel, Channel]
    ) -> Iterator[Finding]:
        """One row of one series."""
        count, key = history.facts.get("world_size"), (place[2], name)
        mean, rank = (known(one, *place) for one in beside)
        if not isinstance(count, int) or count < 2 or not math.isfinite(mean + rank + high):
            return
        others = (count * mean - high) / (count - 1)
        begun = self._begun.setdefault(key, [])
        if len(begun) < _FIRST:
            begun.append((high, others))
            return
        first, theirs = (float(numpy.median(values)) for values in zip(*begun, strict=True))
        kept = self._rows.setdefault(key, [])
        if kept and kept[-1].rank != whole(rank):
            kept.clear()
        apart = high >= self.at["stays"] * first and others <= self.at["falls"] * theirs
        if not (apart and theirs > 0 and first <= self.at["begun"] * theirs):
            kept.clear()
            return
        kept.append(_Row(place[0], whole(rank), high, others))
        del kept[: -int(self.at["rows"])]
        early, late = ([one.high for one in part] for part in (kept[:_PART], kept[-_PART:]))
        level = float(numpy.median(late)) >= self.at["level"] * float(numpy.median(early))
        if len(kept) == self.at["rows"] and level and self.first(place[2], name):
            low = float(numpy.median([one.others for one in kept[-_PART:]]))
            now = float(numpy.median(late))
            yield self.finding(
                kept[0].step, f"Rank {kept[0].rank}'s loss began at {first:.4g} and is {now:.4g}, while that of the "
                f"others fell from {theirs:.4g} to {low:.4g}.", found=place[0], segment=place[2], key=name,
                confidence=0.85, evidence={"rank": kept[0].rank, "loss": rounded(now), "others": rounded(low),
                                           "standing": True},
            )  # fmt: skip


RULES = (RankLossStays,)
