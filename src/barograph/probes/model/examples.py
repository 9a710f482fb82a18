"""Which examples a model is given: those that come again, and those of an evaluation that were trained on.

In:   inputs of forward passes: tokens, or what else has a row an example.
Out:  figures for the `model` record. A row's fingerprint is computed on the device, exact and alike in batches of any
      size; which were seen before is known when it has arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from barograph.probes.model import cuts, overlaps
from barograph.probes.model.beginnings import Beginnings
from barograph.probes.model.between import RowsBetween
from barograph.probes.model.example_inputs import example_inputs, numbers_of_rows, other_tokens, second_view
from barograph.probes.model.likeness import Likeness
from barograph.probes.model.parameters import local
from barograph.probes.model.passages import Passages
from barograph.probes.model.row_marks import BITS, elements, fingerprints
from barograph.probes.model.towers import TowerRows
from barograph.probes.model.trained_passes import TrainedPasses
from barograph.probes.model.whole_rows import WholeRows
from barograph.probes.model.wording import WordingLook, most_apart

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_ROWS = 64  # of a batch
_PASSES, _EVALUATED = 8, 64  # passes of an evaluation, rows of each
_ALIKE = 0.02  # of a batch: rows that are drawn with replacement are fewer
_KEPT = 1 << 16  # rows that are remembered
_TWICE = 0.1  # of a batch, at most, that came before: copies in the data, and no batch that comes again
_LARGE = 1 << 13  # elements of a row between two looks, of which some are copied
_BESIDE = 3  # further passes of a step, as of the other side of pairs, whose rows are remembered
_MARKED = 8  # looks of a launch whose batches get a mark
_WIDTH = {"pieces": overlaps.PIECES, "numbers": 1}  # of a row
_SERIES = {"pieces": "overlap", "numbers": "rearranged"}
_APART, _OF_ROWS = 64, 1 / 16  # rows of different numbers, at least: and of all different ones


class ExampleLook:
    """Looks at the inputs of some steps, and of evaluations."""

    def __init__(self) -> None:
        self._rows: Tensor | None = None
        self._lengths: Tensor | None = None
        self._beside: list[tuple[int, Tensor]] = []  # rows of the step's other passes, with the number of the pass
        self._trained_passes = TrainedPasses()
        self._evaluated: list[Tensor] = []  # some passes of an evaluation, evenly over it
        self._counts: list[int] = []  # rows of each of the first tower's
        self.towers = TowerRows()
        self._passes, self._every = 0, 1  # of an evaluation so far; how many of them one is looked at of
        self._mode: bool | None = None  # whether these passes were in training mode; None where that is not known
        self._trained: dict[float, int] = {}  # fingerprints → the step at which they were seen last
        self._also: dict[float, list[int]] = {}  # the same of examples that are in the data twice: steps before
        self._beside_trained: set[float] = set()
        self._between, self._between_trained = RowsBetween(), set[float]()
        self._looks = self._steps = self._evaluating = 0
        self._parts: dict[str, list[Tensor]] = {}  # see `overlaps`; of the step, and of an evaluation
        self._cuts = cuts.Cuts()
        self._trained_parts: dict[str, dict[float, int]] = {"pieces": {}, "numbers": {}}  # → their first place
        self._alike, self._passages, self._whole = Likeness(), Passages(), WholeRows()
        self._beginnings, self._wording = Beginnings(), (WordingLook(), WordingLook("second_wording", text=False))
        self._copies = self._looked = 0  # rows that were another one's copy in a batch, of all that were looked at

    def given(self, tensors: Sequence[Tensor], trains: bool, due: bool, mode: bool | None = None) -> None:
        """The inputs of a pass. mode: whether it is in training mode, where that makes a difference. Where an
        evaluation has passes in evaluation mode, others in training mode don't count as part of it: they gather batch
        norm's statistics, from the training's own examples."""
        self._trained_passes.begin()
        if trains and not due and self._rows is None:
            self._keep(tensors)
            return
        if trains and self._rows is not None and len(self._beside) >= _BESIDE:
            return
        if not trains and mode is not None:
            if mode and self._mode is False:
                return
            if self._mode and not mode:
                self._forget_evaluation()
            self._mode = mode
        if not trains:  # of many passes, as of a generation token by token, ever fewer
            self._passes += 1
            if (self._passes - 1) % self._every or self._in_each_step:
                return
        tensor, beside = example_inputs(tensors)
        if tensor is None:
            return
        # what near copies, parts and an order are looked for in: a mask has one number a token
        numbers = tensor if beside is None or beside.shape[:2] == tensor.shape[:2] else beside

        def marks(count: int) -> Tensor:
            return _marks(tensor, beside, count)

        if self.towers.count and (self._rows is not None if trains else True):
            if not trains and len(self._evaluated) < _PASSES:
                self._evaluated.append(marks(_EVALUATED))
                self._counts.append(len(tensor))
        elif trains and self._rows is not None:
            self._beside.append((self._trained_passes.take(), marks(_ROWS)))
        elif trains:
            self._rows, number = marks(_ROWS), self._trained_passes.take()
            second = second_view(tensors, tensor)
            if second is not None and not self.towers.count:
                self._beside.append((number, fingerprints(second[:_ROWS])))
            self._lengths = lengths(tensor[:_ROWS], [one for one in tensors if one is not tensor])
            self._look_at_parts(numbers[:_ROWS], "")
            self._alike.trained(numbers[:_ROWS])
            self._whole.trained(tensors)
            self._passages.trained(tensor[:_ROWS])
            self._beginnings.trained(tensor)
            self._wording[0].trained(tensor[:_ROWS])
            if (other := other_tokens(tensors, tensor)) is not None:
                self._wording[1].trained(other[:_ROWS])
        else:
            if len(self._evaluated) == _PASSES:
                del self._evaluated[1::2]
                for name in ("evaluated_pieces", "evaluated_numbers", "evaluated_squares"):
                    del self._parts.get(name, [])[1::2]
                self._alike.thin()
                self._passages.thin()
                self._every *= 2
            self._evaluated.append(marks(_EVALUATED))
            self._alike.evaluated(numbers)
            self._whole.evaluated(tensors)
            self._passages.evaluated(tensor)
            self._look_at_parts(overlaps.even_rows(numbers, _EVALUATED), "evaluated_")

    def _keep(self, tensors: Sequence[Tensor]) -> None:
        """The inputs of a pass of a step that is not looked at."""
        tensor, beside = (None, None) if self.towers.count or not self._between.is_wanted else example_inputs(tensors)
        if tensor is not None:
            some = local(tensor)[:_ROWS]
            if some.is_floating_point() and some[0].numel() > _LARGE:  # what its fingerprint is of
                some = elements(some)
            self._between.given(self._trained_passes.take(), some, None if beside is None else local(beside))

    def given_to_tower(self, which: int, tensors: Sequence[Tensor], trains: bool, due: bool) -> None:
        """The inputs of another tower than the first."""
        known = self.towers.has(which) if trains else self.towers.passes(which) >= _PASSES or self._in_each_step
        if known or (trains and not due and self._rows is None):
            return
        tensor, beside = example_inputs(tensors)
        if tensor is None:
            tensor, beside = numbers_of_rows(tensors), None
        if tensor is not None and trains:
            if beside is None and self._rows is not None and len(tensor[:_ROWS]) == len(self._rows):
                self._wording[1].trained(tensor[:_ROWS])
            self.towers.trained(which, _marks(tensor, beside, _ROWS))
        elif tensor is not None:
            self.towers.evaluated(which, len(tensor), _marks(tensor, beside, _EVALUATED))

    def returned(self, output: Any) -> None:
        """The output of a pass with gradients."""
        self._trained_passes.follow(output)

    def _leave_out_unreached(self) -> None:
        """Forget the passes that no gradient reached: an evaluation with gradients trains nothing."""
        kept = self._trained_passes.kept(1 + _BESIDE)
        beside = [rows for number, rows in self._beside if kept(number)]
        if self._rows is not None and not kept(0):
            self._rows, self._lengths = beside.pop(0) if beside else None, None
            self._alike.trained_no_more()
            self._whole.trained_no_more()
            self._passages.trained_no_more()
            self._beginnings.trained_no_more()
            for wording in self._wording:
                wording.trained_no_more()
            trained = (*self._trained_parts, "squares")
            self._parts = {name: parts for name, parts in self._parts.items() if name not in trained}
        self._beside = [(0, rows) for rows in beside]
        self._between.ended(kept)
        self._trained_passes = TrainedPasses()

    @property
    def _in_each_step(self) -> bool:
        """Whether passes without gradients belong to each step, and are not an evaluation."""
        return self._evaluating > self._steps // 4 + 1

    @property
    def _has_copies(self) -> bool:
        """Whether batches have had the same row twice, more often than where rows are drawn with replacement."""
        return self._copies > _ALIKE * self._looked

    def rested(self) -> None:
        """A step begins that is not looked at."""
        self._steps += 1
        self._between.rested()

    def _forget_evaluation(self) -> None:
        self._alike.forget()
        self._whole.forget()
        self._passages.forget()
        self._passes, self._every, self._evaluated, self._counts = 0, 1, [], []
        self.towers.forget()
        self._parts = {name: parts for name, parts in self._parts.items() if not name.startswith("evaluated_")}

    def _look_at_parts(self, rows: Tensor, whose: str) -> None:
        import torch

        found, all_of_row = overlaps.pieces(rows), overlaps.numbers(rows)
        if found is not None:
            self._parts.setdefault(f"{whose}pieces", []).append(torch.stack(found))
        if (squares := cuts.of_pictures(rows)) is not None:
            self._parts.setdefault(f"{whose}squares", []).append(squares)
        if all_of_row is not None:
            self._parts.setdefault(f"{whose}numbers", []).append(
                torch.stack([all_of_row, torch.zeros_like(all_of_row)])[..., None]
            )

    def put(self, current: ModelRound) -> None:
        """A step begins: what its passes, and those of an evaluation before it, were given."""
        import torch

        self._steps += 1
        self._evaluating += bool(self._evaluated)
        if self._rows is not None or self._evaluated:
            self._put_between(current)
        self._leave_out_unreached()
        self._between.rested()
        count = sum(map(len, self._evaluated))
        self._put_towers()
        if count and not self._evaluated:  # of examples that are not known
            current.figures["evaluated_rows"] = float(count)
        if self._rows is not None:
            current.put("examples", tuple(map(str, range(len(self._rows)))), self._rows)
        for _, rows in self._beside:
            current.put("examples_beside", tuple(map(str, range(len(rows)))), rows)
        if self._lengths is not None:
            current.put("input_lengths", ("mean", "std", "whole"), self._lengths)
        self._alike.put(current, not self._in_each_step)
        self._passages.put(current, not self._in_each_step)
        self._beginnings.put(current, self._steps)
        for wording in self._wording:
            wording.put(current)
        if self._in_each_step:
            self._forget_evaluation()
        self._whole.put(current)
        self._passes, self._every = 0, 1
        for name, parts in self._parts.items():
            where = tuple(
                str(at) for at, one in enumerate(parts) for _ in range(one.shape[1]) for _ in range(2 * one.shape[2])
            )
            current.put(name, where, torch.cat([one.movedim(0, 1).reshape(-1) for one in parts]))
        self._parts, self._mode = {}, None
        for at, rows in enumerate(self._evaluated):
            current.put("evaluated", (str(at),) * len(rows), rows)
        self._rows, self._lengths, self._beside, self._evaluated = None, None, [], []

    def _put_between(self, current: ModelRound) -> None:
        """What was trained on since the last look, or the last evaluation."""
        for rows, beside, steps in self._between.take():
            names = tuple(map(str, steps))
            numbers = rows if beside is None or beside.shape[:2] == rows.shape[:2] else beside
            current.put("between", names, _marks(rows, beside, len(rows)))
            self._look_at_parts(numbers, "between_")
            self._alike.between(current, numbers, names)
            self._passages.between(current, rows)

    def _put_towers(self) -> None:
        """Of examples that are given in parts: all parts of each."""
        if self.towers.count:
            self._rows = self.towers.of_step(self._rows)
            self._evaluated = self.towers.of_evaluation(list(zip(self._counts, self._evaluated, strict=False)))
            self._counts = []

    def fields_of(self, numbers: Mapping[str, Any], step: int) -> dict[str, float]:
        """What is recorded of a step, in the order of steps."""
        found: dict[str, float] = {}
        if "input_lengths" in numbers:
            names, values = numbers["input_lengths"]
            shown = zip(names, values[0].tolist(), strict=True)
            found |= {f"input_length_{name}": value for name, value in shown if value == value}
        found |= self._keep_between(numbers, step)
        if "evaluated" in numbers:
            found |= self._seen_in_training(*numbers["evaluated"]) | self._parts_seen(numbers)
        rows = [int(row) for row in numbers["examples"][1][0]] if "examples" in numbers else []
        known = [row in self._trained for row in rows]
        others = [int(row) for row in numbers["examples_beside"][1][0]] if "examples_beside" in numbers else []
        if others:  # those of this step, which may be their other views, are not yet known
            seen = sum(row in self._trained or row in self._beside_trained for row in others)
            found |= {"beside_rows": float(len(others)), "beside_again": seen / len(others)}
        found |= self._alike.fields_of(numbers, known, step) | most_apart(
            [wording.fields_of(numbers, known, step) for wording in self._wording]
        )
        found |= self._passages.fields_of(numbers) | self._beginnings.fields_of(numbers)
        found |= self._whole.fields_of(numbers, self._has_copies)
        if rows:
            found["batch_copies"] = 1 - len(set(rows)) / len(rows)
            found["example_rows"] = float(len(rows))
            self._copies += len(rows) - len(set(rows))
            self._looked += len(rows)
            again = [step - self._trained[row] for row in rows if row in self._trained]
            if self._looks:
                found["rows_again"] = len(again) / len(rows)
                if again:
                    found["rows_again_after"] = float(numpy.median(again))
                    found["batch_again"] = self._together(rows, step) / len(rows)
            if self._looks < _MARKED:
                found["batch_mark"] = float(sum(rows) & BITS)
            self._looks += 1
            if len(self._trained) < _KEPT:
                self._trained |= dict.fromkeys(rows, step)
            found["distinct_rows"] = float(len(self._trained))
        self._keep_parts(numbers)
        if "examples" in numbers and "examples_beside" in numbers:
            both = numbers["examples"][1][0], numbers["examples_beside"][1][0]
            if len(both[0]) == len(both[1]):
                found["beside_copies"] = float((both[0] == both[1]).mean())
        if others and len(self._beside_trained) < _KEPT:
            self._beside_trained.update(others)
        return found if not others else found | {"beside_distinct": float(len(self._beside_trained))}

    def _together(self, rows: Sequence[int], step: int) -> int:
        """How many of a batch's rows came in one batch before. One that is in the data twice is in two of these."""
        seen = [row for row in rows if row in self._trained]
        before = Counter(at for row in seen for at in {self._trained[row], *self._also.get(row, ())})
        few = len(seen) <= _TWICE * len(rows) and len(self._also) < _KEPT
        for row in seen if few else self._also.keys() & set(seen):
            self._also.setdefault(row, []).append(self._trained[row])
        return max(before.values())

    def _keep_between(self, numbers: Mapping[str, Any], step: int) -> dict[str, float]:
        """Remember rows of steps that were not looked at."""
        if "between" not in numbers:
            return {}
        rows = [int(row) for row in numbers["between"][1][0]]
        before = len(self._trained.keys() | self._between_trained)
        known = [row in self._trained or row in self._between_trained for row in rows]
        self._alike.keep_between(numbers, known, step)
        self._between_trained.update(rows)
        self._keep_parts(numbers, "between_")
        return {
            "between_rows": float(len(rows)),
            "between_again": sum(known) / len(rows),
            "between_known": float(before),
        }

    def _keep_parts(self, numbers: Mapping[str, Any], whose: str = "") -> None:
        """Remember the parts of a step's rows."""
        self._cuts.keep(numbers, whose)
        for name, known in self._trained_parts.items():
            if whose + name in numbers and len(known) < _KEPT:
                marks, places = numbers[whose + name][1][0].reshape(-1, 2, _WIDTH[name]).swapaxes(0, 1).reshape(2, -1)
                for mark, place in zip(marks.tolist(), places.tolist(), strict=True):
                    if mark >= 0:
                        known[mark] = min(int(place), known.get(mark, int(place)))

    def _parts_seen(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """How many of an evaluation's rows have a part that was at an earlier place of a row of the training, or all
        numbers of one in whatever order; and the share of passes that had any.

        A row of the training that has a part earlier goes on behind the evaluation's, and has what is asked there. One
        that has it later ends before, as where a series is split by time and its past is given."""
        found = self._cuts.seen(numbers)
        for name, known in self._trained_parts.items():
            if f"evaluated_{name}" not in numbers or not known:
                continue
            rows_known = len(self._trained) + len(self._between_trained)
            if name == "numbers" and not max(_APART, _OF_ROWS * rows_known) <= len(known):
                continue  # all rows are made of a few
            passes, values = numbers[f"evaluated_{name}"]
            width = _WIDTH[name]
            rows = values[0].reshape(-1, 2, width)
            seen = [
                any(mark in known and (name == "numbers" or known[mark] < place)
                    for mark, place in zip(*row.tolist(), strict=True))
                for row in rows
            ]  # fmt: skip
            having = {at for at, one in zip(passes[:: 2 * width], seen, strict=True) if one}
            found[f"evaluated_{_SERIES[name]}"] = sum(seen) / len(seen)
            found[f"evaluated_{_SERIES[name]}_rows"] = float(len(seen))
            found[f"evaluated_{_SERIES[name]}_passes"] = len(having) / len(set(passes))
            if name == "pieces":
                found["evaluated_overlap_varied"] = float((rows[:, 0] >= 0).any(1).mean())
        return found

    def _seen_in_training(self, passes: Sequence[str], values: Any) -> dict[str, float]:
        """How many of an evaluation's rows were trained on, and the share of passes that had any."""
        if self._has_copies or not self._looked:  # inputs of few values are alike by chance
            return {}
        known = [row in self._trained or row in self._beside_trained for row in values[0].tolist()]
        having = {at for at, seen in zip(passes, known, strict=True) if seen}
        every = [one or row in self._between_trained for one, row in zip(known, values[0].tolist(), strict=True)]
        having_any = {at for at, seen in zip(passes, every, strict=True) if seen}
        return {
            "evaluated_rows": float(len(known)),
            "evaluated_trained": sum(known) / len(known),
            "evaluated_trained_passes": len(having) / len(set(passes)),
            "evaluated_known": sum(every) / len(every),
            "evaluated_known_passes": len(having_any) / len(set(passes)),
            "evaluated_known_of": float(len(self._trained.keys() | self._between_trained)),
        }


def _marks(tensor: Tensor, beside: Tensor | None, count: int) -> Tensor:
    """Fingerprints of examples, with what numbers they have beside their tokens."""
    found = fingerprints(tensor[:count])
    return found if beside is None else found ^ fingerprints(beside[:count])


def lengths(rows: Tensor, others: Sequence[Tensor] = ()) -> Tensor | None:
    """Mean and standard deviation of the rows' lengths without padding behind or before, and whether the texts are
    whole: all rows have padding behind one token that stands nowhere else, NaN where some have none; None of what has
    no tokens. others: given beside the rows; a mask among them says where padding is, three equal tokens or more do
    else."""
    import torch

    if rows.is_floating_point():
        return None
    real = torch.ones_like(rows, dtype=torch.long).sum(1)
    for line in (rows, rows.flip(1)):
        same = (line == line[:, :1]).long().cumprod(1).sum(1)
        real = real - torch.where(same > 2, same, 0)
    for mask in others:
        if (
            mask.dim() == 2
            and mask.shape[1:] == rows.shape[1:]
            and len(mask) >= len(rows)
            and mask.device == rows.device
        ):
            real = torch.where(_is_mask(mask[: len(rows)], rows), (mask[: len(rows)] != 0).sum(1), real)
    real = real.clamp_min(0).double()
    return torch.stack([real.mean(), real.std(), _are_whole(rows).to(real)])


def _is_mask(mask: Tensor, rows: Tensor) -> Tensor:
    """Whether a tensor is 0 at one end of each row, where all rows have the same token, and else 1."""
    import torch

    hidden = mask == 0
    pad = rows.masked_fill(~hidden, torch.iinfo(rows.dtype).max).amin()
    ends = (hidden[:, 1:] != hidden[:, :-1]).sum(1) <= 1
    return (hidden | (mask == 1)).all() & (~hidden | (rows == pad)).all() & ends.all() & ~hidden.all(1).any()


def _are_whole(rows: Tensor) -> Tensor:
    import torch

    behind = (rows.flip(1) == rows[:, -1:]).long().cumprod(1).sum(1)
    ends = rows.gather(1, (rows.shape[1] - 1 - behind).clamp_min(0)[:, None])
    alike = (ends == ends[0]).all() & ((rows == ends[0]).sum() == len(rows))
    padded = (behind > 2).all() & (behind < rows.shape[1]).all()
    return torch.where(padded, alike.double(), torch.nan)
