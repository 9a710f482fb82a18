"""The base of every backend: what the training calls, and what another tracker's class gives.

In:   `log(metrics, step)` from the training loop: microseconds, no exception. Or a mirror.
Out:  a subclass's `_open`, `_write`, `_flush` and `_close`, called in order on the sender's thread.

The copy that goes to another tracker is never the only one, so nothing here may hurt the training.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from barograph.core.values import PLAIN, DeviceValues, flatten, number, on_device, text
from barograph.trackers.sender import Sender

_MOST_STEP = 2**63 - 1  # W&B and TensorBoard keep steps in 64 bits


class LoggingBackend:
    """One other tracker. Only rank 0 sends; the library is imported at the first `log`.

    A subclass says what it is (`name`, `package`, `install`) and how to `_open`, `_write` and `_close`;
    these run on its sender's thread, one after the other, and may raise and take their time.

    log_file: where the same records are kept, for the sentences that say what was not sent.
    """

    name: ClassVar[str] = "the backend"
    package: ClassVar[str] = ""  # the library's import name
    install: ClassVar[str] = ""  # what brings it
    takes_text: ClassVar[bool] = False  # whether `_write` takes text among the values
    marks: ClassVar[bool] = False  # whether `_write` gets a mirror's own numbers: see `_held`

    queue_records = 10_000  # waiting records; a record of 20 numbers takes about 2 kB
    queue_values = 2_000_000  # waiting numbers, about 200 MB
    poll_seconds = 0.25  # the thread looks at the queue this often: waking it would cost each log call
    most_failures = 20  # refusals in a row after which the backend is off
    stall_seconds = 10.0  # at close, a single call into the library may have lasted this long
    close_seconds = 30.0  # all that close waits, the library's own end included

    def __init__(self, *, log_file: str | os.PathLike[str] = ""):
        self.log_file = os.fspath(log_file)
        self.sender = Sender(self)
        self.run_id = ""  # the library's identity of the run, once it is known
        self.exit_code: int | None = None  # how the run ended, where that is known; read by `_close`
        self.mark: dict[str, float] = {}  # a mirror's own numbers, for a row that `_write` does not get
        self.begins_anew = False  # `_open` found nothing of the run that `_resume` named
        self.later = ""  # how to send later what was not sent, for the sentences that say so
        self._before: dict[str, Any] = {}  # what `_state` gave in an earlier process, if any

    @property
    def lost(self) -> int:
        """Records that were not sent."""
        return self.sender.lost

    def _resume(self, state: Mapping[str, Any]) -> None:
        """Before `_open`: go on with the run that `_state` described."""
        self._before = dict(state)

    # -- what a subclass gives: methods of these names ----------------------------------------------

    _open: Callable[[], None]
    """Import the library and start its run. An ImportError means that it is not installed."""

    _write: Callable[[dict[str, Any], int, float], None]
    """Of (metrics, step, seconds): hand over one record: flat names, plain values (NaN, infinity, text and None too);
    when it was logged, in seconds since 1970. Raises if the library refuses it."""

    # and those that the tracker has a place for

    _write_config: Callable[[dict[str, Any]], None] | None = None
    """Hand over the run's configuration: flat names, plain values."""

    _write_histogram: Callable[[str, list[float], list[float], int, float], None] | None = None
    """Of (name, edges, counts, step, seconds): `counts[i]` values between `edges[i]` and `edges[i + 1]`."""

    _write_text: Callable[[str, str, int, float], None] | None = None
    """Of (name, content, step, seconds): a text, such as a sample of what the model writes."""

    _write_note: Callable[[str, str, str, int, float], None] | None = None
    """Of (title, content, level, step, seconds): what a person should read now; level: info, warning or critical."""

    _write_parts: Callable[[str, str, dict[str, float], int, float], None] | None = None
    """Of (name, title, parts, step, seconds): the parts of a whole, for a pie."""

    _write_rewind: Callable[[int, float], None] | None = None
    """Of (step, seconds): the training went back to `step`: what was written at it or later is an old branch."""

    _flush: Callable[[], None] | None = None
    """Let others see what was written; called when the queue is empty, at most every `poll_seconds`. A mirror notes
    what was written as sent once this has returned."""

    _close: Callable[[], None] | None = None
    """End the library's run."""

    _state: Callable[[], dict[str, Any]] | None = None
    """What another process needs to go on with this run, as plain JSON values, if more than `run_id`; asked after
    `_flush`."""

    _held: Callable[[str], list[float] | None] | None = None
    """Of a name: every value of it that the run holds, in any order; None where that is not known. Asked after
    `_open`, when an earlier sender was interrupted. A class that answers sets `marks`: what `_write` gets then has
    numbers of the mirror's own among it (`barograph_offset`, `barograph_wide`), by which the mirror sees what has
    arrived."""

    # -- what the training calls --------------------------------------------------------------------

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Send numbers by name. Returns in microseconds and never raises; does nothing once closed.

        Values are read now, except those on an accelerator, which are copied without waiting for it.
        """
        sender = self.sender
        if sender.off:
            sender.not_taken += sender.failed
            return
        try:
            values: Any
            if PLAIN.issuperset(map(type, metrics.values())):
                values = dict(metrics)
            elif on_device(metrics):
                values = DeviceValues(metrics)
            else:
                values = flatten(metrics, sender.odd)
            sender.put(_send_record, (self, values, step, time.time()), len(metrics))
        except Exception as error:
            sender.odd(f"a record could not be read: {type(error).__name__}: {error}")

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Send the run's configuration; nested names are joined with `/`. Never raises."""
        try:
            flat = flatten(config, self.sender.odd)
            self.sender.put(_send, (self, "configuration", self._write_config, flat), len(flat))
        except Exception as error:
            self.sender.odd(f"the configuration could not be read: {type(error).__name__}: {error}")

    def log_histogram(self, name: str, edges: Any, counts: Any, step: int) -> None:
        """Send a distribution: n counts between n + 1 edges. Never raises."""
        try:
            arguments = (text(name), list(edges), list(counts), step, time.time())
            self.sender.put(_send_histogram, (self, *arguments), 2 * len(arguments[2]))
        except Exception as error:
            self.sender.odd(f"the histogram {name!r:.60} could not be read: {type(error).__name__}: {error}")

    def close(self, timeout: float | None = None) -> bool:
        """Send what waits and end the library's run, in at most `timeout` seconds; whether nothing is lost.

        Also done when the interpreter exits. A library that does not come back is left behind.
        """
        self.sender.close(timeout)
        return self.lost == 0


class TrackerBackend(LoggingBackend):
    """A backend whose runs have an identity, `run_id`.

    config: anything with the attributes that the class names. run_config: the training's configuration.
    log_file: where the same records are kept, for the sentences that say what was not sent.
    """

    takes_text = True
    marks = True

    def __init__(
        self,
        config: Any,
        *,
        run_config: Mapping[str, Any] | None = None,
        log_file: str | os.PathLike[str] = "",
    ):
        super().__init__(log_file=log_file)
        self._config, self._run_config = config, run_config


def _send_record(backend: LoggingBackend, values: Any, step: Any, seconds: float) -> None:
    if isinstance(values, DeviceValues):
        while not values.ready():
            time.sleep(0.001)
        values = values.values
    backend._write(flatten(values, backend.sender.odd), _whole(step), seconds)


def _send_histogram(
    backend: LoggingBackend, name: str, edges: list[Any], counts: list[Any], step: Any, seconds: float
) -> None:
    if len(edges) != len(counts) + 1:
        raise ValueError(f"the histogram {name!r} has {len(counts)} counts and {len(edges)} edges, not one more")
    edges, counts = [float(edge) for edge in edges], [float(count) for count in counts]
    _send(backend, "histograms", backend._write_histogram, name, edges, counts, _whole(step), seconds)


def _send(backend: LoggingBackend, what: str, hook: Callable[..., None] | None, *arguments: Any) -> None:
    if hook is None:
        raise NotImplementedError(f"{backend.name} gets no {what}")
    hook(*arguments)


def _whole(step: Any) -> int:
    value = number(step)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"a step must be a whole number, not {text(step)[:60]!r}")
    return max(-_MOST_STEP - 1, min(int(value), _MOST_STEP))
