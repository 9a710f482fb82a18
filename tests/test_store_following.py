"""Files that come and go while the store's reader looks, and what it follows."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_rows import Book, fill, values

from barograph.store import folder as folder_module
from barograph.store.live import PointsBlock
from barograph.store.part import ParquetSource
from barograph.store.reader import StoreReader
from barograph.store.seal import seal
from barograph.store.writer import Writer

# -- files that come and go -----------------------------------------------------------------------------


def test_new_files_are_seen_at_once(tmp_path: Path) -> None:
    """Also within one tick of the file system's clock."""
    reader, book = StoreReader(tmp_path), Book()
    for number in range(30):
        writer = Writer(tmp_path / "w")
        fill(book, writer, 1, ["loss"], number)
        writer.close()
        book.check(reader)
        if number % 4 == 3:
            seal(tmp_path / "w", closed=True)
            book.check(reader)


def test_a_folder_changed_twice_within_one_tick_is_listed_again(tmp_path: Path) -> None:
    book, reader, now = Book(), StoreReader(tmp_path), time.time_ns()
    for number in range(3):
        writer = Writer(tmp_path / "w")
        fill(book, writer, 1, ["loss"], number)
        writer.close()
        os.utime(tmp_path / "w", ns=(now, now))
        book.check(reader)


def test_a_listing_that_misses_a_file_renamed_meanwhile_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may appear behind the place a listing has reached, and the one it replaces go before it."""
    book, writer = Book(), Writer(tmp_path / "w")
    fill(book, writer, 2, ["loss"])
    writer.close()
    seal(tmp_path / "w", closed=True)
    real, listings = os.listdir, [[], []]

    def listdir(path: Path) -> list[str]:
        return listings.pop() if len(listings) == 2 else real(path)

    monkeypatch.setattr(folder_module.os, "listdir", listdir)
    assert StoreReader(tmp_path).names() == ["loss"]


def test_an_unchanged_folder_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book, writer = Book(), Writer(tmp_path / "w")
    fill(book, writer, 1, ["loss"])
    os.utime(tmp_path / "w", (time.time() - 60, time.time() - 60))
    reader = StoreReader(tmp_path)
    book.check(reader)
    monkeypatch.setattr(folder_module.os, "listdir", None)
    fill(book, writer, 1, ["loss"], 1)  # the file grew, the folder did not
    book.check(reader)
    writer.close()


def test_files_that_vanish_between_listing_and_opening_are_found_where_they_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, writer = Book(), Writer(tmp_path / "w")
    fill(book, writer, 2, ["loss"])
    writer.close()
    real = folder_module.parse_names

    def sealed_meanwhile(names: list[str]) -> Any:
        files = real(names)
        monkeypatch.setattr(folder_module, "parse_names", real)
        seal(tmp_path / "w", closed=True)
        return files

    monkeypatch.setattr(folder_module, "parse_names", sealed_meanwhile)
    reader = StoreReader(tmp_path)
    book.check(reader)
    assert not reader.problems and not list((tmp_path / "w").glob("*.live.arrows"))


def test_a_sealed_file_deleted_by_another_machine_is_found_where_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may take an open file away: reading says ESTALE."""
    book, writer = Book(), Writer(tmp_path / "w")
    fill(book, writer, 2, ["loss"])
    writer.close()
    seal(tmp_path / "w", closed=True)
    real, failures = ParquetSource.read, [errno.ESTALE]

    def read_group(source: ParquetSource, group: int, columns: tuple[str, ...]) -> Any:
        if failures:
            raise OSError(failures.pop(), "Stale file handle")
        return real(source, group, columns)

    monkeypatch.setattr(ParquetSource, "read", read_group)
    reader = StoreReader(tmp_path)
    book.check(reader)
    assert not reader.problems and not failures
    failures += [errno.ESTALE] * 9
    assert len(StoreReader(tmp_path).points("loss").step) == 0 and len(failures) == 6


def test_a_folder_deleted_and_made_again_is_read_anew(tmp_path: Path) -> None:
    reader = StoreReader(tmp_path)
    for number in range(3):
        book, writer = Book(), Writer(tmp_path / "w")
        fill(book, writer, 2, [f"loss {number}"])
        book.check(reader)
        writer.close()
        shutil.rmtree(tmp_path / "w")
    assert reader.names() == [] and reader.writers() == []


def test_every_look_sees_all_that_was_flushed_while_others_write_and_seal(tmp_path: Path) -> None:
    flushed, stop, errors = [0], threading.Event(), []

    def work() -> None:
        try:
            writer, step = Writer(tmp_path / "w", seal_points=200), 0
            while not stop.is_set():
                writer.write_points(("a", "b"), *values(list(range(step, step + 20)))[:2], np.ones((20, 2)))
                writer.flush()
                step += 20
                flushed[0] = step
            writer.close()
        except Exception as error:
            errors.append(error)

    script = """
import sys, time
from barograph.store import seal as sealing
sealing.MERGE_PARTS = 3
while True:
    sealing.seal(sys.argv[1])
    time.sleep(0.01)
"""
    thread = threading.Thread(target=work)
    thread.start()
    while not flushed[0]:
        time.sleep(0.001)
    sealer = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "w")])
    reader, cursor = StoreReader(tmp_path), StoreReader(tmp_path).cursor()
    try:
        deadline = time.monotonic() + 2.0
        looks = 0
        while time.monotonic() < deadline:
            least = flushed[0]
            steps = reader.points("b").step
            assert len(steps) >= least and np.array_equal(steps, np.arange(len(steps)))
            cursor.read()
            looks += 1
        assert looks > 5 and not reader.problems
    finally:
        stop.set()
        thread.join()
        sealer.kill()
        sealer.wait()
        cursor.close()
    assert not errors
    seal(tmp_path / "w")
    assert np.array_equal(reader.points("a").step, np.arange(flushed[0]))


# -- following ------------------------------------------------------------------------------------------


def steps_of(blocks: list[Any]) -> list[int]:
    return [step for _, block in blocks if isinstance(block, PointsBlock) for step in block.step.tolist()]


def test_a_cursor_gives_every_flushed_block_once_across_files(tmp_path: Path) -> None:
    cursor = StoreReader(tmp_path).cursor()
    assert cursor.read() == ([], False)
    writer, seen = Writer(tmp_path / "w", seal_points=25), []
    for step in range(0, 100, 10):
        writer.write_points(("x",), *values(list(range(step, step + 10))))
        assert cursor.read() == ([], False)
        writer.flush()
        update = cursor.read()
        assert not update.missed and [name for name, _ in update.blocks] == ["w"]
        seen += steps_of(update.blocks)
        if step % 30 == 0:
            seal(tmp_path / "w")
    assert seen == list(range(100))
    writer.close()
    seal(tmp_path / "w", closed=True)
    assert cursor.read() == ([], False)
    cursor.close()


def test_a_cursor_reads_a_file_to_its_end_after_it_was_sealed(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "w")
    writer.write_points(("x",), *values([1]))
    writer.flush()
    cursor = StoreReader(tmp_path).cursor()
    assert steps_of(cursor.read().blocks) == [1]
    writer.write_points(("x",), *values([2]))
    writer.close()
    seal(tmp_path / "w", closed=True)
    update = cursor.read()
    assert steps_of(update.blocks) == [2] and not update.missed
    cursor.close()


def test_a_cursor_says_when_a_file_came_and_went_unseen(tmp_path: Path) -> None:
    cursor = StoreReader(tmp_path).cursor()
    for step in (1, 2):
        writer = Writer(tmp_path / "w")
        writer.write_points(("x",), *values([step]))
        writer.close()
        if step == 1:
            assert steps_of(cursor.read().blocks) == [1]
    seal(tmp_path / "w", closed=True)
    assert cursor.read() == ([], True)
    assert cursor.read() == ([], False)
    shutil.rmtree(tmp_path / "w")
    assert cursor.read() == ([], False)
    cursor.close()


def test_a_cursor_begins_with_the_live_files(tmp_path: Path) -> None:
    for step in (1, 2):
        writer = Writer(tmp_path / "w")
        writer.write_points(("x",), *values([step]))
        writer.close()
        if step == 1:
            seal(tmp_path / "w", closed=True)
    update = StoreReader(tmp_path).cursor().read()
    assert steps_of(update.blocks) == [2] and not update.missed
