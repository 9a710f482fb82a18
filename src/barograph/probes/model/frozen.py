"""What of a model is not trained.

In:   a torch model.
Out:  figures for the `model` record; nothing waits for a device.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.autograd import is_here
from barograph.probes.model.adapters import NAMED, Adapters, places_of_adapters, zero_halves, zero_products
from barograph.probes.model.blocks import find, plain
from barograph.probes.model.findings import listed
from barograph.probes.model.parameters import PLACE, local, mesh_of, own, spread

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

_ADAPTED = re.compile(r"(.+?)\.lora_(?:a|down)\b", re.I)
_OTHER_NETWORK = re.compile(r"target|teacher|ema|ref|momentum|frozen|random", re.I)
_MOST_NORMS = 64
_LEAST_GAINS = 4  # of a layer, fewer may be one number by chance
_OF_ADAPTER = re.compile(r"(.+?)\.[^.]*(?:lora|dora|adapter|loha|lokr)", re.I)  # the layer that an adapter belongs to
_DEEP, _MOST_PARTS = 3, 40  # parts within each other, and how many are named
_LEAST_DRAWN, _COMPARED = 128, 1 << 14  # elements of a weight, of which some are looked at
_LEAST_ROWS, _WIDEST, _ERRORS = 16, 256, 4.0  # of a random table; columns of it; standard errors
_CODEBOOK = re.compile(r"quant|code_?book|(?<![a-z])vq|codes|cluster|prototype|memory|bank", re.I)
_COMPARED_COPIES, _OF_EACH = 8, 256  # trained modules that a frozen one is compared with; elements of a matrix
_AS_NEAR = 0.5  # of the size of weights: those that were drawn apart are 1.4 away


def copies_of_trained(model: Any) -> set[int]:
    """Modules that are frozen, and copies of others in the model that are trained, or averages of them: the same layers
    with weights that are near. What they are called says nothing. Layers of one list are left out: torch draws those of
    an encoder alike."""
    trained: dict[tuple[Any, ...], list[tuple[str, Any]]] = {}
    frozen: list[tuple[tuple[Any, ...], str, Any]] = []
    for path, module in model.named_modules():
        items = dict(module.named_parameters())
        if len(items) < 2 or any(mesh_of(item) is not None or item.is_meta for item in items.values()):
            continue
        key = tuple((name, tuple(item.shape)) for name, item in items.items())
        if not any(item.requires_grad for item in items.values()):
            frozen.append((key, re.sub(r"\d+", "#", path), module))
        elif all(item.requires_grad for item in items.values()):
            trained.setdefault(key, []).append((re.sub(r"\d+", "#", path), module))
    found: set[int] = set()
    for key, path, module in frozen:
        others = [one for name, one in trained.get(key, ())[:_COMPARED_COPIES] if name != path]
        if id(module) not in found and any(_is_near(module, other) for other in others):
            found |= {id(part) for part in module.modules()}
    return found


def _is_near(module: Any, other: Any) -> bool:
    both = [(one, two) for one, two in zip(module.parameters(), other.parameters(), strict=True) if one.dim() > 1]
    pairs = [(_some(one), _some(two).to(one.device)) for one, two in both]
    size = sum(float(one.square().sum()) for one, _ in pairs)
    away = sum(float((one - two).square().sum()) for one, two in pairs)
    return size > 0 and away <= _AS_NEAR * _AS_NEAR * size


def _taking_turns(optimizers: Sequence[Any]) -> set[int]:
    """Parameters of optimizers that hold frozen ones alone, while another one holds others: players that take turns."""
    held = [[item for group in one.param_groups for item in group["params"]] for one in optimizers]
    still = [items for items in held if items and not any(item.requires_grad for item in items)]
    return {id(item) for items in still for item in items} if len(still) < len(held) else set()


def frozen_figures(
    current: ModelRound, model: Any, trained: tuple[Any, ...], adapters: Adapters, optimizers: Sequence[Any] = ()
) -> None:
    """Add how many parameters are not trained, which, and whether frozen blocks are as they were initialised."""
    import torch

    ours, later = {id(parameter) for parameter in trained}, _taking_turns(optimizers)
    named = [(plain(name), parameter) for name, parameter in model.named_parameters()]
    frozen = [(name, item) for name, item in named if not item.requires_grad and id(item) not in later]
    elements = sum(parameter.numel() for _, parameter in named)
    current.figures["frozen_parameters"] = float(len(frozen))
    gains = _gains(model.modules(), trained=True)
    if gains:
        current.put("untrained", ("",), _all_one(gains))
        current.put("gains_apart", ("",), _apart(gains))
    known = [told for module in model.modules() if (told := as_drawn(module)) is not None][:_MOST_NORMS]
    if known:
        current.put(
            "drawn", ("",), (torch.stack([told.to(known[0].device) for told in known]).mean() >= 0.8).reshape(1)
        )
    matrices = [name for name, item in named if id(item) in ours and item.dim() > 1 and not adapters.has(name, item)]
    current.figures["trained_matrices"] = float(len(matrices))
    tables = {id(module.weight) for module in model.modules() if "Embedding" in type(module).__name__
              and getattr(module, "weight", None) is not None}  # fmt: skip
    if not tables.isdisjoint(ours):
        held = sum(item.numel() for _, item in named if id(item) in ours and id(item) in tables)
        current.figures["table_share"] = held / max(1, sum(item.numel() for _, item in named if id(item) in ours))
    carriers = {match[1] for name, _ in named if (match := _ADAPTED.match(name))}
    beside = sum(any(name.startswith(f"{carrier}.") for name in matrices) for carrier in carriers)
    current.figures["trained_carriers"] = float(max(beside, len(adapters.trained_layers(ours))))
    if not frozen:
        return
    current.figures["frozen_share"] = sum(parameter.numel() for _, parameter in frozen) / max(1, elements)
    current.figures["frozen"] = listed(_in_short(named, frozen))
    current.figures |= _whole_parts(model) | places_of_adapters(model)
    current.figures["trained_adapters"] = float(sum(adapters.has(*item) for item in named if id(item[1]) in ours))
    current.figures["frozen_adapters"] = float(sum(adapters.has(*item) for item in frozen))
    copied = copies_of_trained(model)
    whole = {name: one for name, one in model.named_modules()
             if not _OTHER_NETWORK.search(name) and id(one) not in copied}  # fmt: skip
    gains = _gains(whole.values(), trained=False)
    _put_tables(current, model, whole)
    if len(gains) > 1:
        current.put("frozen_gains_new", ("",), _all_one(gains))
    still_zero = _zero_adapters(named, ours) + zero_halves(named, adapters.found, ours)
    if still_zero:
        home = still_zero[0].device
        current.put("zero_adapters", ("",), torch.stack([one.float().to(home) for one in still_zero]).sum().reshape(1))
    if products := zero_products(model, ours):
        home = products[0].device
        current.put("zero_products", ("",), torch.stack([one.to(home) for one in products]).sum().reshape(1))
    if len(trained) == 1 and is_vector_of_layer(model, trained[0]):
        current.figures["lone_vector"] = 1.0
    if len(trained) > 1 and (some := _some_norms(model, ours)):
        current.figures["lone_norms"] = float(some)
    places = [place for place, (_, parameter) in enumerate(named) if id(parameter) in ours]
    apart = {id(one) for one in whole.values()}
    blocks = [module for name, module in find(model).blocks.items() if id(module) in apart]
    still = [block for block in blocks if not any(item.requires_grad for item in block.parameters())]
    inside = {id(parameter) for block in still for parameter in block.parameters()}
    middle = [place for place, (_, parameter) in enumerate(named) if id(parameter) in inside]
    norms = _gains((module for block in still for module in block.modules()), trained=False)
    behind_trained = bool(middle) and bool(places) and places[0] < middle[0]
    if behind_trained and norms:
        current.put("blank", ("",), _all_one(norms))
        current.figures["frozen_blocks"] = float(len(still))
    _put_drawn(current, model, named, whole, places, adapters)


def _put_tables(current: ModelRound, model: Any, whole: dict[str, Any]) -> None:
    """Frozen embeddings that are as torch draws them, and that are random numbers; not those of places, which may be
    random numbers that nobody trains, nor of parts that were trained. whole: the parts of the model."""
    import torch

    frozen = [
        (one, _of_new_part(name, model)) for name, one in whole.items()
        if isinstance(one, torch.nn.Embedding) and not one.weight.requires_grad
        and not PLACE.search(name.rpartition(".")[2])
    ]  # fmt: skip
    for name, told in (
        ("frozen_tables", [(_table_as_drawn(one.weight), new) for one, new in frozen]),
        ("frozen_random_tables", [(is_random_table(one, model), new) for one, new in frozen]),
    ):
        some = [one if new is None else one * new.to(one.device) for one, new in told if one is not None]
        if some:
            current.put(name, ("",), torch.stack([one.to(some[0].device) for one in some]).sum().reshape(1))


def _of_new_part(name: str, model: Any) -> Any:
    """0 where the frozen layers of a layer's part of the model show that they were trained, 1 where not; else None."""
    part = getattr(model, name.partition(".")[0], model)
    told = trained_before([one for one in part.named_parameters() if not one[1].requires_grad], 0.0)
    return None if told is None else 1.0 - told.reshape(()).float()


def _put_drawn(
    current: ModelRound, model: Any, named: list[tuple[str, Any]], whole: dict[str, Any], places: list[int],
    adapters: Adapters,
) -> None:  # fmt: skip
    """Frozen layers that are as torch draws them. whole: the parts of the model; places: of what is trained."""
    import torch

    # a trained layer comes before, and not only positions or a token beside the layers
    layers = {id(item) for one in model.modules() if not one._modules for item in one._parameters.values()}
    layers |= {id(named[place][1]) for place in places if adapters.has(*named[place])}  # beside the layer they are for
    first = next((place for place in places if id(named[place][1]) in layers), len(named))
    behind = {id(parameter) for _, parameter in named[first:]}
    drawn: dict[bool, list[Any]] = {True: [], False: []}
    recurrent, zero = False, []
    kinds = torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d
    for name, module in whole.items():
        table = isinstance(module, torch.nn.Embedding) and not (_CODEBOOK.search(name) or PLACE.search(name))
        if not NAMED.search(name) and (table or isinstance(module, kinds)):
            zero += _zero(module)
        if not NAMED.search(name) and (fresh := _as_drawn(module)) is not None:
            drawn[id(_matrix(module)) in behind].append(fresh)
            recurrent |= isinstance(module, torch.nn.RNNBase)
    if drawn[True]:
        current.put("frozen_as_drawn", ("",), torch.stack(drawn[True]).sum().reshape(1))
    if zero:
        home = zero[0].device
        current.put("frozen_zero", ("",), torch.stack([one.to(home) for one in zero]).sum().reshape(1))
    if recurrent:
        current.figures["frozen_recurrent"] = 1.0
    if len(drawn[False]) > 1 or (drawn[False] and recurrent):  # a single one may be a random projection
        current.put("first_as_drawn", ("",), torch.stack(drawn[False]).sum().reshape(1))


def _zero(module: Any) -> list[Any]:
    """Whether a frozen layer is all 0, as far as elements at even distances of its weight and its bias say."""
    held = [item for item in module._parameters.values() if item is not None]
    if any(item.requires_grad or item.is_meta or mesh_of(item) is not None or not item.numel() for item in held):
        return []
    some = [spread(item, _COMPARED) for item in held]
    return [sum((item != 0).sum() for item in some) == 0] if module._parameters.get("weight") is not None else []


def _in_short(named: list[tuple[str, Any]], frozen: list[tuple[str, Any]]) -> dict[str, None]:
    """Names of what is frozen: up to a number where all that begins so is, else of the part of it that is."""
    mixed = {
        name[:end] for name, item in named if item.requires_grad
        for end in range(1, len(name)) if name[end] == "."
    }  # fmt: skip
    short: dict[str, None] = {}
    for name, _ in frozen:
        number = re.search(r"\d+(?=\.)", name)
        ends = [at for at in range(number.end(), len(name)) if name[at] == "."] if number else []
        short[next((name[:end] for end in ends if name[:end] not in mixed), name)] = None
    return short


def _whole_parts(model: Any) -> dict[str, str]:
    """Names of parts that are trained, or frozen, as a whole: those of a model's parts, and of parts of these."""
    parts: dict[bool, dict[str, None]] = {True: {}, False: {}}
    named = [(plain(name), module) for name, module in model.named_modules()]
    named += [(plain(name), item) for name, item in model.named_parameters(recurse=False)]
    for name, part in named:
        items = list(part.parameters()) if hasattr(part, "parameters") else [part]
        states = {bool(item.requires_grad) for item in items}
        if name and name.count(".") < _DEEP and len(states) == 1 and not re.search(r"\d", name):
            parts[states.pop()][name] = None
    return {
        key: ", ".join(list(names)[:_MOST_PARTS])
        for key, names in (("parts_trained", parts[True]), ("parts_frozen", parts[False])) if names
    }  # fmt: skip


def _some(item: Any) -> Any:
    line = local(item.detach()).reshape(-1)
    return line[:: max(1, len(line) // _OF_EACH)].float()


def is_vector_of_layer(model: Any, parameter: Any) -> bool:
    """Whether it is the bias of a layer whose matrix is frozen, or the gains or the bias of a normalisation."""
    for module in model.modules():
        if any(item is parameter for item in module._parameters.values()):
            weight = own(module, "weight")
            return (
                parameter.dim() == 1 and len(parameter) >= _LEAST_GAINS and weight is not None
                and ("Norm" in type(module).__name__ or (weight is not parameter and weight.dim() > 1))
            )  # fmt: skip
    return False


def _some_norms(model: Any, ours: Collection[int]) -> int:
    """How many normalisations are trained, where they are all that is; 0 else. ours: parameters that are trained, by
    id."""
    held = {
        name: {id(item) for item in module._parameters.values() if item is not None}
        for name, module in model.named_modules() if "Norm" in type(module).__name__
    }  # fmt: skip
    trained = [items for items in held.values() if items & set(ours)]
    return len(trained) if trained and set(ours) <= set().union(*trained) else 0


def _zero_adapters(named: list[tuple[str, Any]], ours: set[int]) -> list[Any]:
    """Of each layer of which adapters are frozen and none is trained: whether one of their matrices is all zero."""
    import torch

    adapters = [(match[1], item) for name, item in named if NAMED.search(name) and (match := _OF_ADAPTER.match(name))]
    carriers = {carrier for carrier, item in adapters if id(item) in ours}
    if not carriers:
        return []
    idle: dict[str, list[Any]] = {}
    for carrier, item in adapters:
        if carrier not in carriers and not item.requires_grad and not item.is_meta and mesh_of(item) is None:
            idle.setdefault(carrier, []).append((item.detach() == 0).all())
    device = next((items[0].device for items in idle.values()), None)
    return [torch.stack(items).any().float().to(device) for items in idle.values()]


def _gains(modules: Iterable[Any], trained: bool) -> list[Any]:
    """The weights of normalisation layers; on this rank some may have no part."""
    weights = [
        local(module.weight)
        for module in modules
        if "Norm" in type(module).__name__
        and getattr(module, "weight", None) is not None
        and bool(module.weight.requires_grad) == trained
        and not module.weight.is_meta
    ]
    return [weight for weight in weights if weight.numel()][:_MOST_NORMS]


def _all_one(weights: list[Any]) -> Any:
    import torch

    return torch.stack([(item == 1).all().to(weights[0].device) for item in weights]).all().reshape(1)


def _apart(gains: list[Any]) -> Any:
    """Whether each layer's gains are several numbers."""
    import torch

    return torch.stack([(item != item[0]).any().to(gains[0].device) for item in gains]).all().reshape(1)


def trained_before(named: Iterable[tuple[str, Any]], most: float = 0.5) -> Any:
    """Whether parameters were trained already: 1 or 0 on their device, None where nothing shows it.

    Gains of normalisation layers begin as one number: training sets each apart. Without such layers, biases that are
    beyond the bound up to which torch draws them, and not one number, were trained. most: more than this share of them.
    """
    import torch

    known = {name: local(item) for name, item in named if not item.is_meta}
    lines = {name: item for name, item in known.items() if item.dim() == 1 and len(item) >= _LEAST_GAINS}
    gains = [item for name, item in lines.items() if not name.endswith("bias")][:_MOST_NORMS]
    if gains:
        return _apart(gains)
    pairs = [(item, known[name[: -len("bias")] + "weight"]) for name, item in lines.items()
             if name.endswith("bias") and name[: -len("bias")] + "weight" in known][:_MOST_NORMS]  # fmt: skip
    beyond = [(bias != bias[0]).any() & (bias.abs().amax() > 1.001 * weight[0].numel() ** -0.5)
              for bias, weight in pairs if weight.dim() > 1 and len(weight)]  # fmt: skip
    return torch.stack([item.to(beyond[0].device) for item in beyond]).float().mean() > most if beyond else None


def _as_drawn(module: Any) -> Any:
    """`as_drawn` of a frozen layer."""
    weight = _matrix(module)
    return None if weight is None or weight.requires_grad else as_drawn(module)


def _matrix(module: Any) -> Any:
    """A layer's weight, of a recurrent one what its inputs are multiplied by."""
    import torch

    return own(module, "weight_ih_l0" if isinstance(module, torch.nn.RNNBase) else "weight")


def as_drawn(module: Any) -> Any:
    """Whether a layer's weight is as torch draws it, uniform up to one over the root of its inputs, of a recurrent one
    of its hidden size: 1 or 0 on its device. None of other layers."""
    import torch

    weight, recurrent = _matrix(module), isinstance(module, torch.nn.RNNBase)
    known = recurrent or isinstance(module, (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d))
    if not known or weight is None:
        return None
    if weight.is_meta or mesh_of(weight) is not None or weight.numel() < _LEAST_DRAWN:
        return None
    bound = (module.hidden_size if recurrent else weight[0].numel()) ** -0.5
    some = weight.detach().reshape(-1)[:_COMPARED].float()
    near = (some.abs().amax() <= bound * 1.001) & (some.abs().amax() > 0.98 * bound)
    return (near & ((some.std() / bound * 3**0.5 - 1).abs() < 3 * (0.2 / len(some)) ** 0.5)).float()


def _table_as_drawn(weight: Any) -> Any:
    """Whether an embedding is as it is drawn, normally with a deviation of 1 or 0.02: 1 or 0 on its device."""
    few = weight.numel() < _LEAST_DRAWN * 4
    if few or weight.is_meta or mesh_of(weight) is not None or not is_here(weight):
        return None
    some = weight.detach().reshape(-1)[:_COMPARED].float()
    deviation, error = some.std(), 4 / (2 * len(some)) ** 0.5
    usual = ((deviation - 1).abs() < error) | ((deviation / 0.02 - 1).abs() < error)
    tails = ((some / deviation) ** 4).mean()  # 3 of a normal distribution
    return (usual & ((tails - 3).abs() < 4 * (24 / len(some)) ** 0.5)).float()


def is_random_table(module: Any, model: Any) -> Any:
    """Whether an embedding is random numbers of any one size, normal or even: of mean 0, with rows and columns as far
    apart in size as those of random numbers are, and columns that resemble each other no more. 1 or 0 on its device;
    None of small tables, of codebooks, which are often moved by an average and no gradient, of places, which may be
    random numbers as well, and where another embedding is trained. A table that was
    trained, sines, word vectors and rows of one length are none of this."""
    import torch

    weight = own(module, "weight")
    if weight is None or weight.is_meta or mesh_of(weight) is not None or not is_here(weight):
        return None
    if weight.dim() != 2 or min(weight.shape[0] - 1, 2 * weight.shape[1]) < _LEAST_ROWS:
        return None
    if weight.numel() < _LEAST_DRAWN * 4 or any(
        _CODEBOOK.search(f"{name} {type(one).__name__}")
        for name, one in model.named_modules() if any(part is module for part in one.children()) or one is module
    ):  # fmt: skip
        return None
    for name, one in model.named_modules():
        if PLACE.search(name.rpartition(".")[2]):
            if one is module:
                return None
        elif isinstance(one, torch.nn.Embedding) and one.weight is not weight and one.weight.requires_grad:
            return None
    rows = weight.detach()[: max(2 * _LEAST_ROWS, _COMPARED // weight.shape[1])].float()
    some = rows[(torch.arange(len(rows), device=rows.device) != (module.padding_idx or 0))] if len(rows) else rows
    count, width = some.shape
    each, size = count * width, some.square().mean().clamp_min(1e-30)
    scaled = some / size.sqrt()
    tails = scaled.pow(4).mean()
    even = ((tails - 1.8).abs() < _ERRORS * (2 / each) ** 0.5) & (scaled.abs().amax() < 1.8)
    normal = (tails - 3).abs() < _ERRORS * (24 / each) ** 0.5
    spread = torch.where(even, 0.8, 2.0)  # of the squares of one number
    found = (normal | even) & (scaled.mean().abs() < _ERRORS / each**0.5)
    for dim, others, number in ((1, width, count), (0, count, width)):  # sizes of rows, and of columns
        apart = (scaled.square().mean(dim) - 1).square().mean() * others / spread
        found = found & ((apart - 1).abs() < 1.5 * _ERRORS * (2 / number) ** 0.5)
    narrow = scaled if count >= width else scaled.T
    narrow = torch.nn.functional.normalize(narrow[:, :_WIDEST], dim=0)
    pairs = narrow.shape[1] * (narrow.shape[1] - 1) / 2
    alike = (narrow.T @ narrow).fill_diagonal_(0.0).square().sum() / 2 * len(narrow)
    return (found & ((alike - pairs).abs() < _ERRORS * (2 * pairs) ** 0.5 + _ERRORS)).float()
