"""Words that say which data a line's numbers are about.

In:   a line.
Out:  where it says training, validation or test, and which of them a place in it is about.
"""

from __future__ import annotations

import re

from barograph.core.patterns import expression

PHASE = expression(
    rb"(?<![A-Za-z])(?<![a-z0-9]_(?=test: [A-Z]))(?i:(val|valid|validation|validate|validating|"
    rb"eval|evaluation|evaluator|evaluating|validator|dev|h[eo]ld[-_ ]?out|"
    rb"(?-i:VA|CV))|(test|testing)|train(?:ing)?)(?:_(?:summary|results?|stats|metrics|report)(?=\s?[:\[|]))?"
    rb"(?![A-Za-z_/-]|\.\S|[ ](?i:episodes?|steps?)[ ]?[:=])"  # `Evaluator Steps = 20` is a count
    rb"(?!\s{0,4}[:=]\s{0,4}(?i:[-+]?\d{0,6}\.\d|n/?a\b|none\b|nan\b))|"
    rb"(\xe9\xaa\x8c\xe8\xaf\x81)|(\xe6\xb5\x8b\xe8\xaf\x95)"  # validation and test in Chinese
)


def phase_of(found: re.Match[bytes]) -> str:
    """ "val", "test", or "" for a word that says training."""
    return "val" if found[1] or found[3] else "test" if found[2] or found[4] else ""


def phases_of(words: list[re.Match[bytes]]) -> list[tuple[int, str]]:
    """Where words for data stand, and which they say; `Test: evaluation` is about the test."""
    phases: list[tuple[int, str]] = []
    for found in words:
        phase = phase_of(found)
        if phase == "val" and phases and phases[-1][1] and (found[1] or b"").lower().startswith(b"eval"):
            phase = phases[-1][1]
        phases.append((found.start(), phase))
    return phases


def phase_at(phases: list[tuple[int, str]], place: int, alone: bool) -> str:
    """Which data a measure is about: what the last such word before it says, or, where they stand alone, the only one
    of its line."""
    if alone and len({phase for _, phase in phases}) == 1:
        return phases[0][1]
    return next((phase for at, phase in reversed(phases) if at <= place), "")
