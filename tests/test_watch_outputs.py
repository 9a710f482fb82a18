"""What the watch proves of a loss from the gradient of the output, what it sees of layers and inputs; and the rules."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_curves import found as found_in

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.activations.reach import ConstantOutput
from barograph.probes.model import outputs, softmaxes, squares, texts

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from watched_losses import Loss, classes, net, train  # noqa: E402


def brier(output: Any, target: Any) -> Any:
    return functional.mse_loss(output.softmax(-1), functional.one_hot(target, output.shape[-1]).float())


def summed(output: Any, target: Any) -> Any:
    return functional.cross_entropy(output, target, reduction="sum")


@pytest.mark.parametrize(
    ("behind", "loss_of", "twice"),
    [
        ((nn.Softmax(-1),), functional.cross_entropy, True),
        ((), functional.cross_entropy, False),
        ((nn.LogSoftmax(-1),), functional.cross_entropy, False),
        ((nn.LogSoftmax(-1),), functional.nll_loss, False),
        ((nn.Softmax(-1),), lambda output, target: functional.nll_loss(output.log(), target), False),
        ((nn.Softmax(-1),), lambda output, target: functional.cross_entropy(output.log(), target), False),
        ((nn.Softmax(-1),), lambda output, target: (output - functional.one_hot(target, 6)).square().mean(), False),
        ((), brier, False),
    ],
)
def test_a_softmax_before_that_of_the_loss_is_proven(
    tmp_path: Path, behind: tuple[nn.Module, ...], loss_of: Loss, twice: bool
) -> None:
    found, run = train(tmp_path, net(6, *behind), loss_of, classes)
    assert (found.get("double_softmax") == "warning") == twice
    assert not twice or set(run.series("model/softmax_twice").value) == {1.0}


@pytest.mark.parametrize("width", [2, 6])
def test_two_classes_are_enough(tmp_path: Path, width: int) -> None:
    found, _ = train(tmp_path, net(width, nn.Softmax(-1)), functional.cross_entropy, lambda at: classes(at, width))
    assert found.get("double_softmax") == "warning"


@pytest.mark.parametrize(
    ("behind", "loss_of", "twice"),
    [
        ((nn.Sigmoid(),), functional.binary_cross_entropy_with_logits, True),
        ((nn.Sigmoid(),), functional.binary_cross_entropy, False),
        ((), functional.binary_cross_entropy_with_logits, False),
        ((nn.Sigmoid(),), functional.mse_loss, False),
    ],
)
def test_a_sigmoid_before_that_of_the_loss_is_proven(
    tmp_path: Path, behind: tuple[nn.Module, ...], loss_of: Loss, twice: bool
) -> None:
    found, _ = train(
        tmp_path, net(4, *behind), loss_of, lambda step: (torch.randn(32, 12), (torch.rand(32, 4) < 0.3).float()), 80
    )
    assert (found.get("double_softmax") == "warning") == twice


@pytest.mark.parametrize(
    ("target", "broadcast"),
    [
        (lambda inputs: inputs[:, 0], True),
        (lambda inputs: inputs[:, :1], False),
        (lambda inputs: torch.ones(len(inputs), 1), False),
        (lambda inputs: (inputs[:, :1] > 0).float(), False),
    ],
    ids=["one dimension", "two", "all ones", "signs"],
)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_targets_of_another_shape_are_proven(tmp_path: Path, target: Callable[[Any], Any], broadcast: bool) -> None:
    def batch(step: int) -> tuple[Any, Any]:
        inputs = torch.randn(32, 12)
        return inputs, target(inputs) + 0.5 * broadcast

    found, _ = train(tmp_path, net(1), functional.mse_loss, batch)
    assert (found.get("broadcast_targets") == "warning") == broadcast


def test_a_discriminator_near_its_balance_has_no_broadcast_targets(tmp_path: Path) -> None:
    def loss_of(output: Any, target: Any) -> Any:
        return functional.softplus(-0.05 * output).mean()

    found, _ = train(tmp_path, net(1), loss_of, lambda step: (torch.randn(32, 12), None))
    assert "broadcast_targets" not in found


@pytest.mark.parametrize(("said", "known"), [("likelihoods", False), ("logistic", True)])
def test_likelihoods_far_below_0_whose_mean_is_the_loss_have_no_targets(tmp_path: Path, said: str, known: bool) -> None:
    """Their gradient is that of a logistic loss of which all targets are 1, as far as can be seen."""

    def loss_of(output: Any, target: Any) -> Any:
        return -(functional.logsigmoid(output) if known else output).mean()

    class Likelihoods(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net(1)

        def forward(self, inputs: Any) -> Any:
            return self.net(inputs) if known else -15 - self.net(inputs).square()

    found, run = train(tmp_path, Likelihoods(), loss_of, lambda step: (torch.randn(32, 12), None), 90)
    assert ("model/top_target" in run.names()) == known
    assert known or "one_class" not in found


@pytest.mark.parametrize("rows", [32, 8])
@pytest.mark.parametrize(("kind", "warns"), [("sorted", True), ("drawn", False), ("rare", False), ("two", False)])
def test_examples_that_come_by_class_are_proven(tmp_path: Path, kind: str, warns: bool, rows: int) -> None:
    def batch(step: int) -> tuple[Any, Any]:
        inputs, targets = (one[:rows] for one in classes(step))
        if kind == "sorted":
            targets = torch.full_like(targets, step // 30)
        elif kind == "rare":
            targets = (torch.rand(len(targets)) < 0.04).long()
        elif kind == "two":
            targets = targets % 2
        return inputs, targets

    found, _ = train(tmp_path, net(6), functional.cross_entropy, batch, 120)
    assert (found.get("sorted_targets") in ("warning", "critical")) == warns


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("by_class", [True, False])
def test_smoothed_labels_of_few_classes_that_come_by_class_are_proven(
    tmp_path: Path, width: int, by_class: bool
) -> None:
    def smoothed(output: Any, target: Any) -> Any:
        return functional.cross_entropy(output, target, label_smoothing=0.1)

    def batch(step: int) -> tuple[Any, Any]:
        inputs, targets = classes(step, width)
        return inputs, torch.full_like(targets, step // 15 % width) if by_class else targets

    found, run = train(tmp_path, net(width), smoothed, batch, 120)
    assert (found.get("sorted_targets") in ("warning", "critical")) == by_class
    assert len(run.series("model/top_target_share").value) >= 12


class Places(nn.Module):
    """Classes for each place of a text, or for each point of a picture."""

    def __init__(self, pictures: bool):
        super().__init__()
        self.layer = nn.Conv2d(12, 4, 1) if pictures else nn.Linear(12, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


@pytest.mark.parametrize("pictures", [False, True])
@pytest.mark.parametrize(("power", "warns"), [(1.0, True), (-1.0, False), (0.0, False)])
def test_weights_of_classes_are_compared_at_each_place(
    tmp_path: Path, pictures: bool, power: float, warns: bool
) -> None:
    shares = torch.tensor([0.8, 0.14, 0.04, 0.02])
    sides = (10, 10) if pictures else (10,)

    def batch(step: int) -> tuple[Any, Any]:
        targets = torch.multinomial(shares, 8 * 10 ** len(sides), True).view(8, *sides)
        return torch.randn((8, 12, *sides) if pictures else (8, *sides, 12)), targets

    def loss_of(output: Any, targets: Any) -> Any:
        output = output if pictures else output.transpose(1, 2)
        return functional.cross_entropy(output, targets, weight=shares**power)

    found, run = train(tmp_path, Places(pictures), loss_of, batch, 120)
    assert (found.get("class_weights") == "warning") == warns and "missing_classes" not in found
    assert (
        abs(run.series("model/class_weight_slope").value[-1] - power) < 0.15
    )  # a weighted mean is over the weights of its batch


@pytest.mark.parametrize("shares", [(0.2,), (0.1, 0.3, 0.6)])
@pytest.mark.parametrize(("power", "warns"), [(1.0, True), (-1.0, False), (0.0, False)])
def test_weights_of_targets_that_are_one_are_compared_with_how_frequent_they_are(
    tmp_path: Path, shares: tuple[float, ...], power: float, warns: bool
) -> None:
    share = torch.tensor(shares)
    weight = (share / (1 - share)) ** power if len(shares) == 1 else share**power

    def loss_of(output: Any, targets: Any) -> Any:
        return functional.binary_cross_entropy_with_logits(output, targets, pos_weight=weight)

    def batch(step: int) -> tuple[Any, Any]:
        return torch.randn(64, 12), (torch.rand(64, len(shares)) < share).float()

    found, run = train(tmp_path, net(len(shares)), loss_of, batch, 120)
    assert (found.get("class_weights") == "warning") == warns and "missing_classes" not in found
    assert abs(run.series("model/class_weight_slope").value[-1] - power) < 0.2  # shares are those of a sample


@pytest.mark.parametrize(
    ("loss_of", "parts", "config", "warns"),
    [
        (summed, 1, {}, True),
        (functional.cross_entropy, 1, {}, False),
        (functional.cross_entropy, 4, {"gradient_accumulation_steps": 4}, True),
        (lambda output, target: functional.cross_entropy(output, target) / 4, 4,
         {"gradient_accumulation_steps": 4}, False),
        (lambda output, target: functional.cross_entropy(output, target) / 16, 4,
         {"gradient_accumulation_steps": 4}, True),
        (functional.cross_entropy, 2, {}, False),
        (lambda output, target: 3 * functional.cross_entropy(output, target), 1, {}, False),
    ],
    ids=["summed", "mean", "not divided", "divided", "divided twice", "two losses", "weighted"],
)  # fmt: skip
def test_the_weight_of_a_loss_is_proven(
    tmp_path: Path, loss_of: Loss, parts: int, config: dict[str, Any], warns: bool
) -> None:
    found, _ = train(tmp_path, net(6), loss_of, classes, 20, config, parts=parts)
    assert (found.get("loss_weight") == "warning") == warns


class Counted(nn.Module):
    """Given how many targets there are, a number without dimensions, as the Trainer gives it to a language model."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = net(6)

    def forward(self, count: Any, given: Any) -> Any:
        return self.layers(given) * (count / count)


def test_a_number_without_dimensions_among_the_arguments_hides_nothing(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = Counted()
    run = barograph.init(project="p", dir=tmp_path, console="none", machine=False, sidecar=False, git=False)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    run.watch(model, optimizer)
    for step in range(4):
        given, targets = classes(step)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(count=torch.tensor(32), given=given), targets)
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss.item()}, step=step)
    run.finish()
    stored = barograph.read(str(run.dir))[0]
    assert {"model/output_spread", "model/loss_classes", "model/example_rows"} <= set(stored.names())


@pytest.mark.parametrize(("bias", "warns"), [(-50.0, True), (0.0, False)])
def test_an_output_that_is_the_same_for_every_input_is_found(tmp_path: Path, bias: float, warns: bool) -> None:
    model = net(6)
    nn.init.constant_(model[0].bias, bias)
    found, _ = train(tmp_path, model, functional.cross_entropy, classes, 120)
    assert (found.get("constant_output") == "warning") == warns


class Leaning(nn.Module):
    """A linear model whose logits have a bias for each class, or one that is common to all."""

    def __init__(self, apart: float, common: float):
        super().__init__()
        self.linear = nn.Linear(12, 6)
        self.register_buffer("bias", common + apart * torch.arange(6.0))

    def forward(self, given: Any) -> Any:
        return self.linear(given) + self.bias


@pytest.mark.parametrize(("apart", "common", "warns"), [(200.0, 0.0, True), (0.0, 500.0, False)])
def test_logits_that_hardly_differ_from_row_to_row_are_found_and_a_common_number_says_nothing(
    tmp_path: Path, apart: float, common: float, warns: bool
) -> None:
    found, _ = train(tmp_path, Leaning(apart, common), functional.cross_entropy, classes, 120)
    assert (found.get("constant_output") == "warning") == warns


@pytest.mark.parametrize(
    ("scale", "mean", "warns"),
    [(8.0, 0.0, True), (1.0, 9.0, True), (1.5, 0.5, True), (1.2, 0.2, False), (1.0, 0.6, False)],
)
def test_evaluations_with_inputs_of_another_scale_are_found(
    tmp_path: Path, scale: float, mean: float, warns: bool
) -> None:
    directions = torch.randn(12, 6, generator=torch.Generator().manual_seed(3))

    def batch(step: int) -> tuple[Any, Any]:
        inputs = torch.randn(32, 12)
        return inputs, (inputs @ directions).argmax(1)

    def others(step: int) -> tuple[Any, Any]:
        inputs, targets = batch(step)
        return (scale * inputs + mean).flip(1), targets

    found, _ = train(tmp_path, net(6), functional.cross_entropy, batch, 200, evaluated=others)
    assert (found.get("evaluation_inputs") == "warning") == warns


@pytest.mark.parametrize(("unscaled", "warns"), [(False, True), (True, False)])
def test_clipping_before_the_scaler_has_divided_is_proven(tmp_path: Path, unscaled: bool, warns: bool) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=1000)
    found, _ = train(
        tmp_path, net(6), functional.cross_entropy, classes, 40, scaler=scaler,
        clip=2.0**13 if unscaled else 0.5,
    )  # fmt: skip
    assert (found.get("clipped_while_scaled") == "warning") == warns


def test_steps_that_a_scaler_leaves_out_for_good_are_seen(tmp_path: Path) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)

    def batch(step: int) -> tuple[Any, Any]:
        inputs, targets = classes(step)
        return inputs * (float("inf") if step >= 20 else 1.0), targets

    found, run = train(tmp_path, net(6), functional.cross_entropy, batch, 80, scaler=scaler)
    assert found.get("loss_scale_collapse") == "critical"
    assert run.series("model/skipped_steps").value.max() >= 48


@pytest.mark.parametrize(("decay", "itself", "warns"), [(0.9995, False, True), (0.9, False, False), (1.0, True, False)])
def test_an_average_of_the_weights_that_lags_is_found(tmp_path: Path, decay: float, itself: bool, warns: bool) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(7)
    model, directions, held_out = net(6), torch.randn(12, 6), torch.randn(1024, 12)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer, budget=None)
    for step in range(200):
        inputs = torch.randn(64, 12)
        loss = functional.cross_entropy(model(inputs), (inputs @ directions).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for old, new in zip(average.parameters(), model.parameters(), strict=True):
            old.lerp_(new.detach(), 1 - decay)
        run.log({"train/loss": loss.item()}, step=step)
        if step % 10 == 9:
            with torch.no_grad():
                output = (model if itself else average)(held_out)
                run.log({"eval/loss": functional.cross_entropy(output, (held_out @ directions).argmax(1))}, step=step)
    run.finish()
    found = diagnose(barograph.read(str(run.dir))[0])["findings"]
    told = [item["rule"] for item in found if item["severity"] != "info"]
    assert bool({"average_behind", "average_slow"} & {*told}) == warns  # the latter has the former in its story


@pytest.mark.parametrize("shape", [(64, 10), (64, 2), (64, 1), (4, 50_000)])
def test_nothing_waits_for_the_device(shape: tuple[int, int]) -> None:
    empty = torch.empty(shape, device="meta")  # whatever depends on a value raises there
    assert outputs.figures(empty, empty).shape == (len(outputs.FIGURES),)
    tokens = torch.empty((3, 35), dtype=torch.long, device="meta")
    found = softmaxes.find(empty, empty, 1e-3)
    assert outputs._proportional(empty, empty).is_meta
    if shape[1] > 1:
        assert outputs._untargeted(empty, empty, found.follows).is_meta
        said, pairs = texts.figures([tokens], [True], empty[:3, None].expand(3, 35, -1), found)
        assert pairs.is_meta and all(one.is_meta for one in said.values())


@pytest.mark.parametrize(("scale", "squeezed"), [(1.0, False), (5.0, True)])
def test_the_targets_of_a_mean_square_are_known_and_of_other_losses_they_are_not(
    tmp_path: Path, scale: float, squeezed: bool
) -> None:
    rule = torch.randn(12, generator=torch.Generator().manual_seed(1))

    def batch(step: int) -> tuple[Any, Any]:
        inputs = torch.randn(64, 12, generator=torch.Generator().manual_seed(step))
        return inputs, 3 + scale * (inputs @ rule)[:, None]

    def squares(output: Any, target: Any) -> Any:
        if squeezed:
            return (output.squeeze(-1) - target[:, 0]).pow(2).mean()
        return functional.mse_loss(output, target)

    _, stored = train(tmp_path / "a", net(1), squares, batch)
    names = set(stored.names())
    assert {"model/target_mean", "model/target_std", "model/explained", "model/output_rms"} <= names
    given = stored.series("model/target_mean")
    at = int(given.step[-1])
    target = batch(at)[1]
    assert given.value[-1] == pytest.approx(float(target.mean()), abs=1e-3)
    assert stored.series("model/target_std").value[-1] == pytest.approx(float(target.std()), rel=1e-3)
    others = (
        functional.l1_loss, lambda o, t: squares(o, t) + 0.1 * o.abs().mean(),
        lambda o, t: functional.mse_loss(o.tanh(), t),
    )  # fmt: skip
    for number, loss_of in enumerate(others):
        _, stored = train(tmp_path / str(number), net(1), loss_of, batch, steps=12)
        assert "model/target_std" not in stored.names()


def test_targets_that_a_last_function_cannot_give_are_told(tmp_path: Path) -> None:
    def batch(step: int) -> tuple[Any, Any]:
        inputs = torch.randn(64, 12, generator=torch.Generator().manual_seed(step))
        return inputs, inputs[:, :4]

    rules, _ = train(tmp_path / "a", net(4, nn.Sigmoid()), functional.mse_loss, batch)
    assert rules["targets_out_of_range"] == "warning"
    rules, _ = train(tmp_path / "b", net(4, nn.Sigmoid()), lambda o, t: functional.mse_loss(o, t.sigmoid()), batch)
    assert "targets_out_of_range" not in rules


def test_an_input_far_out_is_recorded_and_usual_ones_are_not(tmp_path: Path) -> None:
    def batch(step: int, far: int = 40) -> tuple[Any, Any]:
        inputs = torch.randn(32, 12, generator=torch.Generator().manual_seed(step))
        if step == far:
            inputs[0] *= 1e4
        return inputs, inputs[:, :4]

    _, stored = train(tmp_path / "a", net(4), functional.mse_loss, batch)
    assert stored.series("model/input_outlier").step.tolist() == [40]
    _, stored = train(tmp_path / "b", net(4), functional.mse_loss, lambda step: batch(step, -1))
    assert "model/input_outlier" not in stored.names()


@pytest.mark.parametrize(("size", "one"), [(1.0, True), (30.0, True), (1e6, False)])
def test_outputs_far_larger_than_any_target_prove_no_broadcast(size: float, one: bool) -> None:
    dice = torch.Generator().manual_seed(2)
    output, target = size * torch.randn(64, generator=dice).double(), torch.randn(64, generator=dice).double()
    compared = target.mean() if one else target
    found = squares.line_of(output, 2 * (output - compared) / 64, 1e-4)
    assert bool(found.isfinite()) == one and (not one or found == pytest.approx(float(target.mean()), rel=1e-3))


@pytest.mark.parametrize(
    ("mean", "deviation", "varied", "sure"),
    [
        (-2.26, 0.004, False, True),
        (0.0, 0.004, False, True),
        (-2.26, 1.0, False, False),
        (0.0, 0.5, False, False),
        (-2.26, 0.004, True, False),  # outputs differed before, of the same inputs
    ],
)
def test_inputs_that_hardly_differ_are_the_cause_of_outputs_that_do_not(
    mean: float, deviation: float, varied: bool, sure: bool
) -> None:
    steps = np.arange(0, 200, 10)
    values = {"output_spread": 3e-4, "output_width": 6.0, "input_mean": mean, "input_std": deviation}
    series = {f"model/{name}": (steps, np.full(20, value)) for name, value in values.items()}
    series["model/output_spread"][1][:1] = 0.5 if varied else 3e-4
    (told,) = found_in([ConstantOutput()], series)
    assert (told.causes[0].startswith("inputs not normalised") and len(told.causes) == 1) == sure
    assert told.kind == ("data" if sure else "dead")
