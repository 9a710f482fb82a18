"""How sure a classifier is in evaluations, and what its loss comes to there if a softmax is taken twice; what its
answers are compared with there.

In:   inputs and outputs of passes without gradients, of the model or of a copy that is evaluated.
Out:  figures for the `model` record, computed on the device from some rows of the first pass; nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from barograph.probes.model.activations import first_tensor
from barograph.probes.model.compared import ComparedAnswers
from barograph.probes.model.guest import after, is_compiled
from barograph.probes.model.parameters import mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FIGURES = ("least", "span", "level", "chance")
_ROWS, _LEAST = 64, 8
_PARTS = 8  # of a model that are heard, at most
_SETTLED, _HEARD = 8, 1000  # steps: what is compiled is by then, and would be so anew for a hook; until which
_CLASSES = (3, 4096)


class EvaluationAnswers:
    """Looks at the first pass of an evaluation."""

    def __init__(self) -> None:
        self._found: Tensor | None = None
        self._compared = ComparedAnswers()
        self.over = self._compared.over
        self._handles, self._steps = list[Any](), 0
        self._hear: Callable[[], None] | None = None
        self.awaited = False  # whether the copy that is called is evaluated

    def listen(self, model: Any, is_within: Callable[[], bool]) -> None:
        """Hear passes of a model's parts that are called by themselves in evaluations, unless the model itself is."""

        def ended(module: Any, given: Any, output: Any) -> None:
            import torch

            if not torch.is_grad_enabled() and not is_within():
                self._compared.passed()

        def hear() -> None:
            parts = [one for one in model.children() if any(True for _ in one.parameters())]
            if 1 < len(parts) <= _PARTS:
                self._handles = [after(one, ended) for one in parts]

        self._hear = hear

    def given(self, tensors: Iterable[Tensor]) -> None:
        """The inputs of a pass without gradients."""
        self._hear = None
        self.close()
        self._compared.given(tensors)

    def close(self) -> None:
        """Leave no hook behind."""
        self.over()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def of_copy(self, output: Any) -> None:
        """A copy of the model has returned something."""
        awaited, self.awaited = self.awaited, False
        if awaited:
            logits = getattr(output, "logits", None)
            self.gave(logits if logits is not None else first_tensor(output))

    def gave(self, logits: Any) -> None:
        """An output, which may be of other make."""
        self._compared.passed(logits)
        if self._found is not None or getattr(logits, "ndim", 0) != 2 or mesh_of(logits) is not None:
            return
        if len(logits) >= _LEAST and _CLASSES[0] <= logits.shape[1] <= _CLASSES[1] and logits.is_floating_point():
            self._found = figures(logits.detach()[:: max(1, len(logits) // _ROWS)][:_ROWS])

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        self._compared.put(current)
        self._steps += 1
        if self._hear is not None and self._steps == _SETTLED and not is_compiled():
            self._hear()
        if self._handles and (self._steps > _HEARD or is_compiled()):
            self.close()
        found, self._found, self.awaited = self._found, None, False
        if found is not None:
            current.put("answers", FIGURES, found)


def figures(rows: Tensor) -> Tensor:
    """`FIGURES` of rows of logits: what the surest answer costs, in the mean; how far the largest and the least logit
    of a row are apart, at most; the logarithm of the sum of the exponentials of chances, in the mean; and the chance of
    the surest answer, in the mean."""
    import torch

    rows = rows.float()
    highest, chances = rows.amax(1), rows.softmax(1)
    least = (rows.logsumexp(1) - highest).mean()
    span = (highest - rows.amin(1)).amax()
    return torch.stack([least, span, chances.logsumexp(1).mean(), chances.amax(1).mean()])
