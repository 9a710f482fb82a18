"""Lines as other programs write them, with values right behind their names.

In:   `Cost after iteration 100: 0.58`, `loss (val): 2.31`, `[1/25][300/3183] loss 0.4`, `loss: tensor(2.31)`.
Out:  `iteration 100 Cost: 0.58`, `val loss: 2.31`, `epoch 1 batch 300/3183 loss 0.4`, `loss: 2.31`.
"""

from __future__ import annotations

import re

from barograph.importing.textlogs import forms, tongues
from barograph.importing.textlogs.measures import LAST_WORD, MEASURE, OF
from barograph.importing.textlogs.patterns import expression

_AT = expression(  # `Cost after iteration 100: 0.58`
    rb" (?i:after|at|in|for|on) (?:the )?((?i:(?:global[_ ])?step|iteration|iter|epoch|batch|update|round|episode)s?)"
    rb"[ #]{1,2}(\d{1,15})(?=\s?[:=])"
)
_AFTER = expression(rb" after (\d{1,15}) (steps|iterations|iters|updates|epochs|batches) (?:is|was)(?= )")
_DARKNET = expression(
    rb"^(\W{0,8}\d{1,15}: " + forms.NUMBER + rb", " + forms.NUMBER + rb" avg)(?=, " + forms.NUMBER + rb" rate,)"
)
_WITH_COMMAS = expression(  # `loss: 2,3104`, as other countries write it; three digits may be thousands
    rb"(?i)(?:loss|cost|acc(?:uracy)?|error|mse|mae|nll|lr)['\"]?[ \t]{0,4}[=: ][ \t]{0,4}-?"
    rb"(?:0,\d{1,15}|\d{1,6},(?:\d{1,2}|\d{4,15}))(?![\d,.])"
)
_POINT = expression(rb"\d\.\d")
_COMMA = expression(rb"(?<=\d),(?=\d)")
_LOSS_AT = expression(  # `val loss @ 500: 2.31`; `recall @ 10` counts no steps
    rb"(?i)((?<![\w./-])(?:" + OF + rb")(?:[a-z]{1,20}[_ /.-]){0,2}(?:[a-z]{0,9}loss|nll|ppl|perplexity|bpb)) "
    rb"@ {0,2}(?:(?:step|iter(?:ation)?) {0,2})?(\d{1,15})(?=\s?[:=])"
)
_LIST = expression(  # `train losses: [0.41, 0.2]`: parts that have no names
    rb"(?i)(?<![\w./])((?:" + OF + rb")(?:[a-z]{1,20}[_ /.-]){0,2}loss(?:es)?)\s?[:=]\s?"
    rb"\[\s?(" + forms.NUMBER + rb"(?:,\s?" + forms.NUMBER + rb"){1,15})\s?\]"
)
_BRACKETS = expression(  # `[1/25][300/3183]`, `[1,  2000]`: an epoch and a batch
    rb"^([\W_]{0,12})\[(\d{1,9})(?:/\d{1,9}\]\s?\[(\d{1,12})/(\d{1,12})|,\s{1,12}(\d{1,12}))\](?=[\s:,])"
)
_OF_BAR = expression(rb"^([\W_]{0,12})[\[(](\d{1,9}/\d{1,9})[\])](?=\s?[A-Za-z:])")  # `[3/100] loss: 0.4: 100%|##|`
_TWO = expression(rb"^(\d{1,6}) (\d{1,9}) (?=[A-Za-z]\w{0,30}[=:]\s?[-+]?(?:\d|nan|inf))")  # `333 154 Loss=2.31`
_GLUED = expression(rb"(?<![\w.])(?:\d{1,12}-)?(\d{1,12})(epoch|batch|step|iter)(?=:)")  # `5epoch:train:376-750batch:`
_STARS = expression(  # `train loss: 55%[****->....]1.210`: how full a bar is, and the last batch's value
    rb"(?:[A-Za-z][A-Za-z_ ]{0,40}:\s{0,4})?(?<!\d)\d{1,3}%\[[*=>.#\- ]{3,200}\](?:\d{1,9}(?:\.\d{1,12})?)?"
)
_LISTED = expression(rb"(?<=[:=])(\s{0,4})\[(-?\d{1,15}\.\d{1,20}(?:e[-+]?\d{1,3})?|-?nan|-?inf)\]")  # `loss: [2.31]`
_OVER = expression(  # `test loss of 8 batches: 2.3`
    rb"(?<=[A-Za-z]) (?:of|over|on|for|in|from) (?:the )?(?:last |all )?\d{1,9} (?:mini-?)?"
    rb"(?:batch(?:es)?|samples?|examples?|images?|items?|tokens?|frames?|steps?|iterations?|episodes?)(?=\s?[:=])"
)
_REMARK = expression(
    rb"(?<=[A-Za-z0-9])[\s_]?\([a-z](?:[A-Za-z0-9 ,._=-]|(?<=\d):(?=\d)){0,24}\)(?=\s?[:=])"  # `loss (curr): 2.31`
    rb"|(?<=oss)\s?\([a-z]{2,12}\)(?=\s{1,4}(?:-> |[-+]?\d))"
)
_PADDED = expression(rb"(?<![A-Za-z])(nan)x{1,9}(?![A-Za-z])")  # a field of fixed width
_ASIDE = expression(rb"(?i)([a-z_ -]{0,30}loss)[\s_]?[(\[](train|val|valid|eval|test|dev)[a-z]{0,9}[)\]]")
_OBJECT = expression(
    rb"(?:tensor|array|param|np\.float\d{1,3}|float\d{0,3})\(\[?(" + forms.NUMBER + rb")\]?(?:, [^()\n]{1,200})?\)"
)
_BOLD = expression(rb"\*\*(?=[\w.:=,+-])|(?<=[\w.])\*\*")  # of Markdown: `loss: **2.31**`
_BARRED = expression(  # `step 5  loss | 2.31`, where no row of a table is meant
    rb"(?i)((?:^|[\t,;(]|\s{2}|\s-)\s{0,4}(?:"
    + OF
    + MEASURE
    + rb")) \| (?="
    + forms.NUMBER
    + rb"(?:[a-z%/ ]{0,12}\s{0,4}(?:$|[,;(\t]|\s{2})))"
)
_OF_SET = expression(
    rb"(?<![\w/.])(loss|Loss|acc|accuracy|Accuracy):(train|val|valid|eval|test|dev)(?=[=:\t ,|]{1,3}[\sA-Za-z\d+-])"
)
_QUOTED = expression(rb"([=:\s])([\"'])(" + forms.NUMBER + rb")\2")  # `step="100"`, as an attribute is written


def names_as_words(text: bytes) -> bytes:
    """A text in which `loss:val=0.4` is `val_loss=0.4`."""
    return _OF_SET.sub(rb"\2_\1", text) if b"oss:" in text or b"cc:" in text or b"racy:" in text else text


def as_pairs(line: bytes) -> bytes:
    """A line in which values stand right behind their names."""
    line = tongues.in_english(line)
    if b"," in line and _WITH_COMMAS.search(line) and not _POINT.search(line):
        line = _COMMA.sub(b".", line)
    line = _ASIDE.sub(_before, line) if b"oss" in line or b"OSS" in line else line
    if b"(" in line:
        line = _REMARK.sub(b"", _OBJECT.sub(rb"\1", line))
    if b"**" in line:
        line = _BOLD.sub(b"", line)
    if b"%|" in line:
        line = _OF_BAR.sub(rb"\1epoch \2 ", line)
    if b"%[" in line:
        line = _STARS.sub(b"", line)
    if b" | " in line:
        line = _BARRED.sub(rb"\1: ", line)
    if b" after " in line:
        line = _AFTER.sub(rb" after \2 \1:", line)
    if b" rate," in line:
        line = _DARKNET.sub(rb"\1 loss", line)
    line = _OVER.sub(b"", line)
    if b"nanx" in line:
        line = _PADDED.sub(rb"\1", line)
    if b" @" in line:
        line = _LOSS_AT.sub(rb"step \2 \1", line)
    if (at := _AT.search(line)) and (said := LAST_WORD.search(line[: at.start()])):
        begin = said.start(1)
        line = b"%s%s %s %s%s" % (line[:begin], at[1], at[2], line[begin : at.start()], line[at.end() :])
    if b"=" in line or b":" in line:
        line = _TWO.sub(rb"epoch \1 batch \2 ", line)
    if b"[" in line:
        line = _LIST.sub(_parts, line) if b"oss" in line else line
        line = _BRACKETS.sub(_epoch_and_batch, line)
        line = _LISTED.sub(rb"\1\2", line)
    if b"epoch:" in line or b"batch:" in line:
        line = _GLUED.sub(rb"\2 \1", line)
    if b"\xef\xbc\x9a" in line:  # a wide colon
        line = line.replace(b"\xef\xbc\x9a", b": ")
    if b"'s " in line:
        line = line.replace(b"'s ", b" ")  # `training's log loss`
    return _QUOTED.sub(rb"\1\3 ", line) if b'"' in line or b"'" in line else line


def _epoch_and_batch(found: re.Match[bytes]) -> bytes:
    """`[1/25][300/3183]` as `epoch 1 batch 300/3183`."""
    batch = found[5] or b"%s/%s" % (found[3], found[4])
    return b"%sepoch %s batch %s" % (found[1], found[2], batch)


def _parts(found: re.Match[bytes]) -> bytes:
    """`train losses: [0.41, 0.2]` as `train losses_1=0.41, train losses_2=0.2`: no loss is among them by its name."""
    name = found[1].rstrip() if found[1].lower().endswith(b"es") else found[1] + b"es"
    return b", ".join(b"%s_%d=%s" % (name, at, part.strip()) for at, part in enumerate(found[2].split(b","), 1))


def _before(found: re.Match[bytes]) -> bytes:
    """`loss (val)` as `val loss`."""
    return b"".join([found[2], b" ", found[1].strip()])
