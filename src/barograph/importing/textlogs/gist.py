"""What a text has in it, in little: of lines that differ in their digits alone, one.

In:   a text of thousands of rows.
Out:  a few lines, in which whatever is in no line of the text is not found either.

A log repeats itself: what is looked for and hardly ever there (an error, a heading, a table) is looked for here first.
"""

from __future__ import annotations

_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_last: tuple[bytes, bytes] = (b"", b"")  # a text, and its gist: several ask for one text's in turn


def gist(text: bytes) -> bytes:
    """The lines of a text with each digit as 0, each of them once, in their order."""
    global _last
    before, found = _last
    if before is not text:
        found = b"\n".join(dict.fromkeys(text.translate(_DIGITS).split(b"\n")))
        _last = text, found
    return found


def shape(word: bytes) -> bytes:
    """A word as a gist has it."""
    return word.translate(_DIGITS)
