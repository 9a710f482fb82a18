"""Lines that are a program's text, its settings or its commands, and hold no row.

In:   a line.
Out:  whether it is one.
"""

from __future__ import annotations

import re

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms
from barograph.importing.textlogs.measures import MEASURE, OF

_BEST = expression(  # the best so far, which was measured at another step
    rb"(?i)\W{0,8}(?:new )?(?:(?:best|lowest|minimum|highest)(?: so far)? " + OF + MEASURE + rb"(?![a-z_])"
    rb"|best (?:epoch|step|iteration)[ :=#]{1,3}\d)"
)
_ANNOUNCED = expression(  # a row below that says again what was the best: `Best iteration is:`
    rb"(?i)[^\n]{0,120}\b(?:best|lowest|highest) [a-z ]{1,40}?(?: is| was)?:[ \t]{0,8}\r?$"
)
_WHEN = expression(rb"(?i)(?<![a-z])(?:from|by|until|since|before|within) (?:step|epoch|iter(?:ation)?) \d")
_RAISED = expression(rb"\s{0,20}(?:\w{1,40}\.){0,6}[A-Z]\w{2,60}Error: |ERROR: Loss is (?:NaN|-?Inf)")  # Julia's too
_CALL = expression(rb"\w\((?:[^()\"'\n]{0,80}[\[,] ?|[\[{]? ?)[rbf]?[\"']")
_STATEMENT = expression(rb"\s*(?:assert|return|print)\b")
_COMMAND = expression(
    rb"(?:^|[\s:\]/])(?:python\d?|torchrun|accelerate|deepspeed)(?:\.\d{1,2})?\s\S[^\n]{0,4000}?\s--?[A-Za-z]"
)
_TEXT = expression(rb"\s*(?:(?:const |let |var )?\w{1,40} = [rbf]?[\"'`]|\{ ?\w{1,40}: ?[\"'`])")  # `line = "epoch 5`
SETTINGS = expression(  # a printed object, TrainingArguments(output_dir=…, …); not one of a step: Metrics(step=7, …)
    rb"(?<!\w)\w{0,40}?(?i:config|arguments|args|settings|options|params)\w{0,40}\(\w{1,60}=|"
    rb"[A-Z]\w{2,60}\((?!(?:global_)?(?:step|iteration|epoch)=\d)\w{1,60}="
)
WARNED = expression(  # Python's, behind a row that ends without a line: `loss 2.31 || /a/b.py:7: UserWarning: …`
    rb"(?:(?<=[\s|,;:\d])/[^\s:]{1,300}\.py|<[\w. -]{1,60}>):\d{1,7}: [A-Z]\w{0,60}Warning: "
)
_CODE = expression(rb"\s*(?:def|class|if|elif|else|for|while|import|from|assert|with|@)\b.*:\s*$")
_VALUE = expression(rb"(?i)(?:loss|acc(?:uracy)?|reward|return)(?:\s{0,4}[:=]\s{0,4}|\s)-?\d")
_PROSE = expression(
    rb"[{}\"']|;\s*$|(?<!=)==(?![=>])|\w\(|"
    rb"\b(?:best|weights?|threshold|target|patience|improved|from|default|diverged|improving|improves|stopping|terminating)\b",
    re.I,
)
_NOTE = expression(rb"\([^()]{0,80}\)|\{[\dT:., -]{1,40}\}")  # `(best 2.1)`, `{12:00:07}`
_SO_FAR = expression(  # `acc: 0.45, loss: 1.2 || best loss: 1.1`: behind a value, not behind a sentence
    rb"(?i)(?<=[\d%])\s{0,4}(?:[|;,]|\|\|)\s{0,4}best[ _-][a-z _-]{1,30}(?:[:=]\s{0,4}|(?<= ))" + forms.NUMBER
)
LAST_BEST = expression(  # the same without a sign between, behind all else: `loss 1.2, Best Loss 1.1`
    rb"(?i)(?<=[\d%])\s{0,4}[|;,]\s{0,4}best[ _-][a-z _-]{1,30}(?<= )" + forms.NUMBER + rb"\s{0,8}$"
)
_OF_BATCHES = expression(rb"\s{0,8}\d{1,12} ?/ ?\d{1,12} ?[:|,-]")  # `17 / 178 : loss = 2.31;`
_WIDEST = 4000  # bytes of a line that are looked at


def is_of_the_best(line: bytes) -> bool:
    """Whether a line says the best so far."""
    return b"est" in line and _BEST.match(line) is not None


def announces_best(line: bytes) -> bool:
    """Whether a line says that the row of the best follows."""
    return b"est " in line and line.rstrip().endswith(b":") and _ANNOUNCED.match(line) is not None


def is_one(line: bytes) -> bool:
    """Whether a line is a program's text, settings or a sentence, which hold no row."""
    if line.startswith(b"E   ") or ((b"rror: " in line or b"ERROR: " in line) and _RAISED.match(line)):
        return True  # of pytest, and of an exception
    if len(line) > _WIDEST or _CODE.match(line) or SETTINGS.search(line) or _WHEN.search(line) or _TEXT.match(line):
        return True
    if _BEST.match(line) or (b" --" in line and _COMMAND.search(line)):
        return True
    if b"(" not in line or _CALL.search(line) is None:  # a call with a text in its brackets
        return False
    return line.rstrip().endswith((b")", b");", b"),")) or _STATEMENT.match(line) is not None


def is_prose(line: bytes) -> bool:
    """Whether a line is a sentence or a program's text, but for notes in it and the best so far behind its values."""
    behind = _SO_FAR.search(line) if b"est" in line else None
    if behind is not None and _VALUE.search(line, 0, behind.start()):
        line = line[: behind.start()]
    if line.endswith(b";") and _OF_BATCHES.match(line):
        line = line[:-1]
    return _PROSE.search(_NOTE.sub(b"", line)) is not None
