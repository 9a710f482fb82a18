"""The store's writer: what was flushed is there, what was not does not count, whatever the disk does."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_rows import Book, failing_write, fill, read

from barograph.store import stream
from barograph.store import writer as writer_module
from barograph.store.reader import StoreReader
from barograph.store.seal import seal
from barograph.store.writer import Writer

HOSTILE = [
    "",
    "a/b/c",
    'quo"te',
    "new\nline",
    "tab\t\0nul",
    "émoji 🎛️",
    "\\",
    "x" * 10_000,
    "x" * 9_999 + "y",
    "'; drop",
]


def live_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.live.arrows"))


def test_what_was_flushed_is_there_at_once_and_what_was_not_is_not(tmp_path: Path) -> None:
    book, writer, reader = Book(), Writer(tmp_path / "w"), StoreReader(tmp_path)
    assert reader.names() == []
    fill(book, writer, 3, ["loss", "lr"])
    book.check(reader)
    unseen = Book().block(["loss", "other"], [9])
    writer.write_points(*unseen)
    book.check(reader)
    writer.flush()
    assert reader.names() == ["loss", "lr", "other"]


def test_bytes_written_before_the_flush_do_not_count_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SPILL_BYTES", 100)
    book, writer = Book(), Writer(tmp_path / "w")
    for step in range(20):
        book.write(writer, ["loss"], [step])
    assert (tmp_path / "w" / "000001.live.arrows").stat().st_size > 1000
    assert StoreReader(tmp_path).names() == []
    writer.flush()
    book.check(tmp_path)


def test_hostile_names_come_back_live_and_sealed(tmp_path: Path) -> None:
    book, writer = Book(), Writer(tmp_path / "w")
    book.write(writer, HOSTILE, [1, 2, 3])
    for name in HOSTILE:
        book.write_histogram(writer, name, 1, 3)
    writer.flush()
    book.check(tmp_path)
    writer.close()
    assert seal(tmp_path / "w", closed=True)
    book.check(tmp_path)


def test_a_lone_surrogate_becomes_text_and_of_names_that_become_equal_the_last_counts(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "w")
    writer.write_points(("a\ud800", "b", "a\\ud800"), np.array([1]), np.array([1]), np.array([[1.0, 2.0, 3.0]]))
    writer.close()
    for _ in range(2):
        reader = StoreReader(tmp_path)
        assert reader.names() == ["a\\ud800", "b"]
        assert reader.points("a\\ud800").value.tolist() == [3.0]
        seal(tmp_path / "w", closed=True)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 1e308, 5e-324, 0.1, 2.0**53 + 2])
def test_every_double_comes_back_to_the_bit(tmp_path: Path, value: float) -> None:
    writer = Writer(tmp_path / "w")
    writer.write_points(("x",), np.array([2**62]), np.array([-(2**62)]), np.array([[value]]))
    writer.close()
    for _ in range(2):
        got = StoreReader(tmp_path).points("x", ("time", "value"))
        assert got.value.tobytes() == np.array([value]).tobytes()
        assert (got.step[0], got.time[0]) == (2**62, -(2**62))
        seal(tmp_path / "w", closed=True)


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (1,), (1, 1, 1)])
def test_a_block_of_the_wrong_shape_is_refused_and_costs_nothing_else(tmp_path: Path, shape: tuple[int, ...]) -> None:
    book, writer = Book(), Writer(tmp_path / "w")
    book.write(writer, ["loss"], [1])
    with pytest.raises(ValueError, match="1 names needs"):
        writer.write_points(
            ("loss",), np.array([2]), np.array([2]), np.zeros(shape) if shape != (1, 1) else np.zeros(3)
        )
    with pytest.raises(ValueError, match="needs 2 edges"):
        writer.write_histogram("h", 1, 1, np.zeros(3), np.zeros(1))
    writer.flush()
    book.check(tmp_path)


@pytest.mark.parametrize("room", [0, 1, 100, 600, 900, 1500])
def test_a_full_disk_loses_only_what_was_not_flushed_and_hides_nothing_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    book, writer = Book(), Writer(tmp_path / "w")
    fill(book, writer, 2, ["loss", "lr"])
    size = (tmp_path / "w" / "000001.live.arrows").stat().st_size
    make_room = failing_write(monkeypatch, room)
    block = book.block(["loss", "new"], list(range(100, 200)))
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            writer.write_points(*block, log_end=700)
            writer.flush()
    book.check(tmp_path)
    assert (tmp_path / "w" / "000001.live.arrows").stat().st_size == size  # what could not be used is free again
    assert StoreReader(tmp_path).log_end("w") == 0
    make_room()
    writer.write_points(*block, log_end=700)
    book.keep(block)
    writer.flush()
    book.check(tmp_path)
    assert StoreReader(tmp_path).log_end("w") == 700
    writer.close()
    seal(tmp_path / "w", closed=True)
    book.check(tmp_path)
    assert len(live_files(tmp_path / "w")) == 0


def test_a_disk_full_from_the_first_byte_leaves_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book, writer = Book(), Writer(tmp_path / "w")
    make_room = failing_write(monkeypatch, 0)
    for _ in range(50):
        with pytest.raises(OSError):
            writer.write_points(*book.block(["loss"], [1]))
            writer.flush()
    assert live_files(tmp_path / "w") == []
    make_room()
    fill(book, writer, 1, ["loss"])
    book.check(tmp_path)


def test_a_limit_on_file_sizes_is_met_like_a_full_disk(tmp_path: Path) -> None:
    """A real failure of the operating system in the middle of a write, in a process of its own."""
    script = """
import resource, sys, numpy as np
from barograph.store.writer import Writer
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
writer, failed, step = Writer(sys.argv[1] + "/w"), 0, 0
while failed < 3:
    try:
        writer.write_points(("loss",), np.arange(step, step + 50), np.arange(50), np.ones((50, 1)))
        writer.flush()
        step += 50
    except OSError:
        failed += 1
print(step)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    reader = StoreReader(tmp_path)
    assert reader.points("loss").step.tolist() == list(range(int(done.stdout))) and not reader.problems
    assert max(path.stat().st_size for path in (tmp_path / "w").iterdir()) <= 20_000


def test_a_deleted_folder_is_told_once_and_made_again(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "store" / "w")
    fill(Book(), writer, 2, ["loss"])
    shutil.rmtree(tmp_path / "store")
    writer.write_points(*Book().block(["loss"], [1]))
    with pytest.raises(FileNotFoundError):
        writer.flush()
    book = Book()
    fill(book, writer, 2, ["loss"])
    book.check(tmp_path / "store")
    assert seal(tmp_path / "store" / "w") == []  # the lock is held in the new folder too
    writer.close()


def test_a_folder_that_cannot_be_made_is_an_error_of_the_operating_system(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        Writer(tmp_path / "file" / "w")


@pytest.mark.parametrize("limit", ["points", "blocks", "bytes"])
def test_a_file_is_closed_at_so_many_points_blocks_or_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    if limit == "blocks":
        monkeypatch.setattr(stream, "MOST_BLOCKS", 4)
    if limit == "bytes":
        monkeypatch.setattr(stream, "MOST_BYTES", 2_000)
    book, writer = Book(), Writer(tmp_path / "w", seal_points=20 if limit == "points" else 10**9)
    fill(book, writer, 12, ["loss"])
    assert writer.sealable >= 3
    assert len(live_files(tmp_path / "w")) == writer.sealable + (writer.points_in_file > 0)
    assert writer.points_in_file < 24
    book.check(tmp_path)
    writer.close()


def test_numbers_go_on_after_a_restart_and_after_sealing(tmp_path: Path) -> None:
    book = Book()
    for run in range(4):
        writer = Writer(tmp_path / "w")
        fill(book, writer, 1, ["loss"], run)
        writer.close()
        if run % 2:
            seal(tmp_path / "w", closed=True)
    book.check(tmp_path)
    assert len(list((tmp_path / "w").glob("*.points.parquet"))) == 2


def test_a_folder_takes_one_writer_at_a_time(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "w")
    with pytest.raises(BlockingIOError, match="another process writes"):
        Writer(tmp_path / "w")
    writer.close()
    Writer(tmp_path / "w").close()


def test_a_forked_child_lets_go_of_the_files(tmp_path: Path) -> None:
    book, writer = Book(), Writer(tmp_path / "w")
    fill(book, writer, 1, ["loss"])
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:  # lives on after the parent has closed, as a worker may
        with contextlib.suppress(BaseException):
            with contextlib.suppress(ValueError):
                writer.write_points(*Book().block(["child"], [1]))
                writer.flush()
            writer.close()
            os.write(ready[1], b"x")
            os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    fill(book, writer, 1, ["loss"], 1)
    writer.close()
    Writer(tmp_path / "w").close()  # the child does not hold the lock
    os.write(done[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    for descriptor in (*ready, *done):
        os.close(descriptor)
    book.check(tmp_path)


def test_the_store_says_which_bytes_of_the_log_it_has(tmp_path: Path) -> None:
    book, writer = Book(), Writer(tmp_path / "w", log_start=100)
    book.write(writer, ["loss"], [1], log_end=150)
    book.write(writer, ["loss"], [2])
    writer.write_points((), np.empty(0), np.empty(0), np.empty((0, 0)), log_end=180)  # records without numbers
    writer.flush()
    book.write(writer, ["loss"], [3], log_end=170)  # never back
    writer.close()
    again = Writer(tmp_path / "w", log_start=300)
    book.write(again, ["loss"], [4], log_end=350)
    again.close()
    for _ in range(2):
        reader = StoreReader(tmp_path)
        assert reader.log_spans("w") == [(100, 180), (300, 350)] and reader.log_end("w") == 350
        assert reader.log_spans("nobody") == [] and reader.log_end("nobody") == 0
        book.check(reader)
        seal(tmp_path / "w", closed=True)


def test_ever_new_lists_of_names_don_t_pile_up_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_KEPT_NAMES", 10)
    book, writer = Book(), Writer(tmp_path / "w")
    for step in range(40):
        book.write(writer, [f"a{step % 7}", f"b{step % 5}"], [step])
        assert writer._file is not None and len(writer._file._keys) <= 5
    writer.flush()
    book.check(tmp_path)


def test_a_closed_writer_refuses_and_closing_twice_is_fine(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "w")
    fill(Book(), writer, 1, ["loss"])
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write_points(*Book().block(["loss"], [1]))
    with pytest.raises(ValueError, match="closed"):
        writer.flush()


def test_a_writer_that_cannot_flush_still_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book, writer = Book(), Writer(tmp_path / "w")
    fill(book, writer, 1, ["loss"])
    writer.write_points(*Book().block(["loss"], [1]))
    failing_write(monkeypatch, 0)
    with pytest.raises(OSError):
        writer.close()
    Writer(tmp_path / "w").close()
    book.check(tmp_path)


def test_sync_reaches_every_file_since_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))), real(fd))[1]
    )
    writer = Writer(tmp_path / "w", seal_points=20)
    fill(Book(), writer, 6, ["loss"])
    writer.sync()
    assert set(live_files(tmp_path / "w")) | {"w"} == set(synced) and len(live_files(tmp_path / "w")) > 1
    writer.close()


def test_a_batch_that_is_too_big_for_arrow_is_refused(tmp_path: Path) -> None:
    steps = np.zeros(2**16, np.int64)
    with pytest.raises(ValueError, match="fewer rows"):
        stream.batch_of(steps, steps, np.empty(0), 2**16, {})


STEPS = st.lists(st.integers(-3, 6), min_size=0, max_size=4)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"), st.lists(st.sampled_from("abcd"), unique=True, max_size=4), STEPS, st.integers(1, 3)
        ),
        st.tuples(st.just("histogram"), st.sampled_from("ab"), st.integers(0, 5), st.integers(1, 3)),
        st.tuples(st.sampled_from(["flush", "fail", "restart", "delete lock"])),
    ),
    max_size=14,
)


@given(OPERATIONS, st.integers(1, 30), st.integers(0, 2000))
@settings(max_examples=120, deadline=None)
def test_any_sequence_of_writes_and_failures_keeps_exactly_what_was_flushed(
    operations: list[Any], seal_points: int, room: int
) -> None:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        store = Path(root)
        reader = StoreReader(store)
        writer = Writer(store / "w", seal_points=seal_points)
        book, waiting = Book(), Book()

        def commit() -> None:
            for name, rows in waiting.rows.items():
                book.rows.setdefault(name, []).extend(rows)
            for name, histograms in waiting.histograms.items():
                book.histograms.setdefault(name, []).extend(histograms)
            waiting.rows, waiting.histograms = {}, {}

        for operation, *arguments in operations:
            if operation == "write":
                waiting.write(writer, *arguments)
            elif operation == "histogram":
                waiting.write_histogram(writer, *arguments)
            elif operation == "flush":
                writer.flush()
                commit()
            elif operation == "restart":
                writer.close()
                commit()
                writer = Writer(store / "w", seal_points=seal_points)
            elif operation == "delete lock":
                (store / "w" / writer_module.WRITING_LOCK).unlink(missing_ok=True)
            else:
                make_room = failing_write(patch, room)
                try:
                    writer.flush()
                    commit()
                except OSError:
                    waiting.rows, waiting.histograms = {}, {}
                finally:
                    make_room()
            book.check(reader)
        writer.close()
        commit()
        book.check(reader)
        seal(store / "w", closed=True)
        book.check(reader)
        assert read(reader, "nothing") == [] and not reader.problems
