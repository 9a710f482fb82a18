"""A panel as a still picture.

In:   a panel.
Out:  SVG text that stands alone: no script, no style sheet, no font, nothing loaded. Its ground is its own, so that
it can be read on a light and on a dark page.
"""

from __future__ import annotations

import numpy as np

from barograph.core.text import html, number, short
from barograph.views.draw.chart import ChartAxes, ChartBox, ChartCurve, alone, described
from barograph.views.draw.palette import COLOURS, LIGHT, LINES
from barograph.views.notebook.panels import Panel, PanelLine

BOX = ChartBox(wide=560, high=240, left=62, right=12, top=40, below=26)
_LETTER = 7.2  # pixels of a letter


def picture(panel: Panel) -> str:
    """The panel's chart."""
    return alone(
        [_curve(line, at) for at, line in enumerate(panel.lines)], ChartAxes(panel.along), _heading(panel), BOX
    )


def _curve(line: PanelLine, at: int) -> ChartCurve:
    dots = line.few and (at > 0 or line.points == 1)
    good = np.isfinite(line.low) & np.isfinite(line.high)
    x, low, high = line.x, np.where(good, line.low, np.nan), np.where(good, line.high, np.nan)
    return ChartCurve(short(line.name), x, low, at, "dots" if dots else "line", high, (line.odd, line.odd_values))


def told(panel: Panel) -> str:
    """What the picture shows, in words, for those who can't see it."""
    parts = []
    for at, line in enumerate(panel.lines):
        odd = f", {line.odd_count:,} not finite" if line.odd_count else ""
        words = described([_curve(line, at)]) or short(line.name)
        parts.append(f"{words}, {line.points:,} points, last {number(line.last)}{odd}")
    return f"{short(panel.title)} by {short(panel.along)}. " + "; ".join(parts)


def _heading(panel: Panel) -> str:
    """The series' names with their last values, as many as there is room for."""
    parts, x = [], 12.0
    room = max(12, int((BOX.wide - 24) / _LETTER / max(1, min(4, len(panel.lines)))) - 12)  # letters of a name
    for at, line in enumerate(panel.lines):
        name, last = short(line.name, room), number(line.last)
        odd = f" · {line.odd_count:,} not finite" if line.odd_count else ""
        if x > BOX.wide - 120:
            parts.append(f'<text x="{x:.0f}" y="22" fill="{LIGHT["ink-3"]}">…</text>')
            break
        parts.append(
            f'<circle cx="{x + 4:.0f}" cy="18" r="4" fill="{LINES[at % COLOURS]}"/>'
            f'<text x="{x + 13:.0f}" y="22" fill="{LIGHT["ink"]}" font-weight="600">{html(name)}'
            f'<tspan font-weight="400" fill="{LIGHT["ink-3"]}"> {last}</tspan>'
            f'<tspan fill="{LIGHT["bad"]}">{odd}</tspan></text>'
        )
        x += 26 + _LETTER * (len(name) + len(last) + len(odd) + 1)
    return "".join(parts)
