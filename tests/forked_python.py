"""Programs of tests, each in a process forked from one that has imported PyTorch: what is imported is there at once.

    process = forked_python.start(sys.executable, "-c", CODE, "argument", env=environment, stdout=subprocess.PIPE)
    done = forked_python.run(sys.executable, "train.py", cwd=folder, capture_output=True, text=True)

In:   a command of this Python, `-c CODE` or a file, with its arguments; options of `subprocess.Popen`; as `needs`, what
      else is imported once for all, beside PyTorch.
Out:  a `subprocess.Popen`, a `subprocess.CompletedProcess`.

The program is `__main__` and finds nothing of Barograph imported. As it ends, threads are waited for and what is
registered with `atexit` is called; what is left is not taken apart, which of PyTorch's million objects takes a second.
Variables that Python reads as it starts say nothing to it, and `/proc` has the server's command line. A test whose
subject is how a process starts or ends, or what is imported when, starts one of its own.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

# -- in the test's process -------------------------------------------------------------------------------------


class Forked(subprocess.Popen[Any]):
    """A program that a server has forked: its exit status comes through a pipe, as this process can't wait for it."""

    needs: tuple[str, ...] = ()

    def __init__(self, *command: Any, needs: tuple[str, ...] = (), **options: Any) -> None:
        self.needs = needs
        super().__init__([os.fspath(word) for word in command], **options)

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any,  # type: ignore[no-untyped-def, override]
                       cwd: Any, env: Any, startupinfo: Any, creationflags: Any, shell: Any, p2cread: int,
                       p2cwrite: int, c2pread: int, c2pwrite: int, errread: int, errwrite: int,
                       restore_signals: Any, gid: Any, gids: Any, uid: Any, umask: Any,
                       start_new_session: bool, *rest: Any) -> None:  # fmt: skip
        assert args[0] == sys.executable and not (preexec_fn or pass_fds or shell), "start a process of its own"
        asked = {
            "words": args[1:],
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": {os.fspath(name): os.fspath(value) for name, value in (os.environ if env is None else env).items()},
            "session": bool(start_new_session),
            "needs": self.needs,
        }
        self._status, status = os.pipe()
        given = [p2cread, c2pwrite, errwrite]
        try:
            fds = [number if fd == -1 else fd for number, fd in enumerate(given)]
            self.pid = _server().fork(asked, [*fds, status])
        finally:
            os.close(status)
            for fd in {fd for fd in given if fd != -1 and fd != getattr(self, "_devnull", None)}:
                os.close(fd)
            if getattr(self, "_devnull", None) is not None:
                os.close(self._devnull)
        self._child_created = True

    def _ended(self, seconds: float | None) -> int | None:
        """How it has ended, as `waitpid` says it; nothing of one that goes on."""
        if not select.select([self._status], [], [], seconds)[0]:
            return None
        said = os.read(self._status, 64)
        os.close(self._status)
        assert said, "the server of forked programs has gone"
        return int(said)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:  # type: ignore[override]
        ended = self._ended(0.0 if wait_flags & os.WNOHANG else None)
        return (0, 0) if ended is None else (self.pid, ended)

    def _internal_poll(self, _deadstate: Any = None, *rest: Any) -> int | None:  # type: ignore[override]
        if self.returncode is None and self._child_created and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None and (ended := self._ended(0.0)) is not None:
                    self.returncode = os.waitstatus_to_exitcode(ended)
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def start(*command: Any, needs: tuple[str, ...] = (), **options: Any) -> Forked:
    return Forked(*command, needs=needs, **options)


def run(
    *command: Any, timeout: float | None = None, check: bool = False, capture_output: bool = False, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run`."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(*command, **options) as process:
        try:
            said, told = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, said, told)
    if check:
        done.check_returncode()
    return done


class _Server:
    """The process that programs are forked from, as long as this one lives."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.answers = self.socket.makefile("rb")

    def fork(self, asked: dict[str, Any], fds: list[int]) -> int:
        line = json.dumps(asked).encode() + b"\n"
        sent = socket.send_fds(self.socket, [line[:1]], fds)
        self.socket.sendall(line[sent:])
        said = self.answers.readline()
        assert said, "the server of forked programs has gone"
        return int(said)


_servers: list[_Server] = []


def _server() -> _Server:
    if not _servers or _servers[0].owner != os.getpid():
        _servers[:] = [_Server()]
    return _servers[0]


# -- in the server ---------------------------------------------------------------------------------------------


def _received(ours: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next that is asked for; nothing once nobody asks any more."""
    size = array.array("i").itemsize
    line, more, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4 * size))
    if not line:
        return None
    fds = array.array("i", b"".join(data for _, _, data in more))
    while not line.endswith(b"\n"):
        line += ours.recv(1 << 20)
    return json.loads(line), list(fds)


def serve(ours: socket.socket) -> list[str] | None:
    """Forks what is asked for. In the child: the words of its command."""
    import gc

    import torch._dynamo
    import torch.distributed

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    children: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([ours, woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                woken.recv(4096)
            for child in list(children):
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    with contextlib.suppress(BrokenPipeError):
                        os.write(children[child], str(status).encode())
                    os.close(children.pop(child))
        if ours not in ready:
            continue
        if (received := _received(ours)) is None:
            return None
        asked, fds = received
        for name in asked["needs"]:
            __import__(name)
        *streams, status = fds
        child = os.fork()
        if not child:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (ours, woken, wake):
                one.close()
            for fd in (*children.values(), status):
                os.close(fd)
            enter(asked, streams)
            words: list[str] = asked["words"]
            return words
        for fd in streams:
            os.close(fd)
        children[child] = status
        ours.sendall(b"%d\n" % child)


def enter(asked: dict[str, Any], streams: list[int]) -> None:
    """This process gets what the program's has: streams, folder, variables, and chance of its own."""
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    for fd in streams:
        os.close(fd)
    if asked["session"]:
        os.setsid()
    os.chdir(asked["cwd"])
    before = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    os.environ.clear()
    os.environ.update(asked["env"])
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = given + [path for path in sys.path[1:] if path not in before and path not in given]
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


def main(words: list[str]) -> None:
    """The program, as `python` runs it."""
    import types
    import warnings

    while words[0] == "-W":
        warnings.simplefilter(words[1])  # type: ignore[arg-type]
        words = words[2:]
    if words[0] == "-c":
        source, name, arguments, place = words[1], "<string>", ["-c", *words[2:]], ""
    else:
        name, arguments = words[0], words
        with open(name) as file:
            source = file.read()
        place = os.path.dirname(os.path.abspath(name))
    sys.path.insert(0, place)
    sys.argv = arguments
    sys.orig_argv = [sys.executable, *words]
    module = types.ModuleType("__main__")
    if place:
        module.__file__ = name
    sys.modules["__main__"] = module
    code: Any = 0
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    except SystemExit as ended:
        code = ended.code
    except BaseException as error:
        told = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)  # without the line above
        sys.excepthook(type(error), told, told.__traceback__)
        code = 1
    end(code)


def end(code: Any) -> None:
    """As an interpreter ends, up to where it takes apart what is left."""
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    if (asked_for := serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        main(asked_for)
