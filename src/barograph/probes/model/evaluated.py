"""What is as in training in a pass of an evaluation: dropout, noise on embeddings, or batch norm by the statistics of
the batch.

In:   two passes without gradients of a model that is in evaluation mode.
Out:  a figure for the `model` record.

Whatever the mode of the model says, a function of its `forward` may drop numbers all the same: `dropout(x)` without
`training=self.training`, the `dropout_p` of an attention, a part that was put back into training mode, a mask that is
drawn by hand. Noise that is added to embeddings is of the training, too. The functions of such a pass are seen as they
are called, and whether tokens are compared with a number, as to make a mask of padding; and whether attention has any
mask; no tensor is read. Where dropout modules alone are in training mode, and what they belong to is not, they were put
there one by one: predictions are drawn with dropout on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barograph.probes.model.compiled import CompiledWithin
from barograph.probes.model.drops import HandDrops
from barograph.probes.model.guest import Shown, after, before
from barograph.probes.model.noises import TableNoise

_PASSES = 2
_DROPS = frozenset({"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"})
_COMPARES = frozenset({"eq", "ne", "gt", "ge", "lt", "le", "__eq__", "__ne__", "__gt__", "__ge__", "__lt__", "__le__"})
_MODULES = frozenset({"Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"})


class EvaluatedLook:
    """Looks at the first passes of evaluations, and takes its hooks away."""

    def __init__(self, model: Any):
        self._passes = 0
        self._mode: Shown | None = None
        self._within = CompiledWithin()
        self._drawn = False  # with dropout, on purpose
        self._drops, self._noise = HandDrops(), TableNoise()
        self.found: float | None = None  # dropout; not yet recorded
        self.noise = False  # noise on embeddings
        self.of_batch = False  # a batch norm with the statistics of the batch
        self.later: float | None = None  # whether all attention sees later places; None where a mask may hide them
        self.compares = False  # whole numbers [rows, places], as tokens with padding to make a mask
        self._handles = [
            before(model, self._began),
            after(model, self._ended, always_call=True),
        ]

    def _began(self, module: Any, given: Any) -> None:
        import torch

        if module.training or torch.is_grad_enabled() or self._mode is not None:
            return
        if self._within.found:
            self.close()
            return
        self._within.began()
        if self._within.may_be(module):
            return  # parts that are compiled would be so again beneath a mode
        self._passes += 1
        self._drawn, self._drops, self._noise = _draws(module), HandDrops(), TableNoise()
        self.found = self.found or 0.0
        self._mode = Shown(ended=self._saw)

    def _ended(self, module: Any, given: Any, output: Any) -> None:
        self._within.ended()
        if self._mode is None or not self._mode.end():  # copies of the model may run beside it
            return
        self._mode = None
        self._drops, self._noise = HandDrops(), TableNoise()
        if self._passes >= _PASSES:
            self.close()

    def _saw(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any], result: Any) -> None:
        name = getattr(function, "__name__", "")
        self.compares |= name in _COMPARES and _are_whole(arguments)
        if name in ("scaled_dot_product_attention", "multi_head_attention_forward"):
            self.later = _all_later(self.later, name, arguments, named)
        self.noise = self._noise.saw(name, arguments, named, result) or self.noise
        if name == "batch_norm":
            kept = _given(arguments, named, 1, "running_mean", None)
            self.of_batch |= kept is not None and bool(_given(arguments, named, 5, "training", False))
        on = drops_numbers(name, arguments, named, result, self._drops)
        if self._drawn and name != "scaled_dot_product_attention":
            on = False
        if on:
            self.found = 1.0

    def close(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._mode is not None and self._mode.end():
            self._mode = None


def told_by(looks: Iterable[EvaluatedLook | None]) -> dict[str, float]:
    """What these have seen in all."""
    seen = [one for one in looks if one is not None and one.found is not None]
    if not seen:
        return {}
    later = [one.later for one in seen if one.later is not None]
    shown = {"later_in_evaluation": min(later)} if later and min(later) >= 0 else {}
    return shown | {
        "dropout_in_evaluation": max(one.found or 0.0 for one in seen),
        "noise_in_evaluation": float(any(one.noise for one in seen)),
        "batch_statistics_in_evaluation": float(any(one.of_batch for one in seen)),
        "tokens_compared_in_evaluation": float(any(one.compares for one in seen)),
    }


def drops_numbers(name: str, arguments: Sequence[Any], named: Mapping[str, Any], result: Any, drops: HandDrops) -> bool:
    """Whether a function that was called has dropped numbers. drops: what follows masks through the pass."""
    if name in _DROPS:
        share, training = _given(arguments, named, 1, "p", 0.5), _given(arguments, named, 2, "training", True)
        return bool(training) and 0 < share < 1
    if name == "scaled_dot_product_attention":
        return bool(_given(arguments, named, 4, "dropout_p", 0.0) > 0)
    return drops.saw(name, arguments, named, result)


def _all_later(before: float | None, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> float | None:
    """Whether later places are seen, in this call of attention and those before: 1 in all, 0 in none of one; −1 where a
    mask is given, which nobody reads. Queries of other places than the keys say nothing."""
    if name == "scaled_dot_product_attention":
        places = [one.shape[-2] for one in arguments[:2]]
        mask, causal = _given(arguments, named, 3, "attn_mask", None), _given(arguments, named, 5, "is_causal", False)
    else:
        places = [one.shape[0] for one in arguments[:2]]
        mask, causal = named.get("attn_mask"), False
    if len(places) < 2 or places[0] != places[1] or places[0] < 2:
        return before
    seen = 0.0 if causal else 1.0 if mask is None else -1.0
    return seen if before is None else min(before, seen)


def _are_whole(arguments: Sequence[Any]) -> bool:
    return any(
        getattr(one, "dim", lambda: 0)() == 2 and not one.is_floating_point() and str(one.dtype) != "torch.bool"
        for one in arguments[:2]
    )


def _draws(model: Any) -> bool:
    """Whether dropout modules are in training mode, within modules that are in evaluation mode."""
    return any(
        child.training and type(child).__name__ in _MODULES
        for module in model.modules() if not module.training for child in module.children()
    )  # fmt: skip


def _given(arguments: Sequence[Any], named: Mapping[str, Any], place: int, name: str, usual: Any) -> Any:
    return named.get(name, arguments[place] if len(arguments) > place else usual)
