"""The look at what outputs depend on leaves the training as it is."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked_python
import pytest

import barograph

torch = pytest.importorskip("torch")
from test_model_dependence import STEPS, Language, next_token, seen, trained  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from barograph.probes.model import dependence  # noqa: E402

RANKS = """
import sys
import torch.multiprocessing
from test_model_dependence import on_a_rank
for watch in (True, False):
    torch.multiprocessing.start_processes(on_a_rank, (sys.argv[1], watch), nprocs=2, start_method="fork")
"""


def test_a_graph_with_functions_of_python_is_left_alone(tmp_path: Path) -> None:
    calls = []

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(context: Any, gradient: Tensor) -> Tensor:
            calls.append(1)
            return gradient

    class Own(Language):
        def forward(self, tokens: Tensor) -> Tensor:
            return Counted.apply(super().forward(tokens))

    for model in (Own("plain"), Language("checkpoint")):
        assert seen(trained(tmp_path / type(model).__name__, model, next_token)) == {}
    assert len(calls) == STEPS


@pytest.mark.parametrize("way", ["retained", "hooked"])
def test_a_gradient_that_somebody_keeps_or_hooks_comes_once(tmp_path: Path, way: str) -> None:
    class Kept(Language):
        def __init__(self) -> None:
            super().__init__("plain")
            self.scores, self.came = torch.zeros(0), []

        def attention(self, x: Tensor) -> Tensor:
            self.scores = super().attention(x) * 2
            if self.scores.requires_grad and way == "retained":
                self.scores.retain_grad()
            elif self.scores.requires_grad:
                self.scores.register_hook(lambda gradient: self.came.append(gradient.norm()))
            return self.scores

    kept: list[list[Tensor]] = []
    for watch in (True, False):
        torch.manual_seed(1)
        model, seen_of = Kept(), []

        def loss_of(model: Any, step: int, seen_of: list[Tensor] = seen_of) -> Tensor:
            if step > 1 and way == "retained":
                seen_of.append(model.scores.grad.norm())
            return next_token(model, step)

        run = trained(tmp_path / str(watch), model, loss_of, watch)
        assert not watch or seen(run) == {}
        kept.append(model.came or seen_of)
    assert len(kept[0]) == len(kept[1]) >= STEPS - 1
    assert all(torch.equal(*pair) for pair in zip(*kept, strict=True))


@pytest.mark.parametrize("kind", ["plain", "convolution", "batch mean"])
def test_the_training_is_what_it_is_without_the_look(tmp_path: Path, kind: str) -> None:
    weights = []
    for watch in (True, False):
        torch.manual_seed(1)
        model = Language(kind)
        trained(tmp_path / str(watch), model, next_token, watch)
        weights.append(torch.cat([one.detach().flatten() for one in model.parameters()]))
    assert torch.equal(*weights)


def test_hooks_are_gone_between_the_looks(tmp_path: Path) -> None:
    model, counts = Language("plain"), []

    def loss_of(model: nn.Module, step: int) -> Tensor:
        loss = next_token(model, step)
        counts.append(len(model.conv1d._forward_hooks) + len(model.head._forward_hooks))
        return loss

    trained(tmp_path, model, loss_of)
    assert counts[6] == min(counts)
    assert counts[8] == counts[-1] == counts[6] + 2  # both parts are heard in evaluations, from the eighth step on


@pytest.mark.slow
def test_two_ranks_train_as_they_do_without_the_look(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = forked_python.run(
        sys.executable, "-c", RANKS, tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    with_look, without = (torch.load(tmp_path / f"{watch}.pt") for watch in (True, False))
    assert all(torch.equal(*pair) for pair in zip(with_look, without, strict=True))
    run = barograph.read(str(tmp_path / "True-0"))[0]
    assert list(run.series("model/next_reached").value) == [0.0, 0.0]


def test_without_activations_no_output_is_asked(tmp_path: Path) -> None:
    run = trained(tmp_path, Language("plain"), next_token, watch={"activations": 0})
    assert seen(run) == {}


@pytest.mark.parametrize(
    "between",
    [lambda: None, gc.collect, lambda: [gc.collect(0), gc.collect(1)], gc.freeze, lambda: [gc.freeze(), gc.collect()]],
    ids=["nothing", "collected", "made old", "kept out", "both"],
)
@pytest.mark.parametrize("before", [False, True])
def test_a_graph_with_a_hook_is_not_free_whatever_is_collected(between: Callable[[], Any], before: bool) -> None:
    inputs, layer, free = torch.randn(4, 5), nn.Linear(5, 5), dependence._moment()
    assert dependence._is_free(layer(layer(inputs).relu()).grad_fn, free)
    try:
        began = dependence._moment()
        hidden = layer(inputs)
        hidden.register_hook(lambda gradient: None)
        between()
        began = dependence._moment() if before else began
        output = layer(hidden.relu())
        assert not dependence._is_free(output.grad_fn, began)
    finally:
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # as before it: what all tests have imported
