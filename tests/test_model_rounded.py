"""Copies of the weights in 32 bits that hold no more than sixteen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.optimizer.rounded import CopiesRounded

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from watched_models import Model, Notes, loss_of  # noqa: E402

from barograph.probes.model.watch import ModelWatch  # noqa: E402


def told(back: bool, kind: Any, rate: float = 1e-3, full: Any = torch.float32) -> list[float]:
    """What is recorded. back: whether the weights are read back into the copies."""
    torch.manual_seed(0)
    model = Model().to(kind)
    ours = list(model.parameters())
    copies = [nn.Parameter(one.detach().to(full).clone()) for one in ours]
    optimizer = torch.optim.AdamW(copies, lr=rate, weight_decay=0.0)
    run = Notes()
    watch = ModelWatch(run, model, optimizer, gradients=0, updates=0, weights=0, histograms=0, activations=0,
                       optimizer_state=0, budget=None)  # fmt: skip
    for step in range(42):
        loss_of(model).backward()
        for one, copy in zip(ours, copies, strict=True):
            copy.grad = one.grad.to(full)
        optimizer.step()
        with torch.no_grad():
            for one, copy in zip(ours, copies, strict=True):
                one.copy_(copy)
                if back:
                    copy.copy_(one)
        model.zero_grad()
        run.log(step)
    watch.close()
    return [
        fields["copies_rounded"] for kind, _, fields in run.records if kind == "model" and "copies_rounded" in fields
    ]


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_copies_into_which_the_weights_are_read_back_are_rounded(kind: Any) -> None:
    assert told(True, kind) == [1] * 5 and told(False, kind) == [0] * 5


def test_copies_that_do_not_move_or_are_not_fuller_say_nothing() -> None:
    assert told(True, torch.bfloat16, rate=0.0) == [0] * 5
    assert told(True, torch.float32) == [] and told(True, torch.bfloat16, full=torch.bfloat16) == []


@pytest.mark.parametrize("pieces", [(), (2, 4)])
@pytest.mark.parametrize(
    ("values", "says"), [([1] * 6, 1), ([0, 0, 1, 1, 1, 0], 1), ([1, 1, 0, 1, 1, 0], 0), ([0] * 6, 0)]
)
def test_three_looks_in_a_row_are_told_of(values: list[float], says: int, pieces: tuple[int, ...]) -> None:
    steps = np.arange(8, 56, 8)
    series = {"model/copies_rounded": (steps, np.array(values)), "model/half_parameters": ([0], [12.0])}
    findings = found([CopiesRounded()], series, pieces)
    assert [one.severity for one in findings] == ["warning"] * says
