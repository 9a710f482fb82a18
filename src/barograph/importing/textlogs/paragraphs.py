"""Rows of several lines, each a name and a number, as rows of one line, where no name is a known measure.

In:   `REPORT` and below it `  Batch = 100`, `  alpha = 0.001`, `  Correct = 14.15%`, and again with other numbers.
Out:  `  Batch = 100,   alpha = 0.001,   Correct = 14.15%` in the place of the first line.

The first line says what counts. A paragraph that comes less than three times is somebody's settings.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms, tallies

_LINE = rb"[ \t]{0,16}[A-Za-z][\w ./-]{0,40}?[ \t]{0,8}[=:][ \t]{0,16}" + forms.NUMBER + rb"[ \t]?%?[ \t\r]{0,8}"
_COUNT = (
    rb"[ \t]{0,16}(?i:batch|step|iter(?:ation)?|update|epoch|episode|round|generation|game)[ \t]{0,8}[=:][ \t]{0,16}"
    rb"\d{1,15}[ \t\r]{0,8}"
)
_PARAGRAPH = expression(rb"(?m)^" + _COUNT + rb"(?:\n" + _LINE + rb"){1,40}$")
_BEGUN = expression(rb"(?m)^" + _COUNT + rb"(?:\n" + _LINE + rb"){0,40}\n?\Z")
_NAME = expression(rb"(?m)^[ \t]{0,16}([^=:\n]{1,60})[=:]")
_ENOUGH = 3
_NEAR, _FAR = 1 << 12, 1 << 15  # bytes at a text's end that are looked at


def on_one_line(text: bytes, own: dict[str, Any]) -> bytes:
    """A text with as many lines, in which each such paragraph is on its first one; own: whether it came before."""
    own["paragraphs"] = own.get("paragraphs") or bool(_kind(text))
    return _PARAGRAPH.sub(_joined, text) if own["paragraphs"] else text


def _kind(text: bytes) -> tuple[bytes, ...]:
    """The names of the commonest paragraph; () where none comes again and again."""
    kinds = Counter(_names(found[0]) for found in _PARAGRAPH.finditer(text))
    names, times = max(kinds.items(), key=lambda item: item[1], default=((), 0))
    return names if times >= _ENOUGH else ()


def _names(text: bytes) -> tuple[bytes, ...]:
    return tuple(name.strip() for name in _NAME.findall(text))


def _joined(found: re.Match[bytes]) -> bytes:
    return b", ".join(line.strip() for line in found[0].split(b"\n")) + b"\n" * found[0].count(b"\n")


def unfinished(text: bytes) -> int:
    """How many bytes at a text's end are of a paragraph without a known measure that goes on."""
    found = _BEGUN.search(text, max(len(text) - _NEAR, 0))
    if found is None or tallies.LOSSES.search(text, found.start()):
        return 0
    kind, names = _kind(text[-_FAR:]), _names(found[0])
    goes_on = len(names) < len(kind) and kind[: len(names)] == names
    return len(text) - found.start() if goes_on and not any(map(tallies.LOSSES.search, kind)) else 0
