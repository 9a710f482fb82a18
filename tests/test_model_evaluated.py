"""The first passes of an evaluation are seen function by function, and whatever runs beside them is left alone."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.overrides import _get_current_function_mode_stack  # noqa: E402

from barograph.probes.model.evaluated import EvaluatedLook  # noqa: E402


class Dropping(nn.Module):
    """Drops numbers whatever its mode, if it is meant to; waits in its forward pass for as long as a test wants."""

    def __init__(self, drops: bool = True) -> None:
        super().__init__()
        self.drops, self.inside, self.goes_on = drops, threading.Event(), threading.Event()

    def forward(self, given: Any, waits: bool = False, fails: bool = False) -> Any:
        if waits:
            self.inside.set()
            assert self.goes_on.wait(20)
        if fails:
            raise ArithmeticError("a pass that fails")
        return functional.dropout(given, 0.5, training=self.drops or self.training)


@pytest.mark.parametrize("drops", [True, False])
def test_dropout_in_evaluation_mode_is_seen_and_the_hooks_are_gone_behind_two_passes(drops: bool) -> None:
    model = Dropping(drops).eval()
    look = EvaluatedLook(model)
    with torch.no_grad():
        model(torch.ones(4))
        assert look.found == float(drops) and model._forward_hooks
        with pytest.raises(ArithmeticError):
            model(torch.ones(4), fails=True)
    assert not model._forward_hooks and not model._forward_pre_hooks and not _get_current_function_mode_stack()


@pytest.mark.parametrize(("running", "training", "found"), [(True, True, True), (True, False, False),
                                                           (False, True, False)])  # fmt: skip
def test_a_batch_norm_of_the_batch_is_seen_and_is_not_called_dropout(
    running: bool, training: bool, found: bool
) -> None:
    class Own(nn.Module):
        def forward(self, given: Any) -> Any:
            mean, variance = (torch.zeros(4), torch.ones(4)) if running else (None, None)
            return functional.batch_norm(given, mean, variance, training=training)

    look = EvaluatedLook(model := Own().eval())
    with torch.no_grad():
        model(torch.randn(8, 4))
    assert (look.found, look.of_batch) == (0.0, found)


@pytest.mark.parametrize(("part", "found"), [("dropout", 0.0), ("whole", 1.0)])
def test_dropout_modules_that_alone_are_in_training_mode_are_meant(part: str, found: float) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))).eval()
    (model[1][1] if part == "dropout" else model[1]).train()
    look = EvaluatedLook(model)
    with torch.no_grad():
        model(torch.ones(2, 4))
    assert look.found == found


def hand_written(kind: str, given: Any) -> Any:
    """What functions do that drop by hand, and what is something else."""
    shape = len(given), 1
    match kind:
        case "compared":
            return given * (torch.rand(shape) >= 0.4).float() / (1 - 0.4)
        case "compared, then turned":
            return given * (~(torch.rand(shape) < 0.3)) * (1 / 0.7)
        case "bernoulli":
            return given * given.new_empty(shape).bernoulli_(0.8).div_(0.8)
        case "of a full one":
            return given * torch.bernoulli(torch.full_like(given, 0.9)) / 0.9
        case "floor":
            return given.div(0.6) * (0.6 + torch.rand(shape)).floor_()
        case "filled":
            return given.masked_fill(torch.rand_like(given) < 0.25, 0.0) / 0.75
        case "hidden places":  # as the task itself: nothing makes up for it
            hidden = (torch.rand(shape) < 0.5).float()
            return given * (1 - hidden) + 7 * hidden
        case "sampled":  # as a latent
            return given + torch.randn_like(given) * 0.5
        case "binary latent":
            return (torch.rand_like(given) < torch.sigmoid(given)).float() / 0.5
        case "order":
            return given[torch.rand(len(given)).argsort()] / 0.5
        case "scaled otherwise":
            return given * (torch.rand(shape) >= 0.4).float() / 0.9
        case _:
            return given / 0.6 * (given > 0.6).float()


@pytest.mark.parametrize(
    ("kind", "drops"),
    [
        ("compared", True), ("compared, then turned", True), ("bernoulli", True), ("of a full one", True),
        ("floor", True), ("filled", True), ("hidden places", False), ("sampled", False), ("binary latent", False),
        ("order", False), ("scaled otherwise", False), ("cut", False),
    ],
)  # fmt: skip
def test_dropout_that_is_written_by_hand_is_seen_by_its_mask_and_its_scale(kind: str, drops: bool) -> None:
    class Own(nn.Module):
        def forward(self, given: Any) -> Any:
            return hand_written(kind, given)

    look = EvaluatedLook(model := Own().eval())
    with torch.inference_mode():
        model(torch.randn(8, 4))
    assert look.found == float(drops)


def noisy(kind: str, table: nn.Embedding, tokens: Any) -> Any:
    """What may become of what is looked up in a table."""
    found = table(tokens)
    match kind:
        case "scaled and moved":
            return found + (2 * torch.rand_like(found) - 1) * 5.0 / found[0].numel() ** 0.5
        case "drawn in place":
            return found * 3.0 + torch.zeros_like(found).uniform_(-0.1, 0.1)
        case "behind places":
            return (found + torch.ones(4)).add_(torch.rand(found.shape).sub_(0.5))
        case "hidden places":  # as the task itself
            return found * (torch.rand(found.shape[:2]) < 0.5).float()[..., None] + 1
        case "drawn by chances":  # a Gumbel
            return found - torch.log(-torch.log(torch.rand_like(found)))
        case "of a diffusion":
            return found + torch.randn_like(found)
        case "hidden numbers":
            return found.tanh() + torch.rand_like(found) - 0.5
        case "one for each example":
            return table(tokens[:, 0]) + torch.rand(len(tokens), 4)
        case "chosen at random":
            return found[torch.rand(len(found)).argsort()] + found
        case _:
            return found


@pytest.mark.parametrize(
    ("kind", "noise"),
    [("scaled and moved", True), ("drawn in place", True), ("behind places", True), ("hidden places", False),
     ("drawn by chances", False), ("of a diffusion", False), ("hidden numbers", False), ("one for each example", False),
     ("chosen at random", False), ("as it is", False)],
)  # fmt: skip
@pytest.mark.parametrize("training", [False, True])
def test_noise_on_embeddings_is_seen_in_evaluation_mode(kind: str, noise: bool, training: bool) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(9, 4)

        def forward(self, tokens: Any) -> Any:
            return noisy(kind, self.table, tokens)

    look = EvaluatedLook(model := Own().train(training))
    with torch.no_grad():
        model(torch.arange(6).view(2, 3))
    assert look.noise == (noise and not training) and not look.found


def test_passes_of_one_model_in_two_threads_at_once_end_each_in_its_own() -> None:
    model = Dropping().eval()
    look = EvaluatedLook(model)
    failed: list[BaseException] = []

    def run(waits: bool) -> None:
        try:
            with torch.no_grad():
                model(torch.ones(4), waits=waits)
            assert not _get_current_function_mode_stack()
        except BaseException as error:
            failed.append(error)

    slow = threading.Thread(target=run, args=(True,))
    slow.start()
    assert model.inside.wait(20)
    quick = threading.Thread(target=run, args=(False,))
    quick.start()
    quick.join(20)
    model.goes_on.set()
    slow.join(20)
    assert not failed and look.found == 1.0


def test_nothing_is_seen_where_something_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(counters={"stats": {"unique_graphs": 1}}))
    model = Dropping().eval()
    look = EvaluatedLook(model)
    with torch.no_grad():
        model(torch.ones(4))
    assert look.found is None and not model._forward_hooks
