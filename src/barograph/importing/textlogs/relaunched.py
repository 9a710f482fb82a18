"""Where a program that has ended is launched once more, in a text whose rows say no step.

In:   lines; the first line of the text.
Out:  the lines that say what the first one says, but for its numbers, right behind words of a program's end.

Rows that are numbered begin anew there. Without such words the first line may be one that comes in each epoch.
"""

from __future__ import annotations

from typing import Any

from barograph.importing.textlogs import messages

_FIRST = 200  # lines, one of which holds words
_LOOKED_AT = 12  # lines ahead of such a line, that may tell of the end
_LONGEST = 2000  # bytes of one of these


def opened(lines: list[bytes], own: dict[str, Any]) -> None:
    """Remember what the first line of the text says."""
    if "opening" not in own:
        own["opening"] = [None, 0]
        messages.launches([line for line in lines[:_FIRST] if line.strip()][:1], own["opening"])


def places(lines: list[bytes], own: dict[str, Any]) -> list[int]:
    """The indices of such lines, but the first one's."""
    return [index for index in messages.launches(lines, own["opening"]) if _is_behind_an_end(lines, index)]


def _is_behind_an_end(lines: list[bytes], index: int) -> bool:
    ahead = [line for line in lines[max(index - _LOOKED_AT, 0) : index] if line.strip() and len(line) <= _LONGEST]
    text = b"\n".join(ahead)
    return any(message.end for message in messages.messages(text, ahead, ahead, {}))
