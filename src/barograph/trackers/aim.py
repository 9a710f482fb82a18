"""Aim: a run's numbers as sequences of an Aim run.

In:   records from a `LoggingBackend`'s queue, or from a mirror; names and identity from a configuration.
Out:  an Aim run, started by the first record: in a local repository, or at `aim://host:port`.

Aim keeps one value a step: where the training goes back, the new values replace the old. A distribution has bins
of one width in Aim; others are spread over the same number, 512 at most. Sending something twice changes nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from barograph.core.values import flatten, text
from barograph.trackers.backend import TrackerBackend
from barograph.trackers.options import quiet, real, tags, word

_MOST_BINS = 512  # aim/sdk/objects/distribution.py
_LOGGERS = ("aim", "alembic.runtime.migration", "aim.sdk.reporter")


class AimBackend(TrackerBackend):
    """Sends to Aim; the run is started by the first `log`, on rank 0.

    config: anything with `aim_repo` (a folder or an address; the working directory if empty), `aim_experiment` (or
    `project`), `aim_name` (or `name`), `aim_run_id`, `tags` and `notes`. An id continues that run; where there is
    none, the new run's is written into `config.aim_run_id`.
    run_config: the training's configuration, kept as `hparams`.
    log_file: where the same records are kept, for the sentences that say what was not sent.
    """

    name, package, install = "Aim", "aim", "pip install aim"
    stall_seconds = 20.0  # importing Aim and making a repository takes 3 to 6 s of one core

    run: Any = None

    # -- the run ------------------------------------------------------------------------------------

    def _open(self) -> None:
        with quiet(*_LOGGERS):
            aim: Any = import_module("aim")

            if not hasattr(aim, "Run"):  # a folder of that name in the working directory
                raise ImportError("there is only a folder of that name", name="aim")
            self._aim = aim
            self._hparams: dict[str, Any] = {}
            place = os.path.expanduser(word(self._config, "aim_repo")) or "."
            if "://" not in place:
                os.makedirs(place, exist_ok=True)
            known = word(self._config, "aim_run_id") or text(self._before.get("run_id") or "")
            self.run = self._run(known, place)
        self.run_id = self.run.hash
        with contextlib.suppress(Exception):  # a frozen configuration
            self._config.aim_run_id = self.run_id
        if self._run_config:
            self._write_config(flatten(self._run_config, self.sender.odd))

    def _run(self, known: str, place: str) -> Any:
        """The run that goes on, or a new one with its name, tags and notes."""
        repository = self._aim.Repo.from_path(place, init="://" not in place and not self._aim.Repo.exists(place))
        options = {
            "repo": repository,
            "system_tracking_interval": None,  # the training's own log has the machine
            "log_system_params": False,  # with environment variables, which may hold secrets
            "capture_terminal_logs": False,
        }
        if known:
            # asked first: Aim answers an unknown id with a run of that id
            if not self._before or known in set(repository.list_all_runs()):
                run = self._aim.Run(run_hash=known, **options)
                before = run.get("hparams", None)
                self._hparams = dict(before) if isinstance(before, Mapping) else {}
                return run
            self.begins_anew = True
        run = self._aim.Run(experiment=word(self._config, "aim_experiment", "project") or None, **options)
        if title := word(self._config, "aim_name", "name"):
            run.name = title
        if notes := word(self._config, "notes"):
            run.description = notes
        for tag in tags(self._config):
            run.add_tag(tag)
        return run

    def _held(self, name: str) -> list[float] | None:
        """What the run holds; one value a step, but the others were replaced by what was sent later."""
        context: Any = import_module("aim.storage.context")

        found = self.run.get_metric(name, context.Context({}))
        if found is None:
            return []
        return [float(value) for value in found.values.values_list()]

    # -- records ------------------------------------------------------------------------------------

    def _write(self, metrics: dict[str, Any], step: int, seconds: float) -> None:
        numbers = {name or "unnamed": real(value) for name, value in metrics.items() if isinstance(value, (int, float))}
        texts = {name or "unnamed": self._aim.Text(value) for name, value in metrics.items() if isinstance(value, str)}
        for values in (texts, numbers):  # a mirror's own numbers last
            if values:
                self._track(values, step, seconds)

    def _write_histogram(self, name: str, edges: list[float], counts: list[float], step: int, seconds: float) -> None:
        edges, counts = even(edges, counts)
        made = self._aim.Distribution.from_histogram(counts, (edges[0], edges[-1]))
        self._track({name or "unnamed": made}, step, seconds)
        self._track_mark(step, seconds)

    def _write_text(self, name: str, content: str, step: int, seconds: float) -> None:
        self._track({name or "unnamed": self._aim.Text(content)}, step, seconds)
        self._track_mark(step, seconds)

    def _write_note(self, title: str, content: str, level: str, step: int, seconds: float) -> None:
        """Notes gather in a sequence of texts, and the run gets a tag for the worst."""
        self._track({"notes": self._aim.Text(f"{title}\n{content}")}, step, seconds)
        if level != "info":
            self.run.add_tag(level)
        self._track_mark(step, seconds)

    def _write_parts(self, name: str, title: str, parts: dict[str, float], step: int, seconds: float) -> None:
        self._track({f"{name}/{part}": real(value) for part, value in parts.items()} | self.mark, step, seconds)

    def _write_config(self, config: dict[str, Any]) -> None:
        self._hparams |= config
        self.run["hparams"] = _tree(self._hparams)

    def _track_mark(self, step: int, seconds: float) -> None:
        if self.mark:
            self._track(dict(self.mark), step, seconds)

    def _track(self, values: dict[str, Any], step: int, seconds: float) -> None:
        """Aim's public call takes the time of now; the one below it takes the time as well."""
        tracker: Any = getattr(self.run, "_tracker", None)
        if hasattr(tracker, "_track"):
            tracker._track(values, seconds, None, step, None, context=None)
        else:
            self.run.track(values, step=step)

    def _close(self) -> None:
        if self.run is not None:
            with quiet(*_LOGGERS):
                self.run.close()


def even(edges: list[float], counts: list[float]) -> tuple[list[float], list[float]]:
    """A histogram with bins of one width: as it is if it has them, else its counts spread over the same number of bins.

    A bin without an end (an infinite edge) goes into the last one that has one.
    """
    inside = [place for place, edge in enumerate(edges) if math.isfinite(edge)]
    if len(inside) < 2:
        raise ValueError("a histogram needs two edges that are finite")
    first, last = inside[0], inside[-1]
    line, heights = edges[first : last + 1], counts[first:last]
    heights[0] += sum(counts[:first])
    heights[-1] += sum(counts[last:])
    width = (line[-1] - line[0]) / len(heights)
    # Aim computes its edges as numpy.linspace does; what differs by less than rounding is the same
    is_even = all(abs(line[0] + place * width - edge) <= 1e-6 * abs(width) for place, edge in enumerate(line))
    if (is_even and len(heights) <= _MOST_BINS) or width <= 0:
        return line, heights
    bins = min(max(len(heights), 64), _MOST_BINS)
    made = [line[0] + place * (line[-1] - line[0]) / bins for place in range(bins)] + [line[-1]]
    below = _below(line, heights, made)
    return made, [high - low for low, high in itertools.pairwise(below)]


def _below(line: list[float], heights: list[float], places: list[float]) -> list[float]:
    """How many values lie below each of the places, if each bin's are spread over its width."""
    result, so_far, place = [], 0.0, 0
    for wanted in places:
        while place < len(heights) and line[place + 1] <= wanted:
            so_far += heights[place]
            place += 1
        width = line[place + 1] - line[place] if place < len(heights) else 0.0
        result.append(so_far + (heights[place] * (wanted - line[place]) / width if width > 0 else 0.0))
    return result


def _tree(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Flat names; a value where Aim knows its type, else its text. Aim refuses empty names."""
    known = (int, float, str, bool, type(None))
    return {
        name or "unnamed": value if isinstance(value, known) and not _is_large(value) else text(value)
        for name, value in flat.items()
    }


def _is_large(value: Any) -> bool:
    return isinstance(value, int) and abs(value) >= 2**63
