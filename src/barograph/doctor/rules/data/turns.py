"""Whether classes come in turn: how often one stays from batch to batch, and comes back after an epoch.

In:   looks at batches: a step, and the class of most of its rows, NaN where it has none.
Out:  counts, and how likely they are by chance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

_SHORTEST = 8  # steps of an epoch
_ONES = 1e-4  # of chance, that all classes are those of an epoch before


def stays(looks: Sequence[tuple[int, float]]) -> tuple[int, int]:
    """How many looks have the class of the step before, and of how many that is known."""
    pairs = [top == other for (before, other), (step, top) in pairwise(looks) if before == step - 1]
    return sum(pairs), len(pairs)


def followed(looks: Sequence[tuple[int, float]]) -> float:
    """How often a class would follow itself by chance: of looks that are not next to another."""
    steps = {step for step, _ in looks}
    counts = Counter(top for step, top in looks if top == top and step - 1 not in steps)
    return sum((count / counts.total()) ** 2 for count in counts.values())


def at_least(same: int, pairs: int, chance: float) -> float:
    """How likely it is that this many pairs are of one class, or more."""
    return sum(math.comb(pairs, at) * chance**at * (1 - chance) ** (pairs - at) for at in range(same, pairs + 1))


def comes_back(looks: Sequence[tuple[int, float]], drawn: float) -> int:
    """After how many steps each class comes again: all looks whose place in such an epoch was looked at before have the
    class that it had there, and that is not by chance, for any of the epochs that may be. 0 where none is so.
    drawn: how likely one of them is by chance."""
    whole = [(step, top) for step, top in looks if top == top]
    longest = (whole[-1][0] - whole[0][0]) // 2 if whole else 0
    for period in range(_SHORTEST, longest + 1):
        there: dict[int, float] = {}
        for step, top in whole:
            if there.setdefault(step % period, top) != top:
                break
        else:
            if drawn ** (len(whole) - len(there)) * (longest - _SHORTEST + 1) <= _ONES:
                return period
    return 0
