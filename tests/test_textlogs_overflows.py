"""Ends of jobs as schedulers tell them, and steps that are skipped for overflow."""

from __future__ import annotations

from pathlib import Path

import pytest

import barograph
from barograph.doctor import diagnose
from barograph.doctor.command import NO_VERDICT, run_doctor


def rows(first: int, last: int) -> str:
    return "".join(f"step {step}/1000 | loss {6 - step / 200:.4f} | lr 0.001\n" for step in range(first, last, 5))


@pytest.mark.parametrize(("line", "rule"), [
    ("slurmstepd: error: Job 31 exceeded memory limit (9000 > 8000), being killed", "out_of_memory"),
    ("slurmstepd: error: Exceeded job memory limit", "out_of_memory"),
    ("slurmstepd: error: Step 31.0 exceeded memory limit (9 > 8), being killed", "out_of_memory"),
    ("slurmstepd: error: Detected 2 oom-kill event(s) in step 31.batch cgroup.", "out_of_memory"),
    ("slurmstepd: error: *** JOB 31 ON n1 CANCELLED AT 2031-01-02T03:04:05 ***", "crashed"),
    ("=>> PBS: job killed: mem 9000kb exceeded limit 8000kb", "out_of_memory"),
    ("=>> PBS: job killed: walltime 3612 exceeded limit 3600", "crashed"),
    ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "out_of_memory"),
    ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "crashed"),
    ("    Reason: OOMKilled", "out_of_memory"),
    ("command terminated with exit code 137", "crashed"),
])  # fmt: skip
def test_a_scheduler_says_why_a_job_ended(tmp_path: Path, line: str, rule: str) -> None:
    path = tmp_path / "job.log"
    path.write_text(rows(0, 300) + line + "\n")
    found = {finding["rule"]: finding for finding in diagnose(barograph.read(path)[0])["findings"]}
    assert found[rule]["step"] == 295


@pytest.mark.parametrize(("behind", "ended"), [(rows(300, 305), True), (rows(300, 310), True), (rows(300, 400), False)])
def test_a_row_behind_the_end_of_a_job_was_in_a_buffer(tmp_path: Path, behind: str, ended: bool) -> None:
    path = tmp_path / "job.log"
    killed = "slurmstepd: error: Exceeded job memory limit\nslurmstepd: error: *** JOB 3 ON a CANCELLED AT 10:00 ***\n"
    path.write_text(rows(0, 300) + killed + behind)
    rules = {finding["rule"] for finding in diagnose(barograph.read(path)[0])["findings"]}
    assert ("out_of_memory" in rules) == ended


SKIPPED = "[stage] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {}, reducing to {}\n"


def test_steps_that_are_all_skipped_are_told_without_any_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.log"
    path.write_text("".join(f" 1%|1  | {n}/900 [00:09<09:00, 2.5it/s]" + SKIPPED.format(1, 1) for n in range(14)))
    assert run_doctor([str(path)]) == NO_VERDICT
    told = " ".join(capsys.readouterr().out.split())
    assert "12 steps in a row were skipped" in told and "line 12" in told


def test_a_scale_that_is_halved_at_the_start_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("".join(SKIPPED.format(2 << n, 1 << n) for n in range(31, 12, -1)) + rows(0, 300))
    assert diagnose(barograph.read(path)[0])["said"] == []


def test_a_scale_below_1_is_told(tmp_path: Path) -> None:
    path, text = tmp_path / "job.log", ""
    for n in range(9):
        text += rows(50 * n, 50 * n + 50) + f"| WARNING: overflow detected, setting loss scale to: {8 / 2**n}\n"
    path.write_text(text + rows(450, 500))
    (said,) = diagnose(barograph.read(path)[0])["said"]
    assert said["count"] == 2 and "it is at 0.5 " in said["text"]
