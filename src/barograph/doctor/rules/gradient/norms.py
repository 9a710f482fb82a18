"""Which series is the norm of the gradient, and what its level says of.

In:   a run.
Out:  `norm_of`, `is_policy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory


def norm_of(history: RunHistory) -> Channel | None:
    """The norm that is logged, else the watch's."""
    return history.role("norm") or history.channel("model/grad_norm")


def is_policy(history: RunHistory) -> bool:
    """Whether a policy is trained, whose loss says little."""
    return history.role("reward") is not None or history.role("kl") is not None
