"""How the lines of a dialect are written: a fixed form, or a beginning and then names with values.

In:   lines that may be rows.
Out:  `Raw` rows: lines of the same names, with the text of each value; and the lines that were none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.core.patterns import expression
from barograph.importing.textlogs import templates

NUMBER = templates.NUMBER
_SCALED = expression(rb"^\s*(" + NUMBER + rb")\s*([a-zA-Z%/]*)\s*$")
LESSONS = 8  # lines of a chunk that may teach a template
KEPT = 12  # templates of a form
_THOUSANDS = expression(rb"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
_DECIMAL = expression(rb"[-+]?\d{1,9},\d{1,20}(?:[eE][-+]?\d{1,3})?")
_COUNTED = expression(r"(?i)tok|sample|param|step|word|frame|count|seen|/s|per_sec|iter|batch|size")
_NAMES = 2000  # whose commas are remembered
_SCALES = {b"k": 1e3, b"K": 1e3, b"M": 1e6, b"B": 1e9, b"G": 1e9, b"T": 1e12}


class Raw(NamedTuple):
    """Rows of the same names. `values`: one column a name, as text (b"": not on that line) or numbers."""

    names: tuple[str, ...]
    where: NDArray[Any]  # index of each row's line, ascending
    starts: list[int]  # where on its line a row begins
    columns: Sequence[Sequence[Any]]  # one a name
    steps: Sequence[Any] | None  # None: the lines say no step
    main: bool  # a step going back means a restart
    x: str


class Form:
    """A line of fixed form, optional parts included; fastest.

    pattern: a group for each of `names`; "step" is the row's step, a name that begins with "_" is dropped.
    """

    def __init__(self, pattern: bytes, names: Sequence[str], *, main: bool = True, x: str = "step") -> None:
        self.pattern = expression(pattern)
        self.names, self.main, self.x = tuple(names), main, x
        self._whole = templates.whole_lines(pattern)

    def take(self, lines: list[bytes], picks: list[int]) -> tuple[list[Raw], list[int]]:
        """The rows among `picks`, and the picks that are none."""
        first, left = _take_whole(self._whole, lines, picks)
        if first is None:
            return self._search(lines, left)
        where, columns = first
        row = self._raw(where, [0] * len(where), columns[1:])
        if not left:
            return [row], left
        rows, left = self._search(lines, left)
        return merge([row, *rows]), left

    def _search(self, lines: list[bytes], picks: list[int]) -> tuple[list[Raw], list[int]]:
        """Rows that begin anywhere on their lines."""
        found: list[Any] = list(map(self.pattern.search, map(lines.__getitem__, picks)))
        left: list[int] = []
        if None in found:
            left = [index for index, match in zip(picks, found, strict=True) if match is None]
            picks = [index for index, match in zip(picks, found, strict=True) if match is not None]
            found = [match for match in found if match is not None]
        if not found:
            return [], left
        starts = [match.start() for match in found]
        return [self._raw(picks, starts, list(zip(*[match.groups(b"") for match in found], strict=True)))], left

    def _raw(self, picks: list[int], starts: list[int], texts: Sequence[Sequence[bytes]]) -> Raw:
        columns = dict(zip(self.names, texts, strict=True))
        steps = columns.pop("step", None)
        names = tuple(name for name in columns if not name.startswith("_"))
        values = [columns[name] for name in names]
        return Raw(names, np.array(picks, np.int64), starts, values, steps, self.main, self.x)


def _take_whole(
    whole: re.Pattern[bytes], lines: list[bytes], picks: list[int]
) -> tuple[tuple[list[int], list[Sequence[bytes]]] | None, list[int]]:
    """Of rows that begin their lines, the lines and a column for each group; and the picks that are none."""
    found = templates.find_all(whole, [lines[index] for index in picks]) if picks else None
    if found is None:
        return None, picks
    columns: list[Sequence[bytes]] = list(zip(*found, strict=True))
    if all(columns[0]):
        return (picks, columns), []
    left = [index for index, letter in zip(picks, columns[0], strict=True) if not letter]
    if len(left) == len(picks):
        return None, picks
    kept = [row for row in found if row[0]]
    where = [index for index, letter in zip(picks, columns[0], strict=True) if letter]
    return (where, list(zip(*kept, strict=True))), left


Parsed = templates.Parsed  # start, step (None: the line says none), names, values, main


class Lines:
    """A line that a function reads: `parse(line)` gives start, step, names, values, main; None if it is not a row.

    Lines of a text that was read before are read by a pattern made from it, a dozen times as fast.
    """

    def __init__(self, parse: Callable[[bytes], Parsed | None], *, x: str = "step") -> None:
        self.parse, self.x = parse, x
        self.templates: list[templates.Template] = []

    def take(self, lines: list[bytes], picks: list[int]) -> tuple[list[Raw], list[int]]:
        rows: list[Raw] = []
        left = picks
        for template in list(self.templates):
            if not left:
                break
            found, left = self.by(template, lines, left)
            rows += found
        none: list[int] = []
        slow: dict[tuple[Any, ...], list[Any]] = {}
        lessons, at = LESSONS, 0
        while at < len(left):
            index = left[at]
            at += 1
            parsed = self.parse(lines[index])
            if parsed is None:
                none.append(index)
                continue
            if lessons and len(left) - at > 2:
                lessons -= 1
                new = templates.learn(lines[index], parsed, self.parse)
                if new is not None:
                    self.templates = [new, *self.templates[: KEPT - 1]]
                    found, left = self.by(new, lines, left[at - 1 :])
                    rows, at = rows + found, 0
                    continue
            start, step, names, values, main = parsed
            slow.setdefault((names, main, step is None), []).append((index, start, step, values))
        rows += [raw(found, names, main, self.x) for (names, main, _), found in slow.items()]
        return merge(rows), none

    def by(self, template: templates.Template, lines: list[bytes], picks: list[int]) -> tuple[list[Raw], list[int]]:
        """The rows that a template reads, and the picks that it doesn't."""
        if not template.start:
            first, left = _take_whole(template.whole, lines, picks)
            if first is None:
                return [], left
            where, columns = first[0], first[1][1:]
            steps = columns[template.step] if template.step >= 0 else None
            values = [columns[pick] for pick in template.picks]
            starts = [0] * len(where)
            row = Raw(template.names, np.array(where, np.int64), starts, values, steps, template.main, self.x)
            return [row], left
        found: list[Any] = list(map(template.match, map(lines.__getitem__, picks)))
        left = []
        if None in found:
            left = [index for index, match in zip(picks, found, strict=True) if match is None]
            picks = [index for index, match in zip(picks, found, strict=True) if match is not None]
            found = [match for match in found if match is not None]
        if not found:
            return [], left
        columns = list(zip(*[match.groups() for match in found], strict=True))
        starts = [match.start(template.start) for match in found]
        steps = columns[template.step] if template.step >= 0 else None
        values = [columns[pick] for pick in template.picks]
        return [Raw(template.names, np.array(picks, np.int64), starts, values, steps, template.main, self.x)], left


def picked(row: Raw, kept: list[int]) -> Raw:
    """Some rows of a block."""
    return row._replace(
        where=row.where[kept],
        starts=[row.starts[at] for at in kept],
        columns=[[column[at] for at in kept] for column in row.columns],
    )


def merge(rows: list[Raw]) -> list[Raw]:
    """Rows of the same names that were read in different ways, as one block by line."""
    groups: dict[tuple[Any, ...], list[Raw]] = {}
    for row in rows:
        groups.setdefault((row.names, row.main, row.steps is None, row.x), []).append(row)
    merged = []
    for same in groups.values():
        if len(same) == 1:
            merged += same
            continue
        where = np.concatenate([row.where for row in same])
        order = np.argsort(where, kind="stable").tolist()
        columns = [[value for row in same for value in row.columns[at]] for at in range(len(same[0].names))]
        starts = [start for row in same for start in row.starts]
        steps = None if same[0].steps is None else [step for row in same if row.steps is not None for step in row.steps]
        merged.append(
            same[0]._replace(
                where=where[order],
                starts=[starts[at] for at in order],
                columns=[[column[at] for at in order] for column in columns],
                steps=None if steps is None else [steps[at] for at in order],
            )
        )
    return merged


def raw(rows: list[Any], names: tuple[str, ...], main: bool, x: str) -> Raw:
    where, starts, steps, values = zip(*rows, strict=True)
    columns = list(zip(*values, strict=True)) if names else []
    return Raw(names, np.array(where, np.int64), list(starts), columns, None if steps[0] is None else steps, main, x)


def pairs(
    anchor: bytes, pair: bytes, *, fixed: Sequence[str] = ("step",), main: bool = True, rename: Any = None
) -> Lines:
    """Lines that begin with `anchor` (groups: `fixed`) and go on with names and values as `pair` finds them.

    pair: two groups, name and value. rename: name → name, or None to leave the value out.
    """
    begins, pairs_of = expression(anchor), expression(pair)
    shown: dict[bytes, str | None] = {}

    def name_of(key: bytes) -> str | None:
        if key not in shown:
            if len(shown) > 10_000:
                shown.clear()
            text = " ".join(key.decode("utf-8", "replace").split())
            shown[key] = rename(text) if rename else text
        return shown[key]

    def parse(line: bytes) -> Parsed | None:
        match = begins.search(line)
        if match is None:
            return None
        names: dict[str, Any] = {}
        step = None
        for known, value in zip(fixed, match.groups(b""), strict=True):
            if known == "step":
                step = value
            elif value and not known.startswith("_"):
                names[known] = value
        for key, value in pairs_of.findall(line, match.end()):
            name = name_of(key)
            if name and name not in names:
                names[name] = value
        return (match.start(), step, tuple(names), tuple(names.values()), main) if names else None

    return Lines(parse)


def number(value: Any) -> float:
    """One value as a float: thousands separators, k M B G T, units behind it. Raises ValueError."""
    try:
        return float(value)
    except (ValueError, OverflowError):
        pass
    match = _SCALED.match(value) if isinstance(value, bytes) else None
    if match is None:
        raise ValueError(f"no number: {value!r}")
    unit = match[2]
    return float(match[1].replace(b",", b"")) * (_SCALES.get(unit[:1], 1.0) if unit in _SCALES else 1.0)


def floats(
    column: Sequence[Any], name: str = "", known: dict[str, bool] | None = None
) -> tuple[NDArray[Any], list[int]]:
    """A column as float64, and the indices of what was no number (their value is 0). known: of names whose numbers
    had commas, whether these were decimal ones."""
    try:
        return np.fromiter(map(float, column), np.float64, len(column)), []
    except (ValueError, TypeError, OverflowError):
        pass
    mark = b""
    try:  # thousands separators, or decimal commas: all at once
        joined = b"\n".join(column)
        if b"," in joined:
            mark = b"." if _is_decimal(column, name, {} if known is None else known) else b""
            return np.fromiter(map(float, joined.replace(b",", mark).split(b"\n")), np.float64, len(column)), []
    except (ValueError, TypeError):
        pass
    values, bad = np.zeros(len(column)), []
    for index, text in enumerate(column):
        try:
            values[index] = number(text.replace(b",", mark) if mark else text)
        except (ValueError, TypeError, OverflowError):
            bad.append(index)
    return values, bad


def _is_decimal(column: Sequence[bytes], name: str, known: dict[str, bool]) -> bool:
    """Whether the commas in a column are decimal ones, as its other numbers or those under the same name before say:
    `0,93` and `12,5` have decimals, and so has `1,234` beside them. "": what was found for any name."""
    texts = [text for text in column if b"," in text]
    certain = not all(map(_THOUSANDS.fullmatch, texts))
    if certain or any(b"." in text for text in column):
        decimal = certain and all(map(_DECIMAL.fullmatch, texts))
    else:
        decimal = known.get(name, known.get("", False) and not _COUNTED.search(name))
    if certain and len(known) < _NAMES:
        known[name], known[""] = decimal, known.get("", False) or decimal
    return decimal


def whole(column: Sequence[Any]) -> NDArray[Any]:
    """Steps as whole numbers; the patterns let through nothing else."""
    return np.array(list(map(int, column)), np.int64)


def split(block: Raw) -> Iterable[Raw]:
    """A block whose optional values are on some lines only, as blocks in which every value is there."""
    mixed: list[NDArray[Any]] = []
    kept: list[int] = []
    for index, column in enumerate(block.columns):
        gaps = 0 if all(column) else column.count(b"")
        if gaps == len(column):
            continue
        kept.append(index)
        if gaps:
            mixed.append(np.fromiter(map(len, column), np.int64, len(column)) > 0)
    if not mixed:
        if len(kept) < len(block.columns):
            names = tuple(block.names[index] for index in kept)
            yield block._replace(names=names, columns=[block.columns[index] for index in kept])
        else:
            yield block
        return
    bits = np.zeros(len(block.where), np.int64)
    for bit, there in enumerate(mixed[:62]):
        bits |= there.astype(np.int64) << bit
    for code in np.unique(bits):
        rows = np.flatnonzero(bits == code).tolist()
        part = [index for index in kept if block.columns[index][rows[0]] != b""]
        yield Raw(
            tuple(block.names[index] for index in part),
            block.where[rows],
            [block.starts[row] for row in rows],
            [[block.columns[index][row] for row in rows] for index in part],
            None if block.steps is None else [block.steps[row] for row in rows],
            block.main,
            block.x,
        )
