"""Rows in no known words: lines that come again with the same words and other numbers.

In:   lines that no other dialect took.
Out:  of lines with the same words, their numbers under the words beside them; what counts is a number that a word for
      a step, an epoch or a batch stands beside, else the number that begins the lines, if it rises.

A file is claimed by such lines only if a word says what counts, or a number that rises begins them and their names
are those of data (`train`, `valid`) or of a loss. Beside rows of other dialects, they are read if they are about data
held out or have a known measure.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from barograph.core import roles
from barograph.core.patterns import expression
from barograph.importing.textlogs import (
    chunks,
    forms,
    heldout,
    paragraphs,
    plain_lines,
    programs,
    sentences,
    tallies,
    templates,
)
from barograph.importing.textlogs.plain import Plain

_ALIKE = 3  # lines that make a template
_BEGINS = 24  # bytes of a line without its numbers that are compared first
_NUMERIC = b"0123456789.,+- \t"
_TRIED = 24  # lines of which none is a row: those alike are none either
_WIDEST = 1000  # bytes of a line
_MOST = 32  # numbers of a line that are looked at
_KEPT = 200  # kinds of lines that are remembered
_FIRST = 2  # numbers before which all words of the lines must be the same
_DAMAGED = 4  # times the lines that are cut, or have another program's words inside: the whole ones are more
_AGAIN = 0.34  # of a count's steps go back, and to where it began: other launches or folds
_RESUMED = 0.06  # of them go back to anywhere: resumed launches
_NOT_FINITE = expression(rb"(?<![\w.])-?(?:nan|NaN|inf|Inf|Infinity)(?![\w.])")
_DIGITS = expression(rb"\d\D{1,400}\d")
_BLANKS = expression(rb"\s{1,1000}")
_WORDS = expression(rb"[A-Za-z_][\w./@%'-]{0,40}(?: [A-Za-z_][\w./@%'-]{0,40}){0,6}")
_END = expression(
    rb"[\s:=~\"'|>-]{0,40}(?:(?<![A-Za-z])(?:is|was|of|at)\s{1,8})?[\s:=~\"'|>-]{0,40}$"
)  # what stands between a name and its number
_WORD = expression(rb"[A-Za-z]{2}|[\x80-\xff]")
_OTHER = expression(rb"[\xc3-\xf4][\x80-\xbf]{1,3}[\xc3-\xf4]")  # letters that are not English
_RANK = expression(rb"\[(?i:rank|default|gpu|worker) ?\d{1,6}\]:?")
_QUOTES = expression(rb"'s(?= )|['\"`]")
_OF_COUNT = expression(
    rb"\b(?:for|at|after|in|of|on) (?:mini-?batch|batch|step|iteration|epoch|update|episode|round|game)"
    rb"(?:es|s)?\s{0,8}$"
)
_SIDE = expression(rb"[,;|()\[\]{}\t]|\s{2,}|:\s|%\s")  # between a number and the next name
_UNIT = expression(rb"\s?(?:ms|us|s|sec(?:ond)?s?|min(?:ute)?s?|h(?:our)?s?|[KMG]i?B|GB|it/s|s/it)(?![A-Za-z])")
_GLUED = expression(  # to the number ahead: its unit, not a name
    rb"(?:ms|us|ns|s|secs?|min|h|[kKMGT]i?B?|B|x|%)(?![\w./])|\s?[A-Za-z]{1,12}/s(?:ec)?(?=\s{1,4}[-|,])"
)
_OBJECTIVE = re.compile(  # what is made large or small, though no loss by its name
    r"(?i)(?:.*[^a-z])?(?:ll|llh|log[-_ ]?lik(?:elihood)?|improvement|lower bound)(?:[^a-z].*)?"
)
_TIMED = expression(  # `12.5ms` beside `270us`, `1m 20s` beside `58s`: the same words
    rb"(?<=\d)[mun]s(?![A-Za-z/])|(?<=[ :=\t])(?:\d{1,3}[hm] ){1,2}(?=\d{1,2}(?:\.\d{1,3})?s)"
)
_NO_MEASURE = re.compile(
    r"(?i)(?:.*[^a-z])?(?:time|timing|took|elapsed|eta|remaining|(?<!l_)total|seconds?|sec|duration|memory|mem|gpu|rank|pid|"
    r"seed|line|size|speed|port|best(?:[ _].{1,40})?|saved?|saving|patience|"
    r"epochs?|iter(?:ation)?s?|batch(?:es)?|over|bytes|version|v|[iwef]\d{4})"
)
_OF_DATA = re.compile(
    r"(?i)(?:.*[^a-z])?(?:train(?:ing)?|learn|val(?:id(?:ation)?)?|eval(?:uat\w+)?|test|dev)(?:[^a-z].*)?"
)
_OF_EPISODES = re.compile(r"(?i)avg|average|mean|total")  # of what is counted in episodes: their rewards
_OF_STEPS = re.compile(r"(?:steps|iterations|iters|updates|epochs|batches) (?:the )?(?=[a-zA-Z])")  # behind a count
_REACHED = re.compile(r"(?<=\w) (?:reached|(?:improved|dropped|fell|went|rose) to)$")  # between a name and its number
_LEVEL = re.compile(r"^(?:\w+ )?(?:info|INFO) (?=\w)")  # a logger's, or a word: `CV info cv_loss`
_OF_TREES = expression(rb"(?i)(?<![a-z])(?:trees?|estimators?|learners?)[ #:]{1,3}$")  # of a forest that grows
_OUT_OF = (b"/", b"of", b"out of")  # between a count and its last
_GAN = re.compile(r"[DG](?:_[A-Za-z0-9]{1,8}){0,2}")
_COUNTED = (
    ("_step", tallies.STEP),
    ("_batch", tallies.BATCH),
    ("_epoch", tallies.EPOCH),
    ("_step", tallies.DONE),
)


Known = dict[str, list[list[str]]]  # how lines begin → what their numbers are called, and the words before these


class Recurring(forms.Lines):
    """Lines that are alike, as a dialect's form."""

    def __init__(self) -> None:
        super().__init__(lambda line: None)

    def take(
        self, lines: list[bytes], picks: list[int], known: Known | None = None
    ) -> tuple[list[forms.Raw], list[int]]:
        """known: lines that were rows before, to which new ones are added: a single line more is a row too."""
        known = {} if known is None else known
        plain = {index: _plainly(lines[index]) for index in picks}
        alike: dict[bytes, list[int]] = {}  # by what is left without numbers: quickly said, and nearly right
        for index in picks:
            alike.setdefault(_beginning(plain[index]), []).append(index)
        rows: list[forms.Raw] = []
        for begin, found in alike.items():
            if (known or len(found) >= _ALIKE) and _read(plain, found[:_TRIED], known, begin):
                rows += _read(plain, found, known, begin)
        taken = {index for row in rows for index in row.where.tolist()}
        return rows, [index for index in picks if index not in taken]


def _beginning(line: bytes) -> bytes:
    """How a line begins without its numbers, of which one may be NaN or infinite."""
    line = _NOT_FINITE.sub(b"", line) if b"nan" in line or b"NaN" in line or b"inf" in line else line
    return line.translate(None, _NUMERIC)[:_BEGINS]


def _plainly(line: bytes) -> bytes:
    """A line with seconds in the place of all shorter and longer units, without the best so far."""
    line = plain_lines.without_best(line)
    if b"ms" in line or b"us" in line or b"m " in line:
        return _TIMED.sub(lambda found: b"s" if found[0].endswith(b"s") else b"", line)
    return line


def _read(lines: Mapping[int, bytes], picks: list[int], known: Known, begin: bytes) -> list[forms.Raw]:
    """The rows among lines that begin alike: of those whose words are the same up to the second number."""
    groups: dict[tuple[bytes, ...], list[tuple[int, list[bytes]]]] = {}
    for index in picks:
        parts = templates.TOKEN.split(lines[index], _MOST)
        if len(parts) < 5:  # two numbers: one counts, one is counted
            continue
        key = tuple(_BLANKS.sub(b" ", part) for part in parts[: 2 * _FIRST : 2])
        groups.setdefault(key, []).append((index, parts))
    rows: list[forms.Raw] = []
    for key, group in groups.items():
        word = b"\n".join((begin, *key)).decode("latin-1")
        kind = known.get(word) or (_of_lines(lines, group) if len(group) >= _ALIKE else None)
        if kind is not None:
            if len(known) < _KEPT:
                known[word] = kind
            rows += _rows(group, *kind)
    return rows


def _of_lines(lines: Mapping[int, bytes], group: list[tuple[int, list[bytes]]]) -> list[list[str]] | None:
    """What the numbers of lines that begin alike are called, and the words before them; None for other lines."""
    words, whole = _common([parts for _, parts in group])
    numbers = [[group[at][1][2 * place + 1] for at in whole] for place in range(len(words))]
    index, parts = group[whole[0]]
    names = _names(lines[index], parts, words, numbers)
    return None if names is None else [names, [_BLANKS.sub(b" ", word).decode("latin-1") for word in words]]


def _rows(group: list[tuple[int, list[bytes]]], names: list[str], words: list[str]) -> Iterator[forms.Raw]:
    """The rows of lines that have as many numbers behind the same words, whole ones where they count."""
    counts = [2 * at + 1 for at, name in enumerate(names) if name[:1] == "_"]
    said = [word.encode("latin-1") for word in words[: len(names)]]
    group = [
        (index, parts)
        for index, parts in group
        if len(parts) // 2 >= len(names)
        and all(parts[at].isdigit() for at in counts)
        and all(_BLANKS.sub(b" ", parts[2 * at]) == word for at, word in enumerate(said) if at >= _FIRST)
    ]
    if group:
        kept = [at for at, name in enumerate(names) if name]
        steps = [at for at in kept if names[at] == "_step"] if "_epoch" in names and "_batch" not in names else []
        empty = [b"" for _ in group]  # of an epoch or of the run: the counts will tell
        yield forms.Raw(
            (*(names[at] for at in kept), *(("_batch", "_batches", "_of") if steps else ())),
            np.array([index for index, _ in group], np.int64),
            [sum(map(len, parts[: counts[0]])) if counts else 0 for _, parts in group],  # behind a rank and a time
            [[parts[2 * at + 1] for _, parts in group] for at in (*kept, *steps)] + ([empty, empty] if steps else []),
            None,
            True,
            "step",
        )


def _common(group: list[list[bytes]]) -> tuple[tuple[bytes, ...], list[int]]:
    """The words before the numbers, as far as they are the same on all lines but a few damaged ones; which lines are
    whole."""
    common: list[bytes] = []
    whole = list(range(len(group)))
    while True:
        at = len(common)
        words = [_BLANKS.sub(b" ", group[line][2 * at]) if len(group[line]) // 2 > at else None for line in whole]
        (said, times), *others = Counter(words).most_common()
        if said is None or (others and times < max(_DAMAGED * (len(words) - times), _ALIKE)):
            return tuple(common), whole
        whole = [line for line, word in zip(whole, words, strict=True) if word == said]
        common.append(group[whole[0]][2 * at])


def _names(line: bytes, parts: list[bytes], words: tuple[bytes, ...], numbers: list[list[bytes]]) -> list[str] | None:
    """What the numbers of such lines are called: "" for one that is left out, a name with `_` for one that counts."""
    places = list(itertools.accumulate(map(len, parts), initial=0))
    spans = [(places[2 * at + 1], places[2 * at + 2]) for at in range(len(words))]
    names = [_name(words, at) for at in range(len(words))]
    counts: dict[int, str] = {}
    for count, pattern in _COUNTED:
        found = pattern.search(line)
        span = found.span("count") if found else None
        if span in spans and spans.index(span) not in counts and count not in counts.values():
            counts[spans.index(span)] = count
    counts = {at: count for at, count in counts.items() if _whole(numbers[at])}
    said = bool(counts)
    if "_epoch" not in counts.values() and any(not _rises(numbers[at]) for at in counts):
        counts = {} if _of_rounds(line, spans, numbers) else counts  # how long each episode was
    found = tallies.ROUND.search(line) if not counts else None
    if found and found.span("count") in spans and _rises(numbers[spans.index(found.span("count"))]):
        counts[spans.index(found.span("count"))] = "_step"
    elif not counts and _rises(numbers[0]) and not _WORD.search(_RANK.sub(b"", words[0])):
        counts[0] = "_step"
    if not counts:
        alone = _part(words, numbers)
        alone = _between(words, numbers) if alone is None else alone
        counts |= {alone: "_step"} if alone is not None else {}
    if not counts or not any(len(set(numbers[at])) > 1 for at in counts):
        return None
    if any(words[at] == b"-" and b"." in numbers[at - 1][0] for at in range(1, len(words))):
        return None  # ranges, as a guide gives them: `loss: 2.3-2.5`
    if sentences.is_spoken(line):
        return None
    alone = set(counts.values()) <= {"_batch"}  # perhaps a trial's batch size
    if (not said or alone) and (plain_lines.ITEM.match(line) or plain_lines.MONEY.search(line)):
        return None
    values: dict[int, str] = {}
    names = ["" if at - 1 in counts and words[at].strip() in _OUT_OF else name for at, name in enumerate(names)]
    phases = heldout.phases_of(list(heldout.PHASE.finditer(line)))
    for at, name in enumerate(names):
        phase = heldout.phase_at(phases, spans[at][0], len(phases) == 1)
        name = f"{phase} {name}" if phase and name and not _OF_DATA.fullmatch(name) else name
        if at in counts or not _named(name) or name in values.values() or _NO_MEASURE.fullmatch(name):
            continue
        behind = parts[2 * at + 2] if 2 * at + 2 < len(parts) else b""
        if _UNIT.match(behind) or not any(map(_is_measured, numbers[at])):
            continue
        values[at] = name
    gan = {name for name in values.values() if _GAN.fullmatch(name)}
    if {name[0] for name in gan} == {"D", "G"}:  # of a generator and a discriminator: their losses
        values = {at: f"{name}_loss" if name in gan else name for at, name in values.items()}
    if b"pisode" in line and not any(roles.plays("reward", name) for name in values.values()):
        values = {at: f"{name} reward" if _OF_EPISODES.fullmatch(name) else name for at, name in values.items()}
    values = _errors(values, names, numbers)
    if said and list(values.values()) == ["value"]:  # of what is made small, as R's `optim` prints it
        values = dict.fromkeys(values, "objective")
    known = any(roles.may_play(name) or _OBJECTIVE.fullmatch(name) for name in values.values())
    held_out = any(map(_OF_DATA.fullmatch, values.values()))
    if not values or not (said or known or held_out):
        return None
    return [counts.get(at) or values.get(at, "") for at in range(len(words))]


def _of_rounds(line: bytes, spans: list[tuple[int, int]], numbers: list[list[bytes]]) -> bool:
    """Whether lines say an episode that rises."""
    found = tallies.ROUND.search(line)
    span = found.span("count") if found else None
    return span in spans and _rises(numbers[spans.index(span)])


def _part(words: tuple[bytes, ...], numbers: list[list[bytes]]) -> int | None:
    """Where a number rises by one from line to line, and is said to be one of as many: `built tree 3 of 100`."""
    for at in range(len(words) - 1):
        of_trees = _OF_TREES.search(words[at]) and words[at + 1].strip() in _OUT_OF
        if of_trees and len(set(numbers[at + 1])) == 1 and _whole(numbers[at]):
            pairs = itertools.pairwise(map(int, numbers[at]))
            return at if _whole(numbers[at + 1]) and all(late == early + 1 for early, late in pairs) else None
    return None


def _between(words: tuple[bytes, ...], numbers: list[list[bytes]]) -> int | None:
    """Where a number of no name stands between two equal marks and rises from line to line: ` - 1140 - `."""
    for at, (ahead, behind) in enumerate(itertools.pairwise(words)):
        ends, begins = ahead.rstrip()[-1:], behind.lstrip()[:1]
        if at and ends == begins and ends in (b"-", b"|") and ahead[-1:].isspace() and behind[:1].isspace():
            rising = _whole(numbers[at]) and [*map(int, numbers[at])]
            if rising and len(rising) >= _ALIKE and all(early < late for early, late in itertools.pairwise(rising)):
                return at
    return None


def _errors(values: dict[int, str], names: list[str], numbers: list[list[bytes]]) -> dict[int, str]:
    """The names of data alone as those of losses, where the best so far stands beside them and is the least."""
    bare = [
        at for at, name in values.items() if _OF_DATA.fullmatch(name) and " " not in name and not roles.may_play(name)
    ]
    best = next((at for at, name in enumerate(names) if name.lower() in ("best", "besttest")), None)
    if best is None and [values[at] for at in bare] == ["learn"] and "remaining" in names:  # trees of CatBoost
        (learnt,) = ([value for value in map(float, numbers[at]) if math.isfinite(value)] for at in bare)
        return values | {at: "learn/loss" for at in bare} if learnt and learnt[-1] < learnt[0] else values
    held_out = max((at for at in bare if best is not None and at < best), default=None)
    if best is None or held_out is None:
        return values
    both = zip(map(float, numbers[best]), map(float, numbers[held_out]), strict=True)
    pairs = [(least, now) for least, now in both if not math.isnan(least + now)]
    if not pairs:
        return values
    above = any(least < now for least, now in pairs)
    if not all(least <= now for least, now in pairs) or not (above or pairs[-1][0] < pairs[0][0]):
        return values
    return {at: f"{name}/loss" if at in bare else name for at, name in values.items()}


def _name(words: tuple[bytes, ...], at: int) -> str:
    """The words beside a number: right before it, else those before the number before it."""
    for place in range(at, max(at - 3, -1), -1):
        text = _QUOTES.sub(b"", words[place])
        glued = _GLUED.match(text) if place else None
        text = text[glued.end() :] if glued else text
        text = _OF_COUNT.sub(b" ", text) if place < at else text
        end = _END.search(text)
        pieces = _SIDE.split(text[: end.start()] if end else text)
        found = _WORDS.findall(pieces[-1]) if pieces else []
        if found:
            name = found[-1].decode("utf-8", "replace").rpartition(". ")[2]
            return _REACHED.sub("", _OF_STEPS.sub("", _LEVEL.sub("", name.strip(" .'-"))))
        if _BLANKS.sub(b"", text) and (not end or _OTHER.search(pieces[-1])):
            return ""
    return ""


def _named(name: str) -> bool:
    return sum(map(str.isalpha, name)) > 0


def _whole(column: list[bytes]) -> bool:
    return all(text.isdigit() for text in column)


def _rises(column: list[bytes]) -> bool:
    """Whether whole numbers rise, and begin anew now and then."""
    if not _whole(column):
        return False
    pairs = [(int(early), int(late)) for early, late in itertools.pairwise(column)]
    back = [late for early, late in pairs if late <= early]
    if len(back) <= _RESUMED * len(pairs):
        return True
    return len(back) <= _AGAIN * len(pairs) and all(late <= int(column[0]) for late in back)


def _is_measured(text: bytes) -> bool:
    """Whether a number was measured, and not counted."""
    return (
        b"." in text.rstrip(b".") or b"e" in text.lower() or text.lower().lstrip(b"+-") in (b"nan", b"inf", b"infinity")
    )


class Repeated(Plain):
    kind = "recurring"
    about = "lines that come again with the same words and other numbers"
    shapes = (Recurring(),)
    last_resort = False
    of_the_rest = True

    def candidates(self, lines: list[bytes]) -> list[int]:
        if not any(lines):
            return []
        return [
            index
            for index, line in enumerate(lines)
            if line and len(line) <= _WIDEST and _DIGITS.search(line) and not programs.is_of_the_best(line)
        ]

    def rows_of(self, lines: list[bytes], picks: list[int], own: dict[str, Any]) -> tuple[list[forms.Raw], list[int]]:
        return self.shapes[0].take(lines, picks, own.setdefault("kinds", {}))

    def rows_in(self, text: bytes) -> tuple[int, int]:
        lines = paragraphs.on_one_line(chunks.shown(text, self.bare), {}).split(b"\n")
        rows, _ = self.shapes[0].take(lines, self.candidates(lines))
        count = sum(len(row.where) for row in rows)
        return count, count

    def prepare(self, text: bytes, own: dict[str, Any]) -> bytes:
        return text if own.get("second") else paragraphs.on_one_line(text, own)

    def place(self, lines: list[bytes], rows: list[forms.Raw], own: dict[str, Any], ahead: bytes) -> list[forms.Raw]:
        if own.get("second"):
            rows = [row for row in rows if any(roles.may_play(name) or _OF_DATA.fullmatch(name) for name in row.names)]
        return super().place(lines, rows, own, ahead)


SOURCE = Repeated()
