"""HTML that needs nothing: pictures in it, tables, no script and no style.

In:   what is shown.
Out:  HTML of which a sanitiser has nothing to take away: Jupyter's of an untrusted notebook, a code forge's.
"""

from __future__ import annotations

import base64
import html

from barograph.notebook.sources import ComparisonSource, Source
from barograph.notebook.svg import WIDE, picture, told

BUCKETS = 240  # of a picture that is 480 dots wide inside: each stands for two


def page(source: Source) -> str:
    """The heading, the facts, a picture for each panel."""
    parts = [f"<p><b>{html.escape(source.title())}</b></p>"]
    facts = source.facts()
    if isinstance(source, ComparisonSource):
        parts += [f"<p>{html.escape(said)}</p>" for _, said in facts]
    elif facts:
        parts.append(
            "<p>" + " · ".join(f"{html.escape(key)} <b>{html.escape(said)}</b>" for key, said in facts) + "</p>"
        )
    for panel in source.panels(BUCKETS):
        image = base64.b64encode(picture(panel).encode("utf-8", "replace")).decode()
        words = html.escape(told(panel), quote=True)
        parts.append(f'<img width="{WIDE}" alt="{words}" src="data:image/svg+xml;base64,{image}">')
    if isinstance(source, ComparisonSource):
        heads, rows = source.table()
        if rows:
            top = "".join(f"<th>{html.escape(one)}</th>" for one in heads)
            body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
            parts.append(f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>")
    return "<div>" + "".join(parts) + "</div>"
