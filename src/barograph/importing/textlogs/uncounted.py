"""Rows that say no step, or an epoch that several say: they are numbered."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from barograph.core.patterns import expression
from barograph.importing.textlogs import counting, forms

NUMBERED = 5  # rows without a step that are numbered
OWN_HEADING = 0.6  # of rows without a step: that many have a line of their own above them that says one
_OF_BAR = frozenset(("_batch", "_batches", "_aside"))
REWARD = expression(r"(?i)(?<![a-z])(?:rewards?|returns?)(?![a-z])")
_KINDS = 200  # of rows that are remembered


def many_an_epoch(rows: list[forms.Raw], own: dict[str, Any]) -> bool:
    """Whether rows that say an epoch alone come several times an epoch."""
    said = [row.columns[row.names.index("_epoch")] for row in rows if counts_of(row) == ["_epoch"]]
    total = sum(map(len, said))
    if "many" not in own and total >= 2 * NUMBERED:
        own["many"] = total >= NUMBERED * sum(len(set(epochs)) for epochs in said)
    if own.get("many"):
        often = own.setdefault("often", [])
        new = ["\n".join(row.names) for row in rows if counts_of(row) == ["_epoch"] and _comes_again(row)]
        often += [key for key in dict.fromkeys(new) if key not in often][: _KINDS - len(often)]
    return bool(own.get("many"))


def _comes_again(row: forms.Raw) -> bool:
    """Whether rows say an epoch more than once."""
    epochs = row.columns[row.names.index("_epoch")]
    return len(set(epochs)) < len(epochs)


def numbered(row: forms.Raw, own: dict[str, Any], alone: bool = False, anew: Sequence[int] = ()) -> list[forms.Raw]:
    """Rows without a step: 1, 2, 3. anew: the lines behind which they begin anew. alone: no line counts anything; then
    two are enough of which one says a loss of NaN (a single one may be what stands there before the first)."""
    key, numbers = "\n".join(row.names), own["numbers"]
    least = counting.ENOUGH if key in own.get("short", ()) else NUMBERED
    least = 2 if alone and says_nan(row) else least
    if own.get("steps") or (numbers.get(key, 0) == 0 and len(row.where) < least):
        return []
    edges = [0, *np.searchsorted(row.where, anew).tolist(), len(row.where)]
    steps = list[int]()
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        before = 0 if number else numbers.get(key, 0)
        steps += range(before + 1, before + 1 + high - low)
        numbers[key] = before + high - low
    return [row._replace(steps=steps, x="row")]


def says_nan(row: forms.Raw) -> bool:
    """Whether a loss or a reward is not a number."""
    losses = [
        column
        for name, column in zip(row.names, row.columns, strict=True)
        if name.lower().endswith("loss") or REWARD.search(name)
    ]
    return any(isinstance(text, bytes) and text.lower().lstrip(b"-+") == b"nan" for text in itertools.chain(*losses))


def without_count(row: forms.Raw, own: dict[str, Any], many: bool) -> forms.Raw:
    """Rows that say an epoch, and perhaps a percentage of it: without it where several say the same one."""
    same = counts_of(row) == ["_epoch"]
    if "_share" not in row.names and not same:
        return row
    epochs = row.columns[row.names.index("_epoch")]
    short, key = own.setdefault("short", []), "\n".join(row.names)
    if len(epochs) >= counting.ENOUGH and len(set(epochs)) == 1 and len(short) < 100:
        # an epoch's rows and no other's
        short += [key] if key not in short and _are_apart(row) else []
    again = (many and key in own.get("often", ())) or key in short
    if "_share" not in row.names and not again:
        return row
    again |= len(set(epochs)) < OWN_HEADING * len(epochs) and len(epochs) >= NUMBERED
    left = [at for at, name in enumerate(row.names) if name != "_share" and not (again and name == "_epoch")]
    row = row._replace(names=tuple(row.names[at] for at in left), columns=[row.columns[at] for at in left])
    if again:
        short += ["\n".join(row.names)] if key in short else []
        own.setdefault("numbers", {}).setdefault("\n".join(row.names), 0)
    return row


def _are_apart(row: forms.Raw) -> bool:
    """Whether rows of one epoch don't repeat one another: no two are alike, or some more often than others."""
    often = collections.Counter(zip(*row.columns, strict=True)).values()
    return max(often) == 1 or (len(row.where) >= NUMBERED and len(set(often)) > 1)


def of_epochs(rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
    """Rows of evaluations without what their bars count, where nothing says a step of the training and lines say
    epochs: they are those of the epoch."""
    names = [name for row in rows for name in row.names if row.main or "_aside" not in row.names]
    if "_epoch" not in names or own.get("steps") or "now" in own or {"_step", "_batch"} & {*names}:
        return rows
    return [_without(row, _OF_BAR) if "_aside" in row.names and "_epoch" not in row.names else row for row in rows]


def _without(row: forms.Raw, names: frozenset[str]) -> forms.Raw:
    kept = [at for at, name in enumerate(row.names) if name not in names]
    return row._replace(names=tuple(row.names[at] for at in kept), columns=[row.columns[at] for at in kept])


def counts_of(row: forms.Raw) -> list[str]:
    """What a row with values says of its place; [] for a heading."""
    counts = [name for name in row.names if name[0] == "_"]
    return counts if len(counts) < len(row.names) else []
