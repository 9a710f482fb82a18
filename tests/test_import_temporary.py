"""What is read and not stored leaves nothing in the temporary folder, however the process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from barograph.importing import temporary
from barograph.importing.read import read

DAY = 86_400


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this process and of those that it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(temporary, "_own", {})  # a log that another test of this process read has a folder elsewhere
    return folder


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text("".join(f"step {step} | loss {3 - step / 100:.4f}\n" for step in range(100)))
    return path


def left(room: Path) -> list[str]:
    return [path.name for path in room.glob(f"{temporary.PREFIX}*")]


def wait_for(what: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while not what() and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.005)


def test_an_ordinary_doctor_leaves_nothing(room: Path, log: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "barograph", "doctor", str(log)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    with log.open("rb") as given:
        piped = [sys.executable, "-m", "barograph", "doctor", "-"]
        assert subprocess.run(piped, stdin=given, capture_output=True, check=False).returncode == 0
    assert left(room) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_signalled_leaves_nothing(room: Path, log: Path, number: signal.Signals) -> None:
    program = (
        "import contextlib, io, time\n"
        "from barograph.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    main(['doctor', {str(log)!r}])\n"
        "print('read', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"read\n"
    assert left(room)
    process.send_signal(number)
    assert process.wait(30) == -number
    process.stdout.close()
    assert left(room) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_doctor_that_is_signalled_while_it_reads_leaves_nothing(
    room: Path, tmp_path: Path, number: signal.Signals
) -> None:
    large = tmp_path / "large.log"
    large.write_text("".join(f"step {step} | loss {3 - step / 1e6:.6f} | lr 1e-4\n" for step in range(300_000)))
    process = subprocess.Popen(
        [sys.executable, "-m", "barograph", "doctor", str(large)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_for(lambda: left(room), process)
    time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(30) in (-number, 128 + number)
    assert left(room) == []


def test_what_a_killed_process_left_is_swept_by_a_later_one(room: Path, log: Path) -> None:
    program = f"import os, barograph; barograph.read({str(log)!r}); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", program], check=False)
    (name,) = left(room)
    temporary.sweep()
    assert left(room) == [name], "it may belong to a process that begins"
    early = time.time() - 2 * temporary._YOUNG
    os.utime(room / name, (early, early))
    subprocess.run([sys.executable, "-c", f"import barograph; barograph.read({str(log)!r})"], check=True)
    assert left(room) == []


def test_a_folder_that_a_process_holds_stays_however_old_it_is(room: Path, log: Path) -> None:
    run = read(log)[0]
    folder = next(path for path in run.dir.parents if path.parent == room)
    early = time.time() - 9 * DAY
    os.utime(folder, (early, early))
    subprocess.run([sys.executable, "-c", "from barograph.importing.temporary import sweep; sweep()"], check=True)
    assert folder.exists()
    temporary.end()
    assert left(room) == []


def test_folders_that_say_no_process_go_after_a_day_and_files_and_links_stay(room: Path, tmp_path: Path) -> None:
    for name, age in (("abcdefgh", 2 * DAY), ("ijklmnop", 0.5 * DAY)):
        folder = room / f"{temporary.PREFIX}{name}"
        folder.mkdir()
        (folder / "run").touch()
        os.utime(folder, (time.time() - age,) * 2)
    (tmp_path / "elsewhere").mkdir()
    (room / f"{temporary.PREFIX}1-link").symlink_to(tmp_path / "elsewhere")
    (room / f"{temporary.PREFIX}1-file").touch()
    temporary.sweep()
    assert sorted(left(room)) == [f"{temporary.PREFIX}{name}" for name in ("1-file", "1-link", "ijklmnop")]
    assert (tmp_path / "elsewhere").exists()


def test_many_logs_read_by_one_process_cost_one_folder_and_one_descriptor(room: Path, log: Path) -> None:
    program = (
        "import os, barograph\n"
        f"barograph.read({str(log)!r})\n"
        "before = len(os.listdir('/dev/fd'))\n"
        f"runs = [barograph.read({str(log)!r})[0] for _ in range(8)]\n"
        "folders = {str(run.dir) for run in runs}\n"
        f"print(len(os.listdir('/dev/fd')) - before, len(os.listdir({str(room)!r})), len(folders))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1", "8"]
    assert left(room) == []


def test_a_program_that_reads_a_log_keeps_its_own_signals(room: Path, log: Path) -> None:
    program = (
        "import signal, barograph\n"
        f"barograph.diagnose({str(log)!r})\n"
        "print(*(signal.getsignal(number) is signal.SIG_DFL for number in (signal.SIGTERM, signal.SIGHUP)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_a_process_that_was_forked_removes_its_own_folder_alone(room: Path, log: Path) -> None:
    program = (
        "import os, sys, barograph\n"
        f"mine = barograph.read({str(log)!r})[0]\n"
        "child = os.fork()\n"
        f"other = barograph.read({str(log)!r})[0] if not child else None\n"
        "sys.exit(0) if not child else os.waitpid(child, 0)\n"
        f"print(len(os.listdir({str(room)!r})), len(mine.series('train/loss').value))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "100"]
    assert left(room) == []
