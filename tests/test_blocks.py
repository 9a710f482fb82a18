"""Block files: what a call returned from is read back, whole, in order, whatever tore or filled the disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.log import blocks
from barograph.log.blocks import BlockReader, BlockWriter, WideHistogram, WideRow, doubles, pieces

NAMES = ("a", "b/ü", 'c"')


def _read(folder: Path) -> list[blocks.Block]:
    return [block for _, path in pieces(folder) for block in BlockReader(path).read()]


def test_rows_and_histograms_come_back_in_order(tmp_path: Path) -> None:
    writer = BlockWriter(tmp_path, "training", {"rank": 0})
    writer.row(NAMES, doubles((1.0, float("nan"), 3.0)), 5, 1_000_000, 1, 17)
    writer.histogram("weights", doubles((0.0, 1.0, 2.0)), 0, 6, 2_000_000, 1, 18)
    writer.row(NAMES, doubles((4.0, 5.0, 6.0)), 7, 3_000_000, 2, 19)
    first, second, third = _read(tmp_path)
    assert isinstance(first, WideRow) and isinstance(second, WideHistogram) and isinstance(third, WideRow)
    assert first.names == NAMES and (first.step, first.time, first.segment, first.log) == (5, 1_000_000, 1, 17)
    assert (second.name, second.bins, second.step) == ("weights", 0, 6)
    assert third.values == doubles((4.0, 5.0, 6.0)) and third.segment == 2


def test_a_reader_that_follows_gets_each_block_once(tmp_path: Path) -> None:
    writer = BlockWriter(tmp_path, "training", {})
    writer.row(NAMES, doubles((1, 2, 3)), 0, 0, 1, 0)
    reader = BlockReader(pieces(tmp_path)[0][1])
    steps = [block.step for block in reader.read()]
    writer.row(NAMES, doubles((1, 2, 3)), 1, 0, 1, 0)
    steps += [block.step for block in reader.read()]
    again = BlockReader(reader.path, reader.offset)
    writer.row(NAMES, doubles((1, 2, 3)), 2, 0, 1, 0)
    steps += [block.step for block in again.read()]
    assert steps == [0, 1, 2]


@pytest.mark.parametrize("closed", [False, True])
def test_a_reader_that_let_go_of_its_file_goes_on_in_it_and_in_no_other(tmp_path: Path, closed: bool) -> None:
    writer = BlockWriter(tmp_path, "training", {})
    writer.row(NAMES, doubles((1, 2, 3)), 0, 0, 1, 0)
    reader = BlockReader(pieces(tmp_path)[0][1])
    steps = [block.step for block in reader.read()]
    for step in (1, 2):
        if closed:
            reader.close()
        writer.row(NAMES, doubles((1, 2, 3)), step, 0, 1, 0)
        assert not reader.replaced()
        steps += [block.step for block in reader.read()]
    assert steps == [0, 1, 2]
    if closed:
        reader.close()
    content = reader.path.read_bytes()
    other = content.replace(b'"made":', b'"made":1', 1)  # of another launch, in a file that may have the same inode
    assert other != content
    reader.path.unlink()
    assert reader.replaced()
    reader.path.write_bytes(other)
    if closed:
        with pytest.raises(FileNotFoundError):
            list(reader.read())
    else:
        assert list(reader.read()) == []  # the deleted file, to its end
    assert reader.replaced()


def test_a_full_piece_is_left_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "PIECE_BYTES", 300)
    writer = BlockWriter(tmp_path, "training", {})
    for step in range(20):
        writer.row(NAMES, doubles((step, 2, 3)), step, 0, 1, 0)
    assert len(pieces(tmp_path)) > 3
    assert [block.step for block in _read(tmp_path)] == list(range(20))


def test_a_second_writer_of_the_same_log_begins_a_file_of_its_own(tmp_path: Path) -> None:
    for step in (1, 2):
        writer = BlockWriter(tmp_path, "training", {})
        writer.row(NAMES, doubles((1, 2, 3)), step, 0, 1, 0)
        writer.close()
    assert [block.step for block in _read(tmp_path)] == [1, 2]


@given(cut=st.integers(0, 400), flip=st.integers(0, 400))
def test_torn_and_damaged_files_give_what_is_whole_and_never_a_wrong_value(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int
) -> None:
    folder = tmp_path_factory.mktemp("blocks")
    writer = BlockWriter(folder, "training", {})
    for step in range(5):
        writer.row(NAMES, doubles((step, step, step)), step, 0, 1, 0)
    path = pieces(folder)[0][1]
    data = bytearray(path.read_bytes())
    data[flip % len(data)] ^= 0x10
    path.write_bytes(data[: max(0, len(data) - cut)])
    found = [block for block in BlockReader(path).read() if isinstance(block, WideRow)]
    assert all(block.values == doubles((block.step,) * 3) for block in found if block.names == NAMES)
    assert [block.step for block in found] == list(range(len(found)))


def test_a_disk_that_refuses_holds_up_nothing_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences: list[str] = []
    writer = BlockWriter(tmp_path, "training", {}, sentences.append)
    writer.row(NAMES, doubles((0, 2, 3)), 0, 0, 1, 0)
    real = os.pwrite

    def refuse(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)
    writer.row(NAMES, doubles((1, 2, 3)), 1, 0, 1, 0)
    writer.histogram("h", doubles((0, 1, 2)), 0, 2, 0, 1, 0)
    monkeypatch.setattr(os, "pwrite", real)
    writer.row(NAMES, doubles((3, 2, 3)), 3, 0, 1, 0)
    assert [block.step for block in _read(tmp_path)] == [0, 1, 2, 3]
    assert len(sentences) == 1 and writer.lost == 0


def test_kill_loses_no_row_whose_call_returned(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from barograph.log.blocks import BlockWriter, doubles\n"
        f"writer = BlockWriter(Path({str(tmp_path)!r}), 'training', {{}})\n"
        "names = tuple(map(str, range(2000)))\n"
        "for step in range(10 ** 9):\n"
        "    writer.row(names, doubles([step] * 2000), step, 0, 1, 0); print(step, flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    last = -1
    for line in child.stdout:
        last = int(line)
        if last == 200:
            break
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read()
    child.wait()
    last = max([last, *(int(line) for line in rest.splitlines()[:-1])])
    found = _read(tmp_path)
    assert len(found) >= last + 1
    assert all(isinstance(block, WideRow) and block.values == doubles([block.step] * 2000) for block in found)


@given(st.lists(st.integers(0, 12), max_size=60))
def test_sets_of_names_without_end_are_written_again_and_not_held(sets: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_MOST_NAMES", 10)
        known = [tuple(f"{number}/{one}" for one in range(3)) for number in range(13)]
        writer = BlockWriter(Path(folder), "training", {})
        for step, number in enumerate(sets):
            writer.row(known[number], doubles((step, 1, 2)), step, 0, 1, 0)
            assert writer._held <= 10 and len(writer._numbers) <= 3
        rows = [block for block in _read(Path(folder)) if isinstance(block, WideRow)]
        assert [(row.step, row.names) for row in rows] == [(step, known[number]) for step, number in enumerate(sets)]
