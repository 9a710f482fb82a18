"""Steps that begin anew in each epoch, where a row that says the epoch alone stands between two of them.

In:   rows of the plain reader with their counts: `step 20`, `step 40`, `eval at epoch 1: ...`, `step 20`, `step 40`.
Out:  which rows say that the steps below them begin anew.

A launch that goes on from an earlier one has its steps go back too: it begins at no first step, or an epoch comes
again.
"""

from __future__ import annotations

import itertools
from typing import Any

from barograph.importing.textlogs import forms, tallies


def begins(
    order: list[tuple[int, int, int]], rows: list[forms.Raw], counts: list[Any], values: list[frozenset[str]]
) -> str:
    """Whether steps begin anew below each row that says the next epoch alone, and no heading says one: "training" where
    these are its means, "held out" where evaluations alone say epochs; empty where they don't."""
    if not any("_epoch" in columns for columns in counts):
        return ""
    groups, epochs = [list[int]()], list[int]()
    said_alone = {row.main for row, columns in zip(rows, counts, strict=True) if columns.keys() == {"_epoch"}}
    for _, number, at in order:
        count = {name: column[at] for name, column in counts[number].items() if column[at] != b""}
        said = count.keys() & {"_step", "_batch", "_epoch"}
        if not values[number] and said:
            return ""
        if said == {"_step"} and rows[number].main:
            groups[-1].append(tallies.whole(count["_step"]))
        elif said == {"_epoch"} and rows[number].main is (True in said_alone):
            epochs.append(tallies.whole(count["_epoch"]))
            groups.append([])
        elif said and rows[number].main:
            return ""
    steps = [group for group in groups if group]
    rising = all(early <= late for early, late in itertools.pairwise(epochs))
    rising &= all(early < late for one in steps for early, late in itertools.pairwise(one))
    if len(steps) < 2 or len(set(epochs)) < len(steps) - 1 or not rising:
        return ""
    first, *later = steps  # of which the first may be a file's that begins in the middle of an epoch
    begins = {one[0] for one in later}
    if len(epochs) < 2 or len(begins) > 1 or not (first[0] in begins or (first[0] > min(begins) and len(later[0]) > 1)):
        return ""
    gap = later[0][1] - later[0][0] if len(later[0]) > 1 else first[0]
    return ("training" if True in said_alone else "held out") if min(begins) <= max(gap, 1) else ""
