"""The built page's files.

In:   the folder of built files, paths asked for.
Out:  those files, and the page itself for every path of its own router.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph.views.server.answers import error_answer, packed

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

ASSETS = Path(__file__).parents[2] / "assets"
_MEDIA = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon", ".woff2": "font/woff2",
    ".json": "application/json", ".map": "application/json", ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}  # fmt: skip
_NOT_BUILT = b"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Barograph</title></head><body>
<p>The page has not been built. In a clone, with Node.js: <code>cd web && npm ci && node build.mjs</code>.</p>
</body></html>"""


class Page:
    """Serves files of one folder, none outside of it: a path is looked up among those that are there.

    base: the path under which browsers reach them.
    """

    def __init__(self, folder: Path = ASSETS, base: str = ""):
        self._folder, self._base = folder, base
        self._read: dict[str, tuple[Any, bytes, str]] = {}

    def file(self, request: Request, name: str) -> Response:
        """One of the built files."""
        path = self._files().get(name)
        kind = os.path.splitext(name)[1].lower()
        if path is None or kind not in _MEDIA:
            return error_answer(404, f"there is no file {name[:100]!r}")
        return self._answer(request, name, path, _MEDIA[kind])

    def index(self, request: Request) -> Response:
        """The page."""
        path = self._files().get("index.html")
        if path is None:
            return packed(request, _NOT_BUILT, _MEDIA[".html"], 503)
        return self._answer(request, "index.html", path, _MEDIA[".html"])

    def _answer(self, request: Request, name: str, path: str, media: str) -> Response:
        status = os.stat(path)
        seen = status.st_mtime_ns, status.st_size
        known = self._read.get(name)
        if known is None or known[0] != seen:
            content = Path(path).read_bytes()
            if self._base and name == "index.html":
                content = _under(self._base, content)
            known = self._read[name] = seen, content, hashlib.sha256(content).hexdigest()[:20]
        return packed(request, known[1], media, 200, known[2])

    def _files(self) -> dict[str, str]:
        result: dict[str, str] = {}
        _list(str(self._folder), "", result, 2)
        return result


def _under(base: str, content: bytes) -> bytes:
    """The page for a browser that reaches it under a path."""
    path = base.encode()
    content = re.sub(rb'(href|src)="/', rb'\1="' + path + b"/", content)
    return content.replace(b"<head>", b'<head><meta name="barograph-base" content="' + path + b'">', 1)


def _list(folder: str, lead: str, found: dict[str, str], depth: int) -> None:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    found[lead + entry.name] = entry.path
                elif depth and entry.is_dir(follow_symlinks=False):
                    _list(entry.path, f"{lead}{entry.name}/", found, depth - 1)
    except OSError:
        return
