"""What stands for no number, or for none that is finite, as some programs and systems write it, as others do.

In:   `loss=nan.0`, `Loss: nan.08`, `ce = 1.#QNAN000`, `loss = -1.#IND`, `avg loss -nan(ind)`, `error: 1.#INF00`.
Out:  `loss=nan`, `Loss: nan`, `ce = nan`, `loss = nan`, `avg loss nan`, `error: inf`.
"""

from __future__ import annotations

import re

from barograph.core.patterns import expression

_WITH_DIGITS = expression(  # as Lightning's bar writes them, and behind which digits of a longer number are left over
    rb"(?<![A-Za-z_])(nan|inf)\.\d{1,15}(?![\w.])"
)
_WINDOWS = expression(  # Microsoft's C library, the older one and the newer one
    rb"(?<![\w.])([-+]?)(?:1\.#(?:(QNAN|SNAN|IND)|INF)\d{0,15}|(nan)\((?:ind|snan)\))(?![\w.])"
)


def spelled_out(text: bytes) -> bytes:
    """A text with `nan` and `inf` for such words; as long as none of them is in it, the same text."""
    if b"nan." in text or b"inf." in text:
        text = _WITH_DIGITS.sub(rb"\1", text)
    return _WINDOWS.sub(_said, text) if b"1.#" in text or b"nan(" in text else text


def _said(found: re.Match[bytes]) -> bytes:
    return b"nan" if found[2] or found[3] else found[1] + b"inf"
