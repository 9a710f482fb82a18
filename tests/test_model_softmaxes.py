"""The targets of a cross-entropy are known from the gradient of its logits, where labels are smoothed too."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

from barograph.probes.model import softmaxes  # noqa: E402

Loss = Callable[[Any, Any], Any]


def by_hand(output: Any, target: Any) -> Any:
    """The rest of the weight goes to the other classes alone."""
    wanted = torch.full_like(output, 0.2 / (output.shape[1] - 1)).scatter_(1, target[:, None], 0.8)
    return -(wanted * output.log_softmax(-1)).sum(-1).mean()


def in_two_parts(output: Any, target: Any) -> Any:
    logs = -output.log_softmax(-1)
    return 0.9 * logs.gather(1, target[:, None]).mean() + 0.1 * logs.mean()


def found(output: Any, target: Any, loss_of: Loss) -> softmaxes.Softmax:
    leaf = output.clone().requires_grad_()
    loss_of(leaf, target).backward()
    return softmaxes.find(output.double(), leaf.grad.double(), 2e-3)


SMOOTHED: dict[str, Loss] = {
    "torch's": lambda output, target: functional.cross_entropy(output, target, label_smoothing=0.1),
    "half": lambda output, target: functional.cross_entropy(output, target, label_smoothing=0.5),
    "by hand": by_hand,
    "in two parts": in_two_parts,
}
OTHERS: dict[str, Loss] = {
    "soft targets": lambda output, target: functional.cross_entropy(output, torch.randn_like(output).softmax(-1)),
    "two targets": lambda output, target: (
        0.6 * functional.cross_entropy(output, target)
        + 0.4 * functional.cross_entropy(output, (target + 1) % output.shape[1])
    ),
    "no target": lambda output, target: -output.log_softmax(-1).mean(),
    "squares": lambda output, target: functional.mse_loss(output, functional.one_hot(target, output.shape[1]).float()),
    "squares of chances": lambda output, target: functional.mse_loss(
        output.softmax(-1), functional.one_hot(target, output.shape[1]).float()
    ),
    "a bonus for entropy": lambda output, target: (
        functional.cross_entropy(output, target) - 0.1 * torch.special.entr(output.softmax(-1)).sum(-1).mean()
    ),
}


@pytest.mark.parametrize("name", SMOOTHED)
@pytest.mark.parametrize("width", [6, 30, 4000])
@pytest.mark.parametrize("scale", [0.2, 1.0])
def test_smoothed_labels_show_their_targets_and_weights(name: str, width: int, scale: float) -> None:
    torch.manual_seed(1)
    output, target = scale * torch.randn(24, width), torch.randint(width, (24,))
    said = found(output, target, SMOOTHED[name])
    assert bool(said.follows) and not bool(said.plain) and bool(said.alive.all())
    assert torch.equal(said.target, target)
    assert torch.allclose(said.weight * 24, torch.ones(24, dtype=torch.double), atol=1e-3)
    leaf = output.clone().requires_grad_()
    SMOOTHED[name](leaf, target).backward()
    rows, classes = (leaf.grad < said.below).nonzero().unbind(1)  # where the model is not surer than its labels
    assert len(rows) >= 20 and torch.equal(classes, target[rows])


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("width", [6, 30])
def test_other_losses_have_no_smoothed_labels(name: str, width: int) -> None:
    torch.manual_seed(1)
    output, target = 0.5 * torch.randn(24, width), torch.randint(width, (24,))
    assert not bool(found(output, target, OTHERS[name]).follows)


@pytest.mark.parametrize("width", [6, 100])
def test_a_model_that_is_surer_than_its_smoothed_labels_is_not_misread(width: int) -> None:
    torch.manual_seed(1)
    target = torch.randint(width, (24,))
    output = torch.randn(24, width) + 14 * functional.one_hot(target, width)
    said = found(output, target, SMOOTHED["torch's"])
    assert not bool(said.follows) or torch.equal(said.target, target)


def test_labels_that_are_not_smoothed_stay_plain() -> None:
    torch.manual_seed(1)
    output, target = torch.randn(24, 30), torch.randint(30, (24,))
    said = found(output, target, functional.cross_entropy)
    assert bool(said.follows) and bool(said.plain) and float(said.below) == 0


FEW: dict[str, Loss] = {name: SMOOTHED[name] for name in ("torch's", "half", "in two parts")} | {
    "a sum": lambda output, target: functional.cross_entropy(output, target, reduction="sum", label_smoothing=0.1)
}


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("width", [2, 3, 5])
@pytest.mark.parametrize("scale", [0.2, 3.0])
@pytest.mark.parametrize("of_one", [False, True])
def test_of_few_classes_the_graphs_smoothing_shows_the_targets(
    name: str, width: int, scale: float, of_one: bool
) -> None:
    torch.manual_seed(1)
    output = scale * torch.randn(24, width)
    target = torch.full((24,), 1) if of_one else torch.randint(width, (24,))
    leaf = output.clone().requires_grad_()
    FEW[name](leaf, target).backward()
    smoothing = 0.5 if name == "half" else 0.1
    said = softmaxes.find(output.double(), leaf.grad.double(), 2e-3, smoothing)
    assert bool(said.follows) and not bool(said.plain) and bool(said.alive.all())
    assert torch.equal(said.target, target)
    assert torch.allclose(said.weight, torch.tensor(1.0 if name == "a sum" else 1 / 24, dtype=torch.double), rtol=1e-3)
    rows, classes = (leaf.grad < said.below).nonzero().unbind(1)
    assert torch.equal(classes, target[rows])


def test_rows_that_are_left_out_have_no_target_where_few_classes_are_smoothed() -> None:
    torch.manual_seed(1)
    output, target = torch.randn(24, 3), torch.randint(3, (24,))
    target[::3] = -100
    said = found(output, target, lambda output, target: functional.cross_entropy(output, target, label_smoothing=0.1))
    assert not bool(said.follows)  # nothing says how much
    leaf = output.clone().requires_grad_()
    functional.cross_entropy(leaf, target, label_smoothing=0.1).backward()
    said = softmaxes.find(output.double(), leaf.grad.double(), 2e-3, 0.1)
    assert bool(said.follows) and torch.equal(said.alive, target >= 0)
    assert torch.equal(said.target[said.alive], target[said.alive])


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "two targets"])
@pytest.mark.parametrize("width", [2, 3, 5])
def test_other_losses_of_few_classes_have_no_smoothed_labels(name: str, width: int) -> None:
    torch.manual_seed(1)
    output, target = 0.5 * torch.randn(24, width), torch.randint(width, (24,))
    leaf = output.clone().requires_grad_()
    OTHERS[name](leaf, target).backward()
    assert not bool(softmaxes.find(output.double(), leaf.grad.double(), 2e-3, 0.1).follows)


def test_two_classes_that_are_said_alike_by_all_rows_leave_the_target_open() -> None:
    """Surer than smoothed labels: either class may be the target, with another weight."""
    output = torch.tensor([[4.0, 0.0]]).repeat(24, 1)
    leaf = output.clone().requires_grad_()
    functional.cross_entropy(leaf, torch.zeros(24, dtype=torch.long), label_smoothing=0.1).backward()
    said = softmaxes.find(output.double(), leaf.grad.double(), 2e-3, 0.1)
    assert not bool(said.follows) or bool((said.target == 0).all())


def preference(output: Any, target: Any) -> Any:
    """Of the first half of the rows, against the second."""
    logs = output.log_softmax(-1).gather(2, target[..., None])[..., 0].sum(1)
    chosen, rejected = logs.chunk(2)
    return -functional.logsigmoid(0.1 * (chosen - rejected)).mean()


SIDES: dict[str, Loss] = {
    "both": preference,
    "a policy's": lambda output, target: (
        -(
            output.log_softmax(-1).gather(2, target[..., None])[..., 0].mean(1)
            * torch.tensor([1, -1, -1, 1, 1, -1, 1, -1])
        ).mean()
    ),
    "chosen alone": lambda output, target: functional.cross_entropy(output.flatten(0, 1), target.flatten()),
    "rejected alone": lambda output, target: -functional.cross_entropy(output.flatten(0, 1), target.flatten()),
    "squares": lambda output, target: output.square().mean(),
    "each place its own sign": lambda output, target: (
        output.log_softmax(-1).gather(2, target[..., None])[..., 0] * torch.randn(target.shape)
    ).mean(),
}


@pytest.mark.parametrize("name", SIDES)
def test_the_side_that_is_made_less_likely_is_turned_round_where_the_other_goes_up(name: str) -> None:
    torch.manual_seed(2)
    target = torch.randint(40, (8, 12))
    leaf = torch.randn(8, 12, 40, requires_grad=True)
    SIDES[name](leaf, target).backward()
    turned = softmaxes.one_sided(leaf.grad)
    if name != "both":
        assert torch.equal(turned, leaf.grad)
        return
    assert torch.equal(turned[:4], leaf.grad[:4]) and torch.equal(turned[4:], -leaf.grad[4:])
    assert torch.equal(turned.argmin(-1), target)
    rows = leaf.detach().flatten(0, 1).double()
    assert bool(softmaxes.find(rows, turned.flatten(0, 1).double(), 2e-3).follows)


@pytest.mark.parametrize("times", [10.0, 2.0, 0.125])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_logits_are_multiplied_by_is_the_slope_of_their_gradient(times: float, dtype: Any) -> None:
    output, target = torch.randn(40, 12, generator=torch.Generator().manual_seed(1)), torch.arange(40) % 12
    leaf = output.to(dtype).requires_grad_()
    functional.cross_entropy(leaf * times, target).backward()
    assert float(softmaxes.scale(leaf.detach(), leaf.grad, 2e-3, True)) == pytest.approx(times, rel=1e-3)


def test_losses_of_another_kind_have_no_scale() -> None:
    output, target = torch.randn(40, 12, generator=torch.Generator().manual_seed(1)), torch.arange(40) % 12
    wanted = torch.eye(12)[target]
    losses: list[Callable[[Any], Any]] = [
        lambda one: functional.cross_entropy(2 * one, target, label_smoothing=0.1),
        lambda one: functional.cross_entropy(one * torch.linspace(1, 3, 40)[:, None], target),
        lambda one: functional.binary_cross_entropy_with_logits(3 * one, wanted),
        lambda one: functional.mse_loss(one, wanted),
        lambda one: functional.cross_entropy(30 * one.tanh(), target),
    ]
    for loss in losses:
        leaf = output.clone().requires_grad_()
        loss(leaf).backward()
        assert math.isnan(float(softmaxes.scale(output.double(), leaf.grad.double(), 2e-3, True)))


@pytest.mark.parametrize("cosines", [False, True])
def test_numbers_between_minus_one_and_one_may_be_cosines(cosines: bool) -> None:
    leaf = torch.randn(40, 12, generator=torch.Generator().manual_seed(1)).tanh().double().requires_grad_()
    functional.cross_entropy(10 * leaf, torch.arange(40) % 12).backward()
    assert math.isnan(float(softmaxes.scale(leaf.detach(), leaf.grad, 2e-3, cosines))) == cosines
