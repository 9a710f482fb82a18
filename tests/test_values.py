"""Whatever is handed to a log call becomes plain, flat and printable; what is odd is said."""

from __future__ import annotations

import decimal
import math
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.core.values import DeviceValues, flatten, number, on_device, plain, text


def made(value: Any) -> tuple[Any, list[str]]:
    odd: list[str] = []
    return plain(value, "name", odd.append), odd


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (numpy.float32(1.5), 1.5),
        (numpy.float64(2.5), 2.5),
        (numpy.int64(3), 3),
        (numpy.bool_(True), True),
        (numpy.array(4.0), 4.0),
        (numpy.array([5.0]), 5.0),
        (decimal.Decimal("6.5"), 6.5),
        (None, None),
        ("text", "text"),
        (10**400, 10**400),
    ],
)
def test_numbers_of_every_library_become_pythons(value: Any, expected: Any) -> None:
    value, odd = made(value)
    assert value == expected and type(value) is type(expected) and not odd


def test_torch_scalars_become_numbers() -> None:
    torch = pytest.importorskip("torch")
    assert made(torch.tensor(1.5, requires_grad=True)) == (1.5, [])
    assert made(torch.tensor([2], dtype=torch.int32)) == (2, [])
    assert made(torch.tensor(3.0, dtype=torch.bfloat16)) == (3.0, [])


def test_an_array_is_described_and_the_sentence_says_what_to_use() -> None:
    value, odd = made(numpy.zeros((3, 4)))
    assert value == "ndarray[3, 4]" and "log_histogram" in odd[0] and "(3, 4)" in odd[0]


def test_objects_that_raise_in_every_way_cost_nothing() -> None:
    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError

        def __float__(self) -> float:
            raise RuntimeError

    value, odd = made(Hostile())
    assert value == "<Hostile>" and odd


def test_nested_mappings_are_joined_and_an_endless_one_stops() -> None:
    loop: dict[str, Any] = {"loss": 1.0}
    loop["self"] = loop
    odd: list[str] = []
    flat = flatten({"a": {"b": {3: 2.0}}, None: 1, "loop": loop}, odd.append)
    assert flat["a/b/3"] == 2.0 and flat["None"] == 1 and flat["loop/self/loss"] == 1.0
    assert odd


@given(st.dictionaries(st.one_of(st.text(), st.integers(), st.none(), st.binary()), st.from_type(object), max_size=5))
def test_flatten_never_raises_and_gives_plain_values(values: dict[Any, Any]) -> None:
    flat = flatten(values, lambda sentence: None)
    assert all(isinstance(key, str) for key in flat)
    assert all(value is None or isinstance(value, (str, int, float, bool)) for value in flat.values())
    for key in flat:
        key.encode()


def test_what_is_no_number_is_nan_where_a_number_is_due() -> None:
    assert number("3.0x") != number("3.0x")
    assert math.isnan(number(None)) and number(numpy.float32(2)) == 2.0 and number(True) is True


def test_text_is_always_utf8() -> None:
    text("\ud800").encode()


class OnDevice:
    """A value on an accelerator, as far as we look at one: reading it before its copy is done is an error."""

    class device:
        type = "pretended"

    is_cuda = True

    def __init__(self, value: float):
        self.value, self.copied = value, False

    def detach(self) -> OnDevice:
        return self

    def to(self, where: str, non_blocking: bool) -> numpy.float64:
        assert where == "cpu" and non_blocking
        self.copied = True
        return numpy.float64(self.value)

    def item(self) -> float:
        raise AssertionError("this would wait for the device")

    __float__ = item


def test_values_on_a_device_are_copied_without_being_read() -> None:
    values = {"loss": OnDevice(1.5), "lr": 0.1}
    assert on_device(values) and not on_device({"lr": 0.1, "x": numpy.float32(1)})
    waiting = DeviceValues(values)
    assert waiting.ready() and waiting.values == {"loss": 1.5, "lr": 0.1}
