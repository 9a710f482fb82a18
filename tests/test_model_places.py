"""Outputs with places in two dimensions: targets that are mirrored, a class that is ignored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from rule_columns import findings, only, random_columns, same_when_cut

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.data.places import IgnoredPlaces, MirroredTargets, OtherPlaces

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from barograph.probes.model import objective, places  # noqa: E402


def spots(number: int, dice: Any, side: int = 32) -> Tensor:
    """Masks, each of one disc that lies anywhere."""
    at = torch.arange(side)
    middle = torch.rand(number, 2, 1, 1, generator=dice) * side
    return ((at[:, None] - middle[:, 0]) ** 2 + (at[None] - middle[:, 1]) ** 2 < 20).float()


def seen(
    loss_of: Callable[[Tensor, Tensor], Tensor], masks: Tensor, targets: Tensor, channels: int
) -> dict[str, float]:
    """Figures of an output that knows the masks well."""
    output = (4 * masks - 2)[:, None]
    output = (output if channels == 1 else torch.cat([-output, output], 1)).clone().requires_grad_()
    loss_of(output, targets).backward()
    count = output.numel() if loss_of is squared else 0
    found = places.figures(places.some(output.detach()), places.some(output.grad), count=count)
    return dict(zip(places.FIGURES, found.tolist(), strict=True))


def logistic(output: Tensor, targets: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(output[:, 0], targets)


def crossed(output: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(output, targets.long())


def squared(output: Tensor, targets: Tensor) -> Tensor:
    return functional.mse_loss(output[:, 0], targets)


def overlap(output: Tensor, targets: Tensor) -> Tensor:
    said = output[:, 0].sigmoid()
    return 1 - ((2 * said * targets).sum((1, 2)) / (said.sum((1, 2)) + targets.sum((1, 2)))).mean()


@pytest.mark.parametrize("scale", [1.0, 2.0])
@pytest.mark.parametrize(("loss_of", "known"), [("mse_loss", True), ("huber_loss", False), ("logistic", True)])
def test_the_sign_of_a_difference_says_nothing_of_its_targets(
    tmp_path: Path, loss_of: str, known: bool, scale: float
) -> None:
    made = (
        logistic if loss_of == "logistic" else lambda output, masks: getattr(functional, loss_of)(output[:, 0], masks)
    )
    model = torch.nn.Conv2d(1, 1, 3, padding=1)
    run = barograph.init(project="p", dir=tmp_path, console="none", machine=False, sidecar=False, git=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    run.watch(model, optimizer)
    dice = torch.Generator().manual_seed(4)
    for step in range(6):
        masks = spots(8, dice)
        optimizer.zero_grad()
        loss = made(model(masks[:, None]), masks)
        loss = loss if scale == 1 else scale * loss
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
    run.finish()
    names = barograph.read(str(run.dir))[0].names()
    # of a mean of squares, or a multiple of one, targets are known by their values
    assert ("model/idle_places" in names) and ("model/own_targets" in names) == known


@pytest.mark.parametrize(("loss_of", "channels"), [(logistic, 1), (crossed, 2), (squared, 1), (overlap, 1)])
@pytest.mark.parametrize("way", [lambda x: x.flip(2), lambda x: x.flip(1), lambda x: x.transpose(1, 2)])
def test_targets_are_known_to_be_mirrored_whatever_the_loss(loss_of: Any, channels: int, way: Any) -> None:
    masks = spots(16, torch.Generator().manual_seed(2))
    assert seen(loss_of, masks, masks, channels)["mirrored"] == 0.0
    found = seen(loss_of, masks, torch.cat([way(masks[:8]), masks[8:]]), channels)
    assert 0.2 <= found["mirrored"] <= 0.5 and found["mirrored_by_chance"] < 0.5 * found["mirrored"]


def test_labels_of_other_examples_fit_by_chance_no_more_than_others_do() -> None:
    masks = spots(16, torch.Generator().manual_seed(2))
    found = seen(logistic, masks, masks.roll(3, 0), 1)
    assert found["mirrored"] <= 2 * found["mirrored_by_chance"] + 0.1


def test_places_of_large_pictures_are_the_same_from_both_edges() -> None:
    picture = torch.arange(100.0).expand(1, 1, 64, 100)
    one = places.some(picture)[0, 0, 0]
    other = 99 - places.some(picture.flip(3))[0, 0, 0]
    assert len(one) == 32 and (one.flip(0) - other.flip(0)).abs().max() <= 1


@pytest.mark.parametrize(("options", "value"), [({}, None), ({"ignore_index": 0}, 0.0), ({"ignore_index": 255}, None)])
def test_the_graph_says_which_class_of_pictures_is_ignored(options: Any, value: float | None) -> None:
    output, targets = torch.randn(4, 3, 6, 6, requires_grad=True), torch.randint(0, 3, (4, 6, 6))
    found = objective.figures(functional.cross_entropy(output * 1, targets, **options).grad_fn)
    assert found.get("ignore_index") == value


def train(folder: Path, fault: str = "", steps: int = 90) -> dict[str, dict[str, Any]]:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dice = torch.Generator().manual_seed(4)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 2, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    run = barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer)
    for step in range(steps):
        masks = spots(12, dice)
        pictures = masks[:, None] + 0.4 * torch.randn(12, 1, 32, 32, generator=dice)
        turned = torch.rand(12, 1, 1, 1, generator=dice) < 0.5
        if fault == "flipped":
            pictures = torch.where(turned, pictures.flip(3), pictures)
        output = model(pictures)
        ignored = 0 if fault in ("ignored", "meant") else -100
        loss = functional.cross_entropy(output, masks.long(), ignore_index=ignored)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        said = output.argmax(1)
        count = masks > 0 if fault == "meant" else masks >= 0
        run.log({"loss": loss.item(), "train/acc": (said == masks)[count].float().mean().item()}, step=step)
    run.finish()
    return {one["rule"]: one for one in diagnose(barograph.read(str(run.dir))[0])["findings"]}


@pytest.mark.parametrize(
    ("fault", "rule", "cause"),
    [("flipped", "mirrored_targets", "augmentation"), ("ignored", "ignored_places", "loss masked out")],
)
def test_a_training_with_it_is_warned_of(tmp_path: Path, fault: str, rule: str, cause: str) -> None:
    found = train(tmp_path, fault)
    assert found[rule]["severity"] == "warning" and found[rule]["causes"][0].startswith(cause)
    assert found[rule]["step"] == 0


@pytest.mark.parametrize("fault", ["", "meant"])
def test_a_training_without_it_is_not(tmp_path: Path, fault: str) -> None:
    found = train(tmp_path, fault)
    assert not {"mirrored_targets", "ignored_places"} & {
        name for name, one in found.items() if one["severity"] != "info"
    }


LOOKS = 20


def of_class(**changed: Any) -> dict[str, Any]:
    figures = {"idle_places": 0.8, "idle_input": 0.9, "ignore_index": 0.0} | changed
    columns = {f"model/{name}": numpy.full(LOOKS, value) for name, value in figures.items() if name != "overlap"}
    columns["train/loss"] = numpy.linspace(1.4, 0.3, LOOKS)
    return columns | {"eval/iou": numpy.full(LOOKS, changed.get("overlap", 0.3))}


def severities(columns: dict[str, Any]) -> list[str]:
    return [one.severity for one in only(findings([IgnoredPlaces()], columns), "ignored_places")]


@pytest.mark.parametrize(
    "changed", [{"idle_places": 0.4}, {"idle_input": 0.01}, {"ignore_index": -1.0}, {"overlap": 0.7}]
)
def test_an_ignored_class_is_no_warning_where_it_may_be_meant(changed: dict[str, float]) -> None:
    assert severities(of_class()) == ["warning"] and severities(of_class(**changed)) == []


def test_without_a_figure_of_how_well_it_does_it_is_an_info_finding() -> None:
    columns = of_class()
    del columns["eval/iou"]
    assert severities(columns) == ["info"]


@pytest.mark.parametrize("seed", range(6))
def test_where_rows_are_cut_changes_nothing(seed: int) -> None:
    names = [f"model/{name}" for name in (*places.FIGURES, "ignore_index")]
    same_when_cut([MirroredTargets, IgnoredPlaces], random_columns(seed, [*names, "train/loss", "eval/iou"]), seed)
    same_when_cut([IgnoredPlaces], of_class(), seed)


@pytest.mark.parametrize("loss_of", [logistic, crossed, squared, overlap])
def test_targets_of_other_pictures_are_told_from_their_own(loss_of: Callable[[Tensor, Tensor], Tensor]) -> None:
    masks = spots(24, torch.Generator().manual_seed(7))
    channels = 2 if loss_of is crossed else 1
    right, wrong = (seen(loss_of, masks, targets, channels) for targets in (masks, masks.roll(5, 0)))
    assert right["own_targets"] > 0.9 and right["other_targets"] < 0.3
    assert abs(wrong["own_targets"] - wrong["other_targets"]) < 0.1


@pytest.mark.parametrize(
    ("own", "other", "size", "told"),
    [
        (0.3, 0.29, 1e-3, True),
        (0.8, 0.3, 1e-3, False),
        (0.9, 0.89, 1e-3, False),  # all pictures have one mask
        (0.02, 0.02, 1e-3, False),  # nothing is learnt yet
        (0.3, 0.29, 1e-6, False),  # nothing moves
    ],
)
def test_outputs_that_fit_any_pictures_targets_are_found(own: float, other: float, size: float, told: bool) -> None:
    steps, noise = numpy.arange(0, 300, 10), numpy.random.default_rng(1).normal(0, 0.05, (2, 30))
    columns = {"model/own_targets": (steps, own + noise[0]), "model/other_targets": (steps, other + noise[1]),
               "model/update_p50": (steps, numpy.full(30, size))}  # fmt: skip
    found = only(findings([OtherPlaces()], columns), "other_places")
    assert len(found) == told


def courses(own: numpy.ndarray, other: float, **more: float) -> list[str]:
    """Severities of what is said of pictures whose outputs agree with their own targets so."""
    steps = numpy.arange(0, 10 * len(own), 10)
    columns = {"model/own_targets": (steps, own), "model/other_targets": (steps, numpy.full(len(own), other)),
               "model/update_p50": (steps, numpy.full(len(own), 1e-3))}  # fmt: skip
    columns |= {f"model/{name}": (steps, numpy.full(len(own), value)) for name, value in more.items()}
    for cuts in ((), (130, 200, 310)):
        found = [one.severity for one in only(findings([OtherPlaces()], columns, cuts=cuts), "other_places")]
    return found


def test_a_model_whose_inputs_are_its_targets_has_no_others() -> None:
    assert courses(numpy.full(30, 0.2), 0.2) == ["warning"]
    assert courses(numpy.full(30, 0.2), 0.2, input_target=0.0) == ["warning"]
    assert courses(numpy.full(30, 0.2), 0.2, input_target=1.0) == []


def test_outputs_that_agree_with_their_own_targets_later_were_only_early() -> None:
    assert courses(numpy.concatenate([numpy.full(20, 0.2), numpy.full(30, 0.6)]), 0.2) == ["info"]
