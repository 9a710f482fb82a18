"""The sampler: records at their pace, one message when something is wrong, and nobody waits for it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvml_answers import LOST, Fail, Nvml, h100, old
from patience import patient

import barograph
from barograph.core.record import Record, numbers
from barograph.probes.machine import nvml
from barograph.probes.machine import sampler as machine
from barograph.probes.machine.nvml import Nvidia
from barograph.probes.machine.readings import MissingError, News
from barograph.probes.machine.sampler import Machine
from barograph.testing import FakeRun


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(machine, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(nvml, "physical_count", lambda: 0)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[FakeRun]:
    recorder = FakeRun(tmp_path, step=7)
    yield recorder
    recorder.finish()


def until(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def watched(run: FakeRun, *devices: Any, **options: Any) -> tuple[Machine, Nvml]:
    library = Nvml(list(devices))
    options = {"sample_seconds": 0.02, "record_seconds": 0.1, "backends": [Nvidia(library, {})]} | options
    return Machine(run, **options).start(), library


def test_records_come_at_their_pace_with_the_runs_step(run: FakeRun) -> None:
    sampler, _ = watched(run, h100(), h100(1))
    until(lambda: len(run.of("gpu")) >= 6 and len(run.of("host")) >= 3)
    assert [fields["id"] for fields in run.of("gpu")[:4]] == [0, 1, 0, 1]
    assert [fields["id"] for fields in run.of("gpu-model")] == [0, 1] and sampler.devices == [0, 1]
    assert {step for _, step, _ in run.records} == {7}
    assert all(next(iter(fields)) == "id" for fields in run.of("gpu"))
    series = dict(numbers(Record("gpu", 0, 7, run.of("gpu")[1])))
    assert series["gpu/1/power"] == run.of("gpu")[1]["power"]
    assert set(sampler.energy) == {0, 1}
    assert run.warnings == [] and run.of("info") == []


def test_the_end_writes_what_came_since_the_last_record_and_then_nothing(run: FakeRun) -> None:
    _, library = watched(run, h100(), record_seconds=3600.0)
    until(lambda: len(run.of("gpu")) == 1 and len(run.of("host")) == 1)  # the first record comes soon
    time.sleep(0.1)
    began = time.monotonic()
    run.finish()
    assert time.monotonic() - began < patient(machine.STOP_SECONDS + 0.3)
    assert len(run.of("gpu")) == 2 and len(run.of("host")) == 2
    assert library.initialised == 0
    count = len(run.records)
    time.sleep(0.1)
    assert len(run.records) == count


def test_settings_say_how_often_there_is_a_record(tmp_path: Path) -> None:
    assert Machine(FakeRun(tmp_path, machine_seconds=25.0))._record_seconds == 25
    assert Machine(FakeRun(tmp_path), record_seconds=0.5)._record_seconds == 1  # not more often than samples


def test_a_very_short_run_asks_nobody(run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "QUIET_SECONDS", 30.0)
    device = h100()
    _, library = watched(run, device)
    began = time.monotonic()
    run.finish()
    assert time.monotonic() - began < patient(0.4)
    assert run.records == [] and library.initialised == 0 and not device.calls


def test_without_a_gpu_the_log_says_so_once_and_the_console_nothing(run: FakeRun) -> None:
    reason = MissingError("no NVIDIA driver here")

    def nothing() -> None:
        raise reason

    absent: Any = SimpleNamespace(name="NVML", open=nothing, news=list)
    Machine(run, 0.02, 0.1, backends=[absent]).start()
    until(lambda: len(run.of("host")) >= 3)
    (said,) = run.of("info")
    assert said["text"] == "no GPU found: no NVIDIA driver here" and said["type"] == "machine"
    assert "message" not in said, "the console shows an info record's message"
    assert run.warnings == [] and run.of("gpu") == []


def test_a_lost_gpu_is_one_warning_and_one_record_and_the_other_goes_on(run: FakeRun) -> None:
    first, second = h100(), h100(1)
    watched(run, first, second)
    until(lambda: len(run.of("gpu")) >= 2)
    first.answers = {"everything": Fail(LOST)}
    until(lambda: run.warnings)
    before = len(run.of("gpu"))
    until(lambda: len(run.of("gpu")) >= before + 3)
    assert {fields["id"] for fields in run.of("gpu")[before:]} == {1}
    (warning,) = run.warnings
    assert "GPU 0" in warning and "fallen off the bus" in warning
    (said,) = run.of("info")
    assert (said["event"], said["id"], said["text"]) == ("lost", 0, warning)


def test_a_hanging_driver_is_told_once_holds_up_nobody_and_is_told_when_it_is_back(run: FakeRun) -> None:
    device = h100()
    sampler, _ = watched(run, device)
    sampler._host_thread_hangs = 0.15
    until(lambda: len(run.of("gpu")) >= 1)
    gate = threading.Event()
    device.answers["nvmlDeviceGetUtilizationRates"] = lambda: (gate.wait(20), SimpleNamespace(gpu=1, memory=1))[1]
    until(lambda: run.warnings)
    hosts = len(run.of("host"))
    until(lambda: len(run.of("host")) >= hosts + 3)  # the host goes on
    assert len(run.warnings) == 1 and "NVML has not answered" in run.warnings[0]
    assert [said["event"] for said in run.of("info")] == ["hangs"]
    gate.set()
    until(lambda: len(run.of("info")) == 2)
    assert run.of("info")[1]["event"] == "answers" and run.of("info")[1]["seconds"] > 0.1
    records = len(run.of("gpu"))
    until(lambda: len(run.of("gpu")) > records)
    assert len(run.warnings) == 1


def test_the_end_of_a_run_does_not_wait_for_a_hanging_driver(run: FakeRun) -> None:
    device = h100()
    gate = threading.Event()
    device.answers["nvmlDeviceGetUtilizationRates"] = lambda: gate.wait(20)
    watched(run, device)
    until(lambda: "nvmlDeviceGetUtilizationRates" in device.calls)
    began = time.monotonic()
    run.finish()
    assert time.monotonic() - began < patient(machine.STOP_SECONDS + 0.3)
    count = len(run.records)
    gate.set()
    time.sleep(0.1)
    assert len(run.records) == count, "a record after the run's last one"


def test_a_backend_that_raises_what_nobody_foresaw_is_one_warning(run: FakeRun) -> None:
    broken: Any = SimpleNamespace(
        name="broken", open=lambda: None, sample=lambda now: 1 / 0, close=lambda: None, news=list, models=list
    )
    Machine(run, 0.02, 0.1, backends=[broken]).start()
    until(lambda: len(run.of("host")) >= 3)
    (warning,) = run.warnings
    assert "ZeroDivisionError" in warning


def test_news_that_are_no_warning_go_to_the_log_alone(run: FakeRun) -> None:
    waiting = [News("k", "note", "a note", {"id": 3}, warning=False)]
    quiet: Any = SimpleNamespace(
        name="quiet", open=lambda: None, sample=lambda now: None, close=lambda: None, models=list,
        records=lambda now: [], news=lambda: [waiting.pop()] if waiting else [],
    )  # fmt: skip
    Machine(run, 0.02, 0.1, backends=[quiet]).start()
    until(lambda: run.of("info"))
    assert run.of("info") == [{"type": "machine", "event": "note", "text": "a note", "id": 3}] and not run.warnings


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # from Python 3.12 on, of threads in the parent
def test_a_forked_child_has_no_sampler_and_does_not_wait(run: FakeRun) -> None:
    sampler, _ = watched(run, old())
    until(lambda: run.of("gpu"))
    reader, writer = os.pipe()
    child = os.fork()
    if not child:  # in the child: no assertion may leave through pytest
        began = time.monotonic()
        run.records.clear()
        sampler.stop()
        time.sleep(0.15)
        left = [thread.name for thread in threading.enumerate() if thread.name.startswith("barograph")]
        os.write(writer, json.dumps([time.monotonic() - began < 0.4, left, len(run.records)]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        assert json.loads(answer.read()) == [True, [], 0]
    os.waitpid(child, 0)
    count = len(run.of("gpu"))
    until(lambda: len(run.of("gpu")) > count)


def test_a_real_run_has_its_series_and_ends_with_its_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    run = barograph.init(project="p", dir=str(tmp_path), verbosity=-2, git=False, machine=False)
    assert run is not None
    recording: Any = run
    Machine(recording, 0.02, 0.1, backends=[Nvidia(Nvml([h100()]), {})]).start()
    run.log({"x": 1.0}, step=41)
    time.sleep(0.4)
    run.finish()
    records = barograph.read_log(run.log_file)
    kinds = [record["log"] for record in records]
    assert kinds[-1] == "end" and "gpu" in kinds and "host" in kinds and kinds.count("gpu-model") == 1
    assert {record["step"] for record in records if record["log"] == "gpu"} == {41}
    (found,) = barograph.runs(project="p", dir=str(tmp_path))
    assert len(found.series("gpu/0/power")) == kinds.count("gpu")
    assert len(found.series("host/process_rss")) == kinds.count("host")
    assert [message for message in caplog.messages if "barograph" in message] == []


def test_nothing_is_loaded_on_a_machine_without_drivers(tmp_path: Path) -> None:
    """No pynvml and no amdsmi where there is nothing to ask, and no psutil in a run that is over at once."""
    if Path("/sys/module/nvidia").exists() or Path("/sys/module/amdgpu").exists():
        pytest.skip("this machine has a driver")
    script = (
        "import sys, time, pathlib\n"
        "sys.path.insert(0, 'tests')\n"
        "from barograph.testing import FakeRun\n"
        "from barograph.probes.machine.sampler import Machine\n"
        "loaded = lambda: sorted({'pynvml', 'amdsmi', 'psutil', 'torch'} & set(sys.modules))\n"
        "run = FakeRun(pathlib.Path(sys.argv[1]))\n"
        "Machine(run).start().stop()\n"
        "print(loaded())\n"
        "machine = Machine(run, 0.05, 0.1).start()\n"
        "while not run.of('host'): time.sleep(0.01)\n"
        "machine.stop()\n"
        "print(loaded(), run.of('info')[0]['text'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True, text=True, check=True, timeout=60, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "[]",
        "['psutil'] no GPU found: no NVIDIA driver here; no AMD driver here",
    ]
