"""Rows under a heading that says their names once, as text in which each row says them.

In:   `  step |   loss |       lr` and below it `    10 | 2.3013 | 3.0e-04`; with blanks, tabs or bars between, behind
      whatever a logger writes first; tables of Markdown too.
Out:  `step=10, loss=2.3013, lr=3.0e-04` in the row's place.
"""

from __future__ import annotations

import re
from typing import Any

from barograph.importing.textlogs import forms

_COUNT = rb"(?:(?:global|train(?:ing)?)[ _])?(?:steps?|iter(?:ation)?s?|updates?|epochs?|batch)"
_MEASURE = rb"loss|nll|ppl|perplexity|x-?ent|cross.?entropy|(?<![a-z])[cx]e(?![a-z])|acc(?:uracy)?|reward|bpb|r?mse"
_HEADING = re.compile(
    rb"(?im)(?<![\w./])" + _COUNT + rb"[ \t|,]{1,40}(?=[a-z][^\n=:{}\"]{1,500}$)"
    rb"(?=[^\n]{0,400}?(?:" + _MEASURE + rb"))"
)
_FIRST = re.compile(rb"(?i)(?<![\w./])" + _COUNT + rb"(?=[\s|,])")
_SAID = re.compile(rb"(?i)" + _MEASURE)
_WORD = re.compile(rb"[A-Za-z][\w ./@%()#-]{0,60}")
_is_number = re.compile(forms.NUMBER + rb"%?").fullmatch
_MOST = 60  # columns
_FRAME = {mark.encode(): b" " for mark in "─━═"} | dict.fromkeys(
    map(str.encode, "│┃║┌┬┐├┼┤└┴┘╭╮╰╯┏┳┓┣╋┫┗┻┛╒╤╕╞╪╡╘╧╛╔╦╗╠╬╣╚╩╝┡╇┩"), b"|"
)
_DRAWN = re.compile(rb"\xe2[\x94\x95][\x80-\xbf]")
_WIDEST = 4096  # bytes of a row
_NO_VALUE = (b"", b"-", b"--", b"None", b"n/a", b"N/A")


def said_in_rows(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which the rows of tables say their names; own: the heading that goes on in the next text."""
    if b"\xe2\x94" in text or b"\xe2\x95" in text:  # a table with drawn lines
        text = _DRAWN.sub(lambda found: _FRAME.get(found[0], found[0]), text)
    between, *names = [word.encode() for word in own.get("heading", [""])]
    heads = {text.rfind(b"\n", 0, match.start()) + 1 for match in _HEADING.finditer(text)}
    if not names and not heads:
        return text
    begin = at = 0 if names else min(heads)
    lines = text[begin:].split(b"\n")
    for index, line in enumerate(lines):
        here, at = at, at + len(line) + 1
        if here in heads and (found := heading(line)):
            between, *names = found
        elif names and len(line) < _WIDEST:
            cells = cells_of(line, between, len(names))
            if cells:
                said = zip(names, cells[1:], strict=True)
                row = b", ".join(name + b"=" + cell for name, cell in said if cell not in _NO_VALUE)
                lines[index] = cells[0] + b" " + row
    if names:
        own["heading"] = [word.decode("utf-8", "replace") for word in (between, *names)]
    return text[:begin] + b"\n".join(lines)


def heading(line: bytes) -> list[bytes]:
    """What stands between the names of a heading, and its names from the one that counts steps on; [] for a
    sentence."""
    first = _FIRST.search(line)
    if first is None:
        return []
    rest = line[first.start() :].strip(b" \t|")
    between = next((mark for mark in (b"|", b"\t", b"  ") if mark in rest), b" ")
    cells = [cell.strip() for cell in rest.split(between) if cell.strip()]
    if not 2 <= len(cells) <= _MOST or not all(map(_WORD.fullmatch, cells)):
        return []
    return [between, *(cell.replace(b" ", b"_") for cell in cells)]


def cells_of(line: bytes, between: bytes, count: int) -> list[bytes]:
    """What a logger writes first, and the numbers at a line's end, as many as there are names; [] for anything else."""
    if between.isspace() and between != b"\t":
        first, *cells = line.rsplit(None, count) if len(line.split(None, count)) > count else (b"", *line.split())
    else:
        first, *cells = (b"", *(cell.strip() for cell in line.strip(b" \t|").split(between)))
        cells = cells[-count:]
        first, _, cells[0] = cells[0].rpartition(b" ")  # a bar or a tab of the logger's own is left out with the rest
    if len(cells) != count or not cells[0].isdigit() or len(cells[0]) > 15 or _SAID.search(line):
        return []
    cells = [cell.strip(b"*'\"") for cell in cells]  # the best so far is marked
    numbers = sum(_is_number(cell) is not None for cell in cells)
    return [first, *cells] if numbers > 1 and numbers + sum(cell in _NO_VALUE for cell in cells) == count else []
