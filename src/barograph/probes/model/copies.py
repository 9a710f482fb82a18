"""Whether ranks are copies of one training: what each is given, its weights and gradients, for their comparison.

In:   the model that a rank watches; the steps at which ranks are compared.
Out:  a fingerprint of the inputs of the last pass with gradients, what tells the labels of its rows, how many layers
      are in training mode, and a fingerprint of some of the weights: numbers that are equal on ranks that have the
      same. On a device they are tensors; nothing is waited for.

A row's label is the class whose score gets the least gradient: of a cross-entropy that alone is below 0.

The first one of the weights is of those before the first step, the second one is of the gradients. Only ranks that
begin as copies can drift apart: the parts of a model that is split over ranks differ from the start. Some weights that
are frozen as the watch begins are looked at too: they may be trained later on, and a wrapper that was made before
averages no gradients of theirs.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Sequence
from typing import Any

from barograph.probes.data import labels
from barograph.probes.model.activations import first_tensor
from barograph.probes.model.doubles import has_mode
from barograph.probes.model.guest import Guest, after, before
from barograph.probes.model.parameters import mesh_of, trainable
from barograph.probes.model.row_marks import fingerprints
from barograph.probes.ranks.copies import FIRST, GRADIENTS, WEIGHTS, both_numbers

_OFTEN, _SELDOM = 12, 10  # compared steps that are all looked at; afterwards each tenth
_PARAMETERS, _ELEMENTS = 24, 256  # that are looked at, and of each of them
_FROZEN = 8  # of those that are frozen at first


class RankCopies:
    """Follows one model on one rank, until `close`."""

    def __init__(self, model: Any):
        inner = model.module if type(model).__name__ == "DistributedDataParallel" else model
        self._count = 0  # compared steps
        self._inputs: Any = None  # of the last pass of this step
        self._known: Any = None  # those of the step before: inputs that never change say nothing
        self._labels: Any = None  # of that pass's rows
        self._switched = [one for one in inner.modules() if has_mode(one)]  # layers
        self._layers = 0  # of those, how many are in training mode in the pass of this step that has most
        self._gradients: Any = None  # as the optimizer's step began: a loop may clear them before it compares
        held = list(trainable(inner).values())
        sharded = type(inner).__name__ == "FullyShardedDataParallel" or _is_fully_sharded(inner)
        split = sharded and _is_split_too(inner)
        whole = not sharded and not any(mesh_of(item) is not None or hasattr(item, "ds_id") for item in held)
        self._some = held[:: -(-len(held) // _PARAMETERS) or 1] if whole else []
        self._some += held[-1:] if self._some and self._some[-1] is not held[-1] else []  # a head is last
        self._some += _frozen_of(inner) if self._some else []
        self._first = self._of_weights()  # before the first step
        self._runs = False  # whether a pass was seen
        copies = whole or (sharded and not split)
        self._handles = [before(inner, self._see, with_kwargs=True), after(inner, self._returned)] if copies else []

    def _see(self, module: Any, given: Any, named: Any) -> None:
        """The model is about to run."""
        import torch

        if not self._looks() or not torch.is_grad_enabled():
            return
        if not self._runs:  # a loop may make ranks equal behind the call that watches
            self._first, self._runs = self._of_weights(), True
        # an evaluation with gradients may come behind the step's own pass
        trains = both_numbers(len(self._switched), sum(one.training for one in self._switched))
        self._layers = max(self._layers, trains)
        with contextlib.suppress(Exception):  # tensors of another make
            tensors = [one for one in (*given, *named.values()) if isinstance(one, torch.Tensor) and one.numel() > 1]
            self._inputs = _print([one for one in tensors[:2] if mesh_of(one) is None], varied=True)

    def _returned(self, module: Any, given: Any, output: Any) -> None:
        """The model has run."""
        with contextlib.suppress(Exception):  # an output of another make
            tensor = first_tensor(output) if self._looks() else None
            if tensor is not None and tensor.requires_grad and tensor.dim() == 2 and tensor.shape[1] > 1:
                tensor.register_hook(Guest(self._differentiated))

    def _differentiated(self, gradient: Any) -> None:
        """What the scores of each row get."""
        import torch

        with contextlib.suppress(Exception), torch.no_grad():
            if mesh_of(gradient) is None:
                target = [gradient.argmin(1)]
                self._labels = labels.on_device(target) if gradient.device.type != "cpu" else labels.host_mark(target)

    def _looks(self) -> bool:
        return self._count < _OFTEN or self._count % _SELDOM == 0

    def see_gradients(self) -> None:
        """The optimizer's step begins: gradients are averaged over ranks by now, however the loop does that."""
        if self._count == 1:
            self._gradients = self._of_gradients()

    def _of_weights(self) -> Any:
        return _print([item.detach() for item in self._some])

    def _of_gradients(self) -> Any:
        return _print([item.grad for item in self._some if item.grad is not None])

    def take(self) -> dict[str, Any]:
        """What a compared step says: `fingerprint`, `checksum`, and `checks`, what the latter is of."""
        found: dict[str, Any] = {}
        if self._looks():
            known, self._known = self._known, self._inputs
            changed = type(known) is not int or known != self._inputs
            found["fingerprint"] = self._inputs if changed else None
            kind = (FIRST, GRADIENTS)[self._count] if self._count < 2 else WEIGHTS
            if kind == GRADIENTS:
                found["checksum"] = self._of_gradients() if self._gradients is None else self._gradients
            else:
                found["checksum"] = self._of_weights() if self._count else self._first
            found["checks"] = kind if found["checksum"] is not None else None
            found["layers"] = self._layers or None
            found["labels"] = self._labels or None
        self._count += 1
        self._inputs, self._layers, self._labels = None, 0, None
        return {name: value for name, value in found.items() if value is not None}

    def restart(self) -> None:
        """The next compared step is the first: those before it were compared by others."""
        self._count, self._known, self._gradients = 0, None, None

    def close(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _frozen_of(model: Any) -> list[Any]:
    """Some of the weights that are frozen so far: plain ones, on the device of those that are trained."""
    held = list(trainable(model).values())
    plain = [item for item in model.parameters() if not item.requires_grad and item.is_floating_point()
             and not item.is_meta and mesh_of(item) is None and item.device == held[0].device]  # fmt: skip
    return plain[:: -(-len(plain) // _FROZEN) or 1]


def averaged_over(model: Any) -> dict[str, float]:
    """`averaged_ranks`: over how many ranks a wrapper averages the gradients; nothing where that can't be said."""
    with contextlib.suppress(Exception):  # another torch may be made otherwise
        if type(model).__name__ == "DistributedDataParallel" and not getattr(model, "_comm_hooks", ()):
            return {"averaged_ranks": float(model.process_group.size())}
        if _is_fully_sharded(model):
            group = model._get_fsdp_state()._fsdp_param_group
            if group is None or getattr(group, "gradient_divide_factor", None) is None:
                meshes = {mesh_of(item).size() for item in model.parameters() if mesh_of(item) is not None}
                return {"averaged_ranks": float(meshes.pop())} if len(meshes) == 1 else {}
    return {}


def _is_fully_sharded(model: Any) -> bool:
    """Whether parameters are sharded as FSDP2 does it, over ranks that have data of their own."""
    return any(kind.__name__ == "FSDPModule" for kind in type(model).__mro__)


def _is_split_too(model: Any) -> bool:
    """Whether FSDP2 shards over some ranks only, as where others have other parts of the model and the same batch."""
    import torch

    with contextlib.suppress(Exception):  # another torch may be made otherwise
        group = model._get_fsdp_state()._fsdp_param_group
        groups = [group] if group is not None else [
            inner._get_fsdp_state()._fsdp_param_group for inner in model.modules() if _is_fully_sharded(inner)
        ]  # fmt: skip
        world = torch.distributed.get_world_size()
        return any(one is not None and one.mesh_info.mesh.size() < world for one in groups)
    return False


def _print(tensors: Sequence[Any], varied: bool = False) -> Any:
    """One number of some elements of each; None where there are none, or they can't be put together. varied: where all
    of them are equal, they say nothing, and the number is one of chance."""
    import torch

    with contextlib.suppress(Exception):  # on several devices, sparse, or of another make
        if tensors:
            parts = [_some(one.detach()) for one in tensors]
            every = torch.cat(parts)
            found = fingerprints(every[None])
            if varied:
                found = torch.where((every == every[0]).all(), int.from_bytes(os.urandom(4)), found)
            return int(found.item()) if found.device.type == "cpu" else found[0]
    return None


def _some(tensor: Any) -> Any:
    """Elements from the whole of a tensor, as numbers of 32 bits: of other places in each row, so that not all are in
    the empty border of pictures."""
    flat = tensor.reshape(-1)
    each = max(1, len(flat) // _ELEMENTS)
    while math.gcd(each, len(flat)) > 1:
        each += 1
    return flat[::each][:_ELEMENTS].float()
