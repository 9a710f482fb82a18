"""Axes that count: tokens and samples so far, as a run logged them.

In:   a function that reads series by their full names, without what is not finite or superseded.
Out:  steps and the count at each; the count at other steps, on the line between those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from barograph.core.columns import strides

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEEN = {
    "tokens": ("data/tokens_seen", "train/tokens_seen"),
    "samples": ("data/samples_seen", "train/samples_seen", "samples_seen", "consumed_samples"),
}
_EACH = "train/step_tokens"

Pairs = tuple["NDArray[Any]", "NDArray[Any]"]


def names_of(x: str) -> list[str]:
    """The series that a count is looked for in, the best first."""
    return [*SEEN[x], *([_EACH] if x == "tokens" else [])]


def counted(x: str, found: Iterable[tuple[str, Pairs]]) -> Pairs | None:
    """Steps and the count at each, of the first of `names_of` that has a finite value; None if none has."""
    import numpy

    for name, (steps, values) in found:
        good = numpy.isfinite(values)
        steps, values = steps[good], values[good]
        if len(steps):
            if name == _EACH:  # a row that is logged each ten steps stands for ten
                return steps, numpy.cumsum(values * strides(steps))
            return steps, numpy.maximum.accumulate(values)
    return None


def at(steps: NDArray[Any], known: Pairs) -> NDArray[Any]:
    """The count at steps: on the line between what is known, and beyond it the first and the last."""
    import numpy

    return numpy.interp(steps, *known) if len(known[0]) else numpy.full(len(steps), numpy.nan)


def of_run(x: str, series: Callable[[str], Any], names: Iterable[str]) -> Pairs | None:
    """The same for a stored run's `series` and `names`."""
    held = set(names)
    made = ((name, series(name)) for name in names_of(x) if name in held)
    return counted(x, ((name, (item.step, item.value)) for name, item in made))
