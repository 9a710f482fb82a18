"""Data that start again behind a resume.

In:   the series of the loss, and beside it epoch, tokens, repeats, marks of batches, where a new segment begins.
Out:  findings of `DataReplay`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.noised import NEAR
from barograph.doctor.rules.run.resume import Border, Borders

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_SAME_BATCHES, _AGAIN = 4, 0.5  # batches; share of a batch's examples that came before
_MARKED = 8  # steps of a launch
_MARKS = {"model/batch_mark": 0.0, "model/clean_mark": NEAR, "model/text_mark": 1e-9}  # how near, of the most


class DataReplay(Borders):
    """After a resume the data start again from the beginning.

    Four signs, each enough: the probe of the data counts repeated batches from before the resume (`data/repeats`); the
    watch of the model was given the same batches in the first steps of both launches, four at least and in the same
    order, the first one behind the border perhaps left out, and no epoch has ended in between: they are known by all
    that the model is given (`model/batch_mark`), beneath another noise by the examples (`model/clean_mark`), beneath
    other masks by the texts (`model/text_mark`); the losses behind the border rise
    and fall with those at the beginning of the segment before, row by row (correlation of their deviations from their
    neighbours above 0.7 over 24 rows or more); the loss is below its level, and below where it fell to by then if it
    went on falling as before, by four standard errors of 32 rows, and by 2%, which is info alone. A counter of tokens
    or epochs that goes back is one more.

    A segment that repeats steps of the old one reads the same batches again on purpose: there the correlation does not
    count.
    """

    name, kind, severity = "data_replay", "replay", "warning"
    about = "After a resume, batches repeat that were already trained on."
    sources = ("ml-engineering: a step down after resume, a step up later", "lightning#18780")
    thresholds: ClassVar = {"correlation": (0.7, "five standard errors of 48 rows; ours"), "rows": (24.0, "ours")}

    def over(self, history: RunHistory, border: Border) -> Iterator[Finding]:
        found = border.steps[-1] if border.steps else border.step
        signs: list[str] = []
        evidence: dict[str, Any] = {}
        repeats = history.channel("data/repeats")
        if repeats is not None:
            rows = repeats.rows()
            behind = (rows.segment == border.segment) & (rows.step <= found) & numpy.isfinite(rows.value)
            count = float(rows.value[behind].sum())
            if count >= 3:
                evidence["repeats"] = int(count)
                signs.append(f"{int(count)} batches were seen before")
        same = next((count for name in _MARKS if (count := self._same_batches(history, border, found, name))), 0)
        if same:
            evidence["batches"] = same
            signs.append(f"the first {same} batches are those of the run's first steps")
        correlation = self._correlation(border)
        if correlation > self.at["correlation"]:
            evidence["correlation"] = rounded(correlation, 3)
            signs.append(f"its losses follow those of the first rows (correlation {correlation:.2f})")
        for name, word in (("data/tokens_seen", "tokens"), ("train/epoch", "epochs")):
            counter = history.channel(name)
            if counter is None:
                continue
            rows = counter.rows()
            behind = rows.value[(rows.segment == border.segment) & (rows.step >= border.step) & (rows.step <= found)]
            early = rows.value[(rows.segment < border.segment) & (rows.step < border.step)]
            if len(behind) and len(early) and behind[0] < 0.5 * early[-1] and early[-1] > early[0]:
                evidence[f"{word}_before"], evidence[f"{word}_after"] = rounded(early[-1]), rounded(behind[0])
                signs.append(f"the counter of {word} went back from {early[-1]:.4g} to {behind[0]:.4g}")
        drop = self._drop(border)
        if drop and not signs:
            evidence["drop"] = rounded(drop, 3)
            yield self.finding(
                border.step,
                f"After the resume at step {border.step} the loss is {100 * drop:.2g}% lower than before",
                severity="info",
                found=found,
                segment=border.segment,
                confidence=0.4,
                evidence=evidence,
                causes=["data replayed: batches that were seen before"],
                remedies=["Restore the loader's state with the checkpoint, or skip the batches that were used."],
            )
        elif signs:
            strong = bool({"repeats", "batches", "correlation"} & set(evidence))
            yield self.finding(
                border.step,
                f"After the resume at step {border.step} data repeat: {'; '.join(signs)}",
                severity="warning" if strong else "info",
                found=found,
                segment=border.segment,
                evidence=evidence,
                confidence=0.9 if strong else 0.5,
                causes=["data replayed: the loader restarted"],
                remedies=[
                    "Restore the loader's state with the checkpoint, or skip the batches that were used.",
                    f"Weights after step {border.step} have seen these batches twice.",
                ],
            )

    def _same_batches(self, history: RunHistory, border: Border, found: int, name: str) -> int:
        """How many batches at the border are those of the run's first looks, in the same order; 0 where few are, or
        where an epoch may have begun at the border. name: of what is the same for the same batch, and tells others."""
        marks, epoch = history.channel(name), history.role("epoch")
        if marks is None or marks.start:
            return 0
        rows = marks.rows()
        finite = numpy.isfinite(rows.value)
        begin = rows.step[0], border.step  # behind these an epoch may end
        first = rows.value[finite & (rows.segment == rows.segment[0]) & (rows.step < min(begin[0] + _MARKED, begin[1]))]
        behind = finite & (rows.segment == border.segment) & (rows.step <= found) & (rows.step < begin[1] + _MARKED)
        behind = rows.value[behind][: len(first)]
        near = _MARKS[name] * numpy.abs(first).max(initial=0.0)
        later = finite & (rows.segment == rows.segment[0]) & (rows.step >= begin[0] + _MARKED) & (rows.step < begin[1])
        if (numpy.diff(numpy.sort(numpy.r_[first, rows.value[later]])) <= near).any():
            return 0  # they tell no batch from others, or each epoch has the same order
        same = max(_in_a_row(first, behind[late:], near) for late in (0, 1))  # one may have been drawn before it
        if not same:
            return 0
        if epoch is not None:
            known = epoch.rows()
            early = known.value[(known.segment < border.segment) & (known.step < border.step)]
            late = known.value[(known.segment == border.segment) & (known.step <= found)]
            if len(early) and len(late) and math.floor(late[0]) > math.floor(early[-1]):
                return 0
        again = history.channel("model/batch_again") or history.channel("model/rows_again")
        seen = again.rows() if again is not None else None
        if seen is not None:  # whole batches, where that is known: shuffled ones have rows of many
            before = seen.value[(seen.segment < border.segment) & (seen.step < border.step)][-3:]
            if len(before) and before.max() > _AGAIN and epoch is None:
                return 0  # the next epoch may begin here, in the same order
        return same

    def _correlation(self, border: Border) -> float:
        count = min(len(border.new), len(border.first))
        if count < self.at["rows"] or border.same:
            return 0.0
        a, b = _apart(numpy.array(border.new[:count])), _apart(border.first[:count])
        size = float(numpy.sqrt((a @ a) * (b @ b)))
        return float(a @ b) / size if size > 0 else 0.0

    def _drop(self, border: Border) -> float:
        if len(border.new) < 32:
            return 0.0
        half = len(border.old) // 2
        early, late = float(numpy.median(border.old[:half])), float(numpy.median(border.old[half:]))
        falls = min(0.0, (late - early) / max(1, len(border.old) - half))  # a row: it goes on as before the border
        first = [
            item - border.same.get(step, border.level + falls * row)
            for row, (item, step) in enumerate(zip(border.new[:32], border.steps[:32], strict=True))
        ]
        drop = -float(numpy.median(first))
        return drop if drop > max(0.02, 4 * 1.25 * border.spread / math.sqrt(32)) else 0.0


def _in_a_row(first: NDArray[Any], behind: NDArray[Any], near: float) -> int:
    """How many marks at a border are those of the first batches, one by one; 0 where few or not all are."""
    count = min(len(first), len(behind))
    same = int((numpy.abs(first[:count] - behind[:count]) <= near).sum())
    return same if same == count >= _SAME_BATCHES else 0


def _apart(values: NDArray[Any]) -> NDArray[Any]:
    """How far each value is from the mean of its neighbours, cut at three usual distances."""
    apart = values[1:-1] - (values[:-2] + values[2:]) / 2
    limit = 3 * 1.4826 * max(float(numpy.median(numpy.abs(apart))), 1e-9)
    clipped: NDArray[Any] = numpy.clip(apart - numpy.median(apart), -limit, limit)
    return clipped


RULES = (DataReplay,)
