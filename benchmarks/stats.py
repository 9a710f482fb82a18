"""Statistics of all gradients of GPT-2 124M beside one read of the same memory.

    python benchmarks/stats.py [--threads N] [--rounds N] [--device cpu|cuda] [--dtype float32]

The 148 tensors have GPT-2's shapes and random values (124 million); nothing is downloaded. In each round
every way takes its turn, after a read ("one read": torch.sum of each tensor); times are medians, ratios are medians of
each round's ratio to the read beside it. The exact percentiles sort everything and run in one round only.
On CUDA the floor is a copy's bandwidth on this card, events time the work, and a pass under
`torch.cuda.set_sync_debug_mode("error")` shows that the caller never waits.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from barograph.probes.stats.statistics import PERCENTILES, tensor_statistics


def shapes(layers: int = 12, width: int = 768, words: int = 50257, places: int = 1024) -> list[tuple[int, ...]]:
    """Shapes of GPT-2's parameters, as transformers' GPT2LMHeadModel has them."""
    block: list[tuple[int, ...]] = [(width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,)]
    block += [(width,), (width,), (width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(words, width), (places, width), *block * layers, (width,), (width,)]


def naive(tensors: list[Any]) -> list[tuple[float, ...]]:
    return [
        (g.norm().item(), g.mean().item(), g.std().item(), g.min().item(), g.max().item()) for g in tensors if g.numel()
    ]


def exact(tensors: list[Any]) -> list[Any]:
    found = []
    for tensor in tensors:
        ordered = tensor.flatten().sort().values
        ranks = [max(0, -(-len(ordered) * q // 100) - 1) for q in PERCENTILES]
        found.append(ordered[torch.tensor(ranks, device=tensor.device)])
    return found


def with_percentiles(tensors: list[Any]) -> None:
    found = tensor_statistics(tensors, sketch=True).result()
    found.percentiles()
    found.histograms(64)


def on_cpu(tensors: list[Any], rounds: int) -> None:
    ways: dict[str, Callable[[], Any]] = {
        "one read": lambda: [tensor.sum() for tensor in tensors],
        "scalars": lambda: tensor_statistics(tensors).result(),
        "scalars and sketch": lambda: tensor_statistics(tensors, sketch=True).result(),
        "… with percentiles and histograms read": lambda: with_percentiles(tensors),
        "naive: norm, mean, std, min, max, .item()": lambda: naive(tensors),
        "torch._foreach_norm": lambda: torch._foreach_norm(tensors),
    }
    slow: dict[str, Callable[[], Any]] = {
        "torch.histc, 64 bins": lambda: [torch.histc(tensor, 64) for tensor in tensors],
        "exact percentiles (sort)": lambda: exact(tensors),
    }
    times: dict[str, list[float]] = {name: [] for name in (*ways, *slow)}
    read = ways.pop("one read")
    reads: dict[str, list[float]] = {name: [] for name in times}
    for turn in range(rounds + 1):
        for name, way in (ways | (slow if turn == 1 else {})).items():
            before, taken, after = _timed(read), _timed(way), _timed(read)
            if turn:  # the first round warms up
                times[name].append(taken)
                reads[name].append((before + after) / 2)
    floor = [value for column in reads.values() for value in column]
    print("\n| what | median ms | fastest ms | ratio to the reads beside it |\n|---|---|---|---|")
    print(f"| one read | {statistics.median(floor) * 1e3:.1f} | {min(floor) * 1e3:.1f} | 1 |")
    for name in (*ways, *slow):
        ratio = statistics.median(own / beside for own, beside in zip(times[name], reads[name], strict=True))
        print(f"| {name} | {statistics.median(times[name]) * 1e3:.1f} | {min(times[name]) * 1e3:.1f} | {ratio:.2f} |")


def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def on_cuda(tensors: list[Any], rounds: int) -> None:
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copied = statistics.median(_on_device(lambda: target.copy_(source)) for _ in range(20))
    floor = size / (2 * source.numel() / copied)
    print(f"{torch.cuda.get_device_name()}: copies at {2 * source.numel() / copied / 1e9:.0f} GB/s;", end=" ")
    print(f"one read of {size / 1e6:.0f} MB at that rate {floor * 1e6:.0f} µs")
    print("\n| what | device µs | caller µs | ratio to one read |\n|---|---|---|---|")
    ways: dict[str, Callable[[], Any]] = {
        "scalars": lambda: tensor_statistics(tensors),
        "scalars and sketch": lambda: tensor_statistics(tensors, sketch=True),
        "torch._foreach_norm": lambda: torch._foreach_norm(tensors),
    }
    for name, way in ways.items():
        way(), torch.cuda.synchronize()
        device = statistics.median(_on_device(way) for _ in range(rounds))
        caller = []
        for _ in range(rounds):
            caller.append(_timed(way))
            torch.cuda.synchronize()
        times = (device * 1e6, statistics.median(caller) * 1e6)
        print(f"| {name} | {times[0]:.0f} | {times[1]:.0f} | {device / floor:.2f} |")
    loop = statistics.median(_timed(lambda: naive(tensors)) for _ in range(3))
    print(f"| naive loop with .item() | | {loop * 1e6:.0f} | {loop / floor:.2f} |")
    torch.cuda.set_sync_debug_mode("error")
    try:
        pending = tensor_statistics(tensors), tensor_statistics(tensors, sketch=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for answer in pending:
        answer.result()
    print("\nno call waited for the device (set_sync_debug_mode)")


def _on_device(call: Callable[[], Any]) -> float:
    """Seconds between two events around the call; work queued in between is the call's."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", default="float32", help="float32, bfloat16, float16")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    dtype = getattr(torch, options.dtype)
    tensors = [(torch.randn(shape) * 1e-3).to(options.device, dtype) for shape in shapes()]
    total = sum(tensor.numel() for tensor in tensors)
    print(
        f"{len(tensors)} tensors, {total / 1e6:.1f} million values, {options.dtype}, torch {torch.__version__}, ",
        end="",
    )
    print(f"{options.device}" + (f", {options.threads} threads" if options.device == "cpu" else ""))
    (on_cpu if options.device == "cpu" else on_cuda)(tensors, options.rounds)


if __name__ == "__main__":
    main()
