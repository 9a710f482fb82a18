"""The run's mirrors: a process each, which reads the run's folder and sends what another tracker has not got.

In:   the trackers that the settings ask for; the run's end.
Out:  `python -m barograph.trackers.sync` for each, with its options on standard input, as they may hold secrets; and
      `python -m barograph.store.clickhouse.send` for the option `store`.

A tracker's library that hangs or grows holds up nothing but its own process.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from barograph.core.place import host_count
from barograph.sidecar.journal import Journal
from barograph.store.clickhouse.address import has_password
from barograph.trackers import backends

END_SECONDS = 150.0  # a mirror ends by itself after two minutes without progress


class Mirrors:
    """The processes. They go on by themselves where this one is killed, until all there is has been sent."""

    def __init__(self, journal: Journal, trackers: Iterable[str]):
        self._journal = journal
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        folder = str(journal.dir.resolve())
        for name in trackers:
            words = ["-m", "barograph.trackers.sync", folder, name]
            self._start(name, words, backends.options_of(name, journal.settings), f"sync {folder} --to {name}")
        if to := journal.settings.store:
            shown = to if not has_password(to) else "URL"
            words = ["-m", "barograph.store.clickhouse.send", folder]
            self._start("clickhouse", words, {"to": to, "senders": host_count()}, f"push {folder} --to {shown}")

    def __bool__(self) -> bool:
        return bool(self._processes)

    def _start(self, name: str, words: list[str], options: dict[str, Any], later: str) -> None:
        """words: the arguments of Python. later: the command that does the same by hand."""
        try:
            process = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            assert process.stdin is not None
            process.stdin.write(json.dumps(options).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            sentence = f"no process to mirror the run to {name} ({error.strerror or error})"
            self._journal.warn(f"{sentence}; `barograph {later}` sends it later", key=f"mirror {name}")
            return
        self._processes[name] = process
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Pass on what the mirror warns of; what its library prints is for nobody."""
        assert process.stderr is not None
        with contextlib.suppress(OSError, ValueError), process.stderr:
            for line in process.stderr:
                sentence = line.decode("utf-8", "replace").strip()
                if sentence.startswith("barograph: "):
                    self._journal.warn(sentence.removeprefix("barograph: "))

    def end(self, status: str) -> None:
        """The run has ended, and everything about it is in its folder."""
        for process in self._processes.values():
            with contextlib.suppress(OSError, ValueError):
                assert process.stdin is not None
                process.stdin.write(json.dumps({"status": status}).encode() + b"\n")
                process.stdin.close()

    @property
    def names(self) -> list[str]:
        """The trackers."""
        return list(self._processes)

    @property
    def owing(self) -> list[str]:
        """Trackers that have not got everything."""
        return [name for name, process in self._processes.items() if process.poll() is None]

    def wait(self, seconds: float = END_SECONDS) -> bool:
        """After `end`: until all has arrived, at most so long."""
        until = time.monotonic() + seconds
        while self.owing and time.monotonic() < until:
            time.sleep(0.05)
        return not self.owing

    def stop(self) -> None:
        """This process has to go at once: so do they, and note how far they have come."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
