"""What of a model is not trained, and whether batch norm's statistics move.

In:   a torch model.
Out:  figures for the `model` record; nothing waits for a device.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from barograph.probes.model.blocks import find, plain
from barograph.probes.model.findings import listed
from barograph.probes.model.parameters import local

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

ADAPTER = re.compile(r"lora|adapter|ia3|dora|loha|lokr|prompt_(?:encoder|embedding)|prefix_", re.I)
_OTHER_NETWORK = re.compile(r"target|teacher|ema|ref|momentum|frozen|random", re.I)
_LAYERS = 4  # of batch norm whose statistics are compared
_EVERY = 10  # steps between two comparisons
_MOST_NORMS = 64


def frozen_figures(current: ModelRound, model: Any, trained: tuple[Any, ...]) -> None:
    """Add how many parameters are not trained, which, and whether frozen blocks are as they were initialised."""
    import torch

    ours = {id(parameter) for parameter in trained}
    named = [(plain(name), parameter) for name, parameter in model.named_parameters()]
    frozen = [(name, parameter) for name, parameter in named if not parameter.requires_grad]
    elements = sum(parameter.numel() for _, parameter in named)
    current.figures["frozen_parameters"] = float(len(frozen))
    if not frozen:
        return
    current.figures["frozen_share"] = sum(parameter.numel() for _, parameter in frozen) / max(1, elements)
    current.figures["frozen"] = listed(dict.fromkeys(re.sub(r"(\d+).*", r"\1", name) for name, _ in frozen))
    current.figures["trained_adapters"] = float(sum(bool(ADAPTER.search(n)) for n, p in named if id(p) in ours))
    current.figures["frozen_adapters"] = float(sum(bool(ADAPTER.search(name)) for name, _ in frozen))
    places = [place for place, (_, parameter) in enumerate(named) if id(parameter) in ours]
    blocks = [module for name, module in find(model).blocks.items() if not _OTHER_NETWORK.search(name)]
    still = [block for block in blocks if not any(item.requires_grad for item in block.parameters())]
    inside = {id(parameter) for block in still for parameter in block.parameters()}
    middle = [place for place, (_, parameter) in enumerate(named) if id(parameter) in inside]
    weights = [
        local(module.weight)
        for block in still
        for module in block.modules()
        if "Norm" in type(module).__name__ and getattr(module, "weight", None) is not None
    ]
    norms = [weight for weight in weights if weight.numel()][:_MOST_NORMS]  # some have no part on this rank
    between = bool(middle) and bool(places) and places[0] < middle[0] and middle[-1] < places[-1]
    if between and norms and not any(item.is_meta for item in norms):
        home = norms[0].device
        current.put("blank", ("",), torch.stack([(item == 1).all().to(home) for item in norms]).all().reshape(1))
        current.figures["frozen_blocks"] = float(len(still))


class BatchNormStatistics:
    """Running statistics of some layers of batch norm, compared every tenth step."""

    def __init__(self, model: Any):
        layers = [
            module for module in model.modules()
            if "BatchNorm" in type(module).__name__
            and "Frozen" not in type(module).__name__
            and getattr(module, "running_mean", None) is not None
        ]  # fmt: skip
        self._layers = layers[:: max(1, len(layers) // _LAYERS)][:_LAYERS]
        self._kept: list[Any] = []
        self._steps = 0

    def put(self, current: ModelRound, trains: bool) -> None:
        """A step begins. trains: whether its passes with gradients were in training mode."""
        import torch

        if not self._layers:
            return
        trains = trains and all(layer.training for layer in self._layers)
        self._steps = self._steps + 1 if trains else 0
        if not trains:
            self._kept = []
        elif self._steps % _EVERY == 1:
            now = [item for layer in self._layers for item in (layer.running_mean, layer.running_var)]
            if self._kept:
                same = [(kept == item).all() for kept, item in zip(self._kept, now, strict=True)]
                current.put("stale_statistics", ("",), torch.stack([item.to(same[0].device) for item in same]).all())
            self._kept = [item.clone() for item in now]
