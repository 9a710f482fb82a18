"""Heat maps: cells as one of 254 colours, an image that needs nothing else, axes around it.

In:   a heat map.
Out:  its levels, the PNG of them, the `<svg>` element with labels.
"""

from __future__ import annotations

import base64
import html
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from barograph.reporting.content import Heat
from barograph.reporting.drawing import nice_ticks, tick_words
from barograph.reporting.figures import plain_number
from barograph.sinks.parts import escape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Levels = NDArray[np.uint8]

NOTHING, ODD, FIRST, LAST = 0, 1, 2, 255
WIDE, LEFT, RIGHT, TOP, BELOW, KEY = 760, 180, 14, 4, 22, 26
_COLUMNS = 960
_REPEATED = 4  # each row, so that a printer that smooths pictures leaves the cells their edges
# dark violet over blue and green to yellow, even in lightness: Matplotlib's viridis, nine of its colours
_ANCHORS = ((68, 1, 84), (71, 44, 122), (59, 81, 139), (44, 113, 142), (33, 144, 141), (39, 173, 129), (92, 200, 99),
            (170, 220, 50), (253, 231, 37))  # fmt: skip
_ODD_COLOUR = (228, 26, 128)


def levels(heat: Heat) -> tuple[Levels, float, float]:
    """Cells as levels: 0 nothing logged, 1 not finite, 2 to 255 from the least to the greatest value; and those two.

    A cell whose values were partly not finite is told as not finite.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = np.log10(np.where(heat.values > 0, heat.values, np.nan)) if heat.log else heat.values
    finite = scaled[np.isfinite(scaled)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    width = high - low if high > low else 1.0
    found = np.full(heat.values.shape, NOTHING, np.uint8)
    good = np.isfinite(scaled)
    found[good] = FIRST + np.round((scaled[good] - low) / width * (LAST - FIRST)).astype(np.uint8)
    if heat.log:
        found[np.isfinite(heat.values) & (heat.values <= 0)] = FIRST  # zero has no logarithm: the darkest
    found[heat.odd] = ODD
    return found, low, high


def image(found: Levels, edges: Floats) -> bytes:
    """A PNG with a palette, a row each; cells as wide as their steps."""
    middles = edges[0] + (np.arange(_COLUMNS) + 0.5) / _COLUMNS * (edges[-1] - edges[0])
    place = np.clip(np.searchsorted(edges, middles, side="right") - 1, 0, found.shape[1] - 1)
    wide = np.repeat(found[:, place], _REPEATED, axis=0)
    rows = np.concatenate([np.zeros((len(wide), 1), np.uint8), wide], axis=1)
    palette = np.zeros((256, 3), np.uint8)
    palette[ODD] = _ODD_COLOUR
    along = np.linspace(0, len(_ANCHORS) - 1, LAST - FIRST + 1)
    for channel in range(3):
        palette[FIRST:, channel] = np.interp(along, np.arange(len(_ANCHORS)), [one[channel] for one in _ANCHORS])
    header = struct.pack(">IIBBBBB", wide.shape[1], wide.shape[0], 8, 3, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join([
        _chunk(b"IHDR", header), _chunk(b"PLTE", palette.tobytes()), _chunk(b"tRNS", b"\x00"),
        _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)), _chunk(b"IEND", b""),
    ])  # fmt: skip


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def row_height(rows: int) -> float:
    return 18.0 if rows <= 8 else 14.0 if rows <= 30 else 9.0 if rows <= 64 else 5.0


def picture(heat: Heat) -> str:
    """The heat map as SVG, with the names of its rows and a key of its colours."""
    found, low, high = levels(heat)
    each = row_height(len(heat.rows))
    tall = each * len(heat.rows)
    height = TOP + tall + BELOW + KEY
    across = WIDE - LEFT - RIGHT
    source = base64.b64encode(image(found, heat.edges)).decode()
    label = html.escape(f"{escape(heat.title, 200)}: {len(heat.rows)} rows, colours from {_spelled(low, heat.log)} to "
                        f"{_spelled(high, heat.log)}", quote=True)  # fmt: skip
    parts = [
        f'<svg viewBox="0 0 {WIDE} {height:g}" role="img" aria-label="{label}">',
        f'<rect class="empty" x="{LEFT}" y="{TOP}" width="{across}" height="{tall:g}"/>',
        f'<image href="data:image/png;base64,{source}" x="{LEFT}" y="{TOP}" width="{across}" height="{tall:g}" '
        'preserveAspectRatio="none" image-rendering="pixelated"/>',
    ]
    every = max(1, int(np.ceil(11 / each)))
    for at, name in enumerate(heat.rows):
        if at % every == 0:
            y = TOP + each * (at + 0.5) + 3.5
            text = _shortened(escape(name, 200))
            parts.append(f'<text x="{LEFT - 6}" y="{y:.1f}" text-anchor="end">{html.escape(text)}</text>')
    for value in nice_ticks(float(heat.edges[0]), float(heat.edges[-1]), 6):
        if value == int(value):
            x = LEFT + (value - heat.edges[0]) / (heat.edges[-1] - heat.edges[0]) * across
            anchor = "end" if x > WIDE - 40 else "middle"
            parts.append(f'<text x="{x:.1f}" y="{TOP + tall + 15:.1f}" text-anchor="{anchor}">'
                         f"{html.escape(tick_words(value, 'step'))}</text>")  # fmt: skip
    parts.append(_key(low, high, heat.log, bool(heat.odd.any()), TOP + tall + BELOW + 8))
    return "".join(parts) + "</svg>"


def _key(low: float, high: float, log: bool, odd: bool, y: float) -> str:
    ramp = np.arange(FIRST, LAST + 1, dtype=np.uint8)[None, :]
    source = base64.b64encode(image(ramp, np.arange(ramp.shape[1] + 1, dtype=np.float64))).decode()
    parts = [
        f'<text x="{LEFT}" y="{y + 9:.1f}" text-anchor="start">{html.escape(_spelled(low, log))}</text>',
        f'<image href="data:image/png;base64,{source}" x="{LEFT + 64}" y="{y:.1f}" width="160" height="10" '
        'preserveAspectRatio="none"/>',
        f'<text x="{LEFT + 232}" y="{y + 9:.1f}">{html.escape(_spelled(high, log))}'
        f"{', logarithmic' if log else ''}</text>",
    ]
    if odd:
        parts.append(f'<rect class="odd" x="{LEFT + 400}" y="{y:.1f}" width="10" height="10"/>'
                     f'<text x="{LEFT + 416}" y="{y + 9:.1f}">not finite</text>')  # fmt: skip
    return "".join(parts)


def _spelled(value: float, log: bool) -> str:
    return plain_number(10.0**value if log else value)


def _shortened(name: str, longest: int = 28) -> str:
    return name if len(name) <= longest else f"{name[: longest // 2 - 1]}…{name[-(longest // 2) :]}"
