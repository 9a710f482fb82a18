"""What a run's logs, block files and sealed parts hold together, in every state between them."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path

import numpy as np
import pytest
from written_runs import WrittenRun

from barograph.log import blocks
from barograph.store import seal as sealing
from barograph.store.run import RunStore
from barograph.store.seal import seal


def points(folder: Path, name: str) -> list[tuple[int, float]]:
    found = RunStore(folder).look().points(name)
    return list(zip(found.step.tolist(), found.value.tolist(), strict=True))


def logged(run: WrittenRun, steps: range) -> None:
    writer = run.rank(0)
    for step in steps:
        writer.loss(step, step / 2)
        writer.wide(step, **{"act/a": float(step), "act/b": -float(step)})
        if step % 5 == 0:
            writer.histogram(step, "weights", [1.0, float(step)])


def check(folder: Path, steps: range) -> None:
    look = RunStore(folder).look()
    assert look.names() == ["act/a", "act/b", "train/loss"]
    assert look.points("train/loss").step.tolist() == list(steps)
    assert look.points("train/loss").value.tolist() == [step / 2 for step in steps]
    assert look.points("act/b").value.tolist() == [-float(step) for step in steps]
    rows = look.histograms("weights")
    assert rows.step.tolist() == [step for step in steps if step % 5 == 0]
    assert [row.tolist() for row in rows.counts] == [[1.0, float(step)] for step in rows.step]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_runs_that_are_kept_hold_no_file_open_and_a_run_that_is_dropped_is_gone_at_once(tmp_path: Path) -> None:
    runs = [WrittenRun(tmp_path, f"r{number}") for number in range(5)]
    for run in runs:
        logged(run, range(20))
    before = os.listdir("/proc/self/fd")
    stores = [RunStore(run.dir) for run in runs]
    looks = [store.look() for store in stores]
    assert [len(look.points("act/a").step) for look in looks] == [20] * 5
    assert len(os.listdir("/proc/self/fd")) == len(before)
    gone = [weakref.ref(one) for one in (*stores, *looks)]
    gc.disable()
    try:
        del stores, looks
        assert [one() for one in gone] == [None] * 10  # with all that they have read
    finally:
        gc.enable()


def test_a_run_that_is_being_written_is_read_from_its_logs_and_blocks(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    logged(run, range(20))
    check(run.dir, range(20))


def test_sealing_moves_everything_and_again_nothing(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    logged(run, range(20))
    assert seal(run.dir) == []  # not worth it yet
    written = seal(run.dir, final=True)
    assert [path.name for path in written] == ["000001-000001.histograms.parquet", "000001-000001.points.parquet"]
    assert seal(run.dir, final=True) == []
    check(run.dir, range(20))
    logged(run, range(20, 40))
    check(run.dir, range(40))
    seal(run.dir, final=True)
    check(run.dir, range(40))


def test_block_files_go_once_they_are_sealed_and_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "PIECE_BYTES", 1000)
    run = WrittenRun(tmp_path)
    logged(run, range(100))
    last = run.rank(0).blocks.path
    seal(run.dir, final=True)
    assert [path for _, path in blocks.pieces(run.dir)] == [last]  # its writer lives
    check(run.dir, range(100))
    run.close()
    seal(run.dir, final=True)
    assert blocks.pieces(run.dir) == []
    check(run.dir, range(100))
    run.resume()
    logged(run, range(100, 130))
    check(run.dir, range(130))
    seal(run.dir, final=True)
    check(run.dir, range(130))


def test_parts_of_narrow_data_can_be_deleted(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    for step in range(50):
        run.rank(0).loss(step, 1.0 + step)
        if step % 10 == 9:
            seal(run.dir, final=True)
    for path in sorted((run.dir / "store" / "training").glob("*.parquet")):
        kept = path.read_bytes()
        path.unlink()
        assert points(run.dir, "train/loss") == [(step, 1.0 + step) for step in range(50)]
        path.write_bytes(kept)


def test_a_damaged_part_is_read_from_the_log_and_sealed_again(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    for step in range(50):
        run.rank(0).loss(step, 1.0 + step)
        if step % 10 == 9:
            seal(run.dir, final=True)
    run.close()
    whole = [(step, 1.0 + step) for step in range(50)]
    for number, offset in ((1, -3), (2, 6), (3, 200)):
        path = run.dir / "store" / "training" / f"{number:06d}-{number:06d}.points.parquet"
        data = bytearray(path.read_bytes())
        data[offset] ^= 0xFF
        path.write_bytes(data)
    store = RunStore(run.dir)
    found = store.look().points("train/loss")
    assert list(zip(found.step.tolist(), found.value.tolist(), strict=True)) == whole
    assert store.problems
    seal(run.dir, final=True)
    store = RunStore(run.dir)
    assert len(store.look().points("train/loss").step) == 50
    assert not store.problems
    assert len(list((run.dir / "store" / "training").glob("*.damaged"))) == 2  # the third is read whole


def test_a_reader_that_was_there_before_sees_deletions_and_sealing(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    store = RunStore(run.dir)
    for turn in range(5):
        logged(run, range(turn * 10, turn * 10 + 10))
        assert store.look().points("train/loss").step.tolist() == list(range(turn * 10 + 10))
        assert store.look().points("act/a").step.tolist() == list(range(turn * 10 + 10))
        if turn % 2:
            seal(run.dir, final=True)
            assert store.look().points("act/a").step.tolist() == list(range(turn * 10 + 10))
    for path in (run.dir / "store" / "training").glob("*"):
        path.unlink()
    assert store.look().points("train/loss").step.tolist() == list(range(50))
    assert store.look().points("act/a").step.tolist() == list(range(50))  # the writer has not left its block file


def test_what_is_sealed_between_two_looks_at_a_run_is_not_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = WrittenRun(tmp_path)
    logged(run, range(30))
    store = RunStore(run.dir)
    store.look()
    list_again = RunStore._list_again

    def seal_in_between(self: RunStore, logs: list) -> bool:  # type: ignore[type-arg]
        seal(run.dir, final=True)
        return list_again(self, logs)

    monkeypatch.setattr(RunStore, "_list_again", seal_in_between)
    assert store.look().points("act/a").step.tolist() == list(range(30))
    assert store.look().points("train/loss").step.tolist() == list(range(30))


def test_many_small_parts_become_one(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    for turn in range(20):
        logged(run, range(turn * 10, turn * 10 + 10))
        seal(run.dir, final=True)
    assert len(list((run.dir / "store" / "training").glob("*.points.parquet"))) < 9
    check(run.dir, range(200))


def test_large_logs_are_sealed_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "SEAL_BYTES", 2000)
    monkeypatch.setattr(blocks, "PIECE_BYTES", 1500)
    run = WrittenRun(tmp_path)
    logged(run, range(200))
    seal(run.dir)
    check(run.dir, range(200))
    run.close()
    seal(run.dir, final=True)
    check(run.dir, range(200))


def test_a_sidecars_numbers_belong_to_the_segment_that_it_had_read(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    writer = run.rank(0)
    ends = [writer.loss(step, 1.0) for step in range(3)]
    run.new_segment("rewind", 1)
    ends += [writer.loss(step, 2.0) for step in range(1, 3)]
    sidecar = run.ranks[-1] = type(writer)(run, "sidecar-host.json", 0)
    for step, at in zip((0, 1, 2, 1, 2), ends, strict=True):
        sidecar.record("gpu", step, id=0, power=float(at), at=at)
    for _ in range(2):
        found = RunStore(run.dir).look().points("gpu/0/power")
        assert found.segment.tolist() == [1, 1, 1, 2, 2]
        assert found.value.tolist() == [float(end) for end in ends]
        assert "gpu/0/at" not in RunStore(run.dir).look().names()
        run.close()
        seal(run.dir, final=True)


def test_raw_values_of_a_histogram_are_counted(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    writer = run.rank(0)
    writer.blocks.histogram("w", np.array([0.0, 1.0, 2.0, np.nan]).tobytes(), 2, 1, 1, 1, writer.log.position)
    for _ in range(2):
        rows = RunStore(run.dir).look().histograms("w")
        assert (rows.edges[0].tolist(), rows.counts[0].tolist()) == ([0.0, 1.0, 2.0], [1.0, 2.0])
        seal(run.dir, final=True)


def test_segments_come_from_the_log_where_their_files_are_damaged(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    for step in range(10):
        run.rank(0).loss(step, 1.0)
    run.new_segment("rewind", 5)
    for step in range(5, 12):
        run.rank(0).loss(step, 2.0)
    for sealed in (False, True):
        if sealed:
            seal(run.dir, final=True)
        for content in (b"", None):
            path = run.dir / "segments" / "0002.json"
            kept = path.read_bytes()
            path.unlink() if content is None else path.write_bytes(content)
            store = RunStore(run.dir)
            look = store.look()
            assert [segment.start_step for segment in look.segments()] == [None, 5]
            found = look.points("train/loss")
            live = look.branch().mask(found.step, found.segment)
            assert live is not None
            assert found.value[live].tolist() == [1.0] * 5 + [2.0] * 7
            assert bool(store.problems) == (content is not None)
            path.write_bytes(kept)


def test_a_series_is_looked_for_in_the_rows_that_have_it_alone(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    for step in range(5):
        for number in range(20):
            run.rank(0).metrics(step, **{f"a{number}": float(step)})
        run.rank(0).wide(step, **{"act/a": float(step)})
    look = RunStore(run.dir).look()
    assert look.points("a7").value.tolist() == [0, 1, 2, 3, 4] == look.points("act/a").value.tolist()
    assert look.has("act/a") and not look.has("a20")
    (log,) = look.logs
    sheets = [sheet for rows in (*log.stretches.values(), *log.blocks.values()) for sheet in rows.sheets.values()]
    assert len(sheets) == 21
    assert sorted(name for sheet in sheets if sheet._block for name in sheet.keys.names) == ["a7", "act/a"]
