"""HTML that needs nothing: pictures in it, tables, no script and no style.

In:   what is shown.
Out:  HTML of which a sanitiser has nothing to take away: Jupyter's of an untrusted notebook, a code forge's.
"""

from __future__ import annotations

import base64

from barograph.core.text import html
from barograph.views.draw.table import as_html
from barograph.views.notebook.sources import ComparisonSource, PanelSource
from barograph.views.notebook.svg import BOX, picture, told

BUCKETS = 240  # of a picture that is 480 dots wide inside: each stands for two


def page(source: PanelSource) -> str:
    """The heading, the facts, a picture for each panel."""
    parts = [f"<p><b>{html(source.title())}</b></p>"]
    facts = source.facts()
    if isinstance(source, ComparisonSource):
        parts += [f"<p>{html(said)}</p>" for _, said in facts]
    elif facts:
        parts.append("<p>" + " · ".join(f"{html(key)} <b>{html(said)}</b>" for key, said in facts) + "</p>")
    for panel in source.panels(BUCKETS):
        image = base64.b64encode(picture(panel).encode("utf-8", "replace")).decode()
        words = html(told(panel))
        parts.append(f'<img width="{BOX.wide}" alt="{words}" src="data:image/svg+xml;base64,{image}">')
    if isinstance(source, ComparisonSource):
        heads, rows = source.table()
        if rows:
            parts.append(as_html(heads, rows, scope=""))
    return "<div>" + "".join(parts) + "</div>"
