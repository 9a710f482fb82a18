"""Which of a row's numbers counts, where one line cannot say it and the lines below it do.

In:   rows of the plain reader: `_step`, `_batch`, `_batches`, `_epoch`, and `_part` and `_parts` of a fraction.
Out:  the same rows; where what seemed to count goes up and down, or stands still, what rises counts instead.

What was decided for rows of the same names is kept in `own`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms, measures

ENOUGH = 3  # rows that decide
_FALLS = 0.25  # of the rows: a count that falls more often counts nothing
_RESUMED = 0.06  # of the rows: a launch that goes on from an earlier one
_LOOKED_AT = 200  # rows
_IN_TURN, _SHORTER = 3, 0.8  # pairs of bars; the shorter one, as a share
_KEPT = 200  # decisions in a file
_STRETCH = 8  # rows that count one way before others count another
_OF_TRAINING = expression(r"(?i)^train(?:ing)?(?=[_/. -])")
_PLACES = ("_step", "_batch", "_epoch")
_COUNTS = expression(
    r"(?i)(?:(?:global|total|train(?:ing)?|num(?:ber)?(?: of)?|n)[ _]?)?"
    r"(?:episodes?|eps|games?|steps?|iter(?:ation)?s?|updates?|rounds?|generations?|frames?|timesteps?)"
    r"(?:[ _](?:num(?:ber)?|index|idx|no))?"
)


HELD_OUT = expression(r"(?i)(?:val|valid|validation|va|test|te|eval|dev)")  # a name, of nothing said
TRAINING = expression(r"(?i)train(?:ing)?")
_LOSS_BEGINS = (1.0, 30.0)  # above an accuracy's most, below a percentage's usual ones
_PERCENT = 100.0
_FALLEN, _OF_COURSE = 0.7, 6  # of the first third, and of at least six rows: what falls that far is a loss
_DIGITS = 11  # bytes of a number with all its digits
_EXAMPLES, _NEAR = np.arange(1, 20_000), 1e-6  # of which something may be a share, and how near a whole number is
_PARTS, _SUM = 6, 1e-4  # numbers of a line that may be parts of a loss; how far their sum may be from it, as a share
_ERROR = expression(r"(?i)(?:(?:train(?:ing)?|current|avg|average|mean)[_ ])?err(?:or)?")
_HELD_OUT_ERROR = expression(r"(?i)(?:val|valid|validation|test|eval|dev)[_ ]err(?:or)?")
_RATE = expression(r"(?i)(?:.*[^a-z])?(?:lr|learning[_ ]rate)(?:[_ ]\d)?")
_BEST = expression(r"(?i)(?:.*[^a-z])?best[_ .-]?.+")
_SAID = expression(r"(?i)(?:.*[^a-z])?(?:.*loss|acc(?:uracy)?|ppl|perplexity|auc|f1|score|error|bpb)(?:[^a-z].*)?")
_OF_SET = expression(  # a measure of whatever name, of the data that come first; no size, count, time or setting
    r"(?i)(?:train(?:ing)?|val(?:id(?:ation)?)?)[-/](?!.*(?:size|sampl|time|sec|speed|step|batch|epoch|file|data|exampl|tok|"
    r"lr|rate|ratio|len|num|count|param|mem|split|frac|perc|every|freq|seed|path))[a-z]"
)


def losses_by_course(rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
    """Rows whose numbers are called `train` and `val` alone, or an error alone: losses, where the training's begins
    above 1, which no accuracy is and no share of mistakes, and falls; of data alone also where it falls by far, or is
    the sum of others on its line, and of an error where its many digits are those of no share."""
    known = own.setdefault("course", {})
    result = []
    for row in rows:
        errors = [name for name in row.names if _ERROR.fullmatch(name)]
        said = any(_SAID.fullmatch(name) and name not in errors for name in row.names)
        training = [name for name in row.names if TRAINING.fullmatch(name)]
        if len(errors) + len(training) != 1 or said:
            result.append(row)
            continue
        key = "\n".join(row.names)
        is_loss = known.get(key)
        if is_loss is None:
            course = [_number(text) for text in row.columns[row.names.index([*errors, *training][0])]]
            first, *_, last = course * 2
            is_loss = (_LOSS_BEGINS[0] < first < _LOSS_BEGINS[1] or first > _PERCENT) and last < first
            is_loss |= bool(training) and (_falls_by_far(course) or _is_sum(row, course))
            is_loss |= bool(errors) and _is_no_share(row.columns[row.names.index(errors[0])])
            if len(row.where) >= (ENOUGH if is_loss or errors else _OF_COURSE) and len(known) < _KEPT:
                known[key] = is_loss
        if is_loss:
            own["error_losses"] = own.get("error_losses") or bool(errors)
            bare = {*errors, *training}
            names = (f"{name} loss" if name in bare or HELD_OUT.fullmatch(name) else name for name in row.names)
            row = row._replace(names=tuple(names))
        result.append(row)
    return [_held_out_errors(row) for row in result] if own.get("error_losses") else result


def _held_out_errors(row: forms.Raw) -> forms.Raw:
    """Rows of an error on data held out alone, beside those of the training whose errors are losses."""
    if not all(name[0] == "_" or _HELD_OUT_ERROR.fullmatch(name) for name in row.names):
        return row
    return row._replace(names=tuple(name if name[0] == "_" else f"{name} loss" for name in row.names))


def told_apart(rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
    """Rows of several things that are trained at once, `epoch 3, head: a, loss=2.31`, under names of their own, once
    two of them have been said at one count; those of the first thing have theirs as they are."""
    things = {name for row in rows for name in row.names if name.startswith("_of:")}
    if not things:
        return rows
    since = _at_once(rows, own)
    result = []
    for row in rows:
        at = next((at for at, name in enumerate(row.names) if name in things), None)
        if at is None:
            result.append(row)
            continue
        thing = row.names[at]
        columns = [column for place, column in enumerate(row.columns) if place != at]
        bare = row._replace(names=(*row.names[:at], *row.names[at + 1 :]), columns=columns)
        named = tuple(name if name[0] == "_" else f"{thing.partition(':')[2]} {name}" for name in bare.names)
        apart = [place for place, index in enumerate(row.where.tolist()) if index >= since]
        if thing == own.get("first_thing", thing) or not apart:
            result.append(bare)
            continue
        if len(apart) < len(row.where):
            result.append(forms.picked(bare, [at for at, index in enumerate(row.where.tolist()) if index < since]))
        result.append(forms.picked(bare, apart)._replace(names=named))
    return forms.merge(result)


def _at_once(rows: list[forms.Raw], own: dict[str, Any]) -> int:
    """From which line on several things are named apart. own: the first thing, and the last count of each."""
    if own.get("apart"):
        return 0
    last = own.setdefault("things", {})
    for index, thing, count in sorted(
        (int(row.where[at]), thing, repr(count))
        for row in rows
        for thing in row.names
        if thing.startswith("_of:") and (counts := [name for name in row.names if name in _PLACES])
        for at, count in enumerate(zip(*(row.columns[row.names.index(name)] for name in counts), strict=True))
    ):
        own.setdefault("first_thing", thing)
        if any(count == other for name, other in last.items() if name != thing):
            own["apart"] = True
            return index
        if thing in last or len(last) < _KEPT:
            last[thing] = count
    return 1 << 62


def are_of_data(names: Mapping[str, Any]) -> bool:
    """Whether names are words for data, of the training and held out, `train` and `val`; or one begins with such a word
    and has a fraction: `Train-SmoothL1=23.4`."""
    words = [*names]
    if any(_OF_SET.match(name) and isinstance(value, bytes) and b"." in value for name, value in names.items()):
        return True
    return any(map(TRAINING.fullmatch, words)) and any(map(HELD_OUT.fullmatch, words))


def _falls_by_far(course: list[float]) -> bool:
    """Whether numbers above zero end far below where they began, as no share of what is right does."""
    third = len(course) // 3
    return len(course) >= _OF_COURSE and 0 < sum(course[-third:]) < _FALLEN * sum(course[:third])


def _is_no_share(column: Sequence[Any]) -> bool:
    """Whether numbers with all their digits, or the one that all rows have, can't be shares of one whole number of
    examples."""
    texts = [text for text in dict.fromkeys(column) if isinstance(text, bytes) and len(text) > _DIGITS]
    values = np.array([_number(text) for text in texts[:ENOUGH]])
    alike = len(set(column)) == 1 and len(column) >= 2 * ENOUGH
    if len(values) < (1 if alike else ENOUGH) or not np.isfinite(values).all():
        return False
    parts = values[:, None] * _EXAMPLES
    return not bool((np.abs(parts - np.rint(parts)) < _NEAR).all(axis=0).any())


def _is_sum(row: forms.Raw, course: list[float]) -> bool:
    """Whether numbers are the sum of two others on their lines, or of all, in three rows or more: parts of a loss."""
    parts = [
        np.array([_number(text) for text in column])
        for name, column in zip(row.names, row.columns, strict=True)
        if name[0] != "_" and not TRAINING.fullmatch(name) and not HELD_OUT.fullmatch(name)
    ]
    parts = [part for part in parts[:_PARTS] if np.isfinite(part).all() and part.any()]
    total = np.array(course)
    if len(course) < ENOUGH or len(parts) < 2 or not np.isfinite(total).all() or len(set(course)) < ENOUGH:
        return False
    sums = [*(one + other for one, other in itertools.combinations(parts, 2)), np.sum(parts, axis=0)]
    return any(bool((np.abs(each - total) <= _SUM * np.abs(total)).all()) for each in sums)


def _number(text: Any) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def of_evaluators(rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
    """Rows in which an evaluator uses the names of the training, as `[eval] step 100 train_loss 2.31`: where rows of
    the training have the same names, theirs say the data."""
    known, result = own.setdefault("of_training", []), []
    for row in rows:
        if len(known) < _KEPT and not any(name.startswith("_tag:") for name in row.names):
            known += [name for name in row.names if _OF_TRAINING.match(name) and name not in known]
    for row in rows:
        at = next((at for at, name in enumerate(row.names) if name.startswith("_tag:")), None)
        if at is None:
            result.append(row)
            continue
        phase, main, names = row.names[at].partition(":")[2], row.main, [*row.names]
        if any(name in known for name in names):
            main, names = False, [_OF_TRAINING.sub(phase, name) for name in names]
        columns = [column for place, column in enumerate(row.columns) if place != at]
        result.append(row._replace(names=(*names[:at], *names[at + 1 :]), columns=columns, main=main))
    return result


def beside_bests(rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
    """Rows without a count that say a score and its best so far beside a loss, which rows that count say as well:
    `Loss: 0.98, mIoU: 0.49, Best_mIoU: 0.52` is an evaluation."""
    counted, result = own.setdefault("names_with_counts", []), []
    for row in rows:
        if row.main and len(counted) < _KEPT and any(name[0] == "_" for name in row.names):
            counted += [name for name in row.names if name[0] != "_" and name not in counted]
    for row in rows:
        best = [name for name in row.names if _BEST.fullmatch(name)]
        again = [name for name in row.names if name in counted and name.lower().endswith("loss")]
        if (
            row.main
            and again
            and any(map(measures.SCORE.fullmatch, best))
            and all(name[0] != "_" for name in row.names)
        ):
            names = tuple(name if name in best else f"val {name}" for name in row.names)
            row = row._replace(names=names, main=False)
        result.append(row)
    return result


def not_planned(rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
    """Rows without the lines that say how many steps there will be. Where their number rises from line to line, they
    say how many there were: `iterations: 29000`, then `iterations: 29100`."""
    result = []
    for row in rows:
        if "_planned" in row.names:
            at = row.names.index("_planned")
            count = next(column for name, column in zip(row.names, row.columns, strict=True) if name != "_planned")
            own["planned"] = own.get("planned", True) and not (len(count) >= ENOUGH and _rises(count))
            if own["planned"]:
                continue
            columns = [column for place, column in enumerate(row.columns) if place != at]
            row = row._replace(names=(*row.names[:at], *row.names[at + 1 :]), columns=columns)
        result.append(row)
    return result


def is_said_above(row: forms.Raw, rows: list[forms.Raw]) -> bool:
    """Whether lines above rows say the numbers that these begin with: all but those of the rows ahead of them."""
    at = next((at for at, name in enumerate(row.names) if name == "_lead"), None)
    heads = [other for other in rows if [*other.names] == ["_step"]]
    if at is None or not heads:
        return False
    places = np.concatenate([head.where for head in heads])
    order = np.argsort(places, kind="stable")
    said = [text for head in heads for text in head.columns[0]]
    above = np.searchsorted(places[order], row.where) - 1
    pairs = [(said[order[one]], text) for one, text in zip(above, row.columns[at], strict=True) if one >= 0]
    return len(pairs) >= ENOUGH and all(_number(one) == _number(other) for one, other in pairs)


def settled(rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
    """Rows whose counts count."""
    known = own.setdefault("counting", {})
    result = []
    for row in rows:
        if not any(name[0] == "_" for name in row.names) or len(row.names) == sum(name[0] == "_" for name in row.names):
            result.append(row)
            continue
        key = "\n".join(row.names)
        decision = known.get(key)
        if decision is None:
            decision = _decision(row)
            if len(row.where) >= ENOUGH and len(known) < _KEPT:
                known[key] = decision
        result.append(_renamed(row, decision))
    return result


def in_stages(rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
    """Rows that say an epoch alone as rows that count steps, where others of the same names count steps, and each kind
    comes in stretches of its own: of two optimizers, one after the other, of which one counts epochs."""
    known: list[str] = own.setdefault("in_stages", [])
    epochs = {_key(row): row for row in rows if row.main and _counts(row) == ["_epoch"]}
    steps = {_key(row): row for row in rows if row.main and _counts(row) == ["_step"]}
    for key in epochs.keys() & steps.keys():
        places = sorted((*((at, True) for at in epochs[key].where), *((at, False) for at in steps[key].where)))
        stretches = [len([*group]) for _, group in itertools.groupby(places, key=lambda place: place[1])]
        if min(stretches) >= _STRETCH and key not in known and len(known) < _KEPT:
            known.append(key)
    if not known:
        return rows
    return [
        row._replace(names=tuple("_step" if name == "_epoch" else name for name in row.names))
        if row.main and _counts(row) == ["_epoch"] and _key(row) in known
        else row
        for row in rows
    ]


def _counts(row: forms.Raw) -> list[str]:
    return [name for name in row.names if name[0] == "_"]


def _key(row: forms.Raw) -> str:
    return "\n".join(name for name in row.names if name[0] != "_")


def of_other_lengths(rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
    """Rows that count batches in the words of the training's, but say no rate and count to another length in the same
    epochs: an evaluation's, of the validation data as they say nothing else."""
    known, counted, result = own.setdefault("evaluating", {}), {"_epoch", "_batch", "_batches"}, []
    placed = [row for row in rows if row.main and counted <= {*row.names}]
    trained = [row for row in placed if any(map(_RATE.fullmatch, row.names))]
    for row in rows:
        key = "\n".join(row.names)
        if any(row is one for one in placed) and all(row is not one for one in trained):
            epochs = _lengths(row)
            apart = [
                len(epochs) > 1 or _behind_full(row, other)
                for other in trained
                if {*row.names} <= {*other.names}
                and (said := _lengths(other)).keys() >= epochs.keys()
                and all(epochs[at] != said[at] for at in epochs)
            ]
            if len(known) < _KEPT and key not in known and (len(epochs) > 1 or any(apart)):
                known[key] = any(apart)
            if known.get(key):
                names = tuple(name if name[0] == "_" else f"val {name}" for name in row.names)
                row = row._replace(names=names, main=False)
        result.append(row)
    return result


def _behind_full(row: forms.Raw, other: forms.Raw) -> bool:
    """Whether rows of one epoch, its first one, come behind the last batch of others."""
    full, length = (_number(other.columns[other.names.index(name)][-1]) for name in ("_batch", "_batches"))
    return len(_lengths(other)) == 1 and int(other.where[-1]) < int(row.where[0]) and full >= length - 1 > 0


def of_shorter_bars(rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
    """Full bars of two lengths in turn, in the same words: the shorter ones, which come second, are evaluations."""
    known, result = own.setdefault("shorter", {}), []
    for row in rows:
        key, names = "\n".join(row.names), {*row.names}
        if not row.main or not {"_batch", "_batches"} <= names or names & {"_epoch", "_step"}:
            result.append(row)
            continue
        full, lengths = (row.columns[row.names.index(name)] for name in ("_batch", "_batches"))
        if key not in known and len(known) < _KEPT and len(lengths) >= 2 * _IN_TURN:
            (first, *odd), (second, *even) = ({*map(_number, lengths[at::2])} for at in (0, 1))
            in_turn = not odd and not even and second < _SHORTER * first
            known[key] = second if in_turn and list(full[:-1]) == list(lengths[:-1]) else 0
        if not known.get(key):
            result.append(row)
            continue
        evaluated = [at for at, length in enumerate(lengths) if _number(length) == known[key]]
        trained = [at for at, length in enumerate(lengths) if _number(length) != known[key]]
        result += [forms.picked(row, trained)] if trained else []
        if evaluated:
            words = tuple(name if name[0] == "_" else f"val {name}" for name in row.names)
            result.append(forms.picked(row, evaluated)._replace(names=words, main=False))
    return result


def _lengths(row: forms.Raw) -> dict[Any, Any]:
    """The length of each epoch of rows."""
    return dict(zip(*(row.columns[row.names.index(name)] for name in ("_epoch", "_batches")), strict=True))


def lasts_of_evaluations(rows: list[forms.Raw]) -> list[forms.Raw]:
    """Of rows that count an evaluation's batches, or stand at one step, the last of each evaluation.

    `Test: epoch [3][10/40]` counts none of the training's batches: it stands aside of its steps.
    """
    result = []
    trained = np.sort(np.concatenate([row.where for row in rows if row.main] or [np.zeros(0, np.int64)]))
    for row in rows:
        if row.main or "_aside" in row.names or not {"_epoch", "_batch", "_batches"} <= set(row.names):
            result.append(row)
            continue
        epochs, batches, lengths = (row.columns[row.names.index(name)] for name in ("_epoch", "_batch", "_batches"))
        places = list(zip(map(_number, epochs), map(_number, batches), strict=True))
        of_training = not all(lengths)
        between = np.diff(np.searchsorted(trained, row.where)) if len(trained) else np.zeros(len(places) - 1)
        goes_on = [
            not rows_between and (late == early if of_training else late[0] == early[0] and late[1] > early[1])
            for (early, late), rows_between in zip(itertools.pairwise(places), between.tolist(), strict=True)
        ]
        last = [at for at, goes in enumerate([*goes_on, False]) if not goes]
        aside = {} if of_training else {"_aside": [b"1"] * len(last)}
        result.append(
            row._replace(
                names=(*row.names, *aside),
                where=row.where[last],
                starts=[row.starts[at] for at in last],
                columns=[[column[at] for at in last] for column in row.columns] + [*aside.values()],
            )
        )
    return result


def _decision(row: forms.Raw) -> dict[str, str]:
    """Names of columns that count something else than their names say → what they count; "" leaves one out."""
    columns = {name: column[:_LOOKED_AT] for name, column in zip(row.names, row.columns, strict=True)}
    changed = {"_part": "", "_parts": ""} if "_part" in columns else {}
    if "_round" in columns:
        changed["_round"] = ""
    if "_run" in columns:
        same = [*columns["_run"]] == [*columns["_step"]]
        goes_on = len(row.where) >= ENOUGH and _rises(columns["_run"]) and (same or not _rises(columns["_step"]))
        return changed | ({"_step": "", "_run": "_step"} if goes_on else {"_run": ""})
    alone = "_batches" in columns and "_epoch" not in columns
    if alone and len(set(columns["_batches"])) == 1 and _are_short(columns["_batches"], columns["_batch"]):
        return changed | {"_batch": "_epoch", "_batches": "_batch"}
    if len(row.where) < ENOUGH:
        return changed
    if "_part" in columns and _rises_within(columns["_part"], columns["_epoch"]):
        return {"_part": "_batch", "_parts": "_batches"}
    if alone:  # `Batch 78/0`, `Batch 78/10`: an epoch and a batch
        lengths, counts = columns["_batches"], columns["_batch"]
        if (len(set(counts)) < len(set(lengths)) or _are_short(lengths, counts)) and _rises_within(lengths, counts):
            return changed | {"_batch": "_epoch", "_batches": "_batch"}
    if "_step" in columns and "_batch" not in columns and _falls(columns["_step"]):
        rising = (name for name, column in columns.items() if _is_count(name) and _rises(column))
        if (other := next(rising, None)) is not None:
            return changed | {"_step": "", other: "_step"}
    return changed


def _is_count(name: str) -> bool:
    return name == "_round" or _COUNTS.fullmatch(name) is not None


def _are_short(lengths: Sequence[Any], counts: Sequence[Any]) -> bool:
    """Whether what should be lengths are none: a count goes beyond."""
    pairs = zip(map(_number, counts), map(_number, lengths), strict=True)
    return any(count > length for count, length in pairs)


def _renamed(row: forms.Raw, names: dict[str, str]) -> forms.Raw:
    if not names:
        return row
    kept = [at for at, name in enumerate(row.names) if names.get(name, name)]
    return row._replace(
        names=tuple(names.get(row.names[at], row.names[at]) for at in kept), columns=[row.columns[at] for at in kept]
    )


def _numbers(column: Sequence[Any]) -> list[int] | None:
    """A column as whole numbers, None if it holds anything else."""
    if not all(isinstance(text, bytes) and text.isdigit() for text in column):
        return None
    return [int(text) for text in column]


def _rises(column: Sequence[Any]) -> bool:
    numbers = _numbers(column)
    return numbers is not None and all(early < late for early, late in itertools.pairwise(numbers))


def _falls(column: Sequence[Any]) -> bool:
    """Whether a column falls again and again, and not to begin anew."""
    numbers = _numbers(column)
    if numbers is None:
        return False
    pairs = list(itertools.pairwise(numbers))
    falls = [late for early, late in pairs if late < early]
    return len(falls) > _FALLS * len(pairs) and len(set(falls)) > len(falls) / 2


def _rises_within(column: Sequence[Any], groups: Sequence[Any]) -> bool:
    """Whether a column rises from row to row as long as another one stands still, which it does often."""
    numbers = _numbers(column)
    if numbers is None:
        return False
    # several ranks print the same
    places = [place for place, _ in itertools.groupby(zip(groups, numbers, strict=True))]
    within = [early < late for (group, early), (other, late) in itertools.pairwise(places) if group == other]
    return len(within) >= 0.5 * (len(places) - 1) > 0 and sum(within) >= (1 - _RESUMED) * len(within)
