"""A page as one HTML file that opens from the disk with the network off.

In:   its title and body; the script that makes its charts zoom, if there is one, and that script's data.
Out:  the file's text.

The page may load nothing and run nothing but its own script and style, which its policy names by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from barograph.core.text import html
from barograph.views.draw.style import STYLE


def page(
    title: str, body: str, *, subtitle: str = "", notice: str = "", nav: str = "", foot: str = "",
    code: str | None = None, data: Any = None,
) -> str:  # fmt: skip
    """The whole file. title, subtitle, notice, foot: plain words. body, nav: HTML. code, data: of the script."""
    policy = "; ".join((
        "default-src 'none'",
        f"style-src '{_hash(STYLE)}'",
        f"script-src '{_hash(code)}'" if code else "script-src 'none'",
        "img-src data:", "base-uri 'none'", "form-action 'none'",
    ))  # fmt: skip
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{html(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
        '<a class="skip" href="#main">Skip to the content</a>' if nav else "",
        f'<header class="top"><h1>{html(title)}</h1>'
        + (f'<p class="subtitle">{html(subtitle)}</p>' if subtitle else "")
        + (f'<p class="warn">{html(notice)}</p>' if notice else "")
        + "</header>",
        nav,
        f'<main id="main">\n{body}\n</main>',
        f"<footer><p>{html(foot)}</p></footer>" if foot else "",
    ]
    if code:
        parts.append(f'<script type="application/json" id="data">{_json(data)}</script>')
        parts.append(f'<script type="module">{code}</script>')
    return "\n".join(part for part in parts if part) + "\n</body>\n</html>\n"


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _json(value: Any) -> str:
    """JSON that can't end the element around it."""
    content = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return content.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
