"""The rules of a run that is being written, ready for its first row.

In:   its configuration, which rules and thresholds, what else is known of it.
Out:  an examiner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.facts import facts_of
from barograph.doctor.kernel.registry import make_rules
from barograph.doctor.outlook import outlook_of


def live_examiner(
    config: Mapping[str, Any], thresholds: Mapping[str, float], silence: Sequence[str], **known: Any
) -> Examiner:
    """An examiner that has seen nothing yet. silence: rules that say nothing; known: facts beside the configuration."""
    facts = facts_of(config, source="barograph", outlook=outlook_of, **known)
    return Examiner(make_rules(thresholds, silence), facts)
