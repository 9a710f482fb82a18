"""The speed of light of a training: the tokens a second that the device's peak allows, and no less.

In:   an `Architecture`, a device, the precision of each part; or what a device was measured to reach.
Out:  the fields of a `sol` record, for `run.log_sol_estimate(**estimate(...))`.

Each part runs at its own precision, so the least time for a token is the sum over parts of FLOPs / peak,
and tokens a second are devices / that time (Surogate's definition). A device that is neither in the table
nor measured gives an estimate without `tps`, and `reason` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph.probes.speed.achieved import MeasuredPeak, device_name, stored
from barograph.probes.speed.architecture import Architecture, FlopsError
from barograph.probes.speed.flops import FlopsParts, parts
from barograph.probes.speed.peaks import Peak, device_peak, precision

PARTS = ("blocks", "lm_head", "attention")
FORMULA, COUNTED = "causal", "counted"


def estimate(
    arch: Architecture | FlopsParts,
    *,
    device: str | Peak | None = None,
    dtypes: Mapping[str, str] | str = "bf16",
    devices: int = 1,
    peak_tflops: float | None = None,
    measured: Mapping[str, MeasuredPeak] | None = None,
) -> dict[str, Any]:
    """The speed-of-light estimate of a model on a device, as the fields of a `sol` record.

    arch: the sizes, or FLOPs a token by part where they were counted. device: its name, or a `Peak`; by default the
    device that torch would use. dtypes: precision of
    "blocks", "lm_head" and "attention", or one for all. devices: how many work together. peak_tflops: the
    peak to count with, over the table. measured: what the device reached (`achieved.stored` by default).

    Fields: `blocks`, `lm_head`, `attention` (FLOPs a token, forward and backward, by formula "causal" or "counted"),
    `{part}_dtype`, `tps` (tokens a second of all devices, whole), `{tf32,bf16,fp16,fp8}_peak` (TFLOP/s,
    only those known; `fp32_peak` where it was measured on a CPU), `device`, `devices`, `formula`,
    `peak_source`, `peak_unit` where a device is less or more than what is sold; where the device was
    measured also `achievable` (TFLOP/s by precision) and `achievable_tps`; and `reason` where `tps` is missing.
    """
    if not isinstance(devices, int) or isinstance(devices, bool) or devices < 1:
        raise FlopsError(f"devices is {devices!r}; give a whole number from 1.")
    if peak_tflops is not None and not 0 < peak_tflops < float("inf"):
        raise FlopsError(f"peak_tflops is {peak_tflops!r}; give the device's TFLOP/s, above 0.")
    kinds = _kinds(dtypes)
    name = device.name if isinstance(device, Peak) else device or device_name()
    sheet = device if isinstance(device, Peak) else device_peak(name)
    reached = {kind: item.tflops for kind, item in (stored(name) if measured is None else measured).items()}
    costs = arch if isinstance(arch, FlopsParts) else parts(arch, FORMULA)
    fields: dict[str, Any] = {part: int(cost) for part, cost in zip(PARTS, costs, strict=True)}
    fields |= {f"{part}_dtype": kind for part, kind in kinds.items()}
    fields |= {"device": name, "devices": devices}
    fields["formula"] = COUNTED if isinstance(arch, FlopsParts) else FORMULA
    if sheet is not None:
        fields |= {
            f"{kind}_peak": value for kind in ("tf32", "bf16", "fp16", "fp8") if (value := sheet.at(kind)) is not None
        }
        if sheet.unit != "device":
            fields["peak_unit"] = sheet.unit
    if reached:
        fields["achievable"] = reached
        if speed := _speed(costs, kinds, reached, devices):
            fields["achievable_tps"] = int(speed)
    peaks, source = _peaks(kinds, sheet, reached, peak_tflops)
    for kind, value in peaks.items():
        fields["tf32_peak" if kind == "fp32" and sheet is not None else f"{kind}_peak"] = value
    speed = _speed(costs, kinds, peaks, devices)
    if speed:
        fields |= {"tps": int(speed), "peak_source": source}
    else:
        missing = sorted(set(kinds.values()) - peaks.keys())
        fields["reason"] = (
            f"the peak of {name} in {' and '.join(missing)} is not known; measure it with `barograph bench peak`, or "
            "pass peak_tflops."
        )
    return fields


def peak_for(
    device: str | None = None, dtype: str = "bf16", peak_tflops: float | None = None
) -> tuple[float | None, str]:
    """The peak to divide an MFU by, in TFLOP/s, and where it is from: "given", "table", "measured" or "unknown".

    device: a name; by default the device that torch would use.
    """
    kind = _kind(dtype)
    name = device or device_name()
    sheet = device_peak(name)
    if peak_tflops is not None:
        return peak_tflops, "given"
    if sheet is not None and (value := sheet.at(dtype)) is not None:
        return value, "table"
    if kind and (one := stored(name).get(kind)) is not None:
        return one.tflops, "measured"
    return None, "unknown"


def _kinds(dtypes: Mapping[str, str] | str) -> dict[str, str]:
    by_part = dict(dtypes) if isinstance(dtypes, Mapping) else dict.fromkeys(PARTS, dtypes)
    if strange := set(by_part) - set(PARTS):
        raise FlopsError(f"there is no part {min(strange)!r}; there are {', '.join(PARTS)}.")
    kinds: dict[str, str] = {}
    for part in PARTS:
        given = by_part.get(part, "bf16")
        kind = _kind(given)
        if kind is None:
            raise FlopsError(f"the precision of {part} is {str(given)!r}; give tf32, fp32, bf16, fp16, fp8 or fp4.")
        kinds[part] = kind
    return kinds


def _kind(dtype: object) -> str | None:
    """A precision by its short name. A sheet has no fp32 of its own, a measurement has: they stay apart here."""
    kind = precision(dtype)
    return "fp32" if kind == "tf32" and str(dtype).strip().lower() != "tf32" else kind


def _peaks(
    kinds: Mapping[str, str], sheet: Peak | None, reached: Mapping[str, float], given: float | None
) -> tuple[dict[str, float], str]:
    """TFLOP/s by precision, those that are known, and where they are from: the sheet first."""
    wanted = sorted(set(kinds.values()))
    if given is not None:
        return dict.fromkeys(wanted, float(given)), "given"
    found: dict[str, float] = {}
    sources: dict[str, None] = {}
    for kind in wanted:
        if sheet is not None and (value := sheet.at(kind)) is not None:
            found[kind] = value
            sources[sheet.source] = None
        elif kind in reached:
            found[kind] = reached[kind]
            sources["measured"] = None
    return found, "; ".join(sources)


def _speed(costs: FlopsParts, kinds: Mapping[str, str], peaks: Mapping[str, float], devices: int) -> float | None:
    """Tokens a second at these peaks (TFLOP/s by precision), or None if one is missing."""
    seconds = 0.0
    for part, cost in zip(PARTS, costs, strict=True):
        peak = peaks.get(kinds[part])
        if peak is None:
            return None
        seconds += cost / (peak * 1e12)
    return devices / seconds if seconds > 0 else None
