"""Lines as a container's runtime keeps them: each an object with what was printed in it.

In:   `{"log":"step 10 loss 2.31\\n","stream":"stdout","time":"2025-08-14T12:00:01.118Z"}`.
Out:  `step 10 loss 2.31`.
"""

from __future__ import annotations

import json
import re

from barograph.importing.textlogs.patterns import expression

BEGINS = b'{"log":'
_LINE = expression(
    rb'(?m)^\{"log": ?("(?:[^"\\\n]|\\.){0,16000}"),? ?"stream": ?"std(?:out|err)"(?:, ?"[^{}\n]{0,400})?\}(?=\r?$)'
)


def unwrapped(text: bytes) -> bytes:
    """A text with what was printed in the place of each object."""
    return _LINE.sub(_printed, text)


def _printed(found: re.Match[bytes]) -> bytes:
    try:
        said = str(json.loads(found[1]))
    except ValueError:
        return found[0]
    return said.rstrip("\n").replace("\n", " ").encode("utf-8", "replace")
