"""States of random number generators, and the optimizers' settings.

In:   Python's, NumPy's and torch's global generators, where those libraries are loaded; torch optimizers.
Out:  a short digest of each generator, its full state as JSON, hyper-parameters by group.

Nothing waits for a device: torch keeps a device's generator on the host, and a learning rate that is a tensor on a
device is left out.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any


def digests() -> dict[str, str]:
    """`{generator: 16 hexadecimal digits}`; equal states have equal digits, in this version of Python."""
    return {name: hashlib.blake2b(raw, digest_size=8).hexdigest() for name, raw in _raw()}


def full() -> dict[str, Any]:
    """What sets the generators to where they are now: see `docs/guides/blackbox.md`."""
    version, internal, gauss = random.getstate()
    result: dict[str, Any] = {"python": [version, list(internal), gauss]}
    for name, raw in _raw():
        if name != "python":
            result[name] = base64.b64encode(raw).decode()
    with contextlib.suppress(Exception):
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is not None:
            kind, keys, place, has_gauss, cached = numpy_random.get_state()
            result["numpy"] = [kind, keys.tolist(), int(place), int(has_gauss), float(cached)]
    return result


def _raw() -> Iterator[tuple[str, bytes]]:
    with contextlib.suppress(Exception):
        version, internal, gauss = random.getstate()
        yield "python", repr((version, gauss)).encode() + b"".join(word.to_bytes(4, "little") for word in internal)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        with contextlib.suppress(Exception):
            kind, keys, place, has_gauss, cached = numpy_random.get_state()
            yield "numpy", repr((kind, int(place), int(has_gauss), float(cached))).encode() + keys.tobytes()
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_rng_state"):
        return
    with contextlib.suppress(Exception):
        yield "torch", torch.get_rng_state().numpy().tobytes()
    with contextlib.suppress(Exception):
        if torch.cuda.is_initialized():
            for number, generator in enumerate(torch.cuda.default_generators):
                with contextlib.suppress(Exception):  # a graph is being captured
                    yield f"cuda:{number}", generator.get_state().numpy().tobytes()


def hyperparameters(optimizers: Iterable[Any]) -> list[dict[str, Any]]:
    """`[{optimizer, groups: [{lr, betas, …, parameters}]}]`: numbers, texts and lists of them."""
    result = []
    for optimizer in optimizers:
        groups = []
        for group in optimizer.param_groups:
            row = {str(name): value for name, given in group.items() if (value := _plain(given)) is not None}
            row["parameters"] = len(group["params"])
            groups.append(row)
        result.append({"optimizer": type(optimizer).__name__, "groups": groups})
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str)):
        return value
    if (
        isinstance(value, (tuple, list))
        and len(value) <= 16
        and all(isinstance(item, (bool, int, float)) for item in value)
    ):
        return list(value)
    device = getattr(value, "device", None)
    if getattr(device, "type", "") == "cpu" and getattr(value, "numel", lambda: 0)() == 1:
        return float(value)
    return None
