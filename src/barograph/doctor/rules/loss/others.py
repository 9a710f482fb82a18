"""Losses beside the judged one, and norms, that are not numbers.

In:   series named as losses; the gradient norm.
Out:  findings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.channels import KEEP
from barograph.doctor.kernel.cursor import RowCursor
from barograph.doctor.kernel.curve import again, between
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.rule import Rule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory

_LOSS = expression(r"(?i)(?:^|.*[^a-z])(?:[a-z]*loss|nll|kl)(?:[^a-z].*)?")
_MOST = 64  # series; more are a table
_JUDGES = ("loss", "eval_loss", "reward")
_FEW = 4  # rows of a judged series; of fewer nothing is said
_TOGETHER = 3  # series that become no numbers in one row, among them the gradient norm
_MACHINE = ("system/", "gpu/", "process/", "model/", "data/", "barograph/")


class _Column:
    """What is known of one series: rows that are numbers and others, and the stretch of others that lasts."""

    def __init__(self) -> None:
        self.numbers = self.others = self.length = 0  # others: before the stretch, which has this length
        self.step = self.segment = 0  # of its first row
        self.value = math.nan
        self.told: Finding | None = None


class NonFiniteSeries(Rule):
    """A loss beside the judged one (a term of it, or another model's) becomes NaN or infinite and stays so, while the
    judged loss is finite: 16 rows, or 3 that end the run. If it is finite again later it is an info finding. A series
    in which more than one row in twenty was not a number before has gaps and says nothing.

    So is one that was never a number in a log of so few rows that no loss, evaluation or reward can be judged: fewer
    than four.

    A gradient norm that is not finite in any row of the run is an info finding, and a warning where no loss tells how
    the training went. Where no loss, evaluation or reward was found, any series that ends in such rows is a warning.

    Where no loss was found, two that become so in the same row beside the gradient norm, or three, are a warning if
    they stay so to the end, for two rows or more: the terms of a policy's loss.

    Where no loss was found, a reward that was a number in each row before, and is none in the last three or more, is
    an info finding: a mean over no episode is NaN too.
    """

    name, family, kind, severity = "non_finite_series", "loss", "nonfinite", "warning"
    needs = ("loss|norm|*",)
    least = 3
    about = "Another loss, or each gradient norm, is NaN or infinite."
    thresholds: ClassVar = {
        "rows": (16.0, "in a row; ours"),
        "last": (3.0, "rows that end the run; ours"),
        "before": (8.0, "rows that were numbers; ours"),
        "missing": (0.05, "share of earlier rows, as in non_finite_gradient"),
    }
    causes = ("a term divides by 0 or takes the logarithm of 0", "bad batch: a term has no example in it")
    remedies = ("Look at how it is computed for the batch of that step.",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._columns: dict[str, _Column] = {}
        self._names: tuple[int, list[str]] = -1, []

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        if self._names[0] != len(history.channels):
            found = [name for name in history.channels if name.count("/") < 3 and _LOSS.fullmatch(name)]
            found = [name for name in found if history.source_of(name) == name]
            self._names = len(history.channels), found if len(found) <= _MOST else []
        finished = bool(history.facts.get("finished"))
        for name in self._names[1]:
            channel, column = history.channels[name], self._columns.setdefault(name, _Column())
            rows = self._cursor.new(channel)
            if rows is not None:
                yield from self._look(history, channel, column, rows)
            short = 0 < column.length < self.at["rows"]
            if finished and short and column.length >= self.at["last"] and column.told is None:
                yield from self._say(history, channel, column, channel.last_step)
        if finished:
            yield from self._norm(history)
            yield from self._reward(history)
            yield from self._together(history)
            if not any(map(history.role, _JUDGES)):
                yield from self._unnamed(history)
            if all(judge is None or judge.end < _FEW for judge in map(history.role, _JUDGES)):
                yield from self._never(history)

    def _look(self, history: RunHistory, channel: Channel, column: _Column, rows: ChannelRows) -> Iterator[Finding]:
        if rows.finite and not column.length:
            column.numbers += len(rows)
            return
        for at, value in enumerate(rows.value.tolist()):
            if math.isfinite(value):
                column.numbers, column.others, column.length = column.numbers + 1, column.others + column.length, 0
                if column.told is not None:
                    column.told.severity = "info"
                    column.told.message += f"; it is finite again from step {int(rows.step[at])}"
                    yield again(column.told)
                    column.told = None
                continue
            column.length += 1
            if column.length == 1:
                column.step, column.segment, column.value = int(rows.step[at]), int(rows.segment[at]), value
            if column.length == int(self.at["rows"]):
                history.as_of(rows.time[at])
                yield from self._say(history, channel, column, int(rows.step[at]))
                history.as_of(None)

    def _say(self, history: RunHistory, channel: Channel, column: _Column, found: int) -> Iterator[Finding]:
        loss = history.role("loss")
        gaps = column.others > max(2.0, self.at["missing"] * (column.numbers + column.others))
        if channel is loss or channel is history.role("eval_loss") or column.numbers < self.at["before"] or gaps:
            return
        beside = between(loss, column.step, found + 1, column.segment, finite=False)
        if not len(beside) or not numpy.isfinite(beside).all():
            return
        column.told = self.finding(
            column.step, f"{channel.name} is {_word(column.value)} since step {column.step}, and the loss is finite",
            key=channel.name, found=found, segment=column.segment, confidence=0.6,
            evidence={"rows": column.length, "value": str(column.value)},
        )  # fmt: skip
        yield again(column.told)

    def _never(self, history: RunHistory) -> Iterator[Finding]:
        """Losses of a log of a few rows that are not finite in any of them: one finding."""
        known = {history.role("loss"), history.role("eval_loss")}
        names = [name for name, one in self._columns.items() if one.others + one.length and not one.numbers]
        names = sorted(name for name in names if history.channels[name] not in known)
        if not names or not self.first("never"):
            return
        rows = history.channels[names[0]].rows()
        yield self.finding(
            int(rows.step[0]), f"{' and '.join(names[:2])} {'are' if len(names) > 1 else 'is'} "
            f"{_word(float(rows.value[0]))} in {f'each of {len(rows)} rows' if len(rows) > 1 else 'the only row'}",
            key="never", found=int(rows.step[-1]), segment=int(rows.segment[0]), confidence=0.7,
            evidence={"series": ", ".join(names[:8]), "rows": len(rows), "value": str(float(rows.value[0]))},
            causes=["non-finite values: what is computed from the model became NaN or infinite"],
            remedies=["Look at the rows before these; lower the learning rate; go back to an earlier checkpoint."],
        )  # fmt: skip

    def _norm(self, history: RunHistory) -> Iterator[Finding]:
        norm, loss = history.role("norm"), history.role("loss")
        if norm is None or norm.end < self.at["last"] or norm.end > KEEP or not self.first(norm.name):
            return
        rows = norm.rows()
        if numpy.isfinite(rows.value).any():
            return
        what = _word(float(rows.value[0]))
        yield self.finding(
            int(rows.step[0]), f"The gradient norm is {what} in each of {len(rows)} rows",
            severity="info" if loss is not None else "warning", key="norm", found=norm.last_step,
            segment=int(rows.segment[0]), confidence=0.5, evidence={"rows": len(rows), "value": what},
            causes=["gradients that are not finite", "the norm is not measured, and logged all the same"],
            remedies=["Look at the gradients of one step; log the loss too."],
        )  # fmt: skip

    def _reward(self, history: RunHistory) -> Iterator[Finding]:
        reward = history.role("reward")
        if reward is None or history.role("loss") is not None or reward.end > KEEP or not self.first("reward"):
            return
        rows = reward.rows()
        numbers = int(numpy.isfinite(rows.value).sum())
        last = len(rows) - numbers
        if not numbers or last < self.at["last"] or not numpy.isfinite(rows.value[:numbers]).all():
            return
        step, what = int(rows.step[numbers]), _word(float(rows.value[numbers]))
        yield self.finding(
            step, f"The reward ({reward.name}) is {what} since step {step}, in each of the last {last} rows",
            severity="info", key="reward", found=reward.last_step, segment=int(rows.segment[numbers]), confidence=0.5,
            evidence={"rows": last, "value": what},
            causes=[
                "no episode has ended since, so that there is nothing to take a mean of",
                "the environment's state or the policy's actions became NaN",
            ],
            remedies=["Look at the rewards and the lengths of single episodes, and at the actions, from that step on."],
        )  # fmt: skip

    def _together(self, history: RunHistory) -> Iterator[Finding]:
        """Losses of which none is judged, which are all numbers up to one row and none from there on: one finding."""
        if history.role("loss") is not None or not any(map(history.role, _JUDGES)):
            return
        ended = dict[tuple[int, int], list[str]]()
        for name, one in self._columns.items():
            if one.length > 1 and one.numbers and not one.others and one.told is None:
                ended.setdefault((one.segment, one.step), []).append(name)
        if not ended or not self.first("together"):
            return
        (segment, step), names = max(ended.items(), key=lambda item: (len(item[1]), item[0]))
        norm = history.role("norm")
        beside = norm is not None and not numpy.isfinite(norm.rows(max(norm.end - 2, 0)).value).any()
        if len(names) + beside < _TOGETHER:
            return
        value, third = self._columns[names[0]].value, [*names[2:], "the gradient norm"][0]
        yield self.finding(
            step, f"{', '.join(names[:2])} and {third} are {_word(value)} since step {step}, to the end",
            key="together", found=history.channels[names[0]].last_step, segment=segment, confidence=0.7,
            evidence={"series": ", ".join(names[:8]), "rows": self._columns[names[0]].length, "value": str(value)},
            causes=["non-finite values: what is computed from the model became NaN or infinite"],
            remedies=[f"Look at the batch of step {step}; lower the learning rate; go back to a checkpoint before it."],
        )  # fmt: skip

    def _unnamed(self, history: RunHistory) -> Iterator[Finding]:
        """Series of no known name that end in rows that are not numbers, as `G=nan` of two players: one finding."""
        ended = list[tuple[int, str, int, float]]()
        for name, channel in history.channels.items():
            if channel.end > KEEP or name.startswith(_MACHINE) or history.source_of(name) != name:
                continue
            rows = channel.rows()
            finite = numpy.isfinite(rows.value)
            numbers = int(finite.sum())
            last = int(numpy.argmax(finite[::-1])) if numbers else 0
            gaps = len(rows) - numbers - last
            if last >= self.at["last"] and numbers >= self.at["before"] and gaps <= self.at["missing"] * len(rows):
                first = len(rows) - last
                ended.append((int(rows.step[first]), name, int(rows.segment[first]), float(rows.value[first])))
        if not ended or not self.first("unnamed"):
            return
        step, name, segment, value = min(ended)
        names = [name, *(other for at, other, *_ in sorted(ended) if other != name)]
        yield self.finding(
            step, f"{' and '.join(names[:2])} {'are' if len(names) > 1 else 'is'} {_word(value)} since step {step}",
            key="unnamed", found=history.channels[name].last_step, segment=segment, confidence=0.6,
            evidence={"series": ", ".join(names[:8]), "value": str(value)},
            causes=["non-finite values: what is computed from the model became NaN or infinite"],
            remedies=[f"Look at the batch of step {step}; lower the learning rate; go back to a checkpoint before it."],
        )  # fmt: skip


def _word(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinite"


RULES = (NonFiniteSeries,)
