"""DeepSpeed: `add_monitor(engine)` after `deepspeed.initialize`.

In:   the events that an engine writes to its monitor: names, values, counts of samples.
Out:  series of the run at the engine's steps, and the count of samples as a series of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barograph.core.values import number, text
from barograph.integrations.shared import begin, open_run
from barograph.training.run import Run


class DeepSpeedMonitor:
    """Takes the place of an engine's monitor and passes on to it what it gets."""

    enabled = True

    def __init__(self, engine: Any, run: Run | None = None, **options: Any):
        found = run or open_run()
        self.own = found is None
        self.run: Run = found or begin(**options)
        self._engine, self._before = engine, getattr(engine, "monitor", None)

    def write_events(self, event_list: Iterable[tuple[Any, ...]]) -> None:
        """Events are (name, value, samples so far)."""
        events = list(event_list)
        if self._before is not None and getattr(self._before, "enabled", False):
            self._before.write_events(events)
        values = {text(event[0]): event[1] for event in events}
        counts = [number(event[2]) for event in events if len(event) > 2]
        if counts:
            values["samples"] = max(counts)
        if values:
            self.run.log(values, self._engine.global_steps)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._before, name)


def add_monitor(engine: Any, run: Run | None = None, **options: Any) -> Run:
    """Record what the engine writes to its monitor, on the rank that calls it; its other monitors go on.

    Options are those of `barograph.init`. Returns the run, which `run.finish()` ends.
    """
    if getattr(engine.monitor, "run", None) is not None and isinstance(engine.monitor, DeepSpeedMonitor):
        return engine.monitor.run
    engine.monitor = DeepSpeedMonitor(engine, run, **options)
    found: Run = engine.monitor.run
    return found
