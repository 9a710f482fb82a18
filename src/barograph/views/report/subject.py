"""The run that a report is about, read once: series under their common names, records, findings.

In:   a stored run.
Out:  `Subject`.

Statistics of layers may be thousands of series. Each is read once, kept as the cells of a heat map and as the rows
that the doctor looks at: all of them, or of more than `MOST_LOOKS` every n-th and those that are not finite.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from barograph.analysis.compare.member import EVALUATIONS, ComparedMember, is_evaluation
from barograph.core import liveness
from barograph.core.configuration import PROCESSES, Configuration
from barograph.core.record import Record
from barograph.doctor.diagnosis import diagnose
from barograph.doctor.kernel.channels import is_wanted
from barograph.log.read import records_of
from barograph.query.energy import Energy, Prices
from barograph.query.ranks import chosen_rank
from barograph.query.stored import Series, StoredRun, at_one_moment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.query.causes import Totals

    Columns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int32]]
    Floats = NDArray[np.float64]

RATES = ("train/lr", "lr", "train/lrm", "train/lr_multiplier", "lr_multiplier")
NORMS = ("train/norm", "model/grad_norm_before", "model/grad_norm")
THROUGHPUTS = ("train/tokens_per_second", "speed/tokens_per_second", "train/samples_per_second")
STEP_TIMES = ("train/duration_ms", "speed/step_ms")
MFUS = ("train/mfu", "speed/mfu")
MOST_LOOKS = 400
CELLS = 120
_LOAD = re.compile(r"moe/(.+)/load/(\d+)")
# of these the least value of a cell is the one to see
LOWEST = re.compile(r"attention_entropy|entropy|stable_rank|p1|p5")
_KINDS = ("sample", "checkpoint", "dataset", "gpu-model", "sol", "end", "oom", "alert", "info")


class Subject:
    """A run with what a report asks of it. What a run does not have is None or empty; nothing raises for that."""

    def __init__(self, run: StoredRun, price: float | None = None, devices: int | None = None):
        self.price, self.devices = price, devices
        run = self.run = at_one_moment(run)
        self.about = run.manifest
        self.member = ComparedMember(run)
        self.status = self.member.status
        self.name = self.member.name
        self.names = self.member.names
        source = self.about.get("source")
        self.source: dict[str, Any] | None = source if isinstance(source, dict) else None
        self.segments = run.segments
        self._cells: dict[str, tuple[Floats, NDArray[np.bool_]]] = {}
        self._looks: dict[str, Columns] = {}
        self.every = 1  # of the looks at layers, the doctor was given one in this many

    # -- what it is ---------------------------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        return self.status in liveness.OPEN

    @cached_property
    def config(self) -> dict[str, Any]:
        return self.run.config

    @cached_property
    def records(self) -> dict[str, list[Record]]:
        """Records of the few kinds that a report tells one by one, rank 0's first."""
        result: dict[str, list[Record]] = {kind: [] for kind in _KINDS}
        for path in self.run.log_files():
            with contextlib.suppress(OSError):
                for record, _ in records_of(path, _KINDS):
                    result[record.kind].append(record)
        return result

    @cached_property
    def totals(self) -> Totals | None:
        """Where the wall time went; None for logs of other tools, runs without a clock, and runs whose steps are not in
        the log file (wide rows alone) and so are not in the account."""
        if self.source is not None or not self.run.log_files():
            return None
        found = self.run.goodput()
        main = self.main
        span = float(main.time[-1] - main.time[0]) if main is not None and len(main) > 1 else 0.0
        return found if found.wall > 0 and found.wall + found.paused >= 0.9 * span - 1 else None

    @cached_property
    def cost(self) -> dict[str, Any]:
        """Energy and money as far as known, over all segments."""
        if self.source is None and self.run.log_files():
            return self.run.cost(self.price, devices=self.devices)
        devices = self.devices or Configuration(self.config).amount(PROCESSES)
        seconds = self.training_seconds
        if not devices or not seconds:
            return {}
        return Energy().fields(Prices(per_gpu_hour=self.price), seconds * devices / 3600, int(devices))

    @property
    def training_seconds(self) -> float | None:
        """From the times of its steps, of a log that holds no account."""
        axes, last = self.member.axes, self.last_step
        found = axes.at("time", np.array([last])) if axes is not None and last is not None else None
        return float(found[0]) if found is not None else None

    # -- series -------------------------------------------------------------------------------------------

    @cached_property
    def main(self) -> Series | None:
        """The series whose steps and times are the run's; what is logged beside a training is none."""
        result = self.member.main
        if result is None or result.name.partition("/")[0] not in _NOT_LAYERED:
            return result
        own = [name for name in self.names if name.partition("/")[0] not in _NOT_LAYERED]
        longest = max((self.series(name) for name in own[:50]), key=len, default=None)
        return longest if longest is not None and len(longest) else None

    @property
    def last_step(self) -> int | None:
        return int(self.main.step[-1]) if self.main is not None else None

    @cached_property
    def planned(self) -> int | None:
        """Planned steps; None where nothing says them, or the run went well beyond."""
        said = self.member.facts.planned_steps
        if not said or not math.isfinite(said) or (self.last_step or 0) > said * 1.01 + 1:
            return None
        return int(said)

    @property
    def done(self) -> int:
        """How many steps were made: of a run that counts from nought one more than its last step's number."""
        return 0 if self.main is None else int(self.main.step[-1]) + (int(self.main.step[0]) == 0)

    @property
    def throughput(self) -> dict[str, float]:
        """Steps, tokens a second and MFU over the training time, as far as known."""
        return self.member.throughput if self.main is self.member.main and self.main is not None else {}

    def first_of(self, names: tuple[str, ...]) -> str | None:
        """The first of these names that the run has with a point."""
        return next((name for name in names if name in self.names and len(self.series(name))), None)

    def series(self, name: str) -> Series:
        return self.member.read(name)

    @cached_property
    def loss(self) -> str | None:
        """The training's loss."""
        return self.first_of(self.member.losses.training)

    @cached_property
    def evaluations(self) -> list[str]:
        """Measures on held-out data, the loss first."""
        chosen_names = [name for name in (*self.member.told.evaluations, *EVALUATIONS) if name in self.names]
        others = [
            name
            for name in sorted(self.names, key=lambda name: (name.count("/"), name))
            if is_evaluation(name)
            and name not in chosen_names
            and not _ABOUT_EVALUATION.search(name)
            and name.count("/") < 3
            and name.partition("/")[0] not in _NOT_LAYERED
        ]
        return [name for name in [*chosen_names, *others] if len(self.series(name))]

    @cached_property
    def layered(self) -> dict[tuple[str, str], dict[str, str]]:
        """(family, quantity) → layer → series, of those with more than one layer."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        for name in self.names.values():
            load = _LOAD.fullmatch(name)
            if load:
                found.setdefault(("moe", "load"), {})[f"{load[1]} · {load[2]}"] = name
                continue
            family, _, rest = name.partition("/")
            layer, _, quantity = rest.rpartition("/")
            if layer and quantity and family not in _NOT_LAYERED and not is_evaluation(name):
                found.setdefault((family, quantity), {})[layer] = name
        return {key: layers for key, layers in found.items() if len(layers) > 1}

    @cached_property
    def single(self) -> list[str]:
        """Common names of all series that are not a layer's."""
        own = {series for layers in self.layered.values() for series in layers.values()}
        return [name for name, series in self.names.items() if series not in own]

    # -- layers -------------------------------------------------------------------------------------------

    @cached_property
    def edges(self) -> Floats:
        """Of the cells of every heat map."""
        last = self.last_step or 0
        first = int(self.main.step[0]) if self.main is not None else 0
        return np.linspace(first, max(last, first + 1) + 0.5, min(CELLS, max(2, last - first + 1)) + 1)

    def cells(self, name: str) -> tuple[Floats, NDArray[np.bool_]]:
        """A layer's series as cells [c]: the largest value of each (the least where that is the worse one), NaN for
        none; and whether one of its values was not finite."""
        if name not in self._cells:
            self._read_layer(name)
        return self._cells[name]

    def _read_layer(self, name: str) -> Columns:
        columns = self.run.columns(name, "all")
        step, _, value, _ = columns
        if len(self.segments) > 1:
            live = self.run.columns(name)
            step, value = live[0], live[2]
        edges = self.edges
        place = np.searchsorted(edges, step, side="right") - 1
        inside = (place >= 0) & (place < len(edges) - 1)
        finite = np.isfinite(value) & inside
        sign = -1.0 if LOWEST.fullmatch(name.rpartition("/")[2]) else 1.0
        best = np.full(len(edges) - 1, -np.inf)
        np.maximum.at(best, place[finite], sign * value[finite])
        odd = np.zeros(len(edges) - 1, bool)
        odd[place[inside & ~np.isfinite(value)]] = True
        self._cells[name] = np.where(np.isinf(best), np.nan, sign * best), odd
        many = -(-len(columns[0]) // MOST_LOOKS)
        if many > 1:
            self.every = max(self.every, many)
            keep = ~np.isfinite(columns[2])
            keep[::many] = True
            keep[-1] = True
            columns = tuple(column[keep] for column in columns)  # type: ignore[assignment]
        self._looks[name] = columns
        return columns

    # -- findings -----------------------------------------------------------------------------------------

    @cached_property
    def diagnosis(self) -> dict[str, Any]:
        """What the doctor says of the run."""

        return diagnose(self.run, columns=self._layers_as_read())

    def _layers_as_read(self) -> dict[str, Columns]:
        """The series that rules look at: of layers what was read of them already, thinned."""
        layers = {name for found in self.layered.values() for name in found.values()}
        result: dict[str, Columns] = {}
        for name in sorted(filter(is_wanted, self.names.values())):
            if name in layers:
                columns = self._looks[name] if name in self._looks else self._read_layer(name)
            else:
                columns = self.run.columns(name, "all", chosen_rank)
                if not len(columns[0]):
                    columns = self.run.columns(name, "all")
            if len(columns[0]):
                result[name] = columns
        return result

    @property
    def findings(self) -> list[dict[str, Any]]:
        return list(self.diagnosis["findings"])

    @cached_property
    def counted(self) -> Counter[str]:
        """Findings by severity."""
        return Counter(str(finding["severity"]) for finding in self.findings)


_ABOUT_EVALUATION = re.compile(r"(?:^|[/_.])(?:epoch|step|eval_tokens|tokens|duration_ms|runtime|tokens_per_second|"
                               r"samples_per_second|steps_per_second|runtime_seconds|seconds)$")  # fmt: skip
_NOT_LAYERED = frozenset({"gpu", "span", "goodput", "allocator", "host", "ranks", "speed", "energy", "sol", "memory"})
