"""A learning rate or a norm of the gradient on a line of its own, above or below the rows of a step.

In:   `12:00:07: Current learning rate: 0.0098`, `lr: [0.0002]`, `Adjusting learning rate of group 0 to 1.0e-04.`;
      `| > grad_norm_0: 71.2 (27.3)`.
Out:  the number, as a row that says no step; whether names are those of such a row.
"""

from __future__ import annotations

from collections.abc import Iterable

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms

_RATE = expression(
    rb"(?i)(?<![\w./-])(?:cur(?:rent)?_)?(?:learning[ _]rate|lr)(?:_\d)?(?: of (?:param(?:eter)? )?group \d)?"
    rb"(?:\s{0,4}(?:[:=]|is|to|now|->|\|)){0,2}\s{0,40}\[?(" + forms.NUMBER + rb")\]?\.?[ \t]{0,40}\r?$"
)
_AHEAD = expression(  # what a logger writes first, and words that say nothing
    rb"(?i)(?:[\W\d_]{0,60}|[^\n]{1,120}[\]:|>-]\s{1,8}|[^\n]{0,120}\d\s{1,8})"
    rb"(?:(?:the|current|new|next|now|using|updat(?:ed|ing)|adjust(?:ed|ing)|reduc(?:ed|ing)|decay(?:ed|ing)|"
    rb"set(?:ting)?|chang(?:ed|ing))\s){0,3}"
)
_NORM = expression(
    rb"(?i)(?<![\w./-])((?:total[_ ]|global[_ ])?grad(?:ient)?[_ ]norm(?:_\d)?)\s{0,4}[:=]\s{0,40}(" + forms.NUMBER
    + rb")(?:\s{1,4}\(" + forms.NUMBER + rb"\))?[ \t]{0,40}\r?$"
)  # fmt: skip
_OF_NORM = expression(r"(?i)(?:total[_ ]|global[_ ])?grad(?:ient)?[_ ]norm(?:_\d)?")
NAME = "lr"


def row(line: bytes) -> forms.Parsed | None:
    """A line that says a learning rate or a norm and nothing else. Settings look alike: it counts below what says a
    step."""
    if b"orm" in line and (norm := _NORM.search(line, 0, 400)) and _AHEAD.fullmatch(line, 0, norm.start()):
        return norm.start(), None, (norm[1].decode(),), (norm[2],), False
    found = _RATE.search(line, 0, 400)
    if found is None or not (b"." in found[1] or b"e" in found[1]) or not _AHEAD.fullmatch(line, 0, found.start()):
        return None
    return found.start(), None, (NAME,), (found[1],), False


def are_alone(names: Iterable[str]) -> bool:
    said = [*names]
    return said == [NAME] or (len(said) == 1 and _OF_NORM.fullmatch(said[0]) is not None)
