"""The public stand-in does what a run does, as far as a probe can see."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.core.options import Settings
from barograph.probes.recording import Recording
from barograph.testing import FakeRun

CALLS = ("record", "warn", "log_layers", "log_histogram")


@pytest.fixture(params=["real", "fake"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "fake":
        yield FakeRun(tmp_path, doctor=False, price_per_gpu_hour=2.5)
        return
    with barograph.init(
        "p", "name", dir=tmp_path, console="none", git=False, doctor=False, blackbox=False, price_per_gpu_hour=2.5
    ) as real:
        yield real


def members(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")} | set(protocol.__annotations__)


def test_it_has_everything_that_a_probe_may_use(run: Any) -> None:
    assert members(Recording) == {
        "dir", "settings", "rank", "world_size", "at_finish", "current_step", "record", "warn"
    }  # fmt: skip
    for name in members(Recording):
        assert hasattr(run, name), name
    assert isinstance(run.settings, Settings) and run.settings.price_per_gpu_hour == 2.5
    assert isinstance(run.dir, Path) and isinstance(run.at_finish, list)
    assert (run.rank, run.world_size) == (0, 1)
    assert isinstance(run.name, str) and isinstance(run.project, str)


@pytest.mark.parametrize("call", CALLS)
def test_its_calls_take_what_those_of_a_run_take(call: str, tmp_path: Path) -> None:
    def arguments(owner: Any) -> list[tuple[str, Any, Any]]:
        parameters = inspect.signature(getattr(owner, call)).parameters.values()
        return [(each.name, each.kind, each.default) for each in parameters]

    with barograph.init(dir=tmp_path, console="none", git=False, doctor=False, blackbox=False) as run:
        assert arguments(FakeRun()) == arguments(run)


def test_a_type_checker_takes_it_for_a_run_that_probes_record_to() -> None:
    recording: Recording = FakeRun()
    assert recording.current_step == 0


def test_its_step_is_that_of_the_last_call(run: Any) -> None:
    assert run.current_step == 0
    run.log_layers(3, {"a": {"norm": 1.0}})
    assert run.current_step == 3
    run.log_layers(7, {"a": {"norm": 1.0}}, "other", advance=False)
    run.log_histogram("h", [1, 2], 8, edges=[0.0, 1.0, 2.0], advance=False)
    assert run.current_step == 3
    run.log_histogram("h", [1, 2], 9, edges=[0.0, 1.0, 2.0])
    assert run.current_step == 9


def test_its_records_are_kept_as_they_were_given(run: Any) -> None:
    fields = {"text": "x", "value": 1.5, "flags": [True, None], "inner": {"a": 1}}
    run.record("info", 4, dict(fields))
    run.record("info", 5, dict(fields), draw=False)
    if isinstance(run, FakeRun):
        kept = [(record.step, record.fields) for record in run.records if record.kind == "info"]
    else:
        run.finish()
        stored = barograph.StoredRun(run.dir).records("info")
        kept = [(record.step, record.fields) for record in stored if record.fields.get("text") == "x"]
    assert kept == [(4, fields), (5, fields)]


def test_a_warning_is_given_once(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    for sentence, key in (("one", "k"), ("two", "k"), ("three", None), ("three", None)):
        run.warn(sentence, key)
    shown = run.warnings if isinstance(run, FakeRun) else [record.getMessage() for record in caplog.records]
    assert [next(word for word in ("one", "two", "three") if word in text) for text in shown] == ["one", "three"]


def test_what_waits_for_the_end_is_called_once_in_order(run: Any) -> None:
    calls: list[int] = []
    for number in range(3):
        run.at_finish.append(lambda number=number: calls.append(number))
    run.finish()
    run.finish()
    assert calls == [0, 1, 2]


def test_it_refuses_what_a_run_would_drop() -> None:
    with pytest.raises(ValueError, match="no kind of record 'nonsense'"):
        FakeRun().record("nonsense", 0, {})
    with pytest.raises(TypeError):
        FakeRun().record("info", 0, {"value": object()})


def test_it_answers_for_what_it_was_given() -> None:
    run = FakeRun(rank=1, world_size=4, step=5)
    run.record("info", 6, {"a": 1})
    run.warn("the disk is full")
    assert (run.current_step, run.rank, run.world_size) == (5, 1, 4)
    assert run.of("info") == [{"a": 1}] and run.warned("disk") and not run.warned("memory")
    run.current_step = 9
    assert run.next_step == 10
