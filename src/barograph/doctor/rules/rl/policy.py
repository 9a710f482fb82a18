"""A rule that follows a policy's training, in blocks of rows, since single batches of rewards say little.

In:   a series of the training.
Out:  `PolicyRule`, told of each block of 8 rows; `rewarded`, what the reward has come to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy

from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
from barograph.doctor.kernel.curve import again, rounded
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.series import SeriesRule

BLOCK = 8


class RowBlock(NamedTuple):
    """Eight rows: median, spread, lowest and highest; steps of the first, the highest and the last, and the last one's
    time."""

    level: float
    spread: float
    low: float
    high: float
    step: int
    peak: int
    last: int
    segment: int
    time: int


class PolicyRule(SeriesRule):
    """A rule that walks along blocks of rows."""

    family = "rl"
    kind = "rl"

    def reset(self) -> None:
        self._rest: list[tuple[float, int, int, int]] = []
        self._blocks: list[RowBlock] = []
        self._told: Finding | None = None
        self._case = ""

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        for at in range(len(rows)):
            value = float(rows.value[at])
            if not math.isfinite(value) or self.repeats(value):
                continue
            self._rest.append((value, int(rows.step[at]), int(rows.segment[at]), int(rows.time[at])))
            if len(self._rest) == BLOCK:
                values = sorted(item[0] for item in self._rest)
                level = (values[3] + values[4]) / 2
                spread = 1.4826 * sorted(abs(value - level) for value in values)[4]
                peak = max(self._rest, key=lambda item: item[0])[1]
                block = RowBlock(level, spread, values[0], values[-1], self._rest[0][1], peak, *self._rest[-1][1:])
                self._rest = []
                self._blocks = [*self._blocks[:4], *self._blocks[4:][-59:], block]  # the first four stay
                history.as_of(block.time)
                yield from self.block(history, self._blocks)

    def block(self, history: RunHistory, blocks: list[RowBlock]) -> Iterator[Finding]:
        """A block has come; the last of `blocks`, of which the first four are the run's first."""
        raise NotImplementedError

    def repeats(self, value: float) -> bool:
        """Whether a row says nothing new; it is then left out."""
        return False

    def held(self, blocks: list[RowBlock], count: int, bound: float) -> bool:
        """Whether the last `count` blocks all lie above a bound."""
        return len(blocks) >= count and all(block.level > bound for block in blocks[-count:])

    def tell(
        self, history: RunHistory, step: int, last: RowBlock, severity: str, case: str = "all", **evidence: float
    ) -> Iterator[Finding]:
        """The finding, once; again if it gets worse, or is another case."""
        order = ("info", "warning", "critical")
        if self._told is not None:
            self._told.last_step = last.last
            if order.index(severity) <= order.index(self._told.severity) and case == self._case:
                return
            step, severity = self._told.step, max(severity, self._told.severity, key=order.index)
        self._case = case
        self._told = self.say(
            case, history, step, severity=severity, last_step=last.last, segment=last.segment,
            found=self._told.found if self._told is not None else last.last,
            confidence=0.75 if severity != "info" else 0.4, also=evidence,
            evidence={name: rounded(value) for name, value in evidence.items()},
        )  # fmt: skip
        yield again(self._told)

    def begin(self, blocks: list[RowBlock], bound: float) -> int:
        """The first step of the last stretch of blocks above a bound."""
        step = blocks[-1].step
        for block in reversed(blocks):
            if block.level <= bound:
                break
            step = block.step
        return step


def began_with(history: RunHistory, block: RowBlock) -> float:
    """The reward's level of the first two rows of a launch: a small task may be learnt within eight."""
    channel = history.role("reward")
    rows = channel.rows() if channel is not None else None
    here = rows.value[(rows.segment == block.segment) & (rows.time <= block.time)] if rows is not None else ()
    return float(numpy.median(here[:2])) if len(here) > 1 else math.nan


def rewarded(history: RunHistory, block: RowBlock) -> tuple[float, float, float, float]:
    """Reward as known with a block's last row: first level, highest level, last level, spread of single rows."""
    channel = history.role("reward")
    if channel is None:
        return math.nan, math.nan, math.nan, math.nan
    rows = channel.rows()
    here = (rows.segment == block.segment) & (rows.step <= block.last) & (rows.time <= block.time)
    rewards = rows.value[here & numpy.isfinite(rows.value)]
    if len(rewards) < 16:
        return math.nan, math.nan, math.nan, math.nan
    blocks = numpy.median(rewards[: len(rewards) // 8 * 8].reshape(-1, 8), axis=1)
    spread = 1.4826 * float(numpy.median(numpy.abs(numpy.diff(rewards)))) / math.sqrt(2)
    return float(blocks[0]), float(blocks.max()), float(numpy.median(rewards[-8:])), spread
