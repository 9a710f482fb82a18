"""Passes of copies of a model, as of an average of its weights: in which mode evaluations of them are made.

In:   passes without gradients of copies; steps.
Out:  figures for the `model` record of the step behind an evaluation.

A copy may be called in each step, as a teacher is: as many passes as the last steps had belong to the training. A step
behind an evaluation has more than twice as many. Of these the last ones are the training's own, as many as a step has:
the inputs of a pass are looked at when as many have come behind it.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from barograph.probes.model.activations import dense_tensors
from barograph.probes.model.evaluated import EvaluatedLook

_PARTS = 4  # of copies that are called by their parts, which are looked at
_HELD = 64  # passes whose inputs are held, at most
_KNOWN, _LAST = 3, 8  # steps that say how many passes are usual: at least, at most


class UsualPasses:
    """Counts passes beside those of the model, to tell those that each step has from an evaluation's."""

    def __init__(self) -> None:
        self._counts: deque[int] = deque(maxlen=_LAST)
        self._count = 0

    def usual(self) -> int | None:
        """How many each step has; None while that is not known."""
        return max(self._counts) if len(self._counts) >= _KNOWN else None

    def came(self) -> bool:
        """One more. Whether it belongs to an evaluation."""
        self._count += 1
        return self._is_evaluation()

    def _is_evaluation(self) -> bool:
        usual = self.usual()
        return usual is not None and self._count > 2 * usual

    def put(self) -> bool:
        """The next step begins. Whether there was an evaluation before it."""
        evaluation, count = self._is_evaluation(), self._count
        self._count = 0
        if not evaluation:
            self._counts.append(count)
        return evaluation

    def forget(self) -> None:
        """The next step begins, and nothing is known of what is usual."""
        self._counts.clear()
        self._count = 0


class CopyPasses:
    """Counts them. evaluated: is given the inputs of a pass by which an evaluation is known, as it begins. given: later
    those of a pass that belongs to it, and whether that was in training mode."""

    def __init__(self, evaluated: Callable[[Sequence[Any]], None], given: Callable[[Sequence[Any], bool | None], None]):
        self._evaluated, self._given = evaluated, given
        self._late: deque[tuple[Sequence[Any], bool | None]] = deque()  # passes that may be the training's
        self._passes, self._modes = UsualPasses(), set[bool]()
        self.kinds = frozenset[type]()  # classes whose code drops numbers by functions, in their training mode
        self.heard = False  # whether a copy was ever called
        self.looks: dict[int, EvaluatedLook] = {}  # at functions of an evaluation, of a copy or its parts
        self.gathered = False  # whether an evaluation had passes in training mode, too, as they gather statistics

    def called(self, module: Any, given: Sequence[Any], whole: bool) -> None:
        """A copy is called without gradients. whole: as the model is, and not a part of it."""
        self.heard = True
        modes = [part.training for part in module.modules() if has_mode(part) or type(part) in self.kinds]
        if modes:
            self._modes.add(any(modes))
        tensors = [one for one in dense_tensors(given) if one.dim()] if whole else []
        evaluation, usual = self._passes.came(), self._passes.usual() or 0
        if whole:
            while len(self._late) > min(usual, _HELD):
                self._late.popleft()
            self._late.append((tensors, any(modes) if modes else None))
        if evaluation:
            if id(module) not in self.looks and len(self.looks) < (1 if whole else _PARTS):
                self.looks[id(module)] = EvaluatedLook(module)
            if whole:
                self._evaluated(tensors)
                if len(self._late) > min(usual, _HELD):
                    self._given(*self._late.popleft())

    def put(self, listens: bool) -> dict[str, float]:
        """The next step begins. listens: whether copies are known, and called unheard by none."""
        modes, self._modes = self._modes, set()
        self._late.clear()
        if not listens:
            self._passes.forget()
            return {}
        if not self._passes.put() or not modes:
            return {}
        self.gathered |= modes == {True, False}
        return {"copy_training_in_evaluation": float(modes == {True})}

    def close(self) -> None:
        """Leave no hook behind."""
        for look in self.looks.values():
            with contextlib.suppress(Exception):
                look.close()


def has_mode(module: Any) -> bool:
    """Whether a layer is another one in training than in evaluation mode: dropout, also one that a layer makes by
    itself with the share it is given as `dropout`, or batch norm."""
    kind, share = type(module).__name__, vars(module).get("dropout")  # a missing attribute of a module is slow to ask
    if isinstance(share, float) and 0 < share < 1 and getattr(module, "num_layers", 2) != 1:  # of one layer it has none
        return True
    return ("Dropout" in kind and getattr(module, "p", 0) > 0) or "BatchNorm" in kind
