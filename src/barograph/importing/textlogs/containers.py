"""Lines as a container's runtime or a cloud's collector keeps them: each an object with what was printed in it.

In:   `{"log":"step 10 loss 2.31\\n","stream":"stdout","time":"2025-08-14T12:00:01.118Z"}`, or an object with a
      `textPayload`, a `MESSAGE`, a `message` or a `line`, and without figures of its own.
Out:  `step 10 loss 2.31`.
"""

from __future__ import annotations

import json
import re

from barograph.core.patterns import expression

BEGINS = b'{"log":'
_LINE = expression(
    rb'(?m)^\{"log": ?("(?:[^"\\\n]|\\.){0,16000}"),? ?"stream": ?"std(?:out|err)"(?:, ?"[^{}\n]{0,400})?\}(?=\r?$)'
)


_PAYLOAD = expression(
    rb'(?m)^\{[^{}\n]{0,2000}?"(?:textPayload|MESSAGE|line|message)" ?: ?("(?:[^"\\\n]|\\.){0,16000}")'
    rb"[^\n]{0,4000}\}(?=\r?$)"
)
_KEPT = expression(rb'"(?:textPayload|MESSAGE|line|message)" ?: ?"')
_OWN = expression(
    rb'(?i)(?<!\\)"[^"\n]{0,40}(?:step|loss|epoch|iter|acc)[^"\n]{0,20}" ?: ?-?[\d.]'
)  # figures beside the message


def may_be_in(text: bytes) -> bool:
    """Whether a text begins with such a line."""
    if text.startswith(BEGINS):
        return True
    first = text[:20_000].partition(b"\n")[0] if text.startswith(b"{") else b""
    return _KEPT.search(first) is not None and not any(map(_OWN.search, text[:20_000].split(b"\n")[:9]))


def unwrapped(text: bytes) -> bytes:
    """A text with what was printed in the place of each object."""
    return (_LINE if text.startswith(BEGINS) else _PAYLOAD).sub(_printed, text)


def _printed(found: re.Match[bytes]) -> bytes:
    try:
        said = str(json.loads(found[1]))
    except ValueError:
        return found[0]
    return said.rstrip("\n").replace("\n", " ").encode("utf-8", "replace")
