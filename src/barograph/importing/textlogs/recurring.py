"""Rows in no known words: lines that come again with the same words and other numbers.

In:   lines that no other dialect took.
Out:  of lines with the same words, their numbers under the words beside them; what counts is a number that a word for
      a step, an epoch or a batch stands beside, else the number that begins the lines, if it rises.

A file is claimed by such lines only if a word says what counts, or a number that rises begins them and their names
are those of data (`train`, `valid`) or of a loss. Beside rows of other dialects, they are read if they are about data
held out or have a known measure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from barograph.core import roles
from barograph.importing.textlogs import chunks, forms, plain_lines, templates
from barograph.importing.textlogs.patterns import expression
from barograph.importing.textlogs.plain import Plain

_ALIKE = 3  # lines that make a template
_BEGINS = 24  # bytes of a line without its numbers that are compared first
_NUMERIC = b"0123456789.,+- \t"
_TRIED = 24  # lines of which none is a row: those alike are none either
_WIDEST = 1000  # bytes of a line
_MOST = 32  # numbers of a line that are looked at
_KEPT = 200  # kinds of lines that are remembered
_FIRST = 2  # numbers before which all words of the lines must be the same
_DIGITS = expression(rb"\d\D{1,400}\d")
_BLANKS = expression(rb"\s{1,1000}")
_WORDS = expression(rb"[A-Za-z_][\w./@%'-]{0,40}(?: [A-Za-z_][\w./@%'-]{0,40}){0,6}")
_END = expression(
    rb"[\s:=~\"'|>-]{0,40}(?:(?<![A-Za-z])(?:is|was|of|at)\s{1,8})?[\s:=~\"'|>-]{0,40}$"
)  # what stands between a name and its number
_WORD = expression(rb"[A-Za-z]{2}|[\x80-\xff]")
_QUOTES = expression(rb"'s(?= )|['\"`]")
_OF_COUNT = expression(
    rb"\b(?:for|at|after|in|of|on) (?:mini-?batch|batch|step|iteration|epoch|update|episode|round|game)"
    rb"(?:es|s)?\s{0,8}$"
)
_SIDE = expression(rb"[,;|()\[\]{}\t]|\s{2,}|:\s|%\s")  # between a number and the next name
_UNIT = expression(rb"\s?(?:ms|us|s|sec(?:ond)?s?|min(?:ute)?s?|h(?:our)?s?|[KMG]i?B|GB|it/s|s/it)(?![A-Za-z])")
_NO_MEASURE = re.compile(
    r"(?i)(?:.*[^a-z])?(?:time|timing|took|elapsed|eta|remaining|total|seconds?|sec|duration|memory|mem|gpu|rank|pid|"
    r"seed|line|size|speed|port|best|saved?|saving|patience|over|bytes|version|v)"
)
_OF_DATA = re.compile(
    r"(?i)(?:.*[^a-z])?(?:train(?:ing)?|learn|val(?:id(?:ation)?)?|eval(?:uat\w+)?|test|dev)(?:[^a-z].*)?"
)
_GAN = re.compile(r"[DG](?:_[A-Za-z0-9]{1,8}){0,2}")
_COUNTED = (
    ("_step", plain_lines.STEP),
    ("_batch", plain_lines.BATCH),
    ("_epoch", plain_lines.EPOCH),
)


Known = dict[str, list[str]]  # how lines begin → what their numbers are called


class Recurring(forms.Lines):
    """Lines that are alike, as a dialect's form."""

    def __init__(self) -> None:
        super().__init__(lambda line: None)

    def take(
        self, lines: list[bytes], picks: list[int], known: Known | None = None
    ) -> tuple[list[forms.Raw], list[int]]:
        """known: lines that were rows before, to which new ones are added: a single line more is a row too."""
        known = {} if known is None else known
        alike: dict[bytes, list[int]] = {}  # by what is left without numbers: quickly said, and nearly right
        for index in picks:
            alike.setdefault(lines[index].translate(None, _NUMERIC)[:_BEGINS], []).append(index)
        rows: list[forms.Raw] = []
        for found in alike.values():
            if (known or len(found) >= _ALIKE) and _read(lines, found[:_TRIED], known):
                rows += _read(lines, found, known)
        taken = {index for row in rows for index in row.where.tolist()}
        return rows, [index for index in picks if index not in taken]


def _read(lines: list[bytes], picks: list[int], known: Known) -> list[forms.Raw]:
    """The rows among lines: of those whose words are the same up to the second number."""
    groups: dict[tuple[bytes, ...], list[tuple[int, list[bytes]]]] = {}
    for index in picks:
        parts = templates.TOKEN.split(lines[index], _MOST)
        if len(parts) < 5:  # two numbers: one counts, one is counted
            continue
        key = tuple(_BLANKS.sub(b" ", part) for part in parts[: 2 * _FIRST : 2])
        groups.setdefault(key, []).append((index, parts))
    rows: list[forms.Raw] = []
    for key, group in groups.items():
        word = b"\n".join(key).decode("latin-1")
        names = known.get(word) or (_of_lines(lines, group) if len(group) >= _ALIKE else None)
        if names is not None:
            if len(known) < _KEPT:
                known[word] = names
            rows += _rows(group, names)
    return rows


def _of_lines(lines: list[bytes], group: list[tuple[int, list[bytes]]]) -> list[str] | None:
    """What the numbers of lines that begin alike are called; None for other lines."""
    words = _common([parts for _, parts in group])
    numbers = [[parts[2 * at + 1] for _, parts in group] for at in range(len(words))]
    return _names(lines[group[0][0]], group[0][1], words, numbers)


def _rows(group: list[tuple[int, list[bytes]]], names: list[str]) -> Iterator[forms.Raw]:
    """The rows of lines that have as many numbers, whole ones where they count."""
    counts = [2 * at + 1 for at, name in enumerate(names) if name[:1] == "_"]
    group = [
        (index, parts)
        for index, parts in group
        if len(parts) // 2 >= len(names) and all(parts[at].isdigit() for at in counts)
    ]
    if group:
        kept = [at for at, name in enumerate(names) if name]
        yield forms.Raw(
            tuple(names[at] for at in kept),
            np.array([index for index, _ in group], np.int64),
            [0] * len(group),
            [[parts[2 * at + 1] for _, parts in group] for at in kept],
            None,
            True,
            "step",
        )


def _common(group: list[list[bytes]]) -> tuple[bytes, ...]:
    """The words before the numbers, as far as they are the same on all lines."""
    common: list[bytes] = []
    for at in range(min(len(parts) for parts in group) // 2):
        words = {_BLANKS.sub(b" ", parts[2 * at]) for parts in group}
        if len(words) > 1:
            break
        common.append(group[0][2 * at])
    return tuple(common)


def _names(line: bytes, parts: list[bytes], words: tuple[bytes, ...], numbers: list[list[bytes]]) -> list[str] | None:
    """What the numbers of such lines are called: "" for one that is left out, a name with `_` for one that counts."""
    places = list(itertools.accumulate(map(len, parts), initial=0))
    spans = [(places[2 * at + 1], places[2 * at + 2]) for at in range(len(words))]
    names = [_name(words, at) for at in range(len(words))]
    counts: dict[int, str] = {}
    for count, pattern in _COUNTED:
        found = pattern.search(line)
        span = found.span("count") if found else None
        if span in spans and spans.index(span) not in counts and count not in counts.values():
            counts[spans.index(span)] = count
    counts = {at: count for at, count in counts.items() if _whole(numbers[at])}
    said = bool(counts)
    found = plain_lines.ROUND.search(line) if not said else None
    if found and found.span("count") in spans and _rises(numbers[spans.index(found.span("count"))]):
        counts[spans.index(found.span("count"))] = "_step"
    elif not said and _rises(numbers[0]) and not _WORD.search(words[0]):
        counts[0] = "_step"
    if not counts or not any(len(set(numbers[at])) > 1 for at in counts):
        return None
    if not said and (plain_lines.ITEM.match(line) or plain_lines.MONEY.search(line)):
        return None
    values: dict[int, str] = {}
    phases = plain_lines.phases_of(list(plain_lines.PHASE.finditer(line)))
    for at, name in enumerate(names):
        phase = plain_lines.phase_at(phases, spans[at][0], len(phases) == 1)
        name = f"{phase} {name}" if phase and name and not _OF_DATA.fullmatch(name) else name
        if at in counts or not _named(name) or name in values.values() or _NO_MEASURE.fullmatch(name):
            continue
        behind = parts[2 * at + 2] if 2 * at + 2 < len(parts) else b""
        if _UNIT.match(behind) or not any(map(_is_measured, numbers[at])):
            continue
        values[at] = name
    gan = {name for name in values.values() if _GAN.fullmatch(name)}
    if {name[0] for name in gan} == {"D", "G"}:  # of a generator and a discriminator: their losses
        values = {at: f"{name}_loss" if name in gan else name for at, name in values.items()}
    known = any(map(roles.may_play, values.values()))
    held_out = any(map(_OF_DATA.fullmatch, values.values()))
    if not values or not (said or known or held_out):
        return None
    return [counts.get(at) or values.get(at, "") for at in range(len(words))]


def _name(words: tuple[bytes, ...], at: int) -> str:
    """The words beside a number: right before it, else those before the number before it."""
    for place in range(at, max(at - 3, -1), -1):
        text = _QUOTES.sub(b"", words[place])
        text = _OF_COUNT.sub(b" ", text) if place < at else text
        end = _END.search(text)
        pieces = _SIDE.split(text[: end.start()] if end else text)
        found = _WORDS.findall(pieces[-1]) if pieces else []
        if found:
            return str(found[-1].decode("utf-8", "replace")).strip(" .'-")
        if _BLANKS.sub(b"", text) and not end:
            return ""
    return ""


def _named(name: str) -> bool:
    return sum(map(str.isalpha, name)) > 0


def _whole(column: list[bytes]) -> bool:
    return all(text.isdigit() for text in column)


def _rises(column: list[bytes]) -> bool:
    return _whole(column) and all(int(early) < int(late) for early, late in itertools.pairwise(column))


def _is_measured(text: bytes) -> bool:
    """Whether a number was measured, and not counted."""
    return b"." in text or b"e" in text.lower() or text.lower().lstrip(b"+-") in (b"nan", b"inf", b"infinity")


class Repeated(Plain):
    kind = "recurring"
    about = "lines that come again with the same words and other numbers"
    shapes = (Recurring(),)
    last_resort = False
    of_the_rest = True

    def candidates(self, lines: list[bytes]) -> list[int]:
        if not any(lines):
            return []
        return [index for index, line in enumerate(lines) if line and len(line) <= _WIDEST and _DIGITS.search(line)]

    def rows_of(self, lines: list[bytes], picks: list[int], own: dict[str, Any]) -> tuple[list[forms.Raw], list[int]]:
        return self.shapes[0].take(lines, picks, own.setdefault("alike", {}))

    def rows_in(self, text: bytes) -> tuple[int, int]:
        lines = chunks.clean(text).replace(b"\r", b"\n").split(b"\n")
        rows, _ = self.shapes[0].take(lines, self.candidates(lines))
        count = sum(len(row.where) for row in rows)
        return count, count

    def prepare(self, text: bytes, own: dict[str, Any]) -> bytes:
        return text

    def place(self, lines: list[bytes], rows: list[forms.Raw], own: dict[str, Any], ahead: bytes) -> list[forms.Raw]:
        if own.get("second"):
            rows = [row for row in rows if any(roles.may_play(name) or _OF_DATA.fullmatch(name) for name in row.names)]
        return super().place(lines, rows, own, ahead)


SOURCE = Repeated()
