"""What stands before a row on its line: a time, a rank, a logger's name.

In:   the beginnings of lines.
Out:  times as microseconds since 1970 (a log says no zone: taken as UTC) and ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.core.patterns import expression

TIME = expression(rb"(?<!\d)((?:19|20)\d\d[-/][01]\d[-/][0-3]\d[ T_][0-2]\d:[0-5]\d:[0-6]\d(?:[.,]\d{1,6})?)")
# torchrun's [default3]:, torch's [rank3]:, srun's "3: ", mpirun's [1,3]<stdout>:, and words such as [Rank 3] or rank=3
_RANK = expression(
    rb"\[(?i:default|rank|gpu|worker)[ _]?(\d{1,6})\]|(?i:\brank)[ _:=]{0,3}(\d{1,6})\b"
    rb"|^\s*(\d{1,6}):\s|^\[\d+,(\d{1,6})\]<std|^(?:default|gpu|node|worker)(\d{1,6}):"
)
_BEHIND = expression(  # `loss 2.31 lr 0.001 rank 3`, at a line's end
    rb"[\d,;|)\]]\s{1,4}[\[(]?(?:(?i:global|local)[ _])?(?i:rank)[ :=]{1,3}(\d{1,5})[\])]?\s{0,8}$"
)
_WRITTEN = bytes.maketrans(b",/_", b".- ")
LONGEST = 400  # bytes of a line's beginning that are looked at


def parse_times(texts: Sequence[bytes]) -> NDArray[np.int64]:
    """Microseconds since 1970 of times as `TIME` finds them; 0 for b"" and for what is not a date."""
    result = np.zeros(len(texts), np.int64)
    places = [index for index, text in enumerate(texts) if text]
    if not places:
        return result
    written = b"\n".join([texts[index] for index in places]).translate(_WRITTEN).decode("ascii").split("\n")
    try:
        result[places] = np.array(written, "datetime64[us]").astype(np.int64)
    except ValueError:  # one of them is the 31st of February
        for index, text in zip(places, written, strict=True):
            try:
                result[index] = np.datetime64(text, "us").astype(np.int64)
            except ValueError:
                result[index] = 0
    return result


def times(prefixes: Iterable[bytes]) -> NDArray[np.int64]:
    """The time in each; 0 where there is none."""
    search = TIME.search
    return parse_times([found[1] if (found := search(prefix)) else b"" for prefix in prefixes])


def ranks(prefixes: Iterable[bytes]) -> NDArray[np.int64]:
    """The rank in each; -1 where there is none."""
    return np.array([rank(prefix) for prefix in prefixes], np.int64)


def ranks_behind(lines: Sequence[bytes], of_several: bool) -> NDArray[np.int64]:
    """The rank at each line's end, where these are ranks: 0 is among them, and they come again (of_several: others
    did); -1 for all others."""
    found = [_BEHIND.search(line[-40:]) if b"ank" in line[-20:] else None for line in lines]
    result = np.array([int(match[1]) if match else -1 for match in found], np.int64)
    several = set(result[result >= 0].tolist())
    again = of_several or len(several) < (result >= 0).sum()
    return result if 0 in several and again else np.full(len(lines), -1, np.int64)


def rank(prefix: bytes) -> int:
    match = _RANK.search(TIME.sub(b"", prefix) if b":" in prefix[:24] else prefix)
    return int(match[match.lastindex or 0]) if match else -1


def anchors(lines: list[bytes], known: Iterable[int]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Indices and times of lines that begin with a time, other than the `known` ones."""
    skip = set(known)
    starts = (b"20", b"[20", b"19", b"[19")
    picks = [index for index, line in enumerate(lines) if line.startswith(starts) and index not in skip]
    found = times(lines[index][:40] for index in picks)
    return np.array(picks, np.int64)[found > 0], found[found > 0]
