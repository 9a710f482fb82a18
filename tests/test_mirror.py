"""A mirror and its backend: what is refused is counted, what was not sent is sent later, the training is left alone."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import mirror_runs
import pytest
from mirror_runs import Story, as_single, ours, tensorboard_points
from patience import patient

from barograph.core.options import Settings
from barograph.log import blocks
from barograph.store.seal import seal
from barograph.trackers import backends, position
from barograph.trackers.backend import LoggingBackend
from barograph.trackers.send import send


class Kept(LoggingBackend):
    """Keeps its rows in this process, as a server would, and does what a test wants in between."""

    name, package, install = "Kept", "kept", "pip install kept"
    marks = takes_text = True
    poll_seconds = 0.01
    stall_seconds = 0.2
    close_seconds = 2.0
    rows: ClassVar[list[tuple[int, dict[str, Any]]]] = []
    others: ClassVar[list[tuple[Any, ...]]] = []
    on_write: ClassVar[Any] = None
    on_open: ClassVar[Any] = None

    def __init__(self, config: Any, **named: Any):
        super().__init__(**named)
        self.config = config

    def _open(self) -> None:
        if Kept.on_open:
            Kept.on_open()
        self.run_id = getattr(self.config, "trackio_run_id", "") or "first"

    def _write(self, metrics: dict[str, Any], step: int, seconds: float) -> None:
        if Kept.on_write:
            Kept.on_write(step)
        self.rows.append((step, metrics))

    def _write_config(self, config: dict[str, Any]) -> None:
        self.others.append(("config", config))

    def _write_note(self, title: str, content: str, level: str, step: int, seconds: float) -> None:
        self.others.append(("note", title, level))

    def _held(self, name: str) -> list[float] | None:
        return [row[name] for _, row in self.rows if name in row]

    def _close(self) -> None:
        self.others.append(("close", self.exit_code))


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> type[Kept]:
    monkeypatch.setitem(
        backends.DOORS, "trackio", backends.Door(f"{__name__}:Kept", ("trackio_project", "trackio_run_id"))
    )
    monkeypatch.setitem(sys.modules, "test_mirror", sys.modules[__name__])
    for name, value in (("rows", []), ("others", []), ("on_write", None), ("on_open", None)):
        monkeypatch.setattr(Kept, name, value)
    return Kept


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def points(rows: list[tuple[int, dict[str, Any]]]) -> Any:
    from collections import Counter

    found = Counter(
        (name, step, repr(float(value))) for step, row in rows for name, value in row.items()
        if not name.startswith("barograph_")
    )  # fmt: skip
    return ours(found)


def test_records_of_a_step_are_one_row_and_configuration_comes_first(tmp_path: Path, kept: type[Kept]) -> None:
    story = Story(tmp_path)
    story.train(range(30))
    story.finish()
    assert send(story.dir, "trackio").done
    assert points(kept.rows) == story.points
    steps = [step for step, row in kept.rows if "train/loss" in row and "mine" in row]
    assert steps == list(range(30)), "a step's record and the loop's own numbers stand in one row"
    configuration: dict[str, Any] = {}
    for what, *told in kept.others:
        if what == "config":
            configuration |= told[0]
    assert configuration["lr"] == 3e-4 and "cmd" in configuration
    assert kept.others[-1] == ("close", 0)


def test_a_refused_record_is_counted_and_the_others_arrive(
    tmp_path: Path, kept: type[Kept], caplog: pytest.LogCaptureFixture
) -> None:
    story = Story(tmp_path)
    story.train(range(1, 20))
    story.finish()

    def refuse(step: int) -> None:
        if step == 7:
            raise ValueError("not this one")

    kept.on_write = refuse
    result = send(story.dir, "trackio")
    assert result.done and result.refused >= 1
    sent = {step for step, _ in kept.rows}  # of a training that was slow, sums of its time behind its last step too
    assert sent & set(range(20)) == set(range(1, 20)) - {7}
    assert len(warnings_of(caplog)) == 1 and "not this one" in warnings_of(caplog)[0]
    kept.on_write = None
    assert send(story.dir, "trackio").new == 0, "what was refused is not tried for ever"


def test_a_backend_that_dies_gets_the_rest_later(
    tmp_path: Path, kept: type[Kept], caplog: pytest.LogCaptureFixture
) -> None:
    story = Story(tmp_path)
    story.train(range(100))
    story.finish()

    def die(step: int) -> None:
        if len(kept.rows) >= 40:
            raise ConnectionError("the server is gone")

    kept.on_write = die
    result = send(story.dir, "trackio")
    assert not result.done and len(kept.rows) == 40
    assert len(warnings_of(caplog)) == 1 and "barograph sync" in warnings_of(caplog)[0]
    kept.on_write = None
    assert send(story.dir, "trackio").done
    assert points(kept.rows) == story.points
    assert position.read(story.dir, "trackio").state["run_id"] == "first"


def test_a_backend_that_hangs_is_left_behind_and_gets_the_rest_later(
    tmp_path: Path, kept: type[Kept], caplog: pytest.LogCaptureFixture
) -> None:
    import threading

    story = Story(tmp_path)
    story.train(range(60))
    story.finish()
    forever = threading.Event()
    kept.on_write = lambda step: len(kept.rows) == 25 and forever.wait()
    began = time.monotonic()
    assert not send(story.dir, "trackio", patience=1.0).done
    assert time.monotonic() - began < patient(15)
    assert len(warnings_of(caplog)) == 1
    kept.on_write = None
    held = len(kept.rows)
    assert held == 25
    assert send(story.dir, "trackio").done
    assert points(kept.rows) == story.points
    forever.set()


def test_a_missing_library_costs_one_sentence(
    tmp_path: Path, kept: type[Kept], caplog: pytest.LogCaptureFixture
) -> None:
    def missing() -> None:
        raise ImportError("no such thing", name="kept")

    story = Story(tmp_path)
    story.train(range(5))
    story.finish()
    kept.on_open = missing
    assert not send(story.dir, "trackio").done
    assert len(warnings_of(caplog)) == 1 and "pip install kept" in warnings_of(caplog)[0]


def test_notes_reach_those_that_have_them_and_only_those(tmp_path: Path, kept: type[Kept]) -> None:
    story = Story(tmp_path)
    story.run.record("stacks", 3, {"waited_seconds": 130.0, "threads": []})
    story.run.log_sample(3, "model output")
    story.finish()
    assert send(story.dir, "trackio").refused == 0
    assert ("note", "no step came for 130 s after step 3", "critical") in kept.others


def test_names_that_are_none_and_folders_that_are_none_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no backend 'wandv'"):
        send(tmp_path, "wandv")


TRAINING = """
import os, sys, time
sys.path[:0] = [os.environ["TESTS"]]
from pathlib import Path
from mirror_runs import Story
story = Story(Path(sys.argv[1]), report_to=sys.argv[3].split(","), tensorboard_dir=sys.argv[1] + "/tb")
print(story.dir, flush=True)
for begin in range(0, 300, 50):
    story.train(range(begin, begin + 50))
    time.sleep(0.2)
story.run.flush()
if sys.argv[2] == "kill":
    os.kill(os.getpid(), 9)
story.finish()
"""


def train(folder: Path, how: str, to: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "BAROGRAPH_REPORT"))}
    own = {"PYTHONPATH": mirror_runs.SOURCE, "TESTS": str(Path(__file__).parent), "BAROGRAPH_SIDECAR": "true"}
    return subprocess.run(
        [sys.executable, "-c", TRAINING, str(folder), how, to],
        env=kept | own | variables, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def expected() -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        story = Story(Path(place))
        for begin in range(0, 300, 50):
            story.train(range(begin, begin + 50))
        story.finish()
        return as_single(story.points)


def wait_until_ended(folder: Path, name: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with_end = json.loads((folder / "mirrors" / f"{name}.json").read_text())
        if with_end["clean"]:
            return
        time.sleep(0.1)
    raise AssertionError("the mirror did not come to its end")


@pytest.mark.parametrize("how", ["finish", "kill"])
def test_a_live_mirror_has_every_point_when_the_training_has_ended_or_was_killed(tmp_path: Path, how: str) -> None:
    pytest.importorskip("tensorboard")
    done = train(tmp_path, how, "tensorboard")
    folder = Path(done.stdout.splitlines()[0])
    if how == "finish":
        assert done.returncode == 0, done.stderr
        assert position.read(folder, "tensorboard").clean, "the end of the run waits for the copy"
    else:
        assert done.returncode == -signal.SIGKILL
        deadline = time.monotonic() + 30
        while not (folder / "mirrors" / "tensorboard.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    wait_until_ended(folder, "tensorboard")
    found, _ = tensorboard_points(tmp_path / "tb" / folder.name)
    assert ours(found) == expected()


def test_a_live_mirror_without_its_library_is_one_warning_and_no_failure(tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "wandb.py").write_text("raise ImportError('not here', name='wandb')\n")
    done = train(tmp_path, "finish", "wandb", PYTHONPATH=f"{tmp_path / 'hidden'}:{mirror_runs.SOURCE}")
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "W&B" in line]
    assert len(told) == 1 and "pip install wandb" in told[0] and "barograph sync" in told[0]


def test_no_process_to_be_had_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from barograph.sidecar.journal import Journal
    from barograph.sidecar.mirrors import Mirrors

    def refuse(*arguments: Any, **named: Any) -> Any:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    journal = Journal(tmp_path, replace(Settings(), report_to=("tensorboard",)))
    said: list[str] = []
    journal.on_warning = said.append
    mirrors = Mirrors(journal, journal.settings.backends)
    assert mirrors.wait() and len(said) == 1 and "barograph sync" in said[0]
    journal.close()


def test_a_users_aliases_hold_for_what_a_backend_is_told(tmp_path: Path, kept: type[Kept]) -> None:
    story = Story(tmp_path)
    story.train(range(5))
    story.finish()
    aliases = {"train/cross_entropy": {"name": "mine", "factor": 2.0}}
    assert send(story.dir, "trackio", {"aliases": aliases}).done
    told = {name for _, row in kept.rows for name in row}
    assert "train/cross_entropy" in told and "mine" not in told
    assert position.read(story.dir, "trackio").options["aliases"] == aliases, "the next process goes on with them"


def test_options_of_settings_name_the_aliases_and_each_backends_own() -> None:
    from barograph.core.options import load

    settings = load({"aliases": {"train/loss": "nll"}, "trackio_space": "me/space", "mlflow_run_id": "abc"}, {})
    assert backends.options_of("trackio", settings) == {
        "aliases": {"train/loss": "nll"}, "trackio_space": "me/space",
    }  # fmt: skip
    assert backends.options_of("mlflow", settings)["mlflow_run_id"] == "abc"
    assert all(hasattr(settings, name) for door in backends.DOORS.values() for name in door.options)


@pytest.mark.parametrize("absences", [1, 3])
def test_each_point_arrives_once_though_block_files_were_sealed_and_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: type[Kept], absences: int
) -> None:
    """The mirror has read the middle of a block file, is away while that one and others are sealed and deleted, and
    comes back; once, and again and again, with rows before, in and behind them."""
    monkeypatch.setattr(blocks, "PIECE_BYTES", 500)
    story = Story(tmp_path, wide_threshold=4, sidecar=False)
    step = 0
    for _ in range(absences):
        story.train(range(step, step + 15))
        send(story.dir, "trackio")
        before = {path.name for path in story.dir.glob("*.wide")}
        assert before, "some rows are in a block file"
        story.train(range(step + 15, step + 60))
        assert len(list(story.dir.glob("*.wide"))) > len(before), "and in later ones"
        seal(story.dir, final=True)
        assert not before & {path.name for path in story.dir.glob("*.wide")}, "the one that was being read is gone"
        step += 60
    story.train(range(step, step + 10))
    story.finish()
    seal(story.dir, final=True)
    assert send(story.dir, "trackio").done
    assert points(kept.rows) == story.points
