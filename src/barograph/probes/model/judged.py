"""Texts whose likelihood a loss raises in some rows and lowers in others, as judged answers and advantages have it.

In:   the tokens of a pass, some rows of its output, the output's gradient; the graph of the loss.
Out:  by how many places the targets are ahead of the inputs, and how many lie in padding, as `texts` has both of a
      cross-entropy; computed on the device, nothing waits.

The gradient of a row's log probabilities is that of a cross-entropy, turned round where they are lowered: a place's
target has the one gradient of another sign than all other classes. Of single answers that are good or bad each row has
a sign of its own (`softmaxes.one_sided` knows those whose batch has one half of each).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model import softmaxes, texts
from barograph.probes.model.loss_graph import root_of_pass
from barograph.probes.model.objective import kind, nodes

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FIGURES = ("judged_shift", "judged_padding")
_ROWS = 64  # of a batch, whose tokens are at hand
_NODES = 128  # of a loss's graph, between the loss and what is picked from a softmax
_PICKS = frozenset({"Gather", "Index", "NllLoss", "NllLoss2D"})
_JUDGES = frozenset({"Sigmoid", "LogSigmoid", "Softplus", "Exp", "Minimum", "Maximum", "Clamp", "Where", "Relu"})


class JudgedTexts:
    """Looks at the gradient of the output of one pass of some steps."""

    def __init__(self) -> None:
        self._found: Tensor | None = None

    def look(
        self, tokens: Sequence[Tensor], given: Sequence[Tensor], fed: Sequence[bool], gradient: Tensor,
        choose: Any, output: Tensor,
    ) -> None:  # fmt: skip
        """tokens: as the model was given them. given, fed: as `texts.figures` has them. choose: gives of [rows, places,
        classes] the rows [n, classes] that `output` is of."""
        import torch

        self._found = None
        if not given or gradient.dim() != 3:
            return
        with contextlib.suppress(Exception):
            if not _is_judged(root_of_pass()):
                return
            turned, sure = softmaxes.turned_by_rows(gradient)
            if turned is None:
                return
            exact = gradient.dtype in (torch.float32, torch.float64) and output.dtype in (torch.float32, torch.float64)
            wide = torch.float32 if gradient.device.type == "mps" else torch.float64
            within = softmaxes.EXACT if exact else softmaxes.HALF
            found = softmaxes.find(output.to(wide), choose(turned).to(wide), within)
            shift = texts.figures(given, fed, turned, found, False)[0]["target_shift"]
            padding = torch.full_like(shift, math.nan)
            alive = (turned.amax(-1) != 0) | (turned.amin(-1) != 0)
            same = [one for one in tokens if one.shape == alive[:_ROWS].shape]
            if same:
                share = texts.of_padding(same[0], turned[:_ROWS], alive[:_ROWS], found.below)
                padding = torch.where(found.follows, share.to(padding), padding)
            self._found = torch.where(sure, torch.stack([shift, padding]), math.nan)

    def put(self, current: ModelRound) -> None:
        """A step begins: what its passes have shown."""
        if self._found is not None:
            current.put("judged", FIGURES, self._found)
        self._found = None


def _is_judged(root: Any) -> bool:
    """Whether a loss is made of what is picked from a softmax, by way of a function that only comparisons, ratios and
    judgements have."""
    kinds = {kind(node) for node, _ in nodes([root], _NODES)} if root is not None else set[str]()
    return not kinds.isdisjoint(_PICKS) and not kinds.isdisjoint(_JUDGES)
