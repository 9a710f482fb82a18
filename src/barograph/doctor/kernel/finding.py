"""A finding: one thing that is wrong, since when, why, and what to do.

In:   what a rule saw.
Out:  a record's fields, and the same for programs that read `barograph doctor --json`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from barograph.query.findings import SEVERITIES

__all__ = ["FAMILIES", "KINDS", "SEVERITIES", "Finding"]

FAMILIES = ("loss", "gradient", "optimizer", "model", "moe", "data", "eval", "rl", "speed", "memory", "machine",
            "ranks", "run")  # fmt: skip

KINDS = frozenset({
    "nonfinite", "spike", "divergence", "plateau", "not_learning", "zero", "jump_down", "exploding", "vanishing",
    "clipping", "loss_scale", "frozen", "update_ratio", "epsilon", "learning_rate", "missing_zero_grad", "desync",
    "weight_growth", "attention", "logits", "activations", "dead", "saturated", "routing", "dead_expert", "overfit",
    "eval", "data", "repeated_data", "padding", "replay", "resume", "rl", "slowdown", "stall", "input_bound",
    "straggler", "memory", "hardware", "efficiency", "logging", "config", "forecast",
    "crash",
})  # fmt: skip
"""The kind of problem; several rules may find the same kind."""


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + ("" if words[-1:] in ".!?)" else ".")


class Finding(msgspec.Struct, kw_only=True):
    """One thing that is wrong.

    step: where it began. last_step: up to where it was seen. found: the step of the row with which it could first
    be known. evidence: numbers, short lists, short texts. causes: most likely first. confidence: 0 to 1.
    key: what tells two findings of one rule apart, such as a layer or a rank. A finding with the rule, key and step
    of an earlier one takes its place.
    """

    rule: str
    family: str
    kind: str
    severity: str
    step: int
    message: str
    last_step: int = 0
    found: int = 0
    evidence: dict[str, Any] = {}
    causes: list[str] = []
    remedies: list[str] = []
    confidence: float = 0.5
    key: str = ""
    segment: int = 0

    def __post_init__(self) -> None:
        self.last_step = max(self.last_step, self.step)
        self.found = max(self.found, self.step)
        self.remedies = [_sentence(remedy) for remedy in self.remedies]

    @property
    def identity(self) -> tuple[str, str, int, int]:
        """What an update of it has too."""
        return self.rule, self.key, self.segment, self.step
