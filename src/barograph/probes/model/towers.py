"""Examples that are given in parts, to towers that are called one by one: texts beside pictures, users beside items.

In:   marks of the rows that the first tower is given, and those of the others.
Out:  marks of the examples: of all rows that stand at one place.

One tower's rows alone tell nothing. A catalogue whose entries are trained on is what an evaluation looks in, too; many
examples have one entry; prompts of all classes are the same in each step. Of what an evaluation gives, passes
belong together whose numbers of rows are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)  # 2⁶⁴ / golden ratio: consecutive multiples differ in all bits
_BITS = (1 << 52) - 1  # what a double holds
_FEW = 4  # rows


class TowerRows:
    """What towers beside the first are given, in a step and in an evaluation."""

    def __init__(self) -> None:
        self.count = 0  # of them
        self._step: dict[int, Tensor] = {}
        self._evaluated: dict[int, list[tuple[int, Tensor]]] = {}

    def trained(self, which: int, marks: Tensor) -> None:
        """The first rows of the step."""
        self._step.setdefault(which, marks)

    def evaluated(self, which: int, rows: int, marks: Tensor) -> None:
        """A pass of an evaluation. rows: how many it has in all."""
        self._evaluated.setdefault(which, []).append((rows, marks))

    def passes(self, which: int) -> int:
        """Passes of an evaluation so far."""
        return len(self._evaluated.get(which, ()))

    def has(self, which: int) -> bool:
        """Whether rows of the step are known."""
        return which in self._step

    def forget(self) -> None:
        """What was given so far was of the training."""
        self._evaluated = {}

    def of_step(self, first: Tensor | None) -> Tensor | None:
        """Marks of the step's examples; None where a tower was given nothing."""
        others, self._step = [self._step.get(which) for which in range(self.count)], {}
        if first is None:
            return None
        return _together([first, *others])

    def of_evaluation(self, firsts: Sequence[tuple[int, Tensor]]) -> list[Tensor]:
        """The same of its passes; none where their rows belong together in no way that is known."""
        others, self._evaluated = [self._evaluated.get(which, []) for which in range(self.count)], {}
        found: list[Tensor] = []
        for passes in zip(firsts, *others, strict=False):
            together = _together([marks for _, marks in passes]) if len({rows for rows, _ in passes}) == 1 else None
            if together is None:
                return []
            found.append(together)
        return found if all(len(one) == len(firsts) for one in others) else []


def _together(parts: Sequence[Tensor | None]) -> Tensor | None:
    known = [one for one in parts if one is not None]
    count = min(map(len, known), default=0)
    if len(known) < len(parts) or count < _FEW or len({one.device for one in known}) > 1:
        return None
    marks = known[0][:count]
    for one in known[1:]:
        marks = ((marks * _FACTOR ^ (marks >> 23)) + one[:count]) & _BITS
    return marks
