"""Lists of numbers that a training prints without saying what they are.

In:   a file in which no source has found a run.
Out:  how many of its lines hold such a list, below lines that say a step or an epoch, and where the first one is.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from barograph.core.patterns import expression
from barograph.importing.textlogs import choice, chunks, forms, tallies

_LIST = expression(
    rb"(?<![\w.=:])(?<![=:] )\[\s?" + forms.NUMBER + rb"(?:,?\s{1,3}" + forms.NUMBER + rb"){2,60}\s?\]\s*$"
)
_FAR = 16 << 20  # bytes that are searched
_LEAST = 3  # lists
_SHOWN = 80  # bytes of the first one


class UnnamedLists(NamedTuple):
    number: int
    line: int  # the number of the first one, from 1
    text: str


def unnamed_in(path: Path) -> UnnamedLists | None:
    """The lists in a text that says steps or epochs, too; None if it has none."""
    if not choice.may_be_log(path):
        return None
    count, first, text, placed = 0, 0, "", False
    with contextlib.suppress(OSError):
        for chunk in chunks.chunks(path):
            if chunk.end > _FAR or chunk.text.count(0) > len(chunk.text) // 10:
                break
            for index, line in enumerate(chunk.text.split(b"\n")):
                if b"[" not in line or len(line) > 4000:
                    continue
                placed = placed or any(pattern.search(line) for pattern in (tallies.EPOCH, tallies.STEP, tallies.BATCH))
                if found := _LIST.search(line) if line.rstrip().endswith(b"]") else None:
                    count += 1
                    if count == 1:
                        first, text = chunk.line + index, found[0][:_SHOWN].decode("utf-8", "replace")
    return UnnamedLists(count, first, text) if placed and count >= _LEAST else None
