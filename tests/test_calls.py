"""How many calls of our own functions a question costs, and how deep they go."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from written_runs import WrittenRun

import barograph
from barograph.store import run as store_run
from barograph.store.seal import seal

SOURCES = str(Path(barograph.__file__).parent)


def calls_of(question: Callable[[], Any]) -> tuple[int, int]:
    """Calls of functions of the package, generators resumed and comprehensions among them; and their greatest depth."""
    count = depth = deepest = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count, depth, deepest
        if frame.f_code.co_filename.startswith(SOURCES):
            if event == "call":
                count, depth = count + 1, depth + 1
                deepest = max(deepest, depth)
            elif event == "return":
                depth -= 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        question()
    finally:
        sys.setprofile(before)
    return count, deepest


def written(folder: Path, sealed: bool) -> barograph.StoredRun:
    run = WrittenRun(folder)
    for step in range(100):
        run.rank(0).loss(step, step / 2)
    if sealed:
        seal(run.dir, final=True)
    return barograph.StoredRun(run.dir)


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "in the log"])
def test_a_series_of_a_run_at_rest_is_60_calls_and_8_deep_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    monkeypatch.setattr(store_run, "SETTLED_NS", 0)
    stored = written(tmp_path, sealed)
    assert [len(stored.series("train/loss")) for _ in range(2)] == [100, 100]
    count, depth = calls_of(lambda: stored.series("train/loss"))
    assert count <= 60 and depth <= 8, (count, depth)


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "in the log"])
def test_a_series_of_a_run_that_was_just_written_is_60_calls_and_8_deep_at_most(tmp_path: Path, sealed: bool) -> None:
    stored = written(tmp_path, sealed)
    assert [len(stored.series("train/loss")) for _ in range(2)] == [100, 100]
    count, depth = calls_of(lambda: stored.series("train/loss"))
    assert count <= 60 and depth <= 8, (count, depth)


def test_what_is_written_after_a_look_is_in_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_run, "SETTLED_NS", 1)  # finer than any clock of a file system: looks are kept too long
    run = WrittenRun(tmp_path)
    run.rank(0).loss(0, 1.0)
    stored = barograph.StoredRun(run.dir)
    for step in range(1, 4):
        assert len(stored.series("train/loss")) == step
        time.sleep(0.05)  # the clock of the file system has gone on
        run.rank(0).loss(step, 1.0)
    monkeypatch.undo()
    for step in range(4, 50):  # no sleep: a change within the clock's tick
        assert len(stored.series("train/loss")) == step
        run.rank(0).loss(step, 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_reader_that_is_kept_says_what_a_new_one_says_after_every_kind_of_write(tmp_path: Path, seed: int) -> None:
    dice, run = random.Random(seed), WrittenRun(tmp_path)
    run.rank(0).loss(0, 1.0)
    kept = barograph.StoredRun(run.dir)
    for step in range(1, 60):
        kind = dice.choice(["row", "row", "wide", "rank", "seal", "segment", "nothing"])
        if kind == "row":
            run.rank(0).loss(step, float(step))
        elif kind == "wide":
            run.rank(0).wide(step, **{"train/loss": float(step)})
        elif kind == "rank":
            run.rank(1).loss(step, float(step))
        elif kind == "seal":
            seal(run.dir)
        elif kind == "segment":
            run.new_segment("rewind", start_step=step)
        fresh = barograph.StoredRun(run.dir)
        for rank in (None, "all"):
            for branch in ("live", "all"):
                old, new = (one.columns("train/loss", branch, rank) for one in (kept, fresh))
                assert [column.tolist() for column in old] == [column.tolist() for column in new], (kind, step)
        assert kept.segments == fresh.segments, (kind, step)
