"""A learning rate on a line of its own, as programs print it above or below the rows of a step.

In:   `12:00:07: Current learning rate: 0.0098`, `lr: [0.0002]`, `Adjusting learning rate of group 0 to 1.0e-04.`
Out:  the rate, as a row that says no step; whether names are those of such a row.
"""

from __future__ import annotations

from collections.abc import Iterable

from barograph.importing.textlogs import forms
from barograph.importing.textlogs.patterns import expression

_RATE = expression(
    rb"(?i)(?<![\w./-])(?:cur(?:rent)?_)?(?:learning[ _]rate|lr)(?:_\d)?(?: of (?:param(?:eter)? )?group \d)?"
    rb"(?:\s{0,4}(?:[:=]|is|to|now|->|\|)){0,2}\s{0,40}\[?(" + forms.NUMBER + rb")\]?\.?[ \t]{0,40}\r?$"
)
_AHEAD = expression(  # what a logger writes first, and words that say nothing
    rb"(?i)(?:[\W\d_]{0,60}|[^\n]{1,120}[\]:|>-]\s{1,8}|[^\n]{0,120}\d\s{1,8})"
    rb"(?:(?:the|current|new|next|now|using|updat(?:ed|ing)|adjust(?:ed|ing)|reduc(?:ed|ing)|decay(?:ed|ing)|"
    rb"set(?:ting)?|chang(?:ed|ing))\s){0,3}"
)
NAME = "lr"


def row(line: bytes) -> forms.Parsed | None:
    """A line that says a learning rate and nothing else. Settings look alike: it counts below what says a step."""
    found = _RATE.search(line, 0, 400)
    if found is None or not (b"." in found[1] or b"e" in found[1]) or not _AHEAD.fullmatch(line, 0, found.start()):
        return None
    return found.start(), None, (NAME,), (found[1],), False


def are_alone(names: Iterable[str]) -> bool:
    return [*names] == [NAME]
