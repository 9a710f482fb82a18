"""Ranks that read one share of the data, one some steps behind the other.

In:   the batches' fingerprints of all ranks, step by step.
Out:  which rank has a batch that another one had, how many steps before.

Only where the other rank has a batch by then that nobody has had: ranks that exchange their shares from epoch to epoch
come by each other's batches all at once, and data that come again come again for all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

_STEPS = 16  # before this one, that are compared


class BatchesBehind:
    """What the ranks of one process group had in the last steps, on the first of them."""

    def __init__(self) -> None:
        self._last: deque[tuple[int, dict[int, int | None]]] = deque(maxlen=_STEPS)  # step; ranks by fingerprint

    def see(self, step: int, fingerprints: Sequence[int | None], ranks: Sequence[int]) -> list[list[int]]:
        """[rank, the other rank, how many steps it was ahead], of each rank behind another one."""
        known = [(rank, mark) for rank, mark in zip(ranks, fingerprints, strict=True) if mark is not None]
        now: dict[int, int | None] = {}
        for rank, mark in known:
            now[mark] = None if mark in now else rank  # None: of several
        before = {mark: (then, one) for then, marks in self._last for mark, one in marks.items()}
        fresh = {one for mark, one in now.items() if mark not in before}
        self._last.append((step, now))
        found: list[list[int]] = []
        for mark, whose in now.items():
            then, other = before.get(mark, (step, None))
            if whose is not None and other is not None and other in fresh and 0 < step - then <= _STEPS:
                found.append([whose, other, step - then])
        return found
