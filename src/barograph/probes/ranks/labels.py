"""Ranks whose rows have the same labels in the same order, whatever is done to the examples.

In:   what tells the labels of each rank's batch, step by step.
Out:  groups of ranks that have the same ones, and in how many steps in a row.

Labels that all ranks have in each step, as those that are numbered through, say nothing: only such count that no rank
had in the last steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

_STEPS = 64  # before this one, whose labels are known


class SharedLabels:
    """What the ranks of one process group had in the last steps, on the first of them."""

    def __init__(self) -> None:
        self._last: deque[set[int]] = deque(maxlen=_STEPS)
        self._row: dict[tuple[int, ...], int] = {}  # steps in a row, by the ranks that have the same labels

    def see(self, labels: Sequence[int], ranks: Sequence[int]) -> tuple[list[list[int]], int]:
        """Groups of ranks with the same labels in this step, and the steps in a row of the first one; none where there
        are no such, or where they are not new. labels: of each rank, 0 where they tell nothing."""
        groups: dict[int, list[int]] = {}
        for rank, mark in zip(ranks, labels, strict=True):
            if mark:
                groups.setdefault(mark, []).append(rank)
        if sum(map(len, groups.values())) < 2:
            return [], 0
        shared = {mark: tuple(some) for mark, some in groups.items() if len(some) > 1}
        fresh = {mark: some for mark, some in shared.items() if not any(mark in before for before in self._last)}
        self._last.append(set(groups))
        if shared and not fresh:
            return [], 0  # had before: nothing is said of this step
        self._row = {some: self._row.get(some, 0) + 1 for some in fresh.values()}
        found = sorted(self._row, key=lambda some: -self._row[some])
        return [list(some) for some in found], self._row[found[0]] if found else 0
