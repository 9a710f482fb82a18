"""Short ways from a run to what is in its parts, and to what a reader of its folder answers.

In:   a name, such as `alert`.
Out:  what it stands for (`run.alerts.send`), with its type.

They answer on a run, also to type checkers, but are not on `dir(run)`: a person who looks for a call finds the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barograph.core import providers

if TYPE_CHECKING:
    from barograph.training.run import Run

T = TypeVar("T")


class Short(Generic[T]):
    """One name. `find` gives what it stands for on a run."""

    def __init__(self, find: Callable[[Run], T]):
        self.find = find

    def __get__(self, run: Any, owner: Any = None) -> T:
        return self.find(run)


def _read(name: str) -> Short[Any]:
    """What a run is asked as a stored one is: a reader of its folder answers."""
    return Short(lambda run: getattr(providers.provider("stored run")(run.dir), name))


class ShortNames:
    """The names. For a type checker a run inherits them."""

    alert = Short(lambda run: run.alerts.send)
    alert_if = Short(lambda run: run.alerts.add)
    stop_early = Short(lambda run: run.alerts.stop_early)
    request_stop = Short(lambda run: run.alerts.request_stop)
    stop_reason = Short(lambda run: run.alerts.stop_reason)
    checkpoint_requested = Short(lambda run: run.alerts.checkpoint_requested)
    save_checkpoint = Short(lambda run: run.checkpoints.save)
    restore = Short(lambda run: run.checkpoints.restore)
    log_wide = Short(lambda run: run.model.wide)
    log_layers = Short(lambda run: run.model.layers)
    log_histogram = Short(lambda run: run.model.histogram)
    log_expert_loads = Short(lambda run: run.model.expert_loads)
    log_memory = Short(lambda run: run.model.memory)
    measure_activations = Short(lambda run: run.model.measure_activations)
    guard = Short(lambda run: run.model.guard)
    speed_of_light = Short(lambda run: run.model.speed_of_light)
    skip_advice = Short(lambda run: run.model.skip_advice)
    debug_after_findings = Short(lambda run: run.model.debug_after_findings)
    log_sample = Short(lambda run: run.data.sample)
    log_image = Short(lambda run: run.data.image)
    log_audio = Short(lambda run: run.data.audio)
    log_table = Short(lambda run: run.data.table)
    wrap = Short(lambda run: run.data.wrap)
    watch_data = Short(lambda run: run.data.watch)
    reduce = Short(lambda run: run.ranks.reduce)
    watch_ranks = Short(lambda run: run.ranks.watch)
    profile_communication = Short(lambda run: run.ranks.profile_communication)
    name = Short(lambda run: run.about.name)
    project = Short(lambda run: run.about.project)
    rank = Short(lambda run: run.about.rank)
    world_size = Short(lambda run: run.about.world_size)
    status = Short(lambda run: run.about.status)
    log_file = Short(lambda run: run.about.log_file)
    close = Short(lambda run: run.finish)

    all_columns = _read("all_columns")
    columns = _read("columns")
    cost = _read("cost")
    goodput = _read("goodput")
    histogram_names = _read("histogram_names")
    histograms = _read("histograms")
    log_files = _read("log_files")
    manifest = _read("manifest")
    media = _read("media")
    names = _read("names")
    notes = _read("notes")
    origin = _read("origin")
    problems = _read("problems")
    records = _read("records")
    segments = _read("segments")
    series = _read("series")
    tags = _read("tags")


SHORT: dict[str, Short[Any]] = {name: each for name, each in vars(ShortNames).items() if isinstance(each, Short)}
