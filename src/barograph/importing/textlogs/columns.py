"""Rows under a heading that says their names once, as text in which each row says them.

In:   `  step |   loss |       lr` and below it `    10 | 2.3013 | 3.0e-04`; with blanks, tabs or bars between, behind
      whatever a logger writes first; tables of Markdown too.
Out:  `step=10, loss=2.3013, lr=3.0e-04` in the row's place.
"""

from __future__ import annotations

import re
from typing import Any

from barograph.importing.textlogs import forms

_COUNT = (
    rb"(?:(?:(?:global|train(?:ing)?)[ _])?(?:steps?|iter(?:ation)?s?|updates?|epochs?|batch|rounds?)|itn?\.?|"
    rb"(?:e|ep|nr|#)(?=[ \t]{2}|[ \t]*\|))"
)
_MEASURE = (
    rb"loss|nll|ppl|perplexity|x-?ent|cross.?entropy|(?<![a-z])[cx]e(?![a-z])|acc(?:uracy)?|reward|bpb|r?mse|objective|"
    rb"(?<![a-z])(?:box|giou)[ \t|]{1,40}(?:obj|cls)(?![a-z])"
)
_HEADING = re.compile(
    rb"(?im)(?<![\w./])" + _COUNT + rb"[ \t|,]{1,40}(?=[a-z#][^\n=:{}\"]{1,500}$)"
    rb"(?=[^\n]{0,400}?(?:" + _MEASURE + rb"))"
)
_FIRST = re.compile(rb"(?i)(?<![\w./])" + _COUNT + rb"(?=[\s|,])")
_SAID = re.compile(rb"(?i)" + _MEASURE)
_WORD = re.compile(rb"[A-Za-z][\w ./@%()#:-]{0,60}|#")
_is_number = re.compile(forms.NUMBER + rb"(?:%|[kKMGT]i?B?)?").fullmatch
_is_count = re.compile(rb"(\d{1,15})(?:/\d{1,15})?").fullmatch
_BAR = re.compile(
    rb":?\s{1,8}\d{1,3}%\s?(?:\||[^\x00-\x7f])[^\n]{0,300}?\s(\d{1,15})/(\d{1,15})(?!\d)"
)  # behind the last cell
_SHORT = {b"#": b"step", b"e": b"epoch", b"ep": b"epoch"} | dict.fromkeys(
    (b"it", b"itn", b"nr", b"round", b"rounds"), b"iteration"
)
_PARTS = {b"box", b"giou", b"obj", b"cls", b"dfl", b"seg"}  # of a detector's loss, where no name says loss
_MOST = 60  # columns
_FRAME = {mark.encode(): b" " for mark in "─━═"} | dict.fromkeys(
    map(str.encode, "│┃║┌┬┐├┼┤└┴┘╭╮╰╯┏┳┓┣╋┫┗┻┛╒╤╕╞╪╡╘╧╛╔╦╗╠╬╣╚╩╝┡╇┩"), b"|"
)
_DRAWN = re.compile(rb"\xe2[\x94\x95][\x80-\xbf]")
_WIDEST = 4096  # bytes of a row
_NO_VALUE = (b"", b"-", b"--", b"None", b"n/a", b"N/A", b"#na#")
_is_time = re.compile(rb"\d{1,4}(?::[0-5]\d){1,2}(?:\.\d{1,6})?").fullmatch


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
                row = b", ".join(name + b"=" + cell for name, cell in said if not _says_nothing(cell))
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
    cells = [_SHORT.get(cell.lower().rstrip(b"."), cell).replace(b" ", b"_") for cell in cells]
    if not any(b"loss" in cell.lower() for cell in cells):
        cells = [cell + b"_loss" if cell.lower() in _PARTS else cell for cell in cells]
    return [between, *cells]


def _says_nothing(cell: bytes) -> bool:
    """Whether a cell is empty, or a time of day or how long something took."""
    return cell in _NO_VALUE or _is_time(cell) is not None


def cells_of(line: bytes, between: bytes, count: int) -> list[bytes]:
    """What a logger writes first, and the numbers at a line's end, as many as there are names; [] for anything else."""
    if b"%" in line and (drawn := _BAR.search(line)):  # a row that is drawn again and again counts once its bar is full
        if drawn[1] != drawn[2]:
            return []
        line = line[: drawn.start()]
    if between.isspace() and between != b"\t":
        first, *cells = line.rsplit(None, count) if len(line.split(None, count)) > count else (b"", *line.split())
    else:
        first, *cells = (b"", *(cell.strip() for cell in line.strip(b" \t|").split(between)))
        cells = cells[-count:]
        first, _, cells[0] = cells[0].rpartition(b" ")  # a bar or a tab of the logger's own is left out with the rest
    if len(cells) != count or not _is_count(cells[0]) or _SAID.search(line):
        return []
    cells = [cell.strip(b"*'\"") for cell in cells]  # the best so far is marked
    numbers = sum(_is_number(cell) is not None for cell in cells)
    numbers += not _is_number(cells[0])
    return [first, *cells] if numbers > 1 and numbers + sum(map(_says_nothing, cells)) == count else []
