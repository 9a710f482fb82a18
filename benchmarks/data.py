"""What watching the batches costs: a batch of 32 × 2048 tokens in host memory, or on a GPU.

    python benchmarks/data.py [--rows N] [--columns N] [--rounds N]

The fingerprint stands beside other ways to get a number out of the same tokens: checksums and hashes over the
memory of 32-bit tokens (what 64-bit ones would first have to be made into), and torch's plain sum, the floor for
anything that reads them. All take turns in each round; medians, 90th percentiles and ratios to the fingerprint.
`observe` is the whole call, with a record each step into a real run.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy
import torch

import barograph
from barograph.probes.data.batch_watch import DataWatch
from barograph.probes.data.fingerprints import combine, device_sums, fingerprint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--columns", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=500)
    options = parser.parse_args()
    torch.set_num_threads(1)
    generator = numpy.random.default_rng(0)
    ids = [generator.integers(0, 50_257, (options.rows, options.columns)) for _ in range(16)]
    narrow = [one.astype(numpy.int32) for one in ids]
    tensors = [torch.from_numpy(one) for one in ids]
    padded = [torch.arange(options.columns) < torch.randint(1, options.columns, (options.rows, 1)) for _ in ids]
    masks = [mask.long() for mask in padded]
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    run = barograph.init(project="p", name="r", dir=folder.name, verbosity=-2, git=False)
    plain, full, none = DataWatch(run), DataWatch(run), DataWatch(run, fingerprint=False)
    calls: dict[str, Callable[[int], Any]] = {
        "fingerprint, int64 tensor": lambda n: fingerprint(tensors[n % 16]),
        "fingerprint, int32 array": lambda n: fingerprint(narrow[n % 16]),
        "torch sum": lambda n: tensors[n % 16].sum(),
        "zlib.crc32 of int32": lambda n: zlib.crc32(narrow[n % 16]),
        "zlib.crc32 of int64 made int32": lambda n: zlib.crc32(ids[n % 16].astype(numpy.int32)),
        "zlib.adler32 of int32": lambda n: zlib.adler32(narrow[n % 16]),
        "blake2b of int32": lambda n: hashlib.blake2b(narrow[n % 16], digest_size=8).digest(),
        "hash(bytes), another in each process": lambda n: hash(narrow[n % 16].tobytes()),
        "a product with one weight a token": lambda n: numpy.multiply(ids[n % 16], ids[-1]).sum(),
        "observe, ids alone": lambda n: plain.observe(tensors[n % 16], step=n, epoch=n // 16),
        "observe, no comparison": lambda n: none.observe(tensors[n % 16], step=n, epoch=n // 16),
        "observe, ids, labels and a ragged mask": lambda n: full.observe(
            {"input_ids": tensors[n % 16], "attention_mask": masks[n % 16], "labels": tensors[n % 16]},
            step=n,
            epoch=n // 16,
        ),
    }
    if torch.cuda.is_available():
        add_device(calls, tensors, run)
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(options.rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            call(number)
            taken[name].append((time.perf_counter() - began) * 1e6)
    run.finish()
    folder.cleanup()
    first = statistics.median(taken["fingerprint, int64 tensor"])
    print(f"{options.rows} × {options.columns} tokens, {options.rounds} rounds; target for the fingerprint: 100 µs")
    for name, times in taken.items():
        median, late = statistics.median(times), statistics.quantiles(times, n=10)[-1]
        print(f"{name:42} median {median:7.1f} µs   p90 {late:7.1f} µs   {median / first:5.2f} × the fingerprint")


def add_device(calls: dict[str, Callable[[int], Any]], tensors: list[torch.Tensor], run: Any) -> None:
    """The same on a GPU: what the caller's thread spends, and what the device does."""
    there = [tensor.cuda() for tensor in tensors]
    watch = DataWatch(run)
    calls["observe on the GPU, caller's thread"] = lambda n: watch.observe(there[n % 16], step=n, epoch=n // 16)
    assert all(
        combine(device_sums(far).cpu().numpy(), far.shape[1])[0] == fingerprint(near)
        for far, near in zip(there, tensors, strict=True)
    )
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for number in range(100):
        device_sums(there[number % 16])
    end.record()
    torch.cuda.synchronize()
    print(f"the fingerprint's work on the device: {begin.elapsed_time(end) * 10:.1f} µs a batch")


if __name__ == "__main__":
    main()
