"""Parameters that a step left as they were, although they had a gradient.

In:   the watched parameters at each step, and which of them the stepping optimizers hold.
Out:  how many stayed equal, bit for bit.

Held by an optimizer: a parameter counts its changes in place, and a step that changed it has raised the counter.
Kernels that write past the counter (torch's fused optimizers; on a device those over many tensors, too; `.data`) never
raise it; such a parameter is judged by its measured update alone, whatever else is written to it between two steps, as
the weights of an average for an evaluation are. Held by none: an outer optimizer may copy its own weights over it, so
its values, or some thousands of them, are kept from one step to the next and compared on the device. One whose numbers
lie where those of a held one do, as what a reparametrisation makes of a tied weight, moves with it. Gradients that
came before the first step, and to which nothing was added since, say nothing: a backbone that runs without gradients
may still have those of its own training.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.blocks import find
from barograph.probes.model.frozen import is_vector_of_layer, trained_before
from barograph.probes.model.parameters import Known, local, spread
from barograph.probes.model.stale import changes

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_KEPT = 4096  # elements of one parameter
_COMPARED = 4  # parameters


class Unchanged:
    """Compares parameters from step to step."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._versions: list[int] = []  # when the step began
        self._counts: list[bool] = []  # whether its counter was ever raised by a step
        self._parameters: tuple[Any, ...] = ()
        self._key: list[int] = []
        self._held: tuple[Any, ...] = ()
        self._loose: list[Any] = []  # held by no optimizer
        self.reached: set[str] = set()  # the names of these that had a gradient when the last step began
        self._named = False  # whether it is still to be said that these were trained before
        self._kept: list[tuple[Any, Tensor]] = []
        self._seen: dict[int, tuple[Known, int]] = {}  # the gradient of each, and its counter
        self._suspects = 0
        self._foreign: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._before: weakref.ref[Any] | None = None  # the optimizer of others that stepped last

    # -- held by the optimizers that step ----------------------------------------------------------------

    def held(self, parameters: tuple[Any, ...], names: Iterable[str]) -> list[str] | None:
        """A step is over: the names of those whose counters steps have raised before, and this one has not. None
        at the first step. Whether they had a gradient and a learning rate the caller knows."""
        if parameters is not self._parameters:
            self._parameters, self._counts = parameters, [False] * len(parameters)
            return None
        versions, before = [parameter._version for parameter in parameters], self._versions
        still = [place for place, (earlier, now) in enumerate(zip(before, versions, strict=True)) if earlier == now]
        if not still:
            self._counts = [True] * len(versions)
            return []
        for place, (earlier, now) in enumerate(zip(before, versions, strict=True)):
            self._counts[place] |= earlier != now
        known = tuple(names)
        return [known[place] for place in still if self._counts[place]]

    # -- held by none ------------------------------------------------------------------------------------

    def began(self, current: ModelRound, looks: Any, optimizers: Iterable[Any]) -> None:
        """A step begins: add how many parameters have a gradient and no optimizer, whether some of them are what they
        were a step ago, and once, whether they were trained before the watch began."""
        self._before = None
        parameters, owned = looks.parameters, looks.owners(optimizers)
        self._versions = [parameter._version for parameter in parameters]
        key = [id(some) for some in (parameters, *owned)]
        if key != self._key:
            self._key, self._held = key, (parameters, *owned)  # held on to, so that ids stay theirs
            held = {id(parameter) for some in owned for parameter in some}
            places = {_place(parameter) for some in owned for parameter in some}  # one tensor may be two parameters
            self._loose = [one for one in parameters if id(one) not in held and _place(one) not in places]
            self._named = bool(held) and bool(self._loose)
        self.reached = {looks.names[id(one)] for one in self._loose if one.grad is not None}
        found = self._compare(self._loose) if self._loose or self._kept else None
        current.suspect(found)
        if found is not None and self._named:
            self._named = False
            if _by_block(self._model, {id(one) for one in self._loose}):
                current.figures["unheld_by_block"] = 1.0
            loose = {id(one) for one in self._loose}
            if all(is_vector_of_layer(self._model, one) for one in parameters if id(one) not in loose):
                current.figures["held_vectors"] = float(len(parameters) - len(loose))
            trained = trained_before([(looks.names[id(one)], one) for one in self._loose])
            if trained is not None:
                current.put("unheld_trained", ("",), trained.reshape(1))

    def _compare(self, parameters: Sequence[Any]) -> tuple[int, Tensor] | None:
        import torch

        kept, count = self._kept, self._suspects
        with_gradient = [one for one in parameters if one.grad is not None]
        suspects = [one for one in with_gradient if not _old(self._seen.get(id(one)), one.grad)]
        self._seen = {id(one): (Known(one.grad), changes(one.grad)) for one in with_gradient}
        self._suspects = len(suspects)
        some = suspects[:: max(1, len(suspects) // _COMPARED)][:_COMPARED]
        self._kept = [(parameter, _part(parameter).clone()) for parameter in some]
        now = {id(parameter) for parameter in suspects}
        equal = [
            (_part(parameter) == values).all().reshape(())
            for parameter, values in kept
            if id(parameter) in now and _part(parameter).shape == values.shape
        ]
        home = equal[0].device if equal else None
        return (count, torch.stack([item.to(home) for item in equal])) if equal else None

    def foreign(self, optimizer: Any, parameters: tuple[Any, ...]) -> tuple[int, Tensor] | None:
        """An optimizer that holds none of the parameters has stepped, after a backward pass that reached them.

        As in `began`, where its parameters are copies of ours by their shapes, and it steps for the second time
        without one of ours between: then it is they that should have been stepped.
        """
        copies = self._foreign.get(optimizer)
        if copies is None:
            shapes = sorted(tuple(item.shape) for group in optimizer.param_groups for item in group["params"])
            copies = shapes == sorted(tuple(parameter.shape) for parameter in parameters)
            self._foreign[optimizer] = copies
        if not copies:
            return None
        again = self._before is not None and self._before() is optimizer
        self._before = weakref.ref(optimizer)
        found = self._compare(parameters)
        return found if again else None


def _by_block(model: Any, loose: set[int]) -> bool:
    """Whether some blocks are frozen, and of another one of their class all that is trained is in no optimizer: who
    freezes some means the others to be trained."""
    frozen, left = set(), set()
    for block in find(model).blocks.values():
        items = list(block.parameters())
        trained = {id(item) for item in items if item.requires_grad}
        if items and not trained:
            frozen.add(type(block))
        elif trained and trained <= loose:
            left.add(type(block))
    return not frozen.isdisjoint(left)


def _old(seen: tuple[Known, int] | None, gradient: Any) -> bool:
    """Whether this is the gradient that was seen a step ago, and nothing was added to it since."""
    return seen is not None and seen[0](gradient) and seen[1] == changes(gradient)


def _place(parameter: Any) -> int:
    """Where its numbers lie; its own id where it has none."""
    mine = local(parameter.detach())
    return int(mine.data_ptr() if mine.numel() else 0) or id(parameter)


def _part(parameter: Any) -> Tensor:
    """Some elements of a parameter, at even distances."""
    return spread(parameter, _KEPT)
