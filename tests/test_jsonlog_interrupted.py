"""A log call that a signal handler or a disk interrupts anywhere: each record once, and every file valid JSON.

The operating system's calls are counted. At each of them in turn a handler comes before or after it, which logs, raises
or both; the disk refuses or takes only a part.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barograph.core.record import Record, encode
from barograph.log.read import read_log
from barograph.log.write import JsonLog, mend

CALLS = ("pwrite", "pread", "ftruncate", "fstat")


def record(name: str, size: int = 60) -> bytes:
    return encode(Record("info", 1_700_000_000_000_000, 1, {"name": name, "text": "x" * size}))


class Interrupter:
    """Something happens at the call of number `at` (from 1): `before` or after it."""

    def __init__(self, patch: pytest.MonkeyPatch, happen: Any, at: int, before: bool, calls: tuple[str, ...] = CALLS):
        self.count, self._happen, self._at, self._before = 0, happen, at, before
        for name in calls:
            patch.setattr(f"barograph.log.array.os.{name}", self._wrapped(getattr(os, name)))

    def _wrapped(self, real: Any) -> Any:
        def call(*arguments: Any) -> Any:
            self.count += 1
            now = self.count == self._at
            if now and self._before:
                self._happen()
            found = real(*arguments)
            if now and not self._before:
                self._happen()
            return found

        return call


@pytest.fixture
def handled() -> Iterator[list[Any]]:
    """What a handler of SIGUSR1 does, as functions; it is installed."""
    work: list[Any] = []

    def handler(*_: object) -> None:
        for each in work:
            each()

    before = signal.signal(signal.SIGUSR1, handler)
    yield work
    signal.signal(signal.SIGUSR1, before)


def names(path: Path) -> Counter[str]:
    return Counter(item["name"] for item in read_log(path) if "name" in item)


def strict(path: Path) -> None:
    json.loads(path.read_bytes())


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def stop() -> None:
    raise TimeoutError("the time of this job is over")


def write_all(log: JsonLog, returned: list[str]) -> int:
    """Short records, one that moves the bracket, a long one; how many exceptions came out."""
    raised = 0
    for name, size in (("a", 60), ("b", 3900), ("c", 60), ("d", 20_000), ("e", 3900), ("f", 60), ("g", 60)):
        try:
            log.append(record(name, size))
            returned.append(name)
        except TimeoutError:
            raised += 1
    return raised


@pytest.mark.parametrize("raises", [False, True], ids=["returns", "raises"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_handler_at_any_call_doubles_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handled: list[Any], before: bool, raises: bool
) -> None:
    for at in range(1, 200):
        path, returned, happened = tmp_path / f"{at}.json", [], []
        log = JsonLog(path)

        def logs(log: JsonLog = log, returned: list[str] = returned, happened: list[int] = happened) -> None:
            log.append(record("handler"))
            log.append(record("long handler", 9000))
            returned.extend(("handler", "long handler"))
            happened.append(1)

        handled[:] = [logs, stop] if raises else [logs]
        with monkeypatch.context() as patch:
            calls = Interrupter(patch, interrupt, at, before)
            raised = write_all(log, returned)
        strict(path)
        log.append(record("last"))
        log.close()
        strict(path)
        found = names(path)
        assert all(found[name] == 1 for name in (*returned, "last")), (at, found)
        assert max(found.values()) == 1, (at, found)
        assert raised == len(happened) * raises
        if calls.count < at:
            return
    raise AssertionError("the calls never end")


@pytest.mark.parametrize("during", ["retry", "close"])
def test_a_handler_that_logs_while_what_waited_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handled: list[Any], during: str
) -> None:
    for at in range(1, 200):
        path = tmp_path / f"{at}.json"
        warned: list[str] = []
        log = JsonLog(path, warned.append)
        log.append(record("first"))
        waiting = full_disk(log, monkeypatch)
        closed: list[bool] = []
        handled[:] = [lambda log=log, closed=closed: (closed.append(log.closed), log.append(record("handler")))]
        with monkeypatch.context() as patch:
            calls = Interrupter(patch, interrupt, at, before=True)
            log._retry_at = 0.0
            log.retry() if during == "retry" else log.close()
        log.close()
        strict(path)
        found = names(path)
        assert all(found[name] == 1 for name in ("first", *waiting)), (at, found)
        assert found["handler"] + log.lost == bool(closed), (at, found)
        if calls.count < at:
            return
    raise AssertionError("the calls never end")


def full_disk(log: JsonLog, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records that wait, as the disk refused them."""

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("barograph.log.array.os.pwrite", refuse)
        for name in ("w1", "w2", "w3"):
            log.append(record(name))
    assert log.waiting
    return ["w1", "w2", "w3"]


@pytest.mark.parametrize("takes", [0, 1, 2, 70])
def test_a_disk_that_refuses_any_one_write_doubles_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: int
) -> None:
    """takes: bytes that it takes of it."""
    for at in range(1, 200):
        path, returned = tmp_path / f"{takes}-{at}.json", []
        log = JsonLog(path, lambda sentence: None)
        real, count = os.pwrite, 0

        def write(descriptor: int, data: bytes, offset: int, real: Any = real, at: int = at) -> int:
            nonlocal count
            count += 1
            if count != at:
                return real(descriptor, data, offset)
            if takes == 0:
                raise OSError(28, "No space left on device")
            return real(descriptor, data[:takes], offset)

        with monkeypatch.context() as patch:
            patch.setattr("barograph.log.array.os.pwrite", write)
            write_all(log, returned)
            log.close()
        strict(path)
        found = names(path)
        assert {name: found[name] for name in returned} == dict.fromkeys(returned, 1), at
        if count < at:
            return
    raise AssertionError("the writes never end")


@pytest.mark.parametrize("ends", [False, True], ids=["written", "ended"])
def test_a_kill_at_any_call_leaves_a_file_that_is_valid_once_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """ends: the log is closed, too."""
    needed = 0
    for at in range(1, 200):
        path, told = tmp_path / f"{at}.json", tmp_path / f"{at}.told"
        child = os.fork()
        if child == 0:
            try:
                log = JsonLog(path)
                killed = Interrupter(monkeypatch, lambda: os._exit(3), at, before=True)
                out = os.open(told, os.O_WRONLY | os.O_CREAT)
                for name, size in (("a", 60), ("b", 3900), ("c", 60), ("d", 20_000), ("e", 60)):
                    log.append(record(name, size))
                    os.write(out, name.encode())
                if ends:
                    log.close()
                os._exit(0 if killed.count < at else 3)
            finally:
                os._exit(9)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) in (0, 3)
        needed += mend(path)
        assert not mend(path)
        strict(path)
        found = names(path)
        assert all(found[name] == 1 for name in told.read_text())
        assert max(found.values(), default=1) == 1
        if os.waitstatus_to_exitcode(status) == 0:
            assert needed >= 1  # the bracket was just being moved
            return
    raise AssertionError("the calls never end")


def test_a_log_that_is_written_is_not_mended(tmp_path: Path) -> None:
    """Neither by this process nor by another one."""
    path = tmp_path / "training.json"
    log = JsonLog(path)
    log.append(record("a"))
    os.pwrite(log._file.descriptor, b"]", log._file.bracket + 1)  # as while the bracket is moved
    assert not mend(path) and not log.closed
    child = os.fork()
    if child == 0:
        log.abandon()
        os._exit(1 if mend(path) else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    log.abandon()
    assert mend(path)
    strict(path)
    assert names(path) == {"a": 1}
