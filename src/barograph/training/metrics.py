"""The careful way of `run.log`: whatever is not plainly a dictionary of known names to finite numbers.

In:   a mapping of anything to anything.
Out:  a `metrics` record, a wide row, or a sentence about what can't be recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph.core.record import Record
from barograph.core.values import flatten, on_device, whole
from barograph.training.console.rows import plan
from barograph.training.recorder import Recorder
from barograph.training.shapes import step_name


def log_any(out: Recorder, values: Any, step: Any) -> None:
    """Record the values; the next call with these names may take the short way. May raise: `run.log` guards."""
    if not isinstance(values, Mapping):
        out.odd(f"run.log takes a mapping of names to numbers, not a {type(values).__name__}")
        return
    if out.finished:
        out.refuse()
        return
    if step is None:
        values, step = _step_in(values)
    if on_device(values):
        out.defer("metrics", out.at(step), values)
        return
    flat = flatten(values, out.odd)
    if not flat:
        return
    shape = out.shapes.remember(values)
    shape.drawn = shape.simple and out.console.draws_rows and bool(plan(shape.names))
    if len(flat) > out.settings.wide_threshold:
        named = {name: value for name, value in flat.items() if isinstance(value, (int, float))}
        if len(named) < len(flat):
            out.odd("a wide record holds only numbers; its other values were left out")
        out.wide.row(named, step)
        draw_row(out, named, step)
        return
    number = out.at(step)
    out.emit("metrics", number, flat, checked=True)
    shape.last = (number, flat)


def draw_row(out: Recorder, values: Mapping[str, Any], step: int | None) -> None:
    """Show a row that was written by the short way, or to the block file, where the console has a line for it."""
    out.console.draw(Record("metrics", 0, out.current_step if type(step) is not int else step, dict(values)))


def _step_in(values: Mapping[Any, Any]) -> tuple[Mapping[Any, Any], int | None]:
    """The values, and the step that they name themselves; one called just `step` is nothing else."""
    name = step_name(values)
    number = None if name is None else whole(values[name])
    if number is None:
        return values, None
    return ({key: value for key, value in values.items() if key != "step"} if name == "step" else values), number
