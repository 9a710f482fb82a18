"""What a sidecar finds out while a run is written, killed and started anew on the way, is what one reading gives."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some
from sidecar_runs import Writer, describe, own_records

from barograph.core.options import Settings
from barograph.doctor import diagnose
from barograph.log import blocks
from barograph.log.blocks import sealed_number
from barograph.query.findings import recorded_findings
from barograph.query.stored import StoredRun
from barograph.sidecar.loop import Sidecar
from barograph.store.seal import seal

OPTIONS = {
    "alerts": ({"metric": "train/loss", "above": 5.0, "rows": 2}, {"metric": "eval/*", "not_finite": True}),
    "machine": False,
    "watchdog": False,
    "price_per_gpu_hour": 2.0,
}

ROWS = some.tuples(
    some.just("row"),
    some.sampled_from([("train/loss",), ("train/loss", "train/lr"), ("train/loss", "train/lr", "eval/loss"), ("own",)]),
    some.integers(1, 40),
    some.sampled_from([0.001, 0.05, 0.7, 20.0]),
    some.sampled_from([1.0, 3.0, 50.0, math.nan]),
)
ONE_ROW = ("row", ("train/loss",), 1, 0.001, 1.0)
STEPS = some.lists(
    some.one_of(
        ROWS,
        ROWS,
        some.tuples(some.just("wide"), some.integers(1, 5)),
        some.tuples(some.just("rank"), some.integers(1, 20)),
        some.tuples(some.just("rewind"), some.integers(1, 30)),
        some.tuples(some.just("ask")),
        some.tuples(some.just("read")),
        some.tuples(some.just("restart"), some.booleans()),
    ),
    min_size=1,
    max_size=25,
)


def write(folder: Path, steps: list[Any]) -> Iterator[Any]:
    """A run as a list of steps says; gives what the reader has to do in between."""
    describe(folder, config={"lr": 1e-3}, total_steps=1000)
    writer = Writer(folder)
    other: Writer | None = None
    step = count = 0
    for what, *more in steps:
        if what == "row":
            names, rows, seconds, level = more
            for _ in range(rows):
                step, count = step + 1, count + 1
                loss = level + math.sin(count) / 50
                writer.row(step, {name: loss if "loss" in name else 1e-3 for name in names}, seconds)
        elif what == "wide":
            for number in range(more[0]):
                writer.wide(step, {f"gradients/layer{layer}/norm": 1.0 + number for layer in range(5)}, 0.01)
        elif what == "rank":
            other = other or Writer(folder, rank=1)
            other.moment = writer.moment
            for number in range(more[0]):
                other.row(step + number, {"train/loss": 2.0}, 0.05)
            writer.moment = other.moment  # one clock: rows are written in the order of their times
        elif what == "rewind":
            step = max(0, step - more[0])
            writer.segment += 1
            about = {"segment": writer.segment, "parent": writer.segment - 1, "start_step": step, "kind": "rewind"}
            writer.record("segment", step, about | {"rank": 0})
        elif what == "ask":
            writer.record("alert-request", step, {"title": "look", "text": "at this", "level": "warning"})
        else:
            yield (what, *more)
    writer.close()
    if other is not None:
        other.moment = writer.moment
        other.close()


def beside(folder: Path, noted_at: int = -1) -> Sidecar:
    return Sidecar(folder, Settings(**OPTIONS), pid=None, noted_at=noted_at)  # type: ignore[arg-type]


def outcome(folder: Path, sidecar: Sidecar) -> dict[str, Any]:
    """What is known after the last byte."""
    sidecar.read()
    assert sidecar.health is not None
    sidecar.health.finish()
    sidecar.journal.close()
    standing: dict[Any, Any] = {}
    for record in recorded_findings(StoredRun(folder)):
        one = record.fields
        standing[one["rule"], one.get("key", ""), one.get("segment"), record.step] = one["severity"], one["message"]
    assert not sidecar.health.failed
    return {
        "findings": standing,
        "accounts": [{**one, "time": 0} for one in own_records(folder, "goodput", "energy")],
        "alerts": [(one["at"], one["cause"], one["level"]) for one in own_records(folder, "alert")
                   if not one["cause"].startswith("doctor")],
    }  # fmt: skip


@pytest.mark.parametrize("examples", [25])
def test_live_with_restarts_equals_one_reading(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(STEPS)
    @example([("rank", 1), ("rank", 7), ("read",), ONE_ROW])
    @example([("rank", 1), ONE_ROW, ("rewind", 1), ONE_ROW, ("read",)])
    @example([("rank", 1), ("rank", 7), ONE_ROW, ("read",), ("rank", 1), ("restart", False)])
    def check(steps: list[Any]) -> None:
        with tempfile.TemporaryDirectory() as place:
            folder, copy = Path(place, "run"), Path(place, "copy", "run")
            sidecar: Sidecar | None = None
            for what, *more in write(folder, steps):
                sidecar = sidecar or beside(folder)
                if what == "restart":
                    at = sidecar.journal.at
                    sidecar.close()
                    sidecar = beside(folder, at if more[0] else -1)
                sidecar.read()
                if what == "read":
                    sidecar._settle(True)
            copy.parent.mkdir()
            shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("sidecar-*"))
            live = outcome(folder, sidecar or beside(folder))
            assert live == outcome(copy, beside(copy))

    check()


@pytest.mark.parametrize("noted", [False, True])
def test_a_sidecar_that_begins_again_after_sealing_says_what_one_that_never_stopped_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: bool
) -> None:
    monkeypatch.setattr(blocks, "PIECE_BYTES", 4000)
    folder, whole = tmp_path / "run", tmp_path / "whole" / "run"
    describe(folder, config={"lr": 1e-3})
    writer = Writer(folder)

    def log(steps: range) -> None:
        for step in steps:
            writer.row(step, {"train/loss": 3.0 - step / 500, "train/lr": 1e-3}, 0.5)
            norms = {f"gradients/layer{layer}/norm": 1e-12 if layer == 3 else 1.0 for layer in range(8)}
            writer.wide(step, norms | {"rollout/reward": 1.0}, 0.01)

    log(range(1, 150))
    first = beside(folder)
    first.read()
    at = first.journal.at
    first.close()
    log(range(150, 300))
    whole.parent.mkdir()
    shutil.copytree(folder, whole)
    seal(folder, final=True)
    assert sealed_number(folder, "training") > 2
    log(range(300, 320))
    second = beside(folder, at if noted else -1)
    found = outcome(folder, second)
    # the same rows, of which nothing was ever sealed
    shutil.copy(folder / "training.json", whole / "training.json")
    for path in sorted(folder.glob("training.*.wide")):
        if not (whole / path.name).exists() or path.stat().st_size > (whole / path.name).stat().st_size:
            shutil.copy(path, whole / path.name)
    for path in whole.glob("sidecar-*"):
        path.unlink()
    assert found == outcome(whole, beside(whole))
    assert "reward_constant" in {rule for rule, *_ in found["findings"]}  # known from wide rows alone


@pytest.mark.parametrize("onset", [30, 140, 203])
def test_findings_in_the_sidecars_log_begin_at_the_step_that_replay_gives(tmp_path: Path, onset: int) -> None:
    """Gradients that are not cleared and a loss that is not finite: read each few rows, said at the first bad step."""
    folder = tmp_path / "run"
    describe(folder, config={"lr": 1e-3}, total_steps=240)
    writer = Writer(folder)
    sidecar = beside(folder)
    for step in range(1, 241):
        bad = step >= onset
        values = {"train/loss": math.nan if step >= onset + 5 else 3.0 - step / 500, "train/lr": 1e-3}
        writer.row(step, values | {"model/stale_gradients": float(bad)}, 0.02)
        if step % 7 == 0:
            sidecar.read()
    writer.close()
    outcome(folder, sidecar)
    own = own_records(folder, "finding")
    replayed = diagnose(StoredRun(folder))["findings"]
    first = {rule: min(one["step"] for one in own if one["rule"] == rule) for rule in {one["rule"] for one in own}}
    assert first["missing_zero_grad"] == onset
    for one in replayed:
        assert first[one["rule"]] == one["step"], one["rule"]
    assert "missing_zero_grad" in {one["rule"] for one in replayed}
