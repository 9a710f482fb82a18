"""What is in no line of a gist is in no line of its text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.importing.textlogs import columns, data_tables, messages, rounded
from barograph.importing.textlogs.gist import gist, shape

PIECES = [
    b"step", b"Epoch", b"iter", b"it", b"#", b"loss", b"Loss", b"val", b"Train", b"train", b"test", b"acc", b"e",
    b"error", b"Error:", b"Killed", b"nan", b" ", b"  ", b"|", b" | ", b"\t", b",", b":", b"=", b"_", b"%", b"(", b")",
    b"0", b"1", b"2.5", b"17", b"1K", b"300M", b"7k", b"step:1K ", b"9e-05", b"[12]", b"rank3", b"\xff",
    b"mse", b"| train | loss |", b"\xe2\x94\x82", b"Training | Validation", b"cost function value",
]  # fmt: skip
LINES = st.lists(st.sampled_from(PIECES), max_size=9).map(b"".join)
TEXTS = st.lists(LINES, max_size=12).map(b"\n".join)
SOUGHT = {
    "values": columns._OF_VALUES,
    "one value": columns._ONE_VALUE,
    "rounded": rounded._ROUNDED,
    "data above": data_tables._DATA_ABOVE,
    **{f"begins {word!r}": begins for word, begins in columns._BEGINS.items()},
}


@given(TEXTS, st.sampled_from(messages._WORDS))
def test_a_word_of_a_text_is_in_its_gist(text: bytes, word: bytes) -> None:
    if word in text.lower():
        assert shape(word) in gist(text).lower()


@given(TEXTS)
def test_what_an_expression_finds_in_a_text_it_finds_in_the_gist(text: bytes) -> None:
    little = gist(text)
    for name, pattern in SOUGHT.items():
        if name.startswith("begins"):
            assert not pattern.search(text.lower()) or pattern.search(little.lower()), name
        else:
            assert not pattern.search(text) or pattern.search(little), name
    if any(map(data_tables._heading, text.split(b"\n"))):
        assert any(map(data_tables._heading, little.split(b"\n")))


@given(TEXTS)
def test_a_gist_has_each_shape_once_and_nothing_else(text: bytes) -> None:
    lines = gist(text).split(b"\n")
    assert len(lines) == len({*lines})
    assert {*lines} == {shape(line) for line in text.split(b"\n")}


def test_texts_in_turn_have_their_own() -> None:
    one, other = b"step 1\nstep 2", b"epoch 1"
    assert [gist(text) for text in (one, other, one)] == [b"step 0", b"epoch 0", b"step 0"]


@pytest.mark.parametrize("words", [b"| Train | Loss |", b"| train | loss | acc |"])
def test_a_heading_far_down_is_found(words: bytes) -> None:
    text = b"".join(b"step %d loss %.4f\n" % (step, 2.5 - step / 9999) for step in range(3000)) + words + b"\n"
    assert any(map(data_tables._heading, gist(text).split(b"\n")))
