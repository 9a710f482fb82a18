"""A full disk costs no training step, one warning, and no record once there is room again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import patient

import barograph
from barograph.cli import main


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", folder], capture_output=True)
    if done.returncode:
        pytest.skip(f"no small file system to be had: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_training_goes_on_and_everything_is_recorded_when_there_is_room_again(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ballast = small_disk / "ballast"
    run = barograph.init(project="p", dir=small_disk, verbosity=-2, git=False, sync_seconds=0.1)
    for step in range(100):
        run.log({"loss": float(step), "text": "x" * 200}, step=step)
    descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError):
        while os.write(descriptor, b"\0" * 4096):
            pass
    os.close(descriptor)
    slowest = 0.0
    for step in range(100, 1500):
        began = time.perf_counter()
        run.log({"loss": float(step), "text": "x" * 200}, step=step)
        slowest = max(slowest, time.perf_counter() - began)
        if step % 100 == 0:
            json.loads(run.log_file.read_text())
            time.sleep(0.05)
    assert slowest < patient(0.1)
    written = len(json.loads(run.log_file.read_text()))
    assert written < 1400
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
    time.sleep(0.6)
    run.log({"loss": 1500.0}, step=1500)
    run.finish()
    items = [item for item in json.loads(run.log_file.read_text()) if item["log"] == "metrics"]
    assert [item["step"] for item in items] == list(range(1501))
    (back,) = barograph.runs(small_disk)
    assert back.series("loss").value.tolist() == list(range(1501))
    said = [record.message for record in caplog.records if "training goes on" in record.message]
    assert 1 <= len(said) <= 2  # the log file's and the store's


@pytest.mark.parametrize("back", ["gc", "resume"])
@pytest.mark.parametrize("log_file", [False, True], ids=["in the folder", "log_file elsewhere"])
def test_wide_rows_that_wait_at_the_end_are_kept_elsewhere_and_brought_back(
    small_disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
    back: str, log_file: bool,
) -> None:  # fmt: skip
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    where = {"log_file": str(tmp_path / "log.json")} if log_file else {}

    def start() -> barograph.Run:
        return barograph.init(
            project="p", id="r", dir=small_disk, verbosity=-2, git=False, sidecar=False, resume="allow", **where
        )

    run = start()
    ballast = small_disk / "ballast"
    for step in range(200):
        if step == 20:
            with open(ballast, "wb", buffering=0) as file, pytest.raises(OSError):
                while file.write(b"\0" * 4096):
                    pass
        run.model.wide({f"act/{k}": float(step) for k in range(300)}, step=step)
        run.log_histogram("weights", [float(step), 2.0], step=step)
    run.finish()
    kept = [Path(word) for one in caplog.records for word in one.message.replace(",", " ").split() if "spool" in word]
    assert len({path for path in kept if list(path.glob("*.wide"))}) == 1
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
    if back == "gc":
        assert main(["gc", "--dir", str(small_disk)]) == 0
    else:
        run = start()
        run.model.wide({f"act/{k}": 200.0 for k in range(300)}, step=200)
        run.finish()
    assert main(["gc", "--dir", str(small_disk)]) == 0  # again: nothing is doubled
    (stored,) = barograph.runs(small_disk)
    count = 200 + (back == "resume")
    assert stored.series("act/7", branch="all").value.tolist() == list(range(count))
    assert [row.step for row in stored.histograms("weights")] == list(range(200))
    assert not list((tmp_path / "temporary").glob("*/*/*.wide"))


def test_rows_that_were_kept_elsewhere_never_come_to_another_run_at_the_same_place(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    for value in (1.0, 2.0):
        run = barograph.init(project="p", id="r", dir=small_disk, verbosity=-2, git=False, sidecar=False)
        ballast = small_disk / "ballast"
        with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while value == 1.0:
                file.write(b"\0" * 4096)
        run.model.wide({f"act/{k}": value for k in range(300)}, step=0)
        run.finish()
        ballast.unlink()
        if value == 1.0:
            assert list((tmp_path / "temporary").glob("*/*/*.wide"))
            shutil.rmtree(run.dir)
    main(["gc", "--dir", str(small_disk)])
    (stored,) = barograph.runs(small_disk)
    assert stored.series("act/7", branch="all").value.tolist() == [2.0]


OUT_OF_DESCRIPTORS = """
import os, resource, sys
from barograph import init
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for _ in range(int(sys.argv[2])):
    os.close(held.pop())
run = init(project="p", id="r", dir=sys.argv[1], git=False, verbosity=-2)
for step in range(10):
    run.log({"loss": float(step)}, step=step)
run.model.wide({f"act/{k}": 1.0 for k in range(300)}, step=10)
while held:
    os.close(held.pop())
run.log({"loss": 11.0}, step=11)
run.finish()
print("went on")
"""


@pytest.mark.parametrize("free", [0, 1, 2, 3])
def test_a_process_without_a_free_descriptor_can_still_begin_a_run(tmp_path: Path, free: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_DESCRIPTORS, str(tmp_path), str(free)],
        capture_output=True, text=True, env=os.environ | {"BAROGRAPH_SIDECAR": "0"},
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout == "went on\n", done.stderr
    (warning, *_) = done.stderr.splitlines()
    found = [run for run in barograph.runs(tmp_path) if run.names()]
    if free < 2:
        assert done.stderr.count("\n") == 1 and "NOT recorded" in warning and not found
        return
    assert "Too many open files" in warning
    (stored,) = found
    assert stored.series("loss").step.tolist() == [*range(10), 11] and stored.status == "finished"
    assert stored.series("act/7").value.tolist() == [1.0] and stored.manifest["project"] == "p"
