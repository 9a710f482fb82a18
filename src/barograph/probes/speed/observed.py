"""Counts the FLOPs of a model by watching a forward pass, where its shapes don't tell them.

In:   any torch model; token numbers that are made up here, or the inputs of the training's own first step.
Out:  FLOPs a token in the three parts, as `flops.parts` gives them for an `Architecture`.

Products are counted as they are made, two FLOPs a multiplication and three passes: forward, and backward for the
input and for the weight, as all formulas count. What the mask of `scaled_dot_product_attention` hides is not counted;
attention that is written out by hand is counted as it is computed, the whole square.
"""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from barograph.probes.speed.architecture import FlopsError
from barograph.probes.speed.counting import grouped_products, hidden_share, is_unseen_product, unwrap
from barograph.probes.speed.flops import FlopsParts

_PASSES = 3
_ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def forward_parts(model: Any, sequence: int) -> FlopsParts:
    """FLOPs a token of a forward pass over one made-up sequence, without gradients, as the model stands.

    Hooks are not called; buffers and random numbers are as before afterwards. FlopsError where the model does not
    take token numbers, is sharded, or multiplies by an operator that has no count.
    """
    import torch

    model = unwrap(model)
    tables = [item for item in model.modules() if isinstance(item, torch.nn.Embedding)]
    if not tables:
        raise FlopsError("the model has no embedding of tokens.")
    if any(isinstance(item, torch.nn.SyncBatchNorm) for item in model.modules()) or any(
        hasattr(item, "device_mesh") or hasattr(item, "_handle") for item in model.parameters()
    ):
        raise FlopsError("the model is sharded or exchanges values with other ranks.")
    device = tables[0].weight.device
    tokens = (torch.arange(sequence, device=device) % min(table.num_embeddings for table in tables))[None]
    cuda = [device.index] if device.type == "cuda" and device.index is not None else []
    costs = _Costs(model)
    try:
        with _untouched(model), torch.random.fork_rng(devices=cuda), torch.no_grad(), _watched(costs, made_up=True):
            model(tokens)
    except FlopsError:
        raise
    except Exception as error:
        raise FlopsError(f"the model can't be called with token numbers alone ({type(error).__name__}).") from error
    return costs.parts(sequence)


def at_first_step(
    model: Any, done: Callable[[FlopsParts], Any], failed: Callable[[FlopsError], None]
) -> Callable[[], None]:
    """Count the first forward pass that the training itself makes, by watching it; nothing is run for it.

    A token is a sample where the inputs hold no whole numbers. Returns what gives up and says so. FlopsError for a
    compiled model: what watches it can't be compiled.
    """
    import torch

    for item in model.modules():
        if hasattr(item, "_orig_mod") or getattr(item, "_compiled_call_impl", None) is not None:
            raise FlopsError("the model is compiled; call run.speed_of_light with the model as it was before.")
    costs, watch = _Costs(model), contextlib.ExitStack()
    state: dict[str, Any] = {"tokens": None, "handles": []}

    def stop() -> None:
        for handle in state["handles"]:
            handle.remove()
        state["handles"] = []

    def before(module: Any, inputs: Any, keywords: Any) -> None:
        if torch.compiler.is_compiling() or state["tokens"] is not None:
            return
        if torch.is_grad_enabled() and module.training:
            state["tokens"] = _tokens((*inputs, *keywords.values()))
            watch.enter_context(_watched(costs))

    def after(module: Any, inputs: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or state["tokens"] is None:
            return
        watch.close()
        stop()
        try:
            if output is None:
                raise FlopsError("the first forward pass failed.")
            done(costs.parts(state["tokens"]))
        except FlopsError as error:
            failed(error)

    def give_up() -> None:
        if state["handles"]:
            stop()
            failed(FlopsError("no forward pass of the model was seen, or only of the compiled model."))

    state["handles"] = [
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.register_forward_hook(after, always_call=True),
    ]
    return give_up


@contextlib.contextmanager
def _untouched(model: Any) -> Iterator[None]:
    """The model without its hooks; its buffers are the same after as before."""
    import torch

    hooks = [(item, name, getattr(item, name)) for item in model.modules() for name in _HOOKS]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # one operator that has no count
    for item, name, _ in hooks:
        setattr(item, name, OrderedDict())
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for item, name, before in hooks:
            setattr(item, name, before)
        with torch.no_grad():
            for buffer, value in buffers:
                if buffer.shape == value.shape:
                    buffer.data.copy_(value)


def _tokens(values: tuple[Any, ...]) -> int:
    """Token numbers in a model's inputs; else its samples."""
    import torch

    found = [
        item
        for value in values
        for item in (value.values() if isinstance(value, Mapping) else (value,))
        if isinstance(item, torch.Tensor) and item.numel() and item.dim()
    ]
    whole = [item for item in found if not item.is_floating_point() and item.dim() > 1]
    if whole:
        return int(whole[0].numel())
    return int(found[0].shape[0]) if found else 0


class _Costs:
    """FLOPs of products seen in one forward pass, by part; `unseen` are operators without a count."""

    def __init__(self, model: Any):
        import torch
        from torch.utils.flop_counter import flop_registry

        self._counts = dict(flop_registry) | grouped_products()
        tables = [item.num_embeddings for item in model.modules() if isinstance(item, torch.nn.Embedding)]
        self._vocabulary = max(tables, default=0)
        self.found = {"blocks": 0.0, "lm_head": 0.0, "attention": 0.0}
        self.unseen: set[str] = set()

    def attention(self, named: Mapping[str, Any]) -> None:
        """A call of attention, by the names of its arguments."""
        try:
            query, key, value = named["query"], named["key"], named["value"]
            mask = named.get("attn_mask", named.get("attn_bias"))
            seen = 1.0 - hidden_share(query, key, mask, bool(named.get("is_causal")))
            pairs = math.prod(query.shape[:-1]) * key.shape[-2]
            self.found["attention"] += 2.0 * pairs * (query.shape[-1] + value.shape[-1]) * seen
        except Exception:  # in the training's own step nothing is raised
            self.unseen.add("scaled_dot_product_attention")

    def operator(self, function: Any, args: Any, kwargs: Any, output: Any) -> None:
        """An operator that has been run."""
        packet = function._overloadpacket
        name = str(packet).rpartition(".")[2]
        if name.startswith("_scaled_dot_product"):
            self.attention(
                dict(zip((argument.name for argument in function._schema.arguments), args, strict=False)) | kwargs
            )
        elif packet in self._counts:
            try:
                flops = float(self._counts[packet](*args, **kwargs, out_val=output))
                self.found[_part(name, args, output, self._vocabulary)] += flops
            except Exception:
                self.unseen.add(name)
        elif is_unseen_product(name):
            self.unseen.add(name)

    def parts(self, tokens: int) -> FlopsParts:
        """FLOPs a token, of three passes."""
        if self.unseen:
            raise FlopsError(f"torch has no count for {', '.join(sorted(self.unseen))}.")
        if not tokens or not sum(self.found.values()):
            raise FlopsError("the forward pass makes no products over tokens or samples.")
        return FlopsParts(*(_PASSES * value / tokens for value in self.found.values()))


@contextlib.contextmanager
def _watched(costs: _Costs, made_up: bool = False) -> Iterator[None]:
    """Products made in here are counted. made_up: the token numbers are ours, so a table may have too few entries."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

    paused: list[Any] = []  # within an attention call that is counted as a whole

    class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            is_lookup = made_up and str(function._overloadpacket) == "aten.embedding"
            if is_lookup and int(args[1].max()) >= args[0].shape[0]:  # on a GPU it would end the process
                raise FlopsError("a table has fewer entries than the sequence has tokens.")
            output = function(*args, **kwargs)
            if not paused:
                costs.operator(function, args, kwargs, output)
            return output

    class Calls(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if function is not torch.nn.functional.scaled_dot_product_attention:
                return function(*args, **kwargs)
            paused.append(function)
            try:
                output = function(*args, **kwargs)
            finally:
                paused.pop()
            with _disable_current_modes():
                costs.attention(dict(zip(_ATTENTION, args, strict=False)) | kwargs)
            return output

    eager = torch.compiler.set_stance("force_eager")  # compiled parts are run as they are written
    with eager, Products(), Calls():  # type: ignore[no-untyped-call]
        yield


def _part(name: str, args: Any, output: Any, vocabulary: int) -> str:
    """Which part a product belongs to: the head makes logits; scores and what they mix are square in the sequence."""
    if vocabulary and output.shape[-1] == vocabulary and name != "bmm":
        return "lm_head"
    if name in ("bmm", "baddbmm"):
        left, right = args[-2:] if name == "bmm" else args[1:3]
        scores = output.shape[-2] == output.shape[-1] != left.shape[-1]
        if scores or left.shape[-2] == left.shape[-1] != right.shape[-1]:
            return "attention"
    return "blocks"
