"""What logging an image costs the loop, beside a copy of the array and beside writing a PNG in the loop.

    python benchmarks/media.py [--images 300] [--size 256]

In:   noise as images, which compress badly: the dearest case.
Out:  a table: median, mean, 99th percentile and longest time of a call; processor time of the process an image.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import barograph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--size", type=int, default=256)
    options = parser.parse_args()
    size = options.size
    images = np.random.default_rng(0).integers(0, 256, (options.images, size, size, 3), np.uint8)
    print(f"{options.images} images of {size} × {size} × 3, one each 20 ms")
    print(f"{'':24} {'median':>9} {'mean':>9} {'99%':>9} {'longest':>9}  CPU an image")
    with tempfile.TemporaryDirectory() as folder:
        show("array.copy()", images, lambda image, step: image.copy())
        with barograph.init(project="p", dir=folder, verbosity=-2, git=False, sidecar=False) as run:
            show("run.log_image", images, lambda image, step: run.log_image("noise", image, step), run.flush)
        show("PNG by Pillow in the loop", images, write)


def show(name: str, images: Any, call: Callable[[Any, int], Any], after: Callable[[], Any] = lambda: None) -> None:
    took, busy = [], time.process_time()
    for step, image in enumerate(images):
        began = time.perf_counter()
        call(image, step)
        took.append(time.perf_counter() - began)
        time.sleep(max(0.0, 0.02 - took[-1]))
    after()
    busy = time.process_time() - busy
    spans = np.array(took) * 1e6
    figures = (np.median(spans), spans.mean(), np.percentile(spans, 99), spans.max())
    print(f"{name:24} " + " ".join(f"{value:7.0f}µs" for value in figures) + f"  {busy / len(images) * 1e3:.2f} ms")


def write(image: Any, step: int) -> None:
    from PIL import Image

    Image.fromarray(image).save(io.BytesIO(), format="PNG")


if __name__ == "__main__":
    main()
