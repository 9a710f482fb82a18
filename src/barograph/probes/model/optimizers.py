"""What optimizers keep of each weight: momentum, second moments against eps, the step they take.

In:   torch optimizers after a step, of any make; what is known of Adam's family is read from its state's names.
Out:  columns by parameter, on the device; nothing waits for it.

Norms are of whole tensors. What needs several operations an element (`below_eps`, `step_mean`, `step_max`) is
read from a sample of every k-th element in tensors beyond `SAMPLE`. A state in eight bits or on another
device than its parameter is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.probes.model.norms import norms
from barograph.probes.model.parameters import Owned, flat, local

if TYPE_CHECKING:
    from torch import Tensor

SAMPLE = 1 << 15  # elements; the standard error of a share p is sqrt(p (1 - p) / SAMPLE) ≤ 0.28%

MOMENTUM = ("exp_avg", "momentum_buffer", "m")
SECOND = ("max_exp_avg_sq", "exp_avg_sq", "square_avg", "v")
COLUMNS = (
    "has_momentum_square", "momentum_square", "has_second_square", "second_square",
    "below_eps", "step_sum", "sampled", "step_max",
)  # fmt: skip
"""All are sums over a tensor's parts, but for the last, a maximum."""


class States(NamedTuple):
    """Columns [c, n] of `COLUMNS`, float64 on the device, of local shards.

    `momentum_square`, `second_square`: squares of the L2 norms, not finite as soon as one element is not; `has_…`:
    whether the optimizer keeps such a thing. `below_eps`, `step_sum`: sums over the `sampled` elements, 0 where
    the optimizer is not of Adam's family; `step_max`: the largest of them.
    """

    names: tuple[str, ...]
    columns: Tensor


def measure(optimizer: Any, own: Owned) -> States | None:
    """The state of those parameters that have one; None if there is none yet."""
    import torch

    rows: list[tuple[Any, ...]] = []
    any_state = False
    for parameter, number in zip(own.parameters, own.groups, strict=True):
        state = optimizer.state.get(parameter) or {}
        first, second = (_find(state, parameter, known) for known in (MOMENTUM, SECOND))
        any_state = any_state or first is not None or second is not None
        rows.append((first, second, state, optimizer.param_groups[number]))
    if not any_state:
        return None
    home = next(part.device for row in rows for part in row[:2] if part is not None)
    wide = torch.float32 if home.type == "mps" else torch.float64
    columns = torch.zeros(len(COLUMNS), len(rows), dtype=wide, device=home)
    for place in (0, 1):
        having = [number for number, row in enumerate(rows) if row[place] is not None]
        squares = norms([rows[number][place] for number in having]).square().to(home, wide)
        where = torch.tensor(having, dtype=torch.int64).to(home, non_blocking=True)
        columns[2 * place].index_fill_(0, where, 1.0)
        columns[2 * place + 1].index_copy_(0, where, squares)
    adaptive, cells = [], []
    for number, (first, second, state, group) in enumerate(rows):
        found = _adaptive(first, second, state, group)
        if found is not None:
            adaptive.append(number)
            cells += [cell.to(home, wide, non_blocking=True) for cell in found]
    if cells:
        table = torch.stack(cells).view(len(adaptive), 4).T.contiguous()
        columns[4:].index_copy_(1, torch.tensor(adaptive).to(home, non_blocking=True), table)
    return States(own.names, columns)


def _find(state: dict[str, Any], parameter: Any, names: Sequence[str]) -> Tensor | None:
    for name in names:
        part: Any = state.get(name)
        if (
            part is not None
            and getattr(part, "shape", None) == parameter.shape
            and (part.is_floating_point() or part.is_complex())
            and part.element_size() >= 2
            and part.device == parameter.device
            and not part.is_meta
        ):
            return flat(local(part))
    return None


def _adaptive(
    first: Tensor | None, second: Tensor | None, state: dict[str, Any], group: dict[str, Any]
) -> list[Any] | None:
    """Adam's step, elementwise: lr · |m̂| / (sqrt(v̂) + eps), Kingma and Ba (2015), algorithm 1."""
    import torch

    betas, eps = group.get("betas"), group.get("eps")
    if first is None or second is None or betas is None or eps is None or not len(first):
        return None
    stride = -(-len(first) // SAMPLE)
    momentum, moment = first[::stride].float(), second[::stride].float()
    step = state.get("step", 1)
    if isinstance(step, torch.Tensor):
        step = step.to(torch.float64) if step.device.type == "cpu" else step
        step = float(step) if step.device.type == "cpu" else step  # one on a device is not waited for
    lr = group.get("lr", 0.0)
    bias_first, bias_second = 1 - float(betas[0]) ** step, 1 - float(betas[1]) ** step
    root = (moment / bias_second).sqrt_()
    below = (root < eps).sum()
    moves = momentum.abs().div_(bias_first).div_(root.add_(eps)).mul_(lr)
    return [below, moves.sum(), torch.tensor(float(len(moves))), moves.amax()]
