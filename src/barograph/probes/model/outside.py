"""Parameters that a loss reaches, and that belong neither to the watched model nor to an optimizer.

In:   the leaves of a loss's graph, twice: in the second backward pass and some later.
Out:  figures for the `model` record; some elements are compared on the device, and nothing waits.

Layers that a model keeps in a plain list or dictionary are not its parameters, and no optimizer has them; nor has it
the weights of a criterion unless they are given to it. Networks that others train, such as a judge, have changed by
the second look. Those that nobody trained before are as they were drawn: evenly within bounds, normally with the
deviation 1 or 0.02, or all 0 or all 1. Trained weights are none of these.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import Known, mesh_of, spread

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

_MOST, _COMPARED, _DRAWN = 64, 256, 1 << 14  # parameters; elements of each that are compared, and whose make is known
_LEAST = 256  # elements from which on a distribution is known
_EVEN = 0.03  # off the ratio of deviation and bound that an even distribution has
_NORMAL = (1.0, 0.02)  # deviations that weights are drawn with
_ERRORS = 4.0  # standard errors


class OutsideLook:
    """Keeps some of the parameters from one look to the next."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, Known, Any]] | None = None

    def put(
        self, current: ModelRound, leaves: Mapping[int, Any], ours: Collection[Any], stepped: Iterable[Any]
    ) -> None:
        """A step begins. leaves: of the loss's graph, by id; ours: the watched model's; stepped: of optimizers."""
        import torch

        if any(mesh_of(one) is not None for one in ours):  # a sharded model's leaves are others in each pass
            return
        known = {id(one) for one in (*ours, *stepped)}
        kept, self._kept = self._kept, None
        if kept is None:
            some = [
                one for number, one in leaves.items() if number not in known and isinstance(one, torch.nn.Parameter)
            ]
            self._kept = [(id(one), Known(one), _part(one).clone()) for one in some[:_MOST] if mesh_of(one) is None]
            return
        still = [(one, values) for number, is_kept, values in kept
                 if (one := leaves.get(number)) is not None and is_kept(one) and number not in known
                 and one.grad is not None and one.shape.numel()]  # fmt: skip
        if not still:
            return
        home = still[0][0].device
        same = [(_part(one) == values).all().to(home) for one, values in still]
        made = [told.to(home) for one, _ in still if (told := _as_made(one)) is not None]
        fresh = torch.stack(made).float().mean() if made else torch.full((), math.nan, device=home)
        current.figures["outside_elements"] = float(sum(one.numel() for one, _ in still))
        current.put("outside", ("parameters", "drawn"), torch.stack([torch.stack(same).sum().to(fresh.dtype), fresh]))


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """What is recorded, when it has arrived."""
    names, values = numbers.get("outside", ((), ((),)))
    return {f"outside_{name}": float(value) for name, value in zip(names, values[0], strict=True) if value == value}


def _part(parameter: Any) -> Any:
    return spread(parameter, _COMPARED)


def _as_made(parameter: Any) -> Any:
    """Whether it is as something draws it: on its device; None where that can't be known."""
    values = parameter.detach().reshape(-1)[:_DRAWN].float()
    if parameter.dim() < 2:
        return ((values == 0) | (values == 1)).all() if len(values) > 1 else None
    if len(values) < _LEAST:
        return None
    bound, deviation = values.abs().amax(), values.std()
    made = ((deviation * 3**0.5 / bound - 1).abs() < _EVEN) & (values.mean().abs() < 0.1 * bound)
    for usual in _NORMAL:
        made = made | ((deviation / usual - 1).abs() < _ERRORS / math.sqrt(2 * len(values)))
    return made
