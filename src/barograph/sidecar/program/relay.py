"""The program, and what it prints passed on: `barograph run -- python train.py`.

In:   a command line; this process's terminal, pipes and signals.
Out:  the same program with the same output and exit code; what it printed in files; a process that records it.

The program stays in this process's group and keeps its standard input, so the terminal's own keys (Ctrl-C, Ctrl-Z)
reach it as they would have. Where our output is a terminal, it gets a terminal too, of the same size, else a pipe; one
for both where standard output and error are one, so that their order is kept. A process that it leaves behind keeps its
output: a copy of this one goes on passing it on.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import stat
import subprocess
import sys
import termios
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barograph.core.options import PROGRAM_VARIABLE
from barograph.sidecar.program.output import FOLDER, OutputFile

JOINED = ".program"
NOT_FOUND, NOT_EXECUTABLE = 127, 126
_CHUNK = 1 << 16
_QUIET = 0.1  # seconds without output after the program's end: what still holds it is left behind
_AFTER = 1.0  # the longest that is waited for that
_RECORDED = 20.0  # seconds that the end waits for the record
_PASSED_ON = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH")
)
_PR_SET_PDEATHSIG = 1


class OutputChannel(NamedTuple):
    """One way of the program's output. source: where we read it; target: where it goes."""

    name: str
    source: int
    target: int
    ours: tuple[int, ...]  # the program's descriptors that it stands for
    slave: int
    is_terminal: bool


class Relay:
    """One program. folder: of the run, None where nothing can be recorded."""

    def __init__(self, command: Sequence[str], folder: Path | None):
        self.command, self.folder = list(command), folder
        self.channels = _channels()
        self.process: subprocess.Popen[bytes] | None = None
        self._recorder: subprocess.Popen[bytes] | None = None
        self._wake = os.pipe()
        self._interrupted = threading.Event()
        self._files: dict[str, OutputFile] = {}
        if folder is not None:
            (folder / FOLDER).mkdir()
            self._files = {item.name: OutputFile(folder / FOLDER, item.name) for item in self.channels}

    def run(self, about: dict[str, Any]) -> int:
        """The program's exit code. about: what the recorder is given besides. Raises OSError where it can't start."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # none is lost while there is no program yet
        try:
            self._start(mask)
        except BaseException:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            raise
        self._record(about, mask)
        threading.Thread(target=self._wait, daemon=True).start()
        threading.Thread(target=self._pass_signals_on, daemon=True).start()
        is_left = self._pass_output_on()
        assert self.process is not None
        code = self.process.wait()
        if is_left and self._goes_on_elsewhere():
            return code
        self._end(code)
        self._wait_for_record()
        return code

    # -- the start -----------------------------------------------------------------------------------

    def _start(self, mask: set[Any]) -> None:
        ends = {number: channel.slave for channel in self.channels for number in channel.ours}
        environment = dict(os.environ)
        environment.pop(PROGRAM_VARIABLE, None)
        if self.folder is not None:
            environment[PROGRAM_VARIABLE] = str((self.folder / JOINED).absolute())
            (self.folder / JOINED).touch()
        own = os.getpid()
        library = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

        def before() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            if library is not None:  # killed, we close its output: it is hung up on, as by a terminal that is closed
                library.prctl(_PR_SET_PDEATHSIG, int(signal.SIGHUP), 0, 0, 0)
                if os.getppid() != own:
                    os.kill(os.getpid(), signal.SIGHUP)

        self.process = subprocess.Popen(
            self.command,
            stdout=ends.get(1),
            stderr=ends.get(2),
            env=environment,
            close_fds=False,  # what we were given is for the program: `<(…)` of a shell, a job server
            preexec_fn=before,
        )
        for channel in self.channels:
            os.close(channel.slave)

    def _record(self, about: dict[str, Any], mask: set[Any]) -> None:
        """Start the process that records."""
        if self.folder is None or self.process is None:
            return
        environment = {name: value for name, value in os.environ.items() if name != PROGRAM_VARIABLE}
        line = about | {"command": self.command, "pid": self.process.pid, "outputs": list(self._files)}
        try:
            self._recorder = subprocess.Popen(
                [sys.executable, "-m", "barograph.sidecar.program", str(self.folder.absolute())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
            )
        except OSError as error:
            _warn(f"no process to record the program could be started ({error.strerror or error})")
            return
        self._tell(line)

    def _tell(self, line: dict[str, Any]) -> None:
        if self._recorder is not None and self._recorder.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._recorder.stdin.write(json.dumps(line, default=str).encode() + b"\n")
                self._recorder.stdin.flush()

    # -- while it runs -------------------------------------------------------------------------------

    def _wait(self) -> None:
        """In a thread: until the program has ended."""
        assert self.process is not None
        self.process.wait()
        os.write(self._wake[1], b"x")

    def _pass_signals_on(self) -> None:
        """In a thread: what was sent to this process alone is sent to the program; what came from the terminal has
        reached it already."""
        assert self.process is not None
        while True:
            if hasattr(signal, "sigwaitinfo"):
                came = signal.sigwaitinfo(_PASSED_ON)
                number, by_terminal = came.si_signo, came.si_code > 0
            else:
                number = int(signal.sigwait(_PASSED_ON))
                by_terminal = number in (signal.SIGINT, signal.SIGQUIT) and _is_in_front()
            if self.process.returncode is not None:
                if number != signal.SIGWINCH:
                    self._interrupted.set()
                continue
            if number == signal.SIGWINCH:
                for channel in self.channels:
                    if channel.is_terminal:
                        _copy_size(channel.target, channel.source)
            if not by_terminal or number == signal.SIGWINCH:  # the size may have been asked for before it was copied
                with contextlib.suppress(OSError):
                    os.kill(self.process.pid, number)

    def _pass_output_on(self) -> bool:
        """Until all outputs are closed; True: the program has ended, and something else still has them."""
        left = {channel.source: channel for channel in self.channels}
        poll = select.poll()
        for source in (*left, self._wake[0]):
            poll.register(source, select.POLLIN)
        until = None
        while left:
            ready = poll.poll(None if until is None else _QUIET * 1000)
            if until is not None and (not ready or time.monotonic() > until):
                return True
            for source, _ in ready:
                if source == self._wake[0]:
                    poll.unregister(source)
                    until = time.monotonic() + _AFTER
                elif not self._copy(left[source]):
                    poll.unregister(source)
                    os.close(source)
                    del left[source]
        return False

    def _copy(self, channel: OutputChannel) -> bool:
        """What there is of one output; False: there is no more, or nobody to take it."""
        try:
            data = os.read(channel.source, _CHUNK)
        except OSError:  # a terminal that nobody has open any more
            data = b""
        if not data:
            return False
        file = self._files.get(channel.name)
        if file is not None:
            file.write(data)
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(channel.target, view) :]
            except BlockingIOError:
                select.select([], [channel.target], [])
            except OSError:  # its reader has gone, so the program's next write fails as it would have
                return False
        return True

    # -- the end -------------------------------------------------------------------------------------

    def _goes_on_elsewhere(self) -> bool:
        """Leave the output to a copy of this process; whether this is the original."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                if os.fork():
                    return True
            except OSError:
                return False
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        left = [channel for channel in self.channels if _is_open(channel.source)]
        poll = select.poll()
        by_source = {channel.source: channel for channel in left}
        for source in by_source:
            poll.register(source, select.POLLIN)
        while by_source:
            for source, _ in poll.poll():
                if not self._copy(by_source[source]):
                    poll.unregister(source)
                    os.close(source)
                    del by_source[source]
        assert self.process is not None
        self._end(self.process.returncode)
        os._exit(0)

    def _end(self, code: int) -> None:
        problems = {name: file.problem for name, file in self._files.items() if file.problem}
        for file in self._files.values():
            file.close()
        self._tell({"code": code, "problems": problems})
        if self._recorder is not None and self._recorder.stdin is not None:
            with contextlib.suppress(OSError):
                self._recorder.stdin.close()

    def _wait_for_record(self) -> None:
        until = time.monotonic() + _RECORDED
        while self._recorder is not None and self._recorder.poll() is None and time.monotonic() < until:
            if self._interrupted.wait(0.02):
                return


def run_program(command: Sequence[str], folder: Path | None, about: dict[str, Any]) -> int:
    """The exit code of the program; where a signal ended it, this process ends by the same one."""
    try:
        relay = Relay(command, folder)
    except OSError as error:
        _warn(f"nothing is recorded: {error.strerror or error} ({error.filename or folder})")
        relay = Relay(command, None)
    try:
        code = relay.run(about)
    except (OSError, ValueError) as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, FileNotFoundError) and error.filename not in (None, command[0]):
            raise
        what = (
            "command not found" if isinstance(error, FileNotFoundError) else getattr(error, "strerror", None) or error
        )
        print(f"barograph: {command[0]}: {what}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    if code < 0:
        _end_by(-code)
    return code


def _end_by(number: int) -> None:
    """End as the program did, so that a shell says the same of it."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, ValueError):
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(128 + number)


def _channels() -> list[OutputChannel]:
    """One for both outputs where they are one, else one each; none for one that is closed."""
    open_ones = [number for number in (1, 2) if _is_open(number)]
    if len(open_ones) == 2 and _same(1, 2):
        return [_channel("output", (1, 2))]
    return [_channel("output" if number == 1 else "errors", (number,)) for number in open_ones]


def _channel(name: str, ours: tuple[int, ...]) -> OutputChannel:
    target = ours[0]
    if os.isatty(target):
        source, slave = os.openpty()
        mode = termios.tcgetattr(slave)
        mode[1] &= ~termios.OPOST  # the terminal itself turns line feeds into what it needs
        termios.tcsetattr(slave, termios.TCSANOW, mode)
        _copy_size(target, source)
        return OutputChannel(name, source, target, ours, slave, True)
    source, slave = os.pipe()
    return OutputChannel(name, source, target, ours, slave, False)


def _copy_size(target: int, source: int) -> None:
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(target, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(source, termios.TIOCSWINSZ, size)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _same(first: int, second: int) -> bool:
    one, other = os.fstat(first), os.fstat(second)
    if stat.S_ISCHR(one.st_mode) and stat.S_ISCHR(other.st_mode):
        return one.st_rdev == other.st_rdev
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _is_in_front() -> bool:
    """Whether the terminal's keys reach this process's group."""
    with contextlib.suppress(OSError):
        handle = os.open("/dev/tty", os.O_RDONLY)
        try:
            return os.tcgetpgrp(handle) == os.getpgrp()
        finally:
            os.close(handle)
    return False


def _warn(sentence: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"barograph: {sentence}", file=sys.stderr)
