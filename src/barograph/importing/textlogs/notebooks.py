"""What the cells of a Jupyter notebook have printed.

In:   pieces of an `.ipynb` file.
Out:  pieces of text: each string of an output stands on its own line of the file, all other lines are empty, so that
      lines keep their numbers; of a notebook written on one line, the outputs' text alone. Tables in HTML have a
      carriage return behind each row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from barograph.core.patterns import expression
from barograph.importing.textlogs import pages

_BEGINS = expression(rb"\s{0,64}(?:\xef\xbb\xbf)?\s{0,64}\{\s{0,64}\"(?:cells|metadata|nbformat)\"\s{0,8}:")
_SAYS = expression(rb"\"(?:cell_type|nbformat(?:_minor)?|kernelspec|cells)\"")
_OPENS = expression(rb"\s{0,64}\"(text|text/plain|text/html|traceback)\"\s?:\s?\[\s*$")
_STRING = expression(rb"\s{0,64}(\".*\"),?\s*$")
_CLOSES = expression(rb"\s{0,64}\],?\s*$")
_WIDE = 1 << 16  # bytes of a line that may be an output's
_WHOLE = 1 << 26  # bytes of a notebook on one line
_TEXTS = ("text/html", "text/plain")


def is_notebook(head: bytes) -> bool:
    """Whether a file begins as a notebook does."""
    return _BEGINS.match(head[:256]) is not None and _SAYS.search(head[:4096]) is not None


def text_of(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The outputs' text, whole lines at a time."""
    waiting, kind, held = list[bytes](), b"", list[bytes]()
    for piece in parts:
        waiting.append(piece)
        if b"\n" not in piece:  # a picture, or a notebook on one line
            if sum(map(len, waiting)) > _WHOLE:
                return
            continue
        rest = b"".join(waiting)
        cut = rest.rfind(b"\n") + 1
        found = []
        for line in rest[:cut].split(b"\n")[:-1]:
            text, kind = _line(line, kind, held)
            found.append(text)
        yield b"\n".join(found) + b"\n"
        waiting = [rest[cut:]]
    rest = b"".join(waiting)
    if is_notebook(rest[:4096]):
        yield _all(rest)


def _line(line: bytes, kind: bytes, held: list[bytes]) -> tuple[bytes, bytes]:
    """What a line of the file shows, and which list of strings goes on below it."""
    if not kind:
        found = _OPENS.match(line) if len(line) < _WIDE and line.rstrip().endswith(b"[") else None
        return b"", found[1] if found else b""
    if _CLOSES.match(line):
        table = pages.plain(b"".join(held)) if kind == b"text/html" else b""
        held.clear()
        return table, b""
    found = _STRING.match(line) if len(line) < _WIDE else None
    if found is None:
        return b"", kind
    try:
        text = str(json.loads(found[1])).encode("utf-8", "replace")
    except ValueError:
        return b"", kind
    if kind == b"text/html":
        held.append(text.replace(b"\n", b" "))
        return b"", kind
    return text.removesuffix(b"\n").replace(b"\n", b"\r"), kind


def _all(content: bytes) -> bytes:
    """The outputs' text of a notebook on one line."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return b""
    texts: list[str] = []
    cells = document.get("cells") if isinstance(document, dict) else None
    for cell in cells if isinstance(cells, list) else ():
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for output in outputs if isinstance(outputs, list) else ():
            if isinstance(output, dict):
                texts += _said(output)
    return "\n".join(texts).encode("utf-8", "replace") + b"\n" if texts else b""


def _said(output: dict[str, Any]) -> Iterator[str]:
    data = output.get("data")
    data = data if isinstance(data, dict) else {}
    for lines in (output.get("text"), *map(data.get, _TEXTS)):
        if lines:
            text = "".join(map(str, lines)) if isinstance(lines, list) else str(lines)
            if lines is data.get("text/html"):
                text = pages.plain(text.replace("\n", " ").encode()).decode("utf-8", "replace").replace("\r", "\n")
            yield text
    if isinstance(output.get("traceback"), list):
        yield "\n".join(map(str, output["traceback"]))
