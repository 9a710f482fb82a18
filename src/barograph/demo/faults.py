"""Ways to break the demo's training on purpose, for the doctor to find.

In:   the name of a fault, and the step at which it begins.
Out:  a `Fault`, whose methods the loop calls at each step.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from barograph.demo.loop import Loop

STEPS = 240  # of a broken training, unless told otherwise
_WAIT = 0.25  # seconds a batch


class Fault:
    """Nothing is wrong. Each fault changes one thing, from step `onset` on.

    about: what it breaks, in a sentence. moe: needs a mixture of experts.
    """

    about: ClassVar[str] = ""
    moe: ClassVar[bool] = False

    def __init__(self, onset: int):
        self.onset = onset

    def begin(self, loop: Loop) -> None:
        """Step `onset` is about to begin."""

    def rate(self) -> float:
        """What the learning rate is multiplied with."""
        return 1.0

    def batch(self, batch: Tensor, number: int) -> Tensor:
        """The batch [windows, bytes] that is trained on at step `number`."""
        return batch

    def targets(self, targets: Tensor) -> Tensor:
        """What is to be predicted [windows, bytes]."""
        return targets

    def gradients(self, loop: Loop, number: int) -> None:
        """Backward is over, the optimizer has not stepped."""

    def clears(self) -> bool:
        """Whether gradients are cleared after the step."""
        return True

    def held_out(self, windows: Tensor) -> Tensor:
        """The windows of an evaluation."""
        return windows


class HighLearningRate(Fault):
    about = "the learning rate is a hundred times what it was"

    def rate(self) -> float:
        return 100.0


class BadBatch(Fault):
    about = "one batch is noise from another file format"

    def batch(self, batch: Tensor, number: int) -> Tensor:
        if number != self.onset:
            return batch
        return torch.randint(128, 256, batch.shape, generator=torch.Generator().manual_seed(number))


class NotANumber(Fault):
    about = "one element of a layer's gradient overflows to infinity"

    def gradients(self, loop: Loop, number: int) -> None:
        if number == self.onset:
            middle = [weight for name, weight in loop.model.named_parameters() if ".1." in name and weight.dim() > 1]
            assert middle[0].grad is not None
            middle[0].grad.view(-1)[0] = float("inf")


class MissingZeroGradFault(Fault):
    about = "gradients are not cleared any more between steps"

    def clears(self) -> bool:
        return False


class StaleOptimizer(Fault):
    about = "the optimizer steps copies of the weights, as after a model was moved or wrapped"

    def begin(self, loop: Loop) -> None:
        for group in loop.optimizer.param_groups:
            group["params"] = [weight.detach().clone().requires_grad_(True) for weight in group["params"]]
        loop.optimizer.state.clear()

    def gradients(self, loop: Loop, number: int) -> None:
        for weight in (item for group in loop.optimizer.param_groups for item in group["params"]):
            weight.grad = torch.zeros_like(weight)


class FrozenLayerFault(Fault):
    about = "one block of the model learns nothing any more"

    def gradients(self, loop: Loop, number: int) -> None:
        for name, weight in loop.model.named_parameters():
            if ".1." in name:
                weight.grad = None


class ShiftedTargets(Fault):
    about = "targets are shifted by one more byte"

    def targets(self, targets: Tensor) -> Tensor:
        return torch.roll(targets, -1, dims=1)


class RepeatedData(Fault):
    about = "the loader gives the same batch again and again"

    def __init__(self, onset: int):
        super().__init__(onset)
        self._held: Tensor | None = None

    def batch(self, batch: Tensor, number: int) -> Tensor:
        self._held = batch if self._held is None else self._held
        return self._held


class SlowLoader(Fault):
    about = "each batch takes a quarter of a second to come"

    def batch(self, batch: Tensor, number: int) -> Tensor:
        time.sleep(_WAIT)
        return batch


class OtherTokens(Fault):
    about = "evaluations use another vocabulary than the training"

    def held_out(self, windows: Tensor) -> Tensor:
        return torch.randperm(256, generator=torch.Generator().manual_seed(1))[windows]


class WeightDecay(Fault):
    about = "weight decay is a thousand times what it was"

    def begin(self, loop: Loop) -> None:
        for group in loop.optimizer.param_groups:
            group["weight_decay"] *= 1000


class DeadExpertFault(Fault):
    about = "the router sends all tokens to the same experts"
    moe = True

    def begin(self, loop: Loop) -> None:
        for name, module in loop.model.named_modules():
            if name.endswith("router"):
                module.register_forward_hook(_prefer_two, prepend=True)  # before those that watch


def _prefer_two(module: object, given: object, logits: Tensor) -> Tensor:
    """Router logits (tokens, experts) by which the first two experts get every token."""
    kept = torch.zeros(logits.shape[-1])
    kept[2:] = -1e4
    return logits + kept


FAULTS: dict[str, type[Fault]] = {
    "learning-rate": HighLearningRate,
    "bad-batch": BadBatch,
    "nan": NotANumber,
    "zero-grad": MissingZeroGradFault,
    "stale-optimizer": StaleOptimizer,
    "frozen-layer": FrozenLayerFault,
    "shifted-targets": ShiftedTargets,
    "repeated-data": RepeatedData,
    "slow-loader": SlowLoader,
    "other-tokens": OtherTokens,
    "weight-decay": WeightDecay,
    "dead-expert": DeadExpertFault,
}
