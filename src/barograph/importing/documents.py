"""A JSON document that holds a training: lists of numbers, lists of objects, and what stands beside them.

In:   a parsed document.
Out:  its series as columns, its scalars as configuration.

Known shapes: `{"train_losses": […], "steps": […]}`, `{"history": [{"step": 1, "loss": 2.3}, …]}`, a bare list of
objects, `{"lm loss": {"values": {"1": 10.9, …}}}`, TensorBoard's `[[wall time, step, value], …]`, pairs
`[[step, value], …]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from barograph.importing.axes import ImportAxes, choose, moment, number
from barograph.importing.objects import ObjectRows, flatten
from barograph.importing.source import ImportedPoints, Item

_DEPTH = 4
_NO_AXES = ImportAxes(None, "row", None, None, None, None)


class DocumentColumns(NamedTuple):
    """Series of one length. names n; steps, times m; values m × n."""

    names: tuple[str, ...]
    steps: NDArray[numpy.int64]
    times: NDArray[numpy.int64]
    values: NDArray[numpy.float64]
    x: str


class Document(NamedTuple):
    """What a document holds: columns, lists of objects with where they stand, and scalars."""

    columns: list[DocumentColumns]
    objects: list[tuple[str, list[dict[str, Any]]]]
    scalars: dict[str, Any]

    def __bool__(self) -> bool:
        return bool(self.columns or self.objects)


def understand(document: Any, name: str = "") -> Document:
    """The series and scalars of a document; nothing if there are no series. name: of a list without one."""
    result = Document([], [], {})
    if isinstance(document, list):
        _list(name, document, result, {})
    elif isinstance(document, dict):
        _walk("", document, result, _DEPTH)
    return result


def _walk(prefix: str, section: dict[str, Any], document: Document, depth: int) -> None:
    numbers = {str(name): cells for name, cells in section.items() if _is_numbers(cells)}
    rest: dict[str, list[Any]] = {}
    for name, value in section.items():
        where = f"{prefix}{name}"
        if str(name) in numbers:
            rest[prefix[:-1] if name == "values" and prefix and "steps" in numbers else where] = value
        elif isinstance(value, list):
            _list(where, value, document, {})
        elif isinstance(value, dict):
            if _by_step(value):
                document.columns.append(_stepped(prefix[:-1] if name == "values" and prefix else where, value))
            elif depth:
                _walk(f"{where}/", value, document, depth - 1)
        elif isinstance(value, (bool, int, float, str)):
            document.scalars[where] = value
    if rest:
        document.columns.extend(_columns(rest, numbers))


def _by_step(value: dict[str, Any]) -> bool:
    """Whether it is numbers by their steps: `{"1": 10.9, "2": 9.7}`."""
    return len(value) > 1 and all(
        str(key).isdecimal() and len(str(key)) < 16 and number(cell) is not None for key, cell in value.items()
    )


def _stepped(name: str, value: dict[str, Any]) -> DocumentColumns:
    cells = sorted((int(key), number(cell)) for key, cell in value.items())
    steps = numpy.array([step for step, _ in cells], numpy.int64)
    values = numpy.array([[cell] for _, cell in cells], numpy.float64)
    return DocumentColumns((name,), steps, numpy.zeros(len(cells), numpy.int64), values, "step")


def _is_numbers(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) > 1 and all(number(cell) is not None or cell is None for cell in value)
    )


def _columns(named: dict[str, list[Any]], short: dict[str, list[Any]]) -> Iterator[DocumentColumns]:
    """Lists of numbers of one section; one of them may say the steps of the others of its length."""
    length = {name: len(cells) for name, cells in short.items()}
    for size in sorted(set(length.values())):
        same = [name for name in short if length[name] == size]
        sample = [{name: short[name][row] for name in same} for row in range(min(size, 200))]
        axes = choose(same, sample) if len(same) > 1 else _NO_AXES
        chosen = [
            name for name in named if len(named[name]) == size and _last(name, short) not in (axes.step, axes.time)
        ]
        steps = [number(cell) for cell in short[axes.step]] if axes.step else list(map(float, range(size)))
        x = axes.x
        if any(step is None or step != step // 1 or abs(step) >= 2.0**63 for step in steps):
            steps, x = list(map(float, range(size))), "row"
        times = [moment(cell) for cell in short[axes.time]] if axes.time else [0] * size
        whole = numpy.array(steps, numpy.int64), numpy.array(times, numpy.int64)
        for name in chosen:
            cells = [number(cell) for cell in named[name]]
            rows = [row for row, cell in enumerate(cells) if cell is not None]
            values = numpy.array([[cells[row]] for row in rows], numpy.float64)
            if rows:
                yield DocumentColumns((name,), whole[0][rows], whole[1][rows], values, x)


def _last(name: str, short: dict[str, list[Any]]) -> str:
    """The list's own name, of its name with the sections before it."""
    return next(
        (item for item in sorted(short, key=len, reverse=True) if name == item or name.endswith(f"/{item}")), name
    )


def _list(where: str, value: list[Any], document: Document, _: dict[str, Any]) -> None:
    if not value:
        return
    name = where or "value"
    if all(isinstance(row, dict) for row in value):
        if any(number(cell) is not None for row in value[:50] for cell in flatten(row).values()):
            document.objects.append((where, value))
    elif _is_numbers(value):
        document.columns.extend(_columns({name: value}, {name: value}))
    elif all(isinstance(row, list) and len(row) == len(value[0]) and _is_numbers(row) for row in value):
        table = [[number(cell) for cell in row] for row in value]
        width = len(value[0])
        if width not in (2, 3) or any(cell is None for row in table for cell in row[-2:]):
            return
        steps = [row[-2] for row in table]
        if any(step is None or step != step // 1 or abs(step) >= 2.0**63 for step in steps):
            return
        times = [moment(row[0]) for row in table] if width == 3 else [0] * len(table)
        values = numpy.array([[row[-1]] for row in table], numpy.float64)
        made = numpy.array(steps, numpy.int64), numpy.array(times, numpy.int64)
        document.columns.append(DocumentColumns((name,), *made, values, "step"))


def items(document: Document, where: Path) -> Iterator[Item]:
    """A document's series as items."""
    for columns in document.columns:
        yield ImportedPoints(*columns)
    for prefix, rows in document.objects:
        flat = [flatten(row) for row in rows[:200]]
        axes = choose(dict.fromkeys(name for row in flat for name in row), flat)
        taken = ObjectRows(axes, where)
        lead = "" if len(document.objects) == 1 else f"{prefix}/"
        for line, row in enumerate(rows, 1):
            for item in taken.add(row, line):
                yield _led(item, lead)
        for block in taken.take():
            yield _led(block, lead)


def _led(item: Item, lead: str) -> Item:
    return (
        item._replace(names=tuple(lead + name for name in item.names))
        if lead and isinstance(item, ImportedPoints)
        else item
    )
