"""Whole records are found in the bytes of any array, in linear time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from barograph.log.read import scan


def _one_line(count: int) -> list[dict[str, Any]]:
    return [
        {"log": "step", "time": "2026-01-15T10:30:00.1", "step": step, "loss": 2.5, "of": [{"log": "a"}, {"log": "b"}]}
        for step in range(count)
    ]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\t", " : ")])
@pytest.mark.parametrize("nan", ["2.5", "nan", "-inf"])
def test_an_array_on_one_line_is_read_whole_and_damage_costs_what_is_damaged(
    separators: tuple[str, str], nan: str
) -> None:
    text = json.dumps(_one_line(3000), separators=separators).replace("2.5", nan)
    assert [item["step"] for item, _ in scan(text.encode())] == [*range(3000)]
    damaged = text.replace(f'"step"{separators[1]}7{separators[0]}', '"st').replace(
        f'"step"{separators[1]}1500{separators[0]}', "\0"
    )
    assert damaged != text
    steps = {item.get("step") for item, _ in scan(damaged.encode())} - {None}
    assert steps == {*range(3000)} - {7, 1500}


def test_an_array_of_records_over_many_lines_is_read_whole() -> None:
    records = [record | {"list": [*range(300)]} for record in _one_line(2000)]
    assert [item["step"] for item, _ in scan(json.dumps(records, indent=1).encode())] == [*range(2000)]


@pytest.mark.parametrize("damage", ["", '"step": 7', '{"log": "step"'])
def test_reading_takes_time_by_the_size_alone(damage: str) -> None:
    def seconds(count: int) -> float:
        text = json.dumps(_one_line(count))
        data = (text.replace(damage, "{{") if damage else text).encode()
        times = []
        for _ in range(3):
            begun = time.process_time()
            for _ in scan(data):
                pass
            times.append(time.process_time() - begun)
        return min(times)

    assert seconds(16_000) < 40 * seconds(1_000) + 0.05  # sixteen times as much; squared, it would be 256
