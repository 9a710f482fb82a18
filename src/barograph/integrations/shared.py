"""What the adapters share: the run that is open in this process, or one that an adapter begins.

In:   options of `init`.
Out:  a run; where its console belongs to the framework, one that draws nothing there.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from typing import Any

from barograph.core.options import PREFIX
from barograph.training import start
from barograph.training.ending import open_runs
from barograph.training.run import Run
from barograph.training.steps import Step


def open_run() -> Run | None:
    """The run that was begun last of those that are open in this process."""
    here = [run for run in open_runs if run._ending.is_here]
    return max(here, key=lambda run: run._ending.began, default=None)


def begin(config: Any = None, **options: Any) -> Run:
    """A new run. An option of the environment goes before what the framework says."""
    given = {name: value for name, value in options.items() if value not in (None, "", (), [])}
    chosen = {name: value for name, value in given.items() if not os.environ.get(PREFIX + name.upper())}
    return start.init(config=config, **quiet(chosen))


def quiet(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Options with which a run draws nothing on a console that belongs to the framework."""
    return dict(chosen) if os.environ.get(f"{PREFIX}CONSOLE") else {"console": "none", **chosen}


_recording: weakref.WeakKeyDictionary[Run, dict[type, weakref.ref[Any]]] = weakref.WeakKeyDictionary()


def records(adapter: Any, run: Run) -> bool:
    """Whether it is this adapter that records into the run: of several of one class, the first one until it ends."""
    held = _recording.setdefault(run, {})
    first = held.get(type(adapter), lambda: None)()
    if first is None:
        held[type(adapter)] = weakref.ref(adapter)
    elif first is not adapter:
        name = type(adapter).__name__
        run._out.warn(f"two of {name} record into the run {run.id} at once: only the first one does", key=f"two {name}")
        return False
    return True


def ends(adapter: Any, run: Run) -> None:
    """The adapter's training is over: another one may record into the run."""
    held = _recording.get(run, {})
    if held.get(type(adapter), lambda: None)() is adapter:
        del held[type(adapter)]


class SentToWorkers:
    """What a framework may pickle: a copy in another process records into the same run, and does not end it."""

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if not isinstance(value, Step)}
        return state | ({"_own": False} if "_own" in state else {})
