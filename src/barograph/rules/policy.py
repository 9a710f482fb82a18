"""A rule that follows a policy's training, in blocks of rows, since single batches of rewards say little.

In:   a series of the training.
Out:  `PolicyRule`, told of each block of 8 rows; `rewarded`, what the reward has come to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy

from barograph.rules.channels import Channel, Seen
from barograph.rules.curve import Cursor, again, between, number
from barograph.rules.finding import Finding
from barograph.rules.rule import Rule

BLOCK = 8


class Block(NamedTuple):
    """Eight rows: their median, spread, lowest and highest, and the steps of the first and the last."""

    level: float
    spread: float
    low: float
    high: float
    step: int
    last: int
    segment: int


def named(seen: Seen, pattern: str) -> Channel | None:
    """The first series whose name matches."""
    return next((seen.channels[name] for name in seen.channels if re.search(pattern, name)), None)


class PolicyRule(Rule):
    """A rule that walks along blocks of rows."""

    family = "rl"
    kind = "rl"

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._cursor = Cursor()
        self._rest: list[tuple[float, int, int]] = []
        self._blocks: list[Block] = []
        self._told: Finding | None = None
        self._seen_channels = -1
        self._channel: Channel | None = None

    def channel(self, seen: Seen) -> Channel | None:
        """What it walks along."""
        raise NotImplementedError

    def examine(self, seen: Seen) -> Iterator[Finding]:
        if self._seen_channels != len(seen.channels):
            self._seen_channels, self._channel = len(seen.channels), self.channel(seen)
        channel = self._channel
        rows = self._cursor.take(channel, seen)
        if rows is None or channel is None:
            return
        if self._cursor.fresh:
            self._rest, self._blocks, self._told = [], [], None
        for at in range(len(rows)):
            value = float(rows.value[at])
            if not math.isfinite(value):
                continue
            self._rest.append((value, int(rows.step[at]), int(rows.segment[at])))
            if len(self._rest) == BLOCK:
                values = sorted(one[0] for one in self._rest)
                level = (values[3] + values[4]) / 2
                spread = 1.4826 * sorted(abs(one - level) for one in values)[4]
                block = Block(
                    level, spread, values[0], values[-1], self._rest[0][1], self._rest[-1][1], self._rest[-1][2]
                )
                self._rest = []
                self._blocks = [*self._blocks[:4], *self._blocks[4:][-59:], block]  # the first four stay
                yield from self.block(seen, self._blocks)

    def block(self, seen: Seen, blocks: list[Block]) -> Iterator[Finding]:
        """A block has come; the last of `blocks`, of which the first four are the run's first."""
        raise NotImplementedError

    def held(self, blocks: list[Block], count: int, bound: float) -> bool:
        """Whether the last `count` blocks all lie above a bound."""
        return len(blocks) >= count and all(one.level > bound for one in blocks[-count:])

    def tell(
        self,
        step: int,
        message: str,
        last: Block,
        severity: str,
        causes: list[str],
        remedies: list[str],
        **evidence: float,
    ) -> Iterator[Finding]:
        """The finding, once; again if it gets worse."""
        order = ("info", "warning", "critical")
        if self._told is not None:
            self._told.last_step = last.last
            if order.index(severity) <= order.index(self._told.severity):
                return
            step = self._told.step
        self._told = self.finding(
            step,
            message,
            severity=severity,
            last_step=last.last,
            segment=last.segment,
            causes=causes,
            remedies=remedies,
            found=self._told.found if self._told is not None else last.last,
            confidence=0.75 if severity != "info" else 0.4,
            evidence={name: number(value) for name, value in evidence.items()},
        )
        yield again(self._told)

    def begin(self, blocks: list[Block], bound: float) -> int:
        """The first step of the last stretch of blocks above a bound."""
        step = blocks[-1].step
        for one in reversed(blocks):
            if one.level <= bound:
                break
            step = one.step
        return step


def rewarded(seen: Seen, step: int, segment: int) -> tuple[float, float, float, float]:
    """Reward up to a step: first level, highest level, last level, spread of single rows."""
    rewards = between(seen.role("reward"), 0, step + 1, segment)
    if len(rewards) < 16:
        return math.nan, math.nan, math.nan, math.nan
    blocks = numpy.median(rewards[: len(rewards) // 8 * 8].reshape(-1, 8), axis=1)
    spread = 1.4826 * float(numpy.median(numpy.abs(numpy.diff(rewards)))) / math.sqrt(2)
    return float(blocks[0]), float(blocks.max()), float(numpy.median(rewards[-8:])), spread
