"""Rows of evaluations in the words of the training's, which say the same step once more.

In:   `step 200  lr = 0.01  loss = 0.29  eval = 0.91` and, in the line ahead of it or behind, every few rows,
      `step 200  loss = 0.34  eval = 0.92`, as a program of two columns prints them.
Out:  `val loss`, `val eval`, where the row says nothing but what the training's says, and no rate.
"""

from __future__ import annotations

from typing import Any

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms

_RATE = expression(r"(?i)(?:.*[^a-z])?(?:lr|learning[_ ]rate)(?:[_ ]\d)?")
_ENOUGH = 3  # rows that decide
_KEPT = 200  # decisions in a file


def evaluations(rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
    """Rows with those of evaluations under names of their own; own: which names these have."""
    known, result = own.setdefault("same_steps", {}), []
    trained = [row for row in rows if row.main and any(map(_RATE.fullmatch, row.names))]
    for row in rows:
        key = "\n".join(row.names)
        if row.main and key not in known and len(known) < _KEPT and len(row.where) >= _ENOUGH:
            known[key] = any(_all_beside(row, other) for other in trained if other is not row)
        if row.main and known.get(key):
            words = tuple(name if name[0] == "_" else f"val {name}" for name in row.names)
            row = row._replace(names=words, main=False)
        result.append(row)
    return result


def _all_beside(row: forms.Raw, other: forms.Raw) -> bool:
    """Whether each of some rows has one of the others in the next line, or the one before, of its counts."""
    if not {*row.names} < {*other.names} or 3 * len(row.where) > 2 * len(other.where):
        return False
    places, same = {int(index): at for at, index in enumerate(other.where)}, 0
    pairs = [(name[0] == "_", column, other.columns[other.names.index(name)])
             for name, column in zip(row.names, row.columns, strict=True)]  # fmt: skip
    for at, index in enumerate(row.where.tolist()):
        near = [places[line] for line in (index - 1, index + 1) if line in places]
        near = [one for one in near if all(mine[at] == his[one] for is_count, mine, his in pairs if is_count)]
        if not near:
            return False
        same += all(mine[at] == his[near[0]] for _, mine, his in pairs)
    return any(is_count for is_count, *_ in pairs) and 2 * same < len(row.where)
