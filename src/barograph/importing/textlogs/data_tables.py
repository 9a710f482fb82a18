"""Tables with a column or a row for each data, as text in which each row says its names.

In:   `Training | Validation` and below it `loss | 0.3 | 0.4`; a heading `| target | loss | accuracy |` and below it
      `| train | 0.3 | 0.9 |`, `| vali | 0.4 | 0.8 |`, perhaps with a column that counts epochs.
Out:  `train loss: 0.3, val loss: 0.4`; `train target loss=0.3, train target accuracy=0.9`.
"""

from __future__ import annotations

import re
from typing import Any

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms, tallies
from barograph.importing.textlogs.gist import gist

_BY_DATA = expression(  # `Training | Validation`, and below it `loss | 0.3 | 0.4`, behind what a logger writes
    rb"(?m)^[^\n|]{0,160}?\b(?i:train(?:ing)?)[ \t]{0,8}\|[ \t]{0,8}(?i:(val|test)\w{0,8})[ \t\r]*\n"
    rb"((?:[^\n|]{1,240}\|[ \t]{0,20}[^\s|]{1,24}[ \t]{0,20}\|[ \t]{0,20}[^\s|]{1,24}[ \t\r]*(?:\n|\Z)){1,200})"
)
_DATA_ABOVE = expression(rb"(?m)\b(?i:train(?:ing)?)[ \t]{0,8}\|[ \t]{0,8}(?i:val|test)\w{0,8}[ \t\r]*$")  # its heading
_ROW = expression(
    rb"(?i)[ \t]{0,40}\|[ \t]{0,40}(?:(train)(?:ing)?|(val)(?:i(?:d(?:ation)?)?)?|(test)(?:ing)?)"
    rb"[_ ]?(?:phase|set|data)?"
    rb"[ \t]{0,40}\|([^\n]{1,2000}\|)[ \t\r]{0,40}"
)
_HEADING = expression(rb"[ \t]{0,40}\|((?:[ \t]{0,40}[A-Za-z][^|\n]{0,60}\|){2,40})[ \t\r]{0,40}")
_MEASURE = expression(rb"(?i)(?<![a-z])(?:loss|nll|ppl|perplexity|acc(?:uracy)?|error|r?mse|mae)(?![a-z])")
_COUNT = expression(rb"(?i)(?:global[ _])?(?:epoch|step|iter(?:ation)?)s?")
_WHOLE = expression(rb"\d{1,15}(?:\.0{1,4})?")
_NO_NAME = expression(rb"(?i)(?:phase|split|sets?|data(?:[ _]?sets?)?|subset|partition|part|mode|stage)")
_NUMBER = expression(forms.NUMBER)
_LETTERS = expression(rb"(?i)[ \t]{0,40}\|[ \t]{0,40}(?:train|val|test)")
_WIDEST = 4096  # bytes of a row
_NEAR = 12  # lines below one that says an epoch
_RESULT = expression(rb"(?i)\b(?:best|final|results?|summary|report|conclusion|table)\b")


def said_in_rows(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which the rows of such tables say their names; own: the heading that goes on in the next text."""
    if b" | " in text and _DATA_ABOVE.search(gist(text)):
        text = _BY_DATA.sub(_each_of_data, text)
    rows = _rows_of_data(text, own) if b"|" in text else text
    if own.get("data_tables", 0) < 2:
        lines = text.rsplit(b"\n", _NEAR + 2)[-_NEAR - 2 :]
        own["below_epoch"] = _below(lines, len(lines) - 1, own)
    return rows


def _below(lines: list[bytes], index: int, own: dict[str, Any]) -> int:
    """How many lines above one an epoch is said, and no results are announced between; 0 for none that is near. own:
    the same of the text before."""
    for above, line in enumerate(reversed(lines[max(index - _NEAR, 0) : index]), 1):
        if _RESULT.search(line, 0, _WIDEST):
            return 0
        if b"poch" in line and tallies.EPOCH.search(line, 0, _WIDEST):
            return above
    before = int(own.get("below_epoch", 0))
    return before + index if before and before + index <= _NEAR else 0


def _each_of_data(found: re.Match[bytes]) -> bytes:
    """The rows of a table with a column for each data, each measure with its data before it."""
    rows = []
    for line in found[2].split(b"\n"):
        name, *cells = line.split(b"|")
        ahead, _, name = name.rstrip().rpartition(b" ")
        said = [
            data + b" " + name + b": " + cell.strip()
            for data, cell in zip((b"train", found[1].lower()), cells, strict=False)
            if _NUMBER.fullmatch(cell.strip())
        ]
        rows.append(ahead + b" " + b", ".join(said) if cells else line)
    return b"\n" + b"\n".join(rows)


def _rows_of_data(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which rows that begin with the name of some data say the names that stand above them. A table that
    comes once, counts nothing and stands below no epoch is somebody's result."""
    names = [name.encode() for name in own.get("by_data", ())]
    if not names and not any(map(_heading, gist(text).split(b"\n"))):
        return text
    lines = text.split(b"\n")
    heads = {
        index: [cell.strip() for cell in head[1].rstrip(b"|").split(b"|")]
        for index, line in enumerate(lines)
        if (head := _heading(line))
    }
    seen = own["data_tables"] = int(own.get("data_tables", 0)) + len(heads)
    alone = not names and seen < 2
    for index, line in enumerate(lines):
        if index in heads:
            said = any(map(_COUNT.fullmatch, heads[index])) or (alone and _below(lines, index, own))
            names = heads[index] if said or not alone else []
        elif names and _LETTERS.match(line) and len(line) < _WIDEST and (found := _ROW.fullmatch(line)):
            lines[index] = _named(found, names) or line
    if names:
        own["by_data"] = [name.decode("utf-8", "replace") for name in names]
    return b"\n".join(lines)


def _heading(line: bytes) -> re.Match[bytes] | None:
    head = _HEADING.fullmatch(line) if b"|" in line and len(line) < _WIDEST else None
    return head if head is not None and _MEASURE.search(line) else None


def _named(found: re.Match[bytes], names: list[bytes]) -> bytes:
    """A row with its names; b"" where it has more or fewer cells than these."""
    cells = [cell.strip() for cell in found[4].rstrip(b"|").split(b"|")]
    if len(cells) != len(names) - 1:
        return b""
    data = found[1] or found[2] or found[3]
    of = b"" if _NO_NAME.fullmatch(names[0]) else names[0] + b" "
    both = list(zip(names[1:], cells, strict=True))
    count = next((pair for pair in both if _COUNT.fullmatch(pair[0]) and _WHOLE.fullmatch(pair[1])), None)
    said = [
        b"%s %s%s=%s" % (data.lower(), of, name, cell)
        for name, cell in both
        if _NUMBER.fullmatch(cell) and not _COUNT.fullmatch(name)
    ]
    return (b"%s %s: " % (count[0], count[1].partition(b".")[0]) if count else b"") + b", ".join(said)
