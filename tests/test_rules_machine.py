"""Rules over devices and the host: what must be found, what must not, and the same in pieces of any size."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_columns import findings, noisy, only, random_columns, same_when_cut

from barograph.doctor.rules.machine.machine import RULES, DeviceThrottled, DiskFull, HardwareErrors, LowUtilization


def device(rows: int = 60, **series: object) -> dict:
    usual = {"clock": 1755.0, "temperature": 66.0, "temp_slowdown": 87.0, "gpu_util": 98.0, "throttled": 0.0}
    return {f"gpu/0/{name}": series.get(name, numpy.full(rows, value)) for name, value in usual.items()} | {
        f"gpu/0/{name}": values for name, values in series.items() if name not in usual
    }


def from_30(before: float, after: float) -> numpy.ndarray:
    return numpy.where(numpy.arange(60) < 30, before, after)


def test_heat_and_a_clock_that_is_held_down_warn() -> None:
    found = findings(
        [DeviceThrottled()], device(temperature=from_30(66, 87), clock=from_30(1755, 1080), throttled=from_30(0, 1))
    )
    assert {(one.severity, one.step, one.found) for one in found.values()} == {("warning", 30, 32)}
    assert {one.causes[0].partition(":")[0] for one in found.values()} == {"device throttled"}


def test_a_warm_device_an_idle_one_and_a_power_cap_do_not() -> None:
    assert not findings([DeviceThrottled()], device(temperature=noisy(60, 78, 0.01)))
    assert not findings([DeviceThrottled()], device(clock=from_30(1755, 400), gpu_util=from_30(98, 2)))
    assert not findings([DeviceThrottled()], device(clock=from_30(1755, 1600), throttled=numpy.ones(60)))


@pytest.mark.parametrize(
    ("counter", "xid", "severity"),
    [("xid_errors", 79, "critical"), ("xid_errors", 31, "info"), ("ecc_uncorrected", None, "critical"),
     ("remap_pending", None, "warning"), ("ecc_corrected", None, "info")],
)  # fmt: skip
def test_errors_of_the_hardware(counter: str, xid: int | None, severity: str) -> None:
    more = {"xid": numpy.full(60, float(xid))} if xid else {}
    (one,) = only(findings([HardwareErrors()], device(**{counter: from_30(0, 2)}, **more)), "hardware_errors")
    assert (one.severity, one.step) == (severity, 30)
    assert not findings([HardwareErrors()], device(ecc_uncorrected=numpy.full(60, 7.0)))  # from before the run


def test_idle_devices_inform_and_starved_ones_warn() -> None:
    assert {one.severity for one in findings([LowUtilization()], device(gpu_util=numpy.full(60, 30.0))).values()} == {
        "info"
    }
    columns = device(gpu_util=numpy.full(60, 4.0)) | {"host/cpu_util": numpy.full(60, 97.0)}
    assert ("warning", "input_bound") in {
        (one.severity, one.kind) for one in findings([LowUtilization()], columns).values()
    }
    assert not findings([LowUtilization()], device())


def test_a_disk_that_is_nearly_full() -> None:
    free = from_30(50, 0.5) * (1 << 30)
    (one,) = findings([DiskFull()], {"host/disk_free": free}).values()
    assert (one.severity, one.step) == ("warning", 30)
    assert {one.severity for one in findings([DiskFull()], {"host/disk_free": free / 50}).values()} == {
        "warning",
        "critical",
    }


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_random_columns_give_the_same_in_pieces_and_never_raise(seed: int) -> None:
    names = [
        f"gpu/0/{name}"
        for name in ("temperature", "clock", "gpu_util", "throttled", "temp_slowdown", "xid_errors", "xid")
    ]
    names += ["gpu/1/ecc_corrected", "gpu/1/temperature", "host/cpu_util", "host/disk_free"]
    same_when_cut(RULES, random_columns(seed, names), seed)
