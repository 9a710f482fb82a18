"""The run's accounts, kept live: where its time went, what its devices drew, what both cost.

In:   the records of rank 0, from the pump's thread, in the log's order.
Out:  a `goodput` and an `energy` record each minute and at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from barograph.goodput import Goodput, fields, replay
from barograph.probes.recording import Recording
from barograph.probes.speed.energy import Energy, Prices
from barograph.record import Record

EVERY = 60.0  # seconds


class Accounts:
    """Belongs to the pump's thread, but for `finish`.

    log, start: the log file and the byte at which this process began to write it; what stands before, of a
    run that goes on, is counted first. gpus: how many accelerators the run holds.
    """

    def __init__(self, run: Recording, log: Path, start: int, gpus: Callable[[], int]):
        self._run, self._log, self._start, self._gpus = run, log, start, gpus
        self._goodput, self._energy = Goodput(), Energy()
        self._prices = Prices(run.settings)
        self._opened = False
        self._written = time.monotonic()
        self._ending = self._done = False  # no events: their locks would hold up a signal handler

    def take(self, record: Record) -> None:
        """Count a record."""
        if not self._opened:
            self._opened = True
            if self._start > 16:
                try:
                    replay(self._log, (self._goodput, self._energy), stop=self._start)
                except OSError as error:
                    self._run.warn(f"what the run spent before can't be counted: {error.strerror or error}")
        self._goodput.add(record)
        self._energy.add(record)

    def settle(self) -> None:
        """What waited has been counted: write the records if it is time."""
        if self._done:
            return
        ending = self._ending
        if self._opened and (ending or time.monotonic() - self._written >= EVERY):
            self._written = time.monotonic()
            self._write()
        if ending:
            self._done = True

    def _write(self) -> None:
        totals = self._goodput.totals(time.time())
        gpus, step = self._gpus(), self._run.current_step
        price = self._prices.per_gpu_hour(self._energy.models)
        self._run.record("goodput", step, fields(totals, gpus or None, price))
        spent = self._energy.fields(self._prices, totals.held * gpus / 3600, gpus or None, self._energy.models)
        self._run.record("energy", step, spent)

    def price_per_gpu_hour(self) -> float | None:
        """Of the run's devices, as far as they are known."""
        return self._prices.per_gpu_hour(self._energy.models)

    def finish(self, wake: Callable[[], None], timeout: float = 1.0) -> None:
        """Have the last records written; from the thread that ends the run."""
        self._ending = True
        wake()
        until = time.monotonic() + timeout
        while not self._done and time.monotonic() < until:
            time.sleep(0.002)
