"""Rows of a run that one process makes and reads, kept in its memory: those of a log that a doctor looks at.

In:   the folder of a run's parts, blocks of rows.
Out:  the same blocks, for looks at the run in this process; other processes see a run without these rows.

Writing them as a part and reading that again takes longer than all else that is done with a log of 1 MB.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barograph.store.columns import Block, HistogramsBlock, PointsBlock

MOST = 4_000_000  # numbers held for all runs together, some 64 MB


class HeldRows(NamedTuple):
    """What one commit brought. header: as a part says what it holds (`write.ImportWriter.commit`). points, histograms:
    of each name its blocks, in the order in which they came.
    """

    header: Mapping[str, Any]
    points: dict[str, list[PointsBlock]]
    histograms: dict[str, list[HistogramsBlock]]
    numbers: int


_held: dict[str, list[HeldRows]] = {}
_room = {"used": 0}  # numbers


def hold(folder: Path, blocks: Sequence[Block], header: Mapping[str, Any], numbers: int) -> bool:
    """Keep these rows; False where that would be too many, and nothing is kept."""
    if _room["used"] + numbers > MOST:
        return False
    _room["used"] += numbers
    points: dict[str, list[PointsBlock]] = {}
    histograms: dict[str, list[HistogramsBlock]] = {}
    for block in blocks:
        if isinstance(block, PointsBlock):
            for name in block.keys.names:
                points.setdefault(name, []).append(block)
        else:
            for name in dict.fromkeys(block.names):
                histograms.setdefault(name, []).append(block)
    _held.setdefault(os.path.realpath(folder), []).append(HeldRows(header, points, histograms, numbers))
    return True


def held(folder: Path) -> Sequence[HeldRows]:
    """What is kept of a folder of parts."""
    return _held.get(os.path.realpath(folder), ()) if _held else ()


def let_go(root: Path) -> None:
    """Forget what is kept of runs below a folder."""
    below = os.path.join(os.path.realpath(root), "")
    for folder in [folder for folder in _held if folder.startswith(below)]:
        _room["used"] -= sum(rows.numbers for rows in _held.pop(folder))
