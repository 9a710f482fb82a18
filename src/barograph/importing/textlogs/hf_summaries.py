"""The tables with which Hugging Face's Trainer ends, as the dicts that it prints.

In:   `***** train metrics *****` and below it `epoch = 3.0`, `train_loss = 0.8453`, `train_runtime = 0:00:42.83`.
Out:  `{'epoch': 3.0, 'train_loss': 0.8453, 'train_runtime': 42.83}` in the heading's place; nothing where the log has
      such a dict already, whose numbers the table says again, rounded.
"""

from __future__ import annotations

import re
from typing import Any

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms

_MARK = b" metrics ****"
_HEADING = expression(
    rb"(?:[^\n*]{0,200}[\s>\]:])?\*{3,8} (train|eval|test|predict|val|validation) metrics \*{3,8}\s*$"
)
_LINE = expression(rb"(?:[^=]{0,160}(?:[>\]:]|INFO)\s)?\s{0,8}([a-z][\w/.-]{1,60})\s{0,40}=\s{1,60}(\S{1,40})\s*$")
_NUMBER = expression(forms.NUMBER)
_TIME = expression(rb"(?:(\d{1,5}) days?, )?(\d{1,5}):(\d\d):(\d\d(?:\.\d{1,6})?)")
_LAST = expression(rb"(?:steps_per_second|perplexity)$")  # names are in the order of their letters
_LONGEST = 60  # lines of a table


def as_dicts(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which tables are dicts; own: of which data the log has dicts."""
    if _MARK not in text:
        _remember(text, own)
        return text
    lines = text.split(b"\n")
    at, said = 0, 0
    while at < len(lines):
        found = _HEADING.match(lines[at]) if _MARK in lines[at] and len(lines[at]) < 400 else None
        if found is None:
            at += 1
            continue
        _remember(b"\n".join(lines[said:at]), own)
        pairs: dict[bytes, bytes] = {}
        end = at + 1
        while end < min(len(lines), at + _LONGEST) and (row := _pair(lines[end])):
            pairs[row[0]] = row[1]
            end += 1
        said = end
        values = {name: number for name, said_value in pairs.items() if (number := _as_number(said_value))}
        if len(values) > 1 and found[1].decode() not in own.get("dicts", ()):
            table = b", ".join(b"'%s': %s" % pair for pair in values.items())
            lines[at:end] = [b"{%s}" % table, *[b""] * (end - at - 1)]
        at = end
    _remember(b"\n".join(lines[said:]), own)
    return b"\n".join(lines)


def tables(text: bytes) -> int:
    """How many tables a text has."""
    return text.count(_MARK)


def unfinished(text: bytes) -> int:
    """How many bytes at the end of whole lines are of a table that may go on."""
    at = text.rfind(_MARK)
    if at < 0 or len(text) - at > 8192:
        return 0
    start = text.rfind(b"\n", 0, at) + 1
    pairs = [_pair(line) for line in text[start:].split(b"\n")[1:-1]]
    if len(pairs) >= _LONGEST or not all(pairs) or (pairs and pairs[-1] and _LAST.search(pairs[-1][0])):
        return 0
    return len(text) - start


def _remember(text: bytes, own: dict[str, Any]) -> None:
    for name in ("train", "eval"):
        word = name.encode()
        if b"'%s_runtime'" % word in text or b'"%s_runtime"' % word in text:
            own["dicts"] = sorted({*own.get("dicts", ()), name})


def _pair(line: bytes) -> tuple[bytes, bytes] | None:
    if len(line) > 300 or b"=" not in line:
        return None
    found = _LINE.match(line)
    return (found[1], found[2]) if found else None


def _as_number(text: bytes) -> bytes:
    """A number, or a time in seconds; empty for anything else, such as `20135801GF`."""
    if _NUMBER.fullmatch(text):
        return text
    found: re.Match[bytes] | None = _TIME.fullmatch(text)
    if found is None:
        return b""
    return b"%.2f" % (86400 * int(found[1] or 0) + 3600 * int(found[2]) + 60 * int(found[3]) + float(found[4]))
