"""What a node of autograd's graph keeps for the backward pass, read without ever unpacking it.

In:   nodes of a graph.
Out:  numbers and sizes that a node keeps, and tensors that nobody has packed; what a node is computed from.

Checkpointing, and offloading to the CPU, keep something else in a tensor's place, by hooks. To read such a tensor
computes a part of the model anew, or copies it; and checkpointing lets each be read once only, so that the backward
pass of the training would fail (https://docs.pytorch.org/docs/stable/autograd.html#saved-tensors-hooks-doc). So nothing
but this module reads what a node saved.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

_MOST = 5000  # nodes of a graph that are gone through
_RAW = "_raw_saved_"


def is_packed(node: Any, name: str) -> bool:
    """Whether something else is kept in the place of the tensor, or of one of the tensors, of this name."""
    raw = getattr(node, _RAW + name)
    # older torch doesn't tell whether there is a hook: then there may be one
    return any(
        getattr(one, "unpack_hook", one) is not None for one in (raw if isinstance(raw, list | tuple) else (raw,))
    )


def packs(node: Any) -> bool:
    """Whether a node keeps something else in the place of any tensor: to go through it backwards computes that anew, or
    takes it out for good. True where that was let go of with the graph."""
    kind: Any = type(node)
    try:
        return any(is_packed(node, name) for name in _kept(kind))
    except RuntimeError:
        return True


@functools.cache
def _kept(kind: Any) -> tuple[str, ...]:
    """The names of the tensors that nodes of a kind keep."""
    return tuple(name.removeprefix(_RAW) for name in dir(kind) if name.startswith(_RAW))


def setting(node: Any, name: str, default: Any = None) -> Any:
    """A number, a truth, or sizes, that a node keeps; `default` where it keeps none, or a tensor in its place."""
    if hasattr(type(node), _RAW + name):
        return default
    try:
        return getattr(node, f"_saved_{name}", default)
    except RuntimeError:  # let go of with the graph
        return default


def has(node: Any, name: str) -> bool | None:
    """Whether a node keeps a tensor of this name; None where that was let go of with the graph."""
    if not hasattr(type(node), _RAW + name):
        return False
    try:
        return is_packed(node, name) or getattr(node, f"_saved_{name}") is not None
    except RuntimeError:
        return None


def tensor(node: Any, name: str) -> Any:
    """A tensor, or the tensors, that a node keeps; None where it keeps none, something in its place, or one whose
    memory is let go of."""
    try:
        kept = None if is_packed(node, name) else getattr(node, f"_saved_{name}")
        return kept if isinstance(kept, list | tuple) or is_here(kept) else None
    except (AttributeError, RuntimeError):  # none of this name; let go of, or changed in place
        return None


def is_here(tensor: Any) -> bool:
    """Whether a tensor has the memory of its numbers. FSDP's older kind takes it from the weights of a layer that does
    not run, and to read those ends the process."""
    if tensor is None or tensor.is_meta or not tensor.numel():
        return True
    try:
        return bool(tensor.untyped_storage().nbytes())
    except (NotImplementedError, RuntimeError):  # none of its own, as a sparse one
        return True


def nodes_under(node: Any) -> Iterator[Any]:
    """A node, and those that it is computed from, the first few thousand of them."""
    waiting, seen = [node], {node}
    while waiting and len(seen) < _MOST:
        current = waiting.pop()
        yield current
        for following, _ in current.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)


def comes_from(node: Any, source: Any) -> bool:
    """Whether a node is another one, or is computed from it."""
    return any(one is source for one in nodes_under(node))
