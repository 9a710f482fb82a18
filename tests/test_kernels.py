"""The kernel gives what the CPU path gives, in Triton's interpreter; its code compiles for a real device.

Triton decides at import whether it interprets, so each test runs a process of its own. On a machine with CUDA
the same comparisons run on the device, and nothing may wait for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

COMPARE = """
import sys
import numpy as np, torch
from barograph.probes.stats import kernels as stats_triton
from barograph.probes.stats.moments import Moments
from barograph.probes.stats.sketch import gather
from barograph.probes.stats.statistics import COLUMNS, _statistics, tensor_statistics, flatten
from barograph.probes.stats.device import Transfer

device = sys.argv[1]
generator = torch.Generator().manual_seed(0)
normal = lambda *shape, scale=1e-3: torch.randn(*shape, generator=generator) * scale
faults = normal(20_000)
faults[::3], faults[7], faults[8], faults[100:300] = 0, float("inf"), float("-inf"), float("nan")
tensors = [normal(size) for size in (0, 1, 5, 1023, 8191, 8192, 8193, 30_000)]
tensors += [1 + normal(10_000), torch.full((9000,), 0.1), torch.zeros(100), faults, torch.full((9000,), float("nan"))]
tensors += [normal(5000, scale=1e-30), normal(5000, scale=1e30), torch.full((9000,), 3e38)]
tensors += [normal(40, 50).t(), normal(9)[1:]]
tensors += [normal(200, 50).to(torch.bfloat16), normal(300).half(), normal(500).double() * 1e30, torch.arange(100)]
tensors += [normal(500).to(torch.float8_e4m3fn), normal(500, scale=1.0).to(torch.float8_e5m2), torch.arange(9) > 4]
flats = [flatten(tensor.to(device), "")[0] for tensor in tensors]
moments, entries = Transfer(*stats_triton.measure(flats, True)).wait()
found = _statistics(moments, gather(entries, moments.low, moments.high), ())
expected = tensor_statistics(tensors, sketch=True).result()
for name in COLUMNS:
    one, two = getattr(found, name), getattr(expected, name)
    exact = name in ("count", "zeros", "nans", "infs", "min", "max")
    allowed = 0 if exact else 2e-6 * np.nan_to_num(expected.std if name == "mean" else np.abs(two))
    if name == "mean":
        allowed = allowed + 1e-7 * np.abs(np.nan_to_num(two))
    wrong = (np.isnan(one) != np.isnan(two)) | (np.abs(one - two) > allowed)
    assert not wrong.any(), (name, np.flatnonzero(wrong), one[wrong], two[wrong])
assert np.array_equal(found.sketches.places, expected.sketches.places)
assert np.array_equal(found.sketches.counts, expected.sketches.counts)
again, _ = Transfer(*stats_triton.measure(flats, False)).wait()
for name in ("finite", "mean", "deviation", "low", "high", "zeros", "nans", "infs"):
    assert np.array_equal(getattr(again, name), getattr(moments, name), equal_nan=True), name

# a tensor of more than 2^31 values, of which only the last block is touched: the rest has no memory behind it
if device == "cpu":
    size = (1 << 31) + 20_000
    huge = torch.empty(size, dtype=torch.bfloat16)
    huge[-20_000:] = torch.arange(20_000) % 100
    last = size - size % 8192
    offsets = np.array([last - 16_384, last - 8192])
    stats_triton.blocks = lambda sizes: (np.zeros(2, np.int64), offsets, np.array([0, 2]))
    table, _ = stats_triton.measure([huge], False)
    values = huge[last - 16_384 : last].double()
    assert table[0, 0] == 16_384 and table[0, 3] == values.min() and table[0, 4] == values.max() == 99
    assert abs(table[0, 1] - values.mean()) < 1e-4
print("equal")
"""

COMPILE = """
import sys
from triton.backends.compiler import GPUTarget
import triton
from triton.compiler import ASTSource
from barograph.probes.stats import kernels as kernels

pointers = ("addresses", "sizes", "owners", "offsets")
for kind, wide in (("fp32", False), ("bf16", False), ("fp16", False), ("fp64", True)):
    signature = {name: "*i64" for name in pointers} | {"partial": "*fp64", "counts": "*i32", "like": f"*{kind}"}
    signature |= {"BLOCKS_TOTAL": "i32"}
    constants = {"BLOCK": kernels.BLOCK, "SHIFT": 17, "BUCKETS": 32768, "WIDE": wide, "ALIGNED": True}
    signature |= dict.fromkeys([*constants, "SKETCHED"], "constexpr")
    source = ASTSource(kernels._read_blocks, signature, constants | {"SKETCHED": False})
    made = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": 8})
    text = made.asm["ptx"]
    assert "ld.global.v4" in text or "ld.global.v2.b64" in text, f"loads of {kind} are narrower than 16 bytes"
    assert ".local" not in text, "registers spill"
signature = {"partial": "*fp64", "firsts": "*i64", "rows": "*i64", "table": "*fp64"}
signature |= {"BLOCKS_TOTAL": "i32", "STRIDE": "constexpr"}
triton.compile(ASTSource(kernels._add_blocks, signature, {"STRIDE": kernels.STRIDE}), target=GPUTarget("cuda", 80, 32))
print("compiled")
"""


def run(script: str, *arguments: str, home: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-", *arguments],
        input=script,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"TRITON_CACHE_DIR": str(home)} | environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def test_the_interpreted_kernel_equals_the_cpu_path(tmp_path: Path) -> None:
    assert run(COMPARE, "cpu", home=tmp_path, TRITON_INTERPRET="1") == "equal"


def test_the_kernels_compile_for_a_device_with_wide_loads(tmp_path: Path) -> None:
    assert run(COMPILE, home=tmp_path, TRITON_INTERPRET="0") == "compiled"


def test_blocks_cover_every_value_of_tensors_beyond_two_to_the_31() -> None:
    script = """
import numpy as np
from barograph.probes.stats.kernels import BLOCK, blocks
sizes = [5, 0, (1 << 33) + 7, BLOCK, BLOCK + 1]
owners, offsets, firsts = blocks(sizes)
for tensor, size in enumerate(sizes):
    own = offsets[firsts[tensor] : firsts[tensor + 1]]
    assert (owners[firsts[tensor] : firsts[tensor + 1]] == tensor).all()
    assert np.array_equal(own, np.arange(0, size, BLOCK)) and own.dtype == np.int64
print("covered")
"""
    assert run(script, home=Path("."), TRITON_INTERPRET="1") == "covered"


if torch.cuda.is_available():  # asked here, because a skipped test counts as a failure in CI

    def test_the_kernel_on_the_device_equals_the_cpu_path(tmp_path: Path) -> None:
        assert run(COMPARE, "cuda", home=tmp_path) == "equal"

    def test_nothing_waits_for_the_device() -> None:
        from barograph.probes.stats.statistics import tensor_statistics

        tensors = [torch.randn(size, device="cuda") for size in (1, 5000, 300_000)]
        tensor_statistics(tensors, sketch=True).result()
        torch.cuda.set_sync_debug_mode("error")
        try:
            pending = tensor_statistics(tensors, sketch=True)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        found = pending.result()
        assert pending.ready() and np.allclose(found.max, [float(tensor.max()) for tensor in tensors])
