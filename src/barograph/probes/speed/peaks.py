"""What each device can do at most: dense matrix rates by precision, and memory bandwidth, with sources.

In:   a device's name, as torch, NVML, ROCm or a TPU runtime gives it.
Out:  a `Peak`, or None where the name is not known: then nothing about the peak is known either.

A name is taken apart into words. A device is found if all its words are there, the one with most words
first, and if every other word is known to make no difference (a vendor, a memory size, a form factor).
So a laptop's part, a slice of a card (MIG), a virtual one or a variant that we have no figures for is
not mistaken for the card whose name it bears.

All rates are without sparsity, and with 32-bit accumulation where a card has two rates. Vendors print the
sparse rate first, which is twice as much.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

# Sources, as they are printed in docs/reference/throughput.md.
_ENG = "ml-engineering accelerator tables"
_TITAN = "torchtitan's table"
_CHAT = "nanochat's table"
_LIGHT = "Lightning Fabric's table"
_SOL = "Surogate's table"
_SHEET = "vendor's data sheet"


@dataclass(frozen=True)
class Peak:
    """A device's dense peaks in TFLOP/s and its memory bandwidth in TB/s; None: not there, or not known.

    unit: what the figures are for, which is what a runtime counts as one device.
    """

    name: str
    tf32: float | None
    bf16: float | None
    fp16: float | None
    fp8: float | None
    fp4: float | None
    bandwidth: float | None
    source: str
    unit: str = "device"
    note: str = ""

    def at(self, dtype: object) -> float | None:
        """TFLOP/s at a precision: "bf16", "bfloat16", "torch.float16", "e4m3", "nvfp4", …, or a torch dtype.

        "fp32" gives the TF32 rate: the fastest products of 32-bit inputs. A training that leaves TF32 off
        runs below it by far. None for a precision that the device lacks or that has no figure here.
        """
        kind = precision(dtype)
        value = getattr(self, kind) if kind else None
        return float(value) if value is not None else None


PRECISIONS = ("tf32", "bf16", "fp16", "fp8", "fp4")
_SPELLINGS = {
    "tf32": ("tf32", "fp32", "float32", "float", "single", "32"),
    "bf16": ("bf16", "bfloat16"),
    "fp16": ("fp16", "float16", "half"),
    "fp8": ("fp8", "float8", "e4m3", "e5m2", "mxfp8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
            "float8_e5m2fnuz", "fp8_e4m3", "fp8_e5m2", "fp8-hybrid", "fp8_hybrid"),
    "fp4": ("fp4", "float4", "e2m1", "nvfp4", "mxfp4", "float4_e2m1fn_x2"),
}  # fmt: skip
_PRECISION = {spelling: kind for kind, spellings in _SPELLINGS.items() for spelling in spellings}


def precision(dtype: object) -> str | None:
    """One of PRECISIONS for a dtype or its name, else None. "fp32" is tf32, see `Peak.at`."""
    return _PRECISION.get(str(dtype).strip().lower().removeprefix("torch."))


def _row(
    words: str,
    name: str,
    figures: tuple[float | None, float | None, float | None, float | None, float | None],
    bandwidth: float | None,
    source: str,
    unit: str = "device",
    note: str = "",
) -> tuple[tuple[frozenset[str], ...], Peak]:
    """words: alternatives divided by |, each a set of words that must all be in a device's name."""
    keys = tuple(frozenset(item.split()) for item in words.split("|"))
    return keys, Peak(name, *figures, bandwidth, source, unit, note)


NO = None  # not there, or not known
# words, name, (tf32, bf16, fp16, fp8, fp4), TB/s, source
_TABLE = (
    # NVIDIA, data centre
    _row("v100 sxm2|v100 sxm3|v100 sxm", "V100 SXM", (NO, NO, 125, NO, NO), 0.9, _SHEET),
    _row("v100 pcie", "V100 PCIe", (NO, NO, 112, NO, NO), 0.9, _SHEET),
    _row("t4", "T4", (NO, NO, 65, NO, NO), 0.32, _SHEET),
    _row("a100", "A100", (156, 312, 312, NO, NO), NO, f"{_ENG}; {_TITAN}"),
    _row("a100 80gb|a100 sxm4 80gb|a100 sxm 80gb", "A100 SXM 80GB", (156, 312, 312, NO, NO), 2.0, f"{_ENG}; {_TITAN}"),
    _row("a100 80gb pcie", "A100 PCIe 80GB", (156, 312, 312, NO, NO), 1.94, f"{_ENG}; {_TITAN}"),
    _row("a100 40gb", "A100 40GB", (156, 312, 312, NO, NO), 1.555, f"{_ENG}; {_TITAN}; {_SHEET}"),
    _row("a800", "A800", (156, 312, 312, NO, NO), NO, _CHAT, note="an A100 with slower links"),
    _row("a30", "A30", (82, 165, 165, NO, NO), 0.933, f"{_CHAT}; {_SHEET}"),
    _row("a10", "A10", (62.5, 125, 125, NO, NO), 0.6, f"{_LIGHT}; {_SHEET}"),
    _row("a10g", "A10G", (35, 70, 70, NO, NO), 0.6, _SHEET, note="some tables give it the A10's 125"),
    _row("a40", "A40", (74.8, 149.7, 149.7, NO, NO), 0.696, f"{_LIGHT}; {_CHAT}; {_SHEET}"),
    _row("l4", "L4", (60, 121, 121, 242, NO), 0.3, f"{_LIGHT}; {_SHEET}"),
    _row("l40", "L40", (90.5, 181, 181, 362, NO), 0.864, f"{_SOL}; {_SHEET}"),
    _row("l40s", "L40S", (183, 362, 362, 733, NO), 0.86, _ENG),
    _row(
        "h100|h100 sxm5|h100 hbm3", "H100 SXM", (494.5, 989.4, 989.4, 1979, NO), 3.35, f"{_ENG}; {_TITAN}",
        note="also for H100 with no more said",
    ),
    _row("h100 pcie|h100 hbm2e", "H100 PCIe", (378, 756, 756, 1513, NO), 2.0, f"{_ENG}; {_TITAN}"),
    _row("h100 nvl", "H100 NVL", (417.5, 835, 835, 1670, NO), 3.9, f"{_LIGHT}; {_ENG}"),
    _row("h800|h800 sxm5", "H800 SXM", (NO, 989, 989, NO, NO), 3.35, f"{_TITAN}, from the press"),
    _row("h800 pcie", "H800 PCIe", (NO, 756, 756, NO, NO), 2.0, _CHAT),
    _row("h20", "H20", (NO, 148, 148, NO, NO), 4.0, f"{_TITAN}, from the press"),
    _row("h200", "H200 SXM", (494.5, 989, 989, 1979, NO), 4.8, _ENG),
    _row("h200 nvl|h200 pcie", "H200 NVL", (418, 836, 836, 1671, NO), 4.8, f"{_ENG}; {_CHAT}"),
    _row("gh200", "GH200", (494.5, 989, 989, 1979, NO), NO, _ENG),
    _row("gh200 480gb", "GH200 480GB", (494.5, 989, 989, 1979, NO), 4.0, _ENG),
    _row("b100", "B100", (875, 1750, 1750, 3500, 7000), 8.0, f"HGX {_SHEET}", note=f"{_CHAT} has 1800"),
    _row("b200", "B200 SXM", (1125, 2250, 2250, 4500, 9000), 8.0, f"{_ENG}; {_TITAN}", note=f"{_SOL} has 2200"),
    _row("gb200", "GB200", (1250, 2500, 2500, 5000, 10000), 8.0, f"{_ENG}; {_TITAN}", "GPU of the board"),
    _row(
        "b300", "B300 SXM", (1125, 2250, 2250, 4500, NO), 8.0, _ENG,
        note=f"fp4 is published as 12600 to 15000; {_SOL} has 2500 for bf16",
    ),
    _row("gb300", "GB300", (1250, 2500, 2500, 5000, 15000), 8.0, _ENG, "GPU of the board"),
    _row("rubin", "Rubin SXM", (2000, 4000, 4000, 17500, 35000), NO, _ENG, note="as announced"),
    _row("gb10", "GB10", (29.7, 59.4, 59.4, NO, NO), NO, _SOL),
    # NVIDIA, workstation and consumer; tf32 is half of bf16 in all of these
    _row("rtx a6000", "RTX A6000", (77.4, 154.9, 154.9, NO, NO), 0.768, f"{_TITAN}; {_SOL}"),
    _row("rtx 6000 ada", "RTX 6000 Ada", (182.1, 364.2, 364.2, 728.5, NO), 0.96, _SOL),
    _row(
        "rtx pro 6000 blackwell workstation", "RTX PRO 6000 Blackwell", (251.9, 503.8, 503.8, 1007.6, 2015), 1.792,
        _SOL, note="Workstation Edition; not Max-Q",
    ),
    _row("rtx 5090", "RTX 5090", (104.8, 209.5, 209.5, 419, 1676), 1.792, f"{_CHAT}; {_SOL}; {_SHEET}"),
    _row("rtx 5080", "RTX 5080", (56.3, 112.6, 112.6, NO, NO), 0.96, _SOL),
    _row("rtx 5070 ti", "RTX 5070 Ti", (43.9, 87.9, 87.9, NO, NO), 0.896, _SOL),
    _row("rtx 5070", "RTX 5070", (30.9, 61.7, 61.7, NO, NO), 0.672, _SOL),
    _row(
        "rtx 4090", "RTX 4090", (82.6, 165.2, 165.2, 330.3, NO), 1.008, f"{_CHAT}; {_SOL}; {_SHEET}",
        note=f"{_LIGHT} has 82.6 for bf16, the rate without tensor cores; others 330, with 16-bit accumulation",
    ),
    _row("rtx 4080", "RTX 4080", (48.7, 97.5, 97.5, NO, NO), 0.717, _SOL),
    _row("rtx 4070 ti", "RTX 4070 Ti", (40.1, 80.2, 80.2, NO, NO), 0.504, _SOL),
    _row("rtx 4070", "RTX 4070", (29.1, 58.3, 58.3, NO, NO), 0.504, _SOL),
    _row("rtx 3090 ti", "RTX 3090 Ti", (40, 80, 80, NO, NO), 1.008, _SOL),
    _row("rtx 3090", "RTX 3090", (35.6, 71, 71, NO, NO), 0.936, f"{_CHAT}; {_SOL}; {_SHEET}"),
    _row("rtx 3080 ti", "RTX 3080 Ti", (34.1, 68.2, 68.2, NO, NO), 0.912, _SOL),
    _row("rtx 3080", "RTX 3080", (29.8, 59.5, 59.5, NO, NO), 0.76, _SOL),
    _row("rtx 3070", "RTX 3070", (20.3, 40.6, 40.6, NO, NO), 0.448, _SOL),
    # AMD; torch counts each die (GCD) of an MI250 and MI250X as a device
    _row("mi250", "MI250", (NO, 181, 181, NO, NO), 1.64, f"{_ENG}; {_CHAT}", "die (GCD), half a card"),
    _row("mi250x", "MI250X", (NO, 191.5, 191.5, NO, NO), 1.64, f"{_TITAN}; {_ENG}", "die (GCD), half a card"),
    _row("mi300a", "MI300A", (NO, 980.6, 980.6, NO, NO), 5.3, _CHAT),
    _row("mi300x|mi300x vf", "MI300X", (653.7, 1307.4, 1307.4, 2614.9, NO), 5.3, f"{_ENG}; {_CHAT}"),
    _row("mi325x", "MI325X", (653.7, 1307.4, 1307.4, 2614.9, NO), 6.0, f"{_ENG}; {_CHAT}"),
    _row("mi355x", "MI355X", (NO, 2500, 2500, 5000, 10100), 8.0, f"{_ENG}; {_CHAT}"),
    # Google; a v7x chip is two devices to its runtimes. JAX names v5e "TPU v5 lite", v5p "TPU v5", v6e "TPU v6 lite"
    _row("tpu v4", "TPU v4", (NO, 275, NO, NO, NO), 1.2, f"{_ENG}; {_TITAN}", "chip"),
    _row("tpu v5e|tpu v5 lite|tpu v5litepod", "TPU v5e", (NO, 197, NO, NO, NO), 0.82, f"{_ENG}; {_TITAN}", "chip"),
    _row("tpu v5p|tpu v5", "TPU v5p", (NO, 459, NO, NO, NO), 2.76, f"{_ENG}; {_TITAN}", "chip"),
    _row("tpu v6e|tpu v6 lite", "TPU v6e", (NO, 918, NO, 918, NO), 1.64, f"{_ENG}; {_TITAN}", "chip"),
    _row(
        "tpu v7x|tpu7x|tpu 7x", "TPU v7x", (NO, 1153.5, NO, 2307, NO), 3.7, f"{_TITAN}; {_ENG}", "device, half a chip",
    ),
    # Amazon, Intel
    _row(
        "trainium1|trn1", "Trainium1", (NO, 190, 190, NO, NO), 0.82, _SHEET, "chip, two cores",
        note=f"{_TITAN} has 90 a core",
    ),
    _row("trainium2|trn2", "Trainium2", (667, 667, 667, 1299, NO), 2.9, _ENG, "chip, eight cores"),
    _row("gaudi2|gaudi 2", "Gaudi2", (NO, 432, NO, 865, NO), 2.45, _ENG),
    _row(
        "gaudi3|gaudi 3", "Gaudi3", (459, 1677, 459, 1677, NO), 3.7, _ENG,
        note="at 1600 MHz; the white paper's 1835 is at 1750",
    ),
)  # fmt: skip

# Words that make no difference to the figures above. Not "Ti", "SUPER", "Laptop", "Max-Q", "D", "MIG", "CNX".
_PLAIN = re.compile(
    r"nvidia|amd|intel|google|aws|amazon|habana|labs|corporation|cloud|inc|tm|r|"
    r"tesla|quadro|geforce|instinct|grace|hopper|blackwell|ada|superchip|generation|edition|workstation|"
    r"gpu|graphics|accelerator|device|oam|sxm\d?|pcie?|nvl72|ac|ai|tensor|core|hbm\de?|"
    r"(?!64gb?$)\d+gb?"  # a memory size; but A100 and H100 of 64 GB were made for single machines, with other figures
)
_WORD = re.compile(r"[a-z0-9.]+")


@lru_cache(maxsize=256)
def device_peak(name: str) -> Peak | None:
    """The peak of the device with this name, or None if the name is not known for certain."""
    words = frozenset(_WORD.findall(str(name).lower()))
    best: tuple[int, Peak] | None = None
    for keys, peak in _TABLE:
        for key in keys:
            if key <= words and (best is None or len(key) > best[0]):
                if not all(_PLAIN.fullmatch(word) for word in words - key):
                    continue
                best = (len(key), peak)
    return best[1] if best else None


def devices() -> tuple[Peak, ...]:
    """Every device in the table."""
    return tuple(peak for _, peak in _TABLE)


def peaks_table() -> str:
    """The table as Markdown, as it is in docs/reference/throughput.md."""
    lines = [
        "| device | TF32 | BF16 | FP16 | FP8 | FP4 | memory, TB/s | figures are for a | source |",
        "|---|---:|---:|---:|---:|---:|---:|---|---|",
    ]
    for peak in devices():
        figures = [getattr(peak, kind) for kind in PRECISIONS] + [peak.bandwidth]
        shown = " | ".join("–" if figure is None else f"{figure:g}" for figure in figures)
        source = f"{peak.source} ({peak.note})" if peak.note else peak.source
        lines.append(f"| {peak.name} | {shown} | {peak.unit} | {source} |")
    return "\n".join(lines) + "\n"
