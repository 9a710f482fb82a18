"""The unit of an MFU, at every place that prints or judges one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

from barograph.core.record import Record
from barograph.core.utilization import PERCENT_NAMES, mfu_fraction
from barograph.doctor.rules.speed.efficiency import ImpossibleUtilization
from barograph.training.console.console import Console

STYLES = ("plain", "kempnerforge", "picollm")


def printed(style: str, **fields: Any) -> float:
    lines = Console(style=style).lines(Record("step", 0, 1, {"loss": 2.0, **fields}))
    return float(re.findall(r"mfu[=: ]+([0-9.]+)", "\n".join(lines))[0])


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("fraction", [0.001, 0.452, 0.999, 1.0, 1.1, 1.51, 3.3, 5.0])
def test_a_fraction_is_printed_as_what_it_is_also_above_one(style: str, fraction: float) -> None:
    assert printed(style, mfu=fraction) == pytest.approx(100 * fraction, rel=0.005)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", ["mfu", *PERCENT_NAMES])
def test_percent_is_recognised_by_its_name_or_its_size(style: str, name: str) -> None:
    for value in (5.1, 45.2, 151.3):
        assert printed(style, **{name: value}) == pytest.approx(value, rel=0.005)
    if name != "mfu":
        assert printed(style, **{name: 0.4}) == pytest.approx(0.4)


@pytest.mark.parametrize("style", STYLES)
def test_one_that_stands_with_its_peak_is_a_fraction_whatever_its_value(style: str) -> None:
    assert printed(style, mfu=7.0, formula="palm", peak_tflops=3.0) == pytest.approx(700)


@pytest.mark.parametrize("name", ["train/mfu", "mfu", "bf16_mfu", "perf/mfu_percent", "mfu(%)", "train/mfu %"])
@pytest.mark.parametrize(("value", "message"), [(151.3, "151%"), (45.0, ""), (80.0, "80%")])
def test_the_doctor_goes_by_the_same_rule(name: str, value: float, message: str) -> None:
    found = findings([ImpossibleUtilization()], {name: np.full(64, value)})
    assert [re.findall(r"\d+%", finding.message)[0] for finding in found.values()] == ([message] if message else [])


@pytest.mark.parametrize(("value", "message"), [(3.3, "330%"), (7.0, "700%")])
def test_the_doctor_takes_a_fraction_with_its_peak_for_what_it_is(value: float, message: str) -> None:
    series = {"train/mfu": np.full(64, value), "train/peak_tflops": np.full(64, 3.0)}
    (finding,) = findings([ImpossibleUtilization()], series).values()
    assert message in finding.message and finding.severity == "warning"


def test_percent_of_a_name_stays_percent_below_the_limit() -> None:
    assert mfu_fraction(0.9, "bf16_mfu") == pytest.approx(0.009)
    assert mfu_fraction(0.9, "train/mfu") == 0.9
