"""Averages of weights that something writes behind each step, as from copies that an optimizer steps."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from watched_models import TOKENS, Model, Notes, loss_of  # noqa: E402

from barograph.probes.model.watch import ModelWatch  # noqa: E402

DECAY, EVERY = 0.9, 6


def told(how: str, average_kind: Any = torch.float32, evaluates: str = "average") -> dict[str, list[float]]:
    """What is recorded of evaluations. how: what writes weights: the copies in full of weights in sixteen bits, or a
    bound behind each step."""
    torch.manual_seed(0)
    model = Model().to(torch.bfloat16 if how == "copies" else torch.float32)
    ours = list(model.parameters())
    copies = [nn.Parameter(one.detach().float().clone()) for one in ours] if how == "copies" else ours
    optimizer = torch.optim.AdamW(copies, lr=0.03)
    average = copy.deepcopy(model).to(average_kind).requires_grad_(False)
    run = Notes()
    watch = ModelWatch(run, model, optimizer, gradients=0, updates=0, weights=0, histograms=0, activations=0,
                       optimizer_state=0, budget=None)  # fmt: skip
    for step in range(6 * EVERY):
        loss_of(model, torch.randint_like(TOKENS, int(TOKENS.max()) + 1)).backward()
        if how == "copies":
            for one, whole in zip(ours, copies, strict=True):
                whole.grad = one.grad.float()
        optimizer.step()
        with torch.no_grad():
            for one, whole in zip(ours, copies, strict=True):
                one.copy_(whole) if how == "copies" else one.clamp_(-0.3, 0.3)
            for held, one in zip(average.parameters(), ours, strict=True):
                held.lerp_(one.to(held.dtype), 1 - DECAY)
        model.zero_grad()
        run.log(step)
        if step % EVERY == EVERY - 1:
            with torch.no_grad():
                (average if evaluates == "average" else model)(TOKENS)
    watch.close()
    records = [fields for kind, _, fields in run.records if kind == "model"]
    names = ("kept", "writes", "apart", "left", "half", "due")
    return {
        name: [fields[f"evaluated_{name}"] for fields in records if f"evaluated_{name}" in fields][1:] for name in names
    }


@pytest.mark.parametrize("how", ["copies", "bound"])
def test_an_average_is_followed_by_what_the_step_and_what_is_behind_it_leave(how: str) -> None:
    found = told(how)
    assert len(found["kept"]) >= 3
    assert found["kept"] == pytest.approx([DECAY**EVERY] * len(found["kept"]), rel=0.02)
    assert set(found["writes"]) == {EVERY} and set(found["left"]) == {0} and set(found["half"]) == {0}


def test_an_average_in_sixteen_bits_leaves_elements_that_have_to_move() -> None:
    found = told("copies", torch.bfloat16)
    assert set(found["half"]) == {1} and max(found["due"]) > 0


@pytest.mark.parametrize("how", ["copies", "bound"])
def test_the_trained_weights_themselves_are_no_average(how: str) -> None:
    assert set(told(how, evaluates="model")["apart"]) == {0}
