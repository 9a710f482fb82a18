"""The heat map: cells as one of 254 colours, an image that needs nothing else, axes around it.

In:   rows of cells.
Out:  their levels, the PNG of them, the `<svg>` element with labels.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from barograph.core import png
from barograph.core.text import escape, fit, html, number
from barograph.views.draw.chart import nice_ticks, tick_words
from barograph.views.draw.palette import NOT_FINITE, RAMP, rgb

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Levels = NDArray[np.uint8]

NOTHING, ODD, FIRST, LAST = 0, 1, 2, 255
WIDE, LEFT, RIGHT, TOP, BELOW, KEY = 760, 180, 14, 4, 22, 26
_COLUMNS = 960
_REPEATED = 4  # each row, so that a printer that smooths pictures leaves the cells their edges


@dataclass(frozen=True, eq=False)
class HeatMap:
    """rows [r] against x: values [r, c] of cells between edges [c + 1], NaN where nothing was logged.

    odd [r, c]: where a value was not finite. log: colours by the logarithm.
    """

    title: str
    rows: tuple[str, ...]
    edges: Floats
    values: Floats
    odd: NDArray[np.bool_]
    log: bool


def levels(heat: HeatMap) -> tuple[Levels, float, float]:
    """Cells as levels: 0 nothing logged, 1 not finite, 2 to 255 from the least to the greatest value; and those two.

    A cell of which some values were not finite counts as not finite.
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
    palette = np.zeros((256, 3), np.uint8)
    palette[ODD] = rgb(NOT_FINITE)
    along, anchors = np.linspace(0, len(RAMP) - 1, LAST - FIRST + 1), np.array([rgb(colour) for colour in RAMP])
    for channel in range(3):
        palette[FIRST:, channel] = np.interp(along, np.arange(len(RAMP)), anchors[:, channel])
    pixels = np.repeat(found[:, place], _REPEATED, axis=0)
    return png.encode(pixels.tobytes(), pixels.shape[1], pixels.shape[0], 1, palette.tobytes())


def row_height(rows: int) -> float:
    return 18.0 if rows <= 8 else 14.0 if rows <= 30 else 9.0 if rows <= 64 else 5.0


def picture(heat: HeatMap) -> str:
    """The heat map as SVG, with the names of its rows and a key of its colours."""
    found, low, high = levels(heat)
    each = row_height(len(heat.rows))
    tall, across = each * len(heat.rows), WIDE - LEFT - RIGHT
    least, most = (number(10.0**value if heat.log else value) for value in (low, high))
    label = f"{escape(heat.title, 200)}: {len(heat.rows)} rows, colours from {least} to {most}"
    parts = [
        f'<svg viewBox="0 0 {WIDE} {TOP + tall + BELOW + KEY:g}" role="img" aria-label="{html(label)}">',
        f'<rect class="empty" x="{LEFT}" y="{TOP}" width="{across}" height="{tall:g}"/>',
        _image(found, heat.edges, LEFT, TOP, across, tall, ' image-rendering="pixelated"'),
    ]
    every = max(1, math.ceil(11 / each))
    for at, name in enumerate(heat.rows):
        if at % every == 0:
            y = TOP + each * (at + 0.5) + 3.5
            shown = html(fit(escape(name, 200), 28))
            parts.append(f'<text x="{LEFT - 6}" y="{y:.1f}" text-anchor="end">{shown}</text>')
    for value in nice_ticks(float(heat.edges[0]), float(heat.edges[-1]), 6):
        if value == int(value):
            x = LEFT + (value - heat.edges[0]) / (heat.edges[-1] - heat.edges[0]) * across
            anchor = "end" if x > WIDE - 40 else "middle"
            parts.append(f'<text x="{x:.1f}" y="{TOP + tall + 15:.1f}" text-anchor="{anchor}">'
                         f"{html(tick_words(value, 'step'))}</text>")  # fmt: skip
    parts.append(_key(least, most, heat, TOP + tall + BELOW + 8))
    return "".join(parts) + "</svg>"


def _image(found: Levels, edges: Floats, x: float, y: float, wide: float, high: float, more: str = "") -> str:
    source = base64.b64encode(image(found, edges)).decode()
    return (
        f'<image href="data:image/png;base64,{source}" x="{x}" y="{y:g}" width="{wide}" height="{high:g}" '
        f'preserveAspectRatio="none"{more}/>'
    )


def _key(least: str, most: str, heat: HeatMap, y: float) -> str:
    ramp = np.arange(FIRST, LAST + 1, dtype=np.uint8)[None, :]
    parts = [
        f'<text x="{LEFT + 58}" y="{y + 9:.1f}" text-anchor="end">{least}</text>',
        _image(ramp, np.arange(ramp.shape[1] + 1, dtype=np.float64), LEFT + 64, y, 160, 10),
        f'<text x="{LEFT + 230}" y="{y + 9:.1f}">{most}{", logarithmic" if heat.log else ""}</text>',
    ]
    if heat.odd.any():
        parts.append(f'<rect class="odd" x="{LEFT + 400}" y="{y:.1f}" width="10" height="10"/>'
                     f'<text x="{LEFT + 416}" y="{y + 9:.1f}">not finite</text>')  # fmt: skip
    return "".join(parts)
