"""Media files of a run: their place, their formats, and how one is written.

In:   the bytes of images, sound, film and tables.
Out:  `media/DIGEST.SUFFIX` in the run's folder, whole or not there; what a file is, by its first bytes alone.

A file is named by its content: the same image is there once, and no name of a user's becomes a path.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import threading
from pathlib import Path
from typing import NamedTuple

from barograph.core import png
from barograph.core.patterns import expression

FOLDER = "media"
TABLE, OTHER = "table", "file"
TYPES = ("image", "audio", "video", TABLE, OTHER)
ITEM_BYTES = 64 << 20  # of one file: more is neither an image of a training nor a table to look at
TABLE_SUFFIX = ".table.json"

_NAME = expression(r"media/[0-9a-f]{32}(\.[a-z0-9]{1,10}){1,2}")


class Format(NamedTuple):
    """What a file is. type: of `TYPES`; content: its MIME type."""

    type: str
    suffix: str
    content: str


_PNG, _JPEG, _GIF, _WEBP = (Format("image", f".{word}", f"image/{word}") for word in ("png", "jpeg", "gif", "webp"))
WAV = Format("audio", ".wav", "audio/wav")
TABLES = Format(TABLE, TABLE_SUFFIX, "application/json")
UNKNOWN = Format(OTHER, ".bin", "application/octet-stream")
_STARTS = (
    (png.MAGIC, _PNG),
    (b"\xff\xd8\xff", _JPEG),
    (b"GIF87a", _GIF),
    (b"GIF89a", _GIF),
    (b"fLaC", Format("audio", ".flac", "audio/flac")),
    (b"OggS", Format("audio", ".ogg", "audio/ogg")),
    (b"ID3", Format("audio", ".mp3", "audio/mpeg")),
    (b"\xff\xfb", Format("audio", ".mp3", "audio/mpeg")),
    (b"\xff\xf3", Format("audio", ".mp3", "audio/mpeg")),
    (b"\x1a\x45\xdf\xa3", Format("video", ".webm", "video/webm")),
)


def format_of(data: bytes) -> Format:
    """What the first bytes of a file say that it is; `UNKNOWN` for all that is not image, sound or film.

    SVG and HTML are unknown on purpose: they may hold scripts.
    """
    if data[:4] == b"RIFF":
        return {b"WAVE": WAV, b"WEBP": _WEBP}.get(data[8:12], UNKNOWN)
    if data[4:8] == b"ftyp":
        return Format("video", ".mp4", "video/mp4")
    return next((found for start, found in _STARTS if data.startswith(start)), UNKNOWN)


def is_path(path: object) -> bool:
    """Whether a record's `path` is one that a run writes: nothing outside of its folder of media."""
    return isinstance(path, str) and _NAME.fullmatch(path) is not None


def image_size(data: bytes) -> tuple[int, int] | None:
    """Height and width of a PNG, GIF, JPEG or WebP; None where they can't be read."""
    with contextlib.suppress(struct.error, IndexError):
        if data.startswith(png.MAGIC):
            wide, high = struct.unpack_from(">II", data, 16)
            return high, wide
        if data[:3] == b"GIF":
            wide, high = struct.unpack_from("<HH", data, 6)
            return high, wide
        if data[8:15] == b"WEBPVP8":
            return _webp_size(data)
        at = 2
        while data[:2] == b"\xff\xd8" and data[at] == 0xFF:
            marker, length = data[at + 1], struct.unpack_from(">H", data, at + 2)[0]
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # a frame's beginning
                high, wide = struct.unpack_from(">HH", data, at + 5)
                return high, wide
            at += 2 + length
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    """Of the three kinds of WebP: extended, lossless, lossy."""
    if len(data) < 30:
        return None
    if data[15:16] == b"X":
        wide, high = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        return high, wide
    if data[15:16] == b"L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    wide, high = struct.unpack_from("<HH", data, 26)
    return high & 0x3FFF, wide & 0x3FFF


def wav(samples: bytes, channels: int, rate: int) -> bytes:
    """A WAV file of samples of 16 bits, channel by channel."""
    about = struct.pack("<HHIIHH", 1, channels, rate, rate * channels * 2, channels * 2, 16)
    body = b"fmt " + struct.pack("<I", len(about)) + about + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def keep(folder: Path, content: bytes, suffix: str) -> tuple[str, int]:
    """Write a file of a run; returns its path in the run's folder and how many bytes that added. Raises OSError.

    It is written under another name, which a reader passes over, and moved: it is there whole or not at all.
    """
    name = f"{hashlib.sha256(content).hexdigest()[:32]}{suffix}"
    home = folder / FOLDER
    path = home / name
    with contextlib.suppress(OSError):
        if path.stat().st_size == len(content):
            return f"{FOLDER}/{name}", 0
    home.mkdir(parents=True, exist_ok=True)
    temporary = home / f".{name}.{os.getpid()}-{threading.get_ident()}"
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o600)
        with open(handle, "wb") as stream:
            stream.write(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return f"{FOLDER}/{name}", len(content)


def kept_bytes(folder: Path) -> int:
    """What a run's media files take."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(folder / FOLDER) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_size
    return total
