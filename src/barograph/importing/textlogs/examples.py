"""Rows in a page's fenced blocks that are examples: what a guide says one will or should see.

In:   the text of a Markdown page: `**Symptoms:**` and below it a block of a few lines between rows of ticks, or set in.
Out:  the same text, in which the lines of such a block are empty.

A block of more than a dozen lines is taken for a log whatever stands above it.
"""

from __future__ import annotations

from barograph.core.patterns import expression

_LONGEST = 12  # lines of an example
_ABOVE = 2  # lines with words above a block that may announce it
_FENCE = expression(rb"\s{0,8}```")
_INDENTED = expression(rb"(?: {4}|\t)\s*\S")
_HEADED = expression(rb"(?m)^#{1,4} [A-Z]")
_ANNOUNCED = expression(
    rb"(?i)\bsymptoms?\b|\bexpected (?:\w+ ){0,2}(?:output|logs?|results?|training|loss|losses|curve|progress)\b|"
    rb"\b(?:example|sample|typical)s? (?:\w+ ){0,2}(?:output|logs?|run|metrics|curve|progress)\b|"
    rb"\boutput (?:example|format)\b|(?:un)?healthy (?:run|training|log|loss|curve)\b|"
    rb"\b(?:you(?:'ll| will| should| would| might| may)|should|will) (?:see|look|get)\b"
)


def may_be_in(text: bytes) -> bool:
    """Whether a text has a block of Markdown."""
    return b"```" in text or (b"# " in text and b":\n    " in text and _HEADED.search(text) is not None)


def left_out(text: bytes) -> bytes:
    """A text without the lines of blocks that are announced as examples."""
    lines = text.split(b"\n")
    if b":\n    " in text and _HEADED.search(text):
        _without_indented(lines)
    above: list[bytes] = []
    begin = -1  # of the block that is open
    for index, line in enumerate(lines):
        if not _FENCE.match(line):
            if begin < 0 and line.strip():
                above = [*above, line][-_ABOVE:]
        elif begin < 0:
            begin = index
        else:
            if index - begin - 1 <= _LONGEST and any(len(said) < 400 and _ANNOUNCED.search(said) for said in above):
                lines[begin + 1 : index] = [b""] * (index - begin - 1)
            begin, above = -1, []
    return b"\n".join(lines)


def _without_indented(lines: list[bytes]) -> None:
    """Leave out blocks that are set in, right below a line that ends with a colon and announces them."""
    begin = -1
    for index, line in enumerate([*lines, b"end"]):
        if _INDENTED.match(line):
            begin = index if begin < 0 else begin
        elif begin >= 0:
            above = lines[begin - 1].rstrip() if begin else b""
            announced = above.endswith(b":") and len(above) < 400 and _ANNOUNCED.search(above)
            if announced and index - begin <= _LONGEST:
                lines[begin:index] = [b""] * (index - begin)
            begin = -1
