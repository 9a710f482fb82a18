"""Of several ranks that log one series the same one counts beside the run as in a reading of the whole."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from sidecar_runs import Writer, describe, own_records

from barograph.core.options import Settings
from barograph.doctor import diagnose
from barograph.query.ranks import HEARD, RankChoice, RankRow, chosen_rank
from barograph.query.stored import StoredRun
from barograph.sidecar.loop import Sidecar

ROWS = some.lists(
    some.tuples(some.integers(0, 3), some.sampled_from([("a",), ("b",), ("a", "b"), ("b", "a", "c")])), max_size=80
)


@settings(deadline=None, max_examples=300)
@given(ROWS)
def test_rows_as_they_come_give_the_rank_that_all_of_them_give(rows: list[tuple[int, tuple[str, ...]]]) -> None:
    choice, given_rows = RankChoice(), []
    every: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for time, (rank, names) in enumerate(rows):
        values = [float(1000 * rank + time)] * len(names)
        row = RankRow(names, struct.pack(f"<{len(names)}d", *values), time, time, 1)
        if choice.drops(rank, names):
            assert choice.take(rank, row) == []
        given_rows += choice.take(rank, row)
        for name in names:
            every[name].append((time, rank))
    given_rows += choice.finish()
    found: dict[str, list[float]] = defaultdict(list)
    for row in given_rows:
        for name, value in zip(row.names, struct.unpack(f"<{len(row.names)}d", row.values), strict=True):
            found[name].append(value)
    for name, points in every.items():
        times, ranks = map(np.array, zip(*points, strict=True))
        rank = chosen_rank(times, ranks)
        assert found[name] == [1000 * rank + time for time, of in points if of == rank]


def test_a_loss_that_the_last_stage_alone_logs_is_watched_as_in_replay(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    describe(folder, world_size=4, config={"lr": 1e-3})
    writers = [Writer(folder, rank=rank) for rank in range(4)]
    sidecar = Sidecar(folder, Settings(machine=False, watchdog=False))
    assert sidecar.health is not None
    told: list[tuple[str, int, str]] = []
    sidecar.health.tell.append(lambda finding: told.append((finding.rule, finding.step, finding.severity)))
    for step in range(1, 120):
        for rank, writer in enumerate(writers):
            values = {"train/lr": 1e-3, "train/grad_norm": 1.0 + rank}
            if rank == 3:
                values["train/loss"] = float("nan") if step > 100 else 3.0 - step / 100
            writer.row(step, values, 0.5)
        sidecar.read()
    assert any(step == 101 and severity == "critical" for _, step, severity in told), told
    for writer in writers:
        writer.close()
    sidecar.read()
    sidecar.health.finish()
    sidecar.close()
    live = {(one.rule, one.step) for one in sidecar.health._examiner.incidents()}
    replayed = {(one["rule"], one["step"]) for one in diagnose(StoredRun(folder))["findings"]}
    assert live == replayed and any(step == 101 for _, step in live)
    assert HEARD < 101


@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
def test_thresholds_and_early_stopping_follow_the_rank_that_has_the_metric(wide: bool, tmp_path: Path) -> None:
    """The last stage's loss is judged; what rank 0 logs too is judged by rank 0's values; a row counts once."""
    folder = tmp_path / "run"
    describe(folder, world_size=4)
    writers = [Writer(folder, rank=rank) for rank in range(4)]
    writers[0].record("stop-rule", 0, {"metric": "eval/loss", "patience": 5})
    entries = [{"metric": "train/loss", "above": 5.0, "rows": 3}, {"metric": "norm", "above": 50.0}]
    sidecar = Sidecar(folder, Settings(machine=False, watchdog=False, doctor=False, alerts=entries))
    for step in range(1, 60):
        for rank, writer in enumerate(writers):
            values = {"norm": 1.0 + 40 * rank, "lr": 1e-3}
            if rank == 3:
                values["train/loss"] = 9.0 if step >= 40 else 3.0
                values["eval/loss"] = 1.0 - min(step, 20) / 100
            if wide:
                writer.moment += 500_000
                writer.wide(step, values)
            else:
                writer.row(step, values, 0.5)
        sidecar.read()
    for writer in writers:
        writer.close()
    sidecar.read()
    sidecar.finish(mirrors=False)
    sidecar.close()
    alerts = [(one["metric"], one["step"]) for one in own_records(folder, "alert") if not one.get("recovered")]
    assert alerts == [("eval/loss", 25), ("train/loss", 42)]


def test_the_end_of_another_rank_is_not_the_runs_end(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    describe(folder, world_size=2, status="crashed", reason="killed")
    main, other = Writer(folder), Writer(folder, rank=1)
    for step in range(1, 60):
        for writer in (main, other):
            writer.moment = step * 1_000_000
            writer.row(step, {"train/loss": 3.0 - step / 100}, 0.0)
    other.close()
    main.close(status=None)
    found = {one["rule"]: one for one in diagnose(StoredRun(folder))["findings"]}
    assert "crashed" in found, found
    again = Writer(folder)
    again.segment, again.moment = 2, 190_000_000
    about = {"segment": 2, "parent": 1, "start_step": 40, "kind": "resume", "rank": 0}
    again.record("segment", 40, about)
    for step in range(40, 80):
        again.row(step, {"train/loss": 3.0 - step / 100}, 1.0)
    again.close()
    found = {one["rule"]: one for one in diagnose(StoredRun(folder))["findings"]}
    assert found["restart_time"]["evidence"]["restarts"] == 1
