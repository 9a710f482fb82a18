"""Several numbers behind one name, as numbers that have names of their own.

In:   `Reward: mean=3.1, min=1.9, max=4.2, std=0.4`, `loss (mean: 2.31, std: 0.2)`;
      `Loss:(yaw, roll)/(2.31, 0.4)`; `Loss is (Loss: 231.0, count: 100, Average Loss: 2.31)`, as BigDL evaluates;
      `cross_entropy = 2.31, rate = 0.1` and below it `loss = 2.9, step = 100`, as TensorFlow's hooks print them;
      `Train Loss: epoch 2.31 - batch 2.2`, as Burn shows a metric over the epoch and of the last batch.
Out:  `Reward_mean: 3.1, Reward_min: 1.9, Reward_max: 4.2, Reward_std: 0.4`;
      `yaw_Loss: 2.31, roll_Loss: 0.4`; `val loss: 2.31`;
      `loss = 2.9, step = 100, cross_entropy = 2.31, rate = 0.1`;
      `Train Loss: 2.31`, below the line that counts, which Burn shows behind its metrics.
"""

from __future__ import annotations

import re
from typing import Any

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms

_KINDS = rb"(?:mean|avg|average|median|min|max|std)"
_MOMENTS = expression(
    rb"(?i)(?<![\w./-])((?:[a-z]{1,20}[_ ]){0,2}(?:loss|rewards?|returns?|score|acc(?:uracy)?))"
    rb"(?:\s?:\s{1,4}|\s?:?\s{0,4}[(\[]\s?)(" + _KINDS + rb"\s?[:=]\s{0,4}" + forms.NUMBER
    + rb"(?:(?:,\s?|\s{1,4}|\s?\|\s?)" + _KINDS + rb"\s?[:=]\s{0,4}" + forms.NUMBER + rb"){1,6})(?:\s?[)\]])?"
)  # fmt: skip
_ONE = expression(rb"(?i)(" + _KINDS + rb")\s?[:=]\s{0,4}(?=" + forms.NUMBER + rb")")
_OF_EPOCH = expression(  # Burn's: the mean so far, and the last batch's
    rb"^(\W{0,8}(?:Train|Valid) [A-Z][\w ]{0,40}): epoch (" + forms.NUMBER + rb") ?(%?) - batch " + forms.NUMBER
    + rb" ?%?\s*$"
)  # fmt: skip
_SCREEN = expression(  # of Burn: metrics, and below them how far it has come
    rb"(?m)^\[Metrics\]([ \t]{0,8}\n(?:[ \t]{1,8}- [^\n]{1,200}\n){1,40}\n?\[Progress\][ \t]{0,8}\n)"
    rb"([ \t]{1,8}- Iteration \d{1,12} Epoch \d{1,9}(?:/\d{1,9})?)(?=[ \t]{0,8}$)"
)

_NAMED = rb"[A-Za-z][\w/.-]{0,60} = " + forms.NUMBER
_TOOK = rb" \(\d{1,9}\.\d{1,9} sec\)"
_TENSORS = expression(  # of a hook that prints ahead of the one that says the step; the first time without the seconds
    rb"(?m)^([^\n=]{0,160}?)(?<![\w./-])((?:" + _NAMED + rb", ){0,15}(?!step )" + _NAMED + rb")(?P<first>" + _TOOK
    + rb")?\r?\n([^\n=]{0,160}?\bloss = " + forms.NUMBER + rb", step = \d{1,15})(?P<second>" + _TOOK + rb")?(?=\r?$)"
)  # fmt: skip

_EACH = expression(  # names in brackets, and as many numbers in others
    rb"(?<![\w./-])([A-Za-z]\w{0,20})\s?[:=]?\s?\(((?:[A-Za-z]\w{0,20},\s?){1,11}[A-Za-z]\w{0,20})\)\s?[/:=]\s?\(\s?("
    + forms.NUMBER + rb"(?:,\s?" + forms.NUMBER + rb"){1,11})\s?\)"
)  # fmt: skip
_TOTAL = expression(rb"(?<![\w./-])[Tt]ot:(?=\s?" + forms.NUMBER + rb")")  # of a bar without any loss by that name
_EVALUATED = expression(  # of BigDL: sums, how many, and what matters
    rb"\b(?:(Loss) is \(Loss: " + forms.NUMBER + rb", count: \d{1,15}, Average Loss|"
    rb"Top([15])Accuracy is Accuracy\(correct: \d{1,15}, count: \d{1,15}, accuracy): (" + forms.NUMBER + rb")\)"
)


def with_steps(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which what TensorFlow's hook prints ahead of its step has it; own: whether the first one did."""
    if b", step = " not in text:
        return text
    if "hook_ahead" not in own:
        first = _TENSORS.search(text)
        own["hook_ahead"] = bool(first and not first["first"] and not first["second"])
    return _TENSORS.sub(rb"\4, \2\n", text) if own["hook_ahead"] else text


def headed(text: bytes) -> bytes:
    """A text in which what Burn has come to stands ahead of its metrics."""
    return _SCREEN.sub(rb"\2\1", text) if b"[Progress]" in text else text


def apart(line: bytes) -> bytes:
    """A line in which such numbers have their own names; any other line as it is."""
    if b" - batch " in line:
        line = _OF_EPOCH.sub(rb"\1: \2\3", line)
    if b"mean" in line or b"avg" in line or b"average" in line or b"Mean" in line:
        line = _MOMENTS.sub(_named, line)
    if b"ot:" in line and b"%|" in line and b"oss" not in line:
        line = _TOTAL.sub(b"total_loss:", line)
    if b" is (Loss: " in line or b" is Accuracy(" in line:
        line = _EVALUATED.sub(_of_evaluation, line)
    if b")/(" in line or b") / (" in line or b"): (" in line or b") = (" in line:
        line = _EACH.sub(_each, line)
    return line


def _of_evaluation(found: re.Match[bytes]) -> bytes:
    return b"val %s: %s" % (b"top" + found[2] if found[2] else b"loss", found[3])


def _each(found: re.Match[bytes]) -> bytes:
    """`Loss:(yaw, roll)/(2.31, 0.4)` as `yaw_Loss: 2.31, roll_Loss: 0.4`; itself where not each name has a number."""
    names, values = found[2].replace(b",", b" ").split(), found[3].replace(b",", b" ").split()
    if len(names) != len(values):
        return found[0]
    return b", ".join(b"%s_%s: %s" % (name, found[1], value) for name, value in zip(names, values, strict=True))


def _named(found: re.Match[bytes]) -> bytes:
    name = found[1]
    return _ONE.sub(lambda kind: b"%s_%s: " % (name, kind[1]), found[2])
