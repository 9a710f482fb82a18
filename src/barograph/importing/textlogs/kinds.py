"""Lines that look like rows of a dialect and are none: damaged ones, or rows of another kind.

In:   lines that a dialect knows by their beginning and can't read.
Out:  those that are damaged, which nobody reads in part; the others are left to other readers.

A program that prints its rows in two ways, `iter 10: loss 2.3, time 12ms` and `iter 500: loss 2.1`, prints the second
way more than once, with the same words, and with each number by itself. Of a log that is read as it grows the first
two of such rows are not known to be of a kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_ENOUGH = 3  # rows of a kind
_MOST = 50  # kinds that are remembered
_BETWEEN = re.compile(rb"[\s,:;=|()\[\]/]+")
_NUMBER = re.compile(
    rb"(?i)[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?(?:%|m?s|[kmb]|[gm]i?b)?|[+-]?(?:nan|inf(?:inity)?)"
)


def damaged(lines: list[bytes], indices: Iterable[int], own: dict[str, Any]) -> list[int]:
    """The lines of these that are damaged. own: what a reader remembers from chunk to chunk, and keeps in marks."""
    counts: dict[str, int] = own.setdefault("kinds", {})
    kinds = {index: _kind(lines[index]) for index in indices}
    for kind in kinds.values():
        if kind and (kind in counts or len(counts) < _MOST):
            counts[kind] = counts.get(kind, 0) + 1
    return [index for index, kind in kinds.items() if counts.get(kind, 0) < _ENOUGH]


def _kind(line: bytes) -> str:
    """The words of a line with `#` for each number; empty where a word has digits, so that two may be run together."""
    words = []
    for word in _BETWEEN.split(line.strip()):
        if _NUMBER.fullmatch(word):
            words.append("#")
        elif re.search(rb"\d", word):
            return ""
        else:
            words.append(word.decode("utf-8", "replace"))
    return " ".join(words) if words.count("#") > 1 else ""
