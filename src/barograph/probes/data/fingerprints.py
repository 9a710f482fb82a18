"""Fingerprints of batches, and a window that remembers which were seen.

In:   arrays of token ids (NumPy, or torch on any device), one sequence a row.
Out:  64-bit numbers that are the same for the same tokens on every machine, and where one was seen before.

A row's fingerprint is the sum of its values times fixed odd 64-bit weights, modulo 2^64, stirred. A sum of
products is a universal hash (Carter and Wegman 1979; Dietzfelbinger 1996 for arithmetic modulo 2^w), runs at the
speed of memory, and is the same in NumPy on a CPU and in torch on a GPU. A batch's fingerprint is the like sum over
its stirred rows. Integers count by value, whatever their width; floats by their bits.
"""

from __future__ import annotations

import base64
import zlib
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any, NamedTuple

CHUNK = 65_536  # weights there are; longer rows are cut into chunks
_MASK = (1 << 64) - 1
# increments of splitmix64 (Steele, Lea and Flood 2014) and of two more Weyl sequences
_GOLDEN, _WIDTH, _COUNT = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0x8CB92BA72F3D8DD7

_weights: Any = None
_device_weights: dict[Any, Any] = {}


def weights(count: int) -> Any:
    """The first `count` odd weights, as int64 (NumPy): splitmix64 of 1, 2, 3, …"""
    global _weights
    import numpy

    made = _weights
    if made is None or len(made) < count:
        size = max(4096, 1 << (count - 1).bit_length())
        places = numpy.arange(1, size + 1, dtype=numpy.uint64) * numpy.uint64(_GOLDEN)
        made = (_stir(places) | numpy.uint64(1)).view(numpy.int64)
        _weights = made
    return made[:count]


def _stir(values: Any) -> Any:
    """splitmix64's finaliser over an array of uint64."""
    import numpy

    values = (values ^ (values >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return values ^ (values >> numpy.uint64(31))


def host_sums(array: Any) -> Any:
    """Weighted sums of a (rows, columns) NumPy array, int64 of shape (rows, chunks). Costs about one read of it."""
    import numpy

    whole = _whole(array)
    parts = [
        numpy.einsum("ij,j->i", part, weights(part.shape[1]), dtype=numpy.int64, casting="unsafe")
        for part in (whole[:, at : at + CHUNK] for at in range(0, max(1, whole.shape[1]), CHUNK))
    ]
    return parts[0][:, None] if len(parts) == 1 else numpy.stack(parts, axis=1)


def _whole(array: Any) -> Any:
    """An array as integers: floats by their bits, everything else by value."""
    if array.dtype.kind == "f":
        return array.view({2: "i2", 4: "i4"}.get(array.dtype.itemsize, "i8"))
    return array.view("i1") if array.dtype.kind == "b" else array


def device_sums(tensor: Any) -> Any:
    """The same for a torch tensor, queued on its device: nothing is waited for. The sums are exact, so equal."""
    import torch

    if tensor.dtype.is_floating_point:
        tensor = tensor.view({1: torch.int8, 2: torch.int16, 4: torch.int32}.get(tensor.element_size(), torch.int64))
    columns = tensor.shape[1]
    own = _device_weights.get((tensor.device, CHUNK))
    if own is None:  # all of them at once: the first batch on a device waits for this copy, no other does
        own = torch.from_numpy(weights(CHUNK).copy()).to(tensor.device)
        _device_weights[tensor.device, CHUNK] = own
    parts = [
        (part.to(torch.int64) * own[: part.shape[1]]).sum(1)
        for part in (tensor[:, at : at + CHUNK] for at in range(0, max(1, columns), CHUNK))
    ]
    return torch.stack(parts, 1)


def combine(sums: Any, columns: int) -> tuple[int, Any]:
    """A batch's fingerprint and its rows' (uint64) from the weighted sums of rows that are `columns` long."""
    import numpy

    sums = numpy.ascontiguousarray(sums).view(numpy.uint64)
    rows = _stir(sums[:, 0] + numpy.uint64(columns * _WIDTH & _MASK))
    for chunk in range(1, sums.shape[1]):
        rows = _stir(rows * numpy.uint64(_GOLDEN) + sums[:, chunk])
    total = int((rows * weights(len(rows)).view(numpy.uint64)).sum(dtype=numpy.uint64))
    return _stir_one(total + len(rows) * _COUNT), rows


def _stir_one(value: int) -> int:
    value &= _MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


def fingerprint(batch: Any) -> int:
    """The fingerprint of a two-dimensional NumPy array or torch tensor. Waits for the device it is on."""
    if hasattr(batch, "untyped_storage"):
        sums = device_sums(batch).cpu().numpy() if batch.device.type != "cpu" else host_sums(host_array(batch))
    else:
        sums = host_sums(batch)
    return combine(sums, batch.shape[1])[0]


def host_array(tensor: Any) -> Any:
    """A torch CPU tensor as the NumPy array on the same memory; types that NumPy lacks by their bits."""
    tensor = tensor.detach()
    if tensor.dtype.is_floating_point and str(tensor.dtype) not in ("torch.float16", "torch.float32", "torch.float64"):
        import torch

        tensor = tensor.view(torch.int16 if tensor.element_size() == 2 else torch.int8)
    return tensor.numpy()


# ---------------------------------------------------------------------------------------------
# What was seen


class SeenBatches(NamedTuple):
    """When a batch was seen last, and in which epoch (None: not told)."""

    step: int
    epoch: int | None
    tokens_before: int


class BatchWindow:
    """The last `size` different batches by fingerprint."""

    def __init__(self, size: int):
        self.size = max(1, size)
        self._seen: OrderedDict[int, SeenBatches] = OrderedDict()  # oldest first

    def __len__(self) -> int:
        return len(self._seen)

    def see(self, mark: int, batches: SeenBatches) -> SeenBatches | None:
        """Remember a fingerprint; where it was seen before, if it was."""
        before = self._seen.pop(mark, None)
        self._seen[mark] = batches
        if len(self._seen) > self.size:
            self._seen.popitem(last=False)
        return before

    def forget_from(self, step: int) -> int | None:
        """Forget what was seen at `step` or later. Tokens seen before the first of them, or None if there is none."""
        late = [(mark, seen) for mark, seen in self._seen.items() if seen.step >= step]
        for mark, _ in late:
            del self._seen[mark]
        return min((seen.tokens_before for _, seen in late), default=None)

    def state(self) -> dict[str, str]:
        """As text for a checkpoint's metadata: some 11 bytes a batch, 8 of them the fingerprint itself."""
        import numpy

        entries = list(self._seen.values())
        marks = numpy.array(list(self._seen), numpy.uint64)
        epochs = [_NO_EPOCH if entry.epoch is None else entry.epoch for entry in entries]
        return {
            "fingerprints": base64.b64encode(marks.astype("<u8").tobytes()).decode(),
            "steps": _pack([entry.step for entry in entries]),
            "epochs": _pack(epochs),
            "tokens_before": _pack([entry.tokens_before for entry in entries]),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """What `state` gave. Raises ValueError, and changes nothing, if it is damaged."""
        import numpy

        try:
            marks = numpy.frombuffer(base64.b64decode(state["fingerprints"], validate=True), "<u8").tolist()
            columns = [_unpack(state[name]) for name in ("steps", "epochs", "tokens_before")]
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise ValueError(f"the window of fingerprints is damaged ({type(error).__name__})") from None
        if any(len(column) != len(marks) for column in columns):
            raise ValueError("the window of fingerprints is damaged (its columns differ in length)")
        self._seen = OrderedDict(
            (mark, SeenBatches(step, None if epoch == _NO_EPOCH else epoch, tokens))
            for mark, step, epoch, tokens in list(zip(marks, *columns, strict=True))[-self.size :]
        )


_NO_EPOCH = -(1 << 62)


def _pack(values: list[int]) -> str:
    """Whole numbers as text: differences (steps go up by one), packed."""
    import numpy

    steps = numpy.diff(numpy.array(values, "<i8"), prepend=numpy.int64(0))
    return base64.b64encode(zlib.compress(steps.astype("<i8").tobytes(), 6)).decode()


def _unpack(text: str) -> list[int]:
    import numpy

    # a limit: a damaged text must not unpack to gigabytes
    raw = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), 64 << 20)
    return [int(value) for value in numpy.cumsum(numpy.frombuffer(raw, "<i8"), dtype=numpy.int64)]


class SeenRows:
    """Rows by fingerprint, each with the batch that had it last: how many of a batch came before in the same epoch.

    Where no epoch is given, another one begins with a batch of which more than a tenth came before, each of them a
    quarter of the epoch ago or longer (the median), after 32 batches of whose rows less than a tenth did: a loader
    without replacement goes through its rows once. Rows of a small set that are mixed in come again sooner, and so does
    a batch that is used twice.
    """

    def __init__(self, size: int = 65_536):
        self.size = size
        # a plain dict finds its oldest key the slower, the more were taken out
        self._last: OrderedDict[int, int] = OrderedDict()
        self._batch, self._began = 0, 1
        self._shares: deque[float] = deque(maxlen=32)  # of the rows of a batch, that came before
        self._epoch: int | None = None

    def see(self, marks: list[int], epoch: int | None) -> int:
        """Remember the rows of a batch, and count those that came before. epoch: None where it is not given."""
        self._batch += 1
        if epoch != self._epoch:
            self._epoch, self._began = epoch, self._batch
        ages = sorted(
            self._batch - last for mark in marks if (last := self._last.get(mark, 0)) and last >= self._began
        )  # fmt: skip
        share = len(ages) / max(1, len(marks))
        old = share > _HARDLY and 4 * ages[len(ages) // 2] >= self._batch - self._began
        quiet = len(self._shares) == self._shares.maxlen and sum(self._shares) <= _HARDLY * len(self._shares)
        if epoch is None and old and quiet:
            self._began, share = self._batch, 0.0
        self._shares.append(share)
        repeated = 0
        for mark in marks:
            repeated += self._last.get(mark, 0) >= self._began
            self._last[mark] = self._batch
        while len(self._last) > self.size:
            self._last.popitem(last=False)
        return repeated

    def clear(self) -> None:
        """Forget all rows: the run went back."""
        self._last.clear()
        self._shares.clear()
        self._began = self._batch + 1


_HARDLY = 0.1  # of the rows
