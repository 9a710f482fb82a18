"""What an evaluation compares a model's answers with: its targets, which no gradient shows.

In:   the functions that are called behind passes of an evaluation, as far as the next pass or the next step; the tokens
      of the pass.
Out:  figures for the `model` record, computed on the device from some rows; nothing waits.

Of a cross-entropy, and of whole numbers that are compared as accuracies have them, some rows are looked at: how many
answers are the target, the class above or below it, or the target of the row before or behind. Agreement with others
than the target counts without its two most frequent classes: what always gives one class agrees with anything. Of two
or three classes agreement is measured by what chance would give. Of few classes it is counted which answers the rows of
each have: those that all have another name on one side show so. Of cross-entropies of texts it is looked at behind
which token answers begin, and which tokens targets are. Some evaluations alone are looked at, where no other mode is on
and nothing was compiled.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from barograph.probes.model.behind_noise import ComparedNoise
from barograph.probes.model.evaluated_losses import EvaluatedLosses
from barograph.probes.model.evaluated_losses import fields_of as loss_fields
from barograph.probes.model.guest import Shown, is_alone, is_compiled, is_followed
from barograph.probes.model.parameters import mesh_of
from barograph.probes.model.prompts import ahead, answer_begins, answers_apart
from barograph.probes.model.texts import ignored_in

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

ALIGNED = ("rows", "loss", "own", "chance", "off")
RENAMED = ("named", "renamed", "class", "answer", "recall")
FIGURES = ("rows", "own", "above", "below", "behind", "ahead", "width")
_OFFSETS = (1, -1, -2, 2)  # `compared_by`, of the third figure to the sixth
_BEGINS = ("answer_from", "answer_after", "answer_first", "answers_apart", "ignored_token", "asked_all", "opens_with",
           "target_shift", "rows_silent")  # fmt: skip
_EVALUATIONS, _FUNCTIONS, _EACH = 12, 400, 96  # that are looked at; functions of one, and behind one pass of it
_KINDS = 4  # of comparisons of an evaluation
_ENOUGH, _LEAST = 512, 32  # rows of one that are put together; and of one of pairs, or of whole numbers
_ROWS, _ELEMENTS = 2048, 1 << 21  # of one call, at most
_BUCKETS = 1024  # classes that are counted each by itself
_TEXTS = 64  # rows of tokens
_NAMED, _EACH_CLASS = 64, 8  # classes, of each of which it is counted what its rows are answered; rows of one
_MOST_OF, _OWN = 0.5, 0.1  # of a class's rows that have one other answer, at least, and its own, at most
_PERMUTED, _FEWEST, _ROWS_EACH = 12, 4, 16  # classes, at most; with as many rows each, at least
_FEWEST_MOVED = 3  # classes, each of which is answered by another one
_BETTER = 1e-9
_OFTEN = 4  # evaluations, from which on those in half of all steps are none

_FEW = 3  # classes, of which what agrees by chance is reckoned, and no class is left out
_BESIDE = ("beside_rows", "beside_own", "beside_before", "beside_behind", "beside_chance")
_BEYOND = ("beyond", "within", "within_chance")

_Kind = tuple[bool, int]


class ComparedAnswers:
    """Looks on behind passes of evaluations."""

    def __init__(self) -> None:
        self._shown: Shown | None = None
        self._steps = self._evaluations = 0
        self._left, self._each, self._process = _FUNCTIONS, _EACH, os.getpid()
        self._tokens: tuple[int, Tensor] | None = None  # how many rows a pass has, and some of them
        self._begins: Tensor | None = None
        self._counts: dict[_Kind, int] = {}  # of rows; whether of whole numbers, and of how many classes
        self._tables: dict[_Kind, Tensor] = {}
        self._mixed: dict[_Kind, Tensor] = {}
        self._beyond: Tensor | None = None
        self._beside: Tensor | None = None
        self._smoothed = 0.0  # the label smoothing of an evaluation's cross-entropies
        self._averaged: bool | None = None  # whether each of them is a mean
        self._given: list[Tensor] = []
        self._noise = ComparedNoise()
        self._losses = EvaluatedLosses()

    def over(self) -> None:
        """A pass begins, or a step: what comes now belongs to something else."""
        shown, self._shown = self._shown, None
        self._noise.over()
        if shown is not None and not shown.end():
            shown.rest()

    @property
    def _is_due(self) -> bool:
        often = self._evaluations >= _OFTEN and 2 * self._evaluations > self._steps
        return self._left > 0 and self._evaluations < _EVALUATIONS and not often

    def given(self, tensors: Iterable[Tensor]) -> None:
        """The inputs of a pass without gradients."""
        self._tokens, self._given = None, [*tensors] if self._is_due else []
        if self._given and self._begins is None:
            texts = (one for one in self._given if one.dim() == 2 and not one.is_floating_point() and one.shape[1] > 2)
            one = next(texts, None)
            if one is not None and not mesh_of(one):
                self._tokens = len(one), one.detach()[:_TEXTS].clone()

    def passed(self, output: Any = None) -> None:
        """It is over."""
        self.over()
        given, self._given = self._given, []
        seen = self._is_due and is_alone() and not (is_compiled() or is_followed())
        self._losses.passed(seen)
        if seen:
            self._noise.passed(given, output)
            self._shown, self._each = Shown(self._saw, self._losses.gave), _EACH

    def _saw(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
        import torch

        self._left, self._each = self._left - 1, self._each - 1
        if self._shown is not None and (min(self._left, self._each) <= 0 or os.getpid() != self._process):
            self._shown.rest()
            self._losses.ended()
        name = getattr(function, "__name__", "")
        with torch.no_grad():
            if name in ("cross_entropy", "nll_loss"):
                target = arguments[1] if len(arguments) > 1 else named["target"]
                self._cross_entropy(arguments[0] if arguments else named["input"], target, named)
            elif name == "gather" and len(arguments) == 3:
                self._gathered(arguments[0], arguments[2])
            elif name in ("eq", "__eq__") and len(arguments) == 2:
                self._equal(*arguments)
            else:
                self._noise.saw(name, arguments)

    def _cross_entropy(self, scores: Tensor, target: Tensor, named: Mapping[str, Any]) -> None:
        shaped = not target.is_floating_point() and scores.dim() == target.dim() + 1 and scores.dim() in (2, 3)
        if not shaped or scores.requires_grad or mesh_of(scores):
            return  # of the training, or of pictures' points
        self._smoothed = max(self._smoothed, float(named.get("label_smoothing") or 0.0))
        self._averaged = self._averaged is not False and named.get("reduction", "mean") == "mean"
        lines, width, ignored = target.detach().flatten(), scores.shape[1], named.get("ignore_index", -100)
        self._asked(lines, lines != ignored)
        most = min(_ROWS, _ELEMENTS // width)
        if width >= 4 and most >= _LEAST:
            paired = scores.dim() == 2 and width == len(scores)
            some = scores.detach()[: max(1, most // math.prod(scores.shape[2:]))]
            answers = some.argmax(1).flatten()[:most]
            lines = lines[: len(answers)]
            alive = (lines != ignored) & (lines >= 0) & (lines < width)
            self._add((False, width), answers, lines, alive, paired)
        elif 2 <= width <= _FEW and scores.dim() == 2 and len(lines) > 2:
            answers = scores.detach()[:_ROWS].argmax(1)
            lines = lines[: len(answers)]
            counts, before = beside(answers, lines, (lines >= 0) & (lines < width)), self._beside
            self._beside = counts if before is None or before.device != counts.device else before + counts

    def _gathered(self, scores: Tensor, places: Tensor) -> None:
        """Log probabilities of tokens are taken from those of all, as of answers that are judged. A place that is left
        out often asks for token 0."""
        if scores.dim() == places.dim() == 3 and places.shape[2] == 1 and not (scores.requires_grad or mesh_of(scores)):
            lines = places.detach().flatten()
            self._asked(lines, lines > 0)

    def _asked(self, lines: Tensor, alive: Tensor) -> None:
        """What places of the last pass's texts are asked for. alive: which are."""
        if self._tokens is not None and self._begins is None:
            count, tokens = self._tokens
            if lines.numel() % count == 0 and tokens.shape[1] - lines.numel() // count in (0, 1, 2):
                known, asked = (one.view(count, -1)[:_TEXTS] for one in (alive, lines))
                given = tokens[:, : known.shape[1]]
                begins = *answer_begins(given, known), answers_apart(given, known), ignored_in(tokens, known)[0]
                silent = (~known.any(1)).float().mean()
                self._begins = _stacked(
                    (*begins, known.all(), _opens_with(tokens), ahead(tokens, asked, known), silent)
                )

    def _equal(self, one: Any, other: Any) -> None:
        import torch

        whole = all(getattr(each, "dtype", None) in (torch.int64, torch.int32) for each in (one, other))
        if whole and one.dim() == 1 and one.shape == other.shape and not mesh_of(one):
            one, other = one.detach()[:_ROWS].long(), other.detach()[:_ROWS].long()
            self._add((True, 0), one, other, (one >= 0) & (other >= 0), False)
            if len(one) > 1:
                found, before = beyond(one, other) + beyond(other, one), self._beyond
                self._beyond = found if before is None or before.device != found.device else before + found

    def _add(self, kind: _Kind, answers: Tensor, target: Tensor, alive: Tensor, paired: bool) -> None:
        """paired: of the similarities of all with all, which may be looked at once more the other way round."""
        count = self._counts.get(kind, 0)
        if count >= (1 if paired else _ENOUGH) or (not count and len(self._counts) >= _KINDS):
            return
        found, before = table(answers, target, alive), self._tables.get(kind)
        self._counts[kind] = count + len(answers)
        self._tables[kind] = found if before is None or before.device != found.device else before + found
        if not paired and kind[1] <= _NAMED:
            mixed, known = named(answers, target, alive), self._mixed.get(kind)
            self._mixed[kind] = mixed if known is None or known.device != mixed.device else known + mixed

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        import torch

        self.over()
        self._steps += 1
        self._evaluations += self._left < _FUNCTIONS
        self._losses.put(current)
        noised = self._noise.taken()
        if noised is not None:
            current.put("evaluated_planes", *noised)
        if self._smoothed:
            current.figures["evaluated_smoothing"] = self._smoothed
        if self._averaged is not None:
            current.figures["evaluated_averaged"] = float(self._averaged)
        if self._begins is not None:
            current.put("asked", _BEGINS, self._begins)
        if self._beyond is not None:
            current.put("beyond", _BEYOND, self._beyond)
        if self._beside is not None:
            current.put("beside", _BESIDE, by_chance(self._beside))
        some = [kind for kind, count in self._counts.items() if count >= _LEAST]
        devices = {self._tables[kind].device for kind in some}
        if len(devices) == 1:
            rows = torch.stack([figures(self._tables[kind], kind[1]) for kind in some], 1)
            current.put("compared", tuple(str(int(kind[0])) for kind in some), rows)
            mixed = [kind for kind in some if kind in self._mixed]
            classes = [kind for kind in mixed if kind[1]]
            if len(classes) == 1:
                counts, width = self._mixed[classes[0]], classes[0][1]
                current.put("asked_classes", ("",), counts.sum(1)[:width])
                if width <= _PERMUTED:
                    current.put("answered", ("",), counts[:width, :width].flatten())
            if len(classes) == 1 and (True, 0) in mixed:
                current.put("aligned", ALIGNED, aligned(self._mixed[classes[0]], self._mixed[True, 0]))
            if mixed:
                kinds = tuple(str(int(kind[0])) for kind in mixed)
                current.put("renamed", kinds, torch.stack([renamed(self._mixed[kind]) for kind in mixed], 1))
        self._left, self._begins, self._tokens, self._beyond, self._beside = _FUNCTIONS, None, None, None, None
        self._counts, self._tables, self._mixed, self._smoothed = {}, {}, {}, 0.0


def _opens_with(tokens: Tensor) -> Tensor:
    """The token that all texts [rows, places] begin with and that stands nowhere else, so that nothing asks for it; −1
    without one."""
    import torch

    first = tokens[0, 0]
    alone = (tokens[:, 0] == first).all() & ~(tokens[:, 1:] == first).any()
    return torch.where(alone, first, -torch.ones_like(first))


def _stacked(some: tuple[Tensor, ...]) -> Tensor:
    import torch

    return torch.stack([one.to(some[-1].dtype) for one in some])


def table(answers: Tensor, target: Tensor, alive: Tensor) -> Tensor:
    """Counts [6, classes] of answers: that are the target; the class above, and below it; the target of the row before,
    and behind; and how many rows have a target, in the first column."""
    import torch

    found = torch.zeros(6, _BUCKETS, dtype=torch.float32, device=answers.device)
    both, classes = alive[1:] & alive[:-1], answers % _BUCKETS
    same = (alive & (answers == target), alive & (answers == target + 1), alive & (answers == target - 1))
    for row, agrees in enumerate(same):
        found[row].index_add_(0, classes, agrees.float())
    found[3].index_add_(0, classes[1:], (both & (answers[1:] == target[:-1])).float())
    found[4].index_add_(0, classes[:-1], (both & (answers[:-1] == target[1:])).float())
    found[5, 0] = alive.sum()
    return found


def beyond(answers: Tensor, target: Tensor) -> Tensor:
    """Of n targets that count on from n or more, while all answers are below n, so that none can be right: n; how many
    answers are the target's place among them; how many chance would give. Else 0 each."""
    import torch

    count = len(target)
    places = torch.arange(count, device=target.device)
    runs = ((target - target[0]) == places).all() & (target[0] >= count) & (answers < count).all()
    numbers = torch.stack([torch.full_like(runs, count, dtype=torch.float32), (answers == places).float().sum(),
                           torch.ones_like(runs, dtype=torch.float32)])  # fmt: skip
    return torch.where(runs, numbers, 0.0)


def beside(answers: Tensor, target: Tensor, alive: Tensor) -> Tensor:
    """Counts [3, classes, classes] of answers, by the target of their row, of the row before it, and of that behind."""
    import torch

    found = torch.zeros(3, _FEW * _FEW, dtype=torch.float32, device=answers.device)
    moved = ((answers, target, alive), (answers[1:], target[:-1], alive[:-1]), (answers[:-1], target[1:], alive[1:]))
    for row, (ours, theirs, known) in enumerate(moved):
        places = torch.where(known, theirs * _FEW + ours, 0).long()
        found[row].index_add_(0, places, known.float())
    return found.view(3, _FEW, _FEW)


def by_chance(counts: Tensor) -> Tensor:
    """`_BESIDE` of such counts: rows; and by how many standard errors answers agree with the target of their row, of
    the row before and of that behind more often than by chance, by how often each class is asked for and answered;
    and which share would agree with their own by chance."""
    import torch

    rows = counts.sum((1, 2)).clamp_min(1)
    chance = (counts.sum(1) * counts.sum(2)).sum(1) / rows**2
    error = (chance * (1 - chance) / rows).sqrt().clamp_min(1e-6)
    over = (counts.diagonal(dim1=1, dim2=2).sum(1) / rows - chance) / error
    return torch.cat([rows[:1], torch.where(chance < 1 - 1e-6, over, 0.0), chance[:1]])


def named(answers: Tensor, target: Tensor, alive: Tensor) -> Tensor:
    """Counts [classes, classes] of the answers that the rows of each class have."""
    import torch

    found = torch.zeros(_NAMED * _NAMED, dtype=torch.float32, device=answers.device)
    within = alive & (answers >= 0) & (answers < _NAMED) & (target >= 0) & (target < _NAMED)
    both = torch.where(within, target * _NAMED + answers, 0).long()
    return found.index_add_(0, both, within.float()).view(_NAMED, _NAMED)


def renamed(counts: Tensor) -> Tensor:
    """`RENAMED` of such counts: how many classes have rows enough; how many of these have the answer of another class
    in most of their rows, and hardly their own, where no two have the same and each of these others is such a class
    itself or that of no row at all; the first one, and its answer; the mean over the classes of the share of their rows
    that is right."""
    import torch

    rows, own = counts.sum(1), counts.diagonal()
    share, top = (counts / rows.clamp_min(1)[:, None]).max(1)
    enough = rows >= _EACH_CLASS
    moved = enough & (share >= _MOST_OF) & (own <= _OWN * rows)
    held = torch.zeros_like(rows).index_add_(0, top, enough.to(rows.dtype))  # of how many it is the most frequent
    free = (held[top] == 1) & ((rows[top] == 0) | moved[top])
    moved = moved & free
    moved = moved & (moved[top] | (rows[top] == 0))
    first = moved.long().argmax(0, keepdim=True)
    recall = ((own / rows.clamp_min(1)) * enough).sum() / enough.sum().clamp_min(1)
    counted = torch.cat([enough.sum().view(1), moved.sum().view(1), first, top[first]]).to(rows.dtype)
    return torch.cat([counted, recall.view(1)])


def aligned(scored: Tensor, equal: Tensor) -> Tensor:
    """Of counts [classes, answers] of a cross-entropy and of whole numbers that are compared, `ALIGNED`: rows of the
    latter; the share of the former's answers that are right; the same of the latter, and as many as are equal by
    chance, by how often each number comes; and by how many standard errors at most the share of a class among targets,
    or among answers, is another in the two. Whole numbers are compared either way round."""
    import torch

    rows, others = scored.sum().clamp_min(1), equal.sum().clamp_min(1)
    targets, answers, one, other = scored.sum(1), scored.sum(0), equal.sum(1), equal.sum(0)
    pairs = torch.stack([torch.stack([targets, answers]), torch.stack([targets, answers])]) / rows
    found = torch.stack([torch.stack([one, other]), torch.stack([other, one])]) / others
    mean = (pairs * rows + found * others) / (rows + others)
    error = (mean * (1 - mean) * (1 / rows + 1 / others)).sqrt().clamp_min(1e-6)
    off = ((pairs - found).abs() / error).amax((1, 2)).amin()
    chance = (one * other).sum() / others**2
    return torch.stack([equal.sum(), scored.diagonal().sum() / rows, equal.diagonal().sum() / others, chance, off])


def permuted(counts: Any) -> dict[str, float]:
    """Of counts [classes, answers]: how much more often the rows of a class have an answer than all others have it, on
    the average over classes: for the answer that is its own, and for one other each, no two the same, by which that is
    most; and how many classes have another answer then. Nothing where fewer than four classes have rows enough."""
    rows = counts.sum(1)
    some = rows >= _ROWS_EACH
    if some.sum() < _FEWEST:
        return {}
    shares = counts / numpy.maximum(rows, 1)[:, None]
    others = (counts.sum(0) - counts) / numpy.maximum(rows.sum() - rows, 1)[:, None]
    lifts = numpy.where(some[:, None], shares - others, 0.0)
    answer = numpy.arange(len(lifts))
    better = True
    while better:  # exchanges of two, until none is better
        better = False
        for one, other in itertools.combinations(range(len(lifts)), 2):
            now = lifts[one, answer[one]] + lifts[other, answer[other]]
            if lifts[one, answer[other]] + lifts[other, answer[one]] > now + _BETTER:
                answer[[one, other]] = answer[[other, one]]
                better = True
    own, best = lifts.diagonal()[some].mean(), lifts[numpy.arange(len(lifts)), answer][some].mean()
    moved = (answer != numpy.arange(len(lifts))) & some
    return {"lift": float(own), "lift_other": float(best), "lift_moved": float(moved.sum())}


def shifted(counts: Any) -> dict[str, float]:
    """Of counts [classes, answers]: how much more often the rows of a class have the answer above it than all others
    have it, on the average over classes with such an answer, or that below it, whichever is more; and which of the two.
    Nothing where fewer than three classes have rows enough."""
    rows = counts.sum(1)
    shares = counts / numpy.maximum(rows, 1)[:, None]
    lifts = shares - (counts.sum(0) - counts) / numpy.maximum(rows.sum() - rows, 1)[:, None]
    found: dict[float, float] = {}
    for by in (1, -1):
        one = lifts.diagonal(by)[(rows[:-by] if by > 0 else rows[1:]) >= _EACH_CLASS]
        found |= {float(one.mean()): float(by)} if len(one) >= _FEWEST_MOVED else {}
    return {"lift_next": max(found), "lift_by": found[max(found)]} if found else {}


def figures(counts: Tensor, width: int) -> Tensor:
    """`FIGURES` of a table; shares of the rows."""
    import torch

    rows = counts[5, 0]
    others = counts[1:5].sum(1) - counts[1:5].topk(2, 1).values.sum(1)
    shares = torch.cat([counts[:1].sum(1), others]) / rows.clamp_min(1)
    return torch.cat([rows.reshape(1), shares, torch.full_like(shares[:1], float(width))])


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """Of the comparison that has the most answers beside its targets: how many rows it has, of how many classes (0 of
    whole numbers), what share of its answers are the target, what share agrees with another one, and with which."""
    found: dict[str, float] = {}
    best = -math.inf
    with contextlib.suppress(Exception):
        kinds, values = numbers.get("compared", ((), ()))
        for kind, column in zip(kinds, values.T.tolist() if len(kinds) else (), strict=True):
            rows, own, *others, width = column
            others = others[:2] if kind == "1" or width == rows else others  # their rows follow each other in no order
            off = max(others)
            if rows >= _LEAST and math.isfinite(off + own) and off - own > best:
                best, by = off - own, _OFFSETS[others.index(off)]
                found = {"rows": rows, "own": own, "off": off, "by": float(by), "width": width}
    with contextlib.suppress(Exception):
        table = numbers["renamed"][1] if "renamed" in numbers else None
        columns: list[list[float]] = [] if table is None else table.T.tolist()
        columns = [one for one in columns if math.isfinite(sum(one))]
        if columns:
            best_of: list[float] = columns[max(range(len(columns)), key=lambda at: columns[at][1])]
            found |= dict(zip(RENAMED, best_of, strict=True))
    with contextlib.suppress(Exception):
        if "answered" in numbers:
            counts = numpy.ravel(numbers["answered"][1])
            square = counts.reshape(2 * (math.isqrt(len(counts)),))
            found |= permuted(square) | shifted(square)
    if "aligned" in numbers:
        shown = zip(ALIGNED, numbers["aligned"][1].ravel().tolist(), strict=True)
        found |= {f"aligned_{name}": value for name, value in shown}
    if "beside" in numbers:
        found |= dict(zip(_BESIDE, numbers["beside"][1].flatten().tolist(), strict=True))
    if "beyond" in numbers:
        rows, *shares = numbers["beyond"][1].flatten().tolist()
        if rows > 0:
            found |= dict(zip(_BEYOND, (rows, *(share / rows for share in shares)), strict=True))
    found = {f"compared_{name}": value for name, value in found.items()}
    if "asked" in numbers:
        shown = zip(_BEGINS, numbers["asked"][1][0].tolist(), strict=True)
        found |= {f"eval_{name}": value for name, value in shown if math.isfinite(value)}
    return found | loss_fields(numbers)
