"""Sealing that is killed anywhere, and begun again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from store_rows import Book, closed_files

from barograph.store import packing
from barograph.store import schema as store_schema
from barograph.store import seal as sealing
from barograph.store.reader import StoreReader
from barograph.store.seal import seal


@pytest.fixture
def few_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "MERGE_PARTS", 3)


# -- killed -----------------------------------------------------------------------------------------

POINTS_OF_FAILURE = [
    (os, "rename"),
    (os, "remove"),
    (os, "fsync"),
    (sealing, "sync_folder"),
    (packing.PartWriter, "add"),
    (packing.PartWriter, "close"),
    (store_schema.os, "listdir"),
]


@pytest.mark.parametrize("place", POINTS_OF_FAILURE, ids=lambda place: place[1])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_step_nothing_is_lost_or_doubled(
    tmp_path: Path, few_merge: None, place: tuple[Any, str], after: bool
) -> None:
    """The sealer dies just before or just after the nth call, for every n there is; then another one comes."""
    for nth in range(40):
        root = tmp_path / str(nth)
        book, folder = Book(), root / "w"
        closed_files(folder, book, 1)
        seal(folder, closed=True)
        closed_files(folder, book, 1)
        seal(folder, closed=True)
        closed_files(folder, book, 2, ["loss", "new"])
        with pytest.MonkeyPatch.context() as patch:
            calls = [0]
            real = getattr(*place)

            def dying(
                *arguments: Any, calls: list[int] = calls, nth: int = nth, real: Any = real, **options: Any
            ) -> Any:
                calls[0] += 1
                if calls[0] == nth + 1 and not after:
                    raise SystemExit
                result = real(*arguments, **options)
                if calls[0] == nth + 1:
                    raise SystemExit
                return result

            patch.setattr(*place, dying)
            died = True
            try:
                seal(folder, closed=True)
                died = False
            except SystemExit:
                pass
        book.check(root)
        seal(folder, closed=True)
        book.check(root)
        left = sorted(name for name in os.listdir(folder) if not name.startswith("."))
        assert left == ["000001-000004.histograms.parquet", "000001-000004.points.parquet"]
        assert not list(folder.glob(".tmp*"))
        if not died:
            assert nth > 0, "the call was never made"
            return
    pytest.fail("more calls than expected")


KILLED = """
import sys, random, numpy as np
from barograph.store import sort, seal as sealing, packing
from barograph.store.writer import Writer
sealing.MERGE_PARTS = 3
packing.GROUP_ROWS = dict(points=64, histograms=16)
root, first = sys.argv[1], int(sys.argv[2])
chance = random.Random(first)
writer = Writer(root + "/w", seal_points=40)
step = first
while True:
    rows = chance.randrange(1, 6)
    steps = np.arange(step, step + rows)
    writer.write_points(("a", "b"), steps, steps * 10, np.stack([steps, -steps], 1).astype(float), log_end=step + rows)
    for one in steps:
        writer.write_histogram("h", int(one), int(one), [0.0, 1.0, 2.0], [float(one), 1.0])
    writer.flush()
    step += rows
    sys.stdout.write(f"{step}\\n"); sys.stdout.flush()
    if writer.sealable:
        writer.sealable = 0
        sealing.seal(root + "/w")
"""


def killed_and_started_again(root: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    step = 0
    for _ in range(kills):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(root), str(step)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()  # it works; now let it work for a random moment
        time.sleep(chance.random() * 0.15)
        process.send_signal(signal.SIGKILL)
        told = process.communicate()[0].split(b"\n")[:-1]
        reader = StoreReader(root)
        got = reader.points("a", ("time", "value"))
        steps = got.step.tolist()
        assert steps == list(range(len(steps))), "lost or doubled"
        assert len(steps) >= (int(told[-1]) if told else step), "a flush that returned is lost"
        assert got.value.tolist() == steps and got.time.tolist() == [step * 10 for step in steps]
        assert reader.points("b").step.tolist() == steps
        assert [int(counts[0]) for counts in reader.histograms("h").counts] == steps
        assert reader.log_end("w") == len(steps)
        assert not reader.problems
        step = len(steps)
    seal(root / "w")
    assert StoreReader(root).points("a").step.tolist() == list(range(step))
    assert not list((root / "w").glob("*.live.arrows")) and not list((root / "w").glob(".tmp*"))


def test_killed_at_random_moments_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    killed_and_started_again(tmp_path, 4, seed=random.randrange(2**32))


@pytest.mark.slow
def test_killed_forty_times_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    killed_and_started_again(tmp_path, 40, seed=random.randrange(2**32))
