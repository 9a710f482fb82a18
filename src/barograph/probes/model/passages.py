"""What texts of an evaluation have in common with those of the training that are not the same rows: documents that are
packed in another order, cut at other places, or masked anew.

In:   tokens of a pass, with a row an example.
Out:  fingerprints of some passages of each row, computed on the device, exact; nothing waits. Figures for the `model`
      record: how many of an evaluation's rows have a passage that was trained on, and how many would have by chance.

Of all passages of a row those with the least fingerprints are taken, so two rows that have a document in common have
some of them in common, wherever it lies in each. Texts of one kind have passages in common by chance, as forms and
headings: how many, is known from those that the evaluation's own rows have in common with each other, and those that
the first batches have in common with the ones before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barograph.probes.model.groups import Groups
from barograph.probes.model.kin import Kin, kin_size
from barograph.probes.model.overlaps import BITS, PassesOfEvaluation, back_to_begin, even_rows, mixed, sums_before
from barograph.probes.model.parameters import local, mesh_of
from barograph.probes.model.row_passages import SIZES, TAKEN, place_of
from barograph.probes.model.siblings import SiblingLook
from barograph.probes.model.windows import Windows, size_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_COLUMNS = len(SIZES) + 2  # of a row: passages of each size; places of those of two sizes
_LONGEST = 1024  # places of a row
_OF_PASS = 64  # rows of a pass of an evaluation
_KEPT = 1 << 16  # passages of each size that are remembered
_EARLY = 4  # looks at a training, whose rows are new
_NEVER = 3  # of rows that none of a sample has, as many may be
_NOTHING = 1 << 53  # above all fingerprints


def marks(rows: Tensor) -> Tensor | None:
    """Fingerprints of passages [n, sizes, TAKEN] of rows of tokens [n, places]; -1 where a row has no more, None where
    there are no rows of tokens. A passage in which half of the tokens are as the one before, as in padding, is none;
    nor is one of two numbers alone, as of a mask.
    """
    found = placed_marks(rows)
    return None if found is None else found[:, : len(SIZES)]


def placed_marks(rows: Tensor) -> Tensor | None:
    """`marks`, and behind them where the passages of two sizes begin [n, columns, TAKEN]: see `place_of`."""
    import torch

    if rows.is_floating_point() or rows.dim() != 2 or rows.shape[1] < SIZES[0] or mesh_of(rows) is not None:
        return None
    lines = local(rows.detach())[:, :_LONGEST].long()
    length = lines.shape[1]
    sums = sums_before(mixed(lines + 1))
    changes = torch.nn.functional.pad((lines[:, 1:] != lines[:, :-1]).long().cumsum(1), (1, 0))
    words = lines.amax() - lines.amin() > 1  # a mask has two numbers
    found = lines.new_full((len(lines), _COLUMNS, TAKEN), -1)
    placed = (size_of(length), kin_size(length))
    for at, size in enumerate(SIZES):
        if length < size:
            continue
        back = back_to_begin(length - size + 1, lines)
        each = mixed((sums[:, size:] - sums[:, : length - size + 1]) * back) & BITS
        varied = words & (2 * (changes[:, size - 1 :] - changes[:, : length - size + 1]) >= size)
        least, places = each.masked_fill(~varied, _NOTHING).topk(min(TAKEN, each.shape[1]), dim=1, largest=False)
        found[:, at, : least.shape[1]] = least.masked_fill(least == _NOTHING, -1)
        for column, followed in enumerate(placed, len(SIZES)):
            if size == followed:
                found[:, column, : least.shape[1]] = place_of(places, length).masked_fill(least == _NOTHING, -1)
    return found


class Passages(PassesOfEvaluation):
    """Of steps that were trained on, and of an evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self._step: Tensor | None = None
        self._trained: list[set[float]] = [set() for _ in SIZES]
        self._windows, self._kin = Windows(), Kin()
        self._siblings, self._groups = SiblingLook(), Groups()
        self._looks = 0
        self._again = [[0.0, 0.0] for _ in SIZES]  # rows of the first looks that had a passage of those before; pairs

    def trained(self, rows: Tensor) -> None:
        """Rows of a step."""
        self._step = placed_marks(rows)
        self._siblings.trained(rows)
        self._groups.trained(rows)

    def trained_no_more(self) -> None:
        """The rows of the step were not trained on."""
        self._step = None
        self._siblings.trained_no_more()
        self._groups.trained_no_more()

    def between(self, current: ModelRound, rows: Tensor) -> None:
        """Rows of steps that were not looked at."""
        found = None if self._kin.again else placed_marks(rows)
        if found is not None:
            current.put("between_passages", tuple(map(str, range(found.numel()))), found.reshape(-1))
        self._siblings.between(current, rows)
        self._groups.between(current, rows)

    def evaluated(self, rows: Tensor) -> None:
        """Rows of a pass of an evaluation."""
        found = placed_marks(even_rows(rows, _OF_PASS))
        if found is not None:
            self._evaluated.append(found)
        self._siblings.evaluated(rows)
        self._groups.evaluated(rows)

    def thin(self) -> None:
        """Forget every second pass of the evaluation."""
        super().thin()
        self._siblings.thin()
        self._groups.thin()

    def forget(self) -> None:
        """Forget all passes of the evaluation."""
        super().forget()
        self._siblings.forget()
        self._groups.forget()

    def put(self, current: ModelRound, evaluation: bool) -> None:
        """A step begins. evaluation: what came before it was one."""
        import torch

        if self._step is not None:
            current.put("passages", tuple(map(str, range(self._step.numel()))), self._step.reshape(-1))
        if self._evaluated and evaluation:
            names = tuple(str(at) for at, one in enumerate(self._evaluated) for _ in range(one.numel()))
            current.put("evaluated_passages", names, torch.cat([one.reshape(-1) for one in self._evaluated]))
        self._step, self._evaluated = None, []
        self._siblings.put(current, evaluation)
        self._groups.put(current, evaluation)

    def fields_of(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """What is recorded of a step, in the order of steps."""
        found = self._siblings.fields_of(numbers) | self._groups.fields_of(numbers)
        if "between_passages" in numbers and not self._kin.again:
            rows = numbers["between_passages"][1][0].reshape(-1, _COLUMNS, TAKEN)
            if not self._kin.come_again(rows):
                self._windows.keep(rows)
                self._kin.keep(rows)
        if "evaluated_passages" in numbers:
            passes, values = numbers["evaluated_passages"]
            rows, each = values[0].reshape(-1, _COLUMNS, TAKEN), passes[:: _COLUMNS * TAKEN]
            found |= self._seen(rows, each) | self._windows.seen(rows, each) | self._kin.seen(rows, each)
        if "passages" in numbers:
            lines = numbers["passages"][1][0].reshape(-1, _COLUMNS, TAKEN)
            self._windows.keep(lines)
            self._kin.keep(lines)
            for at, known in enumerate(self._trained):
                if 0 < self._looks < _EARLY:
                    rows = [{mark for mark in row if mark >= 0} for row in lines[:, at].tolist()]
                    self._again[at][0] += sum(bool(row & known) for row in rows)
                    self._again[at][1] += len(rows) * len(known)
                if len(known) < _KEPT:
                    known.update(lines[:, at].ravel().tolist())
                    known.discard(-1.0)
            self._looks += 1
        return found

    def _seen(self, rows: Any, passes: Any) -> dict[str, float]:
        """Of the size that says most: the share of the rows with a passage that was trained on, that by chance, and the
        share of passes that have any."""
        best: tuple[float, dict[str, float]] = (-math.inf, {})
        for at, known in enumerate(self._trained):
            lines = [{mark for mark in row if mark >= 0} for row in rows[:, at].tolist()]
            told = [place for place, line in enumerate(lines) if line]
            if not told or not known:
                continue
            having = [place for place in told if lines[place] & known]
            again, pairs = self._again[at]
            early = 1 - math.exp(-again / max(pairs, 1.0) * len(known))  # as rows of the training that are new
            chance = max(early, _by_chance([lines[place] for place in told], len(known)))
            share = len(having) / len(told)
            if share - chance > best[0]:
                best = (
                    share - chance,
                    {
                        "evaluated_passages": share,
                        "evaluated_passages_chance": chance,
                        "evaluated_passages_rows": float(len(told)),
                        "evaluated_passages_passes": len({passes[place] for place in having}) / len(set(passes)),
                    },
                )
        return best[1]


def _by_chance(lines: list[set[float]], trained: int) -> float:
    """The share of rows that would have a passage among that many of other texts, by how many have one in common with
    another row of theirs; rows that are the same count once."""
    different = [set(line) for line in {frozenset(line) for line in lines}]
    count = Counter(mark for line in different for mark in line)
    if len(different) < 2:
        return 1.0
    shared = sum(any(count[mark] > 1 for mark in line) for line in different)
    none = 1 - min(1.0, (shared + _NEVER) / (len(different) + _NEVER))
    return float(1 - none ** (trained / max(1, len(count))))
