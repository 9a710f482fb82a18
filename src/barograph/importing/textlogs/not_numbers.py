"""What stands for no number, or for none that is finite, as some programs and systems write it, as others do.

In:   `loss=nan.0`, `ce = 1.#QNAN000`, `loss = -1.#IND`, `avg loss -nan(ind)`, `error: 1.#INF00`.
Out:  `loss=nan`, `ce = nan`, `loss = nan`, `avg loss nan`, `error: inf`.
"""

from __future__ import annotations

import re

from barograph.core.patterns import expression

_WINDOWS = expression(  # Microsoft's C library, the older one and the newer one
    rb"(?<![\w.])([-+]?)(?:1\.#(?:(QNAN|SNAN|IND)|INF)\d{0,15}|(nan)\((?:ind|snan)\))(?![\w.])"
)


def spelled_out(text: bytes) -> bytes:
    """A text with `nan` and `inf` for such words; as long as none of them is in it, the same text."""
    if b"nan.0" in text or b"inf.0" in text:  # as Lightning's bar writes them
        text = text.replace(b"nan.0", b"nan").replace(b"inf.0", b"inf")
    return _WINDOWS.sub(_said, text) if b"1.#" in text or b"nan(" in text else text


def _said(found: re.Match[bytes]) -> bytes:
    return b"nan" if found[2] or found[3] else found[1] + b"inf"
