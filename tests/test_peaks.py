"""A device's name gives its own peak or none: never a neighbour's, never a default's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.probes.speed.peaks import PRECISIONS, Peak, device_peak, devices, peaks_table, precision

DOCUMENT = Path(__file__).parents[1] / "docs" / "reference" / "throughput.md"


@pytest.mark.parametrize(
    ("name", "bf16", "bandwidth"),
    [
        ("NVIDIA A100-SXM4-80GB", 312, 2.0),
        ("NVIDIA A100-SXM4-40GB", 312, 1.555),
        ("NVIDIA A100 80GB PCIe", 312, 1.94),
        ("A100-PCIE-40GB", 312, 1.555),
        ("NVIDIA H100 80GB HBM3", 989.4, 3.35),
        ("NVIDIA H100 PCIe", 756, 2.0),
        ("NVIDIA H100 NVL", 835, 3.9),
        ("NVIDIA H200", 989, 4.8),
        ("NVIDIA H200 NVL", 836, 4.8),
        ("NVIDIA GH200 480GB", 989, 4.0),
        ("NVIDIA H800", 989, 3.35),
        ("NVIDIA H20", 148, 4.0),
        ("NVIDIA B200", 2250, 8.0),
        ("NVIDIA GB200", 2500, 8.0),
        ("NVIDIA B300 SXM6 AC", 2250, 8.0),
        ("NVIDIA GB300", 2500, 8.0),
        ("NVIDIA L4", 121, 0.3),
        ("NVIDIA L40", 181, 0.864),
        ("NVIDIA L40S", 362, 0.86),
        ("NVIDIA A10", 125, 0.6),
        ("NVIDIA A10G", 70, 0.6),
        ("NVIDIA A30", 165, 0.933),
        ("NVIDIA A40", 149.7, 0.696),
        ("NVIDIA RTX A6000", 154.9, 0.768),
        ("NVIDIA RTX 6000 Ada Generation", 364.2, 0.96),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 503.8, 1.792),
        ("NVIDIA GeForce RTX 3090", 71, 0.936),
        ("NVIDIA GeForce RTX 3090 Ti", 80, 1.008),
        ("NVIDIA GeForce RTX 4090", 165.2, 1.008),
        ("NVIDIA GeForce RTX 5090", 209.5, 1.792),
        ("AMD Instinct MI250X", 191.5, 1.64),
        ("AMD Instinct MI300X", 1307.4, 5.3),
        ("AMD Instinct MI300X VF", 1307.4, 5.3),
        ("AMD Instinct MI325X", 1307.4, 6.0),
        ("AMD Instinct MI355X", 2500, 8.0),
        ("TPU v4", 275, 1.2),
        ("TPU v5 lite", 197, 0.82),
        ("TPU v5p", 459, 2.76),
        ("TPU v6e", 918, 1.64),
        ("TPU7x", 1153.5, 3.7),
        ("Trainium2", 667, 2.9),
        ("Gaudi3", 1677, 3.7),
    ],
)
def test_names_as_runtimes_give_them(name: str, bf16: float, bandwidth: float) -> None:
    found = device_peak(name)
    assert found is not None
    assert (found.bf16, found.bandwidth) == (bf16, bandwidth)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA RTX A1000",  # not an A100
        "NVIDIA RTX A4000",  # not an A40
        "NVIDIA RTX A3000 Laptop GPU",  # not an A30
        "NVIDIA RTX A400",
        "NVIDIA A100X",
        "NVIDIA A2",
        "Quadro RTX 6000",  # of Turing, not of Ada
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4080 SUPER",
        "NVIDIA GeForce RTX 4070 Ti SUPER",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "NVIDIA H200 MIG 1g.18gb",
        "GRID A100-10C",  # a virtual part of one
        "NVIDIA A40-48Q",
        "NVIDIA H100 CNX",
        "NVIDIA A100-SXM-64GB",  # made for one machine, with more units
        "AMD Instinct MI250X / MI250",  # the driver doesn't tell which
        "AMD Radeon RX 7900 XTX",
        "NVIDIA Graphics Device",
        "AMD EPYC 9654 96-Core Processor",
        "Apple M3 Max",
        "cpu",
        "",
    ],
)
def test_what_is_not_known_for_certain_is_unknown(name: str) -> None:
    assert device_peak(name) is None


def test_an_mi250x_is_half_a_card_because_torch_sees_its_dies() -> None:
    found = device_peak("AMD Instinct MI250X")
    assert found is not None and found.bf16 == 383 / 2 and "half" in found.unit


@given(
    st.sampled_from([peak.name for peak in devices()]), st.sampled_from(["Laptop GPU", "MIG 1g.10gb", "X2", "lite2"])
)
def test_a_further_word_that_is_not_understood_makes_any_device_unknown(name: str, word: str) -> None:
    assert device_peak(f"{name} {word}") is None


@given(st.sampled_from([peak.name for peak in devices() if peak.name not in ("RTX PRO 6000 Blackwell",)]))
def test_every_device_is_found_by_its_own_name_in_any_case(name: str) -> None:
    for spelling in (name, name.upper(), name.lower(), f"NVIDIA {name}"):
        found = device_peak(spelling)
        assert found is not None and found.name == name


@given(st.text(max_size=40))
def test_any_text_is_a_device_or_none(name: str) -> None:
    assert device_peak(name) is None or isinstance(device_peak(name), Peak)


def test_precisions_by_their_many_names() -> None:
    torch = pytest.importorskip("torch")
    h100 = device_peak("NVIDIA H100 80GB HBM3")
    assert h100 is not None
    assert h100.at("bf16") == h100.at("bfloat16") == h100.at("torch.bfloat16") == h100.at(torch.bfloat16) == 989.4
    assert h100.at("fp8") == h100.at("e4m3") == h100.at(torch.float8_e4m3fn) == 1979
    assert h100.at("fp32") == h100.at(torch.float32) == h100.at("tf32") == 494.5  # the fastest for 32-bit inputs
    assert h100.at("fp4") is None  # Hopper has none
    assert h100.at("fp64") is None and h100.at("int8") is None and h100.at("") is None
    assert precision("nonsense") is None


def test_figures_are_dense_and_in_order() -> None:
    for peak in devices():
        known = [value for kind in PRECISIONS if (value := getattr(peak, kind)) is not None]
        assert known and all(value > 0 for value in known)
        assert peak.source
        # fewer bits are never slower; Gaudi3's 16-bit float, of which it has little, is the exception
        ladder = [value for kind in ("tf32", "bf16", "fp8", "fp4") if (value := getattr(peak, kind)) is not None]
        assert ladder == sorted(ladder), peak.name
        if peak.fp8 is not None and peak.bf16 is not None and peak.name not in ("Gaudi3", "TPU v6e", "Rubin SXM"):
            # twice bf16: a sparse figure, as some tables have, would be four times
            assert peak.fp8 / peak.bf16 == pytest.approx(2, rel=0.03), peak.name


def test_the_document_holds_the_table() -> None:
    text = DOCUMENT.read_text()
    assert peaks_table() in text, "docs/reference/throughput.md: paste what peaks_table() gives"
    assert len(re.findall(r"^\| ", peaks_table(), re.M)) == len(devices()) + 1
