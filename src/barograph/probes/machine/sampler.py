"""The sampler: two threads that watch devices and host, and write what they saw into the run.

In:   the backends (NVML, amdsmi), the host, the run's settings.
Out:  `gpu-model` records once, a `gpu` record for each device and a `host` record every `record_seconds`,
      `info` records and warnings about what happened to a device.

One thread asks the drivers, once a second; a driver may hang for as long as it likes, and only this thread
hangs with it. The other samples the host, and sees that the first has had no answer. Neither the training
loop nor the end of the run waits for them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from barograph.core import place
from barograph.probes.machine.amd import Amd
from barograph.probes.machine.host import Host
from barograph.probes.machine.nvml import Nvidia
from barograph.probes.machine.readings import Backend, MissingError, News
from barograph.probes.recording import Recording

QUIET_SECONDS = 0.2  # a run shorter than this loads no library and asks no driver
FIRST_SECONDS = 2.0  # the first record comes after so long, so that there is something to see
HANG_SECONDS = 10.0  # a driver that has not answered for so long is said to hang
STOP_SECONDS = 0.5  # what the end of a run waits for the last record
MODEL_SECONDS = 10.0  # how long the devices' description waits for torch to start CUDA


class Machine:
    """Watches the machine while a run goes on. `start` begins, `stop` (also at the run's end) ends.

    sample_seconds: between two looks at the devices. record_seconds: between two records (the option
    `machine_seconds` if None). backends: the devices' makers; NVML and amdsmi if None.
    pid: the training's process, this one if None.
    """

    def __init__(
        self,
        run: Recording,
        sample_seconds: float = 1.0,
        record_seconds: float | None = None,
        backends: Sequence[Backend] | None = None,
        pid: int | None = None,
    ):
        self._run = run
        self._sample_seconds = max(0.01, sample_seconds)
        if record_seconds is None:
            record_seconds = float(getattr(run.settings, "machine_seconds", 10.0))
        self._record_seconds = max(self._sample_seconds, record_seconds)
        self._backends: Sequence[Backend] = [Nvidia(), Amd()] if backends is None else backends
        self._open: list[Backend] = []
        self._pid = pid
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()
        self._writing = threading.Lock()
        self._closed = False
        self._owner = os.getpid()
        self._host_thread_hangs = HANG_SECONDS
        self._asking: tuple[str, float] | None = None  # what the driver is asked, and since when
        self._hung = ""  # what it was asked when we said that it hangs
        self.energy: dict[int, float] = {}  # joules since the start, by device
        self.devices: list[int] = []  # ids of the devices that are sampled

    # -- start and stop ----------------------------------------------------------------------------------

    def start(self) -> Machine:
        """Begin; returns at once. The run's end stops it."""
        if not self._threads and not self._closed:
            self._run.at_finish.append(self.stop)
            for name, work in (("barograph-devices", self._watch_devices), ("barograph-host", self._watch_host)):
                thread = threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
        return self

    def stop(self) -> None:
        """Write the last records and end. Waits half a second at most: a driver that hangs is left behind."""
        if os.getpid() != self._owner:  # a forked child has no sampler
            return
        self._stop.set()
        until = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))
        if self._writing.acquire(timeout=0.1):
            self._closed = True
            self._writing.release()
        else:
            self._closed = True

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._tell(f"the machine is not watched any more: {type(error).__name__}: {error}", key="machine failed")

    # -- writing -----------------------------------------------------------------------------------------

    def _record(self, kind: str, fields: dict[str, Any]) -> None:
        with self._writing:
            if not self._closed:
                self._run.record(kind, self._run.current_step, fields)

    def _tell(self, sentence: str, key: str) -> None:
        with self._writing:
            if not self._closed:
                self._run.warn(sentence, key)

    def _note(self, sentence: str, event: str, fields: dict[str, Any]) -> None:
        """Into the log, not onto the console: there a message's text stands under `message`."""
        self._record("info", {"type": "machine", "event": event, "text": sentence} | fields)

    def _pass_on(self, news: list[News]) -> None:
        for new in news:
            self._note(new.sentence, new.kind, new.fields)
            if new.warning:
                self._tell(new.sentence, new.key)

    # -- devices -----------------------------------------------------------------------------------------

    def _ask(self, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Ask a driver; while it has not answered, the other thread can see so."""
        began = time.monotonic()
        self._asking = (what, began)
        try:
            return call(*arguments)
        finally:
            self._asking = None
            if self._hung:
                self._hung, took = "", time.monotonic() - began
                self._note(f"{what} answers again, after {took:.0f} s", "answers", {"seconds": round(took, 1)})

    def _watch_devices(self) -> None:
        if self._stop.wait(QUIET_SECONDS):
            return
        missing = []
        for backend in self._backends:
            try:
                self._ask(backend.name, backend.open)
                self._open.append(backend)
            except MissingError as reason:
                missing.append(str(reason))
                self._pass_on(backend.news())
        if not self._open:
            self._say_none(missing)
            return
        try:
            self._sample_devices()
        finally:
            for backend in self._open:
                self._ask(backend.name, backend.close)

    def _say_none(self, missing: list[str]) -> None:
        if place.rank()[2] > 0:  # the first rank of the host watches the devices, or says that there are none
            return
        self._note("no GPU found: " + ("; ".join(missing) or "no backend"), "no-gpu", {})

    def _sample_devices(self) -> None:
        began = time.monotonic()
        recorded, due = began, began + min(FIRST_SECONDS, self._record_seconds)
        described, stopped = False, False
        while not stopped:
            for backend in self._open:
                self._ask(backend.name, backend.sample, time.monotonic())
            stopped = self._stop.wait(self._sample_seconds)
            now = time.monotonic()
            if not described and (stopped or _torch_has_decided() or now - began > MODEL_SECONDS):
                described = True
                for backend in self._open:
                    self._describe(self._ask(backend.name, backend.models))
            if now >= due or (stopped and now - recorded > QUIET_SECONDS):
                recorded, due = now, max(due + self._record_seconds, now)
                for backend in self._open:
                    self._write(self._ask(backend.name, backend.records, time.monotonic()))
            for backend in self._open:
                self._pass_on(backend.news())

    def _describe(self, models: list[dict[str, Any]]) -> None:
        self.devices = [*self.devices, *(model["id"] for model in models if "id" in model)]
        for model in models:
            self._record("gpu-model", model)

    def _write(self, records: list[dict[str, Any]]) -> None:
        for fields in records:
            if "energy" in fields:
                self.energy[fields["id"]] = fields["energy"]
            self._record("gpu", fields)

    # -- host --------------------------------------------------------------------------------------------

    def _watch_host(self) -> None:
        if self._stop.wait(QUIET_SECONDS):
            return
        host: Host | None = None
        try:
            host = Host(self._run.dir, whole_host=place.rank()[2] == 0, pid=self._pid)
        except MissingError as reason:
            self._note(str(reason), "no-host", {})
        began = time.monotonic()
        recorded, due, stopped = began, began + min(FIRST_SECONDS, self._record_seconds), False
        while not stopped:
            stopped = self._stop.wait(self._sample_seconds)
            now = time.monotonic()
            self._check(now)
            if host is None:
                continue
            host.sample(now)
            if now >= due or (stopped and now - recorded > QUIET_SECONDS):
                recorded, due = now, max(due + self._record_seconds, now)
                if fields := host.record(now):
                    self._record("host", fields)

    def _check(self, now: float) -> None:
        """Say once that a driver hangs."""
        asking = self._asking
        if asking is None or self._hung or now - asking[1] < self._host_thread_hangs:
            return
        what, began = asking
        self._hung = what
        sentence = (
            f"{what} has not answered for {now - began:.0f} s; the training goes on, GPU telemetry stands still. "
            "If it stays so, run `nvidia-smi` or `amd-smi` in a shell and look into `dmesg` for the driver"
        )
        self._note(sentence, "hangs", {"seconds": round(now - began, 1)})
        self._tell(sentence, f"{what} hangs")


def _torch_has_decided() -> bool:
    """Whether waiting for torch would tell more about the devices: not if it isn't there, or has begun already."""
    cuda: Any = sys.modules.get("torch.cuda")
    if cuda is None:
        return "torch" not in sys.modules
    with contextlib.suppress(Exception):
        return bool(cuda.is_initialized()) or not sys.modules["torch"].backends.cuda.is_built()
    return True
