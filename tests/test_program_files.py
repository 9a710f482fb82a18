"""Files that a program writes for other trackers are read as they grow."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
from patience import patient
from programs import python, recorded, run, until, wrapped
from sidecar_runs import ENVIRONMENT, own_records

import barograph
from barograph.core import manifest
from barograph.query import catalog
from barograph.query.stored import StoredRun
from barograph.sidecar.program.files import ProgramFiles, goes_on_in
from barograph.sidecar.program.intake import Intake

EVENTS = """
import os, sys, time
from torch.utils.tensorboard import SummaryWriter
writer, discriminator = SummaryWriter("logs/generator", flush_secs=1), SummaryWriter("logs/discriminator", flush_secs=1)
step = 0
while step < 60 or not os.path.exists("gate"):
    writer.add_scalar("train/loss", 2.5 if step < 30 else float("nan"), step)
    discriminator.add_scalar("train/loss", 7.5, step)
    step += 1
    time.sleep(0.05)
writer.close()
sys.exit(5)
"""

OFFLINE = """
import os, sys, time, wandb
wandb.init(mode="offline", config={"width": 64})
step = 0
while step < 60 or not os.path.exists("gate"):
    wandb.log({"train/loss": 2.5 if step < 30 else float("nan")}, step=step)
    step += 1
    time.sleep(0.05)
wandb.finish()
sys.exit(5)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("library", "code"), [("torch", EVENTS), ("wandb", OFFLINE)], ids=["tensorboard", "wandb"])
def test_two_programs_in_one_folder_are_followed_as_they_write_for_another_tracker(
    tmp_path: Path, library: str, code: str
) -> None:
    pytest.importorskip(library)
    if library == "torch":
        pytest.importorskip("tensorboard")
    (tmp_path / "train.py").write_text(code)
    options = {"cwd": tmp_path, "env": ENVIRONMENT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    processes = [
        subprocess.Popen(wrapped(tmp_path, *command, more=("--project", project)), **options)  # type: ignore[call-overload]
        for project, command in (
            ("one", (sys.executable, "train.py")),
            ("two", ("sh", "-c", f"{sys.executable} train.py; exit 4")),
        )
    ]

    def found(project: str) -> StoredRun | None:
        runs = [run for run in catalog.runs(tmp_path / "runs") if run.manifest.get("project") == project]
        assert len(runs) <= 1
        return runs[0] if runs else None

    try:
        for project in ("one", "two"):
            live = until(lambda project=project: (r := found(project)) and "train/loss" in r.names() and r)
            assert until(lambda live=live: own_records(live.dir, "finding"))
            assert live.manifest["status"] == "running"
    finally:
        (tmp_path / "gate").touch()
        outputs = [process.communicate(timeout=patient(120))[0] for process in processes]
    assert [process.returncode for process in processes] == [5, 4]
    for project, output in zip(("one", "two"), outputs, strict=True):
        stored = until(
            lambda project=project: (r := found(project)) and r.manifest.get("status") not in (None, "running") and r
        )
        assert (stored.dir / "output" / "output-0001.log").read_bytes() == output
        losses = stored.series("train/loss")
        assert losses.step.tolist() == list(range(len(losses.step))) and len(losses.step) >= 60
        assert not numpy.isfinite(losses.value[30:]).any() and set(losses.value[:30]) == {2.5}
        if library == "torch":
            assert set(stored.series("discriminator/train/loss").value) == {7.5}
        else:
            assert stored.manifest["config"]["width"] == 64


IMAGES = {
    "tensorboard": """
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("logs")
writer.add_scalar("loss", 1.0, 0)
writer.add_image("shown", numpy.zeros((3, 4, 5), numpy.uint8), 3)
writer.close()
""",
    "wandb": """
import wandb
wandb.init(mode="offline")
wandb.log({"loss": 1.0}, step=0)
wandb.log({"shown": wandb.Image(numpy.zeros((4, 5, 3), numpy.uint8))}, step=3)
wandb.finish()
""",
}


def test_an_image_for_which_there_is_no_room_costs_one_sentence_and_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = pytest.importorskip("tensorboardX")
    writer = writers.SummaryWriter(str(tmp_path / "logs"))
    for step in range(20):
        writer.add_scalar("loss", 1.0, step)
        writer.add_image("shown", numpy.zeros((3, 4, 5), numpy.uint8), step)
    writer.close()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("barograph.importing.media.keep", full)
    opened = barograph.init(dir=tmp_path / "runs", console="none", git=False)
    intake = Intake(lambda: opened, {})
    intake.add(tmp_path / "logs")
    intake.read(final=True)
    opened.finish()
    assert StoredRun(opened.dir).series("train/loss").step.tolist() == list(range(20))
    assert "shown at step 3 is not kept: No space left on device" in " ".join(intake.problems.values())


@pytest.mark.slow
def test_short_programs_in_one_folder_keep_what_each_has_sent_to_wandb_apart(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    program = "import wandb; wandb.init(mode='offline'); wandb.log({'loss': %s}, step=0); wandb.finish()"
    for value in (1.5, 2.5):
        assert run(tmp_path, *python(program % value)).returncode == 0
    stored = catalog.runs(tmp_path / "runs")
    assert sorted(each.series("train/loss").value.tolist() for each in stored) == [[1.5], [2.5]]


@pytest.mark.slow
@pytest.mark.parametrize("library", sorted(IMAGES))
def test_an_image_that_a_program_writes_for_another_tracker_is_a_file_of_its_run(tmp_path: Path, library: str) -> None:
    pytest.importorskip(library)
    pytest.importorskip("torch")
    assert run(tmp_path, *python("import numpy\n" + IMAGES[library])).returncode == 0
    stored = recorded(tmp_path)
    (record,) = [record for record in stored.records("media") if record.fields["name"].endswith("shown")]
    assert record.step == 3 and "content" not in record.fields
    content = (stored.dir / record.fields["path"]).read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) == record.fields["bytes"]


@pytest.mark.slow
def test_a_program_that_is_killed_keeps_what_its_event_file_has(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(EVENTS)
    process = subprocess.Popen(wrapped(tmp_path, sys.executable, "train.py"), cwd=tmp_path, env=ENVIRONMENT)
    live = until(lambda: next((r for r in catalog.runs(tmp_path / "runs") if "train/loss" in r.names()), None))
    os.kill(manifest.read(live.dir)["program"]["pid"], signal.SIGKILL)
    assert process.wait(patient(60)) == -signal.SIGKILL
    stored = recorded(tmp_path)
    assert stored.manifest["status"] == "killed" and stored.manifest["program"]["signal"] == "SIGKILL"
    assert len(stored.series("train/loss").step)


@pytest.mark.slow
def test_a_program_that_writes_event_files_and_is_a_run_itself_is_one_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    pytest.importorskip("torch")
    own = f"import barograph\nrun = barograph.init(name='own', dir={str(tmp_path / 'runs')!r}, console='none')\n"
    code = own + EVENTS.replace("step += 1", "run.log({'train/loss': 1.0}, step=step)\n    step += 1")
    (tmp_path / "gate").touch()
    assert run(tmp_path, *python(code)).returncode == 5
    stored = recorded(tmp_path)
    assert stored.manifest["name"] == "own" and set(stored.series("train/loss").value) == {1.0}
    assert until(lambda: manifest.read(stored.dir)["program"].get("exit_code") == 5)


def test_event_files_are_the_programs_by_host_and_process_alone(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    host, now = socket.gethostname(), int(time.time())
    (tmp_path / "deep" / "er").mkdir(parents=True)
    mine = tmp_path / "deep" / "er" / f"events.out.tfevents.{now + 5}.{host}.{os.getpid()}.0"
    mine.touch()
    elsewhere = tmp_path.parent / f"{tmp_path.name}-other"
    elsewhere.mkdir()
    given = elsewhere / f"events.out.tfevents.{now + 5}.{host}.{os.getpid()}.1.suffix"
    given.touch()
    for name in (f"{now + 5}.{host}.{os.getppid()}.0", f"{now + 5}.another.{os.getpid()}.0", f"1700000000.{host}.1.0"):
        (tmp_path / f"events.out.tfevents.{name}").touch()
    files = ProgramFiles(os.getpid(), ["train.py", f"--logdir={elsewhere}"], tmp_path / "run")
    found = {path for path in files.find(final=True) if "tfevents" in path.name}
    # what other tests have left open in this process is its own, too
    assert {path for path in found if path.is_relative_to(tmp_path) or path.parent == elsewhere} == {mine, given}


def test_a_further_writer_of_a_folder_goes_on_and_another_process_only_after_the_first() -> None:
    host, gone = socket.gethostname(), 2**22 + 1  # above the highest number that a process has
    first, second = (Path(f"logs/events.out.tfevents.17000000{n}.{host}.{os.getpid()}.{n}") for n in (10, 11))
    beside = Path(f"logs/events.out.tfevents.1700000012.{host}.{os.getppid()}.0")
    ended = Path(f"logs/events.out.tfevents.1700000009.{host}.{gone}.0")
    assert goes_on_in(first, second) and not goes_on_in(second, first)
    assert goes_on_in(ended, first) and not goes_on_in(first, ended)
    assert not goes_on_in(first, beside) and not goes_on_in(beside, first)
    assert goes_on_in(Path("output/output-0001.log"), Path("output/output-0002.log"))
    assert not goes_on_in(Path("output/output-0001.log"), Path("output/errors-0001.log"))


def test_where_the_system_does_not_say_how_a_file_was_opened_one_written_since_the_start_counts(tmp_path: Path) -> None:
    data, log = tmp_path / "data.jsonl", tmp_path / "log.jsonl"
    data.touch()
    log.touch()
    os.utime(data, (1_700_000_000, 1_700_000_000))
    files = ProgramFiles(os.getpid(), ["train.py"], tmp_path / "run")
    later = time.time() + 60.0
    os.utime(log, (later, later))
    assert files._is_written(log, "") and not files._is_written(data, "")
    assert files._is_written(data, "a") and not files._is_written(log, "r")
