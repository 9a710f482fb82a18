"""What a log says in words: how its launches ended, and what went wrong on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import collect, find

import barograph
from barograph.doctor import diagnose
from barograph.doctor.report import page
from barograph.importing.source import Fact, FoundRun, ImportMark
from barograph.importing.textlogs import SOURCES


def rows(first: int, last: int, form: str = "step {step}/1000 | loss {loss:.4f} | lr 0.001\n") -> str:
    return "".join(form.format(step=step, loss=6 - step / 200) for step in range(first, last, 5))


def facts(path: Path, text: str, since: ImportMark | None = None) -> tuple[list[Fact], ImportMark]:
    path.write_text(text)
    dialect, found = find(path)[0]
    reading = collect(dialect, found, since)
    return [fact for fact in reading.facts if fact.kind != "option"], reading.mark


TRACEBACK = """{0}Traceback (most recent call last):
{0}  File "/home/me/train.py", line 30, in <module>
{0}    raise ValueError("not this line")
{0}  File "/home/me/model.py", line 3, in forward
{0}    x = self.norm(x)
{0}{1}
"""
ENDS = [
    (TRACEBACK.format("", "RuntimeError: CUDA error: device-side assert triggered"), "failed", "RuntimeError"),
    (TRACEBACK.format("[rank3]: ", "torch.distributed.DistBackendError: NCCL error in: x.cpp:3"), "failed", "NCCL"),
    (TRACEBACK.format("2024-05-01 10:00:00 ", "FileNotFoundError: [Errno 2] No such file: 'a.bin'"), "failed", "a.bin"),
    (TRACEBACK.format("", "KeyboardInterrupt"), "interrupted", ""),
    ("Killed\n", "killed", "SIGKILL"),
    ("run.sh: line 12: 81234 Killed                  python train.py\n", "killed", "SIGKILL"),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch.\n", "out of memory", "SIGKILL"),
    ("srun: error: *** JOB 7 ON n3 CANCELLED AT 2024-05-01T10:00:00 DUE TO TIME LIMIT ***\n", "killed", "TIME LIMIT"),
    ("Segmentation fault (core dumped)\n", "killed", "SIGSEGV"),
    ("segmentation fault (core dumped)\n", "killed", "SIGSEGV"),
    ("[rank3]:[E1 c.cpp:7] To avoid data inconsistency, we are taking the entire process down.\n", "killed", "SIGABRT"),
    ("[rank0]: OSError: [Errno 28] No space left on device: 'step_300.pt'\n", "failed", "No space left"),
    (TRACEBACK.format("", "Exception: the loss scale is at its least"), "failed", "at its least"),
    ("Exception: no shard is left\n", "failed", "no shard"),
    ("run.sh: line 3: 4711 Aborted                 (core dumped) ./train\n", "killed", "SIGABRT"),
    ("a.cu:7: f: block: [3,0,0], thread: [9,0,0] Assertion `t < n` failed.\n", "failed", "Assertion"),
    ("  exitcode  : -9 (pid: 4711)\n", "killed", "SIGKILL"),
    ("Command terminated by signal 9\n", "killed", "SIGKILL"),
    ("srun: error: n1: task 0: Out Of Memory\n", "out of memory", "SIGKILL"),
    ("ERROR: Unexpected bus error encountered in worker.\n", "failed", "in worker"),
    ("Windows fatal exception: access violation\n", "killed", "SIGSEGV"),
    ("Process finished with exit code -1073740791 (0xC0000409)\n", "killed", "SIGABRT"),
    ("Process finished with exit code 1\n", "failed", "exit code 1"),
    ("double free or corruption (!prev)\n", "killed", "SIGABRT"),
    ("F0820 10:11:12.1 4711 a.cu:5] Check failed: error == cudaSuccess (77 vs. 0)\n", "killed", "SIGABRT"),
    ("thread 'main' panicked at src/main.rs:9:5:\n", "failed", "panicked"),
    ("Illegal instruction (core dumped)\n", "killed", "SIGILL"),
    ("The kernel appears to have died. It will restart automatically.\n", "killed", "died"),
    ("ERROR:tensorflow:Model diverged with loss = NaN.\n", "failed", "loss = NaN"),
    ("loss is exploding, aborting.\n", "failed", "exploding"),
    ("RuntimeError: a_wrapper: Loss became infinite or NaN at iteration=166!\n", "failed", "infinite"),
    ("[2]+  Killed                  python train.py\n", "killed", "SIGKILL"),
    ("zsh: killed     python train.py\n", "killed", "SIGKILL"),
    ("Killed: 9\n", "killed", "SIGKILL"),
    ("[1]    4711 segmentation fault  python train.py\n", "killed", "SIGSEGV"),
    ("Abort trap: 6\n", "killed", "SIGABRT"),
    ("Terminated: 15\n", "killed", "SIGTERM"),
    ("thread 'main' (4711) panicked at src/net.rs:9:5:\n", "failed", "panicked"),
    ("Execution halted\n", "failed", "halted"),
    ("Unhandled exception. System.ArgumentException: no rows\n", "failed", "ArgumentException"),
    ("Fatal error: Index out of range: file a.swift, line 6\n", "failed", "out of range"),
    ("** (RuntimeError) no batch is left\n", "failed", "no batch"),
    ("Uncaught TypeError: x is undefined\n", "failed", "undefined"),
    ('Error: DriverError(CUDA_ERROR_LAUNCH_FAILED, "x")\n', "failed", "LAUNCH"),
    ("FATAL ERROR: JavaScript heap out of memory\n", "out of memory", "heap"),
    (
        "INFO:tensorflow:Error reported to Coordinator: <class 'a.BadError'>, Sum is inf or nan. : Tensor had "
        "Inf values\n",
        "failed",
        "Inf values",
    ),
    ("Loss is nan, stopping training\n", "failed", "stopping"),
    ("EXCEPTION occurred: The training criterion is not a number (NAN).\n", "failed", "criterion"),
]


@pytest.mark.parametrize(("text", "status", "words"), ENDS)
def test_the_end_of_a_launch_is_what_its_text_says(tmp_path: Path, text: str, status: str, words: str) -> None:
    found, _ = facts(tmp_path / "small.log", rows(0, 300) + text + "some words behind\n")
    (end,) = [fact for fact in found if fact.kind == "end"]
    assert (end.step, end.fields["status"]) == (295, status)
    assert words in str(end.fields)
    assert end.fields["line"] == 60 + text.count("\n")
    run = barograph.read(tmp_path / "small.log")[0]
    assert status == "interrupted" or any(
        finding["rule"] in ("crashed", "out_of_memory") and finding["step"] == 295
        for finding in diagnose(run)["findings"]
    )


@pytest.mark.parametrize(("text", "status", "words"), ENDS)
def test_a_training_that_goes_on_has_not_ended(tmp_path: Path, text: str, status: str, words: str) -> None:
    found, _ = facts(tmp_path / "small.log", rows(0, 300) + text + rows(300, 600))
    assert [fact.kind for fact in found] == ["info"] and found[0].step == 295
    assert f"line {60 + text.count(chr(10))}" in found[0].fields["message"]


@pytest.mark.parametrize("row", ["step 300 loss 2.", "step 300/400 | loss 2.5 | 36", "{'step': 300, 'loss': 1"])
@pytest.mark.parametrize("words", ["slurmstepd: error: *** JOB 7 ON a CANCELLED AT 10:00 ***", "Segmentation fault"])
def test_an_end_that_is_printed_behind_half_a_row_is_the_end(tmp_path: Path, row: str, words: str) -> None:
    found, _ = facts(tmp_path / "small.log", rows(0, 300) + row + words + "\n")
    (end,) = [fact for fact in found if fact.kind == "end"]
    assert end.step in (295, 300) and end.fields["status"] == "killed"


@pytest.mark.parametrize(("text", "status", "words"), ENDS)
def test_each_launch_has_its_own_end(tmp_path: Path, text: str, status: str, words: str) -> None:
    launches = rows(0, 300) + text + "python train.py --resume\n" + rows(200, 500) + text
    found, _ = facts(tmp_path / "small.log", launches)
    assert [(fact.kind, fact.step) for fact in found] == [("end", 295), ("end", 495)]


@pytest.mark.parametrize("text", [
    "Exception ignored in: <function Pool.__del__ at 0x7f>\n" + TRACEBACK.format("", "TypeError: 'NoneType' object"),
    "ConnectionError: could not sync\nsaved\nevaluated\nuploaded\ndone\n",
    "ERROR ConnectionError: could not sync\n",
    "caught Exception: no such shard, skipped\n",
])  # fmt: skip
def test_an_exception_that_ends_nothing_is_no_end(tmp_path: Path, text: str) -> None:
    found, _ = facts(tmp_path / "small.log", rows(0, 300) + text)
    assert [fact.kind for fact in found] == ["info"]


def test_memory_that_ran_out_says_what_was_asked_for(tmp_path: Path) -> None:
    words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has 79 GiB"
    for number, text in enumerate((TRACEBACK.format("[rank0]: ", words), f"skipped a batch: {words}\n")):
        found, _ = facts(tmp_path / f"small{number}.log", rows(0, 300) + text)
        (oom,) = [fact for fact in found if fact.kind == "oom"]
        assert (oom.step, oom.fields["tried_bytes"]) == (295, 5 << 29)
    (finding, *_) = diagnose(barograph.read(tmp_path / "small1.log")[0])["findings"]
    assert finding["rule"] == "out_of_memory" and "2.5 GiB" in finding["message"]


ALLOCATOR = (
    "2019-03-04 10:11:12.3: W tensorflow/core/common_runtime/bfc_allocator.cc:273] Allocator (GPU_1_bfc) ran out of "
    "memory trying to allocate 1.50GiB."
)


def test_an_allocator_that_ran_out_says_so_unless_it_is_no_failure(tmp_path: Path) -> None:
    found, _ = facts(tmp_path / "a.log", rows(0, 300) + f"{ALLOCATOR}  Current allocation summary follows.\n")
    assert [(fact.step, fact.fields["tried_bytes"]) for fact in found if fact.kind == "oom"] == [(295, 3 << 29)]
    assert diagnose(barograph.read(tmp_path / "a.log")[0])["findings"][0]["rule"] == "out_of_memory"
    found, _ = facts(
        tmp_path / "b.log", rows(0, 300) + f"{ALLOCATOR} The caller indicates that this is not a failure.\n"
    )
    assert not [fact for fact in found if fact.kind == "oom"]


def test_a_traceback_that_lost_its_line_breaks_ends_with_its_exception(tmp_path: Path) -> None:
    text = (
        'Traceback (most recent call last):\n  File "main.py", line 9, in <module>    run()  File "/loop.py", line 7, '
        'in steps    raise ValueError("Loss: nan: at all")ValueError: Loss: nan: at all\n'
    )
    found, _ = facts(tmp_path / "a.log", rows(0, 300) + text)
    (end,) = [fact for fact in found if fact.kind == "end"]
    assert end.fields["exception"] == {"type": "ValueError", "message": "Loss: nan: at all"}


SAID = [
    "WARNING: Retrying (Retry(total=4)) after connection broken: shard-3.tar",
    "node17:411:520 [0] NCCL WARN Net : Connection closed by remote peer",
    "cat: data/shard-9.bin: No such file or directory",
    "ERROR: checkpoint could not be written",
    "WARNING: got an inf loss, which counts 0",
    "WARNING loop.py:41 in step -- Nan grad norm occurs, look at it.",
]


def test_the_exception_behind_what_a_worker_or_a_kernel_said_is_the_end(tmp_path: Path) -> None:
    for number, line in enumerate(
        ("ERROR: Unexpected segmentation fault encountered in worker.\n",
         2 * "a.cu:7: f: block: [3,0,0], thread: [9,0,0] Assertion `t < n` failed.\n")
    ):  # fmt: skip
        text = rows(0, 300) + line + TRACEBACK.format("", "RuntimeError: DataLoader worker (pid 7) is killed")
        (end,) = [fact for fact in facts(tmp_path / f"small{number}.log", text)[0] if fact.kind == "end"]
        assert end.fields["exception"]["type"] == "RuntimeError"


def test_an_assertion_of_a_kernel_has_causes_of_its_own(tmp_path: Path) -> None:
    line = "a.cu:7: f: block: [3,0,0], thread: [9,0,0] Assertion `t < n` failed.\n"
    (tmp_path / "small.log").write_text(rows(0, 300) + 3 * line)
    (finding, *_) = diagnose(barograph.read(tmp_path / "small.log")[0])["findings"]
    assert finding["rule"] == "crashed" and "index out of range" in finding["causes"][0]


@pytest.mark.parametrize("line", SAID)
def test_what_went_wrong_on_the_way_is_told_with_its_line_and_step(tmp_path: Path, line: str) -> None:
    path = tmp_path / "small.log"
    path.write_text(rows(0, 300) + f"{line}\n" + rows(300, 600) + f"{line}\n" + rows(600, 1005))
    result = diagnose(barograph.read(path)[0])
    (said,) = result["said"]
    assert (said["line"], said["step"], said["count"], said["text"]) == (61, 295, 2, line)
    assert "2 times, first in line 61 at step 295" in " ".join(page(result).split())


@pytest.mark.parametrize(
    "line",
    ["0 errors, 0 retries", "max_retries=5, timeout=30", "error rate: 0.05", "    raise ValueError('a shape')",
     'print("ERROR: magic number mismatch")', "except FileNotFoundError:", "def retry(): pass", "no errors",
     "Process finished with exit code 0", "Process finished with exit code 130", "sanity check: no corruption",
     "thread 'loader' panicked at src/load.rs:3:1:", "errors using trainNetwork are caught"],
)  # fmt: skip
def test_settings_and_programs_say_nothing(tmp_path: Path, line: str) -> None:
    found, _ = facts(tmp_path / "small.log", f"{line}\n" + rows(0, 300) + f"{line}\n" + rows(300, 400))
    assert found == []


def test_a_log_that_ends_amid_its_plan_is_named(tmp_path: Path) -> None:
    for number, (text, stops) in enumerate([
        (rows(0, 600), {"step": 595, "planned": 1000}), (rows(0, 1005), None), (rows(0, 1000), None),
        (rows(0, 600) + "Killed\n", None), (rows(0, 600, "step {step} loss {loss}\n"), None),
    ]):  # fmt: skip
        path = tmp_path / f"small{number}.log"
        path.write_text(text)
        result = diagnose(barograph.read(path)[0])
        assert result["stops"] == stops
        assert ("ends at step 595 of 1,000 planned" in page(result)) == (stops is not None)


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_traceback_may_be_read_in_two_halves(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "small.log"
    text = rows(0, 300) + TRACEBACK.format("", "RuntimeError: a")
    lines = text.splitlines(keepends=True)
    _, mark = facts(path, "".join(lines[:-cut]))
    with path.open("a") as file:
        file.writelines(lines[-cut:])
    source = next(one for one in SOURCES if one.kind == find(path)[0][0].kind)
    reading = collect(source, FoundRun(source.kind, path, "", "small"), mark)
    assert [(fact.kind, fact.fields["exception"]["type"]) for fact in reading.facts] == [("end", "RuntimeError")]


def test_a_loss_that_is_thrown_ends_a_program_and_a_norm_of_errors_does_not(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    ends = [
        one.fields for one in facts(path, rows(0, 60) + "ERROR: Loss is NaN\nStacktrace:\n")[0] if one.kind == "end"
    ]
    assert [(end["status"], end["reason"]) for end in ends] == [("failed", "line 13: ERROR: Loss is NaN")]
    text = "".join(f"***** Iteration #{at} *****\nLoss: {9 - at}.125\nError norm: {70 - at}.5\n" for at in range(1, 8))
    said, _ = facts(path, text)
    assert not said


def test_a_measure_that_ends_in_error_is_no_message(tmp_path: Path) -> None:
    text = rows(0, 60) + "Test:  [10/30]  eta: 0:00:08  place_error: 71.25 (70.00)\n"
    assert [one for one in facts(tmp_path / "small.log", text)[0] if "place_error" in str(one.fields)] == []


def test_the_best_error_so_far_is_no_message(tmp_path: Path) -> None:
    text = rows(0, 60) + "2 Percent improvement time=700, best error was 48.2 @ 3100\n"
    assert [one for one in facts(tmp_path / "small.log", text)[0] if "best error" in str(one.fields)] == []
