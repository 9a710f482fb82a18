"""Evaluations that are made with an average of the weights: how it was made, seen from what is evaluated."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rule_curves

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.evaluation.averages import AverageWrong, TeacherStill, _evaluates_average

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn  # noqa: E402

STEPS, OFTEN = 120, 20


def network() -> Any:
    return nn.Sequential(
        nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)
    )


class Average:
    """The average of a model's weights, held in one way or another, and made wrongly in one way or another."""

    def __init__(self, model: Any, held: str, fault: str, decay: float):
        self.model, self.held, self.fault = model, held, fault
        self.decay = 1 - decay if fault == "swapped" else decay
        self.copy: Any = copy.deepcopy(model)
        if held == "averaged":
            self.copy = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(self.decay), use_buffers=True)
        self.kept = {name: item.clone() for name, item in model.state_dict().items()}
        if fault == "zeros":
            for item in [*self.copy.parameters(), *(self.kept[name] for name, _ in model.named_parameters())]:
                item.data.zero_()
            if held == "averaged":
                self.copy.n_averaged.fill_(1)

    @torch.no_grad()
    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step)) if self.fault == "grows" else self.decay
        if self.held == "averaged":
            self.copy.update_parameters(self.model)
            return
        weights = {name for name, _ in self.model.named_parameters()}
        for kept in (self.kept, dict(self.copy.state_dict())):
            for name, item in self.model.state_dict().items():
                if name in weights:
                    kept[name].lerp_(item, 1 - decay)
                elif self.fault != "buffers":
                    kept[name].copy_(item)

    def evaluate(self, inputs: Any) -> Any:
        model = self.model
        if self.fault == "raw":
            return model.eval()(inputs)
        if self.held in ("copy", "averaged"):
            return self.copy.eval()(inputs)
        if self.held == "functional":
            return torch.func.functional_call(model.eval(), self.kept, (inputs,))
        own = copy.deepcopy(model.state_dict())
        if self.fault == "both":
            model.eval()(inputs)
        model.load_state_dict(self.kept)
        found = model.eval()(inputs)
        model.load_state_dict(own)
        return found


def said(
    folder: Path, held: str, fault: str, evaluate: Callable[..., Any] | None = None, config: Any = None,
    update: Callable[..., Any] | None = None, decay: float = 0.97,
) -> list[Any]:  # fmt: skip
    """The rule's findings in a training. evaluate, update: instead of the average's."""
    torch.manual_seed(3)
    torch.set_num_threads(1)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    average = Average(model, held, fault, decay)
    run = barograph.init(
        dir=str(folder), console="none", machine=False, sidecar=False, git=False,
        config={"eval_ema": True} if config is None else config,
    )  # fmt: skip
    run.watch(model, optimizer)
    rule, fresh = torch.randn(12, 4), torch.randn(128, 12)
    for step in range(1, STEPS + 1):
        inputs = torch.randn(32, 12)
        loss = functional.cross_entropy(model(inputs), (inputs @ rule).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        (update or Average.update)(average, step)
        row = {"train/loss": loss.item()}
        if step % OFTEN == 0:
            with torch.no_grad():
                output = (evaluate or Average.evaluate)(average, fresh)
            model.train()
            row["val/loss"] = functional.cross_entropy(output, (fresh @ rule).argmax(1)).item()
        run.log(row, step=step)
    run.finish()
    return [one for one in diagnose(barograph.StoredRun(run.dir))["findings"] if one["rule"] == "average_wrong"]


WORDS = {"": "", "swapped": "decay of the average swapped", "zeros": "average from zeros",
         "buffers": "buffers not averaged", "raw": "averaged weights not evaluated"}  # fmt: skip


@pytest.mark.parametrize(
    ("held", "fault"),
    [(held, fault) for held in ("copy", "dictionary", "averaged", "functional") for fault in WORDS
     if (held, fault) != ("averaged", "buffers")  # it takes or averages them, whatever it is asked for
     and (fault != "raw" or held in ("copy", "averaged"))],  # without a copy, one made later may be evaluated
)  # fmt: skip
def test_an_average_that_is_none_is_found_however_it_is_held(tmp_path: Path, held: str, fault: str) -> None:
    found, words = said(tmp_path, held, fault), WORDS[fault]
    assert [one["severity"] for one in found] == ["warning"] * bool(fault)
    assert all(words in str(one["causes"][0]) for one in found)


def best(average: Average, inputs: Any) -> Any:
    """The trained weights are evaluated, and the best of them again."""
    model = average.model.eval()
    output = model(inputs)
    average.copy.load_state_dict(model.state_dict())
    average.copy.eval()(inputs)
    return output


def reference(average: Average, inputs: Any) -> Any:
    """A frozen copy is evaluated beside the trained weights."""
    return average.model.eval()(inputs) - 0 * average.copy.eval()(inputs)


def baseline(average: Average, inputs: Any) -> Any:
    """A frozen copy alone."""
    return average.copy.eval()(inputs)


def momentum(average: Average, inputs: Any) -> Any:
    """A momentum encoder in training mode, whose batch norm has statistics of its own."""
    average.copy.train()(inputs)
    return average.model.eval()(inputs)


def half(average: Average, inputs: Any) -> Any:
    return copy.deepcopy(average.model).bfloat16().eval()(inputs.bfloat16()).float()


def nothing(average: Average, step: int) -> None:
    pass


def hard(average: Average, step: int) -> None:
    """A target network, copied now and then."""
    if step % 25 == 0:
        average.copy.load_state_dict(average.model.state_dict())


def stochastic(average: Average, step: int) -> None:
    """Weights of every tenth step, from the fortieth on, to equal parts."""
    if step >= 40 and step % 10 == 0:
        with torch.no_grad():
            for mine, theirs in zip(
                average.copy.state_dict().values(), average.model.state_dict().values(), strict=True
            ):
                mine.copy_(mine + (theirs - mine) / (1 + (step - 40) // 10))


@pytest.mark.parametrize(
    ("held", "fault", "options"),
    [
        ("copy", "grows", {}),
        ("dictionary", "grows", {}),
        ("dictionary", "both", {}),  # trained weights are evaluated first
        ("copy", "", {"decay": 0.9999}),  # slow, and at its beginning
        ("copy", "", {"decay": 0.5}),
        ("copy", "", {"evaluate": best, "update": nothing}),
        ("copy", "", {"evaluate": reference, "update": nothing}),
        ("copy", "", {"evaluate": momentum}),
        ("copy", "", {"evaluate": half, "update": nothing}),
        ("copy", "", {"evaluate": baseline, "update": hard}),
        ("copy", "", {"evaluate": baseline, "update": stochastic}),
        ("copy", "raw", {"config": {"use_ema": True, "ema_decay": 0.99}}),  # it may be for the end
        ("copy", "raw", {"config": {"eval_ema": True, "ema_start_step": 1000}}),
        ("copy", "raw", {"config": {"eval_ema": False}}),
    ],
)
def test_other_weights_than_the_trained_ones_may_be_evaluated(
    tmp_path: Path, held: str, fault: str, options: dict[str, Any]
) -> None:
    assert said(tmp_path, held, fault, **options) == []


@pytest.mark.parametrize(
    ("name", "asks"),
    [("eval_ema", True), ("use_ema_for_eval", True), ("evaluate_with_ema", True), ("val.ema_eval", True),
     ("eval_averaged_weights", True), ("eval_average_precision", False), ("final_eval_ema", False),
     ("eval_schema", False), ("use_ema", False), ("eval_average", False)],
)  # fmt: skip
def test_which_options_ask_for_an_average_in_evaluations(name: str, asks: bool) -> None:
    class History:
        options = type("Options", (), {"found": {name: True}})

    assert _evaluates_average(History()) is asks  # type: ignore[arg-type]


@pytest.mark.parametrize("pieces", [(), (1, 2, 3), (2,), (4,)])
def test_what_is_said_of_an_average_is_the_same_in_pieces(pieces: tuple[int, ...]) -> None:
    steps = np.arange(1, 7) * 20 + 1
    figures = {"apart": 0.01, "share": 1.0, "alike": 0.0, "newest": 0.97, "whose": 2.0, "statistics": 0.0, "moved": 1.0}
    series = {f"model/evaluated_{name}": (steps, np.full(6, value)) for name, value in figures.items()}
    series["val/loss"] = steps - 1, np.linspace(1, 0.5, 6)
    (one,) = rule_curves.found([AverageWrong()], series, pieces)
    assert one.step == 61


@pytest.mark.parametrize(
    ("figures", "told"), [({}, True), ({"loss_ranks": 1.0}, False), ({"loss_of_chosen": 1.0}, False)]
)
def test_a_still_network_beside_the_trained_one_is_a_teacher_unless_a_preference_is_learnt(
    figures: dict[str, float], told: bool
) -> None:
    steps = np.arange(150)
    away = {"other_apart": np.linspace(0.01, 0.2, 150), "other_asked": np.ones(150), "other_moved": np.zeros(150)}
    series = {f"model/{name}": (steps, values) for name, values in away.items()}
    series |= {f"model/{name}": (steps[:1], np.array([value])) for name, value in ({"drawn": 1.0} | figures).items()}
    assert bool(rule_curves.found([TeacherStill()], series)) is told


def test_a_copy_is_listened_to_until_the_run_is_over_and_no_other_module(tmp_path: Path) -> None:
    hooks = torch.nn.modules.module._global_forward_pre_hooks
    model, other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    slow = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for _ in range(30):  # other networks are looked for in the first steps
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    assert len(slow._forward_pre_hooks) == 1 and not other._forward_pre_hooks and not hooks
    run.finish()
    assert not slow._forward_pre_hooks and not model._forward_pre_hooks


@pytest.mark.parametrize(("whose", "told"), [(1.0, True), (0.0, False), (2.0, False)])
def test_trained_weights_are_evaluated_alone_only_where_a_known_copy_is_not_called(whose: float, told: bool) -> None:
    steps = np.arange(1, 7) * 20 + 1
    figures = {
        "apart": 0.0,
        "share": 1.0,
        "alike": 0.0,
        "newest": -1.0,
        "whose": whose,
        "statistics": 0.0,
        "moved": 1.0,
    }
    series = {f"model/evaluated_{name}": (steps, np.full(6, value)) for name, value in figures.items()}
    series["val/loss"] = steps - 1, np.linspace(1, 0.5, 6)
    assert bool(rule_curves.found([AverageWrong()], series, config={"eval_ema": True})) is told


def test_a_copy_that_never_changes_and_is_evaluated_alone_is_told(tmp_path: Path) -> None:
    (found,) = said(tmp_path, "copy", "", evaluate=baseline, update=nothing)
    assert found["rule"] == "average_wrong" and "do not change at all" in found["message"]


@pytest.mark.parametrize(
    ("figures", "told"),
    [({"gains_apart": 0.0}, True), ({"preference_averaged": 0.0}, False), ({"loss_of_chosen": 1.0}, False)],
)
def test_a_still_network_that_is_asked_is_no_average_where_a_preference_is_learnt(
    figures: dict[str, float], told: bool
) -> None:
    steps = np.arange(2, 40)
    still = {"apart": 0.01, "share": 1.0, "alike": 0.0, "newest": -1.0, "whose": 2.0, "moved": 0.1, "changed": 0.0}
    series = {f"model/evaluated_{name}": (steps, np.full(len(steps), value)) for name, value in still.items()}
    series |= {f"model/{name}": (steps[:1] - 2, np.array([value])) for name, value in figures.items()}
    series |= {"val/loss": (steps - 1, np.linspace(1, 0.5, len(steps))), "model/passes": (steps, np.ones(len(steps)))}
    assert bool(rule_curves.found([AverageWrong()], series)) is told


@pytest.mark.parametrize("pieces", [(), (1, 2), (2,)])
@pytest.mark.parametrize(("unset", "step"), [(1.0, 61), (0.0, 81), (-1.0, 81)])
def test_statistics_that_nothing_was_gathered_in_are_no_average_s_after_two_evaluations(
    unset: float, step: int, pieces: tuple[int, ...]
) -> None:
    steps = np.arange(1, 5) * 20 + 1
    figures = {"apart": 0.1, "share": 1.0, "alike": 0.0, "newest": -1.0, "whose": 2.0, "statistics": 1.0,
               "moved": 0.5, "changed": 0.4, "unset": unset}  # fmt: skip
    series = {f"model/evaluated_{name}": (steps, np.full(4, value)) for name, value in figures.items()}
    series["model/evaluated_statistics"][1][0] = -1.0
    series["val/loss"] = steps - 1, np.linspace(1, 0.5, 4)
    (one,) = rule_curves.found([AverageWrong()], series, pieces)
    assert one.step == step and one.causes[0].startswith("buffers not averaged")


@pytest.mark.parametrize("pieces", [(), (1, 2, 3, 4, 5, 6), (4,)])
@pytest.mark.parametrize(
    ("name", "slope", "told"),
    [
        ("val/loss_ema", 0.0, True),
        ("val/fm_loss_ema", 0.0, False),  # of another loss
        ("val/loss_ema", -0.1, False),
        ("val/loss_clean", 0.0, False),
    ],
)
def test_a_still_copy_beside_the_trained_model_is_an_average_by_its_name(
    name: str, slope: float, told: bool, pieces: tuple[int, ...]
) -> None:
    steps = np.arange(1, 7) * 20
    still = {"apart": 0.01, "share": 1.0, "alike": 0.0, "newest": -1.0, "whose": 2.0, "moved": 0.1, "changed": 0.0}
    series = {f"model/evaluated_{name}": (steps + 1, np.full(6, value)) for name, value in still.items()}
    series |= {"val/loss": (steps, np.linspace(1, 0.5, 6)), name: (steps, 1.5 + slope * np.arange(6))}
    series["model/passes_without_gradients"] = np.array([20]), np.ones(1)
    assert bool(rule_curves.found([AverageWrong()], series, pieces)) is told
