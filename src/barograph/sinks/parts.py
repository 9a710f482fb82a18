"""A line of the console, in parts.

In:   texts, each with a colour and how dispensable it is.
Out:  the line as plain text, as coloured text, or shortened to a terminal's width.

Colour wraps a text and never changes it. Text that users or models wrote is escaped first, so that
it can neither drive the terminal nor pass for another line.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from barograph.values import text

# A message is kept whole in the log; on the screen this much of it is enough.
LONGEST = 4_000

_CODES = {
    "bold": ("\x1b[1m", "\x1b[22m"),
    "dim": ("\x1b[2m", "\x1b[22m"),
    "red": ("\x1b[31m", "\x1b[39m"),
    "green": ("\x1b[32m", "\x1b[39m"),
    "yellow": ("\x1b[33m", "\x1b[39m"),
}

# C0 and C1 controls, and what reorders or breaks a line: bidirectional marks, line and paragraph separators.
_CONTROLS = {
    point: {9: "\\t", 10: "\\n", 13: "\\r", 27: "\\e"}.get(point, f"\\x{point:02x}")
    for point in [*range(32), *range(127, 160)]
} | {
    point: f"\\u{point:04x}"
    for point in [0x061C, *range(0x200E, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
}


class Part(NamedTuple):
    """A piece of a line. `colour`: names of codes. `spare`: 0 stays always; of the others the highest goes first."""

    text: str
    colour: str = ""
    spare: int = 0


Line = tuple[Part, ...]


def line(content: str, colour: str = "") -> Line:
    """A line of one part."""
    return (Part(content, colour),)


def escape(value: object, longest: int = LONGEST) -> str:
    """Anything as text on one line, its control characters written out, cut after `longest` characters."""
    whole = text(value)
    rest = len(whole) - longest
    shown = whole[:longest] if rest > 0 else whole
    if not (shown.isascii() and shown.isprintable()):
        shown = shown.translate(_CONTROLS)
    return f"{shown}… ({rest:,} more characters)" if rest > 0 else shown


def plain(parts: Line) -> str:
    """The line's text."""
    return "".join(part.text for part in parts)


def painted(parts: Line) -> str:
    """The line's text with terminal codes around its parts."""
    return "".join(_paint(part) for part in parts)


def _paint(part: Part) -> str:
    if not part.colour or not part.text.strip():
        return part.text
    codes = [_CODES[name] for name in part.colour.split()]
    return "".join(code[0] for code in codes) + part.text + "".join(code[1] for code in reversed(codes))


def fitted(parts: Line, columns: int) -> Line:
    """The line without the spare parts that do not fit into `columns`; what is not spare stays."""
    while width(part.text for part in parts) > columns:
        most = max((part.spare for part in parts), default=0)
        if most == 0:
            break
        parts = tuple(part for part in parts if part.spare != most)
    return parts


def width(texts: Iterable[str]) -> int:
    """Columns that texts take on a terminal."""
    return sum(len(item) if item.isascii() else sum(map(_columns, item)) for item in texts)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
