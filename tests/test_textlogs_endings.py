"""A log without metrics that says how its program ended: what it says is shown, and there is no verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from barograph.doctor.command import NO_VERDICT, run_doctor
from barograph.importing.read import read

TRACEBACK = """loading 4 shards
Traceback (most recent call last):
  File "train.py", line 8, in <module>
    main()
RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 9x2)
"""


@pytest.mark.parametrize(("text", "says"), [
    (TRACEBACK, "line 5: RuntimeError: mat1 and mat2"),
    ("building the model\nKilled\n", "line 2: Killed"),
    ("python3: can't open file '/a/train.py': [Errno 2] No such file or directory\n", "line 1: python3: can't open"),
    ("start\nslurmstepd: error: Detected 1 oom-kill event(s)\n", "line 2: slurmstepd"),
])  # fmt: skip
def test_the_error_and_its_line_are_said_and_the_exit_code_is_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    path = tmp_path / "job.log"
    path.write_text(text)
    assert run_doctor([str(path)]) == NO_VERDICT
    told = " ".join(capsys.readouterr().out.split())
    assert says in told
    assert "metrics found: none" in told


def test_a_text_that_says_nothing_of_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("listening on port 8080\nGET / 200\n")
    assert run_doctor([str(path)]) == 1
    with pytest.raises(ValueError, match="nothing in"):
        read(path, endings=True)


def test_only_who_asks_for_endings_gets_a_run_without_metrics(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(TRACEBACK)
    with pytest.raises(ValueError, match="nothing in"):
        read(path)
    (run,) = read(path, endings=True)
    assert not run.names()


def test_an_end_ahead_of_every_step_is_told_without_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.log"
    path.write_text("start\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\nKilled\n")
    run_doctor([str(path)])
    told = capsys.readouterr().out
    assert "Out of memory, 2 GiB were requested" in told
    assert "The run ended without finishing the run: line 3: Killed" in told
    assert "step 0" not in told


def test_an_end_behind_rows_is_told_with_its_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.log"
    path.write_text("".join(f"step {at} loss {3 - at / 10:.2f}\n" for at in range(1, 6)) + TRACEBACK)
    run_doctor([str(path)])
    told = " ".join(capsys.readouterr().out.split())
    assert "The training failed after step 5: RuntimeError" in told
    assert "Read the log above line 10, where the traceback is" in told
    assert "blackbox" not in told


def test_a_kill_behind_a_progress_bar_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.log"
    bars = "".join(f"Epoch 1:  {at}%|#   | {at}/99 [00:{at:02}<01:00, 1.02it/s, loss=2.{at}]\n" for at in range(11, 19))
    path.write_text(bars.rstrip("\n") + "Killed\n")
    run_doctor([str(path)])
    assert "line 8: Killed" in " ".join(capsys.readouterr().out.split())


def test_memory_that_ran_out_before_a_launch_that_trained_is_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.log"
    rows = "".join(f"step {at} loss {3 - at / 10:.2f}\n" for at in range(1, 6))
    path.write_text("start\nCUDA out of memory. Tried to allocate 2.00 GiB\nstart\n" + rows)
    assert run_doctor([str(path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "no problems found the log says, in line 2: CUDA out of memory" in told
    path.write_text("start\n" + rows + "CUDA out of memory. Tried to allocate 2.00 GiB\n")
    run_doctor([str(path)])
    assert "Out of memory at step 5, 2 GiB were requested" in capsys.readouterr().out


def test_a_collective_that_timed_out_is_the_end_behind_a_progress_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.log"
    bars = "".join(f"Epoch 0:  6%|#   | {at}/999 [00:{at:02}<01:00, 1.02it/s, loss=2.{at}]\n" for at in range(11, 19))
    watchdog = "[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, "
    path.write_text(f"{bars[:-1]}{watchdog}OpType=ALLREDUCE) ran for 1800345 milliseconds before timing out.\n")
    run_doctor([str(path)])
    told = " ".join(capsys.readouterr().out.split())
    assert "The run ended after step 18 without finishing the run: line 8: Watchdog caught collective" in told
    assert "a collective that one rank did not enter" in told


ROWS = "".join(f"step {at} loss {3 - at / 10:.2f}\n" for at in range(1, 6))
FAILED = 'Traceback (most recent call last):\n  File "train.py", line 8, in <module>\n    main()\n'


@pytest.mark.parametrize("end", [
    "srun: error: node01: task 3: Killed\n", "srun: error: gpu1: tasks 0-3: Exited with exit code 1\n",
    "TERM_RUNLIMIT: job killed after reaching the run time limit.\n", "=>> PBS: job killed: walltime 3600 exceeded\n",
    "F0515 11:05:31.8 376 layer.cpp:56] Check failed: 2 == 3\n*** Check failure stack trace: ***\n",
    "log\n**Killed**\n",
])  # fmt: skip
def test_what_schedulers_say_of_the_end_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str) -> None:
    path = tmp_path / "job.log"
    path.write_text(ROWS + end)
    run_doctor([str(path)])
    told = " ".join(capsys.readouterr().out.split())
    assert "after step 5" in told and " crashed " in told


@pytest.mark.parametrize("end", [
    FAILED + "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (1, 2)\n",
    FAILED + "framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[64,128]\n",
    FAILED + "RuntimeError: DefaultCPUAllocator: not enough memory: you tried to allocate 123456 bytes.\n",
    "Out of memory error on GPU 0. Cannot allocate 1.2GB memory on GPU 0\n",
    "ERROR: LoadError: CUDA error: out of memory (code 2)\n",
    "THCudaCheck FAIL file=/torch/THC/generic/Storage.cu line=9 error=2 : out of memory\n",
    "Your notebook crashed after using all available RAM.\n",
])  # fmt: skip
def test_memory_that_ran_out_has_many_words(tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str) -> None:
    path = tmp_path / "job.log"
    path.write_text(ROWS + end)
    run_doctor([str(path)])
    assert "out_of_memory" in capsys.readouterr().out


@pytest.mark.parametrize("end", [
    "Final test error: 0.12\nfailed samples: 0\n", "Test Error:\n Accuracy: 50.9%\n", "Exited with exit code 0\n",
])  # fmt: skip
def test_errors_that_were_measured_are_no_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    path = tmp_path / "job.log"
    path.write_text(ROWS + end)
    run_doctor([str(path)])
    told = capsys.readouterr().out
    assert "no problems found" in told and "the log says" not in told


@pytest.mark.parametrize("ending", ["csv", "tsv", "json"])
def test_what_a_shell_wrote_to_a_table_is_read_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    path = tmp_path / f"log.{ending}"
    path.write_text(TRACEBACK)
    assert run_doctor([str(path)]) == NO_VERDICT
    assert "RuntimeError: mat1" in " ".join(capsys.readouterr().out.split())
    path.write_text("model,params\nsmall,12\n")
    assert run_doctor([str(path)]) == 1


def test_memory_that_ran_out_in_a_later_program_is_said_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "all.log"
    last = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 120.00 MiB. GPU 0 has 8 GiB."
    path.write_text(TRACEBACK + TRACEBACK.replace("RuntimeError: mat1 and mat2 shapes cannot be multiplied", last))
    assert run_doctor([str(path)]) == NO_VERDICT
    told = " ".join(capsys.readouterr().out.split())
    assert "RuntimeError: mat1" in told
    assert "Out of memory" in told


@pytest.mark.parametrize("line", [
    "fit.py: error: unrecognized arguments: --epoch 3", "train: error: the following arguments are required: --data",
    "tools/fit.py: error: argument --lr: invalid float value: 'x'",
])  # fmt: skip
def test_an_option_that_the_program_does_not_know_ended_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    path = tmp_path / "job.log"
    path.write_text(f"usage: fit.py [-h] [--lr LR]\n{line}\n")
    assert run_doctor([str(path)]) == NO_VERDICT
    assert f"line 2: {line[:40]}" in " ".join(capsys.readouterr().out.split())


def of_launches(*words: str) -> str:
    return "".join(f"10:0{at}:00 loading the settings of the job\n{said}" for at, said in enumerate(words))


def test_a_launch_behind_one_that_failed_has_not_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.log"
    path.write_text(of_launches(TRACEBACK, "training begins\ntesting begins\nall is written\n"))
    assert run_doctor([str(path)]) == NO_VERDICT
    told = capsys.readouterr().out
    assert "The training failed" not in told
    assert "RuntimeError: mat1" in told


@pytest.mark.parametrize("words", [
    [TRACEBACK, TRACEBACK.replace("mat1", "mat7")],  # the last launch failed too
    ["", TRACEBACK],
    [TRACEBACK.replace("loading 4 shards", "10:05:00 loading the settings of the job"), ""],  # of several processes
])  # fmt: skip
def test_a_launch_that_failed_last_has_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    path = tmp_path / "job.log"
    path.write_text(of_launches(*words))
    run_doctor([str(path)])
    assert "The training failed" in capsys.readouterr().out
