"""Two runs that should be equal: the first step at which they are not.

In:   two runs.
Out:  for every series that both have, the first step whose values differ in a bit, and the first beyond a tolerance.

What is measured of the machine (times, speeds, power, memory) never is equal, and isn't looked at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from barograph.analysis.compare.member import ComparedMember
from barograph.core.text import number

TOLERANCE = 1e-5  # relative: float32 sums in another order differ by about 1e-7, and training makes that grow
_MEASURED = re.compile(
    r"(?:gpu|host|goodput|energy|memory|allocator|speed|span|straggler|ranks|system|perf|sol|process)(?:/.*)?"
    r"|.*(?:duration|elapsed|seconds|_ms|per_sec(?:ond)?|mfu|hfu|_time|throughput|eta|memory|reserved|allocated|_mib|_gb)"
    r"(?:[/_].*)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Equality:
    """One series. steps: compared. first_bit, first_beyond: steps, None if there is none; a, b: the values at the
    first different bit. missing: the first step that one has and the other has not, within what both have done.
    largest: the largest relative difference at any step.
    """

    series: str
    steps: int
    first_bit: int | None
    first_beyond: int | None
    a: float | None
    b: float | None
    largest: float
    missing: int | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare_values(
    a: ComparedMember, b: ComparedMember, names: Sequence[str] | None = None, tolerance: float = TOLERANCE
) -> list[Equality]:
    """Compare the series of two runs value by value; those that differ first come first.

    names: which series; by default all that both have and that are not measured of the machine.
    """
    both = [name for name in a.names if name in b.names]
    chosen = (
        [name for name in both if not _MEASURED.fullmatch(name)] if names is None else [n for n in names if n in both]
    )
    present = [one for name in chosen if (one := _compared(a, b, name, tolerance)) is not None]
    never = 2**63
    return sorted(present, key=lambda item: (never if item.first_bit is None else item.first_bit, item.series))


def _compared(a: ComparedMember, b: ComparedMember, name: str, tolerance: float) -> Equality | None:
    left, right = a.read(name), b.read(name)
    if not len(left) or not len(right):
        return None
    if len(left) == len(right) and bool((left.step == right.step).all()):
        step, one, other, missing = left.step, left.value, right.value, None
    else:
        step, mine, others = np.intersect1d(left.step, right.step, return_indices=True)
        one, other = left.value[mine], right.value[others]
        alone = np.setxor1d(left.step, right.step)
        alone = alone[alone <= min(left.step[-1], right.step[-1])]
        missing = int(alone[0]) if len(alone) else None
    if not len(step):
        return Equality(name, 0, None, None, None, None, 0.0, missing)
    one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
    # every NaN counts as the same NaN: its bits say where it was made, not that something differs
    bits = (one.view(np.int64) != other.view(np.int64)) & ~(np.isnan(one) & np.isnan(other))
    places = np.flatnonzero(bits)
    if not len(places):
        return Equality(name, len(step), None, None, None, None, 0.0, missing)
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.abs(one[places] - other[places])
        size = np.maximum(np.abs(one[places]), np.abs(other[places]))
        ratio = gaps / np.where(size > 0, size, 1.0)  # −0 and 0 differ in a bit and by nothing
    ratio = np.where(np.isfinite(ratio), ratio, np.inf)
    beyond = places[ratio > tolerance]
    first = int(places[0])
    return Equality(
        name,
        len(step),
        int(step[first]),
        int(step[beyond[0]]) if len(beyond) else None,
        float(one[first]),
        float(other[first]),
        float(ratio.max()),
        missing,
    )


def are_equal(equalities: Sequence[Equality], exact: bool) -> bool:
    """Whether something was compared, no step is missing, and nothing differs: in a bit, or beyond the tolerance."""
    differing = [
        equality for equality in equalities if (equality.first_bit if exact else equality.first_beyond) is not None
    ]
    return (
        any(equality.steps for equality in equalities)
        and not differing
        and all(equality.missing is None for equality in equalities)
    )


def sentences(equalities: Sequence[Equality], tolerance: float = TOLERANCE) -> list[str]:
    """What the comparison says, the first difference first."""
    chosen_equalities = [equality for equality in equalities if equality.steps]
    if not chosen_equalities:
        return ["The runs have no series and step in common, so they can't be checked for equality."]
    differing = [equality for equality in chosen_equalities if equality.first_bit is not None]
    steps = max(equality.steps for equality in chosen_equalities)
    lines = []
    if not differing:
        series = "1 series is" if len(chosen_equalities) == 1 else f"All {len(chosen_equalities):,} series are"
        lines.append(f"{series} bit-identical over {steps:,} steps.")
    else:
        first = differing[0]
        assert first.a is not None and first.b is not None
        lines.append(
            f"First difference at step {first.first_bit:,}: {first.series} is {first.a:.9g} and {first.b:.9g}."
        )
        beyond = [item for item in differing if item.first_beyond is not None]
        if beyond:
            worst = min(beyond, key=lambda item: (item.first_beyond, item.series))
            lines.append(f"Beyond {tolerance:g} of the value: from step {worst.first_beyond:,} on, in {worst.series}.")
        else:
            largest = max(item.largest for item in differing)
            lines.append(f"No difference above {tolerance:g} of the value; the largest is {number(largest, 2)}.")
    missing = [equality for equality in equalities if equality.missing is not None]
    if missing:
        first = min(missing, key=lambda item: (item.missing, item.series))
        lines.append(f"{first.series} has step {first.missing:,} in only one run.")
    return lines
