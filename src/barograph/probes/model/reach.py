"""Parameters that the loss does not reach, tied weights that are two tensors, and layers that are one object.

In:   a torch model; which of its parameters never had a gradient.
Out:  figures for the `model` record; nothing waits for a device.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from barograph.probes.autograd import tensor
from barograph.probes.model.adapters import Adapter, Packed, beside_packed, find
from barograph.probes.model.blocks import plain
from barograph.probes.model.findings import listed
from barograph.probes.model.frozen import as_drawn, is_random_table
from barograph.probes.model.guest import Guest, after
from barograph.probes.model.objective import behind, kind
from barograph.probes.model.parameters import PLACE, flat, local, mesh_of, own

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

_AFTER = 20  # steps; parameters that only some batches use have had their chance
_UNUSED = 100  # steps; a layer that has not run in them is not used
_COMPARED = 4096  # elements
_BETWEEN = 6  # nodes between an output and the product that makes it
_SHAPED = frozenset({"View", "UnsafeView", "Reshape", "ReshapeAlias", "Transpose", "T", "ToCopy", "Add", "Mul", "Div"})
_PRODUCTS = {"Mm": ("mat2", 1), "Addmm": ("mat2", 2), "Linear": ("weight", 1)}  # the matrix, and which input it is
_TIES = "tie_word_embeddings"  # as transformers' configurations say it
_IN_BLOCK = re.compile(r"(.*?)\.(\d+)\.(.+)")  # the list, the block's number, the parameter in it
_ROWS, _MOST = 16, 0.8  # of an embedding and an output layer of which one has more: the least, and the share
_OTHER_TABLE = re.compile(rf"{PLACE.pattern}|type|segment", re.I)  # of places and of kinds of tokens, not of tokens


def _in_blocks(idle: Collection[str], names: Iterable[str]) -> int:
    """In how many blocks of one list a parameter of the same name is idle: in all of them, two or more, while others
    of each block are not; else 0."""
    blocks: dict[str, dict[str, bool]] = {}  # of each list: its blocks' numbers, and whether one of them is at work
    at: dict[tuple[str, str], set[str]] = {}
    for name in names:
        if (found := _IN_BLOCK.match(name)) is not None:
            held, number, rest = found.groups()
            of_list = blocks.setdefault(held, {})
            of_list[number] = of_list.get(number, False) or name not in idle
            if name in idle:
                at.setdefault((held, rest), set()).add(number)
    whole = [len(one) for (held, _), one in at.items() if len(one) == len(blocks[held]) and all(blocks[held].values())]
    return max((count for count in whole if count > 1), default=0)


class Reach:
    """Which layers ran with gradients, and got none; which ran without; which never ran.

    Layers without a gradient in the first twenty steps are listened to: those that run with gradients in the next one
    are computed for nothing, those that run without are cut off by `no_grad()`. What has still not run after a hundred
    steps is not used. Where no parameter at all had a gradient, and no backward pass came, all are listened to.
    """

    def __init__(self, model: Any):
        self._model = model
        self._steps = self._empty = 0  # with and without any gradient
        self._handles: list[Any] = []
        self._ran: set[int] = set()  # parameters, by id
        self._reached: set[int] = set()  # by the loss: their gradients come, and are dropped before the step
        self._ran_without: set[int] = set()  # in training mode, without gradients
        self._held: set[int] = set()  # by an optimizer
        self._silent: dict[int, Any] = {}  # parameters without a gradient, by id, and the layer of each
        self._second: dict[int, Any] = {}  # modules with an adapter, by id, and the factor behind
        self._around: set[int] = set()  # those of them around a layer
        self._ran_around: set[int] = set()  # parameters of adapters whose module ran with gradients, used or not

    def ended(
        self,
        current: ModelRound,
        waiting: Collection[str],
        names: Mapping[int, str],
        owners: Callable[[], Iterable[tuple[Any, ...]]],
    ) -> None:
        """A step is over. waiting: never had a gradient; names: of all by id; owners: parameters by optimizer."""
        if not current.present:
            self._nothing_came(current, waiting, names, owners)
        if self._steps > _UNUSED or not current.present:
            return
        self._steps += 1
        if self._steps == _AFTER and waiting:
            self._listen(waiting, names, owners)
        elif self._steps == _AFTER + 1 and self._silent:
            self._say(current, waiting, names)
        elif self._steps == _UNUSED:
            self.close()
            silent = {number for number, module in self._silent.items() if id(module) not in self._around}
            idle = (silent | self._places()) - self._ran - self._ran_without
            unused = {number for number in idle if names.get(number) in waiting}
            self._tell(current, "unused", unused, names)
            if unused:
                idle_names = {names[number] for number in unused}
                current.figures["unused_in_blocks"] = float(_in_blocks(idle_names, names.values()))

    def _nothing_came(
        self,
        current: ModelRound,
        waiting: Collection[str],
        names: Mapping[int, str],
        owners: Callable[[], Iterable[tuple[Any, ...]]],
    ) -> None:
        """A step without any gradient is over."""
        if self._steps or current.backwards or self._empty > _AFTER:
            return
        self._empty += 1
        if self._empty == _AFTER:
            self._listen(waiting, names, owners)
        elif self._empty > _AFTER:
            self._say(current, waiting, names)
            self.close()

    def _listen(
        self, waiting: Collection[str], names: Mapping[int, str], owners: Callable[[], Iterable[tuple[Any, ...]]]
    ) -> None:
        """Hear which layers run, of those without a gradient that an optimizer holds."""
        if waiting:
            self._held = {id(parameter) for some in owners() for parameter in some}
            silent = {number for number, name in names.items() if name in waiting and number in self._held}
            # attention of torch's own make uses its parts' parameters without calling them
            hidden = {
                id(part)
                for module in self._model.modules()
                if type(module).__name__ == "MultiheadAttention"
                for part in module.modules()
            }
            adapters = find(self._model)
            known = {id(item) for one in adapters for item in (one.first, one.second)}
            both: list[Adapter | Packed] = [*adapters, *beside_packed(self._model, known)]
            factors = {id(item): one.second for one in both for item in (one.first, one.second)}
            for module in self._model.modules():
                if id(module) in hidden:
                    continue
                own = [id(item) for item in module.parameters(recurse=False) if id(item) in silent]
                alone = not any(True for part in module.children() for _ in part.parameters())
                adapts = bool(own) and all(number in factors for number in own)
                around = adapts and not alone
                if adapts:
                    self._second[id(module)] = factors[own[0]]
                if around:
                    self._around.add(id(module))
                if own and (alone or around):
                    self._silent |= dict.fromkeys(own, module)
                    self._handles.append(after(module, self._run(own, self._ran if alone else self._ran_around)))

    def _say(self, current: ModelRound, waiting: Collection[str], names: Mapping[int, str]) -> None:
        """What has run since."""
        unreached = self._ran - self._reached
        self._tell(current, "unreached", {number for number in unreached if names.get(number) in waiting}, names)
        ran = self._ran | self._ran_around
        without = {number for number in self._ran_without - ran if names.get(number) in waiting}
        self._tell(current, "without_graph", without, names)
        modules = {id(self._silent[n]): self._silent[n] for n in without}
        drawn = [fresh for module in modules.values() if (fresh := _as_made(module)) is not None]
        # an adapter whose factor behind is all zero is as it began
        drawn += [(self._second[one].detach() == 0).all().float() for one in modules if one in self._second]
        if drawn:
            current.put("as_drawn", ("",), sum(drawn[1:], drawn[0]).reshape(1))
        tables = {id(one): one for n in without if "Embedding" in type(one := self._silent[n]).__name__}
        random = [told for one in tables.values() if (told := is_random_table(one, self._model)) is not None]
        if random:
            current.put("without_random_tables", ("",), sum(random[1:], random[0]).reshape(1))

    def _places(self) -> set[int]:
        """Positional embeddings that are parameters beside layers: nothing of theirs could run."""
        modules = (module for module in self._model.modules() if next(module.children(), None) is not None)
        named = (pair for module in modules for pair in module.named_parameters(recurse=False))
        return {id(item) for name, item in named if PLACE.search(name)} & self._held

    def _tell(self, current: ModelRound, what: str, found: Collection[int], names: Mapping[int, str]) -> None:
        if not found:
            return
        sizes = {id(item): item.numel() for item in self._model.parameters()}
        whole = sum(sizes[number] for number in names if number in sizes)
        current.figures[f"{what}_parameters"] = float(len(found))
        current.figures[f"{what}_share"] = sum(sizes.get(number, 0) for number in found) / max(1, whole)
        current.figures[what] = listed(names[number] for number in names if number in found)

    def _run(self, own: list[int], ran: set[int]) -> Callable[..., None]:
        def hook(module: Any, given: Any, output: Any) -> None:
            import torch

            if not module.training:
                return
            (ran if torch.is_grad_enabled() else self._ran_without).update(own)
            for one in output if isinstance(output, tuple) else (output,):
                if isinstance(one, torch.Tensor) and one.requires_grad:
                    one.register_hook(Guest(lambda gradient: self._reached.update(own)))  # type: ignore[no-untyped-call]

        return hook

    def close(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _as_made(module: Any) -> Any:
    """Whether a layer is as torch makes it; None of others than linear ones, convolutions and normalisations."""
    weight, bias = (own(module, name) for name in ("weight", "bias"))
    if "Norm" not in type(module).__name__ or weight is None or weight.is_meta or mesh_of(weight) is not None:
        return as_drawn(module)
    return ((weight == 1).all() & (bias == 0).all() if bias is not None else (weight == 1).all()).float()


def _output_layers(model: Any) -> list[Any] | None:
    """The layers that transformers' models name as those that may be tied, of which a classifier has none; None where
    no model says it."""
    found: list[Any] | None = None
    for module in model.modules():
        ask = getattr(type(module), "get_output_embeddings", None)
        if ask is not None:
            with contextlib.suppress(Exception):  # some have the name and do not answer
                found = [*(found or []), ask(module)]
    return found


def _in_one_memory(one: Any, other: Any) -> bool:
    """Whether these are two parameters, both trained, that lie in the same memory."""
    import torch

    both = [part for part in (one, other) if isinstance(part, torch.nn.Parameter) and part.requires_grad]
    here = one is not other and len(both) == 2 and mesh_of(one) is None and mesh_of(other) is None
    return here and one.numel() > 0 and one.data_ptr() == other.data_ptr() != 0 and one.stride() == other.stride()


def untied_figures(current: ModelRound, model: Any) -> None:
    """Add whether an embedding and an output layer of one shape are two tensors, and whether they hold the same; of one
    that is both, its deviation, and whether it is two trained parameters in one memory."""
    import torch

    embeddings, outputs = [], []
    answers = _output_layers(model)
    for name, module in model.named_modules():
        weight = own(module, "weight")
        if weight is None or weight.dim() != 2 or weight.is_meta:
            continue
        if isinstance(module, torch.nn.Embedding):
            if not _OTHER_TABLE.search(name.rpartition(".")[2]):
                embeddings.append((plain(name), weight))
        elif hasattr(module, "out_features") and (answers is None or module in answers):
            outputs.append((plain(name), weight))
    # the output layer is the last one: a table of positions may have the shape of a layer in between
    pairs = [(one, other) for other in outputs for one in reversed(embeddings) if one[1].shape == other[1].shape]
    tied = [one[1] for one, other in pairs if local(one[1]).data_ptr() == local(other[1]).data_ptr()]
    if tied and mesh_of(tied[-1]) is None:
        current.put("tied_deviation", ("",), flat(tied[-1].detach())[:_COMPARED].float().std().reshape(1))
    twice = [(one, other) for one, other in pairs if _in_one_memory(one[1], other[1])]
    if twice:
        one, other = twice[-1]
        current.figures |= {"tied_twice": 1.0, "untied_weights": f"{one[0]}.weight and {other[0]}.weight"}
    if tied:
        return
    # one that was made anew for more tokens has a few rows more than the other
    if not any(other is outputs[-1] for _, other in pairs):
        pairs += [(one, outputs[-1]) for one in reversed(embeddings) if outputs and _grown(one[1], outputs[-1][1])]
    if not pairs:
        _copied_tables(current, embeddings)
        return
    one, other = pairs[-1]
    current.figures |= {"untied": 1.0, "untied_weights": f"{one[0]}.weight and {other[0]}.weight"}
    if any(getattr(getattr(part, "config", None), _TIES, None) is True for part in model.modules()):
        current.figures["untied_said"] = 1.0
    first, second = (flat(local(weight)) for _, weight in (one, other))
    most = min(len(first), len(second), _COMPARED)
    first, second = first[:most], second[:most]
    if first.device == second.device and most > 1:
        same = (first == second).all() & (first != first[0]).any()
        rows = most // one[1].shape[1]
        if rows >= _ROWS and (one[1].requires_grad or other[1].requires_grad):  # some rows may be new in each
            ours, theirs = (part[: rows * one[1].shape[1]].reshape(rows, -1) for part in (first, second))
            alike = (ours == theirs).all(1) & (ours != ours[:, :1]).any(1)
            same = same | (alike.sum() >= _MOST * rows)
        current.put("untied_copy", ("",), same.reshape(1))


def _copied_tables(current: ModelRound, embeddings: list[tuple[str, Any]]) -> None:
    """Add whether the first two trained tables of one shape hold the same numbers, in two tensors, and which they
    are."""
    here = [(name, flat(weight.detach())[:_COMPARED], weight) for name, weight in embeddings
            if weight.requires_grad and mesh_of(weight) is None]  # fmt: skip
    for (name, first, one), (beside, second, other) in itertools.combinations(here, 2):
        apart = one.shape == other.shape and first.device == second.device and first.data_ptr() != second.data_ptr()
        if apart and len(first) >= _ROWS:
            current.figures["untied_weights"] = f"{name}.weight and {beside}.weight"
            current.put("copied_tables", ("",), ((first == second).all() & (first != first[0]).any()).reshape(1))
            return


def repeated_figures(current: ModelRound, model: Any) -> None:
    """Add how many numbered places of a container one object with trained parameters fills alone: the most of all."""
    found: dict[str, float] = {}
    for name, module in model.named_modules():
        inside = module.__dict__.get("_modules") or {}
        one = next(iter(inside.values()), None)
        alone = len(inside) > 1 and all(key.isdigit() and part is one for key, part in inside.items())
        if alone and one is not None and any(item.requires_grad for item in one.parameters()):
            found[plain(name)] = float(len(inside))
    if found:
        most = max(found, key=lambda name: found[name])
        current.figures |= {"repeated_layers": found[most], "repeated": most}


def detached_table(model: Any, output: Any) -> Any:
    """Whether what makes the output of a pass is a product with the whole table of a trained embedding that no gradient
    comes back to by it: the same numbers, as far as the product's precision keeps them, cut off from the graph. 2 where
    it is with such a table and rows behind it, as many as a parameter has that is trained. On its device; None where
    there is no such product, or the model has a frozen matrix of the table's sizes."""
    node = getattr(output, "grad_fn", None)
    for _ in range(_BETWEEN):
        if node is None or kind(node) in _PRODUCTS:
            break
        inner = [one for one in behind(node) if kind(one) != "AccumulateGrad"]  # a bias
        node = inner[0] if len(inner) == 1 and kind(node) in _SHAPED else None
    if node is None or kind(node) not in _PRODUCTS:
        return None
    name, place = _PRODUCTS[kind(node)]
    matrix = tensor(node, name) if node.next_functions[place][0] is None else None
    if matrix is None or matrix.dim() != 2 or mesh_of(matrix) is not None:
        return None
    table = (matrix if name == "weight" else matrix.t()).detach()
    if any(not one.requires_grad and one.shape == table.shape for one in (*model.parameters(), *model.buffers())):
        return None
    for module in model.modules():
        weight = own(module, "weight") if "Embedding" in type(module).__name__ else None
        if weight is None or weight.dim() != 2 or mesh_of(weight) is not None:
            continue
        if weight.requires_grad and weight.shape == table.shape:
            return _has(table, weight).float().reshape(1)
        if len(weight) < len(table) and _grown(weight, table) and _adds(model, weight, table.shape):
            rest = table[len(weight) :]
            return 2 * (_has(table[: len(weight)], weight) & (rest != 0).any()).float().reshape(1)
    return None


def _has(table: Any, weight: Any) -> Any:
    """Whether both have the same numbers, and no row that all others are."""
    theirs, ours = (one[:: max(1, len(one) // _ROWS)][:_ROWS].to(table.dtype) for one in (table, weight.detach()))
    return (theirs == ours).all() & (ours != ours[0]).any()


def _adds(model: Any, weight: Any, sizes: tuple[int, int]) -> bool:
    """Whether a parameter, and no layer's weight, is trained that has the rows that a table has more than an embedding
    has."""
    rest = (sizes[0] - len(weight), sizes[1])
    return any(
        one.requires_grad and tuple(one.shape) == rest and name.rpartition(".")[2] != "weight"
        for name, one in model.named_parameters()
    )


def _grown(one: Any, other: Any) -> bool:
    """Whether two matrices are of the same rows but for a few, and of many."""
    few, many = sorted((len(one), len(other)))
    return bool(one.shape[1] == other.shape[1] and few >= _ROWS and few >= _MOST * many)
