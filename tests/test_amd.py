"""AMD devices by recorded answers, in the shape of amdsmi's dictionaries."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.probes.machine.amd import Amd, visible
from barograph.probes.machine.readings import DOCUMENT_ORDER, MissingError, ordered

GIB = 1 << 30


class SmiError(Exception):
    """As amdsmi's AmdSmiLibraryException."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name

    def get_error_info(self, detailed: bool = True) -> str:
        return self.name


class Smi:
    """The module `amdsmi` over handles 0, 1, …: one dictionary of answers a device."""

    AmdSmiClkType = SimpleNamespace(GFX="gfx")
    AmdSmiMemoryType = SimpleNamespace(VRAM="vram")
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hotspot", EDGE="edge", VRAM="vram")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current", CRITICAL="critical")

    def __init__(self, *devices: dict[Any, Any]):
        self.devices, self.open, self.calls = devices, 0, 0

    def amdsmi_init(self) -> None:
        self.open += 1

    def amdsmi_shut_down(self) -> None:
        self.open -= 1

    def amdsmi_get_processor_handles(self) -> list[int]:
        return list(range(len(self.devices)))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("amdsmi_"):
            raise AttributeError(name)

        def ask(handle: int, *arguments: Any) -> Any:
            self.calls += 1
            answers = self.devices[handle]
            found = answers.get("everything", answers.get((name, *arguments), answers.get(name)))
            if found is None:
                raise SmiError("AMDSMI_STATUS_NOT_SUPPORTED")
            if isinstance(found, Exception):
                raise found
            return found

        return ask


def mi300x(**changes: Any) -> dict[Any, Any]:
    """An MI300X in a training: hot spot alone, counters of time held down, no fan."""
    return {
        "amdsmi_get_gpu_asic_info": {
            "market_name": "AMD Instinct MI300X", "num_compute_units": 304, "target_graphics_version": "gfx942",
            "asic_serial": "0xFCEE1AA46ADE8EBD",
        },
        "amdsmi_get_gpu_device_uuid": "fcff74a1-0000-1000-80ee-1aa46ade8ebd",
        "amdsmi_get_gpu_activity": {"gfx_activity": 97, "umc_activity": 40, "mm_activity": "N/A"},
        ("amdsmi_get_temp_metric", "hotspot", "current"): 71,
        ("amdsmi_get_temp_metric", "hotspot", "critical"): 100,
        ("amdsmi_get_temp_metric", "vram", "current"): 60,
        "amdsmi_get_clock_info": {"clk": 2100, "min_clk": 132, "max_clk": 2100},
        "amdsmi_get_power_info": {"socket_power": "N/A", "current_socket_power": 700, "average_socket_power": "N/A"},
        "amdsmi_get_energy_count": {"energy_accumulator": 10**9, "counter_resolution": 15.3, "timestamp": 1},
        "amdsmi_get_power_cap_info": {"power_cap": 750_000_000},
        "amdsmi_get_gpu_metrics_info": {
            "accumulation_counter": 1000, "ppt_residency_acc": 100, "socket_thm_residency_acc": 5,
            "hbm_thm_residency_acc": 0, "throttle_status": "N/A",
        },
        "amdsmi_get_gpu_memory_total": 192 * GIB,
        "amdsmi_get_gpu_memory_usage": 150 * GIB,
        "amdsmi_get_gpu_total_ecc_count": {"correctable_count": 3, "uncorrectable_count": 0},
        "amdsmi_get_gpu_ecc_enabled": 2**13 - 1,
        "amdsmi_get_pcie_info": {"pcie_metric": {"pcie_bandwidth": 80_000, "pcie_replay_count": 1}},
        "amdsmi_get_gpu_cache_info": {"cache": [{"cache_level": 1}, {"cache_level": 2, "cache_size": 4096}]},
        "amdsmi_get_gpu_driver_info": {"driver_version": "6.12.12"},
    } | changes  # fmt: skip


def opened(*devices: dict[Any, Any], environ: dict[str, str] | None = None) -> Amd:
    backend = Amd(Smi(*devices), environ or {})
    backend.open()
    return backend


def test_an_mi300x_has_the_documents_fields_in_order() -> None:
    device = mi300x()
    backend = opened(device)
    backend.sample(0.0)
    backend.records(0.0)  # the first state of the counters
    device["amdsmi_get_energy_count"] = {"energy_accumulator": 10**9 + 400_000_000, "counter_resolution": 15.3}
    device["amdsmi_get_gpu_metrics_info"] = {
        "accumulation_counter": 2000, "ppt_residency_acc": 350, "socket_thm_residency_acc": 5,
        "hbm_thm_residency_acc": 10,
    }  # fmt: skip
    backend.sample(10.0)
    (fields,) = backend.records(10.0)
    known = [name for name in DOCUMENT_ORDER if not name.startswith("pcie")]
    assert list(fields)[: len(known)] == known  # which way bytes go over PCIe would cost a second to ask
    assert fields["power"] == 612_000 and fields["energy"] == 6120  # 4e8 × 15.3 µJ over ten seconds
    assert (fields["clock"], fields["max_clock"], fields["fan"], fields["power_limit"]) == (2100, 2100, 0, 750_000)
    assert (fields["temperature"], fields["temp_slowdown"], fields["temperature_memory"]) == (71, 100, 60)
    assert (fields["gpu_util"], fields["mem_util"], fields["dram_free"]) == (97, 40, 42 * GIB)
    assert (fields["throttle"], fields["throttled"]) == ("power cap, memory thermal", 0.25)
    assert (fields["ecc_corrected"], fields["ecc_uncorrected"]) == (3, 0)
    assert (fields["pcie_bandwidth"], fields["pcie_replays"]) == (10_000_000_000, 1)


def test_a_desk_card_has_a_fan_a_watt_limit_and_flags_for_reasons() -> None:
    backend = opened(
        {
            "amdsmi_get_gpu_fan_speed": 102,
            "amdsmi_get_gpu_fan_speed_max": 255,
            ("amdsmi_get_temp_metric", "edge", "current"): 55,
            "amdsmi_get_power_info": {"average_socket_power": 200, "socket_power": 65535},
            "amdsmi_get_power_cap_info": {"power_cap": 303},
            "amdsmi_get_gpu_metrics_info": {"indep_throttle_status": True},
        }
    )
    for second in range(5):
        backend.sample(float(second))
    assert backend.records(5.0) == [
        {
            "id": 0,
            "fan": 40,
            "power": 200_000,
            "power_limit": 303_000,
            "temperature": 55,
            "throttle": "other",
            "energy": 800,
        }
    ]


def test_models_have_the_documents_fields() -> None:
    (model,) = opened(mi300x()).models()
    assert model == {
        "rank": 0, "id": 0, "name": "AMD Instinct MI300X", "sm_count": 304, "major": 9, "minor": 4,
        "memory": 192 * GIB, "free": 42 * GIB, "l2_size": 4 << 20, "ecc": True, "driver": "6.12.12",
        "uuid": "fcff74a1-0000-1000-80ee-1aa46ade8ebd",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "indices"),
    [
        ({}, [0, 1]),
        ({"HIP_VISIBLE_DEVICES": "1"}, [1]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-fcee1aa46ade8ebd"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "0,9,1"}, [0]),
    ],
)
def test_devices_are_those_that_hip_sees(environ: dict[str, str], indices: list[int]) -> None:
    assert visible(environ, ["0x01", "0xFCEE1AA46ADE8EBD"]) == indices


def test_a_device_that_stops_answering_is_told_once_and_the_others_go_on() -> None:
    first, second = mi300x(), mi300x()
    backend = opened(first, second)
    first["everything"] = SmiError("AMDSMI_STATUS_IO")
    for moment in range(8):
        backend.sample(float(moment))
    assert [fields["id"] for fields in backend.records(9.0)] == [1]
    (news,) = backend.news()
    assert "GPU 0 (AMD Instinct MI300X) has not answered 5 times" in news.sentence and news.warning


def test_without_a_device_amd_is_missing_and_amdsmi_let_go() -> None:
    library = Smi()
    with pytest.raises(MissingError, match="no device"):
        Amd(library, {}).open()
    assert library.open == 0
    with pytest.raises(MissingError, match="no AMD driver"):
        Amd(None, {}).open()


GARBAGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.just("N/A"),
    st.builds(SmiError, st.sampled_from(["AMDSMI_STATUS_IO", "AMDSMI_STATUS_NOT_SUPPORTED", ""])),
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_the_answers_are_nothing_is_raised_and_every_number_is_sane(data: st.DataObject) -> None:
    device = mi300x()
    for name in data.draw(st.lists(st.sampled_from(sorted(device, key=str)), unique=True)):
        if isinstance(device[name], dict) and data.draw(st.booleans()):
            part = data.draw(st.sampled_from(sorted(device[name])))
            device[name] = device[name] | {part: data.draw(GARBAGE)}
        else:
            device[name] = data.draw(GARBAGE)
    backend = opened(device)
    backend.models()
    for second in range(3):
        backend.sample(float(second))
        for fields in backend.records(second + 0.5):
            assert list(fields) == list(ordered(fields))
            for name, value in fields.items():
                assert isinstance(value, str) or (math.isfinite(value) and 0 <= value < 2**62), name
    backend.close()
