"""What one line says, whatever wrote it: a step, an epoch, a batch, and names with numbers.

In:   a line.
Out:  names as written, with "val" or "test" before them where the line is about that; counts as names that begin
      with "_"; None for any other line.
"""

from __future__ import annotations

import re
from typing import Any

from barograph.core.patterns import expression
from barograph.importing.textlogs import counting, forms, heldout, pairs, programs, rates, sentences, several, tallies
from barograph.importing.textlogs.measures import LAST_WORD, MEASURE, NEVER_WHOLE, OF, SCORE

_BAR_ENDS = expression(rb"(?:it/s|s/it)[^\]\n]{0,200}+\](?=[A-Za-z])")  # and something else is printed behind it
_UNIT = (
    rb"(k|K|M|B|ms|s|%)?(?:nats?|bits?)?(?:/(?:tok(?:en)?|char|byte|word|sample|example|batch|step)s?)?"
    rb"(?![\w/]|:\d|\.\d)"
)
_JOINT = (  # the three marks are two arrows and one for "about"
    rb"\s{0,40}(?:[=:]{1,2}>?|[-~]>|\xe2\x86\x92|\xe2\x89\x88|\xe2\x87\x92|(?<=oss)~|"
    rb"(?<=\s)(?:is|was|of|at|now)(?=\s)|\.{2,40})\s{0,32}"
)
_OF_WORD = expression(rb"[ ]" + MEASURE + rb"(?=[ :=])", re.I)  # `valid acc 15/16`
_KNOWN = expression(rb"^" + MEASURE + rb"$", re.I)
_PAIR = expression(
    rb"(?<!\w)(?<!\d/)(?!(?i:nan|inf)\b)([A-Za-z][\w./@%-]{0,60}(?: [A-Za-z][\w./@-]{0,30}){0,2}?)"
    + _JOINT
    + rb"("
    + forms.NUMBER
    + rb")"
    + _UNIT
    + rb"|(?<![\w./-])((?i:"
    + OF
    + MEASURE
    + rb"))\s{1,40}("
    + forms.NUMBER
    + rb")"
    + _UNIT
)
_RATE = expression(
    rb"(?<![\w.])("
    + forms.NUMBER
    + rb")\s?((?:ms|s)/(?:iter|step|it|batch)|(?:it|tok|tokens|words|samples|steps)/s(?:ec)?)(?!\w)"
)
_BARE = expression(
    r"(?i)(?:.*[^a-z])?(?:[a-z]*loss(?:es)?(?:per[a-z]{3,10})?|nll|neg(?:ative)?[_ -]log[_ -]likelihood|ce|xe|"
    r"x-?ent(?:ropy)?|cross.?ent(?:ropy)?|acc(?:uracy)?|pplx?|perplexity|bpb|"
    r"(?:mean|avg|average|max|min|total|ep|episode)?"
    r"rew(?:ard)?s?(?:[_ ]score)?|(?:episode|episodic|ep)[_ ]ret(?:urn)?|r?ms[lp]?e|mae|s?mape|bce|huber|"
    r"[a-z]*deviance)"
    r"(?:[_/. -](?:per[_ ][a-z]+|train|val|valid|eval|test|mean|avg|ema|smooth(?:ed)?|total|step|epoch|"
    r"bucket_\d+)){0,2}"
    r"|(?:train|training|valid|validation|eval|test|dtrain|dtest|dvalid)(?:_\d)?[-_](?:auc(?:pr)?|m?error|map|ndcg|mape)(?:@\d+)?"
    r"|(?:model[ _])?(?:train(?:ing)?|val(?:id(?:ation)?)?|test(?:ing)?)[ _]err(?:or)?"
    r"|(?:val(?:id(?:ation)?)?|test|dev)[ _]score"
    r"|(?:[a-z]+[_ ])?losses_\d{1,2}|(?:[a-z]{1,12}/){0,3}loss/[a-z][a-z0-9_]{0,24}"
    r"|(?:(?:val|test) )?(?:[a-z]+_)?loss_(?!scale)(?:(?:no|without|excl)_)?[a-z0-9]{1,24}(?:_(?:free|less))?"
    r"|(?:(?:train(?:ing)?|val(?:id)?|test|avg|average|mean|total|current|curr)[_/ ]?)?(?:cost|objective|criterion)|obj"
    r"|(?:[a-z]{1,12}[ _]){0,3}objf"
    r"|(?:.*[^a-z])?l_(?:[gd]_)?(?:total|pix|pixel|percep|perceptual|fea|gan|real|fake|style|rec|cls|char|edge)"
)
_COUNTS = expression(
    rb"(?i)^(?:global[_ ]?|(?!loss)[a-z]{1,12}[_ ])?(?:steps?|iter(?:ation)?s?|updates?|it|epochs?|ep|"
    rb"batch(?:es)?|minibatch|eta|time|rank|gpu)(?:_(?:idx|index|id|no|num))?$"
)
_TURNED = expression(rb"(?i)^(loss|accuracy|acc) (train|val)$")
_OF_BOTH = expression(
    rb"(?i)^(?:train(?:ing)?[ _](.{1,20})|(.{1,20})[ _]train(?:ing)?)$"
)  # `loss train: 3.7, val: 3.9`
_PROCESS = frozenset((b"pid", b"PID", b"tid", b"ip", b"port", b"line", b"INFO", b"DEBUG", b"WARNING", b"NOTICE"))
_SOURCE = expression(
    rb"\.(?:py|cpp|cc|cu|c|h|rs|go|js|ts|jl|lua|java|scala)(?: line)?$"
)  # `solver.cpp:195]` is a place
_LEAD = expression(  # a number that begins a line, or the value of its first name: perhaps a count
    rb"[^\w\n\[(\x80-\xff]{0,8}(?:\[\s{0,8}(\d{1,15})[\],]|\((\d{1,15})\)|(\d{1,15})(?!:\d\d)(?=\s{0,4}[:|,\t]|\s{2}|\s[-=]>\s)|"
    rb"[^\x00-\x7f]{1,40}[:=]\s?(\d{1,15})(?=[,;|\s])|(\d{1,15})(?=\s\d{1,9}\.\d{1,9} ?m?s(?![\w/])|"
    rb"(?:/| / )\d{1,15}[\s,:|(]|\s(?i:" + OF + MEASURE + rb")[:=\s]))"
)
_OF_RANK = expression(
    rb"\[(?i:default|rank|gpu|worker)[ _]?\d{1,9}\]:?|\[\d{1,9},\d{1,9}\]<std\w{3}>:?|"
    rb"\d{1,9}: (?=\s{0,8}\[?\d{1,15}[\]:])"
)
ITEM = expression(  # `Model 3: rmse 0.4`: one of several things, no progress
    rb"(?i)[^\w\x80-\xff]{0,12}(?:models?|folds?|trials?|tasks?|runs?|seeds?|splits?|configs?|subjects?|patients?|layers?|"
    rb"claims?|weeks?|days?|months?|years?|quer(?:y|ies)|cases?|experiments?|exp|clusters?|topics?|class(?:es)?|"
    rb"clients?|players?|teams?|tables?|figures?|candidates?|variants?|options?|strateg(?:y|ies)|portfolios?|items?|"
    rb"questions?|scenarios?|datasets?|\xeb\xaa\xa8\xeb\x8d\xb8|\xe6\xa8\xa1\xe5\x9e\x8b|"
    rb"\xe3\x83\xa2\xe3\x83\x87\xe3\x83\xab)"
    rb"[ \t#_:=-]{1,4}\d{1,9}\b"
)
_OF_ITEM = expression(
    rb"(?i)(?<![a-z/])(?:layer|block|module|image|sample|file|fold|trial|client|class)[ _#:=\[]{1,3}\d"
)
MONEY = expression(rb"(?i)(?<![a-z])(?:profits?|revenue|pnl|drawdown|take.profit|stop.?loss|premium|packets?)(?![a-z])")
_OF_TRAINING = expression(r"(?i)train(?:ing)?(?=[_/. -])")
_HELD_OUT = expression(r"(?i)(?:.*[^a-z])?(?:val|valid|validation|eval|evaluation|test|dev)(?![a-z])")
_OF_RATE = expression(rb"(?i)lr$|learning[_ ]rate$")  # of training, wherever it stands
_METER = expression(  # `5.1 (+0.2)` and `5.1 (-0.2)` are differences
    rb"(?<=[\s:=])((?:(?=-)|(?=[^\n(]{1,40}\([^-]))" + forms.NUMBER + rb") \((?!\+)(" + forms.NUMBER + rb")\)"
)  # `Loss 1.23 (1.30)`
_LOST = expression(rb"(?i)loss(?:es)?$")
_OF_DATA = expression(r"(?i)(val|valid|eval|test|dev|train)(?:[_/. ]|(?=loss|acc|ppl|nll))")
_PLURAL = expression(rb"(?i)(?:\d[\d,]{0,18} )?(?:epochs|steps|iterations|iters)\b")
_FOR = expression(rb"(?i)\bfor (?:the next )?$")  # as many steps as are planned
_A_RATE = expression(rb"(?i)(?:lr|learning[_ ]rate)(?:[_ ][a-z]{1,20})?$")
_SIZE = expression(r"(?i).*[_ ]size")
_LINKS = expression(rb"^(?:(?:is|was|are|has|had|with|the|of|and|for|on|gets?|got|reached|achieved)\s)+(?=[A-Za-z])")
_OF_SETTING = expression(
    rb"(?i)loss[_ .-]?(?:weights?|coeff?s?|coefficients?|lambda|factor|types?)$"
)  # of one: no value
_OF_THING = expression(  # one of several things that are trained at once: `head: default, loss=2.31`
    rb"(?i)(?<![\w./-])(?:head|task|data_?set|domain|corpus|lang(?:uage)?)\s?[:=]\s?([a-z][\w-]{0,40})(?=\s?[,;|])"
)
_ALL_BEST = expression(r"(?i)best[_ /.-]|_")  # of a name: the best so far, or a count
_INSIDE = expression(rb"\s[\[(](\d{1,15})[\])](?=[\s,;:|])")  # the same behind what a logger writes
_BEHIND = expression(  # `2.31 avg loss, 0.001 rate`, and not `received a nan loss, it counts 0`
    rb"(?<![\w.])(?!(?<=[A-Za-z] )(?i:nan|inf)\b)("
    + forms.NUMBER
    + rb")\s{1,4}((?i:"
    + OF
    + MEASURE
    + rb"|(?:learning )?rate))(?=\s{0,4}(?:[,;|)]|$))"
)
_OVER = expression(rb"(?i)(?<![a-z])(?:finished|done|completed?|end(?:ed| of)?|took|elapsed)(?![a-z])")  # of an epoch
_SHARE = expression(rb"[\[(]?\b\d{1,3}(?:\.\d{1,6})?\s?%")
_OTHER_UNIT = expression(  # `181 samples/sec Train-accuracy=0.1`, `98.1/s/gpu LR: 0.1`
    rb"^(?:[A-Za-z]{1,12}/s(?:ec(?:ond)?)?\s(?=[A-Za-z])|gpu\s(?=(?i:lr|learning rate)$)|"
    rb"(?:m?s|secs?|seconds?|mins?|minutes?|hours?)\s(?=[A-Z][a-z]))"  # `12.5 s. Mean Reward: 3.1`
)
_LEVEL = expression(rb"^(?:INFO|DEBUG|NOTICE|WARN(?:ING)?)\s(?=[A-Za-z])")  # a logger's, ahead of the first name
_RANGE = expression(rb"-\d|\s?\xe2\x80\x93\s?\d")
_RUN = expression(rb"(?: {1,2}\d{1,3}){5}(?![\d.])")  # of a bar of numbers: `training... 5 10 15 20 25 30`
_SECONDS = expression(rb"\s?(?:s|secs?|seconds?|ms|min|minutes?|hours?|h)(?![A-Za-z/])")
_OF_UNIT = expression(rb"\s[a-z]{1,12}/s(?:ec(?:ond)?)?(?![\w:=])")
_GOES_ON = expression(rb"\.[A-Za-z]{2}")
_PLANNED = expression(
    rb"(?i)\s*(?:[a-z][\w.-]{0,20} ){0,2}[\w.-]{0,40}?(?:epochs|steps|iterations)"
    rb"['\"]?\s?[:=]\s{0,40}\d[\d_,]{0,15}\s*,?\s*$|"
    rb"(?:.{0,40}\W)?(?:train(?:ing)?|run(?:ning)?|for|total(?: of)?|max(?:imum)?)[ :]{1,3}"
    rb"\d[\d_,]{0,15} (?:epochs|steps|iterations)\W{0,3}$"
)  # how many
_TO_COME = expression(
    rb"(?i)\b(?:next|every|will|until|scheduled)\b[^\n=:]{0,60}\d"
)  # `(next test at 1200 iterations)`
_BEST_SO_FAR = expression(
    rb"(?i)[\s,;|(]{1,4}best so far\s?[:=(][^\n]{0,40}?\b(?:epoch|step|iter(?:ation)?)\b"
)  # and its values
_BEGINS_HALF = expression(rb":\s{1,8}[A-Za-z]")
_OVER_EPOCH = expression(  # `avg loss in epoch = 2.31`, `Loss for this epoch: 2.31`
    rb"(?i)(?<=oss) (?:in|of|for|over|during) (?:the |this |whole |entire ){0,2}epoch(?=\s?[:=]|\sis\s)"
)
_SCALE = {b"k": 1e3, b"K": 1e3, b"M": 1e6, b"B": 1e9}
_PRINTED = expression(rb"[{,]\s{0,4}['\"][\w ./-]{1,60}['\"]\s?:")
_UNMARKED = bytes.maketrans(b"{}\"'", b"    ")
_TEXT = expression(rb'(?<=[:=] |.=)"[^"\s]{1,80}[ ,][^"]{0,400}"(?=\s{0,4}[|;])')  # `Text: "what is read" | loss: 2.31`
_MEASURED = expression(rb"[-+]?(?:\d{1,9}\.\d{4,20}(?:e[-+]?\d{1,3})?|nan|inf)")  # with more digits than a setting
_COMMENT = expression(rb"\s*#+(?:\s|$)")
_OF_R = expression(rb"\s{0,4}\[\d{1,6}\] \"([^\"\n]{1,4000})\"\s*$")  # a text as R prints it


def row(line: bytes) -> forms.Parsed | None:
    line = _alone(line)
    if programs.is_one(line):
        return None
    line = several.apart(pairs.unpacked(line))
    reached = b" reached " in line and pairs.REACHED.search(line) is not None
    printed = _PRINTED.search(line) is not None  # a dictionary or an object: its marks belong to no name
    line = line.translate(_UNMARKED) if printed else line
    line = _of_means(_of_epochs(line))
    step, batch, epoch, bar = places = tallies.places(line)
    counts = [match for match in places if match]
    is_trial = counts == [batch] and batch[2] is None and ITEM.match(line)  # with its settings
    words, found_pairs = list(heldout.PHASE.finditer(line)), list(_PAIR.finditer(line))
    first, phases = min((match.start() for match in counts), default=-1), heldout.phases_of(words)
    alone = _stands_alone(line, words, found_pairs)
    of_training = not phases or any(not phase for _, phase in phases)
    part = tallies.PART.search(line, epoch.end()) if counts == [epoch] and not of_training else None
    evaluated = _is_evaluation(bar, phases, of_training, found_pairs)
    if is_trial or _is_unfinished(evaluated and bar, of_training, part, found_pairs):
        return None  # an evaluation is a row once its bar is full, a trial with its settings never
    seen = None if counts else tallies.SEEN.search(line)
    names, known, beside = _unit(seen), False, b""
    counted = {match.start("count") for match in (step, batch, epoch) if match}
    for found in found_pairs:
        name, number, scale = found.group(1, 2, 3) if found[1] else found.group(4, 5, 6)
        name = _LINKS.sub(b"", _OTHER_UNIT.sub(b"", _LEVEL.sub(b"", name.rstrip(b".").replace(b". ", b" "))))
        if step and found.start() <= step.start() < step.end() < found.end(1):
            name = line[step.end() : found.end(1)].strip()  # `step-7 train_loss: 2.5`
        end = found.end(2 if found[1] else 5)
        if (seen and seen.start() < end <= seen.end()) or _is_no_value(line, found, end, number, name):
            continue
        first = found.start() if first < 0 else first
        if _COUNTS.match(name) or found.start(2) in counted or (bar and end < bar.end() and scale == b"%"):
            continue  # what counts, and how much of a bar is full
        if not (counts or names or scale or len(number) > 15) and number.isdigit() and not _is_measure(name):
            names[f"_first:{name.decode('utf-8', 'replace')}"] = number  # perhaps the step: others will tell
            continue
        if beside and heldout.PHASE.fullmatch(name):
            name = name + b" " + beside
        elif both := _OF_BOTH.match(name):
            beside = both[1] or both[2]
        name = _TURNED.sub(rb"\2 \1", name)
        measure = _is_measure(name)
        if measure is None or (number.isdigit() and scale is None and _is_other(line, name)):
            continue
        known |= measure and _OF_SETTING.search(name) is None
        number = _scaled(number, _SCALE[scale]) if scale in _SCALE else number
        text = name.decode("utf-8", "replace")
        if (phase := _data_of(name, number, heldout.phase_at(phases, found.start(), alone), of_training)) is None:
            continue
        of_training |= not phase and _is_bare(text) and not heldout.PHASE.search(name)
        names.setdefault(_with_data(text, phase), number)
    known |= reached or (bool(counts) and counting.are_of_data(names))
    if not known and b"," in line and not counts:
        turned, begin = _named_behind(line)
        names, first = names | turned, begin if first < 0 else first
        known = any(map(_is_bare, turned))
    # a comment in a program or a file of settings; `## Epoch 3` is a heading
    is_comment = known and (_COMMENT.match(line) is not None or sentences.is_one(line))
    if is_comment or (printed and not any(map(_is_bare, names))):
        return None
    elsewhere = known and bool(counts) and _are_best(line, names)
    known &= not elsewhere
    if not counts:
        if not (known and any(map(_is_bare, names))) or _is_of_settings(line, names, printed):
            return None if printed else rates.row(line)
        names, first = _lead(line, names, first)
    elif _is_planned(line, counts[-1], names) or (elsewhere and first < min(match.start() for match in counts)):
        return None  # `best_acc=0.67 epoch=8` says no epoch of the lines below
    elif not known and ((bar and counts == [bar]) or _says_two(line, epoch) or _is_told(line, step)):
        return None
    names = {} if counts and not known else names  # a heading: it gives a step to the lines below it
    for value, unit in _RATE.findall(line) if known else ():
        names.setdefault(unit.decode(), value)
    if known and words and not of_training and heldout.phase_of(words[0]) and words[0].start() < max(first, 1):
        names |= _tag(names, heldout.phase_of(words[0]))
    named = names | tallies.counted(line, step, batch, epoch, bar)
    named |= _of_round(line, known and counts == [step], step, found_pairs)
    named |= _flags(line, known, of_training, epoch, bar, counts == [epoch] and "_batch" not in named)
    return max(first, 0), None, tuple(named), tuple(named.values()), of_training


def _is_told(line: bytes, step: Any) -> bool:
    """Whether a line without values tells of steps to come, or, as a warning, of how long something was: `WARNING: cut
    off at 10 steps`."""
    if _TO_COME.search(line):
        return True
    return bool(step and step.re.pattern == tallies.DONE.pattern and (b"WARN" in line or b"arning" in line))


def _of_epochs(line: bytes) -> bytes:
    """A line with values right behind their names, where a loss may say that it is an epoch's."""
    return pairs.as_pairs(_OVER_EPOCH.sub(b"", line) if b"oss " in line and b"poch" in line else line)


def _data_of(name: bytes, number: Any, phase: str, of_training: bool) -> str | None:
    """The data that a measure is about; None for the rate of 0 that an evaluation says."""
    if not _OF_RATE.match(name):
        return phase
    return None if phase and not of_training and number in (b"0", b"0.0") else ""


def _of_round(line: bytes, alone: bool, step: Any, found_pairs: list[re.Match[bytes]]) -> dict[str, bytes]:
    """The episode that stands ahead of a row's steps, which may be those of one episode: the counts will tell."""
    found = tallies.ROUND.search(line, 0, step.start()) if alone else None
    if found is None or any(pair.start() <= found.start() < pair.end() for pair in found_pairs):
        return {}
    return {"_round": found["count"]}


def _flags(line: bytes, known: bool, of_training: bool, epoch: Any, bar: Any, by_epoch: bool) -> dict[str, bytes]:
    """What else decides what a row's counts mean. known: it has values. by_epoch: it counts nothing but epochs."""
    thing = _OF_THING.search(line) if known else None
    flags = {
        f"_of:{thing[1].decode()}" if thing else "": thing and not heldout.PHASE.fullmatch(thing[1]),
        "_aside": bar and not of_training,
        "_drawn": bar and tallies.DRAWN.match(bar[0]),
        "_share": by_epoch and known and b"%" in line and _SHARE.search(line),
        "_over": not known and epoch and _OVER.search(line),
        "_planned": not known and _PLANNED.match(line),
    }
    return {flag: b"1" for flag, is_set in flags.items() if is_set}


def _alone(line: bytes) -> bytes:
    """A line without what another program wrote behind its row or before it, and without texts among its values."""
    if b'] "' in line and (printed := _OF_R.match(line)):
        line = printed[1]
    if b': "' in line or b'="' in line:
        line = _TEXT.sub(b"-", line)
    if b"(" in line and (called := programs.SETTINGS.search(line)) and tallies.LOSSES.search(line, 0, called.start()):
        line = line[: called.start()]  # `WorkNCCL(SeqNum=7, …)`
    if (
        b"arning: " in line
        and (warned := programs.WARNED.search(line))
        and tallies.LOSSES.search(line, 0, warned.start())
    ):
        line = line[: warned.start()]
    line = without_best(line)
    if (
        b"it" in line
        and (ends := [found.end() for found in _BAR_ENDS.finditer(line)])
        and tallies.EPOCH.search(line, ends[-1])
    ):
        behind = tallies.LOSSES.search(line, ends[-1]) or not tallies.LOSSES.search(line, 0, ends[-1])
        line = line[ends[-1] :] if behind else line[: ends[-1]]  # a row printed behind a bar that goes on
    return line


def without_best(line: bytes) -> bytes:
    """A line without the best so far behind its row, and the values of that: `| best so far: epoch 3 val_loss: 0.4`."""
    found = _BEST_SO_FAR.search(line) if b"est so far" in line else None
    found = found or (programs.LAST_BEST.search(line) if b"est " in line else None)
    return line[: found.start()] if found else line


def _named_behind(line: bytes) -> tuple[dict[str, Any], int]:
    """Values with their names behind them, and where the line's own text begins."""
    ranked = _OF_RANK.match(line)
    named = {name.decode("utf-8", "replace"): number for number, name in _BEHIND.findall(line)}
    return named, ranked.end() if ranked and named else -1


def _is_of_settings(line: bytes, names: dict[str, Any], printed: bool) -> bool:
    """Whether a line without a step tells of settings, money or one of several things, or is a sentence."""
    settings = (
        (printed and "loss" not in names and not _are_losses(names))
        or MONEY.search(line)
        or ITEM.match(line)
        or _OF_ITEM.search(line)
    )
    return bool(settings or programs.is_prose(line))


def _are_losses(names: dict[str, Any]) -> bool:
    """Whether a printed dictionary holds parts of a loss, and not how much each of them counts."""
    values = [value.lower() if isinstance(value, bytes) else b"" for value in names.values()]
    measured = any(_MEASURED.fullmatch(value) for value in values)
    return measured and len(names) > 1 and all(name.lower().endswith("loss") for name in names)


def _of_means(line: bytes) -> bytes:
    """A line about an evaluation with the means in the place of the last batch's values: `Loss 1.23 (1.30)`."""
    if b" (" not in line or not _METER.search(line):
        return line
    said = [heldout.phase_of(found) for found in heldout.PHASE.finditer(line)]
    return _METER.sub(rb"\2", line) if said and all(said) else line


def _with_data(text: str, phase: str) -> str:
    """A name that says its data."""
    said = not phase or heldout.PHASE.search(text.encode()) or _OF_DATA.match(text)
    return text if said else f"{phase} {text}"


def _is_planned(line: bytes, count: re.Match[bytes], names: dict[str, Any]) -> bool:
    """Whether a line says settings: `Batch: 2, LR: 0.0001, Epochs: 50`, `lr=0.5 for 250 iterations`."""
    if not names or (plural := _PLURAL.match(count[0])) is None:
        return False
    ahead = line[: count.start()]
    marked = _FOR.search(ahead) if plural[0][:1].isdigit() else b":" in ahead or b"=" in ahead
    if not (marked or any(map(_SIZE.fullmatch, names))):
        return False
    said = [name.encode() for name in names]
    return all(_A_RATE.match(name) or not _is_measure(name) for name in said) and any(map(_A_RATE.match, said))


_NEAR_BY = 16  # bytes from a word for data to its measure


def _is_evaluation(
    bar: Any, phases: list[tuple[int, str]], of_training: bool, found_pairs: list[re.Match[bytes]]
) -> bool:
    """Whether a bar is that of an evaluation, and not one of the training behind which both their losses stand."""
    held_out = [place for place, phase in phases if phase]
    if not bar or not held_out or min(held_out) <= bar.start():
        return bool(held_out)
    if not all(any(at - 1 <= found.start() <= at + _NEAR_BY for found in found_pairs) for at in held_out):
        return True  # a word of something else, as of a path
    return not of_training and not any(bar.end() <= found.start() < min(held_out) for found in found_pairs)


def _is_unfinished(bar: Any, of_training: bool, part: Any, found_pairs: list[re.Match[bytes]]) -> bool:
    """Whether a bar, or a fraction ahead of all values, says that an evaluation goes on.

    `[2000/300000] train loss: 2.3, val loss: 2.4` is a row of both.
    """
    if bar and bar[1] != bar[2] and not (of_training and bar.re.pattern == tallies.FRACTION.pattern):
        return True
    return bool(part and part[1] != part[2] and not any(found.start() < part.start() for found in found_pairs))


def _tag(names: dict[str, Any], phase: str) -> dict[str, bytes]:
    """A mark of rows that a word ahead calls an evaluation, and whose names are the training's."""
    evaluated = any(_HELD_OUT.match(name) and _BARE.fullmatch(name) for name in names)
    return {f"_tag:{phase}": b"1"} if not evaluated and any(map(_OF_TRAINING.match, names)) else {}


def _says_two(line: bytes, epoch: Any) -> bool:
    """Whether a line says two epochs: the head of columns, or a span."""
    other = tallies.EPOCH.search(line, epoch.end()) if epoch else None
    return other is not None and other["count"] != epoch["count"]


def _lead(line: bytes, names: dict[str, Any], first: int) -> tuple[dict[str, Any], int]:
    """The names with a number ahead of a row that says no step: perhaps its step; and where the row begins, with it."""
    ranked = _OF_RANK.match(line)
    found = _LEAD.match(line, ranked.end() if ranked else 0) or _INSIDE.search(line, 0, max(first, 0))
    if found is None or next(iter(names)).startswith(("_first", "_seen")):
        return names, first
    group = found.lastindex or 1
    return names | {"_lead": found[group]}, min(first, found.start(group)) if first >= 0 else first


def _unit(seen: re.Match[bytes] | None) -> dict[str, Any]:
    """How much was seen, under the name of tokens, or of samples by any name."""
    if seen is None:
        return {}
    unit = "tokens" if (seen["of"] or seen["what"]).lower() == b"tokens" else "samples"
    return {f"_seen:{unit}": seen["ahead"] or seen["count"]}


def _are_best(line: bytes, names: dict[str, Any]) -> bool:
    """Whether all that a line measured is the best so far."""
    if all(map(_ALL_BEST.match, names)):
        return True
    best = [name for name in names if _ALL_BEST.match(name)] if b"best" in line.lower() else []
    return bool(best) and not any(_is_measure(name.encode()) for name in names if name not in best)


def _is_measure(name: bytes) -> bool | None:
    """Whether a name is that of a known measure; None for the end of a sentence."""
    if _KNOWN.match(name):
        return True
    if b" " not in name or not LAST_WORD.search(name):
        return False
    head, _, tail = name.rpartition(b" ")  # "val loss", "test accuracy": the words belong together
    return True if heldout.PHASE.fullmatch(head) or _KNOWN.match(tail) else None


def _is_other(line: bytes, name: bytes) -> bool:
    """Whether a whole number is of something else: of games that were lost, or of `precision: 16`."""
    return bool(NEVER_WHOLE.fullmatch(name) or (_LOST.search(name) and MONEY.search(line)))


def _is_bare(name: str) -> bool:
    """Whether a name is that of a loss, an accuracy or a score."""
    return bool(_BARE.fullmatch(name) or SCORE.fullmatch(name))


def _is_no_value(line: bytes, found: re.Match[bytes], end: int, number: bytes, name: bytes) -> bool:
    """Whether a name and a number are a logger's own, `[NeMo I 12:00:00 wer:7] loss=2.31`, a place, or cut."""
    if line.startswith(b"[NeMo ") and end <= line.find(b"]"):
        return True
    if name.endswith((b"achine precision", b"achine epsilon")):
        return True  # of the numbers themselves
    return _is_place(line, found, name) or _is_cut(line, end, number, name)


def _is_place(line: bytes, found: re.Match[bytes], name: bytes) -> bool:
    """Whether a pair says who prints: a place in a program's text, `solver.cpp:195]`, `(trainer:464)`, or a process."""
    if _SOURCE.search(name) or name.rpartition(b" ")[2] in _PROCESS:
        return True
    if not found[1] or line[found.end(1) : found.start(2)] != b":" or not found[2].isdigit():
        return False
    edges = line[max(found.start() - 1, 0) : found.start()] + line[found.end() : found.end() + 1]
    if (edges == b": " or (edges.isspace() and b"." in name)) and line.startswith(b" - ", found.end()):
        return True  # `trainer:validate:58 - `, `core.trainer:58 - `
    return edges in (b"()", b"[]") and not _KNOWN.match(name) and not _COUNTS.match(name)


def _stands_alone(line: bytes, words: list[re.Match[bytes]], pairs: list[re.Match[bytes]]) -> bool:
    """Whether none of the words for data is a part of a name, which says nothing of what comes before: `val loss`; nor
    begins the second half of a line: `cost=2.3 Eval: error=0.4`."""
    if pairs and any(word.start() > pairs[0].end() and _BEGINS_HALF.match(line, word.end()) for word in words):
        return False
    within = any(found.start() <= word.start() < found.end() for word in words for found in pairs)
    return not within and not any(_OF_WORD.match(line, word.end()) for word in words)


def _is_cut(line: bytes, end: int, number: bytes, name: bytes) -> bool:
    """Whether a number is cut by another program's text, or one of a range: `2.slurmstepd`, `2.3-2.5`; or a time that
    something cost, or of the next unit: `cost 0.6 seconds`, `34.5 tokens/sec 2.1 updates/sec`."""
    if name.endswith((b"cost", b"Cost")) and _SECONDS.match(line, end):
        return True
    if number.isdigit() and _RUN.match(line, end):
        return True
    if b"/s" in name and _OF_UNIT.match(line, end):
        return True
    return _RANGE.match(line, end) is not None or (b"." not in number and _GOES_ON.match(line, end) is not None)


def _scaled(number: bytes, factor: float) -> Any:
    try:
        return float(number.replace(b",", b"")) * factor
    except ValueError:
        return number
