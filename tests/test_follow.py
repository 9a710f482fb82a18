"""A run's files are followed while they are written: each entry once, in the order in which it was logged."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.core.record import Record, encode
from barograph.log import blocks
from barograph.log.blocks import BlockWriter, WideHistogram, WideRow, doubles, pieces
from barograph.log.follow import Entry, Follower
from barograph.log.write import JsonLog
from barograph.store.seal import seal

NAMES = ("a", "b")


class Source:
    """One process that logs: records and rows, numbered in the order of their writing."""

    def __init__(self, folder: Path, name: str, rank: int = 0, segment: int = 1):
        self.folder, self.name, self.rank, self.segment = folder, name, rank, segment
        self.log = JsonLog(folder / name)
        self.rows = BlockWriter(folder, Path(name).stem, {"rank": rank})
        self.numbers = itertools.count(1)
        self.written: list[int] = []
        self.begin_segment(segment)

    def begin_segment(self, segment: int) -> None:
        self.segment = segment
        self.record(kind="segment", segment=segment, rank=self.rank, run=self.folder.name)

    def record(self, size: int = 10, kind: str = "sample", **fields: Any) -> int:
        number = next(self.numbers)
        self.written.append(number)
        record = Record(kind, number, number, {"number": number, "text": "x" * size, **fields})
        return self.log.append(encode(record))

    def row(self, width: int = 2) -> None:
        number = next(self.numbers)
        self.written.append(number)
        self.rows.row(NAMES[:width], doubles([number] * width), number, number, self.segment, self.log.position)

    def histogram(self) -> None:
        number = next(self.numbers)
        self.written.append(number)
        self.rows.histogram("h", doubles([0, 1, number]), 0, number, number, self.segment, self.log.position)

    def reopen(self) -> None:
        """Another process goes on."""
        self.close()
        self.log = JsonLog(self.folder / self.name)
        self.rows = BlockWriter(self.folder, Path(self.name).stem, {"rank": self.rank})
        self.begin_segment(self.segment + 1)

    def close(self) -> None:
        self.rows.close()
        self.log.close()


def number_of(entry: Entry) -> int:
    item = entry.item
    return int(item.fields["number"]) if isinstance(item, Record) else item.step


def numbers_of(entries: list[Entry], source: str = "training.json") -> list[int]:
    return [number_of(entry) for entry in entries if entry.source == source]


def read_all(follower: Follower, limit: int = 8 << 20) -> list[Entry]:
    found: list[Entry] = []
    while new := follower.read(limit):
        found += new
    return found


def seal_by_hand(folder: Path, stem: str = "training", keep_last: bool = True) -> list[str]:
    """Delete block files as the sealer does."""
    files = pieces(folder, stem)[: -1 if keep_last else None]
    (folder / "store" / stem).mkdir(parents=True, exist_ok=True)
    for number, path in files:
        (folder / "store" / stem / f"{number:04d}{blocks.SEALED_SUFFIX}").touch()
        path.unlink()
    return [path.name for _, path in files]


def test_records_and_rows_come_in_the_order_in_which_they_were_logged(tmp_path: Path) -> None:
    source = Source(tmp_path, "training.json")
    for _ in range(20):
        source.row()
        source.record()
        source.histogram()
        source.row(1)
    follower = Follower(tmp_path)
    assert numbers_of(follower.read()) == source.written
    assert follower.read() == []
    source.row()
    source.record()
    assert numbers_of(follower.read()) == source.written[-2:]


def test_a_small_limit_gives_the_same_entries_in_more_reads(tmp_path: Path) -> None:
    source = Source(tmp_path, "training.json")
    for _ in range(50):
        source.record(50)
        source.row()
    whole = read_all(Follower(tmp_path))
    follower = Follower(tmp_path)
    first = follower.read(1)
    assert len(first) == 1
    assert [*first, *read_all(follower, 200)] == whole


def test_segment_and_rank_follow_from_the_records_above(tmp_path: Path) -> None:
    main = Source(tmp_path, "training.json")
    other = Source(tmp_path, "training-elsewhere.json", rank=3, segment=1)
    main.record()
    main.reopen()
    main.record()
    main.row()
    other.record()
    entries = read_all(Follower(tmp_path))
    assert [(entry.segment, entry.rank) for entry in entries if entry.source == "training.json"] == [
        *[(1, 0)] * 2,
        *[(2, 0)] * 3,
    ]
    assert {(entry.segment, entry.rank) for entry in entries if entry.source != "training.json"} == {(1, 3)}


def test_the_main_log_alone_is_followed_with_the_sidecars(tmp_path: Path) -> None:
    Source(tmp_path, "training.json")
    Source(tmp_path, "training-rank1-2.json", rank=1)
    JsonLog(tmp_path / "sidecar-host.json").append(encode(Record("info", 1, 0, {"number": 1})))
    assert {entry.source for entry in Follower(tmp_path, ranks="main").read()} == {"training.json", "sidecar-host.json"}
    assert len({entry.source for entry in Follower(tmp_path).read()}) == 3


def test_records_of_another_run_in_a_shared_log_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    source = Source(folder, "training.json")
    source.record()
    source.record(kind="segment", run="other", segment=1)
    source.record()
    source.begin_segment(2)
    source.record()
    source.close()
    (folder / "run_manifest.json").write_text('{"id": "mine"}')
    assert numbers_of(Follower(folder).read(1 << 20)) == [1, 2, 5, 6]
    assert numbers_of(read_all(Follower(folder), 1)) == [1, 2, 5, 6]
    renamed = folder.rename(tmp_path / "renamed")
    assert numbers_of(Follower(renamed).read()) == [1, 2, 5, 6]


def test_a_sidecars_record_stands_behind_the_record_that_it_had_read(tmp_path: Path) -> None:
    main = Source(tmp_path, "training.json")
    sidecar = JsonLog(tmp_path / "sidecar-host.json")
    ends = [main.record() for _ in range(6)]
    for at in (2, 2, 4):
        sidecar.append(encode(Record("finding", 0, at, {"number": -at, "at": ends[at]})))
    assert [number_of(entry) for entry in Follower(tmp_path).read()] == [1, 2, 3, 4, -2, -2, 5, 6, -4, 7]
    assert [number_of(entry) for entry in read_all(Follower(tmp_path), 1)] == [1, 2, 3, 4, -2, -2, 5, 6, -4, 7]


def test_a_sidecars_record_beyond_the_main_log_is_not_lost(tmp_path: Path) -> None:
    sidecar = JsonLog(tmp_path / "sidecar-host.json")
    sidecar.append(encode(Record("finding", 0, 0, {"number": 1, "at": 10_000})))
    assert numbers_of(Follower(tmp_path).read(), "sidecar-host.json") == [1]


def test_logs_of_several_ranks_come_by_time_whatever_the_limit(tmp_path: Path) -> None:
    first, second = Source(tmp_path, "training.json"), Source(tmp_path, "training-rank1.json", 1)
    for _ in range(30):
        first.record()
        second.record()
        second.row()
    whole = [(entry.source, number_of(entry)) for entry in read_all(Follower(tmp_path))]
    assert [number for _, number in whole] == sorted(number for _, number in whole)
    assert [(entry.source, number_of(entry)) for entry in read_all(Follower(tmp_path), 100)] == whole


def test_half_of_a_record_is_read_once_it_is_whole(tmp_path: Path) -> None:
    source = Source(tmp_path, "training.json")
    follower = Follower(tmp_path)
    follower.read()
    half = encode(Record("metrics", 5, 5, {"number": 5}))
    at = source.log.position
    with open(tmp_path / "training.json", "r+b") as file:
        file.seek(at)
        file.write(b",\n" + half[:20])
        file.flush()
        assert follower.read() == []
        file.write(half[20:])
    assert numbers_of(follower.read()) == [5]


def test_a_torn_block_is_read_once_it_is_whole(tmp_path: Path) -> None:
    source = Source(tmp_path, "training.json")
    source.row()
    path = source.rows.path
    assert path is not None
    follower = Follower(tmp_path)
    follower.read()
    before = path.stat().st_size
    source.row()
    whole = path.read_bytes()
    path.write_bytes(whole[: before + 20])
    assert follower.read() == []
    path.write_bytes(whole)
    assert numbers_of(follower.read()) == [3]


def test_a_damaged_end_of_the_log_holds_no_block_back(tmp_path: Path) -> None:
    source = Source(tmp_path, "training.json")
    end = source.record()
    source.row()
    with open(tmp_path / "training.json", "r+b") as file:
        file.seek(end - 20)
        file.write(b"\xff" * 19)
    assert numbers_of(read_all(Follower(tmp_path))) == [1, 3]


def test_blocks_without_a_log_are_found(tmp_path: Path) -> None:
    source = Source(tmp_path, "training.json")
    source.row()
    source.close()
    (tmp_path / "training.json").unlink()
    assert numbers_of(read_all(Follower(tmp_path))) == [2]


def test_block_files_that_rotate_and_are_deleted_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "PIECE_BYTES", 300)
    source = Source(tmp_path, "training.json")
    follower = Follower(tmp_path)
    found: list[Entry] = []
    for _ in range(10):
        for _ in range(4):
            source.row()
            source.record()
        found += follower.read(400)
        found += follower.read()
        seal_by_hand(tmp_path)
    found += read_all(follower)
    assert numbers_of(found) == source.written
    assert follower.missed == {}


def test_block_files_that_nobody_has_any_more_hold_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "PIECE_BYTES", 300)
    source = Source(tmp_path, "training.json")
    source.row()
    follower = Follower(tmp_path)
    follower.read()
    places = json.loads(json.dumps(follower.places))
    for _ in range(20):
        source.row()
    seal_by_hand(tmp_path)
    again = Follower(tmp_path, places)
    rest = numbers_of(read_all(again))
    assert rest == source.written[-len(rest) :]
    assert read_all(again) == []
    assert again.missed == {}
    fresh = Follower(tmp_path)
    assert numbers_of(fresh.read())[1:] == rest
    assert fresh.missed == {}


@pytest.mark.parametrize("restarts", [False, True])
def test_rows_of_files_that_were_sealed_and_deleted_come_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    monkeypatch.setattr(blocks, "PIECE_BYTES", 300)
    source, written = Source(tmp_path, "training.json"), []
    for number in range(60):
        (source.row, source.record, source.histogram)[number % 3 if number != 7 else 0]()
        if number == 20:  # the middle of a file: what was read of it must not come again
            early = Follower(tmp_path)
            written = numbers_of(early.read(900))
            places = json.loads(json.dumps(early.places))
            early.close()
    assert 0 < len(written) < 20 and len(pieces(tmp_path)) > 3
    before = len(pieces(tmp_path))
    seal(tmp_path, final=True)
    assert len(pieces(tmp_path)) < before
    fresh = Follower(tmp_path)
    found: list[Entry] = []
    while entries := fresh.read(100):
        found += entries
        if restarts:
            fresh.close()
            fresh = Follower(tmp_path, json.loads(json.dumps(fresh.places)))
    assert numbers_of(found) == source.written and fresh.missed == {}
    values = [entry.item.values for entry in found if isinstance(entry.item, WideRow)]
    assert values == [doubles([entry.item.step] * 2) for entry in found if isinstance(entry.item, WideRow)]
    assert {entry.segment for entry in found} == {1}
    later = Follower(tmp_path, places)
    assert written + numbers_of(read_all(later, 200)) == source.written
    source.row()
    assert numbers_of(later.read()) == source.written[-1:] == numbers_of(fresh.read())


def test_numbers_of_deleted_block_files_are_not_used_again(tmp_path: Path) -> None:
    source = Source(tmp_path, "training.json")
    source.row()
    source.rows.close()
    follower = Follower(tmp_path)
    follower.read()
    seal_by_hand(tmp_path, keep_last=False)
    source.reopen()
    source.row()
    assert [path.name for _, path in pieces(tmp_path)] == ["training.0002.wide"]
    assert numbers_of(follower.read()) == source.written[2:]
    assert follower.missed == {}


def test_a_folder_that_was_deleted_and_written_again_is_followed_on(tmp_path: Path) -> None:
    source = Source(tmp_path, "training.json")
    for _ in range(3):
        source.record()
        source.row()
    follower = Follower(tmp_path)
    follower.read()
    (tmp_path / "training.json").unlink()
    (tmp_path / "training.0001.wide").unlink()
    assert follower.read() == []
    assert source.log.restore_if_deleted()
    assert source.rows.gone() == 3
    source.record()
    source.row()
    assert numbers_of(read_all(follower)) == source.written[-2:]
    again = Follower(tmp_path, json.loads(json.dumps(follower.places)))
    source.row()
    assert numbers_of(read_all(again)) == source.written[-1:]


def test_a_log_that_was_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    source = Source(tmp_path, "training.json")
    for _ in range(10):
        source.record(100)
    source.close()
    follower = Follower(tmp_path)
    follower.read()
    os.unlink(tmp_path / "training.json")
    new = Source(tmp_path, "training.json", segment=7)
    for _ in range(30):
        new.record(3)
    entries = read_all(follower)
    assert numbers_of(entries) == new.written
    assert {entry.segment for entry in entries} == {7}
    assert follower.restarted == {"training.json"}


def test_a_log_that_lost_its_end_is_followed_from_there(tmp_path: Path) -> None:
    source = Source(tmp_path, "training.json")
    ends = [source.record() for _ in range(10)]
    source.close()
    path = tmp_path / "training.json"
    whole = path.read_bytes()
    for restart in (False, True):
        path.write_bytes(whole)
        follower = Follower(tmp_path)
        follower.read()
        if restart:
            follower = Follower(tmp_path, json.loads(json.dumps(follower.places)))
        path.write_bytes(whole[: ends[5]] + b"\n]\n")
        assert follower.read() == []
        again = JsonLog(path)
        again.append(encode(Record("metrics", 99, 99, {"number": 99})))
        again.close()
        assert numbers_of(follower.read()) == [99]
        assert not follower.restarted


def test_a_bare_log_is_followed(tmp_path: Path) -> None:
    log = JsonLog(tmp_path / "any.json")
    log.append(encode(Record("step", 1, 1, {"number": 1})))
    assert numbers_of(Follower(tmp_path / "any.json").read(), "any.json") == [1]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["record", "other"]), st.sampled_from([1, 10, 3000, 9000])),
        st.tuples(
            st.sampled_from(["row", "histogram", "other row", "sidecar", "reopen", "seal", "restart"]), st.just(0)
        ),
        st.tuples(st.just("read"), st.sampled_from([1, 500, 1 << 20])),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(ACTIONS)
def test_nothing_comes_twice_and_nothing_is_missed(actions: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "PIECE_BYTES", 400)
        folder = Path(name)
        sources = [Source(folder, "training.json"), Source(folder, "training-rank1-7.json", 1)]
        sidecar = JsonLog(folder / "sidecar-host.json")
        noted: list[int] = []
        follower, found = Follower(folder), []
        for action, size in actions:
            if action in ("record", "other"):
                sources[action == "other"].record(size)
            elif action in ("row", "other row"):
                sources[action == "other row"].row()
            elif action == "histogram":
                sources[0].histogram()
            elif action == "sidecar":
                noted.append(len(noted))
                at = follower.places.get("training.json", {"end": 0})["end"]
                sidecar.append(encode(Record("finding", 0, 0, {"number": noted[-1], "at": at})))
            elif action == "reopen":
                sources[0].reopen()
            elif action == "seal":
                found += read_all(follower)  # what is deleted unread stands in the store, not here
                seal_by_hand(folder)
            elif action == "restart":
                places = json.loads(json.dumps(follower.places))
                follower.close()
                follower = Follower(folder, places)
            else:
                found += follower.read(size)
        found += read_all(follower)
        for source in sources:
            mine = [entry for entry in found if entry.source == source.name]
            assert [number_of(entry) for entry in mine] == source.written
            assert {entry.rank for entry in mine} == {source.rank}
            source.close()
        assert numbers_of(found, "sidecar-host.json") == noted
        assert not follower.restarted
        sidecar.close()
        follower.close()


def test_a_run_is_followed_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "PIECE_BYTES", 20_000)
    source = Source(tmp_path, "training.json")

    def write() -> None:
        for turn in range(3000):
            source.record(turn % 200)
            if turn % 3 == 0:
                source.row()

    writer = threading.Thread(target=write)
    writer.start()
    follower, found = Follower(tmp_path), []
    while writer.is_alive():
        found += follower.read(10_000)
    writer.join()
    found += read_all(follower)
    assert numbers_of(found) == source.written


def test_rows_carry_what_was_logged(tmp_path: Path) -> None:
    source = Source(tmp_path, "training.json")
    source.row()
    source.histogram()
    _, row, histogram = (entry.item for entry in Follower(tmp_path).read())
    assert isinstance(row, WideRow)
    assert (row.names, row.values, row.step) == (NAMES, doubles([2, 2]), 2)
    assert isinstance(histogram, WideHistogram)
    assert (histogram.name, histogram.numbers) == ("h", doubles([0, 1, 3]))


def test_a_follower_may_leave_out_what_there_is_by_now(tmp_path: Path) -> None:
    source, other = Source(tmp_path, "training.json"), Source(tmp_path, "training-rank2-5.json", 2)
    for _ in range(5):
        source.record()
        source.row()
        other.record()
    source.begin_segment(4)
    follower = Follower(tmp_path)
    follower.skip()
    assert follower.read() == []
    source.row()
    source.record()
    other.record()
    entries = follower.read()
    assert numbers_of(entries) == source.written[-2:]
    assert sorted((entry.segment, entry.rank) for entry in entries) == [(1, 2), (4, 0), (4, 0)]
