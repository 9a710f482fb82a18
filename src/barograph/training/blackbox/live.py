"""A look at a model as it is now: which of its weights, buffers, gradients and optimizer state are not finite.

In:   a torch model and its optimizers, when a run has gone wrong.
Out:  the first of each kind in the model's order (of gradients the last: backward comes from the output).

It waits for the device, so it is never called in a healthy training, and its caller bounds its time. It is called by
the thread that trains, or while that one waits: gradients that a backward pass replaces meanwhile crash the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barograph.probes.model.blocks import plain
from barograph.probes.model.norms import norms
from barograph.probes.model.parameters import local
from barograph.training.blackbox.nonfinite import Bad


def look(model: Any, optimizers: Iterable[Any], step: int, give: Callable[[Bad], Any]) -> None:
    """Call `give` with each kind's first tensor that is not finite, as it is found. Raises what torch raises."""
    import torch

    with torch.no_grad():
        weights = {plain(name): parameter for name, parameter in model.named_parameters()}
        gradients = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}

        def give_weight(bad: Bad) -> None:  # a step with bad gradients spoils all of them: no cause any more
            spoiled = bad.layers > 1 and bad.layers >= len(gradients)
            give(bad._replace(what="weight") if spoiled else bad)

        _give("weight before", weights, step, give_weight)
        _give("gradient", dict(reversed(gradients.items())), step, give)
        _give("buffer", {plain(name): buffer for name, buffer in model.named_buffers()}, step, give)
        names = {id(parameter): name for name, parameter in weights.items()}
        for optimizer in optimizers:
            states = {}
            for parameter, state in optimizer.state.items():
                for part, value in state.items() if isinstance(state, Mapping) else ():
                    if hasattr(value, "is_floating_point"):
                        states[f"{names.get(id(parameter), 'a parameter of others')} {part}"] = value
            _give("optimizer state", states, step, give)


def _give(what: str, tensors: Mapping[str, Any], step: int, give: Callable[[Bad], Any]) -> None:
    import torch

    chosen = {name: local(tensor) for name, tensor in tensors.items() if _has_numbers(tensor)}
    found = norms(list(chosen.values())).cpu()
    suspects = [name for name, norm in zip(chosen, found.tolist(), strict=True) if not abs(norm) < float("inf")]
    bad = []
    for name in suspects:  # a norm may overflow where no element does
        tensor = chosen[name]
        values = tensor.coalesce().values() if tensor.is_sparse else tensor
        if not bool(torch.isfinite(values).all()):
            bad.append((name, values))
    if bad:
        name, values = bad[0]
        kinds = [text for text, is_so in (("NaN", values.isnan().any()), ("Infinity", values.isinf().any())) if is_so]
        give(Bad(step, what, name, "", " and ".join(kinds), len(bad)))


def _has_numbers(tensor: Any) -> bool:
    return bool(
        (tensor.is_floating_point() or tensor.is_complex())
        and not tensor.is_meta
        and tensor.numel()
        and tensor.element_size() >= 2
    )
