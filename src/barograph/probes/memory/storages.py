"""Where the bytes of tensors lie, each storage counted once.

In:   torch tensors of any kind: views, tied parameters, DTensors, quantised ones, sparse, meta, paged.
Out:  for each storage not seen before its bytes, and whether they are on a device, managed, pinned or pageable.

Nothing here imports torch or a library on top of it: whoever holds a tensor has loaded what it needs, and
tensors of other libraries are known by what they can do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

PLACES = ("device", "managed", "pinned", "pageable")
_DEPTH = 6  # state nested deeper is not an optimizer's


class Holding(NamedTuple):
    """One storage: `key` is the same for every tensor on it."""

    key: tuple[str, int]
    place: str
    bytes: int


def is_tensor(value: Any) -> bool:
    """Whether a value is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    return isinstance(kind, type) and isinstance(value, kind)


def plain_tensors(tensor: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """The tensors with storage behind one tensor: the local shard of a DTensor, the inner tensors of a
    quantised one, the indices and values of a sparse one; usually the tensor itself."""
    flatten = getattr(type(tensor), "__tensor_flatten__", None)
    if flatten is not None and depth:
        for name in tensor.__tensor_flatten__()[0]:
            inner = getattr(tensor, name, None)
            if is_tensor(inner):
                yield from plain_tensors(inner, depth - 1)
        return
    layout = str(getattr(tensor, "layout", "torch.strided"))
    if layout == "torch.sparse_coo":
        yield tensor._indices()
        yield tensor._values()
    elif layout in ("torch.sparse_csr", "torch.sparse_bsr"):
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif layout in ("torch.sparse_csc", "torch.sparse_bsc"):
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    else:
        yield tensor


def holdings(tensor: Any) -> list[Holding]:
    """The storages behind a tensor. A storage counts whole, however small the view; meta tensors hold none.

    A tensor that can't be asked (a freed or foreign one) holds nothing; never raises.
    """
    result = []
    try:
        for plain in plain_tensors(tensor):
            holding = _holding(plain)
            if holding is not None and holding.bytes > 0:
                result.append(holding)
    except Exception:
        return result
    return result


def _holding(tensor: Any) -> Holding | None:
    if tensor.device.type == "meta":
        return None
    try:
        storage = tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # opaque layouts such as mkldnn have none to show
        return Holding((str(tensor.device), id(tensor)), _place(tensor), tensor.numel() * tensor.element_size())
    if storage.device.type == "meta":  # a fake tensor: it says a device and has no bytes there
        return None
    # two storages may share memory (`from_numpy` twice): the address tells, the object only where there is none
    return Holding((str(tensor.device), storage.data_ptr() or storage._cdata), _place(tensor), storage.nbytes())


def _place(tensor: Any) -> str:
    """Surogate's four places. Paged tensors of bitsandbytes are CUDA managed memory that says it is on the CPU."""
    if getattr(tensor, "is_paged", False) is True:
        return "managed"
    if tensor.device.type != "cpu":
        return "device"
    if _can_pin() and tensor.is_pinned():
        return "pinned"
    return "pageable"


def _can_pin() -> bool:
    """Whether memory may be pinned at all: asking a tensor would otherwise start the accelerator."""
    torch = sys.modules.get("torch")
    return any(
        started is not None and started()
        for name in ("cuda", "xpu")
        if (started := getattr(getattr(torch, name, None), "is_initialized", None)) is not None
    )


def tensors_in(value: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """Every tensor in nested mappings, lists and tuples."""
    if is_tensor(value):
        yield value
    elif depth and isinstance(value, Mapping):
        for item in list(value.values()):
            yield from tensors_in(item, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item, depth - 1)
