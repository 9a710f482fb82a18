"""Rows in a page's fenced blocks that are examples: what a guide says one will or should see.

In:   the text of a Markdown page: `**Symptoms:**` and below it a block of a few lines between rows of ticks.
Out:  the same text, in which the lines of such a block are empty.

A block of more than a dozen lines is taken for a log whatever stands above it.
"""

from __future__ import annotations

from barograph.importing.textlogs.patterns import expression

_LONGEST = 12  # lines of an example
_ABOVE = 2  # lines with words above a block that may announce it
_FENCE = expression(rb"\s{0,8}```")
_ANNOUNCED = expression(
    rb"(?i)\bsymptoms?\b|\bexpected (?:\w+ ){0,2}(?:output|logs?|results?|training|loss|losses|curve|progress)\b|"
    rb"\b(?:example|sample|typical)s? (?:\w+ ){0,2}(?:output|logs?|run|metrics|curve|progress)\b|"
    rb"\boutput (?:example|format)\b|\b(?:you(?:'ll| will| should| would| might| may)|should|will) (?:see|look|get)\b"
)


def left_out(text: bytes) -> bytes:
    """A text without the lines of blocks that are announced as examples."""
    lines = text.split(b"\n")
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
