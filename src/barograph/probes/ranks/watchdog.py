"""A training that stands still says where: every rank's Python stacks, and which rank the others wait for.

In:   `beat` at every step; what long thing the run is busy with, if any.
Out:  per rank a record of kind `stacks` and a small file beside its store; one sentence for all ranks.

A thread looks after the beats. When none has come for max(10 × the median step, 120 s), or for
`watchdog_seconds`, it writes down all threads' stacks, also while the main thread is stuck in C++ code. When
code holds the interpreter's lock, the thread can't run: then Python's faulthandler writes the stacks to
`stacks.txt`. Ranks meet in files, not over the network that may be what is broken: the lowest rank that still
answers reads them and says who waits where. The factor 10 and 120 s leave room for a step that is slow for a
good reason; start-up, evaluations and checkpoints get half an hour, as SageMaker's stalled-training rule does.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from barograph import place
from barograph.probes.ranks.stacks import describe, parse_dump, stacks, summary, where
from barograph.probes.recording import Recording

LEAST_SECONDS = 120.0
STEPS = 10  # median steps without a step
LONG_SECONDS = 1800.0  # start-up, evaluations, checkpoints
FILE, FALLBACK = "stall.json", "stacks.txt"
_SETTLE_SECONDS = 3.0  # ranks notice a stall nearly together; the one that speaks waits so long for the others


class Watchdog:
    """One a rank. `seconds` without a step is a stall (None: what `settings.watchdog_seconds` says, else the rule).

    folder: the writer's folder in the store, where the other ranks look for this one's file.
    busy: says what long thing the run does just now (`"eval"`), or None; long_seconds: how long that, and the
    time before the first step, may take; fallback: have faulthandler write stacks when Python can't.
    """

    def __init__(
        self,
        run: Recording,
        seconds: float | None = None,
        folder: Path | None = None,
        busy: Callable[[], str | None] | None = None,
        long_seconds: float = LONG_SECONDS,
        settle_seconds: float = _SETTLE_SECONDS,
        fallback: bool = True,
    ):
        self.run, self.busy, self.long_seconds = run, busy, long_seconds
        self.seconds = getattr(run.settings, "watchdog_seconds", None) if seconds is None else seconds
        self.stalled = False
        self._folder, self._settle = folder, settle_seconds
        self._times: deque[float] = deque(maxlen=64)
        self._step = run.current_step
        self._owner, self._began, self._excused = os.getpid(), time.monotonic(), 0.0
        self._stall_since = 0.0
        self._main = threading.main_thread().ident
        self._stop = threading.Event()
        self._stalls = 0
        self._fallback: Any = None
        if fallback and folder is not None:
            with contextlib.suppress(OSError):
                (folder / FALLBACK).unlink(missing_ok=True)
                self._fallback = (folder / FALLBACK).open("a")
        self._thread = threading.Thread(target=self._watch, name="barograph-watchdog", daemon=True)
        self._thread.start()
        run.at_finish.append(self.stop)

    def beat(self, step: int) -> None:
        """A step has come; told again of the same step it has not. Well below a microsecond; any thread."""
        if step == self._step and self._times:
            return
        self._step = step
        self._times.append(time.monotonic())

    def limit(self) -> float:
        """Seconds without a step that count as a stall, as things are now."""
        times = list(self._times)
        if self.busy is not None:
            with contextlib.suppress(Exception):
                if self.busy():
                    return max(self.long_seconds, self.seconds or 0.0)
        if not times:
            return max(self.long_seconds, self.seconds or 0.0)
        if self.seconds is not None:
            return self.seconds
        gaps = sorted(later - earlier for earlier, later in itertools.pairwise(times))
        if len(gaps) < 3:  # a first step that compiled is no measure, but the best there is
            return max(LEAST_SECONDS, STEPS * max(gaps, default=0.0))
        return max(LEAST_SECONDS, STEPS * gaps[len(gaps) // 2])

    def stop(self) -> None:
        """End the watch. In a forked child, which has no such thread, nothing."""
        if os.getpid() != self._owner or self._stop.is_set():
            return
        self._stop.set()
        if self._fallback is not None:
            faulthandler.cancel_dump_traceback_later()
        if threading.current_thread() is not self._thread:
            self._thread.join(1.0)
        if self._fallback is not None:
            with contextlib.suppress(OSError):
                empty = not self._dumped_bytes()
                self._fallback.close()
                if empty and self._folder is not None:
                    (self._folder / FALLBACK).unlink(missing_ok=True)

    # -- the thread ------------------------------------------------------------------------------------

    def _watch(self) -> None:
        pause = min(1.0, max(0.02, (self.seconds or LEAST_SECONDS) / 20))
        looked, before = time.monotonic(), -1.0
        while not self._stop.wait(pause):
            try:
                now = time.monotonic()
                since = self._times[-1] if self._times else self._began
                if since != before:
                    before, self._excused = since, 0.0
                    if self.stalled and since > self._stall_since:
                        self._resumed(since)
                limit = self.limit()
                if now - looked > pause + 1.0:  # neither did this thread run: no verdict on the training
                    self._excused += now - looked
                    self._was_held(now - looked, limit)
                looked = now
                waited = now - since - self._excused
                self._arm(limit, waited)
                if waited > limit and not self.stalled:
                    self._stall_since, self.stalled = since, True
                    self._stalls += 1
                    self._say(now - since, limit)
            except Exception as error:
                self.run.warn(f"the watchdog could not look at the ranks: {error}", key="watchdog")

    def _arm(self, limit: float, waited: float) -> None:
        """Python's own timer, in case this thread doesn't get the interpreter's lock any more."""
        if self._fallback is None or self._stop.is_set():
            return
        if self.stalled:
            faulthandler.cancel_dump_traceback_later()
        else:
            faulthandler.dump_traceback_later(max(limit - waited, 0.0) + limit / 4 + 0.5, file=self._fallback)

    def _dumped_bytes(self) -> int:
        return 0 if self._fallback is None else os.fstat(self._fallback.fileno()).st_size

    def _was_held(self, seconds: float, limit: float) -> None:
        """Python ran no more for a while, and runs again: say what faulthandler has written meanwhile."""
        if seconds < limit or not self._dumped_bytes() or self._folder is None:
            return
        text = (self._folder / FALLBACK).read_text(errors="replace")
        here = parse_dump(text)
        self._fallback.truncate(0)
        self.run.record(
            "stacks",
            self._step,
            {"lock_held": True, "waited_seconds": round(seconds, 3), "where": describe(here), "text": text[:20_000]},
        )
        self.run.warn(
            f"Python stood still for {seconds:.0f} s after step {self._step}: the interpreter's lock was held, or the "
            f"process was stopped. Rank {self.run.rank} {describe(here)}",
            key=f"held-{self._step}-{time.monotonic()}",
        )

    def _say(self, waited: float, limit: float) -> None:
        step = self._step
        threads = stacks(self._main)
        here = where(threads[0]["frames"]) if threads else {}
        about = {
            "waited_seconds": round(waited, 3),
            "limit_seconds": round(limit, 3),
            "rank": self.run.rank,
            "in_collective": bool(here.get("collective")),
            "where": describe(here),
            "threads": threads,
        }
        if self.busy is not None:
            with contextlib.suppress(Exception):
                if phase := self.busy():
                    about["phase"] = phase
        self.run.record("stacks", step, about)
        if self._folder is not None:
            note = {"rank": self.run.rank, "time": time.time(), "step": step, "waited_seconds": waited} | here
            with contextlib.suppress(OSError):
                write_whole(self._folder / FILE, note)
        self._sum_up(step, waited, here)

    def _sum_up(self, step: int, waited: float, here: dict[str, Any]) -> None:
        """Wait until the other ranks have written, then say it once: by the lowest rank that has."""
        found: dict[int, dict[str, Any]] = {self.run.rank: here | {"step": step}}
        noticed = time.time()
        deadline = time.monotonic() + self._settle
        while self.run.world_size > 1 and self._folder is not None:
            found.update(self._others(noticed - waited))
            if len(found) >= self.run.world_size or time.monotonic() > deadline or self._stop.wait(0.05):
                break
        if any(rank < self.run.rank and not item.get("gone") and item.get("file") for rank, item in found.items()):
            return  # a lower rank says it
        sentence = summary(found, self.run.world_size, waited, step)
        self.run.warn(sentence, key=f"stall-{self._stalls}-{step}")
        if self.run.world_size > 1:
            places = {str(rank): describe(item) for rank, item in sorted(found.items())}
            self.run.record("stacks", step, {"waited_seconds": round(waited, 3), "summary": sentence, "ranks": places})

    def _others(self, since: float) -> dict[int, dict[str, Any]]:
        """What the other ranks' files say of this stall, and whose process is gone."""
        assert self._folder is not None
        found: dict[int, dict[str, Any]] = {}
        for folder in self._folder.parent.iterdir():
            if folder == self._folder:
                continue
            note, alive = read_whole(folder / FILE), read_whole(folder / "heartbeat.json")
            rank = note.get("rank", alive.get("rank"))
            if not isinstance(rank, int):
                continue
            if note.get("time", 0.0) >= since:  # of this stall, not of an earlier one
                found[rank] = note
            elif alive.get("state") != "ended" and alive.get("launch") == place.launch_id() and rank not in found:
                held = _dumped(folder / FALLBACK, since)
                if held is not None:
                    found[rank] = held
                elif alive.get("host") == place.host() and is_gone(alive.get("pid")):
                    found[rank] = {"gone": alive.get("pid"), "host": alive.get("host")}
        return found

    def _resumed(self, now: float) -> None:
        self.stalled = False
        stood = now - self._stall_since
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / FILE).unlink(missing_ok=True)
        self.run.record("stacks", self._step, {"resumed": True, "stood_seconds": round(stood, 3)})
        if self.run.rank == 0:
            key = f"stall-over-{self._stalls}-{self._step}"
            self.run.warn(f"steps come again: step {self._step} after {stood:.0f} s", key=key)


# ---------------------------------------------------------------------------------------------
# Small files


def write_whole(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a JSON file in one move. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content))
    os.replace(temporary, path)


def read_whole(path: Path) -> dict[str, Any]:
    """The JSON object in a file; {} where it is missing or damaged."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def is_gone(pid: Any) -> bool:
    """Whether no process of this machine has that number."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, TypeError, ValueError):
        return False
    with contextlib.suppress(OSError, IndexError):  # dead, and nobody has asked for its exit code
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    return False


def _dumped(path: Path, since: float) -> dict[str, Any] | None:
    """Where the main thread was when faulthandler wrote, the lock being held; None if it wrote nothing since."""
    with contextlib.suppress(OSError):
        if path.stat().st_size and path.stat().st_mtime >= since:
            return parse_dump(path.read_text(errors="replace"))
    return None
