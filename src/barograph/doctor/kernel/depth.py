"""Gradients that vanish with depth: how they are recognised, and what is said of them.

In:   the watch's ratio of the first block's gradient norm to the last block's.
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
_LOOKS = 8


def vanishes(history: RunHistory, step: int, time: int, segment: int, ratio: float = RATIO) -> bool:
    """Whether the first block's gradient is less than this part of the last block's, in the median of eight looks."""
    return usual(history.channel("model/flow_first_last"), step, time, segment, _LOOKS) < ratio
