"""A model's parameters as a watch sees them: their names, what of them is here, and who updates them.

In:   a torch model and its optimizers.
Out:  names without wrappers (the same for a plain, a compiled, a DDP and an FSDP model), local tensors.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.probes.autograd import is_here
from barograph.probes.model.blocks import plain

if TYPE_CHECKING:
    from torch import Tensor


_COPIES = 2  # parameters, at least, of an optimizer that holds copies


def joined(models: Any) -> Any:
    """Several models, in a list, as one; anything else as it is."""
    if isinstance(models, (list, tuple)) and models and all(hasattr(model, "_modules") for model in models):
        from torch.nn import ModuleList

        return ModuleList(models) if len(models) > 1 else models[0]
    return models


def trainable(model: Any) -> dict[str, Any]:
    """{name: parameter} of those that learn, a tied one once: floating point or complex, not on meta."""
    result = {}
    for name, parameter in model.named_parameters():
        kind = parameter.dtype
        if parameter.requires_grad and not parameter.is_meta and (kind.is_floating_point or kind.is_complex):
            result[plain(name)] = parameter
    return result


def local(tensor: Any) -> Tensor:
    """What of a tensor is in this process, as real numbers: the shard of a DTensor; a complex one as pairs; of one
    whose memory is let go of, nothing."""
    tensor = tensor.detach()
    if mesh_of(tensor) is not None:
        tensor = tensor.to_local()
    if tensor.is_complex():
        import torch

        tensor = torch.view_as_real(tensor.resolve_conj())
    result: Tensor = tensor if is_here(tensor) else tensor.new_empty(0)
    return result


def own(module: Any, name: str) -> Any:
    """A parameter of a module itself; None where it has none of this name."""
    mine = module._parameters
    return mine[name] if name in mine else None  # noqa: SIM401 (TorchScript's table has no `get`)


class Known:
    """Knows a tensor again, and does not keep it: by its storage, which is referred to weakly. Torch swaps no tensor to
    which anything refers weakly (https://docs.pytorch.org/docs/stable/generated/torch.utils.swap_tensors.html), and
    that is one of its ways to give a model another type."""

    __slots__ = ("_number", "_storage")

    def __init__(self, tensor: Any):
        from torch.multiprocessing.reductions import StorageWeakRef

        self._number, self._storage = id(tensor), None
        with contextlib.suppress(NotImplementedError, RuntimeError):  # none of its own, as a sparse one
            self._storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call, unused-ignore]

    def __call__(self, tensor: Any) -> bool:
        """Whether it is this one."""
        known = self._storage
        return bool(
            known is not None
            and self._number == id(tensor)
            and tensor.untyped_storage()._cdata == known.cdata
            and not known.expired()  # type: ignore[no-untyped-call, unused-ignore]
        )


PLACE = re.compile(r"^w?p(?:os|e)(?:_|$)|pos_?emb|position", re.I)
"""Names of what is added to tokens by their place."""


def whole(parameters: Sequence[Any]) -> bool:
    """Whether there are parameters, and none is sharded: FSDP2 keeps gradients elsewhere until the last micro-batch."""
    return bool(parameters) and mesh_of(parameters[0]) is None


def mesh_of(tensor: Any) -> Any:
    """The device mesh of a DTensor; None of any other tensor."""
    module = sys.modules.get("torch.distributed.tensor")  # where it was never imported there is no DTensor
    if module is None or not isinstance(tensor, module.DTensor):
        return None
    return tensor.device_mesh


def has_small_gradient(parameter: Any, least: int, most: int) -> bool:
    """Whether a parameter has a dense gradient of few elements, all of it here, of which a copy is soon made."""
    import torch

    gradient = parameter.grad
    return (
        gradient is not None
        and gradient.layout == torch.strided
        and least <= gradient.numel() <= most
        and mesh_of(parameter) is None
    )


def flat(tensor: Tensor) -> Tensor:
    """A dense tensor's elements in one dimension, without a copy where its memory has no gaps."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    if tensor.numel() and reach == tensor.numel():  # transposed or channels last: order is of no matter here
        return tensor.as_strided((tensor.numel(),), (1,))
    return tensor.reshape(-1)


def spread(tensor: Tensor, most: int) -> Tensor:
    """Some elements of a dense tensor, at even distances: `most` of them, or all."""
    line = flat(local(tensor.detach()))
    return line[:: max(1, -(-len(line) // most))]


class Owned(NamedTuple):
    """The watched parameters that one optimizer updates, with the number of their group there."""

    names: tuple[str, ...]
    parameters: tuple[Any, ...]
    groups: tuple[int, ...]


def owned(optimizer: Any, names: dict[int, str]) -> Owned:
    """Those of an optimizer's parameters that have a name (by id), in its order."""
    found = [
        (names[id(parameter)], parameter, number)
        for number, group in enumerate(optimizer.param_groups)
        for parameter in group["params"]
        if id(parameter) in names
    ]
    columns = list(zip(*found, strict=True)) or [(), (), ()]
    return Owned(*columns)


def copied(optimizer: Any, names: dict[int, str], parameters: Sequence[Any]) -> Owned:
    """An optimizer's parameters under the names of these, in the order of these, where it holds one of each one's shape
    and nothing else, two or more, all of other tensors; else nothing. Those of one shape are in one order. names: by
    id."""
    held = [(one, number) for number, group in enumerate(optimizer.param_groups) for one in group["params"]]
    by_shape: dict[tuple[int, ...], list[tuple[Any, int]]] = {}
    for one, number in held:
        by_shape.setdefault(tuple(one.shape), []).append((one, number))
    found = [by_shape[shape].pop(0) for one in parameters if by_shape.get(shape := tuple(one.shape))]
    whole = len(found) == len(held) == len(parameters) >= _COPIES
    if not whole or any(id(one) in names for one, _ in held):
        return Owned((), (), ())
    return Owned(tuple(names[id(one)] for one in parameters), *zip(*found, strict=True))


class Copies:
    """What optimizers hold instead of the watched parameters, as those that are kept in full beside weights of sixteen
    bits."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any, Owned]] = {}  # by optimizer

    def of(self, optimizer: Any, names: dict[int, str], parameters: Sequence[Any]) -> Owned:
        """`copied`, looked for anew where the optimizer, or the model, has others."""
        shape, known = shape_of((optimizer,)), self._known.get(id(optimizer))
        if known is None or known[0] != shape or known[1] is not parameters:
            known = self._known[id(optimizer)] = (shape, parameters, copied(optimizer, names, parameters))
        return known[2]


def shape_of(optimizers: Iterable[Any]) -> tuple[int, ...]:
    """Changes when parameters are added to an optimizer, or replaced: by the first, the middle, the last of a group."""
    found: list[int] = []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            some = group["params"]
            count = len(some)
            found.append(count)
            if count:
                found += (id(some[0]), id(some[count // 2]), id(some[-1]))
    return tuple(found)
