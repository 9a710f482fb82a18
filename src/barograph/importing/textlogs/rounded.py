"""Steps that are printed rounded, `step:1K`, three rows in a row.

In:   a text with rows of which some say `step:800` and later ones `step:1K`, `step:1K`, `step:2K`.
Out:  the same text with a step of its own in each row: as far behind the row before as the rows with whole steps are
      from each other, where that rounds to what is printed.
"""

from __future__ import annotations

import re
from typing import Any

from barograph.core.patterns import expression
from barograph.importing.textlogs.gist import gist

_NAME = rb"(?<![\w./-])((?i:(?:global[_ ]?|train[_ ]?)?(?:step|iter(?:ation)?|update)s?)\s?[:=]\s{0,4})"
_ROUNDED = expression(_NAME + rb"(\d{1,6}(?:\.\d{1,3})?)([kKM])(?=[\s,;|]|$)")
_WHOLE = expression(_NAME + rb"(\d{1,9})(?=[\s,;|]|$)")
_UNITS = {b"k": 1000, b"K": 1000, b"M": 1_000_000}
_WIDEST = 1 << 12


def spread(text: bytes, own: dict[str, Any]) -> bytes:
    """A text whose rows say whole steps. own: the last step, and how far rows are apart, kept in marks."""
    little = gist(text)
    if not any(unit in little for unit in (b"K ", b"k ", b"M ", b"K,", b"k,", b"M,", b"K\n", b"k\n", b"M\n", b"K|")):
        return text if own.get("rounded") is None else _spread(text, own)
    return _spread(text, own) if own.get("rounded") is not None or _ROUNDED.search(little) else text


def _spread(text: bytes, own: dict[str, Any]) -> bytes:
    lines = text.split(b"\n")
    last, apart = own.get("rounded") or (None, 0)
    found = [
        (index, match, rounded)
        for index, line in enumerate(lines)
        if (b"oss" in line or b"eward" in line) and b"poch" not in line and len(line) <= _WIDEST
        if (match := (rounded := _ROUNDED.search(line)) or _WHOLE.search(line))
    ]
    apart = apart or _apart([match for _, match, rounded in found if rounded])
    for index, match, rounded in found:
        if rounded is None:
            step = int(match[2])
            apart = step - last if last is not None and step > last else apart
        else:
            step = _step(match, last, apart)
            lines[index] = b"%s%s%d%s" % (match.string[: match.start()], match[1], step, match.string[match.end() :])
        last = step
    own["rounded"] = None if last is None else [last, apart]
    return b"\n".join(lines)


def _step(match: re.Match[bytes], last: int | None, apart: int) -> int:
    """The step that a row rounds: that behind the last one if it rounds so, else what is printed, or a little more."""
    unit = _UNITS[match[3]]
    said = round(float(match[2]) * unit)
    half = unit / 2 / 10 ** len(match[2].partition(b".")[2])
    if last is None or said < last - half:  # begins, or begins anew
        return said
    if abs(last + apart - said) <= half:
        return last + apart
    return max(said, last + 1) if said > last else last + 1 if last + 1 - said <= half else said


def _apart(rounded: list[re.Match[bytes]]) -> int:
    """How far rows are apart that are all rounded: from the first of one value to the first of another."""
    values = [round(float(match[2]) * _UNITS[match[3]]) for match in rounded]
    begins = [at for at, value in enumerate(values) if not at or value != values[at - 1]]
    if len(begins) < 3:
        return 1
    first, end = begins[1], begins[-1]
    return max((values[end] - values[first]) // (end - first), 1)
