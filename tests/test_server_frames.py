"""Frames say what was put into them, on an even footing for a browser's arrays."""

from __future__ import annotations

import math
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from barograph.views.server.frames import Frame, unpack


@given(st.lists(st.lists(st.floats(width=64), max_size=20), max_size=8), st.text(max_size=40))
def test_columns_come_back_to_the_bit(columns: list[list[float]], word: str) -> None:
    frame = Frame()
    places = [frame.column(column) for column in columns]
    made = frame.bytes({"columns": places, "word": word, "odd": math.nan})
    (length,) = struct.unpack_from("<I", made)
    assert (4 + length) % 8 == 0
    assert len(made) == 4 + length + 8 * frame.size
    header, data = unpack(made)
    assert header["odd"] == "NaN"
    for column, place in zip(columns, header["columns"], strict=True):
        got = data[place["at"] : place["at"] + place["n"]]
        assert got.tobytes() == np.array(column, "<f8").tobytes()


def test_any_kind_of_number_becomes_a_float64() -> None:
    frame = Frame()
    place = frame.column(np.arange(6, dtype=np.int32).reshape(2, 3))
    _, data = unpack(frame.bytes({"x": place}))
    assert data.dtype == np.dtype("<f8") and data.tolist() == [0, 1, 2, 3, 4, 5]
