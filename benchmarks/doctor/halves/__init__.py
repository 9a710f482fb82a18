"""Halves of the fault bench that somebody who had read no rule wrote, and that are put away until they are scored once.

In:   a module for each, whose programs, faults and healthy variants are tables of words.
Out:  `HALVES`, oldest first; `PUT_AWAY`, the newest one where it was not opened yet; what they have together.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from halves import (
    eighteenth,
    eighth,
    eleventh,
    fifteenth,
    fifth,
    fourteenth,
    fourth,
    nineteenth,
    ninth,
    second,
    seventeenth,
    seventh,
    sixteenth,
    sixth,
    tenth,
    third,
    thirteenth,
    thirtieth,
    thirtyfifth,
    thirtyfirst,
    thirtyfourth,
    thirtysecond,
    thirtysixth,
    thirtythird,
    twelfth,
    twentieth,
    twentyeighth,
    twentyfifth,
    twentyfirst,
    twentyfourth,
    twentyninth,
    twentysecond,
    twentyseventh,
    twentysixth,
    twentythird,
)

HALVES: tuple[ModuleType, ...] = (
    second, third, fourth, fifth, sixth, seventh, eighth, ninth, tenth, eleventh, twelfth, thirteenth, fourteenth,
    fifteenth, sixteenth, seventeenth, eighteenth, nineteenth, twentieth, twentyfirst, twentysecond, twentythird,
    twentyfourth, twentyfifth, twentysixth, twentyseventh, twentyeighth, twentyninth, thirtieth, thirtyfirst,
    thirtysecond, thirtythird, thirtyfourth, thirtyfifth, thirtysixth,
)  # fmt: skip
PUT_AWAY: ModuleType | None = None

PROGRAMS: tuple[str, ...] = tuple(program for half in HALVES for program in half.PROGRAMS)
STEPS: dict[str, int] = {program: steps for half in HALVES for program, steps in half.STEPS.items()}
ALSO_RIGHT: dict[Any, Any] = {fault: kinds for half in HALVES for fault, kinds in half.ALSO_RIGHT.items()}


def half_of(program: str) -> ModuleType | None:
    """The half that a program is of; None of an older program."""
    return next((half for half in HALVES if program in half.PROGRAMS), None)
