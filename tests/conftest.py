"""Shared by all tests: a skip is a failure where everything needed must be there."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from clickhouse_server import clickhouse  # noqa: F401

# no deadline and no limit on generation: how long an example takes says how busy the machine is. In CI a commit's
# examples are always the same, so that a failure can be repeated; elsewhere every run tries others
hypothesis.settings.register_profile(
    "barograph",
    deadline=None,
    derandomize=bool(os.environ.get("CI") or os.environ.get("BAROGRAPH_CI")),
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("barograph")

# started behind nohup or in a background job, signals are ignored, and every process that a test starts inherits that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# a core for each worker: threads of a numeric library that wait for each other on cores that are taken spin
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("KERAS_BACKEND", "torch")  # the one that is installed


def _keep_what_is_there() -> None:
    """What was imported by now stays: no collection of garbage goes over a million objects again, and a watch that asks
    the process's objects finds about as many as in a training's own process."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish(session: pytest.Session) -> None:
    _keep_what_is_there()
    # what re-runs failed tests says each test's name to the first process in two small messages and waits for an
    # answer: without this, the second waits 40 ms for the first to be confirmed
    if (told := getattr(getattr(session.config, "failures_db", None), "sock", None)) is not None:
        told.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    """A test's trainings are watched as in a process in which no other test has compiled anything."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None:
        dynamo.counters.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("BAROGRAPH_CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, though everything should be there: {report.longrepr}"


def pytest_sessionfinish() -> None:
    """Processes that run tests beside each other end without what a process does at its end."""
    if reading := sys.modules.get("barograph.importing.temporary"):
        reading.end()


def _finish_runs_opened_since() -> Iterator[None]:
    """A test that fails in the middle leaves a run, which the tests behind it in the same process would find."""
    before = _open_runs()
    yield
    for run in _open_runs() - before:
        run.finish()


def _open_runs() -> set[Any]:
    ending = sys.modules.get("barograph.training.ending")
    return set(ending.open_runs) if ending else set()


@pytest.fixture(autouse=True, scope="module")
def _of_a_module() -> Iterator[None]:
    _keep_what_is_there()  # of the modules before it, too: they import, and what they call may thaw all that was kept
    yield from _finish_runs_opened_since()


_of_a_test = pytest.fixture(autouse=True, name="_of_a_test")(_finish_runs_opened_since)


@pytest.fixture(autouse=True)
def _no_options_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("BAROGRAPH_") and name not in ("BAROGRAPH_CI", "BAROGRAPH_REALLOGS"):
            monkeypatch.delenv(name)
    # a test that looks at all of a run's records says itself what it watches
    monkeypatch.setenv("BAROGRAPH_MACHINE", "false")
    monkeypatch.setenv("BAROGRAPH_WATCHDOG", "false")
    monkeypatch.setenv("BAROGRAPH_SIDECAR", "false")
