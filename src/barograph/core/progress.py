"""A progress bar for work that takes a while: import, sync, compaction.

In:   a label, how much there is to do, and how much of it is done.
Out:  a moving bar on a terminal; elsewhere one line at the start and one at the end. Both on standard
error, so that what a command prints can go into a pipe.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO

from barograph.core.terminal import wants_colour
from barograph.core.text import escape


class Work:
    """What `progress` hands out: tell it what is done."""

    def __init__(self, total: float | None):
        self.done = 0.0
        self.total = total
        self._bar: Any = None
        self._task: Any = None

    def advance(self, amount: float = 1.0) -> None:
        """So much more is done."""
        self.done += amount
        if self._bar is not None:
            with contextlib.suppress(OSError, ValueError):
                self._bar.update(self._task, completed=self.done, total=self.total)


@contextlib.contextmanager
def progress(label: str, total: float | None = None, stream: TextIO | None = None) -> Iterator[Work]:
    """Show the progress of a block of work. `total`: how much there is, in any unit; None is not known.

    Gives a `Work`. The bar vanishes at the end and one line stays. A stream that cannot be written to
    disturbs nothing.
    """
    target = stream if stream is not None else sys.stderr
    work, name, began = Work(total), escape(label, 200), time.monotonic()
    bar = _bar(work, name, target)
    if bar is None:
        _say(target, f"{name} ...")
    try:
        yield work
    except BaseException:
        _stop(bar)
        _say(target, f"{name}: stopped after {time.monotonic() - began:.1f} s")
        raise
    _stop(bar)
    counted = f"{work.done:,.0f} " if work.done else ""
    _say(target, f"{name}: {counted}done in {time.monotonic() - began:.1f} s")


def _bar(work: Work, name: str, target: Any) -> Any:
    """A bar of rich's on a terminal that can show one, else None."""
    try:
        if target is None or not target.isatty() or os.environ.get("TERM") == "dumb":
            return None
    except (AttributeError, OSError, ValueError):
        return None
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(file=target, no_color=not wants_colour()),
        transient=True,
    )
    work._bar, work._task = bar, bar.add_task(name, total=work.total)
    with contextlib.suppress(OSError, ValueError):
        bar.start()
    return bar


def _stop(bar: Any) -> None:
    if bar is not None:
        with contextlib.suppress(OSError, ValueError):
            bar.stop()


def _say(target: Any, sentence: str) -> None:
    if target is not None:
        with contextlib.suppress(OSError, ValueError):
            target.write(sentence + "\n")
            target.flush()
