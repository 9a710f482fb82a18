"""A record keeps what it was given through its JSON text, whatever that was."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.core.record import Record, RouterFigures, decode, encode, format_time, json_text, numbers, parse_time

NUMBERS = st.one_of(st.floats(), st.integers(), st.booleans())
PLAIN = st.one_of(
    NUMBERS, st.none(), st.text().filter(lambda t: t.lower().lstrip("+-") not in ("nan", "inf", "infinity"))
)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, (int, float)):
        return left == right or (math.isnan(left) and math.isnan(right))
    return bool(left == right)


def test_a_dense_step_has_the_fields_and_the_order_of_the_document() -> None:
    fields = {"epoch": 1.25, "step_tokens": 16384, "duration_ms": 156, "norm": 0.1234, "loss": 2.3456, "lr": 0.0002}
    made = encode(Record("step", 1_768_473_000_123_456, 100, fields))
    assert made == (
        b'{"log":"step","time":"2026-01-15T10:30:00.123456","step":100,"epoch":1.25,"step_tokens":16384,'
        b'"duration_ms":156,"norm":0.1234,"loss":2.3456,"lr":0.0002}'
    )


@given(st.dictionaries(st.text(), PLAIN), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**52))
def test_any_record_comes_back_as_it_was(fields: dict[str, Any], step: int, time: int) -> None:
    back = decode(json.loads(encode(Record("metrics", time, step, fields)), parse_constant=pytest.fail))
    assert (back.kind, back.time, back.step) == ("metrics", time, step)
    assert back.fields.keys() == fields.keys()
    assert all(same(fields[key], back.fields[key]) for key in fields)


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20))
def test_nested_values_are_strict_json(value: Any) -> None:
    json.loads(encode(Record("metrics", 0, 0, {"value": value})), parse_constant=pytest.fail)


@pytest.mark.parametrize("odd", ["\ud800", object(), 10**400, {1: 2}, b"bytes", {3, 4}, 'a\x00b\n"\\'])
def test_values_that_json_does_not_know_do_not_cost_the_record(odd: Any) -> None:
    assert json.loads(encode(Record("metrics", 0, 0, {"odd": odd, "loss": 1.5})))["loss"] == 1.5


@pytest.mark.parametrize("number", [np.float64(1.5), np.float64("nan"), np.float64("inf")])
def test_text_for_people_takes_numpys_numbers(number: float) -> None:
    assert json.loads(json_text({"seconds": number}))["seconds"] in (1.5, "NaN", "Infinity")


def test_a_users_names_that_a_record_uses_itself_are_kept_aside() -> None:
    fields = {"time": 3.0, "step": "x", "log": 1, "values": 2.0, "loss": 1.0}
    made = json.loads(encode(Record("metrics", 5, 7, fields)))
    assert made["step"] == 7 and made["log"] == "metrics" and made["loss"] == 1.0
    assert decode(made).fields == fields


@given(st.integers(0, 253_402_300_799_999_999))
def test_times_come_back_to_the_microsecond(time: int) -> None:
    assert parse_time(format_time(time)) == time


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("2026-11-21 02:00:22.937641674", 1_795_226_422_937_641),  # a blank and nine digits
        ("2026-11-21T02:00:22Z", 1_795_226_422_000_000),
        ("yesterday", 0),
        (None, 0),
        (12, 0),
    ],
)
def test_times_of_other_loggers_are_read(text: Any, microseconds: int) -> None:
    assert parse_time(text) == microseconds


@pytest.mark.parametrize("time", [-(10**18), 10**18, 2**63 - 1])
def test_a_clock_gone_mad_does_not_break_the_file(time: int) -> None:
    json.loads(encode(Record("step", time, 0, {})))


def test_numbers_have_their_familys_name_and_throughput_is_derived() -> None:
    step = Record(
        "step", 0, 1, {"step_tokens": 1000, "duration_ms": 250, "loss": 2.0, "moe_aux_loss": 0.5, "phase": "x"}
    )
    assert dict(numbers(step)) == {
        "train/step_tokens": 1000.0,
        "train/duration_ms": 250.0,
        "train/loss": 2.0,
        "moe/aux_loss": 0.5,
        "train/tokens_per_second": 4000.0,
    }
    gpu = Record("gpu", 0, 1, {"id": 3, "power": 350000, "throttle": ""})
    assert dict(numbers(gpu)) == {"gpu/3/power": 350000.0}
    memory = Record("allocator", 0, 0, {"stats": [{"name": "weights", "device": 7, "pageable": 0}, "odd"]})
    assert dict(numbers(memory)) == {"allocator/weights/device": 7.0, "allocator/weights/pageable": 0.0}


def test_no_throughput_is_made_up_for_a_step_without_duration() -> None:
    assert "train/tokens_per_second" not in dict(numbers(Record("step", 0, 1, {"step_tokens": 10, "duration_ms": 0})))


@given(st.dictionaries(st.text(), PLAIN), st.sampled_from(["step", "eval", "gpu", "metrics", "moe", "sol", "info"]))
def test_numbers_are_floats_whatever_the_fields(fields: dict[str, Any], kind: str) -> None:
    assert all(type(value) is float for _, value in numbers(Record(kind, 0, 0, fields)))


@given(
    st.recursive(
        st.one_of(
            st.sampled_from(["NaN", "inf", "-inf", "nan", "+inf", "Infinity", "\\inf", "\\\\NaN", "\\", "x", ""]),
            st.floats(allow_nan=False),
            st.booleans(),
            st.none(),
        ),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner)),
        max_leaves=8,
    )
)
def test_text_that_reads_like_a_number_stays_text(value: object) -> None:
    written = encode(Record("option", 1, 1, {"name": "inf", "value": value}))
    assert decode(json.loads(written)).fields == {"name": "inf", "value": value}


@pytest.mark.parametrize("name", ["pile", "c4/de", "HellaSwag 10-shot"])
def test_an_evaluation_with_a_name_has_series_of_its_own(name: str) -> None:
    fields = {"eval_tokens": 100, "duration_ms": 10, "loss": 2.0, "accuracy": 0.5, "name": name}
    named = dict(numbers(decode(json.loads(encode(Record("eval", 0, 1, fields))))))
    assert named[f"eval/{name}/loss"] == 2.0 and named[f"eval/{name}/tokens_per_second"] == 10_000.0
    assert all(series.startswith(f"eval/{name}/") for series in named)
    assert "eval/loss" in dict(numbers(Record("eval", 0, 1, fields | {"name": ""})))


@pytest.mark.parametrize("kind", ["step", "eval"])
def test_a_throughput_that_is_given_is_not_derived_once_more(kind: str) -> None:
    fields = {f"{kind}_tokens": 100, "duration_ms": 10, "tokens_per_second": 9999.0}
    found = [value for name, value in numbers(Record(kind, 0, 1, fields)) if name.endswith("tokens_per_second")]
    assert found == [9999.0]


def test_a_routers_figure_of_a_step_counts_once_whichever_record_has_it() -> None:
    inline = {"loss": 2.0, "moe_aux_loss": 0.1, "moe_z_loss": 0.2}
    alone = {"aux_loss": 0.1, "expert_utilization": 0.9}
    for first, second in ((("step", inline), ("moe", alone)), (("moe", alone), ("step", inline))):
        routed, points = RouterFigures(), []
        for step in (1, 2, 2, 3):  # step 2 is logged twice, as in a loop that was sent back
            for kind, fields in (first, second):
                repeated = routed.repeated(kind, step, fields)
                points += [(step, name) for name, _ in numbers(Record(kind, 0, step, fields | {"repeated": repeated}))]
        for name in ("moe/aux_loss", "moe/z_loss", "moe/expert_utilization", "train/loss"):
            assert [step for step, series in points if series == name] == [1, 2, 2, 3], name
