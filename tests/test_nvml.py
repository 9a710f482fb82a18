"""NVIDIA devices by recorded answers: right fields, absent where unsupported, sane whatever comes."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvml_answers import GIB, LOST, ULONGLONG, Device, Fail, Nvml, NVMLError, a100, consumer, h100, old

from barograph.probes.machine import nvml
from barograph.probes.machine.nvidia import throttle, throttled
from barograph.probes.machine.nvml import XIDS, Nvidia, properties, runtime_version, samples_devices, visible
from barograph.probes.machine.readings import DOCUMENT_ORDER, EnergyReading, MissingError, Rate, ordered, sane


@pytest.fixture(autouse=True)
def _a_host_that_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "physical_count", lambda: 0)


def opened(*devices: Any, environ: dict[str, str] | None = None, **options: Any) -> tuple[Nvidia, Nvml]:
    library = Nvml(list(devices), **options)
    backend = Nvidia(library, environ or {})
    backend.open()
    return backend, library


def one_record(device: Device, seconds: float = 10.0) -> dict[str, Any]:
    backend, _ = opened(device)
    for second in range(int(seconds)):
        backend.sample(100.0 + second)
    (fields,) = backend.records(100.0 + seconds)
    return fields


# -- the fields ----------------------------------------------------------------------------------------


def test_an_h100_has_all_of_the_documents_fields_in_order_and_more() -> None:
    device = h100()
    ticks = iter([(ULONGLONG, 5_000_000_000), (ULONGLONG, 5_006_550_000)])
    device.fields[83] = lambda: next(ticks)
    fields = one_record(device)
    assert tuple(fields)[: len(DOCUMENT_ORDER)] == DOCUMENT_ORDER
    assert fields["power"] == 655_000 and fields["energy"] == 6550  # the counter's joules over ten seconds
    assert (fields["clock"], fields["max_clock"], fields["fan"], fields["power_limit"]) == (1755, 1980, 0, 700_000)
    assert (fields["temperature"], fields["temp_slowdown"]) == (58, 58 + 29 + 2)  # T.Limit: distance plus two below
    assert (fields["gpu_util"], fields["mem_util"], fields["throttle"], fields["throttled"]) == (98, 61, "power cap", 1)
    assert fields["dram_free"] == 20 * GIB
    assert (fields["pcie_rx"], fields["pcie_tx"]) == (2000 << 20, 1000 << 20)  # GPM's mean, MiB/s
    assert (fields["nvlink_rx"], fields["nvlink_tx"]) == (30_000 << 20, 29_000 << 20)
    assert (fields["sm_active"], fields["sm_occupancy"]) == (0.915, 0.3825)
    assert (fields["tensor_active"], fields["dram_active"]) == (0.52, 0.475)
    assert (fields["temperature_memory"], fields["ecc_corrected"], fields["ecc_uncorrected"]) == (66, 2, 0)
    assert fields["nvlink_crc_errors"] == 7 and fields["nvlink_replays"] == 0  # summed over eighteen links
    assert (fields["xid_errors"], fields["processes"]) == (0, 1)
    assert "xid" not in fields and "process_memory" not in fields


def test_what_an_a100_lacks_is_absent_and_pcie_is_looked_at_instead() -> None:
    fields = one_record(a100())
    assert not {"sm_active", "tensor_active"} & fields.keys()
    assert (fields["pcie_rx"], fields["pcie_tx"]) == (2_500_000_000, 1_500_000_000)  # NVML's KB/s
    assert fields["temp_slowdown"] == 92
    assert (fields["nvlink_crc_errors"], fields["nvlink_replays"], fields["nvlink_recoveries"]) == (3, 3, 0)
    assert fields["nvlink_rx"] == 0  # its counter stood still


def test_a_consumer_card_has_a_fan_and_no_sentinels() -> None:
    fields = one_record(consumer())
    assert fields["fan"] == 43 and fields["temp_slowdown"] == 90
    assert fields["pcie_tx"] == 12_000_000 and "pcie_rx" not in fields  # 4294967295 KB/s is not a speed
    absent = {"ecc_corrected", "ecc_uncorrected", "nvlink_rx", "nvlink_crc_errors", "temperature_memory", "sm_active"}
    assert not absent & fields.keys()
    assert fields["pcie_replays"] == 5


def test_an_old_card_gives_what_it_has_and_its_energy_is_power_over_time() -> None:
    fields = one_record(old())
    assert fields["throttle"] == "idle" and fields["throttled"] == 0
    assert fields["power"] == 20_000 and fields["energy"] == 20.0 * 9  # nine seconds between ten samples
    assert fields["ecc_corrected"] == 4 and fields["fan"] == 0 and fields["gpu_util"] == 0
    assert not {"mem_util", "power_limit", "ecc_uncorrected", "pcie_rx", "temp_slowdown", "nvlink_rx"} & fields.keys()


def test_a_fan_that_does_not_say_its_speed_is_not_a_missing_fan() -> None:
    device = consumer()
    del device.answers["nvmlDeviceGetFanSpeed"]
    assert "fan" not in one_record(device)


def test_values_are_means_and_maxima_of_the_time_since_the_last_record() -> None:
    device = h100()
    backend, _ = opened(device)
    for util, heat, clock in ((100, 50, 1900), (50, 71, 1700), (0, 60, 900)):
        device.answers["nvmlDeviceGetUtilizationRates"] = SimpleNamespace(gpu=util, memory=0)
        device.answers["nvmlDeviceGetTemperature", 0] = heat
        device.answers["nvmlDeviceGetClockInfo", 1] = clock
        backend.sample(float(util))
    (fields,) = backend.records(10.0)
    assert (fields["gpu_util"], fields["temperature"], fields["clock"]) == (50, 71, 1500)
    backend.sample(11.0)
    (fields,) = backend.records(12.0)
    assert (fields["gpu_util"], fields["temperature"]) == (0, 60)


def test_counters_of_64_bits_are_used_only_once_they_have_shown_that_they_are() -> None:
    device = a100()
    device.fields |= {197: (ULONGLONG, 1000), 198: (ULONGLONG, 2**33)}
    backend, _ = opened(device)
    backend.sample(0.0)
    backend.records(0.0)
    device.fields |= {197: (ULONGLONG, 2000), 198: (ULONGLONG, 2**33 + 5_000_000)}
    (fields,) = backend.records(10.0)
    assert fields["pcie_rx"] == 500_000  # bytes over ten seconds
    assert fields["pcie_tx"] == 1_500_000_000  # the look of 20 ms: 2000 may be a count that wrapped


@pytest.mark.parametrize(
    ("samples", "text", "share"),
    [
        ([], None, None),
        ([0, 0], "", 0),
        ([1, 1], "idle", 0),
        ([1, 0], "", 0),
        ([0x4, 0x4 | 0x40, 0, 0], "power cap, hw thermal", 0.5),
        ([0x20], "thermal", 1),
        ([0x80 | 0x8], "hw power brake, hw slowdown", 1),
        ([0x10], "sync boost", 1),
        ([0x2], "application clocks", 0),
        ([0x8000], "other", 0),
    ],
)
def test_throttle_reasons_are_told_apart(samples: list[int], text: str | None, share: float | None) -> None:
    assert throttle(samples) == text
    assert throttled(samples) == share


def test_what_is_not_supported_is_asked_once() -> None:
    device = old()
    backend, _ = opened(device)
    for second in range(10):
        backend.sample(float(second))
        backend.records(second + 0.5)
    for question in ("nvmlDeviceGetFieldValues", "nvmlDeviceGetFanSpeed", "nvmlDeviceGetCurrentClocksEventReasons"):
        assert device.calls.count(question) == 1
    assert device.calls.count("nvmlDeviceGetPcieThroughput") == 2  # once each way


def test_this_processs_memory_is_found_by_its_number() -> None:
    mine = [SimpleNamespace(pid=1, usedGpuMemory=None), SimpleNamespace(pid=os.getpid(), usedGpuMemory=3 * GIB)]
    fields = one_record(h100(nvmlDeviceGetComputeRunningProcesses=lambda: mine))
    assert (fields["processes"], fields["process_memory"]) == (2, 3 * GIB)


# -- models --------------------------------------------------------------------------------------------


def test_models_have_the_documents_fields() -> None:
    backend, _ = opened(h100(), consumer(1))
    first, second = backend.models()
    assert first == {
        "rank": 0, "id": 0, "name": "NVIDIA H100 80GB HBM3", "sm_count": 132, "major": 9, "minor": 0,
        "memory": 80 * GIB, "free": 20 * GIB, "uuid": "GPU-00000000-1111-2222-3333-444444444444", "ecc": True,
        "cuda_driver": 12080,
    } | ({"cuda_runtime": version} if (version := runtime_version()) else {})  # fmt: skip
    assert second["sm_count"] == 128 and "ecc" not in second


def test_torch_is_asked_only_where_it_has_started_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    about = SimpleNamespace(uuid="00000000-1111", multi_processor_count=132, L2_cache_size=50 << 20)
    cuda = SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 1, get_device_properties=lambda index: about
    )
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch.version", SimpleNamespace(cuda="12.4"))  # type: ignore[arg-type]
    assert properties("GPU-00000000-1111") == {"sm_count": 132, "l2_size": 50 << 20}
    assert properties("GPU-00000000-2222") == {}
    assert runtime_version() == 12040

    def refuse(*arguments: Any) -> None:
        raise AssertionError("this would start CUDA")

    cuda.is_initialized, cuda.device_count, cuda.get_device_properties = lambda: False, refuse, refuse
    assert properties("GPU-00000000-1111") == {}


# -- which devices -------------------------------------------------------------------------------------

UUIDS = {0: "GPU-aaaa-0", 1: "GPU-bbbb-1", 2: "GPU-bbcc-2"}


@pytest.mark.parametrize(
    ("chosen", "indices"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        ("0, 1", [0, 1]),
        ("1,1", [1]),
        ("0,7,1", [0]),  # CUDA stops at the first that is none
        ("-1", []),
        ("GPU-bbbb,0", [1, 0]),
        ("GPU-xx", []),
        ("99999999999999999999", []),
    ],
)
def test_devices_are_those_that_cuda_sees(chosen: str | None, indices: list[int]) -> None:
    assert visible(chosen, UUIDS, {}) == [(index, "") for index in indices]


def test_mig_instances_are_found_by_either_name() -> None:
    instances = {0: ["MIG-one", "MIG-two"]}
    assert visible("MIG-two", UUIDS, instances) == [(0, "MIG-two")]
    assert visible("MIG-GPU-aaaa-0/1/0", UUIDS, instances) == [(0, "")]
    assert visible(None, UUIDS, instances)[0] == (0, "MIG-one")


def test_a_mig_instances_memory_is_its_own_and_its_power_the_boards() -> None:
    instance = Device(
        {
            "nvmlDeviceGetUUID": "MIG-one",
            "nvmlDeviceGetGpuInstanceId": 0,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=10 * GIB, free=9 * GIB, used=GIB),
        },
        gpm={2: 10.0},
    )
    board = h100(nvmlDeviceGetMigMode=[1, 1], nvmlDeviceGetMaxMigDeviceCount=7, instances=[instance])
    del board.answers["nvmlDeviceGetUtilizationRates"]  # a board with MIG has none
    backend, _ = opened(board, environ={"CUDA_VISIBLE_DEVICES": "MIG-one"})
    backend.sample(0.0)
    (fields,) = backend.records(1.0)
    assert fields["dram_free"] == 9 * GIB and fields["sm_active"] == 0.1 and "gpu_util" not in fields
    assert fields["temperature"] == 58
    assert backend.models()[0]["mig"] is True


def test_one_rank_of_a_host_samples_unless_each_has_a_device_of_its_own() -> None:
    ranks = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    with pytest.raises(MissingError):
        opened(h100(), h100(1), environ=ranks)
    torchrun = ranks | {"TORCHELASTIC_RUN_ID": "x", "CUDA_VISIBLE_DEVICES": "1"}
    with pytest.raises(MissingError):
        opened(h100(), h100(1), environ=torchrun)
    backend, _ = opened(h100(), h100(1), environ=ranks | {"CUDA_VISIBLE_DEVICES": "1"})
    assert [model["id"] for model in backend.models()] == [1]
    assert not samples_devices(1, [0], 1, {})  # two ranks share a host's only device
    assert samples_devices(0, [0, 1], 2, {})


def test_a_hidden_hosts_device_keeps_the_hosts_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "physical_count", lambda: 8)
    backend, _ = opened(h100(nvmlDeviceGetMinorNumber=5))
    assert [fields["id"] for fields in backend.records(1.0)] == [5]


# -- trouble -------------------------------------------------------------------------------------------


def test_a_gpu_that_falls_off_the_bus_is_told_once_and_the_others_go_on() -> None:
    first, second = h100(), h100(1)
    backend, _ = opened(first, second)
    backend.sample(0.0)
    first.answers = {"everything": Fail(LOST)}
    for second_ in range(1, 5):
        backend.sample(float(second_))
    assert [fields["id"] for fields in backend.records(5.0)] == [1]
    (news,) = backend.news()
    assert "GPU 0 (NVIDIA H100 80GB HBM3) has fallen off the bus" in news.sentence and "dmesg" in news.sentence
    assert news.warning and news.fields == {"id": 0}
    assert backend.news() == []
    calls = len(first.calls)
    backend.sample(9.0)
    assert len(first.calls) == calls, "a lost device is left alone: its calls may hang"


def test_a_gpu_lost_in_a_field_value_or_in_gpm_is_lost_too(monkeypatch: pytest.MonkeyPatch) -> None:
    device = h100()
    backend, _ = opened(device)
    device.fields[4] = Fail(LOST)
    assert backend.records(1.0) == [] and len(backend.news()) == 1
    backend, library = opened(h100())

    def lost(*arguments: Any) -> None:
        raise NVMLError(LOST)

    monkeypatch.setattr(library, "nvmlGpmMetricsGet", lost, raising=False)
    assert backend.records(1.0) == [] and len(backend.news()) == 1


def test_a_gpu_lost_before_the_start_is_told_and_the_others_are_found() -> None:
    backend, _ = opened(h100(), Fail(LOST), h100(2), environ={"CUDA_VISIBLE_DEVICES": "0,1,2"})
    assert [fields["id"] for fields in backend.records(1.0)] == [0, 2]
    (news,) = backend.news()
    assert news.sentence.startswith("GPU 1 has fallen off the bus")


def test_a_gpu_that_only_fails_is_given_up_after_some_samples() -> None:
    device = h100()
    backend, _ = opened(device)
    device.answers = {"everything": Fail(999)}
    for second in range(4):
        backend.sample(float(second))
    assert backend.news() == []
    backend.sample(5.0)
    assert "has not answered 5 times" in backend.news()[0].sentence


def test_a_passing_error_costs_one_value() -> None:
    device = h100()
    backend, _ = opened(device)
    device.answers["nvmlDeviceGetClockInfo", 1] = Fail(999)
    backend.sample(0.0)
    assert "clock" not in backend.records(1.0)[0]
    device.answers["nvmlDeviceGetClockInfo", 1] = 1500
    backend.sample(2.0)
    assert backend.records(3.0)[0]["clock"] == 1500 and backend.news() == []


def test_an_energy_counter_that_failed_at_first_is_not_added_to_power_over_time() -> None:
    device = h100()
    counter = iter([Fail(999), (ULONGLONG, 10_000_000), (ULONGLONG, 17_000_000)])
    device.fields[83] = lambda: next(counter)
    device.answers["nvmlDeviceGetTotalEnergyConsumption"] = Fail(999)
    backend, _ = opened(device)
    for second in range(11):
        backend.sample(float(second))
    assert backend.records(10.0)[0]["energy"] == 6550  # ten seconds of 655 W
    for second in range(11, 21):
        backend.sample(float(second))
    (fields,) = backend.records(20.0)
    assert fields["energy"] == 6550 + 7000 and fields["power"] == 700_000


def test_nvml_shut_down_by_another_is_started_again_and_the_energy_goes_on() -> None:
    device = old()
    backend, library = opened(device)
    for second in range(3):
        backend.sample(float(second))
    library.closed = True
    backend.sample(3.0)
    backend.sample(4.0)
    (fields,) = backend.records(5.0)
    assert fields["energy"] == 80 and library.initialised == 2 and backend.news() == []


def test_xid_errors_are_counted_named_and_told_once() -> None:
    device = h100()
    backend, library = opened(h100(1), device)
    event = SimpleNamespace(device=device, eventType=8, eventData=79)
    library.waiting = [event, event, SimpleNamespace(device=device, eventType=2, eventData=3)]
    backend.sample(0.0)
    assert {news.key for news in backend.news()} == {"xid 1 79"}
    library.waiting = [event, SimpleNamespace(device=device, eventType=8, eventData=31)]
    backend.sample(1.0)
    (news,) = backend.news()
    assert "GPU 1" in news.sentence and "Xid 31" in news.sentence and XIDS[31][1] in news.sentence
    first, second = backend.records(2.0)
    assert (first["xid_errors"], second["xid_errors"], second["xid"]) == (0, 4, 31)


def test_a_driver_without_events_has_no_xid_fields() -> None:
    backend, _ = opened(h100(), events=False)
    backend.sample(0.0)
    assert "xid_errors" not in backend.records(1.0)[0]


@pytest.mark.parametrize(
    ("code", "words"), [(12, "no NVIDIA driver"), (9, "not loaded"), (18, "differ in version"), (999, "NVML failed")]
)
def test_a_machine_without_nvml_says_why(code: int, words: str) -> None:
    with pytest.raises(MissingError, match=words):
        opened(h100(), failing={"nvmlInit": code})


def test_no_device_and_hidden_devices_are_missing() -> None:
    with pytest.raises(MissingError, match="shows no device"):
        opened()
    with pytest.raises(MissingError):
        opened(h100(), environ={"CUDA_VISIBLE_DEVICES": ""})
    with pytest.raises(MissingError):
        opened(h100(), failing={"nvmlDeviceGetCount": 999})


def test_the_real_module_is_called_by_its_own_names() -> None:
    """Every function that the stand-in answers is one that nvidia-ml-py has."""
    pynvml = pytest.importorskip("pynvml")
    asked: set[str] = set()
    for device in (h100(), a100(), consumer(), old()):
        one_record(device)
        asked |= set(device.calls)
    assert len(asked) > 15
    assert not {name for name in asked if not hasattr(pynvml, name)}
    assert {name for name in vars(Nvml) if name.startswith(("nvml", "c_nvml"))} <= set(dir(pynvml))
    assert pynvml.nvmlEventTypeXidCriticalError == Nvml.nvmlEventTypeXidCriticalError
    assert (pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES) == (83, 198)
    assert (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC) == (5, 60)
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.metrics[0].metricId = 5
    assert request.metrics[0].nvmlReturn == 0 and pynvml.NVML_GPM_METRICS_GET_VERSION == 1


# -- whatever comes ------------------------------------------------------------------------------------

GARBAGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([-1, 0, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1]),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-1, 200), max_size=3),
    st.builds(Fail, st.sampled_from([1, 2, 3, 4, 6, 10, 13, 15, 16, 17, 28, 999])),
    st.builds(lambda a, b: SimpleNamespace(gpu=a, memory=b, total=a, free=b), st.integers(), st.integers()),
)


def numbers_of(fields: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in fields.items():
        assert isinstance(value, (int, float, str)), (name, value)
        if not isinstance(value, str):
            yield name, value


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_the_answers_are_nothing_is_raised_and_every_number_is_sane(data: st.DataObject) -> None:
    device = h100()
    names = sorted(device.answers, key=str)
    for name in data.draw(st.lists(st.sampled_from(names), unique=True)):
        device.answers[name] = data.draw(GARBAGE)
    numbers = sorted(device.fields, key=str)
    for number in data.draw(st.lists(st.sampled_from(numbers), unique=True)):
        kind = data.draw(st.integers(0, 6))
        given_ = data.draw(GARBAGE)
        device.fields[number] = given_ if isinstance(given_, Fail) else (kind, given_)
    for metric in data.draw(st.lists(st.sampled_from([2, 3, 5, 10, 20, 21, 60, 61]), unique=True)):
        device.gpm[metric] = data.draw(st.floats())  # type: ignore[index]
    library = Nvml([device])
    backend = Nvidia(library, {})
    try:
        backend.open()
        backend.models()
    except MissingError:
        return
    found = []
    for second in range(3):
        backend.sample(float(second))
        found += backend.records(second + 0.5)
    for fields in found:
        assert list(fields) == list(ordered(fields))
        for name, value in numbers_of(fields):
            assert math.isfinite(value) and 0 <= value < 2**62, name
            assert value not in (2**32 - 1, 2**64 - 1), name
            if name.endswith(("_util", "_active", "_occupancy")) or name == "throttled":
                assert value <= (100 if name.endswith("_util") else 1)
    for news in backend.news():
        assert news.sentence
    backend.close()


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(-(2**65), 2**65))), st.booleans())
def test_energy_never_falls_and_never_outruns_any_device(states: list[tuple[float, int]], counted: bool) -> None:
    energy, now, last = EnergyReading(), 0.0, 0.0
    for took, state in states:
        now += took
        if counted:
            energy.count(state / 1000, now)
        else:
            energy.power(sane(state, 0, 20_000), now)
        if energy.joules is not None:
            assert last <= energy.joules <= EnergyReading.MOST_WATTS * now + 1e-6
            last = energy.joules


def test_a_counter_that_went_back_gives_no_rate_and_goes_on() -> None:
    rate = Rate(2.0)
    assert rate.update(100, 0.0) is None
    assert rate.update(150, 10.0) == 10
    assert rate.update(40, 20.0) is None
    assert rate.update(60, 30.0) == 4
    assert rate.update(None, 40.0) is None and rate.update(70, 50.0) is None
