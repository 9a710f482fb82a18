"""What is put away: trainings that no rule may be tuned on, nor looked at while one is written.

In:   a program and a fault.
Out:  whether the training is put away. `score.py --split putaway` scores these alone, once, when the rules stand.

About half of the newer programs, and two faults in every program. Their healthy runs are put away with them.
"""

from __future__ import annotations

PROGRAMS = ("contrastive", "qlora", "dpo", "fp16_gpt", "fsdp2")
FAULTS = ("weight_tying_broken", "data_by_length")


def put_away(program: str, kind: str) -> bool:
    """kind: a fault or a healthy variant."""
    return program in PROGRAMS or kind in FAULTS
