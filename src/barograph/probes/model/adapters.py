"""Adapters of low rank beside a layer: which parameters they are, how they began, and whether their layer changed.

In:   a torch model; the graph of an adapted layer's output, once, while it is whole.
Out:  `Adapters`: parameters of adapters, by their names or by their shapes; figures for the `model` record, computed on
      the device; nothing waits.

People write such adapters under many names. By shape, one is a module with a matrix [outputs, inputs] and two that take
its place through fewer dimensions, [rank, inputs] and [outputs, rank], under a name of the field's.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import weakref
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.probes.model.adapters_by import AdaptersBy
from barograph.probes.model.adapters_drawn import as_drawn
from barograph.probes.model.adapters_off import AdaptersOff
from barograph.probes.model.factors import is_product, scale_of
from barograph.probes.model.guest import after, before, is_compiled
from barograph.probes.model.parameters import mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

NAMED = re.compile(r"lora|adapter|ia3|dora|loha|lokr|prompt_(?:encoder|embedding)|prefix_", re.I)
_KINDS = re.compile(r"lora|low_?rank|adapt|dora|delta", re.I)
_HALF = re.compile(r"(?<![a-z])(?:a|b|down|up)(?![a-z])", re.I)  # which of the two factors it is
_OTHER_HALF = {"a": "b", "b": "a", "A": "B", "B": "A", "down": "up", "up": "down"}
_OF_LORA = re.compile(r"(?<![a-z])(?:lora|dora|low_?rank)", re.I)  # two factors, with nothing between them
_PARTS = 8  # parameters of one layer and its adapter, at most
_NAMES = 40  # of layers
_LAYERS, _ELEMENTS = 4, 1 << 14  # whose layers are compared, and how much of each
_EVERY = 10  # steps between two comparisons
_HELD, _PATIENT = 16, 4  # modules with frozen factors that are listened to; steps, at most
_LEAST_BITS = 1.5  # of a weight of a layer that is held in few bits
_LISTENED = 4  # layers that are listened to, until one of them is called


class Adapter(NamedTuple):
    """A layer's matrix [outputs, inputs] and the two factors that are added to it: [rank, inputs], [outputs, rank]."""

    layer: Tensor
    first: Tensor
    second: Tensor


class Packed(NamedTuple):
    """The module of an adapter whose layer is held in few bits, and its factors: [rank, inputs], [outputs, rank]."""

    module: Any
    first: Tensor
    second: Tensor


def find(model: Any) -> list[Adapter]:
    """The adapters of a model, of which all three matrices are parameters of one module."""
    found: dict[int, Adapter] = {}
    for name, module in model.named_modules():
        items = dict(module.named_parameters())
        if not 3 <= len(items) <= _PARTS:
            continue
        names = (
            name.rpartition(".")[2],
            type(module).__name__,
            *items,
            *(type(one).__name__ for one in module.modules()),
        )
        if any(map(_KINDS.search, names)):
            one = _of(
                [item for item in items.values() if item.dim() == 2 and not item.is_meta and mesh_of(item) is None]
            )
            if one is not None:
                found.setdefault(id(one.layer), one)
    return list(found.values())


def beside_packed(model: Any, known: set[int]) -> list[Packed]:
    """Adapters, by the names of their factors or of their module, whose layer is held in few bits: in a tensor of
    another shape, or in one that is not a parameter. known: ids of factors beside a matrix."""
    found: dict[int, Packed] = {}
    for module in model.modules():
        items = dict(module.named_parameters())
        trained = [(name, item) for name, item in items.items() if item.requires_grad]
        if len(items) > _PARTS or len(trained) != 2:
            continue
        held = _OF_LORA.search(type(module).__name__) and any(one.dim() > 1 for one in module.buffers(recurse=False))
        named = [item for name, item in trained if held or _OF_LORA.search(name)]
        factors = [item for item in named if item.dim() == 2 and not item.is_meta]
        if len(factors) != 2 or not known.isdisjoint(map(id, factors)) or any(map(mesh_of, factors)):
            continue
        first, second = sorted(factors, key=lambda item: item.shape[0])  # the rank is the least of all sizes
        if len(first) == second.shape[1] and _share_rank(first, second):
            found[id(first)] = Packed(module, first, second)
    return list(found.values())


def codes(module: Any, rows: int, columns: int) -> Tensor | None:
    """The whole numbers [rows, columns], one a weight, in which a module holds its layer."""
    import torch

    for item in itertools.chain(module.buffers(), module.parameters()):
        if item.dtype in (torch.int8, torch.uint8) and tuple(item.shape) == (rows, columns):
            return item.detach()  # type: ignore[no-any-return]
    return None


def along(before: Tensor, after: Tensor, added: Tensor) -> Tensor:
    """Of what whole numbers of weights [rows, columns] have changed by, squared, the share along what adapters add, in
    each row by itself; whatever scale and zero rows have."""
    moved = (after != before).any()
    before, after, added = (one - one.mean(1, keepdim=True) for one in (before, after, added))
    fine = before.square().sum(1, keepdim=True).clamp_min(1e-38)
    change, added = (one - before * ((one * before).sum(1, keepdim=True) / fine) for one in (after, added))
    both, size = (change * added).sum(1).clamp_min(0), added.square().sum(1).clamp_min(1e-38)
    return (both.square() / size).sum() / change.square().sum().clamp_min(1e-38) * moved


def zero_halves(named: list[tuple[str, Any]], found: list[Adapter], ours: set[int]) -> list[Tensor]:
    """Of each adapter of which one factor is frozen and the other is trained: whether the frozen one is all zero, where
    nothing is added to its layer, and the trained one has no gradient."""
    known = {name: item for name, item in named if item.dim() == 2 and not item.is_meta and mesh_of(item) is None}
    pairs = {id(one): (one, other) for adapter in found for one, other in (adapter[1:], adapter[:0:-1])}
    for name, item in known.items():
        match = NAMED.search(name)
        if match is None or item.requires_grad:
            continue
        for half in _HALF.finditer(name, match.start()):
            swapped = name[: half.start()] + _OTHER_HALF.get(half[0], "") + name[half.end() :]
            other = known.get(swapped)
            if other is not None and _share_rank(item, other):
                pairs.setdefault(id(item), (item, other))
    return [
        (one.detach() == 0).all() for one, other in pairs.values() if not one.requires_grad and id(other) in ours
    ]  # fmt: skip


def zero_products(model: Any, ours: set[int]) -> list[Tensor]:
    """Of each pair of frozen matrices of one small module, under any names, that can be multiplied through fewer
    dimensions: whether just one of them is all zero, as adapters begin. Nothing where such a pair is trained."""
    found: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
    for module in model.modules():
        for one, other in _pairs(module):
            if one.requires_grad or other.requires_grad or not ours.isdisjoint((id(one), id(other))):
                return []
            found[tuple(sorted((id(one), id(other))))] = one, other
    return [(one.detach() == 0).all() ^ (other.detach() == 0).all() for one, other in found.values()]


def _pairs(module: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Matrices of a small module that can be multiplied through fewer dimensions."""
    items = dict(module.named_parameters())
    if 2 <= len(items) <= _PARTS:
        matrices = [item for item in items.values() if item.dim() == 2 and not item.is_meta and mesh_of(item) is None]
        yield from (pair for pair in itertools.combinations(matrices, 2) if _share_rank(*pair))


def _share_rank(one: Tensor, other: Tensor) -> bool:
    """Whether two matrices can be multiplied through fewer dimensions than both have on their other side."""
    return any(
        mine.shape[0] == theirs.shape[1] and 2 * mine.shape[0] <= min(mine.shape[1], theirs.shape[0])
        for mine, theirs in ((one, other), (other, one))
    )


def _of(matrices: list[Any]) -> Adapter | None:
    if len(matrices) != 3:
        return None
    layer, *factors = sorted(matrices, key=lambda item: -item.numel())
    outputs, inputs = layer.shape
    for first, second in (factors, factors[::-1]):
        for one, other in ((first, second), (first.T, second.T)):
            rank = len(one)
            if (
                tuple(one.shape) == (rank, inputs)
                and tuple(other.shape) == (outputs, rank)
                and 2 * rank <= min(layer.shape)
            ):
                return Adapter(layer, first, second)
    return None


def places_of_adapters(model: Any) -> dict[str, str]:
    """The last names of layers with adapters, and of frozen linear ones that have none, where a model has both."""
    with_one: dict[str, None] = {}
    bare: dict[str, None] = {}
    inside: set[int] = set()  # parts of layers with adapters
    for name, module in model.named_modules():  # a layer comes ahead of its parts
        last = name.rpartition(".")[2]
        if id(module) in inside or not last or last.isdigit():
            continue
        weight = module._parameters.get("weight")
        halves = any(NAMED.search(part) for part, _ in module.named_children())
        if halves and sum(1 for _ in module.parameters()) <= 2 * _PARTS:
            with_one[last] = None
            inside |= {id(part) for part in module.modules()}
        elif weight is not None and weight.dim() == 2 and not weight.requires_grad and hasattr(module, "in_features"):
            bare[last] = None
    found = {"adapted_layers": with_one, "bare_layers": bare}
    return {key: ", ".join(list(names)[:_NAMES]) for key, names in found.items()} if with_one and bare else {}


class Adapters:
    """Those of one model."""

    def __init__(self, model: Any):
        self.found = find(model)
        self._ids = {id(item) for one in self.found for item in one[1:]}
        self._packed = beside_packed(model, self._ids)
        self._ids |= {id(item) for one in self._packed for item in (one.first, one.second)}
        self._kept: list[Tensor] = []
        self._codes: dict[int, Tensor] = {}  # of layers of eight bits, by their place
        self._steps = 0
        self._scale, self._held = ScaleOfAdapter(model), HeldFactors(model)
        self._off, self._by = AdaptersOff(*_first(model) or _last_alone(model)), AdaptersBy(*_narrowest(model))

    def has(self, name: str, parameter: Any) -> bool:
        """Whether a parameter is part of an adapter."""
        return id(parameter) in self._ids or NAMED.search(name) is not None

    def trained_layers(self, ours: set[int]) -> list[Tensor]:
        """Layers that are trained beside their adapters."""
        return [one.layer for one in self.found if id(one.layer) in ours]

    def put(self, current: ModelRound) -> None:
        """A step begins: in the first one, whether both factors are drawn, or both are zero; and whether layers that
        are frozen changed by what their adapters are, with the sizes that say so."""
        import torch

        self._scale.put(current)
        self._held.put(current)
        self._off.put(current)
        self._by.put(current)
        frozen = [one for one in self.found if not one.layer.requires_grad and one.second.requires_grad]
        if not self._steps and (frozen or self._packed):
            known: list[Adapter | Packed] = [*frozen, *self._packed]
            pairs = [(one.first.detach(), one.second.detach()) for one in known]
            drawn = as_drawn([second for _, second in pairs], [first for first, _ in pairs])
            if drawn is not None:
                current.put("adapters_drawn", ("",), drawn.reshape(1))
            idle = [(first == 0).all() & (second == 0).all() for first, second in pairs]
            home = idle[0].device
            current.put("adapters_zero", ("",), torch.stack([one.to(home) for one in idle]).sum().reshape(1))
        self._steps += 1
        if self._steps % _EVERY != 1:
            return
        some = _some(frozen)
        now = [_rows(one.layer.detach()).float() for one in some]
        if len(self._kept) == len(now) and now:
            home, parts = now[0].device, []
            for before, after, one in zip(self._kept, now, some, strict=True):
                change, added = after - before, _rows(product(one)).float()
                sums = (change * added).sum(), change.square().sum(), added.square().sum()
                parts.append(torch.stack(sums).to(home))
            both, change, added = torch.stack(parts).sum(0).unbind()
            current.put("adapters_merged", ("",), (both.square() / (change * added).clamp_min(1e-38)).reshape(1))
        self._kept = [item.clone() for item in now]
        self._of_codes(current)

    def _of_codes(self, current: ModelRound) -> None:
        """The same of layers of eight bits: how much of their change is along what their adapters add."""
        import torch

        shares = []
        for place, one in enumerate(_some(self._packed)):
            held = codes(one.module, len(one.second), one.first.shape[1])
            if held is None:
                continue
            after = _rows(held).float()
            if (before := self._codes.get(place)) is not None:
                added = _rows(product(Adapter(held, one.first, one.second))).float()
                shares.append(along(before, after, added))
            self._codes[place] = after
        if shares:
            home = shares[0].device
            current.put("codes_merged", ("",), torch.stack([one.to(home) for one in shares]).amin().reshape(1))

    def close(self) -> None:
        """Leave no hook behind."""
        self._scale.close()
        self._held.close()
        self._off.close()
        self._by.close()


def product(one: Adapter) -> Tensor:
    """What an adapter adds to some rows of its layer, but for its scale."""
    first, second = one.first.detach(), one.second.detach()
    if first.shape[1] != one.layer.shape[1]:  # factors that are multiplied from the other side
        first, second = first.T, second.T
    return second[: _count(one.layer)].to(first.dtype) @ first


def _some(adapters: list[Any]) -> list[Any]:
    """A few of them, from the first to the last."""
    return adapters[:: max(1, len(adapters) // _LAYERS)][:_LAYERS]


def _rows(layer: Tensor) -> Tensor:
    return layer[: _count(layer)]


def _count(layer: Tensor) -> int:
    return max(1, _ELEMENTS // layer.shape[1])


class ScaleOfAdapter:
    """Listens to a few adapted layers, until one has been called with gradients; and, until the next step begins, to
    the layers that the adapters are for."""

    def __init__(self, model: Any):
        found: dict[int, Any] = {}
        for name, module in model.named_modules():  # a layer is ahead of its parts
            if (pair := _pair(name, module)) is not None:
                found[id(pair[0])] = module, weakref.ref(pair[0]), weakref.ref(pair[1])
        some = list(found.values()) if not is_compiled() else []
        some = some[:: max(1, len(some) // _LISTENED)][:_LISTENED]
        self._ran: set[int] = set()  # layers that were called, by id
        self._layers = {id(module): _layers(module, pair) for module, *pair in some}
        inner = [layer for module, *_ in some for layer in self._layers[id(module)] if layer is not module]
        self._inner = [before(layer, lambda layer, _given: self._ran.add(id(layer))) for layer in inner]
        self._handles = [
            after(module, lambda module, _given, output, pair=pair: self._went(module, output, pair))
            for module, *pair in some
        ]
        self._found: dict[str, float] = {}
        self._alone: set[int] | None = None  # layers of a module that gave its adapter's part alone

    def _went(self, module: Any, output: Any, pair: list[Any]) -> None:
        """A layer was called."""
        node, one, other = getattr(output, "grad_fn", None), *(item() for item in pair)
        if node is None or one is None or other is None or not self._handles:
            return
        with contextlib.suppress(Exception):  # a node of another make says nothing
            scale = scale_of(node, {id(one), id(other)})
            if scale is not None and scale != 0:
                self._found = {"adapter_scale": scale, "adapter_rank": float(min(*one.shape, *other.shape))}
                layers = self._layers.get(id(module), [])
                if layers:
                    alone = is_product(node, {id(one), id(other)})
                    self._found["adapter_alone"] = float(alone)
                    self._alone = {id(layer) for layer in layers} if alone else None
        self._end(self._handles)

    def put(self, current: ModelRound) -> None:
        """A step begins: `adapter_scale`, `adapter_rank` and `adapter_alone`, once."""
        if self._alone is not None and self._alone & self._ran:
            self._found["adapter_alone"] = 0.0  # it is added elsewhere
        if self._found:
            self._end(self._inner)
        current.figures |= self._found
        self._found, self._alone = {}, None

    def _end(self, handles: list[Any]) -> None:
        for handle in handles:
            handle.remove()
        handles.clear()

    def close(self) -> None:
        """Leave no hook behind."""
        self._end(self._handles)
        self._end(self._inner)


def _layers(module: Any, pair: list[Any]) -> list[Any]:
    """The modules that hold what an adapter is for: weights that are frozen, or whole numbers, of 1.5 bits or more for
    each weight of the two factors' product."""
    factors = [item() for item in pair]
    if any(item is None for item in factors):
        return []
    known = {id(item) for item in factors}
    rank = min(size for item in factors for size in item.shape)
    bits = _LEAST_BITS * math.prod(item.numel() // rank for item in factors)

    def holds(one: Any) -> bool:
        own = [item for item in (*one._parameters.values(), *one._buffers.values()) if item is not None]
        still = [item for item in own if id(item) not in known and not item.requires_grad and not item.is_meta]
        return any(8 * item.numel() * item.element_size() >= bits for item in still)

    return [one for one in module.modules() if holds(one)]


def _first(model: Any) -> tuple[Any, ...]:
    """The first adapted module that has the layer it is for within it, and that layer; else nothing."""
    for name, module in model.named_modules() if not is_compiled() else ():
        pair = _pair(name, module)
        for layer in _layers(module, [weakref.ref(one) for one in pair]) if pair else ():
            if layer is not module and getattr(layer, "weight", None) is not None:
                return module, layer
    return ()


def _last_alone(model: Any) -> tuple[Any, ...]:
    """The last adapter that is a module of its own, of two layers from as many numbers as to; else nothing."""
    found: tuple[Any, ...] = ()
    for name, module in model.named_modules() if not is_compiled() else ():
        pair = _pair(name, module)
        owned = [id(item) for item in module.parameters(recurse=False)]
        if pair and pair[0].shape == pair[1].shape[::-1] and all(id(one) not in owned for one in pair):
            found = (module,)
    return found


def _narrowest(model: Any) -> tuple[Any, ...]:
    """The adapted module with the smallest factors that holds the layer it is for, and these; else nothing."""
    found: dict[int, tuple[Any, Any]] = {}
    for name, module in model.named_modules() if not is_compiled() else ():  # a module is ahead of its parts
        pair = _pair(name, module)
        if pair and _layers(module, [weakref.ref(one) for one in pair]):
            found[id(pair[0])] = module, pair
    return min(found.values(), key=lambda one: sum(item.numel() for item in one[1]), default=())


def _pair(name: str, module: Any) -> tuple[Any, Any] | None:
    """The two factors of a small module that has one adapter, by its names and shapes."""
    items = dict(module.named_parameters())
    if not 2 <= len(items) <= _PARTS:
        return None
    matrices = [
        item for item in items.values()
        if item.dim() == 2 and item.requires_grad and not item.is_meta and mesh_of(item) is None
    ]  # fmt: skip
    pairs = [both for both in itertools.combinations(matrices, 2) if _share_rank(*both)]
    names = (name.rpartition(".")[2], type(module).__name__, *items, *(type(one).__name__ for one in module.modules()))
    named = any(pattern.search(one) for one in names for pattern in (_KINDS, NAMED))
    return pairs[0] if len(pairs) == 1 and named else None


class HeldFactors:
    """Pairs of factors that are frozen while others are trained, and run all the same: whether one of each is all 0.

    An adapter that no pass uses, as that of another task, adds nothing wherever it is frozen; the modules are listened
    to until one has run."""

    def __init__(self, model: Any):
        self._held: dict[int, tuple[Tensor, Tensor]] = {}
        self._ran: set[int] = set()
        self._steps = 0
        self._handles: list[Any] = []
        modules: dict[int, Any] = {}
        trained = False
        for module in model.modules():  # a module is ahead of its parts
            few = sum(item.dim() > 1 for item in module.parameters()) <= len(Adapter._fields)
            for one, other in _pairs(module) if few else ():
                trained |= bool(one.requires_grad and other.requires_grad)
                if not one.requires_grad and not other.requires_grad:
                    modules[id(one)], self._held[id(one)] = module, (one, other)
        if trained and not is_compiled():  # a hook would have its module compiled anew
            some = list(modules.items())[:_HELD]
            self._handles = [before(module, partial(self._came, key)) for key, module in some]

    def _came(self, key: int, module: Any, given: Any) -> None:
        import torch

        if torch.is_grad_enabled():
            self._ran.add(key)

    def put(self, current: ModelRound) -> None:
        """A step begins: `held_factors`, once the modules were listened to."""
        import torch

        self._steps += 1
        if not self._handles or (not self._ran and self._steps < _PATIENT):
            return
        ran = [self._held[key] for key in self._ran]
        self.close()
        if not ran:
            return
        home = ran[0][0].device
        idle = [(one.detach() == 0).all().to(home) ^ (other.detach() == 0).all().to(home) for one, other in ran]
        current.put("held_factors", ("",), torch.stack(idle).sum().reshape(1))

    def close(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._held = [], {}
