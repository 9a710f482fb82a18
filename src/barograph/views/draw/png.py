"""PNG files, without a library for pictures.

In:   pixels: rows of colours, or of places in a palette.
Out:  the bytes of a file, the same for the same pixels.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAGIC = b"\x89PNG\r\n\x1a\n"
_COLOURS, _PALETTE = 2, 3  # the format's types of colour


def encode(pixels: NDArray[np.uint8], palette: NDArray[np.uint8] | None = None) -> bytes:
    """8 bits a channel, no filter. pixels: [high, wide, 3], or with a palette [high, wide].

    palette: [256, 3]; its first colour is transparent.
    """
    high, wide = pixels.shape[:2]
    rows = np.zeros((high, 1 + pixels[0].size), np.uint8)  # a row begins with the number of its filter
    rows[:, 1:] = pixels.reshape(high, -1)
    kind = _COLOURS if palette is None else _PALETTE
    parts = [(b"IHDR", struct.pack(">IIBBBBB", wide, high, 8, kind, 0, 0, 0))]
    if palette is not None:
        parts += [(b"PLTE", palette.tobytes()), (b"tRNS", b"\x00")]
    parts += [(b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
    return _MAGIC + b"".join(_chunk(name, body) for name, body in parts)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
