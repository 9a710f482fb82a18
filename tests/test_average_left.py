"""Averages of the weights that leave some of them as they were, and means that begin at the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from rule_columns import findings, only

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.evaluation.average_left import AverageLeft
from barograph.doctor.rules.evaluation.average_moves import AverageEqual

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model import left_out  # noqa: E402

LOOKS = numpy.arange(50, 550, 50)


class Learner:
    """Weights that are trained, gains near 1 above and a matrix beneath, and an average of them."""

    def __init__(self, decay: float = 0.98, noise: float = 1e-3) -> None:
        torch.manual_seed(3)
        self.trained = torch.cat([torch.ones(8, 64), 0.05 * torch.randn(8, 64)])
        self.drift, self.velocity = 3e-3 * torch.randn(16, 64), torch.zeros(16, 64)
        self.decay, self.noise = decay, noise

    def step(self) -> None:
        self.velocity = 0.9 * self.velocity + 0.1 * self.drift + self.noise * torch.randn(16, 64)
        self.trained = self.trained + self.velocity


def seen(learner: Learner, how: str) -> list[Any]:
    """The figures of evaluations at each twentieth step, from the second on."""
    average = learner.trained.clone()
    average = average.bfloat16() if how == "kept in half" else average
    found, before = [], None
    for step in range(1, 161):
        learner.step()
        now = average.lerp(learner.trained.to(average.dtype), 1 - learner.decay)
        if how == "without vectors":
            now[:8] = average[:8]
        average = now
        if step % 20 == 0:
            evaluated = average.bfloat16().float() if how == "rounded for it" else average.float()
            if how == "in 8 bits":
                evaluated = average.to(torch.float8_e4m3fn).float()
            if before is not None:
                pair = torch.stack((before[0], evaluated)), torch.stack((before[1], learner.trained))
                way, move = pair[1][1] - pair[0][0], evaluated - before[0]
                share = (move * way).sum() / way.square().sum()
                found.append(dict(zip(left_out.NAMES, left_out.figures(*pair, share).tolist(), strict=True)))
            before = evaluated, learner.trained
    return found


@pytest.mark.parametrize("decay", [0.9, 0.98, 0.995])
@pytest.mark.parametrize("noise", [1e-4, 1e-3, 5e-3])
def test_of_an_average_nothing_is_left_that_has_to_move(decay: float, noise: float) -> None:
    for how, half in (("in full", 0.0), ("rounded for it", 1.0)):
        figures = seen(Learner(decay, noise), how)
        assert all(one["due"] > 100 and one["left_parameters"] == 0 and one["half"] == half for one in figures)
        assert max(one["left"] for one in figures) <= 0.005


def test_parameters_and_places_that_an_average_leaves_out_are_known() -> None:
    for one in seen(Learner(), "without vectors")[1:]:
        assert one["left_parameters"] == 8 and one["due"] > 100 and one["left"] == 0 and one["half"] == 0
    for one in seen(Learner(), "kept in half")[1:]:
        assert one["left_parameters"] == 0 and one["left"] > 0.05 and one["half"] == 1


def test_numbers_of_eight_bits_are_not_called_sixteen() -> None:
    assert {one["half"] for one in seen(Learner(), "in 8 bits")} == {0.0}


def test_parameters_are_chosen_from_the_first_to_the_last() -> None:
    net = nn.Sequential(*(part for _ in range(20) for part in (nn.Linear(4, 4), nn.LayerNorm(4))))
    net[0].requires_grad_(False)
    paths = left_out.paths_of(net)
    small = [one for one in paths if net.get_parameter(one).dim() == 1]
    assert len(small) == 12 and len(paths) == 16 and paths[0] == "1.weight" and small[-1] == "39.bias"
    item = lambda model, path: model.get_parameter(path)  # noqa: E731
    assert left_out.sample(net, paths, item, torch.device("cpu")).shape == (16, 64)
    assert left_out.sample(net, [], item, torch.device("cpu")).shape == (0, 64)


def columns(**figures: Any) -> dict[str, Any]:
    """Ten evaluations at each fiftieth of 500 steps; of the first one nothing is known."""
    usual = {"due": 200.0, "left": 0.0, "left_parameters": 0.0, "half": 0.0, "whose": 2.0, "apart": 0.1}
    first = numpy.arange(len(LOOKS)) == 0
    made = {name: numpy.where(first, -1.0, value) for name, value in (usual | figures).items()}
    found = {f"model/evaluated_{name}": (LOOKS, values) for name, values in made.items()}
    return found | {"train/loss": numpy.linspace(3.0, 1.0, 501), "val/loss": (LOOKS - 1, numpy.linspace(3.0, 2.0, 10))}


@pytest.mark.parametrize("cuts", [(), (120, 260, 400)])
@pytest.mark.parametrize(
    ("figures", "cause"),
    [
        ({"left_parameters": 2.0}, "leaves parameters out"),
        ({"left_parameters": 1.0, "due": 8.0}, "leaves parameters out"),
        ({"left_parameters": 1.0, "due": 7.0}, ""),  # too little that follows the training
        ({"left_parameters": 1.0, "left": 0.021}, ""),  # so do others: it may be of few bits
        ({"left_parameters": numpy.array([0, 1, 1, 0, 1, 1, 0, 1, 1, 0.0])}, ""),
        ({"half": 1.0, "left": 0.05}, "kept in sixteen bits"),
        ({"half": 1.0, "left": 0.049}, ""),
        ({"half": 1.0, "left": 0.3, "due": 99.0}, ""),
        ({"half": 0.0, "left": 0.3}, ""),
        ({}, ""),
    ],
)
def test_an_average_that_leaves_something_warns(figures: dict[str, Any], cause: str, cuts: tuple[int, ...]) -> None:
    found = only(findings([AverageLeft()], columns(**figures), cuts=cuts), "average_left")
    assert [cause in one.causes[0] for one in found] == [True] * bool(cause)
    assert all((one.severity, one.step, one.found) == ("warning", 100, 200) for one in found)


def test_the_reference_of_a_policy_and_a_run_without_evaluations_are_left_alone() -> None:
    given = columns(left_parameters=2.0)
    assert not findings([AverageLeft()], given | {"reward": numpy.ones(501)})
    assert not findings([AverageLeft()], {name: one for name, one in given.items() if name != "val/loss"})


def mean_of(began: float, drawn: float = 1.0, writes: float = 50.0, last: float = 0.1, worst: float = 1.0) -> Any:
    """Of a mean of the weights that begins at this step. last: the training's loss; worst: the lowest evaluation."""
    first = numpy.arange(len(LOOKS)) == 0
    kept = numpy.where(first, -1.0, (LOOKS - 50 - began) / (LOOKS - began))
    figures = {"kept": kept, "steps": LOOKS, "whose": numpy.full(10, 2.0), "writes": numpy.where(first, -1.0, writes)}
    found: dict[str, Any] = {f"model/evaluated_{name}": (LOOKS, values) for name, values in figures.items()}
    found |= {"model/drawn": (LOOKS[:1] * 0, numpy.array([drawn])), "train/loss": numpy.geomspace(3.0, last, 501)}
    values = numpy.linspace(1.0, 0.5, 10)
    values[5] *= worst
    return found | {"val/loss": (LOOKS - 1, values)}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (mean_of(0), True),
        (mean_of(4), True),
        (mean_of(40), False),  # late enough for its second evaluation
        (mean_of(0, drawn=0.0), False),  # fine-tuned
        (mean_of(0, writes=1.0), False),  # at evaluations alone
        (mean_of(0, last=0.5), False),  # the evaluation is no worse
        (mean_of(0, worst=0.5), False),  # it was better: it overfits
    ],
)
def test_a_mean_of_all_weights_from_the_first_step_on_is_told(given: Any, told: bool) -> None:
    found = only(findings([AverageEqual()], given, facts={"finished": True}), "average_equal")
    assert [(one.severity, one.step) for one in found] == [("info", 100)] * told


@pytest.mark.parametrize(
    ("config", "severity"),
    [
        ({"ema_decay": 0.99}, "warning"),
        ({"train": {"average_decay": 0.9}}, "warning"),
        ({"ema_decay": 0.995}, "info"),  # it may rise up to this one, as a mean's does
        ({"weight_decay": 0.9}, "info"),
        ({"ema_decay": 0.0}, "info"),
    ],
)
def test_a_mean_of_all_weights_is_not_what_a_configured_decay_means(config: Any, severity: str) -> None:
    facts = {"finished": True, "config": config}
    found = only(findings([AverageEqual()], mean_of(0), facts=facts), "average_equal")
    assert [one.severity for one in found] == [severity]
    later = only(findings([AverageEqual()], mean_of(40), facts=facts), "average_equal")
    assert not later


def train(folder: Path, how: str) -> list[str]:
    """Rules that warn of a small training whose average is evaluated at each thirtieth step, in a copy or put in."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    rule, inputs = torch.randn(12, 4), torch.randn(128, 12)
    kind = torch.bfloat16 if "half" in how else torch.float32
    average = {name: one.detach().to(kind, copy=True) for name, one in net.named_parameters()}
    run = barograph.init(dir=folder, project="p", id="run", sidecar=False)
    run.watch(net, optimizer)
    for step in range(1, 241):
        batch = torch.randn(16, 12)
        loss = nn.functional.cross_entropy(net(batch), (batch @ rule).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss}, step=step)
        with torch.no_grad():
            for name, one in net.named_parameters():
                if one.dim() > 1 or "matrices" not in how:
                    average[name].lerp_(one.to(kind), 0.01)
            if step % 30 == 0:
                own = {name: one.detach().clone() for name, one in net.named_parameters()}
                for name, one in net.named_parameters():
                    made = average[name]
                    one.copy_(made.bfloat16() if how == "rounded" else made)
                run.log({"val/loss": nn.functional.cross_entropy(net(inputs), (inputs @ rule).argmax(1))}, step=step)
                for name, one in net.named_parameters():
                    one.copy_(own[name])
    run.finish()
    found = diagnose(run.dir)["findings"]
    return [one["rule"] for one in found if one["severity"] != "info" and one["rule"].startswith("average")]


@pytest.mark.parametrize(
    ("how", "rules"),
    [("full", []), ("rounded", []), ("half", ["average_left"]), ("matrices", ["average_left"])],
)
def test_a_training_whose_average_is_kept_in_this_way(tmp_path: Path, how: str, rules: list[str]) -> None:
    assert train(tmp_path, how) == rules
