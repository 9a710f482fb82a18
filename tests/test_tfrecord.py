"""TFRecord framing: sums are right, damage costs the record it hits, and a torn end waits."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire_format import framed

from barograph.importing import tfrecord

SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


def read(path: Path, offset: int = 0, searching: bool = False) -> tuple[list[bytes], list[tfrecord.Damage], int]:
    """The records, the damage, and where the last record ends."""
    bodies, damage, end = [], [], offset
    for part in tfrecord.read_blocks(path, offset, searching, 256):
        if isinstance(part, tfrecord.RecordBlock):
            for start, length in zip(part.starts.tolist(), part.lengths.tolist(), strict=True):
                bodies.append(part.data[start : start + length])
            end = part.end
        else:
            damage.append(part)
    return bodies, damage, end


def test_the_sum_is_castagnolis() -> None:
    # check value of CRC-32C: https://reveng.sourceforge.io/crc-catalogue/17plus.htm#crc.cat.crc-32-iscsi
    plain = 0xE3069283
    assert tfrecord.checksum(b"123456789") == ((plain >> 15 | plain << 17) + 0xA282EAD8) & 0xFFFFFFFF


@pytest.mark.parametrize("length", [*range(12), 255, 2047, 2048, 2049, 4096, 4097, 10_001])
def test_the_sum_is_the_one_that_tensorboard_computes(length: int) -> None:
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    data = random.Random(length).randbytes(length)
    assert tfrecord.checksum(data) == masked_crc32c(data)


def test_many_sums_are_as_one_at_a_time() -> None:
    draw = random.Random(1)
    data = draw.randbytes(60_000)
    lengths = np.array([draw.choice([0, 1, 7, 8, 60, 61, 3000, 9000]) for _ in range(200)], np.int64)
    starts = np.array([draw.randrange(len(data) - length) for length in lengths], np.int64)
    found = tfrecord.checksums(np.frombuffer(data, np.uint8), starts, lengths)
    wanted = [tfrecord.checksum(data[a : a + n]) for a, n in zip(starts, lengths, strict=True)]
    assert found.tolist() == wanted


@SAME_FOLDER
@given(bodies=st.lists(st.binary(max_size=400), max_size=12), cut=st.integers(0, 40))
def test_a_torn_file_gives_its_whole_records_and_goes_on_when_it_grows(
    tmp_path: Path, bodies: list[bytes], cut: int
) -> None:
    path = tmp_path / "events"
    whole = b"".join(map(framed, bodies))
    path.write_bytes(whole[: max(len(whole) - cut, 0)])
    first, damage, end = read(path)
    assert not damage and first == bodies[: len(first)]
    path.write_bytes(whole)
    assert read(path, end) == (bodies[len(first) :], [], len(whole))


@SAME_FOLDER
@given(data=st.data(), bodies=st.lists(st.binary(max_size=100), min_size=1, max_size=10))
def test_a_damaged_byte_costs_no_record_but_its_own(tmp_path: Path, data: st.DataObject, bodies: list[bytes]) -> None:
    path = tmp_path / "events"
    records = [framed(body) for body in bodies]
    hit = data.draw(st.integers(0, len(records) - 1))
    place = sum(map(len, records[:hit])) + data.draw(st.integers(0, len(records[hit]) - 1))
    whole = bytearray(b"".join(records))
    whole[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(whole))
    found, damage, _ = read(path)
    assert found == bodies[:hit] + bodies[hit + 1 :]
    assert len(damage) == 1 and damage[0].where <= place


def test_damage_at_the_end_is_searched_on_when_the_file_grows(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(framed(b"one") + b"\xff" * 100)
    found, damage, _ = read(path)
    assert found == [b"one"] and damage[0].searching
    path.write_bytes(path.read_bytes() + framed(b"two"))
    assert read(path, damage[0].end, True)[0] == [b"two"]


def test_a_length_that_the_file_does_not_hold_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "events"
    head = struct.pack("<Q", 1 << 60)
    path.write_bytes(framed(b"one") + head + struct.pack("<I", tfrecord.checksum(head)) + b"x" * 50)
    assert read(path)[:2] == ([b"one"], [])  # it may still come


def test_a_record_too_long_to_hold_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord, "LONGEST", 1000)
    path = tmp_path / "events"
    path.write_bytes(framed(b"one") + framed(b"x" * 1001) + framed(b"two"))
    found, damage, _ = read(path)
    assert found == [b"one", b"two"] and "1,001 bytes" in damage[0].why


@SAME_FOLDER
@given(data=st.binary(max_size=600))
def test_any_file_is_read_to_an_end(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "events").write_bytes(data)
    read(tmp_path / "events")
