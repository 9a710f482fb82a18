"""What is put away: trainings that no rule may be tuned on, nor looked at while one is written.

In:   a program and a fault.
Out:  which part of the bench the training is in: "putaway", "opened", or "" for the others.

Put away are programs, whole, with their healthy runs. Who writes rules reads neither their tables, nor the programs,
nor their rows in the README. `score.py --split putaway` scores them alone, once, when the rules stand.

Opened is what was put away before: five of the programs over `programs/loop.py` and two faults in every program, then
the other modules of `halves`. It is looked at since November 2026, and is there to tune on: `score.py --split opened`.
"""

from __future__ import annotations

import halves

PROGRAMS: tuple[str, ...] = halves.PUT_AWAY.PROGRAMS if halves.PUT_AWAY is not None else ()
OPENED_PROGRAMS = ("contrastive", "qlora", "dpo", "fp16_gpt", "fsdp2",
                   *(program for program in halves.PROGRAMS if program not in PROGRAMS))  # fmt: skip
OPENED_FAULTS = ("weight_tying_broken", "data_by_length")


def part_of(program: str, kind: str) -> str:
    """kind: a fault or a healthy variant."""
    if program in PROGRAMS:
        return "putaway"
    return "opened" if program in OPENED_PROGRAMS or kind in OPENED_FAULTS else ""


def put_away(program: str, kind: str) -> bool:
    """kind: a fault or a healthy variant."""
    return part_of(program, kind) == "putaway"
