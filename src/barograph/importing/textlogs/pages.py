"""Text out of HTML pages that have a log inside.

In:   pieces of a page.
Out:  pieces without tags, scripts and styles, with entities as the letters they stand for. True line breaks stay as
      they are; where a tag begins a line, there is a carriage return, which ends a line without counting as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from barograph.core.lazy import lazy
from barograph.core.patterns import expression

if TYPE_CHECKING:
    import html
else:
    html = lazy("html")

_BEGINS = expression(
    rb"(?i)\s{0,64}(?:\xef\xbb\xbf)?\s{0,64}(?:<!doctype html|<html|<\?xml[^>]{0,200}\?>\s{0,8}<!doctype html)"
)
_SILENT = expression(rb"(?i)<(script|style)\b[^>]{0,2000}>.*?</\1\s{0,8}>|<!--.*?-->", re.S)
_CELL = expression(rb"(?i)</t[dh]\s{0,8}>")
_LINE = expression(rb"(?i)<(?:br\s{0,8}/?|/(?:p|div|tr|li|pre|h[1-6]))\s{0,8}>")
_TAG = expression(rb"<[/!?a-zA-Z][^<>]{0,4000}>")
_ENTITY = expression(rb"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z]{2,24});")


def is_page(head: bytes) -> bool:
    """Whether a file begins as an HTML page does."""
    return _BEGINS.match(head[:1024]) is not None


def text_of(pieces: Iterable[bytes], longest: int) -> Iterator[bytes]:
    """Whole lines of a page as text; a line is no longer than `longest` bytes."""
    rest = b""
    for piece in pieces:
        rest += piece
        cut = rest.rfind(b"\n") + 1 or (len(rest) if len(rest) > longest else 0)
        if cut:
            yield plain(rest[:cut])
            rest = rest[cut:]
    if rest:
        yield plain(rest)


def plain(text: bytes) -> bytes:
    """A text without tags, with its entities as letters."""
    text = _SILENT.sub(lambda found: b"\n" * found[0].count(b"\n"), text)
    text = _LINE.sub(b"\r", _CELL.sub(b"\t", text))
    text = _TAG.sub(lambda found: b"\n" * found[0].count(b"\n"), text)
    return _ENTITY.sub(_letter, text)


def _letter(found: re.Match[bytes]) -> bytes:
    letter = html.unescape(found[0].decode("ascii"))
    return b" " if letter in ("\xa0", "\n", "\r") else letter.encode("utf-8", "replace")
