"""The routers of a mixture-of-experts model: where they are, and what they decided in a forward pass.

In:   a torch model; if need be the names of its routers, or a function that reads one of them.
Out:  a `Router` for each, and by `read` the logits (tokens, experts) and the chosen experts of one pass.

A router is known by its make, not by its model: either a class named …Router or …Gate that holds a
weight (experts, width), as in transformers' Mixtral, Qwen3-MoE, OLMoE and DeepSeek-V3; or a plain
linear layer called gate, router or the like beside experts of the same number.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

# What wrappers put before a module's name: DDP, torch.compile, FSDP and activation checkpointing.
_WRAPPERS = re.compile(r"(^|\.)(module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?=\.|$)")
_ROUTER_CLASS = re.compile(r"(router|gate|gating)\d*$", re.IGNORECASE)
_ROUTER_NAMES = frozenset({"gate", "router", "wg", "gating", "gate_network", "router_layer", "classifier"})
_EXPERT_COUNTS = ("num_experts", "n_routed_experts", "num_local_experts", "n_experts", "moe_num_experts")
_CHOICE_COUNTS = ("top_k", "topk", "num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "moe_k")

Extract = Callable[["nn.Module", tuple[Any, ...], Any], Any]


@dataclass(frozen=True)
class Router:
    """One router. `experts` and `top_k` are 0 if they are only known once it has run.

    `score` is how logits become probabilities: `softmax`, or `sigmoid` as in DeepSeek-V3.
    """

    name: str
    layer: str
    module: nn.Module
    experts: int
    top_k: int
    score: str
    extract: Extract | None = None


@dataclass(frozen=True)
class Decision:
    """What a router did in a pass: logits (tokens, experts); chosen (tokens, top_k) whole numbers, or None."""

    logits: Tensor
    chosen: Tensor | None


def find_routers(
    model: nn.Module,
    modules: Iterable[str | nn.Module] | Mapping[str, Extract] | None = None,
    *,
    top_k: int | None = None,
    score: str | None = None,
    extract: Extract | None = None,
) -> list[Router]:
    """The routers of a model, in the model's order.

    modules: names (also patterns such as `*.gate`) or modules, if they are not to be found by themselves;
    or a mapping from a name to a function `(module, inputs, output) -> logits | (logits, chosen)`.
    top_k, score, extract: what is the same for all, and can't be seen from the model.
    Raises ValueError for a name that the model does not have.
    """
    named = dict(model.named_modules())
    functions: dict[str, Extract] = {}
    if modules is None:
        names = [name for name in named if _is_router(name, named)]
    else:
        names = []
        for wanted in [modules] if isinstance(modules, str) else modules:
            matched = _match(wanted, named)
            names += [name for name in matched if name not in names]
            if isinstance(modules, Mapping) and isinstance(wanted, str):
                functions |= dict.fromkeys(matched, modules[wanted])
    layers = _layer_names(names, found=modules is None)
    return [
        Router(
            name,
            layers[name],
            named[name],
            0 if extract or name in functions else _experts(name, named),
            top_k if top_k is not None else _choices(name, named, model),
            score or _score(name, named, model),
            functions.get(name, extract),
        )
        for name in names
    ]


def read(router: Router, inputs: tuple[Any, ...], output: Any) -> Decision | None:
    """Logits and choices of one pass, from what the module was given and returned; None if there are none.

    Under `extract` they are what that function returns. Otherwise the first floating-point tensor in the
    output whose last dimension is the number of experts is the logits, and a tensor of whole numbers the
    choices. A router that returns no logits has them computed once more from its weight and its input.
    """
    import torch

    if router.extract is not None:
        output = router.extract(router.module, inputs, output)
    logits = chosen = None
    for item in _tensors(output):
        if item.dim() == 0 or item.is_complex():
            continue
        if torch.is_floating_point(item):
            if logits is None and (router.extract or not router.experts or item.shape[-1] == router.experts):
                logits = item
        elif chosen is None and item.dtype != torch.bool and (not router.top_k or item.shape[-1] == router.top_k):
            chosen = item
    if logits is None and router.extract is None:
        logits = _logits_again(router, inputs)
    if logits is None:
        return None
    logits = logits.detach().reshape(-1, logits.shape[-1])
    if chosen is not None:
        chosen = chosen.detach().reshape(-1, chosen.shape[-1])
        if len(chosen) != len(logits):
            chosen = None
    return Decision(logits, chosen)


def plain_name(name: str) -> str:
    """A module's name without what wrappers put into it."""
    return _WRAPPERS.sub("", name).strip(".")


def _tensors(output: Any, depth: int = 3) -> Iterator[Tensor]:
    import torch

    if isinstance(output, torch.Tensor):
        yield output
    elif depth and isinstance(output, Mapping):
        first = [output[key] for key in ("router_logits", "logits") if key in output]
        for item in [*first, *output.values()]:
            yield from _tensors(item, depth - 1)
    elif depth and isinstance(output, (tuple, list)):
        for item in output:
            yield from _tensors(item, depth - 1)
    elif depth and hasattr(output, "__dataclass_fields__"):
        yield from _tensors(vars(output), depth - 1)


def _logits_again(router: Router, inputs: tuple[Any, ...]) -> Tensor | None:
    """Input times the router's weight: DeepSeek's router returned only indices and weights before transformers 5."""
    import torch

    weight = _weight(router.module)
    hidden = next(_tensors(inputs), None)
    if weight is None or hidden is None or hidden.shape[-1] != weight.shape[1]:
        return None
    bias = getattr(router.module, "bias", None)
    flat = hidden.detach().reshape(-1, hidden.shape[-1])
    with torch.no_grad(), torch.autocast(flat.device.type, enabled=False):
        logits = torch.nn.functional.linear(flat.float(), weight.detach().float())
        return logits + bias.detach().float() if isinstance(bias, torch.Tensor) else logits


def _match(wanted: Any, named: Mapping[str, nn.Module]) -> list[str]:
    if not isinstance(wanted, str):
        same = [name for name, module in named.items() if module is wanted]
        if not same:
            raise ValueError(f"the module {type(wanted).__name__} named as a router is not part of the model")
        return same
    plain = {plain_name(name): name for name in named}
    if wanted in named:
        return [wanted]
    matched = [name for short, name in plain.items() if fnmatch.fnmatchcase(short, wanted)]
    if not matched:
        near = difflib.get_close_matches(wanted, list(plain), 1, 0.0)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"the model has no module {wanted!r}{hint}")
    return matched


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def _weight(module: nn.Module) -> Tensor | None:
    """A router's own matrix (experts, width), if it has one."""
    import torch

    weight = getattr(module, "weight", None)
    return weight if isinstance(weight, torch.Tensor) and weight.dim() == 2 else None


def _whole(holder: Any, names: Iterable[str]) -> int:
    """The first attribute that is a whole number above 0, else 0."""
    for name in names:
        value = getattr(holder, name, None)
        if type(value) is int and value > 0:
            return value
    return 0


def _expert_count(holder: nn.Module, beside: nn.Module) -> int:
    """How many experts a module holds: a list of modules, a module that says so, or stacked 3-D weights."""
    experts = getattr(holder, "experts", None)
    if experts is not None and experts is not beside:
        if getattr(experts, "_modules", None) and type(experts).__name__ in ("ModuleList", "ModuleDict"):
            return len(experts)
        count = _whole(experts, _EXPERT_COUNTS) or _stack(experts)
        if count:
            return count
    return _stack(holder)


def _stack(module: Any) -> int:
    parameters = getattr(module, "_parameters", {})
    depths = {weight.shape[0] for weight in parameters.values() if weight is not None and weight.dim() == 3}
    return int(depths.pop()) if len(depths) == 1 else 0


def _is_router(name: str, named: Mapping[str, nn.Module]) -> bool:
    if not name:
        return False
    module, parent = named[name], named.get(_parent(name))
    weight = _weight(module)
    if weight is None or parent is None:
        return False
    rows = int(weight.shape[0])
    if _ROUTER_CLASS.search(type(module).__name__):
        return rows > 1 and rows == (_whole(module, _EXPERT_COUNTS) or _expert_count(parent, module) or rows)
    if name.rpartition(".")[2] not in _ROUTER_NAMES:
        return False
    if rows == _expert_count(parent, module):
        return True
    # a linear layer inside a router's class, as in Switch Transformers
    return bool(_ROUTER_CLASS.search(type(parent).__name__)) and rows == _whole(parent, _EXPERT_COUNTS)


def _experts(name: str, named: Mapping[str, nn.Module]) -> int:
    module = named[name]
    weight = _weight(module)
    said = _whole(module, _EXPERT_COUNTS)
    if said or weight is None:
        return said or _expert_count(module, module)
    return int(weight.shape[0])


def _configs(name: str, named: Mapping[str, nn.Module], model: nn.Module) -> Iterator[Any]:
    """The module, what holds it, outwards to the model; each followed by its `config`."""
    place = name
    while True:
        holder = named.get(place, model)
        yield holder
        yield getattr(holder, "config", None)
        if not place:
            return
        place = _parent(place)


def _choices(name: str, named: Mapping[str, nn.Module], model: nn.Module) -> int:
    for holder in _configs(name, named, model):
        result = _whole(holder, _CHOICE_COUNTS)
        if result:
            return result
    return 0


def _score(name: str, named: Mapping[str, nn.Module], model: nn.Module) -> str:
    """DeepSeek-V3's routers, and those made after them, score by a sigmoid and carry a correction bias."""
    module, parent = named[name], named.get(_parent(name))
    for holder in _configs(name, named, model):
        said = getattr(holder, "scoring_func", None) or getattr(holder, "score_function", None)
        if said in ("softmax", "sigmoid"):
            return str(said)
    biased = any(hasattr(holder, "e_score_correction_bias") for holder in (module, parent))
    return "sigmoid" if biased else "softmax"


def _layer_names(names: list[str], found: bool) -> dict[str, str]:
    """A layer is called by what holds the router (`blocks.0.feed`), unless two routers share it."""
    plain = {name: plain_name(name) for name in names}
    if not found:
        return plain
    short = {name: _parent(title) or title for name, title in plain.items()}
    return short if len(set(short.values())) == len(short) else plain
