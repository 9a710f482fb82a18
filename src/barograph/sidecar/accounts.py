"""The run's accounts: where its time went, what its devices drew, what both cost.

In:   entries of the run's logs, in order.
Out:  a `goodput` and an `energy` record for each minute of the records' times, and at the end.
"""

from __future__ import annotations

from typing import Any

from barograph.core.record import Record
from barograph.log.files import MAIN, is_sidecar_name
from barograph.log.follow import Entry
from barograph.query.energy import KINDS as ENERGY_KINDS
from barograph.query.energy import Energy, Prices
from barograph.query.goodput import Goodput, fields
from barograph.sidecar.journal import Journal

EVERY = 60_000_000  # µs
_OWN = ("goodput", "energy", "finding", "alert")  # what sidecars say follows from the rest


class Accounts:
    """A consumer: the time is that of rank 0's records, the energy that of every host's devices."""

    def __init__(self, journal: Journal):
        self._journal = journal
        self._goodput, self._energy = Goodput(), Energy()
        self._prices = Prices(journal.settings)
        self._last = 0  # time of the newest record
        self._due: int | None = None

    def take(self, entry: Entry) -> None:
        """An entry."""
        record, source = entry.item, entry.source
        if not isinstance(record, Record) or record.kind in _OWN:
            return
        if record.kind in ENERGY_KINDS:
            self._energy.add(record, "" if source == MAIN else source)
        if entry.rank != 0 or (source != MAIN and is_sidecar_name(source)):
            return
        self._goodput.add(record)
        if record.time > self._last:
            self._last = record.time
        if self._due is None:
            self._due = self._last + EVERY
        elif self._last >= self._due:
            self._due = self._last + EVERY
            self._write()

    def settle(self, idle: bool) -> None:
        """Nothing waits here."""

    def finish(self) -> None:
        """The run has ended: its last sums."""
        if self._due is not None:
            self._write()

    @property
    def gpus(self) -> int:
        """Accelerators that the run holds: one a rank, if there are any."""
        return self._journal.world_size if self._energy.gpus or self._energy.models else 0

    def spent(self) -> dict[str, Any]:
        """`gpu_hours` and `cost` of the run so far, for its manifest; what is not known is absent."""
        if self._due is None or not self.gpus:
            return {}
        hours = self._goodput.totals(self._last / 1e6).held * self.gpus / 3600
        price = self._prices.per_gpu_hour(self._energy.models)
        return {"gpu_hours": hours} if price is None else {"gpu_hours": hours, "cost": hours * price}

    def _write(self) -> None:
        totals = self._goodput.totals(self._last / 1e6)
        gpus, step = self.gpus, self._journal.current_step
        models = self._energy.models
        self._journal.record("goodput", step, fields(totals, gpus or None, self._prices.per_gpu_hour(models)))
        spent = self._energy.fields(self._prices, totals.held * gpus / 3600, gpus or None, models)
        self._journal.record("energy", step, spent)
