"""The sidecar at work: one follow of a run's logs, given to all that has to be done beside the training.

In:   a run's folder; what the training said at its start.
Out:  records in the sidecar's log, sealed columns, alerts, requests to the loop, mirrors that are ended, a manifest
      that says how the run ended.

Consumers get every entry in order and have no other input. The present enters in three places: whether processes
live, whether steps still come, and the alerts for what is missing.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from barograph.core import manifest
from barograph.core.lazy import installed
from barograph.core.options import Settings
from barograph.core.record import Record
from barograph.log.files import MAIN, readable_logs
from barograph.log.follow import Entry, Follower
from barograph.log.write import mend
from barograph.sidecar.accounts import Accounts
from barograph.sidecar.alerts.alerts import Alerts
from barograph.sidecar.columns import ChosenRows
from barograph.sidecar.control import Control
from barograph.sidecar.end import RunEnd
from barograph.sidecar.hang import Hang
from barograph.sidecar.journal import Journal
from barograph.sidecar.sealing import Sealing
from barograph.sidecar.syncing import Syncing

if TYPE_CHECKING:
    from barograph.query.openmetrics import MetricsServer
    from barograph.sidecar.health import Health
    from barograph.sidecar.mirrors import Mirrors

QUICK, SLOW = 0.25, 1.0  # seconds between two reads: while records come, and later
_CALM = 5.0  # seconds without a record, after which reads are slow
_IDLE = 1.0  # seconds without a record, after which everything that waits is looked at
_NOTE = 5.0  # seconds between two notes of how far it has come
_DRAIN = 1.0  # what a killed process wrote is there within this time
_MOST_FAILURES = 3


class Consumer(Protocol):
    """What takes the entries of a run."""

    def take(self, entry: Entry) -> None:
        """An entry; they come in order."""

    def settle(self, idle: bool) -> None:
        """All there is for now was given; idle: and nothing has come for a moment."""

    def finish(self) -> None:
        """The run has ended."""


class Sidecar:
    """Everything beside one run, on one host.

    pid: of rank 0's process on this host, None where nobody writes any more. pidfd: an open
    descriptor of it, if there is one. rank: the first one on this host; sidecars
    of other hosts than rank 0's sample their host and watch its processes. note: takes how far it has come, every few
    seconds.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        *,
        pid: int | None = None,
        pidfd: int = -1,
        config: Mapping[str, Any] | None = None,
        rank: int = 0,
        noted_at: int = -1,
        note: Callable[[dict[str, Any]], Any] = lambda content: None,
    ):
        about = manifest.read(folder)
        self.folder, self.settings, self.main = folder, settings, rank == 0
        self.stopping = False  # set by a signal: leave within two seconds
        self.leaving: Callable[[], bool] = lambda: False
        self._note, self._noted = note, 0.0
        self.journal = Journal(folder, settings, about, rank)
        self.journal.open(noted_at)
        self.follower = Follower(folder)
        self.end = RunEnd(self.journal, pid, pidfd)
        self.control = Control(self.journal)
        self.sealing = Sealing(folder)
        self.health: Health | None = None
        self.accounts: Accounts | None = None
        self.alerts: Alerts | None = None
        self.hang: Hang | None = None
        self.mirrors: Mirrors | None = None
        self._consumers: list[Consumer] = [self.end]
        self.entries = 0  # given to the consumers so far
        self._failures: dict[int, int] = {}
        self._machine: Any = None
        self._syncing: Syncing | None = None
        self._metrics: MetricsServer | None = None
        self._came_at = time.monotonic()
        self._idle_told = False
        self._poll = select.poll() if hasattr(select, "poll") else None
        # a host with a folder of its own, which no main process writes to: what it has is sealed and sent from here
        self.keeper = self.main or not (self.folder / manifest.FILE).exists()
        if self.main:
            self._add_main(dict(config or about.get("config") or {}), about)
        if self.keeper:
            if installed("numpy", "pyarrow"):
                self._consumers.append(self.sealing)
            else:
                self.sealing.put_off()
                self.journal.warn("pyarrow is not installed, so columns are not sealed; `barograph gc` does it later")
        if settings.watchdog:
            self.hang = Hang(self.journal, settings.watchdog_seconds)
            self._consumers.append(self.hang)

    def _add_main(self, config: dict[str, Any], about: Mapping[str, Any]) -> None:
        self.journal.on_warning = self._pass_on
        self.control.waited_for = self.end.is_main_there
        rows = ChosenRows()
        self.alerts = Alerts(self.journal, self.settings, ask=self.control.ask, rows=rows)
        self.accounts = Accounts(self.journal)
        self._consumers += [self.alerts, self.accounts]
        if self.settings.doctor and not installed("numpy"):
            self.journal.warn("NumPy is not installed, so the doctor does not look now; `barograph doctor` does later")
        elif self.settings.doctor:
            from barograph.sidecar.health import Health

            planned = self.settings.total_steps or about.get("total_steps")
            self.health = Health(self.journal, config, planned, rows)
            self.health.tell += [self.control.look_at, self.alerts.report]
            self._consumers.append(self.health)

    def _pass_on(self, sentence: str) -> None:
        self.control.ask("warn", sentence, self.journal.current_step, {})

    # -- the loop ------------------------------------------------------------------------------------

    def run(self, live: bool = True) -> None:
        """Until every process of the run on this host has ended. live: sample the machine, send to trackers."""
        if live:
            self._start_sampling()
            self._syncing = Syncing(self.folder, self.settings.sync_seconds)
            self.open_mirrors()
            self._give_metrics()
        while not self.stopping:
            self.read()
            self._watch()
            if self.end.over or self.leaving() or not self.folder.is_dir():
                break
            self._pause()
        self._finish()

    def _give_metrics(self) -> None:
        """To Prometheus, where that is asked for."""
        port = self.settings.metrics_port
        if port is None or not self.main:
            return
        from barograph.query.openmetrics import LastValues, MetricsServer, page

        values = LastValues(self.folder)
        self._consumers.append(values)
        try:
            self._metrics = MetricsServer(lambda: page([values]), "127.0.0.1", port).start()
        except OSError as error:
            self.journal.warn(f"no metrics at port {port}: {error.strerror or error}")

    def read(self, once: bool = False) -> int:
        """All that is new, or with `once` some of it, given to the consumers; how many entries that were."""
        count = 0
        while not self.stopping:
            self.journal.drain()
            entries = self.follower.read()
            if not entries:
                break
            count += len(entries)
            self._give(entries)
            self._settle(False)
            self._note_now_and_then()
            if once:
                break
        now = time.monotonic()
        if count:
            self._came_at, self._idle_told = now, False
        elif now - self._came_at > _IDLE and not self._idle_told:
            self._idle_told = True
            self._settle(True)
        return count

    def _give(self, entries: list[Entry]) -> None:
        journal = self.journal
        self.entries += len(entries)
        takes = [(consumer, consumer.take) for consumer in self._consumers]
        for entry in entries:
            source, rank, _, item, end = entry
            if source == MAIN:
                journal.at = end
            if rank == 0 and not source.startswith("sidecar-"):
                journal.current_step = item.step
            for consumer, take in takes:
                try:
                    take(entry)
                except Exception as error:
                    self._fail(consumer, error)
            if isinstance(item, Record) and item.kind == "segment":
                self.control.listening = self.end.listening

    def _settle(self, idle: bool) -> None:
        for consumer in self._consumers:
            try:
                consumer.settle(idle)
            except Exception as error:
                self._fail(consumer, error)

    def _fail(self, consumer: Consumer, error: Exception) -> None:
        """A mistake of ours: said once, and the consumer goes if it makes more."""
        name = type(consumer).__name__
        self.journal.warn(f"{name} failed with {type(error).__name__}: {error}", key=f"{name} {type(error).__name__}")
        count = self._failures[id(consumer)] = self._failures.get(id(consumer), 0) + 1
        if count >= _MOST_FAILURES and consumer is not self.end:
            self._consumers = [item for item in self._consumers if item is not consumer]

    def _watch(self) -> None:
        """What the records can't say: processes that are gone, steps that don't come, metrics that are missing."""
        gone = self.end.gone()
        if gone:
            until = time.monotonic() + _DRAIN
            while self.read() or (self.end.gone() and time.monotonic() < until - _DRAIN + 0.1):
                time.sleep(0.02)
            for member in self.end.gone():
                if fields := self.end.say(member):
                    self._tell_end(fields)
            self.read()
        if self.hang is not None and not self.end.over and self.hang.look(self.end.processes()):
            self.read()
        if self.alerts is not None and not self.end.over:
            self.alerts.tick(time.time())

    def _tell_end(self, fields: Mapping[str, Any]) -> None:
        """Where no rule does it, an alert says that a process is gone."""
        if self.alerts is None or (self.health is not None and "crashed" not in self.settings.silence):
            return
        who = "The training" if fields.get("rank") == 0 else f"Rank {fields.get('rank')}"
        step = self.journal.current_step
        self.alerts.send(f"{who} {fields['status']}", str(fields["reason"]), "critical", cause="end", step=step)

    def _pause(self) -> None:
        """Until it is time to read again, or a process has ended."""
        seconds = QUICK if time.monotonic() - self._came_at < _CALM else SLOW
        if self._poll is None:
            time.sleep(seconds)
            return
        watched = self.end.descriptors()
        for descriptor in watched:
            self._poll.register(descriptor, select.POLLIN)
        try:
            self._poll.poll(seconds * 1000)
        finally:
            for descriptor in watched:
                self._poll.unregister(descriptor)

    def open_mirrors(self) -> None:
        """Start to send to the trackers that were asked for."""
        wanted = (self.main and self.settings.backends) or (self.keeper and self.settings.store)
        if wanted and self.mirrors is None:
            from barograph.sidecar.mirrors import Mirrors

            self.mirrors = Mirrors(self.journal, self.settings.backends if self.main else ())

    def end_unsaid(self) -> None:
        """Write the end of a run whose process is gone, if nobody has."""
        if self.main and self.end.status is None:
            self.end.say_unseen()
            self.read()

    # -- the machine ---------------------------------------------------------------------------------

    def _start_sampling(self) -> None:
        if not self.settings.machine or self.end.pid is None or self.end.over:
            return
        from barograph.probes.machine.sampler import Machine

        recording: Any = self.journal  # which says, beyond what probes ask for, whether a record is new
        program = manifest.read(self.folder).get("program") or {}  # around which the run is, if there is one
        self._machine = Machine(recording, pid=program.get("pid") or self.end.pid).start()

    # -- how far it has come -------------------------------------------------------------------------

    def _note_now_and_then(self) -> None:
        if time.monotonic() - self._noted > _NOTE:
            self.note()

    def note(self, state: str = "at work") -> None:
        """Write how far it has come, for `barograph ps` and the next sidecar."""
        self._noted = time.monotonic()
        self._note({"at": self.journal.at, "state": state, "owes": self.owes()})

    def owes(self) -> dict[str, Any]:
        """What is still to be done."""
        result: dict[str, Any] = {"unsealed": self.sealing.owes}
        if self.mirrors is not None and self.mirrors.owing:
            result["mirrors"] = self.mirrors.owing
        if self.alerts is not None and self.alerts.owes:
            result["alerts"] = self.alerts.owes
        return result

    # -- the end -------------------------------------------------------------------------------------

    def _finish(self) -> None:
        if not self.folder.is_dir():  # deleted under us
            self.close()
            return
        if self.stopping:  # what was not looked at yet is looked at by the next one
            self.note("stopped")
            self.close()
            return
        if self._machine is not None:
            self._machine.stop()
        self.read()
        self.finish()
        self.close()

    def finish(self, mirrors: bool = True) -> None:
        """The run has ended: last findings and sums, the manifest, what is sealed, mirrors, alerts."""
        for path in readable_logs(self.folder):
            mend(path)
        for consumer in self._consumers:
            try:
                consumer.finish()
            except Exception as error:
                self._fail(consumer, error)
        self.control.listening = False
        if self.main:
            self.end.write(self.accounts.spent() if self.accounts is not None else {})
        self.journal.drain()
        self.note("ending")
        if self.mirrors is not None:
            self.mirrors.end(self.end.status or "crashed")
        if self.alerts is not None:
            self.alerts.close()
        if self.keeper:
            self.sealing.seal_all()
        if self.mirrors is not None:
            self.mirrors.wait()
        self.note("done")

    def close(self) -> None:
        """Let go of files; leave alone what may take long, where this process has to go."""
        if self._syncing is not None:
            self._syncing.stop()
        if self._metrics is not None:
            self._metrics.stop()
        if self.stopping or not self.folder.is_dir():
            self.sealing.stop()
            if self.mirrors is not None:
                self.mirrors.stop()
        self.journal.close()
        self.follower.close()
        self.end.close()
