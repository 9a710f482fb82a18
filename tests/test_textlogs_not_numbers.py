"""NaN and infinity as other systems write them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from textlog_readings import read

from barograph.importing.textlogs import not_numbers


@pytest.mark.parametrize(("written", "meant"), [
    (b"loss=nan.0", b"loss=nan"), (b"ce = 1.#QNAN000 * 256", b"ce = nan * 256"), (b"loss = -1.#IND", b"loss = nan"),
    (b"err 1.#INF00", b"err inf"), (b"err -1.#INF", b"err -inf"), (b"avg loss -nan(ind), 2", b"avg loss nan, 2"),
    (b"nan(ind)", b"nan"), (b"Loss: nan.08", b"Loss: nan"), (b"loss=nan.0, v=inf.0]", b"loss=nan, v=inf]"),
])  # fmt: skip
def test_words_for_no_number_are_spelled_out(written: bytes, meant: bytes) -> None:
    assert not_numbers.spelled_out(written) == meant


@pytest.mark.parametrize(
    "text", [b"fold 1.#4 of 5: loss 2.1", b"isnan(loss)", b"v1.#INF of it", b"nanmean(2.0)", b"at nan.2.py"]
)
def test_other_words_stay(text: bytes) -> None:
    assert not_numbers.spelled_out(text) == text


def test_a_loss_that_another_system_calls_no_number_is_none(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("Iteration 5, loss = 2.31\nIteration 10, loss = 1.#QNAN0\nIteration 15, loss = 1.#INF\n")
    (_, first), (step, second), (_, third) = read(path).series["loss"]
    assert (first, step, math.isnan(second), third) == (2.31, 10, True, math.inf)
