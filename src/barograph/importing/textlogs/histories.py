"""Whole histories of a training, printed at its end as lists of numbers.

In:   `val_loss: [0.6113, 0.5214, …]`; `{'loss': [0.6931, …], 'val_loss': [0.7012, …]}` on one line, or with a number on
      each, as Keras' `history.history` is shown.
Out:  the lists that stand next to each other as rows in the place of the first, numbered 1, 2, 3; x = "epoch" where one
      of them is about data held out.

A file is claimed by lists only where others have read nothing but strays in it, and if one of the lists is a loss.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np

from barograph.core import roles
from barograph.core.patterns import expression
from barograph.importing.textlogs import engine, forms, tallies
from barograph.importing.textlogs.keras_text import ALIASES

_LEAST = 4  # values of a history
_FEW, _DIGITS = 8, 2.5  # fewer values may be typed by hand, unless they have as many decimals
_WIDEST = 1 << 20  # bytes of a line
_FAR = 1 << 16  # bytes of a list over several lines
_PARTS = 8  # lines with lists of the same name and length, and of few values: parts of a step's loss
_NAME = expression(
    rb"(?:['\"]([A-Za-z][\w ./@-]{0,60})['\"]\]?|(?<![\w.])([A-Za-z][\w./@-]{0,60}(?: [A-Za-z][\w./@-]{0,30}){0,4}))"
    rb"\s{0,4}(?:[:=]|\b(?:is|are)\b)?\s{0,4}(?:(?:np|torch|tf)?\.?(?:array|tensor|Tensor)\()?$"
)
_OF_LIST = expression(  # behind a series' own name
    r"(?i)(?:[_ ]?(?:history|hist|list|lst|curve|log|values?|vals?|array|arr|record|track)|"
    r"[_ ](?:per|each|by|over|of all|in all)[_ ](?:the[_ ])?epochs?)+$"
)
_NO_HISTORY = expression(
    r"(?i)(?:.*[^a-z])?(?:weights?|coefs?|coefficients?|lambdas?|class(?:es)?|folds?|layers?|heads?|clients?|seeds?|"
    r"trials?|models?|tasks?|bins?|best|final|scales?|cv|cross_val\w*|top|thresholds?|expected|target|types?|names?|"
    r"samples?|ranks?|shape|parts?|components?|per[_ ](?!epoch).*)(?:[^a-z].*)?"
)
_PLAIN = b"0123456789.,+-eE \t\r\nnaifNI"  # of lists of numbers
_OPENS = expression(rb"\{\s{0,8}['\"][A-Za-z][\w ./@-]{0,60}['\"]\s?:\s?\[[\s\d.-]")  # a dictionary of lists
_OBJECT = expression(rb"(?:\w{1,20}\.)?(?:tensor|float\d{0,3}|array)\(([^()\[\]\n]{1,40}?)(?:, \w[^()\n]{0,80})?\)")


def on_one_line(text: bytes) -> bytes:
    """A text with as many lines in which each list of numbers is on one."""
    pieces, done, owed = list[bytes](), 0, 0
    at, close = text.find(b"["), -1
    while at >= 0:
        following = text.find(b"[", at + 1)
        close = text.find(b"]", at) if close < at else close
        if close < 0:
            break
        alone = close - at < _FAR and not 0 <= following < close
        if alone and (breaks := text.count(b"\n", at, close)) and _is_list(text[at:close]):
            pieces += [_with_breaks(text[done:at], owed), text[at:close].replace(b"\n", b" ")]
            owed = (0 if b"\n" in text[done:at] else owed) + breaks
            done = close
        at = following
    rest = _with_breaks(text[done:], owed)
    return b"".join([*pieces, rest, b"" if b"\n" in rest else b"\n" * owed])


def _with_breaks(text: bytes, owed: int) -> bytes:
    """A text with the breaks of lines that were taken out before it behind its first one."""
    return text.replace(b"\n", b"\n" * (1 + owed), 1) if owed else text


def _is_list(text: bytes) -> bool:
    bare = _OBJECT.sub(rb"\1", text) if b"(" in text else text
    return b"." in text and not bare.lstrip(b"[").translate(None, _PLAIN)


def unfinished(text: bytes) -> int:
    """How many bytes at the end of whole lines belong to a list that goes on, or a dictionary of lists."""
    at = text.rfind(b"{")
    if at >= 0 and len(text) - at <= _FAR and _OPENS.match(text, at) and text.find(b"}", at) < 0:
        return len(text) - (text.rfind(b"\n", 0, at) + 1)
    at = text.rfind(b"[")
    if at < 0 or text.find(b"]", at) >= 0 or len(text) - at > _FAR or not _is_list(text[at:]):
        return 0
    return len(text) - (text.rfind(b"\n", 0, at) + 1)


def _lists(line: bytes) -> list[tuple[str, list[bytes]]]:
    """The lists of numbers on a line, with their names."""
    found: list[tuple[str, list[bytes]]] = []
    at, begin, close = line.find(b"["), 0, -1
    while at >= 0:
        following = line.find(b"[", at + 1)
        close = line.find(b"]", at) if close < at else close
        if close < 0:
            break
        values = [] if 0 <= following < close else _values(line[at + 1 : close])
        named = _NAME.search(line, max(begin, at - 160), at) if values else None
        if named:
            begin = close + 1
            name = (named[1] or named[2]).decode("utf-8", "replace")
            found.append((_OF_LIST.sub("", name).strip(), values))
        at = following
    return found


def _values(text: bytes) -> list[bytes]:
    """The numbers of a list; [] for a list of anything else."""
    text = _OBJECT.sub(rb"\1", text) if b"(" in text else text
    if b"." not in text or text.translate(None, _PLAIN):
        return []
    values = text.replace(b",", b" ").split()
    try:
        list(map(float, values))
    except ValueError:
        return []
    return values if len(values) >= _LEAST else []


def _is_measured(values: list[bytes]) -> bool:
    """Whether numbers were measured, and not typed as an example."""
    decimals = [len(value.partition(b".")[2]) for value in values]
    return len(set(values)) > 1 and any(decimals) and (len(values) >= _FEW or sum(decimals) >= _DIGITS * len(values))


class Histories(forms.Lines):
    """Lists that stand next to each other, as a dialect's form."""

    def __init__(self) -> None:
        super().__init__(lambda line: None)

    def take(self, lines: list[bytes], picks: list[int]) -> tuple[list[forms.Raw], list[int]]:
        groups: list[tuple[list[int], dict[str, list[bytes]]]] = []
        behind = -1  # the line behind the last group's
        for index in picks:
            line = lines[index]
            found = [] if len(line) < 4000 and _says_count(line) else _lists(line)
            if not found:
                continue
            names = {name for name, _ in found}
            if groups and index <= behind and names.isdisjoint(groups[-1][1]):
                groups[-1][0].append(index)
                groups[-1][1].update(found)
            else:
                groups.append(([index], dict(found)))
            behind = index + 1
            while behind < len(lines) and not lines[behind].strip():
                behind += 1
        groups = _no_parts([group for group in groups if _is_history(group[1])])
        rows = [row for where, group in groups for row in _rows(where[0], group)]
        taken = {index for where, _ in groups for index in where}
        return forms.merge(rows), [index for index in picks if index not in taken]


def _says_count(line: bytes) -> bool:
    """Whether a line says a step or an epoch ahead of its first list: it is about that one."""
    head = line[: line.find(b"[") + 1]
    return any(pattern.search(head) is not None for pattern in (tallies.STEP, tallies.EPOCH, tallies.BATCH))


def _is_history(group: dict[str, list[bytes]]) -> bool:
    losses = [
        name
        for name, values in group.items()
        if (roles.plays("loss", name) or roles.plays("eval_loss", name))
        and not _NO_HISTORY.fullmatch(name)
        and _is_measured(values)
    ]
    return bool(losses)


def _no_parts(
    groups: list[tuple[list[int], dict[str, list[bytes]]]],
) -> list[tuple[list[int], dict[str, list[bytes]]]]:
    """The groups of lists that are histories: the last of one that is printed again as it grows, and none that come
    again and again with other numbers, which are parts of a step's loss."""
    kept: list[tuple[list[int], dict[str, list[bytes]]]] = []
    for group in groups:
        before = kept[-1][1] if kept else {}
        if before.keys() == group[1].keys() and all(
            group[1][name][: len(values)] == values for name, values in before.items()
        ):
            kept.pop()
        kept.append(group)
    often: dict[tuple[Any, ...], int] = {}
    keys = [tuple((name, len(values)) for name, values in group.items()) for _, group in kept]
    for key in keys:
        often[key] = often.get(key, 0) + 1
    return [
        group
        for group, key in zip(kept, keys, strict=True)
        if often[key] < _PARTS or max(length for _, length in key) > 2 * _PARTS
    ]


def _rows(where: int, group: dict[str, list[bytes]]) -> list[forms.Raw]:
    """A group's rows: those of its loss first, and lists of other lengths aside."""
    names = [name for name in group if not _NO_HISTORY.fullmatch(name)]
    main = roles.main_loss(names) or roles.main_evaluation(names)
    by_length = itertools.groupby(sorted(names, key=lambda name: len(group[name])), key=lambda name: len(group[name]))
    rows = []
    for length, same in by_length:
        together = list(same)
        held_out = any(roles.plays("eval_loss", name) or name.lower().startswith("val") for name in names)
        rows.append(
            forms.Raw(
                tuple(together),
                np.full(length, where, np.int64),
                [0] * length,
                [group[name] for name in together],
                list(range(1, length + 1)),
                main in together,
                "epoch" if held_out else "row",
            )
        )
    return rows


class Lists(engine.Dialect):
    kind = "histories"
    about = "whole histories, printed as lists of numbers"
    hints = (b"oss", b"OSS")
    shapes = (Histories(),)
    of_the_rest = whole_runs = True
    aliases: ClassVar[engine.Aliases] = ALIASES

    def candidates(self, lines: list[bytes]) -> list[int]:
        return [index for index, line in enumerate(lines) if b"[" in line and len(line) <= _WIDEST]

    def rows_of(self, lines: list[bytes], picks: list[int], own: dict[str, Any]) -> tuple[list[forms.Raw], list[int]]:
        return ([], picks) if own.get("second") else super().rows_of(lines, picks, own)

    def prepare(self, text: bytes, own: dict[str, Any]) -> bytes:
        return text if own.get("second") or b"[" not in text else on_one_line(text)

    def hold(self, text: bytes) -> int:
        return unfinished(text)


SOURCE = Lists()
