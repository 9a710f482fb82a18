"""PNG files, without a library for images.

In:   pixels, 8 bits a channel, row by row.
Out:  the bytes of a file, the same for the same pixels.
"""

from __future__ import annotations

import struct
import zlib

MAGIC = b"\x89PNG\r\n\x1a\n"
_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # channels → the format's type of colour
_PALETTE = 3


def encode(pixels: bytes, wide: int, high: int, channels: int, palette: bytes | None = None, level: int = 9) -> bytes:
    """channels: 1 grey, 2 grey and opacity, 3 colours, 4 colours and opacity. level: of the compression.

    palette: 256 × 3 bytes for pixels of one channel, the places in it; its first colour is transparent.
    """
    row = wide * channels
    lines = b"".join(b"\0" + pixels[start : start + row] for start in range(0, row * high, row))  # a row, no filter
    kind = _COLOURS[channels] if palette is None else _PALETTE
    parts = [(b"IHDR", struct.pack(">IIBBBBB", wide, high, 8, kind, 0, 0, 0))]
    if palette is not None:
        parts += [(b"PLTE", palette), (b"tRNS", b"\x00")]
    parts += [(b"IDAT", zlib.compress(lines, level)), (b"IEND", b"")]
    return MAGIC + b"".join(_chunk(name, body) for name, body in parts)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
