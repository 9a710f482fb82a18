"""Texts whose likelihood a loss raises in some rows and lowers in others, as judged answers and advantages have it.

In:   the tokens of a pass, some rows of its output, the output's gradient; the graph of the loss.
Out:  by how many places the targets are ahead of the inputs, and how many lie in padding, as `texts` has both of a
      cross-entropy; whether both answers of each prompt are raised, or lowered, together, how many pairs are of one
      answer twice, and how many of two prompts; whether all answers of one side end with a token that the other side
      lacks; in how many pairs the targets of one answer are where those of the other should be; in how many both
      answers differ in the last token before their targets alone; computed on the device, nothing waits.

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

FIGURES = ("judged_shift", "judged_padding", "judged_together", "judged_same", "judged_apart", "judged_ended",
           "judged_by_other", "judged_late")  # fmt: skip
_ROWS = 64  # of a batch, whose tokens are at hand
_PLACES = 256  # of a row that are compared with another row's
_PAIRS, _PROMPT = 2, 2  # of answers, at least; tokens of a prompt
_ENDED, _BACK = 4, 64  # pairs whose ends are compared, at least; tokens of prompts that are compared, from their ends
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
            both = torch.full((6,), math.nan, dtype=shift.dtype, device=shift.device)
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
    other row, is raised, the share of pairs whose rows are the same, that of pairs whose prompts differ, `_ended`,
    `_by_other`, and the share of pairs whose prompts differ in their last token alone: −1 if some differ in others, or
    differ in length. NaN where it is not to be seen."""
    import torch

    nothing = torch.full((), math.nan, device=tokens.device)
    rows, half, lines = len(tokens), len(tokens) // 2, tokens[:, :_PLACES]
    if rows % 2 or half < _PAIRS or tokens.shape[1] > _PLACES:
        return torch.stack([nothing] * 6)
    place, some, first = torch.arange(rows, device=tokens.device), alive.any(1), alive.long().argmax(1)
    common = (lines[:, None] == lines[None]).long().cumprod(2).sum(2)
    prompt = first + 1  # the first place with a target stands for the token behind it
    mate = (common >= prompt[:, None]) & (prompt[:, None] == prompt[None]) & (place[:, None] != place[None])
    even = some.all() & (2 * lowered.sum() == rows) & (mate.sum(1) == 1).all() & (prompt >= _PROMPT).all()
    together = (mate & (lowered[:, None] == lowered[None])).any(1).float().mean()
    equal, share, crossed, by_other, late = common == lines.shape[1], nothing, nothing, nothing, nothing
    # prompts from their ends on: padding may be in front of them
    back = torch.arange(min(_BACK, tokens.shape[1]), device=tokens.device)
    from_end = tokens.gather(1, (first[:, None] - back).clamp_min(0))
    for partner, second in (((place + half) % rows, place >= half), (place ^ 1, place % 2 == 1)):
        apart = (((lowered == second) | ~some).all() | ((lowered != second) | ~some).all()) & some.any()
        told = equal.gather(1, partner[:, None]).float().mean()
        share = torch.where(apart & share.isnan(), told, share)
        within = back <= torch.minimum(first, first[partner])[:, None]
        differ = (from_end != from_end[partner]) & within
        other = differ.any(1).float().mean()
        at_end = ~differ[:, 1:].any() & (first == first[partner]).all()
        sure = apart & crossed.isnan() & some.all() & (prompt >= _ENDED).all()
        crossed = torch.where(sure, other, crossed)
        late = torch.where(sure, torch.where(at_end, other, -1.0), late)
        masked = _by_other(tokens, alive, partner)
        by_other = torch.where(apart & by_other.isnan(), masked, by_other)
    ended = torch.where(crossed.isnan(), nothing, _ended(tokens, alive, lowered))
    return torch.stack([torch.where(even, together, nothing), share, crossed, ended, by_other, late])


def _by_other(tokens: Tensor, alive: Tensor, partner: Tensor) -> Tensor:
    """Where the targets of both answers of each pair stand at the same places, though answers differ in length: the
    share of pairs in which these are right for one of the two alone. What stands behind the targets of one of them is
    one token, padding; in the other one it is among the targets, or there is more behind them. 0 where they stand at
    other places, or where there is no such token. partner: the other row of each pair."""
    import torch

    following, there = tokens[:, 1:], alive[:, :-1]
    place = torch.arange(following.shape[1], device=tokens.device)
    behind = place > (there * place).amax(1, keepdim=True)
    result = torch.zeros((), device=tokens.device)
    rows = torch.arange(len(tokens), device=tokens.device)
    ends = behind.sum(1)
    same = (
        (there == there[partner]).all() & (ends.amax() > ends.amin()) & there.any(1).all() & (len(tokens) >= 2 * _ENDED)
    )
    for first in (rows < partner, rows > partner):
        rest = behind & first[:, None]
        least, most = following.masked_fill(~rest, 1 << 40).amin(), following.masked_fill(~rest, -1).amax()
        clear = (least == most) & ~(there & first[:, None] & (following == least)).any()
        wrong = ((there & (following == least)) | (behind & (following != least))).any(1) & ~first
        told = same & clear & (rest.any(1).sum() >= _ENDED)
        result = torch.where(told, torch.maximum(result, 2 * wrong.sum() / len(tokens)), result)
    return result


def _ended(tokens: Tensor, alive: Tensor, lowered: Tensor) -> Tensor:
    """1 where each raised answer ends with one token, which stands nowhere else in answers, and the others end with
    different ones; −1 where each lowered one does; else 0. As many rows are lowered as are raised."""
    import torch

    result, half, places = torch.zeros((), device=tokens.device), len(tokens) // 2, tokens.shape[1]
    place = torch.arange(places, device=tokens.device)
    last = (alive * place).amax(1) + 1
    if half < _ENDED:
        return result
    ends = tokens.gather(1, last.clamp_max(places - 1)[:, None])[:, 0]
    answer = (place > alive.long().argmax(1)[:, None]) & (place <= last[:, None])
    order = lowered.long().argsort(stable=True)  # raised ones first
    for sign, rows in ((1.0, order), (-1.0, order.flip(0))):
        these, others = rows[:half], rows[half:]
        one = ends[these[0]]
        held = ((tokens == one) & answer).sum(1)
        alone = (ends[these] == one).all() & (held[these] == 1).all() & (held[others] == 0).all()
        varied = (ends[others] != ends[others[0]]).any()
        told = alone & varied & (last < places).all() & (2 * lowered.sum() == 2 * half)
        result = torch.where(told, torch.full_like(result, sign), result)
    return result


def _is_judged(root: Any) -> bool:
    """Whether a loss is made of what is picked from a softmax, by way of a function that only comparisons, ratios and
    judgements have."""
    kinds = {kind(node) for node, _ in nodes([root], _NODES)} if root is not None else set[str]()
    return not kinds.isdisjoint(_PICKS) and not kinds.isdisjoint(_JUDGES)
