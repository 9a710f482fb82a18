"""A run sent to a ClickHouse server while it is written: a process beside the training, started by the sidecar.

In:   `python -m barograph.store.clickhouse.send RUN`, with {"to": address} as the first line on standard input, and
      {"status": …} as the second once the run has ended.
Out:  the run on the server; on standard error a sentence, once, for each thing that holds it up.

The server may be away, slow, full or restarting for as long as it likes: the run's folder is what is still to be sent,
and nobody waits for this process. What has piled up is sent at a bounded rate.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barograph.store.clickhouse.address import parse_address
from barograph.store.clickhouse.client import Client, ServerError
from barograph.store.clickhouse.files import local_files
from barograph.store.clickhouse.push import PushState, push
from barograph.store.schema import TEMPORARY_PREFIX

SECONDS = 10.0  # between two rounds
INSERTS_PER_SECOND = 4.0  # of all of a run's hosts together: a server merges what each INSERT makes
LONGEST_PAUSE = 60.0  # between two tries while the server is away
END_SECONDS = 120.0  # without progress after the run's end: what is left is for `barograph push`
BYTES_PER_SECOND = 32 << 20
_NICE = 10


class RunSender:
    """Sends one run, again and again. say: gets each sentence once; senders: of this run, one on each host."""

    def __init__(
        self, folder: Path, client: Client, say: Callable[[str], Any], seconds: float = SECONDS, senders: int = 1
    ):
        self._folder, self._client, self._say = folder, client, say
        self._seconds = max(seconds, senders / INSERTS_PER_SECOND)
        self._said: set[str] = set()
        self._sent: dict[str, tuple[int, int]] = {}
        self._failures = 0
        self._kept = PushState(folder)
        self._allowed_at = 0.0  # when the next INSERT may be sent

    @property
    def pause(self) -> float:
        """Seconds until the next round: longer with each failure in a row."""
        return min(self._seconds * float(1 << min(self._failures, 10)), max(self._seconds, LONGEST_PAUSE))

    def round(self, final: bool = False) -> bool:
        """Send what is new; whether all of it was confirmed."""
        state = self._state()
        if not final and state == self._sent and not self._kept.turns.is_due(final):
            return True
        try:
            sent = push(self._folder, self._client, final=final, pace=self._pace, kept=self._kept)
        except (ServerError, ValueError) as error:
            self._warn(f"the run is not sent to the server: {error}; it will be when that is over")
        except BlockingIOError:  # by a person's `barograph push`
            pass
        except OSError as error:
            self._warn(f"the run is not sent to the server: {error.strerror or error}")
        else:
            for sentence in sent.left_out:
                self._warn(f"not sent to the server: {sentence}")
            self._sent, self._failures = state, 0
            return True
        self._failures += 1
        return False

    def _pace(self, size: int) -> None:
        now = time.monotonic()
        if self._allowed_at > now:
            time.sleep(self._allowed_at - now)
        self._allowed_at = max(now, self._allowed_at) + size / BYTES_PER_SECOND

    def _warn(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self._say(sentence)

    def _state(self) -> dict[str, tuple[int, int]]:
        """What changes when there is something to send. A log grows without changing its size: its time tells."""
        found = {}
        paths = [*local_files(self._folder).values(), *(self._folder / "store").glob("*/*.parquet")]
        for path in paths:
            with contextlib.suppress(OSError):
                status = path.stat()
                found[str(path)] = status.st_size, status.st_mtime_ns
        return {name: about for name, about in found.items() if TEMPORARY_PREFIX not in name}


def send(folder: Path, options: dict[str, Any], ended: threading.Event, left: threading.Event) -> int:
    """Send until the run has ended and all of it has arrived; the exit code. ended: the run has; left: so has the
    process that started this one, which was not to say any more."""
    seconds = float(options.get("seconds", SECONDS))
    most = float(options.get("end_seconds", END_SECONDS))
    with Client(parse_address(str(options["to"]))) as client:
        sender = RunSender(folder, client, _say, seconds, int(options.get("senders", 1)))
        while not left.is_set() and not ended.is_set():
            sender.round()
            left.wait(sender.pause)
        until = time.monotonic() + most
        while not sender.round(final=ended.is_set()):
            if not ended.is_set() or time.monotonic() > until or not folder.is_dir():
                later = f"barograph push {folder} --to {client.address}"
                _say(f"not all of the run is on the server; `{later}` sends the rest")
                return 1
            time.sleep(min(sender.pause, 5.0))
    return 0


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError):
        print(f"barograph: {sentence}", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    folder = Path((arguments or sys.argv[1:])[0])
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    ended, left = threading.Event(), threading.Event()
    try:
        options = json.loads(sys.stdin.readline())

        def listen() -> None:
            if sys.stdin.readline().strip():
                ended.set()
            left.set()

        threading.Thread(target=listen, daemon=True).start()
        return send(folder, options, ended, left)
    except (ValueError, KeyError) as error:
        _say(f"the run is not sent to the server: {error}")
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
