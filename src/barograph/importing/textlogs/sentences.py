"""Lines in which somebody writes about a training, and no program prints one.

In:   a line that says a step and a loss.
Out:  whether it is a sentence: `I got a loss of 0.35 after epoch 3, but it stood still`.
"""

from __future__ import annotations

from barograph.core.patterns import expression

_SPOKEN = expression(  # of somebody who writes about a training, not of a program that prints one
    rb"(?i)(?<![\w./=:'-])(?:i|i'm|we|my|our|you|your|should|would|could|can|cannot|might|have|has|had|got|get|getting|but|"
    rb"because|however|seems?|why|how|if|when|very|still|now|don't|doesn't|didn't|isn't|won't|then|which|these|those|"
    rb"that|compared|shows?|fix(?:es|ed)?)(?![\w./=:-])"
)
_LINKS = expression(
    rb"(?i)(?<![\w./=:-])(?:the|a|an|is|are|was|of|to|at|in|on|and|by|for|with|from|as|it|be)(?![\w./=:-])"
)
_STOPS = expression(rb"[A-Za-z\d]\.(?:\s*$|\s[A-Z][a-z])")
_TOLD = expression(  # in a list of changes or of what one has to do, in a script, in a server's log
    rb"(?i)\(#\d{2,6}\)|^\s*[-*] \[[ x]\] |^echo |\bHTTP/\d|"
    rb"^\s*(?:\d{1,2}\.\s*)?step \d{1,2}:\s{1,3}(?:set|run|install|use|open|click|repeat|make|"
    rb"create|add|download|choose|select|start|check|copy|change|enter|go|load|write)\b"
)
_LINKED = 5  # short words of a line that make it a sentence, where it ends as one
_WIDEST = 4000  # bytes of a line that are looked at


def is_spoken(line: bytes) -> bool:
    """Whether somebody speaks: by two words or more that no program prints in a row, or from a list or a script."""
    return (
        len({found[0].lower() for found in _SPOKEN.finditer(line, 0, _WIDEST)}) > 1
        or _TOLD.search(line, 0, _WIDEST) is not None
    )


def is_one(line: bytes) -> bool:
    """Whether somebody speaks, or the line ends as a sentence does (as some programs' lines do that recur)."""
    if is_spoken(line):
        return True
    return _STOPS.search(line, 0, _WIDEST) is not None and len(_LINKS.findall(line, 0, _WIDEST)) >= _LINKED
