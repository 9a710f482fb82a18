"""In which modes a model's passes without gradients run: those of evaluations, and those in between.

In:   passes without gradients of a model with dropout or batch norm, and whether they are in training mode.
Out:  figures for the `model` record. Of an evaluation three passes at most are marked, on their device; nothing waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.doubles import UsualPasses
from barograph.probes.model.parameters import local, mesh_of
from barograph.probes.model.row_marks import fingerprints

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FAMILY = "modes"
_WITHIN, _BEHIND = "training_within_evaluation", "training_behind_evaluation"
_EACH_STEP = 3  # steps in a row with a pass in training mode and without gradients: it belongs to the step
_MARKED = 3  # passes of an evaluation whose rows are compared: one in evaluation mode, two behind it
_LEAST = 2  # passes in training mode behind each one in evaluation mode
_ROWS = 8
_FEWER = 4  # times fewer rows in evaluation mode: a sample is drawn beside the evaluation


class PassModes:
    """The modes of the passes without gradients since the last step.

    Where the line that sets training mode again stands within the loop over what is held out, a pass in evaluation mode
    is followed by others in training mode. So it is where predictions of the same rows are drawn with dropout on,
    whose inputs are the same; where statistics of batch norm are gathered, so models with it are left out; and where
    each step has passes in training mode.

    Where the line stands at the end of a function that is called for each of several sets, all passes in evaluation
    mode come first, and those of the other sets behind them, in training mode.

    Where each step has some, as for a baseline of a policy's own, an evaluation is where more than twice as many come:
    its mode is that of all of them.
    """

    def __init__(self, model: Any) -> None:
        self._gathers = any("BatchNorm" in type(one).__name__ for one in model.modules())
        self._each_step = 0  # steps in a row in which one of them was in training mode
        self._usual = UsualPasses()
        self._labels = False
        self._told: frozenset[str] = frozenset()  # figures that were given of the evaluation before
        self._begin()

    def _begin(self) -> None:
        self.seen: set[bool] = set()
        self._alone = True  # each in evaluation mode was by itself, with others in training mode behind it
        self._behind = self._rows = 0
        self._marks: list[Tensor] = []
        self._turned: bool | None = False  # whether training mode has come behind evaluation mode; None: and went
        self._firsts: list[Tensor] = []  # rows of the first pass in evaluation mode, and of two behind the last one
        self._before = self._after = 0  # passes in evaluation mode, and in training mode behind them
        self._most = {True: 0, False: 0}  # rows of a pass in either mode

    def passed(self, mode: bool, tensors: Sequence[Any]) -> None:
        """A pass without gradients. mode: whether it is in training mode."""
        first = not self.seen
        self.seen.add(mode)
        self._usual.came()
        self._most[mode] = max(self._most[mode], *(len(one) for one in tensors[:1] if one.dim() > 1), 0)
        if self._gathers or self._each_step:
            return
        self._turn(mode, tensors)
        if not self._alone:
            return
        self._alone = False not in self.seen or mode or first or self._behind >= _LEAST
        self._alone = self._alone and (not first or not mode)
        self._behind = self._behind + 1 if mode else 0
        if self._alone and len(self._marks) < _MARKED:
            self._mark(tensors)

    def _mark(self, tensors: Sequence[Any]) -> None:
        self._alone = bool(tensors) and not mesh_of(tensors[0])
        if self._alone:
            rows = local(tensors[0].detach())
            self._rows = self._rows or len(rows)
            self._alone = 0 < len(rows) <= self._rows  # the last batch of what is held out may be smaller
            if self._alone:
                self._marks.append(fingerprints(rows[:_ROWS]).sum())

    def _turn(self, mode: bool, tensors: Sequence[Any]) -> None:
        if self._turned is None or mode < self._turned or (mode and not self._before):
            self._turned = None
            return
        self._turned = mode
        self._before, self._after = self._before + (not mode), self._after + mode
        if len(self._firsts) < (_MARKED if mode else 1):
            plain = bool(tensors) and not mesh_of(tensors[0]) and tensors[0].dim() > 0 and len(tensors[0]) > 0
            if plain:
                self._firsts.append(fingerprints(local(tensors[0].detach())[:_ROWS]).sum())
            else:
                self._turned = None

    def rested(self) -> None:
        """A step begins that is not looked at: how many passes a step has is counted anew."""
        self._usual.forget()

    def put(self, current: ModelRound) -> dict[str, float]:
        """What is known without waiting. Where one was in evaluation mode, it was the evaluation: others may be of the
        training itself, as those that make labels of what has none. Not so where it had a fourth of their rows or less,
        as what draws a sample behind the evaluation."""
        import torch

        found: dict[str, float] = {}
        within = self._alone and self._behind >= _LEAST and len(self._marks) == _MARKED
        behind = bool(self._turned) and min(self._before, self._after) >= _LEAST and len(self._firsts) == _MARKED
        if self._usual.put() and self._each_step >= _EACH_STEP:
            current.figures["evaluated_in_training"] = float(False not in self.seen)
        if True in self.seen and not self._each_step:  # what came before may have had none
            self._usual.forget()
        self._each_step = self._each_step + 1 if True in self.seen else 0
        if self.seen:
            samples = not self._gathers and max(_ROWS, _FEWER * self._most[False]) <= self._most[True]
            found["training_in_evaluation"] = float(all(self.seen) or samples)
            if len(self.seen) == 2 and not samples and self._each_step < _EACH_STEP:
                found["statistics_gathered"] = 1.0
        if self._each_step >= _EACH_STEP or self._labels:
            self._labels = True
            found["labels_in_training"] = float(self._each_step >= _EACH_STEP)
        for there, name, marked in ((within, _WITHIN, self._marks), (behind and not within, _BEHIND, self._firsts)):
            if there:
                marks = torch.stack(marked)
                current.put(FAMILY, (name,), (marks[1:] != marks[0]).all().float())
            elif self.seen and name in self._told:
                found[name] = 0.0
            self._told = self._told | {name} if there else self._told - {name} if self.seen else self._told
        self._begin()
        return found
