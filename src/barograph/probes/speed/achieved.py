"""The peak that a device really reaches: the best of several matrix products, measured and kept.

In:   the device at hand; a precision; seconds to spend.
Out:  `MeasuredPeak` figures in TFLOP/s; the file that keeps them for this user; what `barograph bench peak` prints.

Sheets promise rates that no product reaches: clocks fall under load, and shapes don't fill the chip.
What is measured here is the ceiling for a training on this machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from barograph.core.hardware import hardware
from barograph.core.place import cache_folder
from barograph.probes.speed.peaks import device_peak

# (rows, columns, inner) of the products tried. Squares fill a device evenly; the long ones are those of a
# feed-forward layer and a head. Which is best differs by device, so several are tried.
SHAPES_GPU = (
    (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (8192, 28672, 8192), (16384, 8192, 4096),
    (16384, 16384, 8192),
)  # fmt: skip
SHAPES_CPU = ((256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (2048, 512, 2048))
MEASURABLE = ("bf16", "fp16", "tf32", "fp32")
LEAST_RUNS = 3  # of one shape, so that a median means something


class MeasuredPeak(NamedTuple):
    """The best median rate over shapes. `shape` is (rows, columns, inner); `runs` how often it was timed."""

    tflops: float
    shape: tuple[int, int, int]
    runs: int
    device: str
    dtype: str
    threads: int  # 0 on a GPU
    time: str  # when, UTC


class MeasureError(RuntimeError):
    """A device or precision that can't be measured; the sentence says why."""


def device_name(device: Any = None) -> str:
    """The name of "cuda", "cuda:1" or "cpu" as torch gives it; by default of the device that torch would use.

    A CPU's is its model, "an unknown CPU" if the system doesn't tell.
    """
    torch = sys.modules.get("torch")
    wanted = str(device) if device is not None else ""
    if wanted.startswith("cpu"):
        return _names_without_torch()[0]
    if torch is not None:
        return (
            str(torch.cuda.get_device_name(wanted or None)) if torch.cuda.is_available() else _names_without_torch()[0]
        )
    return _names_without_torch()[-1]


@lru_cache(maxsize=1)
def _names_without_torch() -> tuple[str, ...]:
    """The processor's name, and the first GPU's if its driver tells: found once, for it may start a process."""
    found = hardware()
    processor = str(found.get("cpu", {}).get("model") or "an unknown CPU")
    return (processor, *(str(gpu["name"]) for gpu in found.get("gpus", [])[:1] if gpu.get("name")))


# ---------------------------------------------------------------------------------------------
# Measuring


def measure(device: Any = None, dtype: str = "bf16", seconds: float = 1.0) -> MeasuredPeak:
    """The rate of the best of several matrix products in about `seconds`, in TFLOP/s.

    device: "cpu", "cuda", "cuda:1"; by default the GPU if there is one. dtype: bf16, fp16, fp32, or tf32
    (products of 32-bit inputs with TF32 on). Each shape is run once to warm up, then timed again and again:
    CUDA events on a GPU, the clock on a CPU; of each the median counts, and the best median is the answer.
    MeasureError if torch is missing or the device can't do it.
    """
    try:
        import torch
    except ImportError:
        raise MeasureError("Measuring a peak needs PyTorch; install it with: pip install torch") from None
    if dtype not in MEASURABLE:
        raise MeasureError(f"The precision {dtype!r} can't be measured; there are {', '.join(MEASURABLE)}.")
    if not 0 < seconds < 3600:
        raise MeasureError(f"seconds is {seconds!r}; give a number above 0 and below 3600.")
    place = str(device) if device is not None else ("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = place.startswith("cuda")
    if on_gpu and not torch.cuda.is_available():
        raise MeasureError("torch sees no GPU here; measure the processor with --device cpu.")
    if not on_gpu and place != "cpu":
        raise MeasureError(f"The device {place!r} can't be measured; there are cpu, cuda and cuda:N.")
    if dtype == "tf32" and not on_gpu:
        raise MeasureError("A CPU has no TF32; measure fp32.")
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, torch.float32)
    timed: Callable[[Any, tuple[int, int, int], Any, float], list[float]] = _time_gpu if on_gpu else _time_cpu
    shapes = list(SHAPES_GPU if on_gpu else SHAPES_CPU)
    best: tuple[float, tuple[int, int, int], int] | None = None
    fastest = 0.0  # of any single product: on a busy machine a median says little about the next shape
    end = time.perf_counter() + seconds
    try:
        with _products_of_32_bits(torch, dtype), torch.no_grad():
            for place_in_line, shape in enumerate(shapes):
                left = end - time.perf_counter()
                work = 2.0 * math.prod(shape)
                if best is not None and (left <= 0 or (LEAST_RUNS + 1) * work / fastest > left):
                    continue  # what is left does not suffice for this one
                times = timed(torch.device(place), shape, kind, max(0.0, left) / (len(shapes) - place_in_line))
                rate, fastest = work / statistics.median(times), max(fastest, work / min(times))
                if best is None or rate > best[0]:
                    best = (rate, shape, len(times))
    except (RuntimeError, NotImplementedError) as error:  # no memory, or no such product on this device
        if best is None:
            said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise MeasureError(f"{place} can't multiply in {dtype}: {said}") from None
    assert best is not None
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    threads = 0 if on_gpu else int(torch.get_num_threads())
    return MeasuredPeak(best[0] / 1e12, best[1], best[2], device_name(place), dtype, threads, now)


@contextmanager
def _products_of_32_bits(torch: Any, dtype: str) -> Iterator[None]:
    """TF32 on for "tf32" and off for "fp32", and as it was afterwards."""
    if dtype not in ("tf32", "fp32"):
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _operands(device: Any, shape: tuple[int, int, int], kind: Any) -> tuple[Any, Any, Any]:
    """Normal random numbers: zeros draw less power, and so run faster than a training's do."""
    import torch

    rows, columns, inner = shape
    generator = torch.Generator(device=device).manual_seed(0)
    left = torch.randn(rows, inner, device=device, dtype=torch.float32, generator=generator).to(kind)
    right = torch.randn(inner, columns, device=device, dtype=torch.float32, generator=generator).to(kind)
    return left, right, torch.empty(rows, columns, device=device, dtype=kind)


def _time_cpu(device: Any, shape: tuple[int, int, int], kind: Any, seconds: float) -> list[float]:
    import torch

    left, right, out = _operands(device, shape, kind)
    torch.mm(left, right, out=out)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST_RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        torch.mm(left, right, out=out)
        times.append(time.perf_counter() - start)
    return times


def _time_gpu(device: Any, shape: tuple[int, int, int], kind: Any, seconds: float) -> list[float]:
    import torch

    with torch.cuda.device(device):
        left, right, out = _operands(device, shape, kind)
        for _ in range(LEAST_RUNS):  # the library picks its kernel, the clocks rise
            torch.mm(left, right, out=out)
        torch.cuda.synchronize()
        times: list[float] = []
        end = time.perf_counter() + seconds
        while len(times) < LEAST_RUNS or time.perf_counter() < end:
            events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(11)]  # type: ignore[no-untyped-call]
            events[0].record()
            for event in events[1:]:  # one after the other, so that the queue never runs dry
                torch.mm(left, right, out=out)
                event.record()
            torch.cuda.synchronize()
            times += [start.elapsed_time(stop) / 1000 for start, stop in pairwise(events)]
        return times


# ---------------------------------------------------------------------------------------------
# Keeping


def peaks_file() -> Path:
    """Where measured peaks are kept: $XDG_CACHE_HOME/barograph/peaks.json, or under ~/.cache."""
    return cache_folder() / "peaks.json"


def store(measured: MeasuredPeak, file: Path | None = None) -> Path:
    """Keep a measured peak, in place of an earlier one of the same device, precision and threads.

    The file is replaced as a whole, so a reader never sees half of it. OSError if it can't be written.
    """
    file = file or peaks_file()
    kept = _read(file) | {_key(measured.device, measured.dtype, measured.threads): measured._asdict()}
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".peaks-")
    try:
        with os.fdopen(handle, "w") as stream:
            json.dump(kept, stream, indent=1)
            stream.write("\n")
        os.replace(temporary, file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return file


def stored(device: str | None = None, threads: int | None = None, file: Path | None = None) -> dict[str, MeasuredPeak]:
    """What a device was measured to reach, by precision; empty if it was not measured. Never raises.

    device: a name; by default the device that torch would use. threads: of a CPU; by default those that
    torch uses, or without torch the newest figure.
    """
    name = device if device is not None else device_name()
    torch = sys.modules.get("torch")
    if threads is None and torch is not None:
        threads = int(torch.get_num_threads())
    result: dict[str, MeasuredPeak] = {}
    for item in _read(file or peaks_file()).values():
        one = _measured(item)
        if one is None or one.device != name or (one.threads and threads is not None and one.threads != threads):
            continue
        if one.dtype not in result or result[one.dtype].time <= one.time:
            result[one.dtype] = one
    return result


def _key(device: str, dtype: str, threads: int) -> str:
    return f"{device} | {dtype}" + (f" | {threads} threads" if threads else "")


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):  # not there, or damaged: measured again when asked for
        return {}
    return content if isinstance(content, dict) else {}


def _measured(item: Any) -> MeasuredPeak | None:
    try:
        peak = MeasuredPeak(**item)
        rows, columns, inner = peak.shape
        whole = (int(rows), int(columns), int(inner))
        good = isinstance(peak.tflops, float) and 0 < peak.tflops < math.inf and isinstance(peak.threads, int)
        return peak._replace(shape=whole, device=str(peak.device), dtype=str(peak.dtype)) if good else None
    except (TypeError, ValueError):
        return None


# ---------------------------------------------------------------------------------------------
# The command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `barograph bench peak`."""
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda or cuda:N; the first GPU if there is one")
    parser.add_argument(
        "--seconds", type=float, default=3.0, metavar="N", help="seconds to spend on each precision (3)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def bench_peak(device: str | None = None, seconds: float = 3.0, as_json: bool = False) -> int:
    """Measure the device at hand in each precision, print a table, keep the figures. Returns the exit status.

    Each row has the rate reached, the sheet's peak if it is known, the share of it, and the best shape.
    """
    try:
        rows, skipped = _measure_all(device, seconds)
    except MeasureError as error:
        print(error, file=sys.stderr)
        return 1
    if not rows:
        print(next(iter(skipped.values())), file=sys.stderr)
        return 1
    try:
        file = ""
        for row in rows:
            file = str(store(row))
    except OSError as error:
        print(f"The figures could not be kept in {peaks_file()}: {error.strerror}.", file=sys.stderr)
    sheet = device_peak(rows[0].device)
    if as_json:
        made = [
            row._asdict() | {"shape": list(row.shape), "sheet_tflops": sheet.at(row.dtype) if sheet else None}
            for row in rows
        ]
        print(json.dumps({"device": rows[0].device, "peaks": made, "skipped": skipped, "file": file or None}))
        return 0
    threads = f", {rows[0].threads} threads" if rows[0].threads else ""
    print(f"{rows[0].device}{threads}")
    print(f"{'':6} {'measured':>16} {'sheet':>16} {'share':>7}   best product")
    for row in rows:
        peak = sheet.at(row.dtype) if sheet is not None and row.dtype != "fp32" else None
        promised = f"{peak:8.1f} TFLOP/s" if peak else f"{'unknown':>16}"
        share = f"{100 * row.tflops / peak:6.1f}%" if peak else f"{'':7}"
        rows_, columns, inner = row.shape
        print(f"{row.dtype:6} {_rate(row.tflops):>16} {promised} {share}   {rows_} × {columns} × {inner}")
    for dtype, reason in skipped.items():
        print(f"{dtype:6} {reason}")
    if file:
        print(f"Kept in {file}")
    return 0


def _measure_all(device: str | None, seconds: float) -> tuple[list[MeasuredPeak], dict[str, str]]:
    rows: list[MeasuredPeak] = []
    skipped: dict[str, str] = {}
    for dtype in MEASURABLE:
        if dtype == "tf32" and not _has_gpu(device):
            continue
        try:
            rows.append(measure(device, dtype, seconds))
        except MeasureError as error:
            if dtype == MEASURABLE[0] and not rows and "can't multiply" not in str(error):
                raise  # it is the device or the arguments, not the precision
            skipped[dtype] = str(error)
    return rows, skipped


def _has_gpu(device: str | None) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and not (device or "").startswith("cpu")


def _rate(tflops: float) -> str:
    return f"{tflops:.1f} TFLOP/s" if tflops >= 1 else f"{1000 * tflops:.1f} GFLOP/s"
