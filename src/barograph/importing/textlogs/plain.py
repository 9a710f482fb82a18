"""Whatever else says a step and a loss on one line.

In:   `step 100 loss=0.52`, `Epoch 3 | loss: 0.5 | acc 0.91`, `[Epoch 1/10][Batch 5/100] loss 0.4 lr 1e-3`,
      `iter=5 train_loss=…`, `Epoch: [2][100/5005] Loss 1.23 (1.30)`, `Validation: epoch 3, loss 0.61`.
Out:  names as written, with "val" or "test" before them on a line about that. Steps as written; of an epoch and a
      batch, the batches of the epochs before are added; lines that say only an epoch have x = "epoch".

A line counts if it says a step, an iteration, a batch or an epoch, and at least one known measure (loss, accuracy,
perplexity, a rate, a norm …) with a number. A line with a loss or an accuracy and no step has that of the line above
it that says one, such as `Epoch 3 of 20`; where many such lines stand below one, or none says any, they are numbered.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any, ClassVar

from barograph.importing.source import ImportedPoints, Item
from barograph.importing.textlogs import columns, engine, forms

_INTEGER = rb"\d{1,3}(?:,\d{3}){1,4}(?![\d.]|,\d)|\d{1,3}(?:_\d{3}){1,4}(?![\d_])|\d{1,15}(?!\d|\.\w|\s?%)"
_COUNT = rb"(?:[\s:=#\[(]{0,12}|-)(?P<count>" + _INTEGER + rb")(?:\s{0,4}(?:/|(?:out )?of)\s{0,4}(" + _INTEGER + rb"))?"
_STEP = re.compile(
    rb"(?<![A-Za-z0-9./-])(?i:(?:global|train|training|opt|optimizer|g)[_ ]?steps?|num[_ ]updates|"
    rb"step[_ ]?(?:idx|index|num(?:ber)?|no\.?)|steps?|iter(?:ation)?s?|upd(?:ate)?s?|it)" + _COUNT
)
_DONE = re.compile(
    rb"(?<![\w.,/-])(?P<count>" + _INTEGER + rb")(?:\s?/\s?\d{1,15})?\s(?i:steps|iterations|iters|updates)(?![\w/])"
)
_BATCH = re.compile(rb"(?<![A-Za-z0-9./-])(?i:batch(?:es)?|minibatch)" + _COUNT)
_EPOCH = re.compile(  # and the batch that may stand behind it: `Epoch: [2][100/5005]`, `epoch 1 | 200/ 2983 batches`
    rb"(?<![A-Za-z0-9./-])(?:(?i:epochs?|ep)(?:\((?:train|val|test)\))?|Train:(?= \[?\d+(?:/\d+)?\]? ?\[))"
    + _COUNT
    + rb"(?:\]?[\s,:|]{0,4}\[?\s{0,8}(\d{1,15})\s?/\s{0,8}(\d{1,15})(?=\s*[\](|,]|\s+batches))?"
)
_BAR = re.compile(rb"\d{1,3}%\|[^|\n]{0,300}\|\s{0,8}(\d{1,15})/(\d{1,15}) \[")  # tqdm's
_MEASURE = (
    rb"(?:[a-z0-9]{1,24}[_/.-]){0,4}(?:[a-z]{0,24}loss|nll|ce|xe|x-?ent(?:ropy)?|"
    rb"cross[-_ ]?entropy|acc(?:uracy)?|ppl|perplexity|bpb|bpc|lr|learning[_ ]rate|err(?:or)?|"
    rb"(?:grad[_ ]?)?norm|gnorm|reward|return|score|f1|bleu|rouge|auc|map|mse|mae|rmse|mfu|tflops|tps|wps|"
    rb"tok(?:ens)?/s(?:ec)?|tokens_per_sec(?:ond)?|throughput|elbo|kl|entropy|top[-_]?[15])(?:[@_/.-][a-z0-9]{1,24}){0,3}"
)
_OF = (
    rb"(?:(?:train(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|dev|test(?:ing)?|held[-_ ]?out|mean|average|avg|"
    rb"total)[ ]){0,2}"
)
_UNIT = (
    rb"(k|K|M|B|ms|s|%)?(?:nats?|bits?)?(?:/(?:tok(?:en)?|char|byte|word|sample|example|batch|step)s?)?(?![\w:/]|\.\d)"
)
_JOINT = rb"\s{0,40}(?:[=:]{1,2}>?|[-~]>|\xe2\x86\x92|(?<=\s)(?:is|was|of|at)(?=\s)|\.{2,40})\s{0,8}"
_KNOWN = re.compile(rb"^" + _MEASURE + rb"$", re.I)
_PAIR = re.compile(
    rb"(?<!\w)(?!(?i:nan|inf)\b)([A-Za-z][\w./@%-]{0,60}(?: [A-Za-z][\w./@-]{0,30}){0,2}?)"
    + _JOINT
    + rb"("
    + forms.NUMBER
    + rb")"
    + _UNIT
    + rb"|(?<![\w./-])((?i:"
    + _OF
    + _MEASURE
    + rb"))\s{1,40}("
    + forms.NUMBER
    + rb")"
    + _UNIT
)
_RATE = re.compile(
    rb"(?<![\w.])("
    + forms.NUMBER
    + rb")\s?((?:ms|s)/(?:iter|step|it|batch)|(?:it|tok|tokens|samples|steps)/s(?:ec)?)(?!\w)"
)
_PHASE = re.compile(
    rb"(?<![A-Za-z])(?i:(val|valid|validation|validate|eval|evaluation|dev|held[-_ ]?out)|(test|testing)|"
    rb"train(?:ing)?)(?![A-Za-z_/.-])"
)
_BARE = re.compile(
    r"(?i)(?:.*[^a-z])?(?:[a-z]*loss(?:es)?|nll|ce|xe|x-?ent(?:ropy)?|cross.?entropy|acc(?:uracy)?|ppl|perplexity|bpb|"
    r"reward|r?mse|mae|bce|huber)"
    r"(?:[_/. -](?:per[_ ][a-z]+|train|val|valid|eval|test|mean|avg|ema|smooth(?:ed)?|total|step|epoch))?"
)
_COUNTS = re.compile(
    rb"(?i)^(?:global[_ ]?|train[_ ])?(?:steps?|iter(?:ation)?s?|updates?|it|epochs?|ep|batch(?:es)?|minibatch|"
    rb"eta|time|rank|gpu)$"
)
_FRACTION = re.compile(rb"\[\s{0,8}(\d{1,15})\s?/\s{0,8}(\d{1,15})\]")  # PyTorch's tutorials: `loss: 2.3  [  64/60000]`
_TURNED = re.compile(rb"(?i)^(loss|accuracy|acc) (train|val)$")
_LAST_WORD = re.compile(rb"(?i)(?:^|[ \]])(" + _MEASURE + rb")$")
_SCALE = {b"k": 1e3, b"K": 1e3, b"M": 1e6, b"B": 1e9}
_SETTINGS = re.compile(  # a printed object, TrainingArguments(output_dir=…, …); not one of a step: Metrics(step=7, …)
    rb"\w*(?i:config|arguments|args|settings|options|params)\w*\(\w{1,60}=|"
    rb"[A-Z]\w{2,60}\((?!(?:global_)?(?:step|iteration|epoch)=\d)\w{1,60}="
)
_CODE = re.compile(rb"\s*(?:def|class|if|elif|else|for|while|import|from|assert|with|@)\b.*:\s*$")
_PROSE = re.compile(
    rb"[{}\"']|;\s*$|==|\w\(|\b(?:best|weights?|threshold|target|patience|improved|from|default)\b", re.I
)
_NOTE = re.compile(rb"\([^()]{0,80}\)")
_PRINTED = re.compile(rb"[{,]\s{0,4}['\"][\w ./-]{1,60}['\"]\s?:")
_UNMARKED = bytes.maketrans(b"{}\"'", b"    ")
_ASIDE = re.compile(rb"(?i)([a-z_ -]{0,30}loss)[\s_]?[(\[](train|val|valid|eval|test|dev)[a-z]{0,9}[)\]]")
_OBJECT = re.compile(
    rb"(?:tensor|array|np\.float\d{1,3}|float\d{0,3})\(\[?(" + forms.NUMBER + rb")\]?(?:, [^()\n]{1,200})?\)"
)
_QUOTED = re.compile(rb"([=\s])([\"'])(" + forms.NUMBER + rb")\2")  # `step="100"`, as an attribute is written
_COMMENT = re.compile(rb"\s*#+(?:\s|$)")
_NUMBERED = 5  # rows without a step that are numbered
_OWN_HEADING = 0.6  # of rows without a step: that many have a line of their own above them that says one
_STRAYS = 4  # times more rows have an epoch alone: those with a step are strays
_WIDEST = 4000  # bytes of a line that are looked at


def _row(line: bytes) -> forms.Parsed | None:
    if len(line) > _WIDEST or _CODE.match(line) or _SETTINGS.search(line):
        return None
    printed = _PRINTED.search(line) is not None  # a dictionary or an object: its marks belong to no name
    if printed:
        line = line.translate(_UNMARKED)
    line = _OBJECT.sub(rb"\1", line) if b"(" in line else line
    line = _QUOTED.sub(rb"\1\3 ", line) if b'"' in line or b"'" in line else line
    line = _ASIDE.sub(_before, line) if b"oss" in line or b"OSS" in line else line
    step, batch, epoch = _STEP.search(line), _BATCH.search(line), _EPOCH.search(line)
    step = step or (_DONE.search(line) if batch is None and epoch is None else None)
    bar = _BAR.search(line) if b"%|" in line else None
    if step is None and epoch is None and batch is None and bar is None and b"oss" in line:
        bar = _FRACTION.search(line)
    counts = [match for match in (step, batch, epoch, bar) if match]
    first = min((match.start() for match in counts), default=-1)
    phases = [(found.start(), _phase(found)) for found in _PHASE.finditer(line)]
    pairs = list(_PAIR.finditer(line))
    # a word that is a part of a name says nothing of what stands before it: `loss 0.5, val loss 0.6`
    alone = not any(found.start() <= at < found.end() for at, _ in phases for found in pairs)
    of_training = not phases or any(not phase for _, phase in phases)
    if bar and bar[1] != bar[2] and any(phase for _, phase in phases):
        return None  # an evaluation is a row once its bar is full
    names: dict[str, Any] = {}
    known = False
    for found in pairs:
        name, number, scale = found.group(1, 2, 3) if found[1] else found.group(4, 5, 6)
        name = name.rstrip(b".")
        first = found.start() if first < 0 else first
        if _COUNTS.match(name):
            continue
        if turned := _TURNED.match(name):
            name = turned[2] + b" " + turned[1]
        if not _KNOWN.match(name):
            last = _LAST_WORD.search(name) if b" " in name else None
            head, _, tail = name.rpartition(b" ")
            if last and _PHASE.fullmatch(head):
                pass  # "val loss", "test accuracy": the words belong together
            elif last and not _KNOWN.match(tail):
                continue
            known = known or last is not None
        else:
            known = True
        if scale in _SCALE:
            number = _scaled(number, _SCALE[scale])
        text = name.decode("utf-8", "replace")
        phase = _phase_at(phases, found.start(), alone)
        of_training |= not phase and _BARE.fullmatch(text) is not None and not _PHASE.search(name)
        if phase and not _PHASE.search(name) and not re.match(r"(?i)(val|valid|eval|test|dev|train)[_/. ]", text):
            text = f"{phase} {text}"
        names.setdefault(text, number)
    if known and _COMMENT.match(line):
        return None  # a comment in a program or a file of settings; `## Epoch 3` is a heading
    if printed and not any(map(_BARE.fullmatch, names)):
        return None  # settings
    if not counts:
        if not known or not any(map(_BARE.fullmatch, names)) or printed or _PROSE.search(_NOTE.sub(b"", line)):
            return None
    elif not known:  # a heading: it gives a step to the lines below it
        names = {}
    for value, unit in _RATE.findall(line) if known else ():
        names.setdefault(unit.decode(), value)
    extra: dict[str, Any] = {}
    if epoch:
        extra["_epoch"] = epoch[1]
        if epoch[3]:  # PyTorch's ImageNet example: Epoch: [2][100/5005]
            extra |= {"_batch": epoch[3], "_batches": epoch[4]}
    if batch and "_batch" not in extra:
        extra |= {"_batch": batch[1], "_batches": batch[2] or b""}
    if bar and step is None and "_batch" not in extra:
        extra |= {"_batch": bar[1], "_batches": bar[2]}
    if bar and not of_training:
        extra["_aside"] = b"1"
    count = step["count"] if step else b""
    if step and not re.match(rb"(?i)global", step[0]) and epoch and "_batch" not in extra:
        extra |= {"_batch": count, "_batches": b""}  # of an epoch or of the run: the counts will tell
    if step:
        extra["_step"] = count
    named = names | extra
    return max(first, 0), None, tuple(named), tuple(named.values()), of_training


def _before(found: re.Match[bytes]) -> bytes:
    """`loss (val)` as `val loss`."""
    return b"".join([found[2], b" ", found[1].strip()])


def _whole(text: bytes) -> int:
    return int(text.replace(b",", b"").replace(b"_", b""))


def _phase(found: re.Match[bytes]) -> str:
    """ "val", "test", or "" for a word that says training."""
    return "val" if found[1] else "test" if found[2] else ""


def _phase_at(phases: list[tuple[int, str]], place: int, alone: bool) -> str:
    """Which data a measure is about: what the last such word before it says, or, where they stand alone, the only one
    of its line."""
    if alone and len({phase for _, phase in phases}) == 1:
        return phases[0][1]
    return next((phase for at, phase in reversed(phases) if at <= place), "")


def _scaled(number: bytes, factor: float) -> Any:
    try:
        return float(number.replace(b",", b"")) * factor
    except ValueError:
        return number


class Plain(engine.Dialect):
    kind = "plain"
    about = "any line with a step and a loss"
    hints = (
        b"tep",
        b"TEP",
        b"poch",
        b"POCH",
        b"ter",
        b"ITER",
        b"atch",
        b"pdate",
        b"upd",
        b"Upd",
        b"UPD",
        b"it ",
        b"it:",
        b"it=",
        b"ep ",
        b"%|",
        b"Train: ",
        b"oss",
        b"acc",
        b"nll",
        b"ppl",
        b"erplexity",
        b"ntropy",
        b"xent",
        b"Xent",
        b"ce",
        b"CE",
        b"xe",
        b"XE",
        b"bpb",
        b"bpc",
        b"NLL",
        b"LOSS",
        b"PPL",
        b"eward",
    )
    shapes = (forms.Lines(_row),)
    last_resort = True
    aliases: ClassVar[engine.Aliases] = {
        "loss": "train/loss",
        "Loss": "train/loss",
        "acc": "train/accuracy",
        "accuracy": "train/accuracy",
        "ppl": "train/perplexity",
        "val loss": "eval/loss",
        "val Loss": "eval/loss",
        "val acc": "eval/accuracy",
        "val accuracy": "eval/accuracy",
        "val ppl": "eval/perplexity",
        "test loss": "test/loss",
        "test acc": "test/accuracy",
        "ms/iter": "train/duration_ms",
        "ms/step": "train/duration_ms",
        "s/it": ("train/duration_ms", 1000.0),
        "tok/s": "train/tokens_per_second",
        "tokens/s": "train/tokens_per_second",
    }

    def prepare(self, text: bytes, own: dict[str, Any]) -> bytes:
        return columns.said_in_rows(text, own)

    def place(self, lines: list[bytes], rows: list[forms.Raw], own: dict[str, Any], ahead: bytes) -> list[forms.Raw]:
        """A step for each row, out of its step, batch and epoch, or of those of the line above it."""
        order = sorted(
            (int(index), number, at) for number, row in enumerate(rows) for at, index in enumerate(row.where)
        )
        counts = [{name: row.columns[at] for at, name in enumerate(row.names) if name[0] == "_"} for row in rows]
        # a step, or ["epoch", n], for each row; the bare ones: that of the line above
        steps: list[list[Any]] = [[None] * len(row.where) for row in rows]
        above = own.get("above")
        stepped = sum(
            len(row.where) for row, count in zip(rows, counts, strict=True) if "_step" in count or "_batch" in count
        )
        by_epoch = sum(len(row.where) for row, count in zip(rows, counts, strict=True) if list(count) == ["_epoch"])
        stray = "steps" not in own and _STRAYS * stepped < by_epoch
        for _, number, at in order:
            now = {name: _whole(column[at]) for name, column in counts[number].items() if column[at] != b""}
            if now:
                found_step = self.step(now, own)
                if found_step is not None and "_aside" not in now:
                    own["now"] = found_step
                above = ["epoch", now["_epoch"]] if found_step is None else found_step
            steps[number][at] = above
        own["above"] = above
        if stray:
            own.pop("steps", None)
        placed: list[forms.Raw] = []
        for row, found, count in zip(rows, steps, counts, strict=True):
            kept = [at for at, name in enumerate(row.names) if name[0] != "_"]
            if not kept:
                continue
            row = row._replace(names=tuple(row.names[at] for at in kept), columns=[row.columns[at] for at in kept])
            if not count and own.get("beside"):
                placed.append(row._replace(steps=None, main=False))
                continue
            if not count and not self.has_own(row, found, own):
                placed += self.numbered(row, own)
                continue
            for counted in (True, False):
                picks = [at for at, step in enumerate(found) if step is not None and isinstance(step, int) is counted]
                if not picks:
                    continue
                part = row._replace(
                    where=row.where[picks],
                    starts=[row.starts[at] for at in picks],
                    columns=[[column[at] for at in picks] for column in row.columns],
                )
                if counted:
                    placed.append(part._replace(steps=[found[at] for at in picks]))
                elif own.get("steps"):  # means of an epoch, between rows that count steps
                    placed.append(part._replace(steps=None, main=False))
                else:
                    placed.append(part._replace(steps=[found[at][1] for at in picks], x="epoch"))
        return placed

    @staticmethod
    def has_own(row: forms.Raw, above: list[Any], own: dict[str, Any]) -> bool:
        """Whether rows without a step have each a line above them that says one."""
        key, numbers = "\n".join(row.names), own.setdefault("numbers", {})
        different = sum(step is not None for step, _ in itertools.groupby(above))
        rows = len(list(itertools.groupby(zip(above, *row.columns, strict=True))))  # several ranks print the same
        if key not in numbers and (different < _OWN_HEADING * rows or not different):
            if len(above) < _NUMBERED and not own.get("steps") and len(numbers) < 100:
                return bool(different)
            numbers[key] = 0
        return key not in numbers

    @staticmethod
    def numbered(row: forms.Raw, own: dict[str, Any]) -> list[forms.Raw]:
        """Rows without a step: 1, 2, 3."""
        key, numbers = "\n".join(row.names), own["numbers"]
        if own.get("steps") or (numbers.get(key, 0) == 0 and len(row.where) < _NUMBERED):
            return []
        before = numbers[key]
        numbers[key] += len(row.where)
        return [row._replace(steps=list(range(before + 1, numbers[key] + 1)), x="row")]

    def refine(self, points: ImportedPoints, own: dict[str, Any], segment: int) -> Iterator[Item]:
        if points.x == "row" and not own.get("told"):
            own["told"] = True
            yield engine.note(points, "These lines say no step: rows are numbered 1, 2, 3.")
        yield points

    @staticmethod
    def step(said: dict[str, int], own: dict[str, Any]) -> int | None:
        """A row's step; None if it says an epoch alone."""
        if "_batch" not in said and "_step" not in said:
            return None
        if "_aside" in said and "now" in own:
            return int(own["now"])
        own["steps"] = True
        count = said["_batch"] if "_batch" in said else said["_step"]
        epoch = said.get("_epoch")
        if epoch is None and said.get("_batches"):
            # bars of one length, one after the other, are epochs; one that was left in its middle was broken off
            length, last = said["_batches"], int(own.get("bar", 0))
            if length < own.setdefault("length", length):
                return int(own["now"]) if "now" in own else count  # a shorter one between them is an evaluation
            if count < last:
                own["base"] = int(own.get("base", 0)) + int(own["length"]) if last >= 0.8 * own["length"] else 0
            own["bar"], own["length"] = count, length
            return int(own.get("base", 0)) + count
        if epoch is None or "_batch" not in said:
            return count
        first = own.setdefault("first_epoch", epoch)
        if said.get("_batches"):
            return (epoch - first) * said["_batches"] + count if epoch >= first else count
        # no length is said: a count that falls as the epoch rises begins anew, behind the last one
        bases, last = own.setdefault("bases", {}), own.get("epoch", epoch)
        base = int(bases.get(str(last), 0))
        if epoch > last and count < own.get("count", 0):
            base += int(own["count"])
        elif epoch < last:
            base = int(bases.get(str(epoch), base))
        if len(bases) < 10_000:
            bases[str(epoch)] = base
        own["epoch"], own["count"] = epoch, count
        return base + count


SOURCE = Plain()
