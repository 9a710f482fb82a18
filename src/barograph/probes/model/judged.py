"""Texts whose likelihood a loss raises in some rows and lowers in others, as judged answers and advantages have it.

In:   the tokens of a pass, some rows of its output, the output's gradient; the graph of the loss.
Out:  by how many places the targets are ahead of the inputs, and how many lie in padding, as `texts` has both of a
      cross-entropy; whether both answers of each prompt are raised, or lowered, together, and how many pairs are of one
      answer twice; computed on the device, nothing waits.

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

FIGURES = ("judged_shift", "judged_padding", "judged_together", "judged_same")
_ROWS = 64  # of a batch, whose tokens are at hand
_PLACES = 256  # of a row that are compared with another row's
_PAIRS, _PROMPT = 2, 2  # of answers, at least; tokens of a prompt
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
            both = torch.full((2,), math.nan, dtype=shift.dtype, device=shift.device)
            if same and len(gradient) <= _ROWS:
                both = torch.where(shift == 1, of_pairs(same[0], alive, _lowered(gradient, turned)).to(both), both)
            self._found = torch.where(sure, torch.cat([torch.stack([shift, padding]), both]), math.nan)

    def put(self, current: ModelRound) -> None:
        """A step begins: what its passes have shown."""
        if self._found is not None:
            current.put("judged", FIGURES, self._found)
        self._found = None


def _lowered(gradient: Tensor, turned: Tensor) -> Tensor:
    """Which rows were turned round."""
    return (gradient != turned).flatten(1).any(1)


def of_pairs(tokens: Tensor, alive: Tensor, lowered: Tensor) -> Tensor:
    """Of rows that are prompts with answers, half of them raised and half lowered. Where each prompt has two rows, the
    share of rows that are raised, or lowered, as the other one of their prompt is. Where a half of the batch, or every
    other row, is raised, the share of pairs whose rows are the same. NaN where neither is to be seen."""
    import torch

    nothing = torch.full((), math.nan, device=tokens.device)
    rows, half, lines = len(tokens), len(tokens) // 2, tokens[:, :_PLACES]
    if rows % 2 or half < _PAIRS or tokens.shape[1] > _PLACES:
        return torch.stack([nothing, nothing])
    place, some = torch.arange(rows, device=tokens.device), alive.any(1)
    common = (lines[:, None] == lines[None]).long().cumprod(2).sum(2)
    prompt = alive.long().argmax(1) + 1  # the first place with a target stands for the token behind it
    mate = (common >= prompt[:, None]) & (prompt[:, None] == prompt[None]) & (place[:, None] != place[None])
    even = some.all() & (2 * lowered.sum() == rows) & (mate.sum(1) == 1).all() & (prompt >= _PROMPT).all()
    together = (mate & (lowered[:, None] == lowered[None])).any(1).float().mean()
    equal, share = common == lines.shape[1], nothing
    for partner, second in (((place + half) % rows, place >= half), (place ^ 1, place % 2 == 1)):
        apart = (((lowered == second) | ~some).all() | ((lowered != second) | ~some).all()) & some.any()
        told = equal.gather(1, partner[:, None]).float().mean()
        share = torch.where(apart & share.isnan(), told, share)
    return torch.stack([torch.where(even, together, nothing), share])


def _is_judged(root: Any) -> bool:
    """Whether a loss is made of what is picked from a softmax, by way of a function that only comparisons, ratios and
    judgements have."""
    kinds = {kind(node) for node, _ in nodes([root], _NODES)} if root is not None else set[str]()
    return not kinds.isdisjoint(_PICKS) and not kinds.isdisjoint(_JUDGES)
