"""How a process ended that could not say so itself.

In:   a process's number, while it lives.
Out:  a descriptor to wait for its end with; then its exit code or signal, and whether the kernel killed it for memory.

The exit code of another process's child comes from the pidfd from Linux 6.15 on, before that by /proc as long as
nobody has fetched it; where neither works it stays unknown.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import time
from pathlib import Path
from typing import Any, NamedTuple

from barograph.core.liveness import is_dead, process_started

_GET_INFO = 0xC040FF0B  # PIDFD_GET_INFO, with the 64 bytes of its first version
_INFO_EXIT = 1 << 3
_INFO = struct.Struct("<QQ11Ii")
_EXIT_CODE = 49  # place of the exit code in /proc/PID/stat behind the name
_ASK_SECONDS = 0.3  # between a process's end and the moment at which the kernel tells of it
_SENT = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGALRM"})


class ProcessEnding(NamedTuple):
    """status: `crashed`, `killed`, `out of memory`, or `failed` where the run was ended. exit_code, signal: None where
    not known, or the other holds.

    oom_kills: processes that the kernel killed meanwhile because memory was full, in the process's control group or,
    where it has none of its own, on the host.
    """

    status: str
    exit_code: int | None
    signal: str | None
    oom_kills: int

    @property
    def reason(self) -> str:
        """It in words."""
        if self.status == "out of memory":
            return "the kernel killed the process because memory was full"
        if self.signal is not None:
            return f"the process was ended by {self.signal}"
        if self.status == "failed":
            return f"the process ended with exit code {self.exit_code}"
        if self.exit_code is not None:
            return f"the process ended with exit code {self.exit_code} and did not end the run"
        return "the process is gone; its exit code is not known"


class WatchedProcess:
    """A process whose end is waited for. `started`: in clock ticks since boot, to tell it from a later one.

    root: for tests, the place of /proc and /sys. pidfd: an open descriptor of it, where the process may be gone by now.
    """

    def __init__(self, pid: int, root: Path = Path("/"), pidfd: int = -1):
        self.pid = pid
        self.started = process_started(pid)
        self._descriptor = pidfd
        if pidfd < 0:
            with contextlib.suppress(OSError, AttributeError):
                self._descriptor = os.pidfd_open(pid)
        self._memory = _memory_files(root, pid)
        self._kills = self._count_kills()
        self._zombie: int | None = None

    def fileno(self) -> int:
        """A descriptor that can be read once the process has ended; -1 where there is none."""
        return self._descriptor

    def gone(self) -> bool:
        """Whether it has ended."""
        if self._zombie is not None or is_dead(self.pid):
            self._look()
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # another user's: it is there
        return self.started is not None and process_started(self.pid) != self.started

    def ending(self) -> ProcessEnding:
        """How it ended; to be asked once it is gone. Waits some tenths of a second for the kernel."""
        until = time.monotonic() + _ASK_SECONDS
        code = self._wait_status()
        while code is None and time.monotonic() < until:
            time.sleep(0.01)
            code = self._wait_status()
        return self.ending_as(code)

    def ending_as(self, code: int | None) -> ProcessEnding:
        """The same with a status as `wait` gives it, None where it is not known."""
        kills = max(0, self._count_kills() - self._kills)
        if code is None:
            return ProcessEnding("out of memory" if kills else "crashed", None, None, kills)
        if not os.WIFSIGNALED(code):
            return ProcessEnding("crashed", os.waitstatus_to_exitcode(code), None, kills)
        number = os.WTERMSIG(code)
        name = _signal_name(number)
        if number == signal.SIGKILL and kills:
            return ProcessEnding("out of memory", None, name, kills)
        return ProcessEnding("killed" if name in _SENT else "crashed", None, name, kills)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _wait_status(self) -> int | None:
        """The status as `wait` gives it."""
        if self._descriptor >= 0:
            buffer = bytearray(_INFO.pack(_INFO_EXIT, *[0] * 13))
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._descriptor, _GET_INFO, buffer)
                mask, *_, code = _INFO.unpack(buffer)
                if mask & _INFO_EXIT:
                    return int(code)
        self._look()
        return self._zombie

    def _look(self) -> None:
        """Keep the exit code that /proc tells as long as nobody has fetched it."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b")")[2].split()
            if words[0] in (b"Z", b"X") and self.started in (None, int(words[19])):
                self._zombie = int(words[_EXIT_CODE])

    def _count_kills(self) -> int:
        for path in self._memory:
            with contextlib.suppress(OSError, ValueError, IndexError):
                for line in path.read_text().splitlines():
                    name, _, count = line.partition(" ")
                    if name == "oom_kill":
                        return int(count)
        return 0


def _memory_files(root: Path, pid: int) -> list[Path]:
    """Files that count what the kernel killed for memory: of the process's control group, else of the host."""
    paths: list[Path] = []
    with contextlib.suppress(OSError):
        for line in (root / f"proc/{pid}/cgroup").read_text().splitlines():
            number, _, rest = line.partition(":")
            controllers, _, group = rest.partition(":")
            parts = [part for part in group.split("/") if part not in ("", ".", "..")]
            if number == "0":
                paths.append(root.joinpath("sys/fs/cgroup", *parts, "memory.events"))
            elif "memory" in controllers.split(","):
                paths.append(root.joinpath("sys/fs/cgroup/memory", *parts, "memory.oom_control"))
    return [*(path for path in paths if path.exists()), root / "proc/vmstat"]


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal, so that it may be sent. Linux alone can tell."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def as_fields(ending: ProcessEnding) -> dict[str, Any]:
    """An ending as fields of an `end` record."""
    fields: dict[str, Any] = {"status": ending.status, "reason": ending.reason}
    if ending.exit_code is not None:
        fields["exit_code"] = ending.exit_code
    if ending.signal is not None:
        fields["signal"] = ending.signal
    if ending.oom_kills:
        fields["oom_kills"] = ending.oom_kills
    return fields
