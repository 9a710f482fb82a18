"""What counts on a line: a step, an epoch, a batch, a progress bar, or what was seen.

In:   a line.
Out:  where it says each of them; what these say, as names that begin with "_".
"""

from __future__ import annotations

import re
from typing import Any

from barograph.core.patterns import expression

_INTEGER = (
    rb"\d{1,3}(?:,\d{3}){1,4}(?![\d.]|,\d)|\d{1,3}(?:_\d{3}){1,4}(?![\d_])|\d{1,15}(?!\d|\.\w|\s?%|[kK](?!\w)|:\d\d:)"
)
_COUNT = (
    rb"(?:(?:\.{1,3}(?=[\s(\[]))?[\s:=#\[(]{0,12}|-|\s{1,4}[-=]?>\s{1,4})(?P<count>"
    + _INTEGER
    + rb")(?:\s{0,4}(?:/|(?:out )?of)\s{0,4}("
    + _INTEGER
    + rb"))?"
)
_SET = rb"".join(  # `warmup_steps: 2000` is a setting
    rb"(?<!%s[ _-])" % word for word in b"warm warmup max save eval log logging decay every accumulation".split()
)
STEP = expression(
    rb"(?<![A-Za-z0-9./-])(?<!per[ _])"
    + _SET
    + rb"(?i:(?:(?:global|train|training|opt|optimizer|g)[_ ]?|opt(?:imizer)?\.)steps?|"
    rb"num[_ ]updates|(?:train(?:er)?/(?:global_)?)?(?:step|iter(?:ation|ate)?|update)"
    rb"(?:[_ ]?(?:idx|index|num(?:ber)?|no\.?)|s)?|upds?|data(?==0\d{3,14}/)|up(?=\.\s\d)|it|s(?==\d))" + _COUNT
)
SEEN = expression(  # what was seen, where nothing else counts: `tokens 4,096 / 33,554,432`, `seen 320 examples`
    rb"(?<![A-Za-z0-9./-])(?i:(?:(?:consumed|total|num|n|seen|processed)[ _]){0,2}(?P<of>tokens|samples|examples|"
    rb"sequences|images)(?:[ _](?:seen|consumed|processed|so far))?"
    + _COUNT
    + rb"|(?:seen|consumed|processed)[ :](?P<ahead>"
    + _INTEGER
    + rb") (?P<what>tokens|samples|examples|sequences|images))(?![\w/]|\s?/s)"
)
_GLOBAL = expression(  # counts on where others begin anew
    rb"(?<![A-Za-z0-9./-])(?i:global[_ ]?(?:steps?|iter(?:ation)?s?|updates?)|total_(?:train_)?updates['\" ]{0,2})"
    + _COUNT
)
_TIMESTEPS = expression(rb"(?<![A-Za-z0-9./-])(?i:(?:(?:num|total|env)[ _]?)?timesteps?)" + _COUNT)  # of an agent
_OF_PATH = expression(rb"(?<=[a-z]/)[A-Za-z]{1,20}(?:_[A-Za-z]{1,20}){0,4}_$")  # the beginning of a series' name
_OF_EPISODE = expression(rb"(?i)(?<![a-z])ep(?:isode)?[ _]$")
_OF_AGENT = expression(rb"(?i)reward|return|episode")
DONE = expression(
    rb"(?<![\w.,/-])(?<!every )(?<!each )(?<!last )(?<!next )(?<!first )(?P<count>"
    + _INTEGER
    + rb")(?:\s?(?:/|of)\s?[\d,]{1,19})?\s(?i:steps|iterations|iters|updates)(?![\w/])"
)
_PADDED = expression(  # of the run: `epoch 019 | 0161656 updates`
    rb"(?<![\w.,/-])(?P<count>0\d{3,14})(?:\s?/\s?(\d{1,15}))?\s(?i:steps|iterations|iters|updates)(?![\w/])"
)
ROUND = expression(rb"(?<![A-Za-z0-9./-])(?i:episodes?|rounds?|generations?)" + _COUNT)
_LETTER = expression(
    rb"(?:(?<![\w./-])t(?==\d{1,15}(?:[\s,;|)\]]|$))|"
    rb"^(?:\[rank ?\d{1,6}\]:?)?\s{0,8}[ikn](?=\s?=\s?\d{1,15}(?:[\s,;|)\]]|$)))" + _COUNT
)
BATCH = expression(
    rb"(?<![A-Za-z0-9./-])(?:(?i:(?:mini-?)?batch(?:es|[_ ]?(?:idx|index|id|no)| i(?=:))?)|"
    rb"(?:Train(?:ing)?|Test|Val(?:id(?:ation)?)?)(?= \d{1,9}: ?(?i:loss))|"
    rb"-{2,40}(?=\s?\d{1,9}\s?/\s?\d{1,9}\s?-{2,40}\s*$))" + _COUNT
)
EPOCH = expression(  # and the batch that may stand behind it: `Epoch: [2][100/5005]`, `epoch 1 | 200/ 2983 batches`
    rb"(?<![A-Za-z0-9./-])(?<![Mm]ax[ _])(?:(?i:epochs?(?:_(?:idx|index|id|no))?|epo?)(?:\((?:train|val|test)\))?|"
    rb"(?<=^)[-=*]{4,80}(?=\s?\d{1,6}\s?[-=*]{3,80}\s*$)|Train:(?= \[?\d+(?:/\d+)?\]? ?\[)|"
    rb"(?:Train(?:ing)?|Test|Val(?:id(?:ation)?)?|Eval)(?= \d{1,6}, (?i:loss)))"
    + _COUNT
    + rb"(?:\]?[\s,:;|]{0,4}\[?\s{0,8}(\d{1,15})\s?/\s{0,8}(\d{1,15})(?=\s*[\](|,;]|:\s|\s+(?:batches|(?i:loss)[=:])))?"
)
BAR = expression(rb"\d{1,3}%(?:\|[^|\n]{0,300}\|)?\s{0,8}(\d{1,15})/(\d{1,15}) \[")  # tqdm's
DRAWN = expression(  # Keras's, whose newer one stands here as blanks
    rb"(?<![\w./])(\d{1,15})/(\d{1,15}) ?(?:\[[=>.#*o\- ]{1,100}\]|"
    rb"\s{2,80}(?:\d{1,6}:)?\d{1,6}s?\s\d{1,9}(?:ms|us|s)/step\b)"
)
FRACTION = expression(  # not the value of a name: `fg/bg=(12/52)`
    rb"(?<![%=])[\[(<]\s{0,8}(\d{1,15})\s?(?:/|of)\s{0,8}(\d{1,15})[\])>]"
)  # PyTorch's tutorials: `loss: 2.3  [  64/60000]`
_BEHIND_BAR = expression(rb"(?:^|[\]|]|[\x80-\xff])\s{0,12}(\d{1,15})/(\d{1,15})(?=\s)")
PART = expression(rb"(?<![\w./])(\d{1,15})\s?/\s?(\d{1,15})(?![\w./:])")  # of an epoch: `[584000/2830676 particles]`
LOSSES = expression(rb"oss|OSS|ost|bjective|riterion|nll|NLL|xent|ntropy|[cx]e(?![A-Za-z])|ppl|bce|mse|MSE")


def places(line: bytes) -> tuple[Any, Any, Any, Any]:
    """Where a line says a step, a batch, an epoch, and what a progress bar counts."""
    step, batch, epoch = STEP.search(line), BATCH.search(line), EPOCH.search(line)
    if step and (b"lobal" in line or b"LOBAL" in line or b"total_" in line):
        step = _GLOBAL.search(line) or step
    if step and b"/" in line and _OF_PATH.search(line, 0, step.start()):
        step = STEP.search(line, step.end())  # `train/actor_grad_steps 940` counts for itself
    if step and batch is None and epoch is None and _OF_EPISODE.search(line, 0, step.start()) and ROUND.search(line):
        step = None  # how long an episode was
    if step is None and b"imestep" in line and _OF_AGENT.search(line):
        step = _TIMESTEPS.search(line)
    if step is None and batch is None and epoch and epoch[3] is None and b" 0" in line:
        step = _PADDED.search(line)
    if step is None and batch is None and epoch is None:
        step = DONE.search(line) or ROUND.search(line) or _LETTER.search(line)
    bar = BAR.search(line) if b"%" in line else None
    bar = bar or (DRAWN.search(line) if step is None and batch is None and b"/" in line else None)
    if bar and batch and batch[2] is None and b"d" in batch[0].lower():
        batch = None  # the index of the bar's last batch
    if (step, epoch, batch, bar) == (None,) * 4 and LOSSES.search(line):
        bar = FRACTION.search(line) or _BEHIND_BAR.search(line)
    return step, batch, epoch, bar


def counted(line: bytes, step: Any, batch: Any, epoch: Any, bar: Any) -> dict[str, Any]:
    """What a line's counts say, as they were found in it."""
    extra: dict[str, Any] = {}
    if epoch:
        extra["_epoch"] = epoch[1]
        other = step and step.start() > epoch.end() and step["count"] != epoch[3]
        if epoch[3] and not other:  # PyTorch's ImageNet example: Epoch: [2][100/5005]
            extra |= {"_batch": epoch[3], "_batches": epoch[4]}
    if batch and "_batch" not in extra and (not step or step["count"] == batch[1] or step[2]):
        extra |= {"_batch": batch[1], "_batches": batch[2] or b""}
    own_step = bool(step and batch and "_batch" not in extra)  # the batch counts within an epoch: the step doesn't
    if bar and step is None and "_batch" not in extra:
        extra |= {"_batch": bar[1], "_batches": bar[2]}
    if epoch and step is None and "_batch" not in extra and b"/" in line:
        part = PART.search(line, epoch.end()) or PART.search(line, 0, epoch.start())
        extra |= {"_part": part[1], "_parts": part[2]} if part else {}
    count = step["count"] if step else b""
    of_run = step and (re.match(rb"(?i)global", step[0]) or line[: step.start()].lower().endswith(b"total "))
    if step and not own_step and not of_run and epoch and "_batch" not in extra:
        # of an epoch, as a bar of the same length says, or of the run: then the counts will tell
        extra |= {"_batch": count, "_batches": step[2] if bar and step[2] == bar[2] else b"", "_of": step[2] or b""}
    if step:
        extra["_step"] = count
    lengthy = step and (epoch, batch, bar) == (None,) * 3 and step.re.groups > 1 and step[2]
    if lengthy and b"tep" in line[step.end() :]:
        of_all = STEP.search(line, step.end())  # behind a count and its end: `iter[ 14/ 15] loss 2.3 step 1574`
        extra |= {"_run": of_all["count"]} if of_all and of_all[2] is None else {}
    return extra


def whole(text: bytes) -> int:
    return int(text.replace(b",", b"").replace(b"_", b""))
