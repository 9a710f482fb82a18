"""Rows as numbers, and lines that a person would take for rows.

In:   rows of a dialect.
Out:  `Block`s, ascending by line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.core.patterns import expression

# What a person would take for a row: a step and a loss, each with a number. Programs' text and settings are none.
ROW = expression(
    rb"(?i)(?<![a-z])(?:steps?|iter(?:ation)?s?|updates?|epochs?)[\s:=#\[(]{0,4}\d"
    rb"[^\n]{0,400}?(?:loss|nll|perplexity)[^\n\d]{1,20}?(?<![a-z\d])(?:[-+]?\d|nan|-?inf)"
)
LOSS = expression(r"(?i)loss|nll|perplexity")
NOT_A_ROW = expression(rb"""^\s*(?:[#"'{<]|def |class |if |elif |for |while |print|return|assert)|[{}]|==|\+=|\w\(""")


class Block:
    """Rows of the same names as numbers, ascending by line."""

    __slots__ = ("main", "names", "reader", "starts", "steps", "times", "values", "where", "x")
    reader: Any  # who has read them

    def __init__(
        self, names: tuple[str, ...], where: Any, starts: Any, steps: Any, values: Any, main: bool, x: str
    ) -> None:
        self.names, self.where, self.starts, self.values, self.main, self.x = names, where, starts, values, main, x
        self.steps: NDArray[Any] | None = steps
        self.times: NDArray[Any] | None = None

    def part(self, keep: Any) -> Block:
        steps = None if self.steps is None else self.steps[keep]
        block = Block(self.names, self.where[keep], self.starts[keep], steps, self.values[keep], self.main, self.x)
        block.times = None if self.times is None else self.times[keep]
        if hasattr(self, "reader"):
            block.reader = self.reader
        return block

    def places(self) -> Iterator[tuple[int, int]]:
        return zip(self.where.tolist(), self.starts.tolist(), strict=True)


def ordered(blocks: list[Block]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Lines and steps of several blocks, by line."""
    if len(blocks) == 1 and blocks[0].steps is not None:
        return blocks[0].where, blocks[0].steps
    where = np.concatenate([block.where for block in blocks])
    steps = np.concatenate([block.steps for block in blocks if block.steps is not None])
    order = np.argsort(where, kind="stable")
    return where[order], steps[order]


_OF_EPOCH = expression(rb"(?i)\bepoch\W{0,3}\d")
_OF_PLAN = expression(rb"(?i)\b(?:step|iter|iteration)[ :=\[]{1,3}0*(\d{1,15}) ?/ {0,9}0*(\d{1,15})\b")


def planned_steps(lines: list[bytes], block: Block) -> int | None:
    """The planned steps, where a block's rows say them behind their own: `step 01234/05000`, `iteration 100/ 5000`."""
    if not block.main or block.steps is None:
        return None
    plans = set()
    for at in (0, -1):
        line = lines[block.where[at]]
        match = _OF_PLAN.search(line)
        # after an epoch's number the steps may be those of the epoch
        if (
            match is None
            or _OF_EPOCH.search(line, 0, match.start())
            or not int(match[1]) == int(block.steps[at]) <= int(match[2])
        ):
            return None
        plans.add(int(match[2]))
    return plans.pop() if len(plans) == 1 else None
