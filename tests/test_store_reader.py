"""The store's reader: many writers as one, torn and damaged files, files that vanish while it looks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_rows import Book, fill, read, values

from barograph.store import live as live_module
from barograph.store import reader as reader_module
from barograph.store.live import LiveFile, PointsBlock
from barograph.store.part import GroupCache, ParquetSource, Part
from barograph.store.reader import StoreReader
from barograph.store.schema import hidden, parse_name, parse_names, visible
from barograph.store.seal import seal
from barograph.store.writer import Writer

# -- many writers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [[], ["b"], ["a", "b", "c"]])
def test_writers_are_merged_by_segment_step_and_writer(tmp_path: Path, sealed: list[str]) -> None:
    for name, rank, segment, steps in (("a", 0, 1, [1, 2, 3]), ("b", 1, 1, [2, 2, 1]), ("c", 0, 2, [2, 3])):
        writer = Writer(tmp_path / name, rank=rank)
        writer.write_points(("loss", f"only {name}"), *values(steps)[:2], np.ones((len(steps), 2)), segment=segment)
        writer.close()
        if name in sealed:
            seal(tmp_path / name, closed=True)
    (tmp_path / "a file").write_text("")
    (tmp_path / ".hidden").mkdir()
    reader = StoreReader(tmp_path)
    assert reader.writers() == ["a", "b", "c"]
    got = reader.points("loss", ("time", "value"))
    assert got.segment.tolist() == [1] * 6 + [2] * 2
    assert got.step.tolist() == [1, 1, 2, 2, 2, 3, 2, 3]
    assert got.writer.tolist() == [0, 1, 0, 1, 1, 0, 2, 2] and got.rank.tolist() == [0, 1, 0, 1, 1, 0, 0, 0]
    assert reader.points("loss", writers=["b"]).writer.tolist() == [1, 1, 1]
    assert reader.names(writers=["b", "c"]) == ["loss", "only b", "only c"]
    assert len(reader.points("only b").step) == 3


def test_a_store_that_is_not_there_is_empty(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path / "file"):
        if path.name == "file":
            path.write_text("")
        reader = StoreReader(path)
        assert reader.writers() == [] and reader.names() == [] and reader.histogram_names() == []
        assert [len(column) for column in reader.points("loss")] == [0] * 6
        assert len(reader.histograms("loss").edges) == 0
        assert reader.cursor().read().blocks == []


@pytest.mark.parametrize("sealed", [False, True])
def test_columns_are_read_as_asked_and_may_be_written_to(tmp_path: Path, sealed: bool) -> None:
    writer = Writer(tmp_path / "w")
    writer.write_points(("a", "b"), *values([1, 2])[:2], np.array([[1.0, 2.0], [3.0, 4.0]]))
    writer.close()
    if sealed:
        seal(tmp_path / "w", closed=True)
    reader = StoreReader(tmp_path)
    assert [len(column) for column in reader.points("b", ("step",))] == [2, 0, 0, 2, 2, 2]
    assert [len(column) for column in reader.points("b", ("time",))] == [2, 2, 0, 2, 2, 2]
    for _ in range(2):
        got = reader.points("b", ("time", "value"))
        assert got.value.tolist() == [2.0, 4.0] and got.time.tolist() == [1000, 2000]
        for column in got:
            column += 1  # belongs to the caller: the next look is not changed
    assert [column.dtype.name for column in got] == ["int64", "int64", "float64", "int32", "int32", "int32"]


# -- torn and damaged files ---------------------------------------------------------------------------


def test_a_file_cut_anywhere_holds_every_flush_before_the_cut(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "w")
    path = tmp_path / "w" / "000001.live.arrows"
    ends = []
    for flush in range(3):
        writer.write_points(("x", "y"), *values([flush * 2])[:2], np.full((1, 2), float(flush * 2)))
        writer.write_points(("x",), *values([flush * 2 + 1]))
        writer.write_histogram("h", flush, flush, [0.0, 1.0], [1.0])
        writer.flush()
        ends.append(path.stat().st_size)
    writer.close()
    whole = path.read_bytes()
    cut = tmp_path / "cut" / "w" / "000001.live.arrows"
    cut.parent.mkdir(parents=True)
    cut.touch()
    followed = LiveFile(cut)  # it grows by a byte between two looks
    found: list[Any] = []

    def right(blocks: list[Any], live: LiveFile) -> bool:
        rows = [block for block in blocks if isinstance(block, PointsBlock)]
        steps = [step for block in rows for step in block.step.tolist()]
        histograms = len(blocks) - len(rows)
        return steps == expected and histograms * 2 == len(expected) and not live.problem and not live.foreign

    for size in range(len(whole) + 1):
        with cut.open("ab") as file:
            file.write(whole[size - 1 : size] if size else b"")
        expected = list(range(2 * sum(end <= size for end in ends)))
        found += followed.read_new()
        assert right(found, followed)
        if size % 5 == 0 or size in ends:
            cold = LiveFile(cut)
            assert right(cold.read_new(), cold)
        if size % 97 == 0:
            reader = StoreReader(tmp_path / "cut")
            assert reader.points("x").value.tolist() == expected and not reader.problems


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_flipped_byte_is_never_read_as_a_value(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Rows may be missing behind damage, with a sentence; what is there is as it was written."""
    root = tmp_path_factory.getbasetemp() / "flipped"
    source = root / "whole" / "w" / "000001.live.arrows"
    if not source.exists():
        writer = Writer(root / "whole" / "w")
        for step in range(4):
            writer.write_points(
                ("a", "b"), *values([step * 2, step * 2 + 1])[:2], np.full((2, 2), float(step)), segment=7
            )
            writer.write_histogram("h", step, step, [0.0, 1.0, 3.0], [1.0, float(step)])
            writer.flush()
        writer.close()
    content = bytearray(source.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    store = root / f"flipped-{os.getpid()}"
    path = store / "w" / "000001.live.arrows"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (0, 0))
    reader = StoreReader(store)
    assert set(reader.names()) <= {"a", "b"} and set(reader.histogram_names()) <= {"h"}
    whole = {(7, step, step * 1000, float(step // 2)) for step in range(8)}
    for name in "ab":
        rows = read(reader, name)
        assert set(rows) <= whole and len(set(rows)) == len(rows)
    got = reader.histograms("h")
    for step, edges, counts in zip(got.step.tolist(), got.edges, got.counts, strict=True):
        assert (edges.tolist(), counts.tolist()) == ([0.0, 1.0, 3.0], [1.0, float(step)])


def test_a_garbled_description_of_a_block_is_not_believed(tmp_path: Path) -> None:
    """A name, a segment or a range of the log file with another letter or digit is as wrong as a value."""
    writer = Writer(tmp_path / "w")
    for flush in range(2):
        writer.write_points(("loss",), *values([flush]), segment=7, log_end=123 + flush)
        writer.flush()
    writer.close()
    path = tmp_path / "w" / "000001.live.arrows"
    whole = path.read_bytes()
    start = whole.index(b'{"segment":7')
    for place in range(start, whole.index(b"}", start) + 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        live = LiveFile(path, settled=True)
        blocks = [block for block in live.read_new() if isinstance(block, PointsBlock)]
        assert {(block.keys.names, block.segment) for block in blocks} <= {(("loss",), 7)}
        assert live.problem and live.log_spans in ([], [(123, 124)])


def damaged_in_the_middle(tmp_path: Path) -> tuple[Path, bytes, bytes]:
    writer = Writer(tmp_path / "w")
    for step in range(3):
        writer.write_points(("x",), *values([step + 1000]))
        writer.flush()
    writer.close()
    path = tmp_path / "w" / "000001.live.arrows"
    whole = path.read_bytes()
    place = whole.index(np.float64(1001).tobytes())
    return path, whole, whole[:place] + bytes(8) + whole[place + 8 :]


def test_a_damaged_block_is_left_out_and_told(tmp_path: Path) -> None:
    path, _, damaged = damaged_in_the_middle(tmp_path)
    path.write_bytes(damaged)
    os.utime(path, (0, 0))
    reader = StoreReader(tmp_path)
    assert reader.points("x").step.tolist() == [1000, 1002]
    assert len(reader.problems) == 1 and "000001.live.arrows has a damaged block" in reader.problems[0]


def test_bytes_still_on_their_way_over_the_network_are_waited_for(tmp_path: Path) -> None:
    """A network file system may show a file's new size before it shows all of its bytes."""
    path, whole, damaged = damaged_in_the_middle(tmp_path)
    path.write_bytes(damaged)
    reader = StoreReader(tmp_path)
    assert reader.points("x").step.tolist() == [1000] and reader.problems == []
    path.write_bytes(whole)
    assert reader.points("x").step.tolist() == [1000, 1001, 1002]


def test_zeros_at_the_end_after_a_power_cut_are_no_rows(tmp_path: Path) -> None:
    path, whole, _ = damaged_in_the_middle(tmp_path)
    path.write_bytes(whole[:-8] + bytes(4096))
    os.utime(path, (0, 0))
    reader = StoreReader(tmp_path)
    assert reader.points("x").step.tolist() == [1000, 1001, 1002]
    assert len(reader.problems) == 1


def test_damage_inside_a_sealed_file_is_told_and_never_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        writer = Writer(tmp_path / name)
        writer.write_points(("x",), *values(list(range(1000))))
        writer.close()
        seal(tmp_path / name, closed=True)
    path = tmp_path / "a" / "000001-000001.points.parquet"
    content = bytearray(path.read_bytes())
    for place in range(200, len(content) // 2, 50):
        content[place] ^= 0xFF
    path.write_bytes(content)
    reader = StoreReader(tmp_path)
    got = reader.points("x")
    assert got.step.tolist() == list(range(1000)) and set(got.writer.tolist()) == {1}
    assert len(reader.problems) == 1


def test_one_flipped_bit_among_random_values_of_a_sealed_file_is_told(tmp_path: Path) -> None:
    """Noise is stored as it is: only a checksum can tell that it is other noise now."""
    steps = np.arange(5000)
    noise = np.random.default_rng(0).integers(1, 2**62, (5000, 1)).view(np.float64)
    writer = Writer(tmp_path / "w")
    writer.write_points(("x",), steps, steps, noise)
    writer.close()
    (name,) = seal(tmp_path / "w", closed=True)
    content = bytearray((tmp_path / "w" / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "w" / name).write_bytes(content)
    for direct in (True, False):
        with pytest.raises(OSError, match="CRC"):
            ParquetSource(tmp_path / "w" / name, direct).read(0, ("value",))
    reader = StoreReader(tmp_path)
    assert len(reader.points("x").value) == 0 and len(reader.problems) == 1


def test_an_index_that_does_not_fit_its_rows_is_not_believed(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "w")
    writer.write_points(("x",), *values([1, 2, 3]))
    writer.close()
    path = tmp_path / "w" / seal(tmp_path / "w", closed=True)[0]
    table = pq.read_table(path)
    pq.write_table(table.slice(0, 2).replace_schema_metadata(pq.read_metadata(path).metadata), path)
    reader = StoreReader(tmp_path)
    assert len(reader.points("x").step) == 0 and "don't match its index" in reader.problems[0]


@pytest.mark.parametrize(
    "content", [b"", b"x", b"PAR1", b"\xff\xff\xff\xff\x00\x00\x00\x00", b"\0" * 5000, os.urandom(5000)]
)
def test_foreign_files_of_our_names_do_no_harm(tmp_path: Path, content: bytes) -> None:
    book, writer = Book(), Writer(tmp_path / "w")
    fill(book, writer, 1, ["loss"])
    writer.close()
    for name in ("000005.live.arrows", "000007-000008.points.parquet", "000007-000008.histograms.parquet"):
        (tmp_path / "w" / name).write_bytes(content)
        os.utime(tmp_path / "w" / name, (0, 0))
    (tmp_path / "w" / "000006.live.arrows").mkdir()
    reader = StoreReader(tmp_path)
    book.check(reader)
    assert any("000007-000008.points" in problem for problem in reader.problems)


def test_a_file_of_a_newer_format_is_not_misread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barograph.store.stream.FORMAT", 99)
    monkeypatch.setattr("barograph.store.packing.FORMAT", 99)
    writer = Writer(tmp_path / "w")
    fill(Book(), writer, 1, ["loss"])
    writer.close()
    os.utime(tmp_path / "w" / "000001.live.arrows", (0, 0))
    reader = StoreReader(tmp_path)
    assert reader.names() == [] and "000001.live.arrows" in reader.problems[0]


# -- caches -------------------------------------------------------------------------------------------


def test_little_memory_gives_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "CACHE_BYTES", 0)
    monkeypatch.setattr(reader_module, "LIVE_BYTES", 0)
    book = Book()
    reader = StoreReader(tmp_path)
    for number in range(3):
        writer = Writer(tmp_path / "w")
        fill(book, writer, 2, ["loss", "lr"], number * 2)
        writer.close()
        if number == 1:
            seal(tmp_path / "w", closed=True)
        book.check(reader)
    assert not reader._folders["w"].lives


def test_neighbouring_series_of_a_sealed_file_cost_one_decode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book, writer = Book(), Writer(tmp_path / "w")
    names = [f"layer{number}" for number in range(50)]
    book.write(writer, names, list(range(10)))
    writer.close()
    seal(tmp_path / "w", closed=True)
    reads: list[int] = []
    real = ParquetSource.read
    monkeypatch.setattr(
        ParquetSource, "read", lambda self, group, columns: (reads.append(group), real(self, group, columns))[1]
    )
    book.check(tmp_path)
    assert reads == [0]


def test_the_cache_of_row_groups_keeps_the_latest_within_its_limit() -> None:
    class Table:
        nbytes = 10

    cache = GroupCache(35)
    for key in "abcd":
        cache.put(key, Table())
    assert [cache.get(key) is not None for key in "abcd"] == [False, True, True, True]
    cache.get("b")
    cache.put("e", Table())
    assert [cache.get(key) is not None for key in "bcde"] == [True, False, True, True]


def test_both_ways_into_a_parquet_file_give_the_same(tmp_path: Path) -> None:
    book, writer = Book(), Writer(tmp_path / "w")
    fill(book, writer, 2, ["loss", "lr"])
    writer.close()
    for name in seal(tmp_path / "w", closed=True):
        ways = [ParquetSource(tmp_path / "w" / name, direct) for direct in (True, False)]
        assert ways[0]._direct is not None and ways[1]._direct is None
        columns = ("step", "value", "edges")
        assert ways[0].read(0, columns).equals(ways[1].read(0, columns))
        assert ways[0].metadata.equals(ways[1].metadata)
        for way in ways:
            way.close()
        Part(tmp_path / "w" / name, GroupCache(0)).close()


# -- names of files -------------------------------------------------------------------------------------


def test_a_sealed_file_hides_what_it_covers() -> None:
    names = [
        "000001-000008.points.parquet",
        "000001-000004.points.parquet",
        "000005-000008.points.parquet",
        "000001-000003.histograms.parquet",
        "000003.live.arrows",
        "000008.live.arrows",
        "000009.live.arrows",
        "000009-000009.histograms.parquet",
        "1000000.live.arrows",
    ]
    files = parse_names(names)
    assert [file.name for file in visible(files, "points")] == [names[0], names[6], names[8]]
    assert [file.name for file in visible(files, "histograms")] == [names[3], names[7], names[8]]
    assert {file.name for file in hidden(files)} == {names[1], names[2], names[4], names[5]}
    for stranger in (
        "1.live.arrows",
        "000001.points.parquet",
        ".tmp-1-000001-000002.points.parquet",
        "x000001.live.arrows",
    ):
        assert parse_name(stranger) is None


def test_a_live_file_is_read_only_as_far_as_it_grew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path / "w")
    lengths: list[int] = []
    real = live_module._read
    monkeypatch.setattr(
        live_module,
        "_read",
        lambda handle, header, position, size: (lengths.append(size - position), real(handle, header, position, size))[
            1
        ],
    )
    live = LiveFile(tmp_path / "w" / "000001.live.arrows")
    for step in range(20):
        writer.write_points(("x",), *values([step]))
        writer.flush()
        assert [block.step.tolist() for block in live.read_new() if isinstance(block, PointsBlock)] == [[step]]
        assert live.read_new() == []
    assert len(lengths) == 20 and max(lengths[1:]) < 700
    writer.close()
