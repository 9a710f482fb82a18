"""Counts what a model really multiplies in one step: to check a formula, or where there is none.

In:   a torch model, the inputs of one step, and how its loss comes out.
Out:  FLOPs a token, forward and backward, by `torch.utils.flop_counter`; the `Architecture` of a model.

torch counts matrix products as they are made, so attention is made of plain ones while it counts
(SDPBackend.MATH): fused kernels on a CPU are not counted by it, and on a GPU their backward pass counts a
recomputation. A plain product computes the whole T × T rectangle; `masked=False` takes away what the mask
hides, which is what causal formulas count.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from barograph.probes.speed.architecture import Architecture, FlopsError, parameters, whole
from barograph.probes.speed.configurations import architecture, check_names

# Operators that multiply matrices, known by a part of their name; one that torch has no count for is refused.
_PRODUCTS = ("mm", "conv", "attention", "matmul", "linear", "einsum", "bmm")
_COUNTED_ELSEWHERE = ("_fused_sdp_choice", "_scaled_dot_product_attention_math", "comm", "_dim", "symm")


def count(
    model: Any,
    *inputs: Any,
    loss: Callable[[Any], Any] | None = None,
    masked: bool = True,
    tokens: int | None = None,
    **keywords: Any,
) -> float:
    """FLOPs a token of one forward and backward pass of a torch model, really run.

    inputs, keywords: what the model is called with. loss: makes a scalar of the model's output; by default
    its `loss`, else the sum of the first floating tensor in it. masked: count also the products that a mask
    hides. tokens: how many there are in these inputs; by default as many as the first tensor of whole numbers
    has entries.

    Gradients, random numbers and the mode of the model are as before when it returns. It takes one slow step
    and the memory of whole score matrices, so give it one short batch. With activation checkpointing the
    count holds what is computed again, and masked=False is refused. FlopsError if there is no loss, or a product
    that torch can't count.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    model = unwrap(model)
    number = whole(tokens, "tokens") if tokens is not None else _tokens((*inputs, *keywords.values()))
    attention = _attention_calls()
    again: list[Any] = []  # modules that run forward during the backward pass
    unseen = _unseen_products()
    counter = FlopCounterMode(display=False, custom_mapping=grouped_products())
    devices = sorted(
        {p.device.index for p in model.parameters() if p.device.type == "cuda" and p.device.index is not None}
    )
    with (
        _untouched(model),
        torch.random.fork_rng(devices=devices),
        torch.enable_grad(),
        sdpa_kernel(SDPBackend.MATH),
        unseen,
        counter,
        attention,
    ):
        result = _scalar(model(*inputs, **keywords), loss)
        hooks = [item.register_forward_pre_hook(lambda module, _: again.append(module)) for item in model.modules()]
        try:
            result.backward()
        finally:
            for hook in hooks:
                hook.remove()
    if unseen.names:
        raise FlopsError(
            f"torch has no count for {', '.join(sorted(unseen.names))}; the FLOPs of this model are not known."
        )
    total = float(counter.get_total_flops())
    if not masked:
        if not attention.calls:
            raise FlopsError(
                "the model makes no call of scaled_dot_product_attention, so what its mask hides is not known; "
                'count with masked=True, or load it with attn_implementation="sdpa".'
            )
        if again:  # torch turns the mode that sees the calls off during backward
            raise FlopsError("the model computes activations again; count with masked=True, or turn checkpointing off.")
        total -= attention.hidden
    return total / number


def unwrap(model: Any) -> Any:
    """The plain module in a compiled or a distributed one."""
    import torch

    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, torch.nn.parallel.DistributedDataParallel):
            inner = model.module
        if inner is None:
            break
        model = inner
    if not isinstance(model, torch.nn.Module):
        raise FlopsError(f"a torch model is needed, not {type(model).__name__}.")
    return model


def _tokens(values: tuple[Any, ...]) -> int:
    import torch

    for value in values:
        for item in value.values() if isinstance(value, Mapping) else (value,):
            if isinstance(item, torch.Tensor) and not item.is_floating_point() and item.numel():
                return item.numel()
    raise FlopsError("none of the inputs is a tensor of token numbers; pass tokens=.")


def _scalar(output: Any, loss: Callable[[Any], Any] | None) -> Any:
    """A scalar to go backward from."""
    import torch

    if loss is not None:
        result = loss(output)
    elif isinstance(getattr(output, "loss", None), torch.Tensor):
        result = output.loss
    else:
        result = next(_floating(output), None)
    if not isinstance(result, torch.Tensor) or not result.requires_grad:
        raise FlopsError(
            "the model's output has no loss to go backward from; pass loss=, which makes one of the output."
        )
    return result.sum()


def _floating(output: Any) -> Iterator[Any]:
    import torch

    if isinstance(output, torch.Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, Mapping):
        for item in output.values():
            yield from _floating(item)
    elif isinstance(output, (list, tuple)):
        for item in output:
            yield from _floating(item)


@contextlib.contextmanager
def _untouched(model: Any) -> Iterator[None]:
    """Gradients and buffers of the model are the same after as before."""
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for buffer, before in buffers:
            if buffer.shape == before.shape:
                buffer.data.copy_(before)


def hidden_share(query: Any, key: Any, mask: Any, causal: bool) -> float:
    """The share of the products of scores that a mask hides."""
    import torch

    rows, columns = query.shape[-2], key.shape[-2]
    if mask is None and not causal:
        return 0.0
    if mask is None:
        seen = sum(min(row + 1, columns) for row in range(rows))
        return float(1.0 - seen / (rows * columns))
    with torch.no_grad():
        open_ = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        return 1.0 - float(open_.expand(*open_.shape[:-2], rows, columns).double().mean())


def is_unseen_product(name: str) -> bool:
    """Whether an operator that torch does not count multiplies matrices, by its name."""
    return any(word in name for word in _PRODUCTS) and not any(word in name for word in _COUNTED_ELSEWHERE)


def _attention_calls() -> Any:
    """A mode that sums up, over calls of scaled_dot_product_attention, the FLOPs that their masks hide."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        calls = 0
        hidden = 0.0

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if function is torch.nn.functional.scaled_dot_product_attention:
                named = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False))
                named |= kwargs
                query, key, value = named["query"], named["key"], named["value"]
                pairs = math.prod(query.shape[:-1]) * key.shape[-2]
                passes = 3 if query.requires_grad else 1  # backward makes two products of each
                share = hidden_share(query, key, named.get("attn_mask"), bool(named.get("is_causal")))
                self.hidden += share * 2.0 * passes * pairs * (query.shape[-1] + value.shape[-1])
                self.calls += 1
            return function(*args, **kwargs)

    return Mode()


def _unseen_products() -> Any:
    """A mode that collects operators which multiply matrices and which torch's counter doesn't know."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    known = set(flop_registry) | set(grouped_products())

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
        names: frozenset[str] = frozenset()

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            packet = function._overloadpacket
            name = str(packet).rpartition(".")[2]
            if packet not in known and is_unseen_product(name):
                self.names = self.names | {name}
            return function(*args, **(kwargs or {}))

    return Mode()  # type: ignore[no-untyped-call]


def grouped_products() -> dict[Any, Any]:
    """The count for products of groups of rows with a matrix each, which mixtures of experts use."""
    import torch

    grouped = getattr(torch.ops.aten, "_grouped_mm", None)
    if grouped is None:
        return {}

    def flops(left: Any, right: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
        # (rows, k) × (groups, k, n), (groups, m, k) × (k, columns), (m, rows) × (rows, n) or a batch of products:
        # a row meets one matrix alone, so the groups don't multiply the count unless both sides have them
        batch = left[0] if len(left) == 3 and len(right) == 3 else 1
        return int(2 * batch * left[-2] * left[-1] * right[-1])

    return {grouped: flops}


# ---------------------------------------------------------------------------------------------
# The architecture of a model


def architecture_of(model: Any, sequence: int | None = None, **given: Any) -> Architecture:
    """The architecture of a torch model: from its `config`, else its `shape`, else read off its modules.

    sequence: tokens of a training sequence. given: fields of `Architecture` that you know better. A model
    without a configuration is read only if its matrices, counted one by one, come out the same; else
    FlopsError says what to pass.
    """
    check_names(given)
    model = unwrap(model)
    for name in ("config", "shape", "args"):
        config = getattr(model, name, None)
        if config is not None:
            try:
                return architecture(config, sequence, **given)
            except FlopsError:
                if name == "config" and getattr(config, "model_type", None) is not None:
                    raise
    return _read_modules(model, sequence, given)


_HEADS = ("num_heads", "n_heads", "n_head", "heads", "num_attention_heads", "nheads")
_KV_HEADS = ("num_kv_heads", "n_kv_heads", "n_kv_head", "kv_heads", "num_key_value_heads")


def _read_modules(model: Any, sequence: int | None, given: Mapping[str, Any]) -> Architecture:
    import torch

    tables = [item for item in model.modules() if isinstance(item, torch.nn.Embedding)]
    stacks = [item for item in model.modules() if isinstance(item, torch.nn.ModuleList) and len(item)]
    if not tables or not stacks:
        raise FlopsError(
            "the model has no config, and no embedding or no list of blocks to read; pass an Architecture."
        )
    table = max(tables, key=lambda item: item.num_embeddings)
    blocks = max(stacks, key=len)
    block = blocks[0]
    linears = {name: item for name, item in block.named_modules() if isinstance(item, torch.nn.Linear)}
    attention = [linear for name, linear in linears.items() if "att" in name.lower()]
    rest = [linear for name, linear in linears.items() if "att" not in name.lower()]
    heads, kv_heads = _attribute(block, _HEADS), _attribute(block, _KV_HEADS)
    heads = given.get("heads", heads)
    if heads is None:
        raise FlopsError("the number of heads is nowhere in the model; pass heads=.")
    if not attention or len(rest) not in (2, 3):
        raise FlopsError(
            "the blocks of this model are not plain attention and feed-forward layers; pass an Architecture."
        )
    if sequence is None and "sequence" not in given:
        raise FlopsError("the sequence length is nowhere in the model; pass sequence=.")
    hidden = table.embedding_dim
    width = attention[-1].in_features  # the output projection comes last, and mixes the heads' values
    keys = (sum(item.out_features for item in attention[:-1]) - width) // 2
    head_dim = width // heads
    own = {id(item) for block in blocks for item in block.modules()}
    outside = [item for item in model.modules() if isinstance(item, torch.nn.Linear) and id(item) not in own]
    tied = not outside or outside[-1].weight is table.weight
    made: dict[str, Any] = {
        "layers": len(blocks),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads if kv_heads is not None else max(1, keys // max(1, head_dim)),
        "head_dim": head_dim,
        "ffn": rest[-1].in_features,
        "vocab": table.num_embeddings,
        "sequence": sequence,
        "gated": sum(item.out_features for item in rest[:-1]) == 2 * rest[-1].in_features,
        "tied": tied,
        "positions": sum(item.num_embeddings for item in tables if item is not table and item.embedding_dim == hidden),
    }
    everything = sum(item.numel() for item in model.parameters())
    made["vectors"] = sum(item.numel() for item in model.parameters() if item.dim() == 1)
    read = Architecture(**(made | dict(given)))
    if parameters(read).total != everything:
        raise FlopsError(
            f"the model has {everything:,} parameters, and {parameters(read).total:,} by what its modules show; "
            "pass an Architecture."
        )
    return read


def _attribute(block: Any, names: tuple[str, ...]) -> int | None:
    for module in block.modules():
        for name in names:
            value = getattr(module, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None
