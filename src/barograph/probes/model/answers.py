"""How sure a classifier is in evaluations, and what its loss comes to there if a softmax is taken twice.

In:   outputs of passes without gradients, of the model or of a copy that is evaluated.
Out:  figures for the `model` record, computed on the device from some rows of the first pass; nothing waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barograph.probes.model.activations import first_tensor
from barograph.probes.model.parameters import mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FIGURES = ("least", "span", "level", "chance")
_ROWS, _LEAST = 64, 8
_CLASSES = (3, 4096)


class EvaluationAnswers:
    """Looks at the first pass of an evaluation."""

    def __init__(self) -> None:
        self._found: Tensor | None = None
        self.awaited = False  # whether the copy that is called is evaluated

    def of_copy(self, output: Any) -> None:
        """A copy of the model has returned something."""
        awaited, self.awaited = self.awaited, False
        if awaited:
            logits = getattr(output, "logits", None)
            self.gave(logits if logits is not None else first_tensor(output))

    def gave(self, logits: Any) -> None:
        """An output, which may be of other make."""
        if self._found is not None or getattr(logits, "ndim", 0) != 2 or mesh_of(logits) is not None:
            return
        if len(logits) >= _LEAST and _CLASSES[0] <= logits.shape[1] <= _CLASSES[1] and logits.is_floating_point():
            self._found = figures(logits.detach()[:: max(1, len(logits) // _ROWS)][:_ROWS])

    def put(self, current: ModelRound) -> None:
        """A step begins."""
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
