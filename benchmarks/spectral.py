"""Spectral norms of all of GPT-2 124M's matrices: one warm update beside one read of the weights and an SVD.

    python benchmarks/spectral.py [--rounds N] [--threads N]

"Warm" is after twenty updates; between two, as in a training, every weight moves by a normal value of 1e-5 (the
weights' own spread is 0.02). The SVD is timed on one matrix of each shape and multiplied by how many there are; the
embedding (50,257 × 768) is left out of it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from barograph.probes.model.spectral import SpectralNorms

SHAPES = [(2304, 768), (768, 768), (3072, 768), (768, 3072)] * 12 + [(50257, 768), (1024, 768)]


def timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    weights = {f"w{number}": torch.randn(shape) * 0.02 for number, shape in enumerate(SHAPES)}
    norms = SpectralNorms()
    first = timed(lambda: norms.update(weights))

    def train() -> None:
        for weight in weights.values():
            weight.add_(torch.randn_like(weight), alpha=1e-5)

    for _ in range(20):
        train()
        norms.update(weights)

    def read() -> None:
        for weight in weights.values():
            weight.sum()

    took: dict[str, list[float]] = {"one read": [], "one update": []}
    for _ in range(options.rounds):
        train()
        took["one read"].append(timed(read))
        took["one update"].append(timed(lambda: norms.update(weights)))
    floor = statistics.median(took["one read"])
    ratio = statistics.median(one / read for one, read in zip(took["one update"], took["one read"], strict=True))
    print(f"{'first update':12} once   {first:8.1f} ms   {first / floor:6.2f} × one read")
    for name, values in took.items():
        median = statistics.median(values)
        beside = ratio if name == "one update" else 1.0
        print(f"{name:12} median {median:8.1f} ms   {beside:6.2f} × one read")
    svd = sum(
        SHAPES.count(shape) * timed(lambda shape=shape: torch.linalg.svdvals(torch.randn(shape)))  # type: ignore[misc]
        for shape in dict.fromkeys(SHAPES)
        if shape[0] < 10_000
    )
    print(f"{'SVD':12} about  {svd:8.0f} ms   {svd / floor:6.0f} × one read")


if __name__ == "__main__":
    main()
