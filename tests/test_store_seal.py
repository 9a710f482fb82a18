"""Sealing: the same rows before, during and after, whenever it is killed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_rows import Book, closed_files, fill, names_of

from barograph.store import packing, sort
from barograph.store import seal as sealing
from barograph.store.reader import StoreReader
from barograph.store.schema import SEALING_LOCK, StoreFile, parse_names
from barograph.store.seal import choose, main, seal
from barograph.store.writer import Writer


@pytest.fixture
def few_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "MERGE_PARTS", 3)


# -- sealing ----------------------------------------------------------------------------------------


def test_sealed_rows_are_sorted_by_series_in_a_file_that_anyone_can_read(tmp_path: Path) -> None:
    book, writer = Book(), Writer(tmp_path / "w", rank=3)
    book.write(writer, ["b", "a"], [5, 6, 4], segment=2)
    book.write(writer, ["c", "a"], [1, 5, 5], segment=1)
    writer.close()
    assert seal(tmp_path / "w", closed=True) == ["000001-000001.points.parquet"]
    table = pq.read_table(tmp_path / "w" / "000001-000001.points.parquet")
    assert [str(column) for column in table.schema.types] == [
        "dictionary<values=string, indices=int32, ordered=0>",
        *("int64", "timestamp[us, tz=UTC]", "double", "int32", "int32"),
    ]
    found = list(zip(*(table.column(c).to_pylist() for c in ("name", "segment", "step")), strict=True))
    assert found == sorted(found) and found[0] == ("a", 1, 1)
    assert set(table.column("rank").to_pylist()) == {3}
    assert (
        json.loads(pq.read_metadata(tmp_path / "w" / "000001-000001.points.parquet").metadata[b"barograph"])["format"]
        == 1
    )
    book.check(tmp_path)
    alone = Writer(tmp_path / "other" / "w")
    Book().write(alone, ["b", "a"], [5, 6, 4])
    alone.close()
    (name,) = seal(tmp_path / "other" / "w", closed=True)
    assert pq.read_table(tmp_path / "other" / "w" / name).column("step").to_pylist() == [4, 5, 6, 4, 5, 6]


def test_other_programs_find_long_names_that_begin_alike(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    names = sorted("layer/" + "x" * 10_000 + f"/{number}" for number in range(40))
    book, writer = Book(), Writer(tmp_path / "w")
    book.write(writer, names, list(range(4000)))
    writer.close()
    seal(tmp_path / "w", closed=True)
    path = tmp_path / "w" / "000001-000001.points.parquet"
    assert pq.ParquetFile(path).num_row_groups > 2
    reader = StoreReader(tmp_path)
    for name in (names[0], names[17], names[-1]):
        expected = [row[3] for row in book.rows[name]]
        assert reader.points(name).value.tolist() == expected
        rows = duckdb.execute(
            "select value from read_parquet(?) where name = ? order by step", [str(path), name]
        ).fetchall()
        assert [row[0] for row in rows] == expected


# the worst values there are (noise in all 24 bits); a series alone in its row group pays for its times too
@pytest.mark.parametrize(("series", "rows", "most"), [(1000, 300, 5.0), (2, 150_000, 5.1)])
def test_a_sealed_point_takes_few_bytes(tmp_path: Path, series: int, rows: int, most: float) -> None:
    random_numbers = np.random.default_rng(0)
    writer = Writer(tmp_path / "w")
    times = 1_700_000_000_000_000 + np.cumsum(50_000 + random_numbers.integers(0, 1000, rows))
    values = random_numbers.standard_normal((rows, series)).astype(np.float32).astype(np.float64)
    writer.write_points(tuple(f"layers/{n:04d}/grad_norm" for n in range(series)), np.arange(rows), times, values)
    writer.close()
    seal(tmp_path / "w", closed=True)
    assert sum(path.stat().st_size for path in (tmp_path / "w").iterdir()) / (series * rows) <= most


def test_the_file_a_live_writer_has_open_is_left_alone(tmp_path: Path) -> None:
    book, writer = Book(), Writer(tmp_path / "w", seal_points=20)
    fill(book, writer, 5, ["a", "b"])
    assert writer.points_in_file
    before = names_of(tmp_path / "w", ".live.arrows")
    assert len(before) > 1
    seal(tmp_path / "w")
    assert names_of(tmp_path / "w", ".live.arrows") == before[-1:]
    fill(book, writer, 1, ["a", "b"], 5)
    book.check(tmp_path)
    writer.close()
    seal(tmp_path / "w")
    assert names_of(tmp_path / "w", ".live.arrows") == []
    book.check(tmp_path)


def test_two_sealers_never_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book()
    closed_files(tmp_path / "w", book, 2)
    inner: list[Any] = []
    real = sealing.sorted_windows

    def during(*arguments: Any) -> Any:
        inner.append(seal(tmp_path / "w", closed=True))
        return real(*arguments)

    monkeypatch.setattr(sealing, "sorted_windows", during)
    assert seal(tmp_path / "w", closed=True)
    assert inner and inner == [None] * len(inner)
    book.check(tmp_path)


def test_the_last_sealing_waits_for_those_before_it_however_many_come(tmp_path: Path) -> None:
    book = Book()
    closed_files(tmp_path / "w", book, 2)
    before = names_of(tmp_path / "w", ".live.arrows")
    lock = os.open(tmp_path / "w" / SEALING_LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(seal, tmp_path / "w", closed=True, wait=True) for _ in range(3)]
        time.sleep(0.1)
        assert before and names_of(tmp_path / "w", ".live.arrows") == before
        os.close(lock)
        assert sum(bool(one.result(30)) for one in waiting) == 1
    assert not names_of(tmp_path / "w", ".live.arrows")
    book.check(tmp_path)


def test_files_that_are_not_ours_stay_and_are_not_covered(tmp_path: Path) -> None:
    book = Book()
    closed_files(tmp_path / "w", book, 4)
    folder = tmp_path / "w"
    strangers = {
        "000002.live.arrows": b"not an Arrow stream at all, but long enough to be one",
        "notes.txt": b"mine",
        "7.live.arrows": b"",
        "000009-000012.points.parquet": b"PAR1 nonsense PAR1",
    }
    lost = Writer(folder)
    lost.close()
    (folder / "000002.live.arrows").rename(folder / "kept")
    for name, content in strangers.items():
        (folder / name).write_bytes(content)
    assert seal(folder, closed=True)
    assert {name: (folder / name).read_bytes() for name in strangers} == strangers
    assert not any(file.first <= 2 <= file.last and file.table != "live" for file in parse_names(os.listdir(folder)))
    (folder / "kept").replace(folder / "000002.live.arrows")
    reader = StoreReader(tmp_path)
    book.check(reader)
    assert len(reader.problems) == 1 and "000009-000012" in reader.problems[0]


def test_a_damaged_live_file_is_sealed_without_the_damage_and_kept_aside(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "w")
    for step in range(3):
        writer.write_points(("x",), np.array([step]), np.array([step]), np.array([[1234.5 + step]]))
        writer.flush()
    writer.close()
    path = tmp_path / "w" / "000001.live.arrows"
    content = bytearray(path.read_bytes())
    content[content.index(np.float64(1235.5).tobytes()) + 3] ^= 1
    path.write_bytes(content)
    seal(tmp_path / "w", closed=True)
    assert StoreReader(tmp_path).points("x").value.tolist() == [1234.5, 1236.5]
    assert (tmp_path / "w" / "000001.live.arrows.damaged").read_bytes() == content
    assert names_of(tmp_path / "w", ".live.arrows") == []


def test_a_damaged_sealed_file_hides_nothing(tmp_path: Path) -> None:
    book, folder = Book(), tmp_path / "w"
    closed_files(folder, book, 2)
    shutil.copytree(folder, tmp_path / "copy")
    seal(folder, closed=True)
    (part,) = names_of(folder, ".points.parquet")
    (folder / part).write_bytes((folder / part).read_bytes()[:-30])
    for name in names_of(tmp_path / "copy", ".live.arrows"):
        shutil.copy(tmp_path / "copy" / name, folder / name)
    shutil.rmtree(tmp_path / "copy")
    (folder / names_of(folder, ".histograms.parquet")[0]).unlink()
    reader = StoreReader(tmp_path)
    book.check(reader)
    assert len(reader.problems) == 1
    seal(folder, closed=True)
    book.check(tmp_path)


def test_empty_files_of_dead_writers_go_away(tmp_path: Path) -> None:
    book, folder = Book(), tmp_path / "w"
    closed_files(folder, book, 1)
    (folder / "000002.live.arrows").write_bytes(b"")
    (folder / "000003.live.arrows").write_bytes((folder / "000001.live.arrows").read_bytes()[:100])
    (folder / "000001.live.arrows").rename(folder / "000004.live.arrows")
    seal(folder, closed=True)
    book.check(tmp_path)
    assert names_of(folder, ".live.arrows") == []
    (folder / "000009.live.arrows").write_bytes(b"")
    assert seal(folder, closed=True) == [] and names_of(folder, ".live.arrows") == []


def test_names_too_long_for_an_index_stay_readable_unsealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_INDEX_BYTES", 10)
    book = Book()
    closed_files(tmp_path / "w", book, 1)
    assert seal(tmp_path / "w", closed=True) == []
    assert names_of(tmp_path / "w", ".parquet") == []
    book.check(tmp_path)


def test_files_on_both_sides_of_a_sealed_one_are_not_sealed_together(tmp_path: Path) -> None:
    """The file of both would hide the one between them."""
    book, folder = Book(), tmp_path / "w"
    for number, sealable in enumerate([False, True, False]):
        closed_files(folder, book, 1, [f"series {number}"])
        if sealable:
            (folder / "000001.live.arrows").rename(folder / "aside")
            seal(folder, closed=True)
            (folder / "aside").rename(folder / "000001.live.arrows")
    book.check(tmp_path)
    seal(folder, closed=True)
    book.check(tmp_path)


def test_a_disk_that_fills_while_sealing_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book()
    closed_files(tmp_path / "w", book, 2)
    before = names_of(tmp_path / "w", ".arrows")

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packing.PartWriter, "add", full)
    with pytest.raises(OSError, match="No space"):
        seal(tmp_path / "w", closed=True)
    assert names_of(tmp_path / "w", ".arrows") == before and not list((tmp_path / "w").glob(".tmp*"))
    monkeypatch.undo()
    seal(tmp_path / "w", closed=True)
    book.check(tmp_path)


# -- any rows ---------------------------------------------------------------------------------------

BLOCKS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["a", "b", "b/c", "é", "z" * 300]), unique=True, min_size=1, max_size=4),
        st.lists(st.integers(-2, 9), max_size=9),
        st.integers(1, 3),
        st.sampled_from(["", "flush", "close", "seal"]),
    ),
    max_size=16,
)


@given(BLOCKS, st.integers(1, 12), st.integers(2, 5), st.sampled_from([4, 65_536]))
@settings(max_examples=60, deadline=None)
def test_rows_are_the_same_live_sealed_and_merged(blocks: Any, window: int, merge: int, group: int) -> None:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sort, "WINDOW_ROWS", {"points": window, "histograms": window})
        patch.setattr(sealing, "MERGE_PARTS", merge)
        patch.setattr(packing, "GROUP_ROWS", {"points": group, "histograms": group})
        folder, book = Path(root) / "w", Book()
        reader = StoreReader(root)
        writer = Writer(folder)
        for names, steps, segment, then in blocks:
            book.write(writer, names, steps, segment)
            if steps:
                book.write_histogram(writer, names[0], steps[0], 1 + len(steps) % 3, segment)
            if then in ("close", "seal"):
                writer.close()
                if then == "seal":
                    seal(folder, closed=True)
                writer = Writer(folder)
            elif then:
                writer.flush()
        writer.close()
        for name in [name for name, rows in book.rows.items() if not rows]:
            del book.rows[name]
        book.check(reader)
        seal(folder, closed=True)
        book.check(reader)
        book.check(Path(root))
        assert not reader.problems and names_of(folder, ".live.arrows") == []


# -- merging ----------------------------------------------------------------------------------------


def test_the_number_of_sealed_files_stays_small(tmp_path: Path, few_merge: None) -> None:
    book, folder = Book(), tmp_path / "w"
    most = 0
    for number in range(40):
        writer = Writer(folder)
        fill(book, writer, 2, ["loss", "lr"], number * 2)
        writer.close()
        seal(folder, closed=True)
        most = max(most, len(names_of(folder, ".points.parquet")))
    assert most <= 9  # at most two of a size, and 40 files double less than six times
    book.check(tmp_path)


def test_merging_looks_at_neighbours_and_rewrites_only_what_doubles() -> None:
    def files(*rows: int) -> list[tuple[StoreFile, int]]:
        return [(StoreFile(n, n, "points", str(n)), count) for n, count in enumerate(rows)]

    def chosen(*rows: int) -> list[int]:
        return [file.first for file in choose(files(*rows))]

    assert chosen(*[5] * 7) == []
    assert chosen(*[5] * 8) == list(range(8))
    assert chosen(1000, *[5] * 8) == list(range(1, 9))
    assert chosen(1000, *[5] * 7) == []
    assert chosen(*[5] * 4, -1, *[5] * 4) == []
    assert chosen(-1, *[5] * 8, -1) == list(range(1, 9))
    assert chosen(*[sealing.MERGE_ROWS // 8 + 1] * 8) == []


@given(st.lists(st.integers(1, 2_000_000), min_size=1, max_size=300))
@settings(max_examples=30)
def test_each_row_is_rewritten_a_logarithm_of_times(sizes: list[int]) -> None:
    files: list[tuple[StoreFile, int]] = []
    rewritten = 0
    for number, size in enumerate(sizes):
        files.append((StoreFile(number, number, "points", ""), size))
        while group := choose(files):
            place = files.index(next(file for file in files if file[0] == group[0]))
            total = sum(rows for _, rows in files[place : place + len(group)])
            assert total <= sealing.MERGE_ROWS and len(group) >= sealing.MERGE_PARTS
            rewritten += total
            files[place : place + len(group)] = [(StoreFile(group[0].first, group[-1].last, "points", ""), total)]
    assert rewritten <= sum(sizes) * (1 + np.log2(sum(sizes) / min(sizes)))
    assert sum(rows for _, rows in files) == sum(sizes)


def test_one_series_longer_than_a_window_is_merged_if_its_pieces_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_merge: None
) -> None:
    monkeypatch.setattr(sort, "WINDOW_ROWS", {"points": 20, "histograms": 20})
    book, folder = Book(), tmp_path / "w"
    for first in (0, 50, 100):
        writer = Writer(folder)
        book.write(writer, ["long", "z"], list(range(first, first + 50)))
        writer.close()
        seal(folder, closed=True)
    assert names_of(folder, ".parquet") == ["000001-000003.points.parquet"]
    book.check(tmp_path)


def test_a_long_series_that_goes_back_is_left_in_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_merge: None
) -> None:
    monkeypatch.setattr(sort, "WINDOW_ROWS", {"points": 20, "histograms": 20})
    book, folder = Book(), tmp_path / "w"
    for first in (100, 50, 0):
        writer = Writer(folder)
        book.write(writer, ["long"], list(range(first, first + 50)))
        writer.close()
        seal(folder, closed=True)
    assert len(names_of(folder, ".parquet")) == 3
    book.check(tmp_path)


# -- from a shell -----------------------------------------------------------------------------------


def test_the_command_seals_a_folder_and_says_one_sentence_if_it_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "nice", lambda increment: increment)
    threads = pa.cpu_count(), pa.io_thread_count()
    book = Book()
    closed_files(tmp_path / "w", book, 1)
    try:
        assert main([str(tmp_path / "w"), "--closed"]) == 0
        assert main([str(tmp_path / "nothing")]) == 1
        (tmp_path / "file").write_text("")
        assert main([str(tmp_path / "file")]) == 1
    finally:
        pa.set_cpu_count(threads[0])
        pa.set_io_thread_count(threads[1])
    assert len(names_of(tmp_path / "w", ".points.parquet")) == 1
    out, err = capsys.readouterr()
    assert not out and len(err.splitlines()) == 2 and "not there any more" in err
    book.check(tmp_path)


def test_the_file_of_a_writer_that_lives_is_left_alone_whoever_says_that_it_is_gone(tmp_path: Path) -> None:
    """A run that has ended for its first rank is sealed by `barograph gc` while another rank still writes."""
    writer = Writer(tmp_path / "w")
    column = np.array([1])
    writer.write_points(("a",), column, column, np.array([[1.0]]))
    writer.flush()
    assert seal(tmp_path / "w", closed=True) == []
    assert list((tmp_path / "w").glob("*.live.arrows"))
    writer.close()
    assert seal(tmp_path / "w", closed=True)
    assert not list((tmp_path / "w").glob("*.live.arrows"))
