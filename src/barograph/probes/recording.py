"""What a probe needs of the run it reports to. `Run` has it; a test may bring its own.

Probes never raise into the training loop and never hold it up: what they have to say they say by
`record`, and once by `warn` what they can't do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from barograph.core.options import Settings


class Recording(Protocol):
    """The run as probes see it."""

    dir: Path
    settings: Settings
    rank: int
    world_size: int
    at_finish: list[Callable[[], Any]]  # called once, in order, when the run ends; before its last record

    @property
    def current_step(self) -> int:
        """The step that was begun or logged last; 0 before the first."""

    def record(self, kind: str, step: int, fields: dict[str, Any], *, draw: bool = True) -> None:
        """Write a record of a kind in `record.KINDS`. From any thread; microseconds; never raises.

        Values are Python's own: float, int, bool, str, None, and lists and dictionaries of them. NaN and
        infinity are welcome. Numbers, also nested ones, become the series `{family}/{name}/…`. `draw`: show it
        where the console shows records of that kind.
        """

    def warn(self, sentence: str, key: str | None = None) -> None:
        """Tell the user once: the same key (or sentence) is not said again."""


def upcoming_step(run: Recording) -> int:
    """The step that the loop will log next, as far as the run knows."""
    following = getattr(run, "next_step", None)
    if following is not None:
        return int(following)
    return run.current_step + 1 if run.current_step else 0
