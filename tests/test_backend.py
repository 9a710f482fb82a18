"""A backend may hang, die, be slow or missing: the training never waits, and what was not sent is counted."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import patient

from barograph.trackers.backend import LoggingBackend


class Kept(LoggingBackend):
    """Keeps what it is given, and does what a test wants in between."""

    name, package, install = "Kept", "kept", "pip install kept"
    poll_seconds = 0.01
    stall_seconds = 0.2
    close_seconds = 5.0

    def __init__(self, on_write: Callable[[int], Any] = lambda step: None, **named: Any):
        super().__init__(**named)
        self.rows: list[tuple[int, dict[str, Any]]] = []
        self.events: list[str] = []
        self.on_write = on_write

    def _open(self) -> None:
        self.events.append("open")

    def _write(self, metrics: dict[str, Any], step: int, seconds: float) -> None:
        self.on_write(step)
        self.rows.append((step, metrics))

    def _close(self) -> None:
        self.events.append("close")


@pytest.fixture
def forever() -> Any:
    """An event that is set when the test is over, so that no thread outlives it for long."""
    event = threading.Event()
    yield event
    event.set()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_records_arrive_whole_and_in_order(caplog: pytest.LogCaptureFixture) -> None:
    backend = Kept()
    for step in range(500):
        backend.log({"a": step, "b/c": step / 2}, step)
    assert backend.close()
    assert backend.rows == [(step, {"a": step, "b/c": step / 2}) for step in range(500)]
    assert backend.events == ["open", "close"]
    assert not warnings_of(caplog)


def test_nothing_is_opened_before_the_first_record() -> None:
    backend = Kept()
    assert backend.close()
    assert backend.events == []
    backend.log({"a": 1.0}, 1)
    assert backend.rows == [] and backend.lost == 0


def test_values_are_those_of_the_moment_of_the_call() -> None:
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    backend = Kept()
    metrics = {"a": 1.0}
    array, tensor = numpy.array(2.0), torch.tensor(3.0)
    backend.log(metrics, 1)
    more: dict[Any, Any] = {"array": array, "tensor": tensor, "nested": {"deep": numpy.float32(4)}, 5: True}
    backend.log(more, 2)
    metrics["a"], metrics["b"] = 9.0, 9.0
    array += 1
    tensor += 1
    assert backend.close()
    assert backend.rows == [(1, {"a": 1.0}), (2, {"array": 2.0, "tensor": 3.0, "nested/deep": 4.0, "5": True})]


@pytest.mark.parametrize("metrics", [None, 7, {"a": object()}, {object(): [1, 2]}, {"a": {"b": {}}}])
def test_nothing_that_is_logged_raises(metrics: Any) -> None:
    backend = Kept()
    backend.log(metrics, 1)
    backend.log_config(metrics)
    backend.log_histogram(metrics, metrics, metrics, metrics)
    backend.log({"a": 1.0}, "no step")  # type: ignore[arg-type]
    backend.log({"a": 1.0}, float("nan"))  # type: ignore[arg-type]
    backend.log({"a": 1.0}, 10**30)
    backend.close()
    assert backend.rows[-1] == (2**63 - 1, {"a": 1.0})


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=60),
    room=st.integers(1, 8),
    values=st.integers(1, 20),
    refused=st.sets(st.integers(0, 59), max_size=5),
)
def test_every_record_is_sent_in_order_or_counted(sizes: list[int], room: int, values: int, refused: set[int]) -> None:
    gate = threading.Event()

    def wait_or_refuse(step: int) -> None:
        gate.wait(5)
        if step in refused:
            raise ValueError("not this one")

    backend = Kept(wait_or_refuse)
    backend.queue_records, backend.queue_values = room, values
    for step, size in enumerate(sizes):
        backend.log({str(number): 1.0 for number in range(size)}, step)
        if step == len(sizes) // 2:
            gate.set()
    backend.close()
    sent = [step for step, _ in backend.rows]
    assert sent == sorted(sent)
    assert len(sent) + backend.lost == len(sizes)
    assert not refused & set(sent)
    assert all(len(metrics) == sizes[step] for step, metrics in backend.rows)


def test_no_record_of_several_threads_is_lost() -> None:
    backend = Kept()

    def log(thread: int) -> None:
        for step in range(300):
            backend.log({"thread": thread}, step)

    threads = [threading.Thread(target=log, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert backend.close()
    for number in range(4):
        assert [step for step, row in backend.rows if row["thread"] == number] == list(range(300))


def test_a_hang_costs_no_step_one_warning_and_a_bounded_end(
    caplog: pytest.LogCaptureFixture, forever: threading.Event
) -> None:
    backend = Kept(lambda step: forever.wait(), log_file="runs/a/training.json")
    backend.queue_records = 50
    slowest = 0.0
    for step in range(200):
        began = time.perf_counter()
        backend.log({"a": 1.0}, step)
        slowest = max(slowest, time.perf_counter() - began)
        if step == 5:
            time.sleep(0.05)  # the thread takes one and hangs
    assert slowest < 0.1
    began = time.monotonic()
    assert not backend.close()
    assert time.monotonic() - began < patient(2)
    assert backend.lost == 200
    [warning] = warnings_of(caplog)
    assert "Kept does not keep up" in warning and "runs/a/training.json" in warning
    assert backend.close() is False


@pytest.mark.parametrize("where", ["_open", "_flush", "_close"])
def test_a_hang_anywhere_ends_in_time(
    where: str, caplog: pytest.LogCaptureFixture, forever: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Kept()
    monkeypatch.setattr(backend, where, lambda: forever.wait())
    backend.log({"a": 1.0}, 1)
    time.sleep(0.05)
    began = time.monotonic()
    backend.close(timeout=0.5)
    assert time.monotonic() - began < patient(1.5)
    [warning] = warnings_of(caplog)
    assert "did not end in time" in warning


def test_after_a_hang_that_ends_the_backend_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    backend = Kept(lambda step: gate.wait(5))
    backend.queue_records = 10
    for step in range(30):
        backend.log({"a": 1.0}, step)
    gate.set()
    time.sleep(0.1)
    backend.log({"a": 1.0}, 99)
    assert not backend.close()
    assert backend.rows[-1][0] == 99
    assert len(backend.rows) + backend.lost == 31
    assert len(warnings_of(caplog)) == 1


def test_one_refused_record_costs_one_warning_and_no_other_record(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(step: int) -> None:
        if step in (3, 4, 7):
            raise RuntimeError(f"step {step} is bad")

    backend = Kept(refuse)
    for step in range(10):
        backend.log({"a": 1.0}, step)
    assert not backend.close()
    assert [step for step, _ in backend.rows] == [0, 1, 2, 5, 6, 8, 9]
    assert backend.lost == 3
    [warning] = warnings_of(caplog)
    assert "refused a record (RuntimeError: step 3 is bad)" in warning


def test_refusing_everything_turns_it_off_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(step: int) -> None:
        raise SystemExit("the server said no")

    backend = Kept(refuse)
    for step in range(100):
        backend.log({"a": 1.0}, step)
    assert not backend.close()
    assert backend.lost == 100
    [warning] = warnings_of(caplog)
    assert "refused 20 records in a row and is off now" in warning
    assert backend.events == ["open", "close"]


def test_a_library_that_is_not_there_costs_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Missing(Kept):
        package = "no_such_library"

        def _open(self) -> None:
            import no_such_library  # type: ignore[import-not-found]  # noqa: F401

    backend = Missing()
    for step in range(50):
        backend.log({"a": 1.0}, step)
    backend.close()
    [warning] = warnings_of(caplog)
    assert warning == "barograph: Kept gets no copy of this run; it needs pip install kept"


def test_a_start_that_fails_costs_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Kept):
        def _open(self) -> None:
            raise PermissionError("not yours")

    backend = Broken()
    backend.log({"a": 1.0}, 1)
    backend.close()
    [warning] = warnings_of(caplog)
    assert "could not start" in warning and "PermissionError: not yours" in warning


@pytest.mark.parametrize("rank", ["1", "7"])
def test_only_rank_zero_sends(rank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "8")
    backend = Kept()
    backend.log({"a": 1.0}, 1)
    assert backend.close()
    assert backend.rows == [] and backend.events == []


@pytest.mark.parametrize(("edges", "counts"), [([0, 1], [1, 2]), ([], []), ([0, 1, 2], [1])])
def test_a_crooked_histogram_is_refused_once(edges: Any, counts: Any, caplog: pytest.LogCaptureFixture) -> None:
    backend = Kept()
    backend.log_histogram("h", edges, counts, 1)
    backend.log({"a": 1.0}, 2)
    backend.close()
    assert len(warnings_of(caplog)) == 1 and backend.rows == [(2, {"a": 1.0})]


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_a_forked_child_neither_sends_nor_waits() -> None:
    backend = Kept()
    backend.log({"a": 1.0}, 1)
    child = os.fork()
    if child == 0:
        began = time.monotonic()
        backend.log({"a": 2.0}, 2)
        backend.close()
        os._exit(0 if time.monotonic() - began < 0.5 else 1)
    assert os.waitpid(child, 0)[1] == 0
    backend.log({"a": 3.0}, 3)
    assert backend.close()
    assert backend.rows == [(1, {"a": 1.0}), (3, {"a": 3.0})]


PROGRAM = """
import sys, time
sys.path[:0] = [{tests!r}]
from test_backend import Kept
"""


def run_program(body: str, folder: Path) -> tuple[float, str, str]:
    """Seconds, output and errors of a program in a process of its own."""
    source = PROGRAM.format(tests=str(Path(__file__).parent)) + textwrap.dedent(body)
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", source], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began, done.stdout, done.stderr


def test_the_end_of_the_program_sends_what_waits(tmp_path: Path) -> None:
    body = """
        class Printing(Kept):
            def _write(self, metrics, step, seconds):
                time.sleep(0.002)
                print(step)
        backend = Printing()
        for step in range(100):
            backend.log({"a": 1.0}, step)
    """
    _, out, _ = run_program(body, tmp_path)
    assert out.split() == [str(step) for step in range(100)]


@pytest.mark.parametrize("where", ["_open", "_write", "_close"])
def test_a_program_ends_though_a_library_hangs_and_would_hang_at_exit_too(where: str, tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(
        "import atexit, time\ndef wait():\n    time.sleep(600)\ndef start():\n    atexit.register(wait)\n"
    )
    body = f"""
        class Hanging(Kept):
            package = "hanging"
            close_seconds = 0.5
            def _open(self):
                sys.path.insert(0, ".")
                import hanging
                hanging.start()
                self._hang("_open")
            def _write(self, *arguments):
                self._hang("_write")
            def _close(self):
                self._hang("_close")
            def _hang(self, place):
                if place == {where!r}:
                    time.sleep(600)
        backends = [Hanging(), Hanging()]
        for backend in backends:
            backend.log({{"a": 1.0}}, 1)
        time.sleep(0.1)
    """
    seconds, _, errors = run_program(body, tmp_path)
    assert seconds < patient(10)
    assert errors.count("did not end in time") == 2


@pytest.mark.parametrize(
    ("what", "send"),
    [
        ("configuration", lambda backend: backend.log_config({"lr": 1.0})),
        ("histograms", lambda backend: backend.log_histogram("loss", [0.0, 1.0], [2.0], 1)),
    ],
)
def test_what_a_class_has_no_method_for_is_refused_with_one_warning(
    what: str, send: Callable[[LoggingBackend], None], caplog: pytest.LogCaptureFixture
) -> None:
    backend = Kept()
    send(backend)
    backend.log({"a": 1.0}, 1)
    assert not backend.close() and backend.lost == 1
    assert backend.rows == [(1, {"a": 1.0})]
    (warning,) = warnings_of(caplog)
    assert f"Kept gets no {what}" in warning
