"""The wire format: what a real library writes is read, and damage is one kind of error."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import struct_pb2, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st
from wire_format import field, varint

from barograph.importing import protobuf

NUMBERS = st.integers(0, 2**64 - 1)


@given(NUMBERS)
def test_a_whole_number_is_read_back(value: int) -> None:
    data = b"x" + varint(value) + b"y"
    assert protobuf.read_varint(data, 1, len(data)) == (value, len(data) - 1)


@given(st.lists(NUMBERS, max_size=30), st.integers(0, 40))
def test_many_numbers_are_read_as_one_at_a_time(values: list[int], cut: int) -> None:
    data = b"".join(map(varint, values))
    starts = np.cumsum([0, *[len(varint(value)) for value in values]])[:-1].astype(np.int64)
    stops = np.minimum(starts + 10, max(len(data) - cut, 0))
    found, ends, good = protobuf.read_varints(np.frombuffer(data, np.uint8), starts, stops)
    for index, value in enumerate(values):
        try:
            one = protobuf.read_varint(data, int(starts[index]), int(stops[index]))
        except protobuf.Malformed:
            assert not good[index]
        else:
            assert good[index] and one == (int(found[index]), int(ends[index]))
            assert one[0] == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_signs_survive(value: int) -> None:
    assert protobuf.signed(protobuf.read_varint(varint(value), 0, 10)[0]) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_fields_within_them_or_malformed(data: bytes) -> None:
    position = 0
    try:
        for number, wire, first, last in protobuf.read_fields(data):
            assert number >= 0 and wire in (0, 1, 2, 5)
            if wire:
                assert position <= first <= last <= len(data)
                position = last
    except protobuf.Malformed:
        pass


@pytest.mark.parametrize("data", [b"\x0a\xff\xff\xff\xff\x0f", b"\x0a", b"\x09abc", b"\x0b", b"\xff" * 20, b"\x02\x00"])
def test_damage_is_malformed(data: bytes) -> None:
    with pytest.raises(protobuf.Malformed):
        list(protobuf.read_fields(data))


def test_values_are_those_that_the_library_wrote() -> None:
    struct = struct_pb2.Struct()
    plain = {"a": 1.5, "b": "text", "c": True, "d": None, "e": {"f": [1.0, "x", {"g": False}]}}
    struct.update(plain)
    assert protobuf.read_mapping(struct.SerializeToString(), 0, struct.ByteSize()) == plain


def test_values_nested_too_deeply_are_malformed() -> None:
    value = field(2, 1.0)
    for _ in range(100):
        value = field(6, field(1, value))
    with pytest.raises(protobuf.Malformed):
        protobuf.read_value(value, 0, len(value))


def test_a_timestamp_is_microseconds() -> None:
    data = timestamp_pb2.Timestamp(seconds=1_700_000_000, nanos=123_456_789).SerializeToString()
    assert protobuf.read_timestamp(data, 0, len(data)) == 1_700_000_000_123_456
