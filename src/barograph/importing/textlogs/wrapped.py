"""Rows of a bar that Rich draws, with what it wrote below them for want of room, as rows of one line.

In:   `stage 3/∞ ━━━━━━ 56/56 0:00:17 • 0:00:00 3.23it/s val_accura…` and below it, in that column, `0.926`;
      `Accuracy report (3) 0.7305 22914 6175`, as an older bar ends.
Out:  `epoch 3 val_accuracy: 0.926`; `epoch 3 val_accuracy: 0.7305`.

A bar that is not full says nothing: what stands behind it is of the epoch before.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from barograph.core.patterns import expression

_ROW = expression(
    rb"(?m)^stage (\d{1,9})/(?:\xe2\x88\x9e|\d{1,9}) {1,4}(?:\xe2[\x94\x95][\x80-\xbf]|[-=#\[\]. ]){3,400} ?"
    rb"(\d{1,12})/(\d{1,12}) [^\n]{0,60}?(\d{1,6}\.\d\d(?:it/s|s/it))[ \t]{0,4}([^\n]{0,400})"
    rb"((?:\n {20}[^\n]{1,400}){0,12})$"
)
_REPORT = expression(
    rb"(?m)^[^\n]{0,400}?(?<![A-Za-z])([A-Z][a-z]{3,12}) report \((\d{1,9})\) (\d{1,3}\.\d{2,12}|nan) [^\n]{0,80}$"
)
_WORD = expression(r"\S+")
_STOPPING = expression(rb" ?early_stopp\S{1,8} \d{1,6}/\d{1,6}(?: -?(?:inf|nan|\d{1,9}\.\d{1,20}))?")
_CUT = "…"
_WHOLE = ("accuracy", "loss", "stopping", "metric", "error", "perplexity")  # a name's last word, which may be cut
_FEWEST = 3  # letters of it that are left


def on_one_line(text: bytes, own: dict[str, Any]) -> bytes:
    """A text with as many lines, in which each such row is on its first one."""
    if b"\nstage " in text or text.startswith(b"stage "):
        rows = [found for found in _ROW.finditer(text) if found[2] == found[3]]
        ends = [one[1] != other[1] for one, other in itertools.pairwise(rows)] + [True] * bool(rows)
        last = {found.start() for found, is_last in zip(rows, ends, strict=True) if is_last}
        # what an epoch's bars say ahead of its last one is of the epoch before
        text = _ROW.sub(lambda found: _joined(found, found.start() in last), text)
    return _REPORT.sub(_reported, text) if b" report (" in text else text


def _reported(found: re.Match[bytes]) -> bytes:
    return b"epoch %s val_%s: %s" % (found[2], found[1].lower(), found[3])


def _joined(found: re.Match[bytes], counts: bool) -> bytes:
    epoch, _, _, rate, said, below = found.groups()
    lines = b"\n" * below.count(b"\n")
    if not counts:
        return lines
    said = _by_columns(found) if _CUT.encode() in said else b" ".join([said, *below.split()])
    return b"epoch %s %s, %s%s" % (epoch, rate, _STOPPING.sub(b"", b" " + said), lines)


def _by_columns(found: re.Match[bytes]) -> bytes:
    """Cells that go on below their beginnings, each with all of its column."""
    head, *rest = found[0].decode("utf-8", "replace").split("\n")
    begin = len(found.string[found.start() : found.start(5)].decode("utf-8", "replace"))
    cells = [(word.start(), [word[0]]) for word in _WORD.finditer(head, begin)]
    for line in rest:
        for word in _WORD.finditer(line):
            cell = next((cell for cell in reversed(cells) if cell[0] <= word.start() + 1), None)
            if cell is not None:
                cell[1].append(word[0])
    return " ".join(_named(word) for _, words in cells for word in words).encode()


def _named(word: str) -> str:
    """A name that was cut, as it was; any other word as it is."""
    if not word.endswith(_CUT):
        return word
    ahead, mark, last = word[: -len(_CUT)].rpartition("_")
    whole = next((name for name in _WHOLE if len(last) >= _FEWEST and name.startswith(last)), last)
    return f"{ahead}{mark}{whole}:"
