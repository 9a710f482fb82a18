"""A line that was understood once teaches a pattern for all lines like it.

In:   a line, what a dialect's function read in it, and the function.
Out:  a `Template`: the line's text with groups where its numbers stand, or None if they aren't mere values.

Whether a number is a mere value is tried: the same line with other numbers in it must read the same, number for
number. A name with a number in it, or a number that decides how the line is read, fails that, and the line is
read by the function as before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from barograph.core.patterns import expression

NUMBER = (
    rb"[-+]?(?:\d+(?:,\d{3}(?!\d))*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|"
    rb"(?:[nN][aA][nN]|[iI]nf(?:inity)?)(?![A-Za-z]))"  # not the beginning of `info`
)
# a number that is not a part of a word, perhaps with a unit: `231.5ms`
TOKEN = re.compile(rb"(?<![\w.])(" + NUMBER + rb")(?!\.\d)(?:(?!\w)|(?=[A-Za-z]{1,4}(?!\w)))")
# Atomic: a template has dozens of them, and going back into each would take for ever on a line that doesn't fit.
_VALUE = rb"(?>" + NUMBER + rb")"
_WHOLE = rb"(?>\d{1,15})"
_MOST = 48  # numbers on a line
_FIRST = 1_000_003  # of the numbers that replace the line's own
_BLANKS = re.compile(rb"(?:\\ )+")

Parsed = tuple[int, Any, tuple[str, ...], Sequence[Any], bool]


def whole_lines(pattern: bytes) -> re.Pattern[bytes]:
    """A pattern for a text of many lines, for `findall`: a tuple for each line, a third faster than line by line.

    The first group is the line's first letter where the pattern fits at its beginning; else all groups are empty.
    """
    return expression(rb"(?m)^(?:(?=([^\n]))(?:" + pattern + rb")[^\n]*|[^\n]*)$")


def find_all(whole: re.Pattern[bytes], lines: Sequence[bytes]) -> list[tuple[bytes, ...]] | None:
    """A tuple for each line; None where a pattern has reached beyond its line."""
    found: list[tuple[bytes, ...]] = whole.findall(b"\n".join(lines))
    return found if len(found) == len(lines) else None


class Template:
    """What lines of one text say: a pattern, and which group is the step and which are the values."""

    __slots__ = ("main", "match", "names", "picks", "start", "step", "whole")

    def __init__(self, pattern: bytes, parsed: Parsed, step: int, picks: list[int], start: int) -> None:
        self.match = re.compile(pattern).match
        self.whole = whole_lines(pattern)
        _, _, self.names, _, self.main = parsed
        self.step, self.picks, self.start = step, picks, start  # start: a group's number; 0 for the line's beginning


def learn(line: bytes, parsed: Parsed, parse: Callable[[bytes], Parsed | None]) -> Template | None:
    """A template that reads `line` as `parse` does, or None."""
    parts = TOKEN.split(line)
    count = len(parts) // 2
    if not 1 <= count <= _MOST or len(line) > 4096:
        return None
    others = [b"%d" % (_FIRST + index) for index in range(count)]
    tried = b"".join(parts[index] if index % 2 == 0 else others[index // 2] for index in range(len(parts)))
    again = parse(tried)
    if again is None or again[2] != parsed[2] or again[4] != parsed[4] or (again[1] is None) != (parsed[1] is None):
        return None
    place = {text: index for index, text in enumerate(others)}
    where = [place.get(value) if isinstance(value, bytes) else None for value in again[3]]
    step = place.get(again[1]) if isinstance(again[1], bytes) else None
    if None in where or (step is None and parsed[1] is not None) or len(set(where)) != len(where):
        return None
    whole = {step} | {at for at, name in zip(where, parsed[2], strict=True) if name.startswith("_")}
    used = {at for at in where if at is not None} | ({step} if step is not None else set())
    pattern, groups, number, at, start = b"", {}, 0, 0, 0
    for index, text in enumerate(parts):
        if index % 2:
            token = index // 2
            if token in used:
                number += 1
                groups[token] = number
            value = _WHOLE if token in whole else _VALUE
            pattern += (b"(%s)" if token in used else b"(?:%s)") % value
            at += len(others[token])
            continue
        cut = again[0] - at
        if 0 <= cut <= len(text) and again[0] and not start:
            number += 1
            start = number
            pattern += _literal(text[:cut]) + b"()" + _literal(text[cut:])
        else:
            pattern += _literal(text)
        at += len(text)
    if again[0] and not start:
        return None
    picks = [groups[index] - 1 for index in where if index is not None]
    template = Template(pattern + b"$", parsed, groups[step] - 1 if step is not None else -1, picks, start)
    match = template.match(line)
    if match is None:
        return None
    said = match.groups()
    same = [said[pick] for pick in picks] == [value for value in parsed[3]]
    if (
        not same
        or (step is not None and said[template.step] != parsed[1])
        or (start and match.start(start) != parsed[0])
    ):
        return None
    return template


def _literal(text: bytes) -> bytes:
    """A text as a pattern; the number of blanks doesn't matter, since numbers are padded with them."""
    return _BLANKS.sub(b" ++", re.escape(text))
