"""What a finding advises, against what the run has already.

In:   a finding, and the run up to now.
Out:  the finding without a cause or a remedy that the run's own settings contradict.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from barograph.core.configuration import CLIP
from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import numeric_setting
from barograph.doctor.kernel.curve import before
from barograph.doctor.kernel.finding import Finding

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory

_LOWER = expression(r"(?i)\b(?:lower|halve|reduce|decay|cut) the (?:learning )?rate|\btry a learning rate of\b")
_RAISE = expression(r"(?i)\braise the (?:learning )?rate\b")
_CLIP = expression(r"(?i)^clip\b")
_CLIP_AT = expression(r"(?i)\bnorm (?:at|of) (\d+(?:\.\d+)?(?:e[-+]?\d+)?)")
_TOO_HIGH = "learning rate too high"
_RATIO = expression(
    r"(?i)(?:.*[._])?(?:(?:ppo|policy|ratio)_?clip\w*|clip_?(?:ratio|range|eps|epsilon|coef|param)\w*|eps\w*_clip)"
)
_BOUND = 0.3  # of a policy's ratios; gradients are clipped at larger norms


def clip_limit(history: RunHistory) -> float:
    """The norm at which the configuration says gradients are clipped; NaN if it does not say.

    A bare `clip` is the bound of a policy's ratios where the share of the clipped ones is logged, or where it is as
    small as such bounds are, unless these have an option of their own.
    """
    names: tuple[str, ...] = CLIP
    if history.role("reward") is not None or history.role("kl") is not None:
        small = numeric_setting(history, "clip") <= _BOUND
        ratios = history.role("clip_ratio") is not None or small
        if ratios and not any(map(_RATIO.fullmatch, history.options.found)):
            names = tuple(name for name in CLIP if name != "clip")
    return numeric_setting(history, *names)


def fitting(finding: Finding, history: RunHistory) -> Finding:
    """The finding without advice that contradicts the run.

    A learning rate of 0 is not lowered, and is not too high. Who clips at a norm already does not hear of clipping, or
    of a norm above it. Of raising and lowering the rate the one that comes first stays. Nothing is left out where
    nothing else would be left.
    """
    limit = clip_limit(history)
    too_high = any(cause.startswith(_TOO_HIGH) for cause in finding.causes)
    stands = (too_high or any(map(_LOWER.search, finding.remedies))) and _stands_still(finding, history)
    causes = [cause for cause in finding.causes if not (stands and cause.startswith(_TOO_HIGH))]
    remedies: list[str] = []
    direction = ""
    for remedy in finding.remedies:
        lowers, raises = _LOWER.search(remedy), _RAISE.search(remedy)
        wanted = "lower" if lowers else "raise" if raises else ""
        if (lowers and stands) or (wanted and direction and wanted != direction):
            continue
        if _CLIP.search(remedy) and limit > 0:
            norm = _CLIP_AT.search(remedy)
            if not float(norm[1] if norm else math.inf) < limit:
                continue
        direction = direction or wanted
        remedies.append(remedy)
    if len(causes) == len(finding.causes) and len(remedies) == len(finding.remedies):
        return finding
    return msgspec.structs.replace(finding, causes=causes or finding.causes, remedies=remedies or finding.remedies)


def _stands_still(finding: Finding, history: RunHistory) -> bool:
    """Whether the learning rate is 0 where the finding begins and where it ends."""
    lr = history.role("lr")
    return all(before(lr, step + 1, finding.segment) == 0 for step in (finding.step, finding.last_step))
