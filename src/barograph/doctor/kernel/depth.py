"""Gradients that vanish with depth: how they are recognised, and what is said of them.

In:   the watch's ratio of the first block's gradient norm to the last block's; where it found no blocks, a low and a
      high one of all layers.
Out:  whether they vanish at a step, with the cause and the remedies for whoever finds what follows from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barograph.doctor.kernel.cursor import usual

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory

CAUSE = "gradients vanish: each layer shrinks them on their way to the first"
REMEDIES = (
    "add residual connections, and normalisation before each block",
    "replace sigmoid and tanh by functions that don't saturate",
    "reduce the depth",
)
RATIO = 1e-3
"""Of the first block's gradient norm to the last block's: AutoTrainer's number."""
LAYERS = 1e-6
"""Of the gradient norm that few layers are below to the one that few are above. Both shrink with a weight's size and
with depth: by this much only with depth, for initialisations differ by some hundred times."""
_LOOKS = 8
_BEGAN = 1e-4  # the same, at the first look
_NEAR, _FADED = 0.3, 0.03  # the first block's to the last block's, at the first look; later


def vanishes(history: RunHistory, step: int, time: int, segment: int, ratio: float = RATIO) -> bool:
    """Whether the first block's gradient is less than this part of the last block's, in the median of eight looks; or
    half of all layers' next to nothing beside others', wherever the blocks are."""
    blocks = history.channel("model/flow_first_last")
    known = blocks is not None and blocks.end > 0
    if known and usual(blocks, step, time, segment, _LOOKS) < ratio:
        return True
    few = "p50" if known else "p5"
    low, high = (usual(history.channel(f"model/flow_{name}"), step, time, segment, _LOOKS) for name in (few, "p95"))
    return low < LAYERS * high and began_vanished(history, few)


def faded(history: RunHistory, step: int, time: int, segment: int) -> bool:
    """Whether the first block's gradient, near the last block's when the training began, is now a small part of it."""
    blocks = history.channel("model/flow_first_last")
    began = blocks is not None and blocks.end > 0 and blocks.first >= _NEAR
    return began and usual(blocks, step, time, segment, _LOOKS) < _FADED


def began_vanished(history: RunHistory, few: str = "p5") -> bool:
    """Whether the first look at the gradients saw some layers' next to nothing beside others: no step had changed a
    weight by then. few: the quantile of the layers."""
    low, high = (history.channel(f"model/flow_{name}") for name in (few, "p95"))
    known = low is not None and high is not None and low.end > 0 and high.end > 0
    return known and low.first < _BEGAN * high.first  # type: ignore[union-attr]
