"""Objects that are printed over several lines, and values that are objects of their own, as rows of one line.

In:   `{` and below it `  "loss": 2.31,`, `  "step": 250` and `}`, as JSON or as Python prints a dictionary;
      `train | step: 250 | output:` and below it `{'loss': 2.31,`, ` 'lr': 0.1}`;
      `INFO: Step 250 took 0.3s` and below it `INFO: {'loss': 2.31,`, ` 'lr': 0.1}`;
      `{"name": "loss", "value": 2.31, "step": 250}`; `name=loss value=2.31`.
Out:  `{ "loss": 2.31, "step": 250 }` in the place of its first line; `"loss": 2.31, "step": 250`; `loss=2.31`.

Only an object that says a single step or epoch and the number of a loss or an accuracy is a row; settings say how many.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from barograph.core.patterns import expression

_MOST = 40  # lines of an object
_LINES = expression(
    rb"(?m)\{[ \t]{0,8}(?:['\"][^{}\n]{0,200})?\n(?:[ \t]{0,40}['\"][^{}\n]{0,200}\n){0,38}"
    rb"[ \t]{0,40}(?:['\"][^{}\n]{0,200})?\}(?=[ \t]{0,8},?[ \t]{0,8}$)"
)
_COUNT = expression(
    rb"(?i)['\"](?:(?:global|train|current|trainer)[_/ ]?)?(?:step|iteration|iter|update|epoch|num_updates)['\"]"
    rb"\s?:\s?\d"
)
_STEP = expression(
    rb"(?i)['\"](?:(?:global|train|current|trainer)[_/ ]?)?(?:step|iteration|iter)['\"]\s?:\s?(\d{1,15})"
)
_MEASURE = expression(
    rb"(?i)['\"][^'\"\n]{0,60}(?:loss|nll|perplexity|ppl|cross_?ent(?:ropy)?|x_?ent|acc(?:uracy)?|reward|cost|mse|mae|bce|"
    rb"(?<![a-z])[cx]e)(?:[_/. -]\w{1,30})?['\"]\s?:\s?[-+]?(?:\d|\.\d|nan|inf)"
)
_NAMED = expression(  # a value a line
    rb"(?<![\w.])(?:name|metric|tag|key)[=:] ?[\"']?([A-Za-z][\w./-]{0,60})[\"']?,? {1,4}value[=:] ?"
    rb"(?=[-+]?(?:\d|nan|inf))"
)
_NAMED_KEYS = expression(
    rb"(['\"])(?:name|metric|tag|key)\1\s?:\s?(['\"])([A-Za-z][^'\"\n]{0,60})\2\s?,\s?\1value\1\s?:\s?(?=[-+]?(?:\d|nan|inf))"
)
_RATE_BELOW = expression(  # of RVC: the step and the rate, without names
    rb"(?m)^([^\n]{0,200}\bTrain Epoch: \d{1,9} \[\d{1,3}%\])(\r?\n[^\n\[]{0,200})"
    rb"\[(\d{1,15}), (\d{1,6}(?:\.\d{1,20})?(?:e-\d{1,3})?)\](?=\s)"
)
_BELOW = expression(  # `train | step: 140 | output:` and below it `{'lr': 0.1,`, ` 'loss': 2.31}`
    rb"(?m)^([^\n{}]{0,200}\b(?i:step|iter(?:ation)?|epoch)s?[ \t]{0,4}[:=][ \t]{0,20}\d{1,15}\b"
    rb"[^\n{}]{0,160}:)[ \t]{0,8}\r?\n"
    rb"([ \t]{0,40}\{[ \t]{0,8}['\"][^{}\n]{0,200}\n(?:[ \t]{0,40}['\"][^{}\n]{0,200}\n){0,38}"
    rb"[ \t]{0,40}(?:['\"][^{}\n]{0,200})?\})(?=[ \t]{0,8}\r?$)"
)
_ONE_OF = rb"['\"][^'\"\n{}]{1,80}['\"]\s?:[ \t]{0,8}[-+]?(?:\d|\.\d|nan|inf)[\w.+-]{0,30}"
_OF_NUMBERS = expression(  # alone, behind what a logger writes first
    rb"(?m)^[^\n{}]{0,160}\{[ \t]{0,8}" + _ONE_OF + rb"(?:,[ \t]{0,4}\r?\n[ \t]{0,40}" + _ONE_OF
    + rb"){1,38},?[ \t]{0,8}\}(?=[ \t]{0,8}\r?$)"
)  # fmt: skip
_UNMARKED = bytes.maketrans(b"{}\"'", b"    ")
_SAYS_STEP = expression(  # and nothing else that counts
    rb"[^\n{}]{0,120}?\b(?i:step|iter(?:ation)?|epoch)s?[ \t:=#]{1,8}\d{1,15}\b(?![ \t]{0,4}[/%])[^\n{}]{0,120}$"
)
_LIST = expression(  # of VITS: losses without names, the step and the rate, below `Train Epoch: 42 [38%]`
    rb"(?m)(?<=[\t :\n])\[((?:\d{1,9}\.\d{3,20}(?:e-\d{1,3})?, ){1,12})(\d{1,15}), "
    rb"(\d{1,3}(?:\.\d{1,20})?(?:e-\d{1,3})?)\](?=[ \t]{0,8}\r?$)"
)
_OPEN = expression(
    rb"\{[ \t]{0,8}(?:['\"][^{}\n]{0,200},[ \t]{0,4})?\r?\n(?:[ \t]{0,40}['\"][^{}\n]{0,200},[ \t]{0,4}\r?\n){0,38}"
    rb"(?:[ \t]{1,40}['\"][^{}\n]{0,200}\n)?$"
)


def on_one_line(text: bytes, own: dict[str, Any]) -> bytes:
    """A text with as many lines, in which each row's object is on one; own: whether there were several before."""
    if b"value" in text:
        text = _NAMED_KEYS.sub(rb"\1\3\1: ", _NAMED.sub(rb"\1=", text))
    if b"Train Epoch: " in text and b"%]" in text:
        text = _LIST.sub(_listed, _RATE_BELOW.sub(rb"\1\2step \3 lr=\4", text))
    if b"}" not in text or b"{" not in text:
        return text
    text = _under_steps(_BELOW.sub(_behind, text))
    if own.get("objects", 0) < 2:  # a single one is somebody's settings or result
        rows = [found for found in itertools.islice(_LINES.finditer(text), _MOST) if _is_row(found[0])]
        own["objects"] = own.get("objects", 0) + len(rows)
        if own["objects"] < 2:
            own["object"] = _one_line(rows[0][0]).decode("utf-8", "replace") if rows else own.get("object", "")
            return text
        text = _with_first(text, rows[0], own)
    return _LINES.sub(_joined, text)


def _with_first(text: bytes, second: re.Match[bytes], own: dict[str, Any]) -> bytes:
    """A text with the object that was alone before on the first line of the second one, if no later step was read
    since."""
    first = str(own.pop("object", "")).encode()
    said = _STEP.search(first)
    if not first or (said and isinstance(own.get("now"), int) and int(said[1]) < own["now"]):
        return text
    here = first + b"\n" + _one_line(second[0]) + b"\n" * (second[0].count(b"\n") - 1)
    return text[: second.start()] + here + text[second.end() :]


def _listed(found: re.Match[bytes]) -> bytes:
    """`[2.1, 0.4, 600, 0.0002]` as `step 600 losses_1=2.1, losses_2=0.4, lr=0.0002`."""
    losses = found[1].rstrip(b", ").split(b", ")
    said = b", ".join(b"losses_%d=%s" % (at, value) for at, value in enumerate(losses, 1))
    return b"step %s %s, lr=%s" % (found[2], said, found[3])


def _behind(found: re.Match[bytes]) -> bytes:
    """An object with a measure behind the line above it that says its step, as one line."""
    if not _MEASURE.search(found[2]):
        return found[0]
    lines = [line.strip() for line in found[2].split(b"\n")]
    return found[1] + b" " + b" ".join(lines) + b"\n" * len(lines)


def _under_steps(text: bytes) -> bytes:
    """A text in which objects of numbers right below a line that says a step, or below such a one, are lines."""
    parts, last, ended = list[bytes](), 0, -1
    for found in _OF_NUMBERS.finditer(text):
        begin = found.start()
        if _COUNT.search(found[0]) or not _MEASURE.search(found[0]):
            continue
        if begin != ended and not _SAYS_STEP.match(text[text.rfind(b"\n", 0, max(begin - 1, 0)) + 1 : begin].rstrip()):
            continue
        parts += [text[last:begin], _one_line(found[0]).translate(_UNMARKED), b"\n" * found[0].count(b"\n")]
        last = found.end()
        ended = last + len(text[last : last + 40]) - len(text[last : last + 40].lstrip(b" \t\r")) + 1
    return b"".join([*parts, text[last:]]) if parts else text


def _is_row(text: bytes) -> bool:
    return _COUNT.search(text) is not None and _MEASURE.search(text) is not None


def _one_line(text: bytes) -> bytes:
    return b" ".join(line.strip() for line in text.split(b"\n"))


def _joined(found: re.Match[bytes]) -> bytes:
    text = found[0]
    if not _is_row(text):
        return text
    return _one_line(text) + b"\n" * text.count(b"\n")


def unfinished(text: bytes) -> int:
    """How many bytes at the end of whole lines belong to an object that goes on."""
    start = text.rfind(b"{")
    if start < 0 or text.count(b"\n", start) >= _MOST or not _OPEN.match(text, start):
        return 0
    begin = text.rfind(b"\n", 0, start) + 1
    above = text.rfind(b"\n", 0, max(begin - 1, 0)) + 1
    said = text[above:begin].rstrip()
    return len(text) - (above if said.endswith(b":") or _SAYS_STEP.match(said) else begin)  # the line may say its step
