"""Addresses of targets, without their secrets.

In:   an address such as `slack://token/token/token`, or a text in which parts of one may stand.
Out:  what may be shown and kept of it.

A password, a token, a topic may stand anywhere in an address. So nothing of it is shown but its kind, and its
host where the kind has one and it is certain.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

_WITH_HOST = frozenset({"json", "jsons", "xml", "xmls", "form", "forms", "http", "https", "mailto", "mailtos"})
_HOST = re.compile(r"[A-Za-z0-9.-]+(:\d{1,5})?(?=[/?#]|$)")
_SHORTEST = 4  # letters of a part that is a secret, perhaps
HIDDEN = "****"


def masked(address: str) -> str:
    """The address for people: `json://localhost:8080/****`, `slack://****`, `****` for what is none."""
    kind, found, rest = address.strip().partition("://")
    if not found or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]{0,30}", kind):
        return HIDDEN
    if kind.lower() in _WITH_HOST:
        before, at, after = rest.partition("@")
        if at and (re.search(r"[/?#]", before) or "@" in after):  # whose `@` it is can't be determined
            return f"{kind}://{HIDDEN}"
        host = _HOST.match(after if at else rest)
        if host is not None:
            return f"{kind}://{host[0]}/{HIDDEN}"
    return f"{kind}://{HIDDEN}"


def scrubbed(text: str, address: str) -> str:
    """The text with every part of the address hidden, but for what `masked` shows."""
    open_parts = set(re.split(r"[^\w.-]+", masked(address)))
    rest = address.partition("://")[2]
    parts = {part for form in (rest, unquote(rest)) for part in (form, *re.split(r"[/?#&=:@,;\s]+", form))}
    parts |= {piece for part in parts for piece in re.split(r"[^\w.-]+", part)}
    for part in sorted(parts - open_parts, key=len, reverse=True):
        if len(part) >= _SHORTEST:
            text = text.replace(part, HIDDEN)
    return text
