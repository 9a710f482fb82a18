"""The colours of every picture that is drawn in Python, in a light and in a dark theme.

In:   nothing.
Out:  colours by name, the eight of lines, the ramp of heat maps; the same as a style sheet's variables.

The eight colours of lines stay apart for people with protanopia, deuteranopia and tritanopia too (a difference of at
least 20 in CIE Lab), and stand out from their ground by 3 : 1 or more. `tests/test_draw.py` measures both.
"""

from __future__ import annotations

LIGHT = {
    "ink": "#1b2126", "dim": "#5d6872", "line": "#dde2e6", "soft": "#f4f6f8", "paper": "#ffffff", "link": "#0b5cad",
    "good": "#1a7f43", "bad": "#b3261e", "warn": "#8a5a00", "info": "#5d6872",
}  # fmt: skip
DARK = {
    "ink": "#e6eaed", "dim": "#9aa5ae", "line": "#333c44", "soft": "#1c2228", "paper": "#13171b", "link": "#7ab8f5",
    "good": "#5fcb8b", "bad": "#ff8a80", "warn": "#f0b94a", "info": "#9aa5ae",
}  # fmt: skip
LINES = ("#0e30cf", "#db6c09", "#00a478", "#9270ae", "#9c6a37", "#4777ff", "#823236", "#504761")
DARK_LINES = ("#8276ff", "#f19756", "#32f8a6", "#af73ad", "#f0d228", "#98c9ff", "#e14e6d", "#bfc3c7")
COLOURS = len(LINES)
# dark violet over blue and green to yellow, even in lightness: Matplotlib's viridis, nine of its colours
RAMP = ("#440154", "#472c7a", "#3b518b", "#2c718e", "#21908d", "#27ad81", "#5cc863", "#aadc32", "#fde725")
NOT_FINITE = "#e41a80"  # a cell of a heat map

Rgb = tuple[int, int, int]


def rgb(colour: str) -> Rgb:
    """`#0e30cf` as (14, 48, 207)."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def variables(names: dict[str, str], lines: tuple[str, ...]) -> str:
    """A theme as the declarations of a style sheet's variables: `--ink`, …, `--c0` to `--c7`."""
    named = {**names, **{f"c{at}": colour for at, colour in enumerate(lines)}}
    return ";".join(f"--{name}:{colour}" for name, colour in named.items())
