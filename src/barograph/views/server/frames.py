"""Columns as bytes that a browser reads without parsing them.

In:   a header, and columns of numbers put into it.
Out:  a frame: 4 bytes (little-endian, unsigned) for the header's length, the header as JSON, filled up with blanks to a
      multiple of 8 bytes, then all columns as little-endian float64. In the header a column is
      `{"at": its place in float64s from the start of the data, "n": its length}`.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from barograph.core.record import encode_fields

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MEDIA = "application/octet-stream"


class Frame:
    """Columns that are put together. `size`: float64s so far."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[NDArray[Any]] = []

    def column(self, values: ArrayLike) -> dict[str, int]:
        """Put a column [n] of numbers into the frame; what stands for it in the header."""
        import numpy

        made = numpy.ascontiguousarray(values, "<f8").reshape(-1)
        place = {"at": self.size, "n": len(made)}
        self._parts.append(made)
        self.size += len(made)
        return place

    def bytes(self, header: dict[str, Any]) -> bytes:
        """The whole frame. NaN and infinities in the header are strings, in the columns what they are."""
        text = encode_fields(header)
        text += b" " * (-(4 + len(text)) % 8)
        return b"".join([struct.pack("<I", len(text)), text, *(part.data for part in self._parts)])


def unpack(frame: bytes) -> tuple[dict[str, Any], NDArray[Any]]:
    """The header and all data of a frame; `data[at : at + n]` is a column."""
    import numpy

    length = struct.unpack_from("<I", frame)[0]
    header: dict[str, Any] = json.loads(frame[4 : 4 + length])
    return header, numpy.frombuffer(frame, "<f8", offset=4 + length)
