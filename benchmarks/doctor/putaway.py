"""What is put away: trainings that no rule may be tuned on, nor looked at while one is written.

In:   a program and a fault.
Out:  which part of the bench the training is in: "putaway", "opened", or "" for the others.

Put away are programs, whole, with their healthy runs. Who writes rules reads neither their tables, nor the programs,
nor their rows in the README. `score.py --split putaway` scores them alone, once, when the rules stand.

Opened is what was put away before, twenty-eight times: five of the programs over `programs/loop.py` and two faults in
every program; then the programs of `opened.py`, `third.py`, `fourth.py`, `fifth.py`, `sixth.py`, `seventh.py`,
`eighth.py`, `ninth.py`, `tenth.py`, `eleventh.py`, `twelfth.py`, `thirteenth.py`, `fourteenth.py`, `fifteenth.py`,
`sixteenth.py`, `seventeenth.py`, `eighteenth.py`, `nineteenth.py`, `twentieth.py`, `twentyfirst.py`,
`twentysecond.py`, `twentythird.py`, `twentyfourth.py`, `twentyfifth.py`, `twentysixth.py`,
`twentyseventh.py` and `twentyeighth.py`.
It is looked at since November 2026, and is there to tune on: `score.py --split opened`.
"""

from __future__ import annotations

import eighteenth
import eighth
import eleventh
import fifteenth
import fifth
import fourteenth
import fourth
import nineteenth
import ninth
import opened
import seventeenth
import seventh
import sixteenth
import sixth
import tenth
import third
import thirteenth
import twelfth
import twentieth
import twentyeighth
import twentyfifth
import twentyfirst
import twentyfourth
import twentyninth
import twentysecond
import twentyseventh
import twentysixth
import twentythird

PROGRAMS: tuple[str, ...] = twentyninth.PROGRAMS
OPENED_PROGRAMS = ("contrastive", "qlora", "dpo", "fp16_gpt", "fsdp2", *opened.PROGRAMS, *third.PROGRAMS,
                   *fourth.PROGRAMS, *fifth.PROGRAMS, *sixth.PROGRAMS, *seventh.PROGRAMS, *eighth.PROGRAMS,
                   *ninth.PROGRAMS, *tenth.PROGRAMS, *eleventh.PROGRAMS, *twelfth.PROGRAMS,
                   *thirteenth.PROGRAMS, *fourteenth.PROGRAMS, *fifteenth.PROGRAMS,
                   *sixteenth.PROGRAMS, *seventeenth.PROGRAMS, *eighteenth.PROGRAMS,
                   *nineteenth.PROGRAMS, *twentieth.PROGRAMS, *twentyfirst.PROGRAMS,
                   *twentysecond.PROGRAMS, *twentythird.PROGRAMS, *twentyfourth.PROGRAMS,
                   *twentyfifth.PROGRAMS, *twentysixth.PROGRAMS,
                   *twentyseventh.PROGRAMS, *twentyeighth.PROGRAMS)  # fmt: skip
OPENED_FAULTS = ("weight_tying_broken", "data_by_length")


def part_of(program: str, kind: str) -> str:
    """kind: a fault or a healthy variant."""
    if program in PROGRAMS:
        return "putaway"
    return "opened" if program in OPENED_PROGRAMS or kind in OPENED_FAULTS else ""


def put_away(program: str, kind: str) -> bool:
    """kind: a fault or a healthy variant."""
    return part_of(program, kind) == "putaway"
