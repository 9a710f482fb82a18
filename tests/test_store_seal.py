"""Sealing: the same rows before, during and after, whenever it is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import forked_python
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import patient
from written_runs import WrittenRun

from barograph.log import blocks
from barograph.store import folder as folders
from barograph.store import merge, packing, sort, write
from barograph.store import seal as sealing
from barograph.store.merge import choose
from barograph.store.run import RunStore
from barograph.store.schema import StoreFile
from barograph.store.seal import seal

Rows = dict[str, list[tuple[int, int, float]]]


@pytest.fixture
def few_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "MERGE_PARTS", 3)


def rows(folder: Path) -> Rows:
    """Everything: series and histograms, as (segment, step, value) in order; of a histogram its last count."""
    look = RunStore(folder).look()
    found: Rows = {}
    for name in look.names():
        points = look.points(name)
        columns = (points.segment, points.step, points.value)
        found[name] = list(zip(*(column.tolist() for column in columns), strict=True))
    for name in look.histogram_names():
        held = look.histograms(name)
        last = [float(row[-1]) for row in held.counts]
        found[f"histogram {name}"] = list(zip(held.segment.tolist(), held.step.tolist(), last, strict=True))
    return found


def logged(run: WrittenRun, steps: range) -> None:
    writer = run.rank(0)
    for step in steps:
        writer.metrics(step, loss=step / 2, lr=-step)
        writer.wide(step, **{"act/a": float(step), "act/b": -float(step)})
        writer.histogram(step, "h", [1.0, float(step)])


def parts(run: WrittenRun, table: str = "points") -> list[Path]:
    return sorted((run.dir / "store" / "training").glob(f"*.{table}.parquet"))


# -- sealing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("final", [True, False])
def test_a_writer_that_is_quicker_than_the_sealing_does_not_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, final: bool
) -> None:
    run = WrittenRun(tmp_path)
    logged(run, range(100))
    monkeypatch.setattr(sealing, "SEAL_BYTES", 4096)
    step = 100

    def write_while_more_comes(*arguments: Any) -> Any:
        nonlocal step
        assert step < 5000, "the sealing goes on as long as the writer"
        logged(run, range(step, step + 100))
        step += 100
        return write.write_blocks(*arguments)

    monkeypatch.setattr(sealing, "write_blocks", write_while_more_comes)
    seal(run.dir, final=final)
    sealed = step
    assert 100 < sealed < 5000
    monkeypatch.undo()
    seal(run.dir, final=True)
    assert rows(run.dir)["loss"] == [(1, step, step / 2) for step in range(sealed)]
    assert rows(run.dir)["act/a"] == [(1, step, step) for step in range(sealed)]
    run.close()


def test_gc_returns_while_a_process_writes_as_fast_as_it_can(tmp_path: Path) -> None:
    code = (
        "import sys, barograph\n"
        "run = barograph.init(project='p', id='r', dir=sys.argv[1], verbosity=-2, git=False, sidecar=False)\n"
        "names = [f'act/{k}' for k in range(8)]\n"
        "for step in range(3_000_000):\n"
        "    run.log({'loss': float(step)}, step=step)\n"
        "    run.model.wide(dict.fromkeys(names, float(step)), step=step)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    try:
        while sum(path.stat().st_size for path in tmp_path.glob("p/r/*.wide")) < sealing.SEAL_BYTES:
            assert writer.poll() is None
            time.sleep(0.05)
        for _ in range(2):
            command = [sys.executable, "-m", "barograph", "gc", "--dir", str(tmp_path)]
            subprocess.run(command, check=True, timeout=patient(60.0), stdout=subprocess.DEVNULL)
            time.sleep(1.0)
    finally:
        writer.kill()
        writer.wait()
    assert list(tmp_path.glob("p/r/store/training/*.parquet"))
    found = RunStore(tmp_path / "p" / "r").look().points("loss").step
    assert found.tolist() == list(range(len(found)))


def test_sealed_rows_are_sorted_by_series_in_a_file_that_anyone_can_read(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    for rank, names in ((3, ("b", "a")), (0, ("c", "a"))):
        for step in (5, 6, 4):
            run.rank(rank).metrics(step, **dict.fromkeys(names, 1.0))
    seal(run.dir, final=True)
    (path,) = (run.dir / "store" / "training-rank3-1").glob("*.points.parquet")
    table = pq.read_table(path)
    assert [str(column) for column in table.schema.types] == [
        "dictionary<values=string, indices=int32, ordered=0>",
        *("int64", "timestamp[us, tz=UTC]", "double", "int32", "int32"),
    ]
    found = list(zip(*(table.column(c).to_pylist() for c in ("name", "segment", "step")), strict=True))
    assert found == sorted(found) and found[0] == ("a", 1, 4)
    assert set(table.column("rank").to_pylist()) == {3}
    header = json.loads(pq.read_metadata(path).metadata[b"barograph"])
    assert header["log"] == [[0, run.rank(3).log.position]] and header["first"] == {"1": [header["first"]["1"][0], 5]}
    assert [mark[1:3] for mark in header["segments"]] == [[1, 3]]


def test_other_programs_find_long_names_that_begin_alike(tmp_path: Path) -> None:
    names = [f"{'long/' * 30}{number}" for number in range(50)]
    run = WrittenRun(tmp_path)
    for step in range(3):
        run.rank(0).wide(step, **{name: float(at) for at, name in enumerate(names)})
    seal(run.dir, final=True)
    (path,) = parts(run)
    for at in (0, 17, 49):
        found = pq.read_table(path, filters=[("name", "==", names[at])])
        assert found.column("value").to_pylist() == [float(at)] * 3


@pytest.mark.parametrize(("series", "steps", "most"), [(1000, 300, 5.0), (2, 50_000, 5.2)])
def test_a_sealed_point_takes_few_bytes(tmp_path: Path, series: int, steps: int, most: float) -> None:
    chance = random.Random(1)
    run = WrittenRun(tmp_path)
    names = tuple(f"layer.{number}/norm" for number in range(series))
    pack = struct.Struct(f"<{series}d").pack
    writer = run.rank(0)
    for step in range(steps):
        values = struct.unpack(f"<{series}f", struct.pack(f"<{series}f", *(chance.random() for _ in names)))
        writer.blocks.row(names, pack(*values), step, 10**15 + step * 250_123, 1, 0)
    run.close()
    seal(run.dir, final=True)
    assert sum(path.stat().st_size for path in parts(run)) / (series * steps) < most


def test_two_sealers_never_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = WrittenRun(tmp_path)
    logged(run, range(10))
    before = rows(run.dir)
    inner: list[Any] = []
    real = write.sorted_windows

    def during(*arguments: Any) -> Any:
        inner.append(seal(run.dir, final=True))
        return real(*arguments)

    monkeypatch.setattr(write, "sorted_windows", during)
    assert seal(run.dir, final=True)
    assert inner and inner == [[]] * len(inner)
    assert rows(run.dir) == before


def test_the_last_sealing_waits_for_those_before_it_however_many_come(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    logged(run, range(10))
    with ThreadPoolExecutor() as threads:
        with sealing._alone(run.dir / "store", False) as alone:
            assert alone
            waiting = [threads.submit(seal, run.dir, final=True, wait=True) for _ in range(3)]
            time.sleep(0.1)
            assert not parts(run)
        assert sum(bool(one.result(30)) for one in waiting) == 1
    assert len(parts(run)) == 1


def test_files_that_are_not_ours_stay_and_hide_nothing(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    logged(run, range(10))
    before = rows(run.dir)
    home = run.dir / "store" / "training"
    home.mkdir(parents=True)
    (home / "notes.txt").write_bytes(b"mine")
    (home / "000001-000012.points.parquet").write_bytes(b"PAR1 nonsense PAR1")
    assert rows(run.dir) == before
    seal(run.dir, final=True)
    assert rows(run.dir) == before
    assert (home / "notes.txt").read_bytes() == b"mine"


def test_names_too_long_for_an_index_stay_readable_unsealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_INDEX_BYTES", 10)
    run = WrittenRun(tmp_path)
    logged(run, range(10))
    before = rows(run.dir)
    assert not [path for path in seal(run.dir, final=True) if "points" in path.name]
    assert rows(run.dir) == before


def test_a_disk_that_fills_while_sealing_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = WrittenRun(tmp_path)
    logged(run, range(10))
    before = rows(run.dir)

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packing.PartWriter, "add", full)
    with pytest.raises(OSError, match="No space"):
        seal(run.dir, final=True)
    assert not list((run.dir / "store" / "training").glob("*.parquet")) and rows(run.dir) == before
    monkeypatch.undo()
    seal(run.dir, final=True)
    assert rows(run.dir) == before


def test_the_command_seals_a_run_and_says_one_sentence_if_it_cannot(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    logged(run, range(10))
    before = rows(run.dir)
    command = [sys.executable, "-m", "barograph.store.seal"]
    assert subprocess.run([*command, str(run.dir), "--final"]).returncode == 0 and len(parts(run)) == 1
    assert rows(run.dir) == before
    done = subprocess.run([*command, str(tmp_path / "missing")], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "missing" in done.stderr


# -- any rows ---------------------------------------------------------------------------------------

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["metrics", "wide", "histogram", "seal", "final", "segment", "resume", "kill"]),
        st.lists(st.sampled_from(["a", "b", "b/c", "é", "z" * 300]), unique=True, min_size=1, max_size=4),
        st.integers(-2, 9),
    ),
    max_size=30,
)


@given(ACTIONS, st.integers(1, 12), st.integers(2, 5), st.sampled_from([4, 65_536]))
@settings(max_examples=60, deadline=None)
def test_rows_are_the_same_logged_sealed_and_merged(actions: Any, window: int, merged: int, group: int) -> None:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sort, "WINDOW_ROWS", {"points": window, "histograms": window})
        patch.setattr(merge, "MERGE_PARTS", merged)
        patch.setattr(packing, "GROUP_ROWS", {"points": group, "histograms": group})
        patch.setattr(sealing, "SEAL_BYTES", 500)
        patch.setattr(blocks, "PIECE_BYTES", 700)
        run, wanted = WrittenRun(Path(root)), Rows()
        for value, (action, names, step) in enumerate(actions):
            writer, segment = run.rank(0), run.segment.number
            if action in ("metrics", "wide"):
                (writer.metrics if action == "metrics" else writer.wide)(step, **dict.fromkeys(names, float(value)))
                for name in names:
                    wanted.setdefault(name, []).append((segment, step, float(value)))
            elif action == "histogram":
                writer.histogram(step, names[0], [1.0, value])
                wanted.setdefault(f"histogram {names[0]}", []).append((segment, step, float(value)))
            elif action in ("seal", "final"):
                seal(run.dir, final=action == "final")
            elif action == "segment":
                run.new_segment("rewind", step)
            elif action == "resume":
                run.resume()
            else:
                writer.kill()
                run.ranks.clear()
        for name, found in wanted.items():
            wanted[name] = sorted(found, key=lambda row: row[:2])
        kept = rows(run.dir)
        assert {name: sorted(found) for name, found in kept.items()} == {n: sorted(f) for n, f in wanted.items()}
        run.close()
        seal(run.dir, final=True)
        assert {name: sorted(found) for name, found in rows(run.dir).items()} == {
            name: sorted(found) for name, found in wanted.items()
        }
        assert not RunStore(run.dir).problems and not blocks.pieces(run.dir)


# -- merging ----------------------------------------------------------------------------------------


def test_the_number_of_sealed_files_stays_small(tmp_path: Path, few_merge: None) -> None:
    run, most = WrittenRun(tmp_path), 0
    for number in range(40):
        logged(run, range(number * 2, number * 2 + 2))
        seal(run.dir, final=True)
        most = max(most, len(parts(run)))
    assert most <= 9  # at most two of a size, and 40 files double less than six times
    assert [step for _, step, _ in rows(run.dir)["loss"]] == list(range(80))


def test_merging_looks_at_neighbours_and_rewrites_only_what_doubles() -> None:
    def files(*counts: int) -> list[tuple[StoreFile, int]]:
        return [(StoreFile(n, n, "points", str(n)), count) for n, count in enumerate(counts)]

    def chosen(*counts: int) -> list[int]:
        return [file.first for file in choose(files(*counts))]

    assert chosen(*[5] * 7) == []
    assert chosen(*[5] * 8) == list(range(8))
    assert chosen(1000, *[5] * 8) == list(range(1, 9))
    assert chosen(1000, *[5] * 7) == []
    assert chosen(*[5] * 4, -1, *[5] * 4) == []
    assert chosen(-1, *[5] * 8, -1) == list(range(1, 9))
    assert chosen(*[merge.MERGE_ROWS // 8 + 1] * 8) == []


# -- killed -----------------------------------------------------------------------------------------

POINTS_OF_FAILURE = [
    (os, "rename"),
    (os, "remove"),
    (os, "fsync"),
    (Path, "unlink"),
    (Path, "write_bytes"),
    (write, "sync_folder"),
    (packing.PartWriter, "add"),
    (packing.PartWriter, "close"),
    (folders.os, "listdir"),
]


@pytest.mark.parametrize("place", POINTS_OF_FAILURE, ids=lambda place: place[1])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_step_nothing_is_lost_or_doubled(
    tmp_path: Path, few_merge: None, monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str], after: bool
) -> None:
    """The sealer dies just before or just after the nth call, for every n there is; then another one comes."""
    monkeypatch.setattr(blocks, "PIECE_BYTES", 400)
    for nth in range(200):
        run = WrittenRun(tmp_path, str(nth))
        for turn in range(3):
            logged(run, range(turn * 3, turn * 3 + 3))
            if turn < 2:
                seal(run.dir, final=True)
        run.close()
        before = rows(run.dir)
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
                seal(run.dir, final=True)
                died = False
            except SystemExit:
                pass
        assert rows(run.dir) == before
        seal(run.dir, final=True)
        assert rows(run.dir) == before
        home = run.dir / "store" / "training"
        assert not list(home.glob(".tmp*")) and not blocks.pieces(run.dir)
        if not died:
            assert nth > 0, "the call was never made"
            return
    pytest.fail("more calls than expected")


WRITER = """
import sys
from barograph.core.record import Record, encode
from barograph.log import blocks
from barograph.log.blocks import BlockWriter, doubles
from barograph.log.write import JsonLog
from pathlib import Path
blocks.PIECE_BYTES = 3000
folder, step = Path(sys.argv[1]), int(sys.argv[2])
log = JsonLog(folder / "training.json")
rows = BlockWriter(folder, "training", {})
while True:
    log.append(encode(Record("metrics", step, step, {"a": step})))
    rows.row(("b", "c"), doubles([step, -step]), step, step, 1, log.position)
    rows.histogram("h", doubles([0, 1, 2, 1, step]), 0, step, step, 1, log.position)
    step += 1
    sys.stdout.write(f"{step}\\n"); sys.stdout.flush()
"""
SEALER = """
import sys
from barograph.store import merge, packing, seal
seal.SEAL_BYTES = 2000
merge.MERGE_PARTS = 3
packing.GROUP_ROWS = dict(points=64, histograms=16)
while True:
    seal.seal(sys.argv[1])
"""


def killed_and_started_again(folder: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    run = WrittenRun(folder)
    run.close()
    step = 0
    for _ in range(kills):
        # forked, so that both work when they are killed, and do not still import what they need
        options: dict[str, Any] = {"needs": ("numpy", "pyarrow.parquet")}
        words = [sys.executable, "-c", WRITER, str(run.dir), str(step)]
        writer = forked_python.start(*words, stdout=subprocess.PIPE, **options)
        sealer = forked_python.start(sys.executable, "-c", SEALER, str(run.dir), **options)
        assert writer.stdout is not None
        writer.stdout.readline()  # it works; now let it work for a random moment
        time.sleep(chance.random() * 0.3)
        for process in chance.sample([writer, sealer], 2):
            process.send_signal(signal.SIGKILL)
        told = writer.communicate()[0].split(b"\n")[:-1]
        sealer.wait()
        found = rows(run.dir)
        steps = [step for _, step, _ in found["a"]]
        assert steps == list(range(len(steps))), "lost or doubled"
        assert len(steps) >= (int(told[-1]) if told else step), "what was acknowledged is lost"
        for name in ("b", "c", "histogram h"):
            others = [step for _, step, _ in found[name]]
            assert others == list(range(len(others))) and len(others) >= (int(told[-1]) if told else step), name
            assert abs(len(others) - len(steps)) <= 1
        step = len(steps)
        for name in ("b", "c", "histogram h"):  # the row of the step whose record was written before the kill
            if len(found[name]) < step:
                log = run.rank(0)
                if name == "histogram h":
                    log.blocks.histogram("h", struct.pack("<5d", 0, 1, 2, 1, step - 1), 0, step - 1, 1, 1, 0)
                else:
                    log.blocks.row((name,), struct.pack("<d", step - 1), step - 1, 1, 1, 0)
        run.close()
    seal(run.dir, final=True)
    assert [step for _, step, _ in rows(run.dir)["a"]] == list(range(step))
    assert not blocks.pieces(run.dir)


def test_killed_at_random_moments_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    killed_and_started_again(tmp_path, 3, 1)


@pytest.mark.slow
def test_killed_forty_times_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    killed_and_started_again(tmp_path, 40, 2)
