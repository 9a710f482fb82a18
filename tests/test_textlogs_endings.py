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
    (TRACEBACK, "line 5 at step 0: RuntimeError: mat1 and mat2"),
    ("building the model\nKilled\n", "line 2 at step 0: Killed"),
    ("start\nslurmstepd: error: Detected 1 oom-kill event(s)\n", "line 2 at step 0: slurmstepd"),
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
