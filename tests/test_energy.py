"""Energy is what the devices drew and no more: gaps, restarts and missing values are neither zeros nor guesses."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.core.record import KINDS, Record, numbers
from barograph.query.energy import Energy, Prices

SECOND = 1_000_000
START = 10**15


class Given:
    """Settings as far as prices go."""

    def __init__(self, prices: dict[str, float] | None = None, price_per_gpu_hour: float | None = None):
        self.prices, self.price_per_gpu_hour = prices or {}, price_per_gpu_hour


def at(seconds: float, kind: str, **found: Any) -> Record:
    return Record(kind, START + round(seconds * SECOND), 0, found)


def begin(seconds: float = 0, pid: int = 1, host: str = "a") -> Record:
    return at(seconds, "segment", segment=1, pid=pid, host=host)


def total(*records: Record, **how: Any) -> dict[str, Any]:
    energy = Energy()
    for record in records:
        energy.add(record)
    return energy.fields(**how)


# -- joules -----------------------------------------------------------------------------------------


def test_power_over_time_is_energy_by_trapezoids() -> None:
    watts = [100, 300, 300, 100]
    made = total(*(at(10 * n, "gpu", id=0, power=1000 * power) for n, power in enumerate(watts)))
    assert made["gpu_joules"] == pytest.approx(10 * (200 + 300 + 200))
    assert made["watts"] == pytest.approx(7000 / 30) and made["kwh"] == pytest.approx(7000 / 3.6e6)
    assert made["gpu_seconds"] == 30 and made["gpus"] == 1
    assert "cost" not in made and "tokens" not in made and "cpu_joules" not in made


def test_a_devices_own_counter_counts_more_than_its_power() -> None:
    records = [begin(), *(at(10 * n, "gpu", id=0, power=500_000, energy=4000.0 * n) for n in range(1, 7))]
    assert total(*records)["joules"] == 24_000  # with the first ten seconds: the counter began with the process


def test_a_counter_that_runs_since_the_driver_was_loaded_gives_only_what_is_new() -> None:
    records = [begin(), *(at(10 * n, "gpu", id=0, power=500_000, energy=9e9 + 4000.0 * n) for n in range(1, 7))]
    assert total(*records)["joules"] == 20_000


def test_several_devices_add_up_and_so_do_their_watts() -> None:
    records = [at(10 * n, "gpu", id=number, power=100_000 * (number + 1)) for n in range(7) for number in range(4)]
    made = total(*records)
    assert made["joules"] == pytest.approx(60 * 1000) and made["watts"] == pytest.approx(1000) and made["gpus"] == 4


def test_a_long_gap_is_not_filled_with_the_last_power() -> None:
    times = [*range(0, 110, 10), 7300, *range(7310, 7400, 10)]
    made = total(*(at(moment, "gpu", id=0, power=400_000) for moment in times))
    assert made["gpu_seconds"] == 100 + 30 + 90  # three usual intervals of the two hours
    assert made["watts"] == pytest.approx(400)


def test_a_counter_measures_through_a_gap() -> None:
    records = [at(moment, "gpu", id=0, energy=400.0 * moment) for moment in (0, 10, 20, 7200)]
    assert total(*records)["joules"] == pytest.approx(400 * 7200)


def test_a_resume_starts_counters_anew_and_the_time_between_is_nobodys() -> None:
    first = [begin(0, 1), *(at(10 * n, "gpu", id=0, energy=4000.0 * n, power=400_000) for n in range(1, 11))]
    second = [begin(5000, 2), *(at(5000 + 10 * n, "gpu", id=0, energy=1000.0 * n, power=1e5) for n in range(1, 11))]
    made = total(*first, *second)
    assert made["joules"] == 40_000 + 10_000 and made["gpu_seconds"] == 200
    by_power = [
        Record(r.kind, r.time, r.step, {k: v for k, v in r.fields.items() if k != "energy"}) for r in first + second
    ]
    assert total(*by_power)["joules"] == pytest.approx(90 * 400 + 90 * 100)


def test_a_counter_that_falls_back_within_a_process_costs_one_interval_by_power() -> None:
    counts = [1000.0, 2000.0, 3000.0, 0.0, 1000.0]
    made = total(*(at(10 * n, "gpu", id=0, energy=count, power=50_000) for n, count in enumerate(counts)))
    assert made["joules"] == 1000 + 1000 + 10 * 50 + 1000


@pytest.mark.parametrize("power", [None, "NaN", math.nan, -5, math.inf, 10**400, True])
def test_missing_power_is_absent_and_never_zero(power: Any) -> None:
    records = [at(10 * n, "gpu", id=0, power=power, clock=1500) for n in range(5)]
    assert total(*records, at(50, "step", step_tokens=100)) == {"tokens": 100}


def test_processors_count_beside_the_devices() -> None:
    hosts = [at(10 * n, "host", cpu_energy=700.0 * n) for n in range(1, 4)]
    made = total(begin(), *hosts, *(at(10 * n, "gpu", id=0, power=100_000) for n in range(1, 4)))
    assert made["cpu_joules"] == 2100 and made["gpu_joules"] == 2000 and made["joules"] == 4100
    assert made["watts"] == pytest.approx(70 + 100)


def test_the_same_device_told_of_by_two_ranks_counts_once_and_other_machines_count_too() -> None:
    energy = Energy()
    for source, host in (("", "a"), ("rank1", "a"), ("rank8", "b")):
        energy.add(begin(0, 1, host), source)
        for n in range(11):
            energy.add(at(10 * n, "gpu", id=0, power=100_000), source)
            energy.add(at(10 * n, "host", cpu_energy=50.0 * 10 * n), source)
            energy.add(at(10 * n, "step", step_tokens=10), source)
    made = energy.fields()
    assert made["gpu_joules"] == 20_000 and made["cpu_joules"] == 10_000 and made["tokens"] == 110


def test_unseen_devices_are_taken_to_draw_what_the_seen_ones_do() -> None:
    records = [at(10 * n, "gpu", id=number, power=500_000) for n in range(11) for number in range(8)]
    made = total(*records, at(0, "step", step_tokens=8_000_000), gpus=64)
    assert made["gpu_joules"] == 400_000 and made["joules"] == 3_200_000
    assert (made["gpus"], made["gpus_measured"]) == (64, 8) and made["tokens_per_joule"] == pytest.approx(2.5)


# -- tokens and money -----------------------------------------------------------------------------------


@pytest.mark.parametrize("by_time", [True, False], ids=["as logged", "one log after the other"])
@pytest.mark.parametrize("own", [1, 3, 60], ids=["one record", "a few", "every second"])
@pytest.mark.parametrize("kind", ["gpu", "host"])
def test_a_device_that_the_loop_logs_and_a_sidecar_samples_counts_once(kind: str, own: int, by_time: bool) -> None:
    """Whoever reads the logs in whatever order gets what the one that measured longest has measured."""

    def records(source: str, count: int, watts: float) -> list[tuple[float, str, Record]]:
        first = begin() if not source else at(0, "sidecar", pid=2, host="a", at=0)
        found = [(0.0, source, first)]
        for second in range(count):
            drawn = {"cpu_energy": watts * second} if kind == "host" else {"id": 0, "power": 1000 * watts}
            found.append(
                (second + (0.5 if source else 0.2), source, at(second + (0.5 if source else 0.2), kind, **drawn))
            )
            if kind == "gpu":
                found.append((second + 0.1, source, at(second + 0.1, "gpu-model", id=0, name=f"H100 {source}")))
        return found

    both = records("", own, 90.0) + records("sidecar-a.json", 61, 100.0)
    energy = Energy()
    for _, source, record in sorted(both, key=lambda item: item[0]) if by_time else both:
        energy.add(record, source)
    made = energy.fields()
    part = "cpu" if kind == "host" else "gpu"
    assert made[f"{part}_joules"] == pytest.approx(6000, rel=0.02)
    assert made[f"{part}_seconds"] == pytest.approx(60, rel=0.02)
    assert kind == "host" or (made["gpus"] == energy.gpus == len(energy.models) == 1)


def test_tokens_of_a_step_told_twice_count_once() -> None:
    both = [
        at(n, kind, **{name: 100}) for n in range(5) for kind, name in (("step", "step_tokens"), ("speed", "tokens"))
    ]
    assert total(*both)["tokens"] == 500
    assert total(*(record for record in both if record.kind == "speed"))["tokens"] == 500
    assert total(begin(), *both, begin(10, 2), *(at(20, "speed", tokens=7),))["tokens"] == 507


def test_money_is_devices_and_electricity_as_far_as_priced() -> None:
    records = [at(0, "gpu-model", name="NVIDIA H100 80GB HBM3"), at(0, "step", step_tokens=2e6)]
    records += [at(10 * n, "gpu", id=0, power=360_000) for n in range(361)]
    made = total(*records, prices=Prices(Given({"H100": 2.5, "kwh": 0.3})), gpu_hours=8.0)
    assert made["kwh"] == pytest.approx(0.36) and made["electricity_cost"] == pytest.approx(0.108)
    assert made["gpu_cost"] == 20 and made["cost"] == pytest.approx(20.108)
    assert made["price_per_million_tokens"] == pytest.approx(10.054)
    assert "gpu_cost" not in total(*records, prices=Prices(Given({"kwh": 0.3})), gpu_hours=8.0)
    assert "electricity_cost" not in total(*records, prices=Prices(Given({"H100": 2.5})), gpu_hours=8.0)
    assert "cost" not in total(*records, prices=Prices(Given()), gpu_hours=8.0)
    names = {name for name, _ in numbers(Record("energy", 1, 1, made))}
    assert {"energy/kwh", "energy/cost", "energy/tokens_per_joule"} <= names


@pytest.mark.parametrize(
    ("device", "price"),
    [
        ("NVIDIA L4", 0.5),
        ("NVIDIA L40S", 1.0),
        ("NVIDIA L40", None),
        ("NVIDIA A100-SXM4-80GB", 1.8),
        ("NVIDIA A100-PCIE-40GB", 1.2),
        ("NVIDIA A10", 0.7),
        ("NVIDIA A10G", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA H200", 3.0),
        ("nvidia h200 nvl", 3.0),
        ("NVIDIA GeForce RTX 4090", 0.4),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 4080 SUPER", 0.35),
        ("NVIDIA GeForce RTX 4080", None),
        ("AMD Instinct MI300X", 2.0),
        ("AMD Instinct MI300A", None),
        ("", None),
    ],
)
def test_a_price_is_for_the_device_it_names_and_for_no_other(device: str, price: float | None) -> None:
    table = {
        "L4": 0.5, "L40S": 1.0, "A100": 1.2, "A100 80GB": 1.8, "A10": 0.7, "H200": 3.0, "RTX 4090": 0.4,
        "rtx-4080 super": 0.35, "MI300X": 2.0, "kwh": 0.3, "": 9.0,
    }  # fmt: skip
    assert Prices(Given(table)).of_device(device) == price


def test_one_price_for_all_wins_and_unpriced_devices_have_no_mean() -> None:
    prices = Prices(Given({"H100": 2.0, "L4": 0.5}))
    assert prices.per_gpu_hour(["NVIDIA H100", "NVIDIA L4"]) == 1.25
    assert prices.per_gpu_hour(["NVIDIA H100", "NVIDIA B300"]) is None and prices.per_gpu_hour([]) is None
    assert Prices(Given({"H100": 2.0}, 3.0)).per_gpu_hour(["NVIDIA B300"]) == 3.0
    assert Prices(Given({"kWh": 0.2})).per_kwh == 0.2 and Prices(per_kwh=0.1).per_kwh == 0.1
    assert Prices(Given({}, 0.0)).per_gpu_hour() == 0.0
    assert not Prices(Given()) and Prices(Given({"kwh": 0.2}))


# -- going on, and anything at all ------------------------------------------------------------------------


def test_an_account_goes_on_from_its_own_record() -> None:
    records = [begin(), at(0, "gpu-model", name="NVIDIA H100")]
    for n in range(1, 101):
        records.append(at(10 * n, "gpu", id=n % 2, power=100_000, energy=500.0 * n))
        records.append(at(10 * n, "host", cpu_energy=100.0 * n))
        records.append(at(10 * n, "step", step_tokens=1000))
    whole, early = Energy(), Energy()
    for record in records:
        whole.add(record)
    for record in records[:152]:
        early.add(record)
    later = Energy()
    later.go_on(at(505, "energy", **early.fields(Prices(Given({"H100": 2.0, "kwh": 0.3})), 1.0)))
    for record in [begin(505, 2), *records[152:]]:
        later.add(record)
    assert later.said == {"price_per_gpu_hour": 2.0, "price_per_kwh": 0.3}
    one, other = whole.fields(), later.fields()
    assert other["tokens"] == one["tokens"]
    # between the two halves no device was watched: an interval of each is missing
    assert one["gpu_joules"] - 2 * 1000 <= other["gpu_joules"] <= one["gpu_joules"]
    assert other["watts"] == pytest.approx(one["watts"], rel=0.05)


VALUES = st.one_of(st.floats(), st.integers(-(10**30), 10**30), st.none(), st.text(max_size=2), st.booleans())
FOUND = st.dictionaries(
    st.sampled_from(["id", "power", "energy", "cpu_energy", "step_tokens", "tokens", "name", "pid", "host", "kwh"]),
    VALUES,
)
RECORDS = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(["gpu", "host", "step", "segment", "speed"]), st.sampled_from(sorted(KINDS))),
        st.integers(-(10**9), 10**9),
        FOUND,
    ),
    max_size=40,
)


@given(RECORDS)
def test_any_records_give_finite_sums_that_never_fall(drawn: list[tuple[str, int, dict[str, Any]]]) -> None:
    energy, clock, last = Energy(), START, 0.0
    for kind, ahead, found in drawn:
        clock += ahead
        energy.add(Record(kind, clock, 0, found))
        joules = energy.fields().get("joules", 0.0)
        assert joules >= last
        last = joules
    made = energy.fields(Prices(Given({"kwh": 0.3}, 2.0)), 3.0, 16)
    assert all(math.isfinite(value) and value >= 0 for value in made.values())
