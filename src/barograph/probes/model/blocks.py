"""Where to look in a model: its blocks in order, what stands before and after them, the inside of their MLPs.

In:   a torch model of any make.
Out:  named modules. Nothing is run and nothing is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch.nn import Module


class BlockPlaces(NamedTuple):
    """What an activation watch hooks, by name."""

    embeddings: dict[str, Module]  # their outputs enter the first block
    blocks: dict[str, Module]  # in order of depth: their outputs are the residual stream
    downs: dict[str, Module]  # their inputs are an MLP's units after its activation function
    bounded: dict[str, Module]  # activation modules with bounds, such as Tanh: their outputs can saturate
    functions: dict[str, Module]  # all activation modules (what speedrun-mup looked at)


_BOUNDED = ("Tanh", "Sigmoid", "Hardtanh", "Hardsigmoid", "Softsign", "ReLU6")
_FUNCTIONS = (*_BOUNDED, "ReLU", "GELU", "SiLU", "LeakyReLU", "ELU", "Mish", "NewGELUActivation", "GELUActivation")
_WRAPPED = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def plain(name: str) -> str:
    """A module's or parameter's name without what wrappers (DDP, FSDP, torch.compile) put into it."""
    for wrapper in _WRAPPED:
        name = f".{name}".replace(f".{wrapper}", ".").removeprefix(".")
    return name


def find(model: Any) -> BlockPlaces:
    """The places of a model. A model with no repeated blocks has its children as blocks."""
    blocks = _blocks(model)
    inside = {id(module) for block in blocks.values() for module in block.modules()}
    embeddings, narrowing, bounded, functions = {}, {}, {}, {}
    for name, module in model.named_modules():
        kind, name = type(module).__name__, plain(name)
        if "Embedding" in kind and id(module) not in inside and hasattr(module, "weight"):
            embeddings[name] = module
        if kind in _FUNCTIONS:
            functions[name] = module
            if kind in _BOUNDED:
                bounded[name] = module
        width = _widths(module)
        if width is not None and width[0] > width[1] and id(module) in inside:
            narrowing[name] = (module, width[1])
    # an MLP's last layer narrows to the model's width; a key's or value's with fewer heads narrows below it
    wide = {int(module.weight.shape[-1]) for module in embeddings.values()}
    most = max((width for _, width in narrowing.values()), default=0)
    downs = {name: module for name, (module, width) in narrowing.items() if width in (wide or {most})}
    return BlockPlaces(embeddings, blocks, downs, bounded, functions)


def _blocks(model: Any) -> dict[str, Any]:
    """The longest list of modules of one class: in a transformer its layers, in the order they run."""
    best: list[tuple[str, Any]] = []
    for name, module in model.named_modules():
        kind = type(module).__name__
        if kind not in ("ModuleList", "Sequential", "ModuleDict"):
            continue
        children = [(plain(f"{name}.{child}" if name else child), each) for child, each in module.named_children()]
        kinds = {type(each).__name__ for _, each in children}
        alike = len(kinds) == 1 and any(True for _, each in children for _ in each.children())
        if alike and len(children) > len(best):
            best = children
    if not best:
        root = model
        while len(list(root.children())) == 1:  # a wrapper, or a model in one Sequential
            root = next(root.children())
        names = {id(module): plain(name) for name, module in model.named_modules()}
        best = [(names[id(child)], child) for child in root.children()]
    return dict(best)


def _widths(module: Any) -> tuple[int, int] | None:
    """Input and output width of a linear layer (torch's, or GPT-2's Conv1D, which is transposed)."""
    # to read the weight of a parametrised layer is to compute it, which moves what spectral norm keeps
    kind = type(module).__name__
    if kind == "Conv1D":
        shape: Any = getattr(getattr(module, "weight", None), "shape", ())
        return (int(shape[0]), int(shape[1])) if len(shape) == 2 else None
    read, given = (getattr(module, name, None) for name in ("in_features", "out_features"))
    if "Embedding" in kind or not isinstance(read, int) or not isinstance(given, int):
        return None
    return read, given
