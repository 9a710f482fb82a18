"""What evaluations of a copy of the model are made with: its mode, its inputs, its dropout."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.doctor import diagnose
from barograph.probes.model.doubles import CopyPasses
from barograph.probes.model.frozen import copies_of_trained

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn  # noqa: E402

STEPS, OFTEN = 100, 20


class Network(nn.Module):
    def __init__(self, careless: bool = False):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(24, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1))
        self.head, self.careless = nn.Linear(32, 4), careless

    def forward(self, rows: Any) -> Any:
        rows = self.body(rows)
        return self.head(functional.dropout(rows, 0.2, training=self.careless or self.training))


class Judged(nn.Module):
    """A loss around a network, that has no weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Network()

    def forward(self, rows: Any) -> Any:
        return self.network(rows)


def severities(
    folder: Path, evaluate: Callable[[Any, Any], Any], model: Any = None, asks: bool = False, apart: float = 0.0,
    prepare: Callable[[Any, Any], Any] | None = None, updates: bool = True, beside: bool = False,
) -> dict[str, str]:  # fmt: skip
    """Of a training whose average is evaluated, by rule. asks: the average is called in each step, as a teacher.
    beside: the trained weights are evaluated too."""
    torch.manual_seed(4)
    torch.set_num_threads(1)
    model = Network() if model is None else model
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    run = barograph.init(dir=str(folder), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer, budget=None)  # on a busy machine, too
    rule, fresh, seen = torch.randn(24, 4), torch.randn(256, 24), []
    for step in range(1, STEPS + 1):
        rows = torch.randn(32, 24)
        seen.append(rows)
        if asks:
            with torch.no_grad():
                average.train()(rows)
        loss = functional.cross_entropy(model(rows), (rows @ rule).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if updates:
            average.update_parameters(model)
        logged = {"train/loss": loss.item()}
        if step % OFTEN == 0:
            if prepare is not None:
                prepare(average, seen)
            with torch.no_grad():
                if beside:
                    model.eval()(fresh)
                    model.train()
                output = torch.cat([evaluate(average, part) for part in (fresh + apart).split(64)])
            logged["val/loss"] = functional.cross_entropy(output, (fresh @ rule).argmax(1)).item()
        run.log(logged, step=step)
    run.finish()
    found = diagnose(barograph.StoredRun(run.dir))["findings"]
    members = {one["rule"]: one["severity"] for head in found for one in head["evidence"].get("story", [])}
    return members | {one["rule"]: one["severity"] for one in found}


@pytest.mark.parametrize("model", [Network, Judged])
@pytest.mark.parametrize("asks", [False, True])
def test_a_copy_that_is_evaluated_in_training_mode_is_found(tmp_path: Path, model: Any, asks: bool) -> None:
    assert severities(tmp_path, lambda one, rows: one.train()(rows), model(), asks).get("model_mode") == "warning"


def test_a_copy_may_be_evaluated_past_its_wrapper(tmp_path: Path) -> None:
    found = severities(tmp_path, lambda one, rows: one.train().module.network(rows), Judged())
    assert found.get("model_mode") == "warning"


def test_dropout_of_a_copy_that_no_mode_ends_is_found(tmp_path: Path) -> None:
    found = severities(tmp_path, lambda one, rows: one.eval()(rows), Network(careless=True))
    assert found.get("model_mode") == "warning"


@pytest.mark.parametrize("asks", [False, True])
def test_a_copy_in_evaluation_mode_is_right_and_so_is_one_that_gathers_statistics(tmp_path: Path, asks: bool) -> None:
    def gathers(average: Any, seen: Any) -> None:
        update_bn(seen, average)

    found = severities(tmp_path, lambda one, rows: one.eval()(rows), asks=asks, prepare=gathers)
    assert not {"model_mode", "evaluation_examples", "average_wrong"} & found.keys()


@pytest.mark.parametrize(("gathers", "told"), [(False, True), (True, False)])
def test_statistics_that_are_gathered_anew_for_each_evaluation_are_no_slow_ones(
    tmp_path: Path, gathers: bool, told: bool
) -> None:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(24, 32), nn.BatchNorm1d(32, momentum=1e-4), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer, budget=None)
    examples, labels = 3 + torch.randn(256, 24), torch.randint(0, 4, (512,))  # learnt by heart
    for step in range(1, 281):
        some = torch.randperm(256)[:64]
        loss = functional.cross_entropy(model(examples[some]), labels[some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logged = {"train/loss": loss.item()}
        if step % OFTEN == 0:
            if gathers:
                update_bn(examples.split(64), model)
            with torch.no_grad():
                output = model.eval()(3 + torch.randn(256, 24))
            model.train()
            logged["val/loss"] = functional.cross_entropy(output, labels[256:]).item()
        run.log(logged, step=step)
    run.finish()
    found = diagnose(barograph.StoredRun(run.dir))["findings"]
    causes = [cause for one in found for cause in one["causes"]]  # the rule's finding is part of another one's
    assert ("normalisation statistics stale: batch norm's momentum is too small for so few steps" in causes) == told
    assert "evaluation_examples" not in {one["rule"] for one in found}


@pytest.mark.parametrize(("apart", "told"), [(0.0, False), (4.0, True)])
def test_inputs_of_an_evaluated_copy_are_compared_with_those_of_the_training(
    tmp_path: Path, apart: float, told: bool
) -> None:
    found = severities(tmp_path, lambda one, rows: one.eval()(rows), apart=apart)
    assert ("evaluation_inputs" in found) == told


@pytest.mark.parametrize(
    ("updates", "beside", "told"), [(False, False, True), (True, False, False), (False, True, False)]
)
def test_an_average_that_never_changes_is_found(tmp_path: Path, updates: bool, beside: bool, told: bool) -> None:
    found = severities(tmp_path, lambda one, rows: one.eval()(rows), updates=updates, beside=beside)
    assert ("average_wrong" in found) == told


def test_a_frozen_copy_of_what_is_trained_is_another_network_and_layers_drawn_alike_are_not() -> None:
    both = nn.ModuleDict({"encoder_q": Network()})
    both["encoder_k"] = copy.deepcopy(both["encoder_q"]).requires_grad_(False)
    found = copies_of_trained(both)
    assert found == {id(one) for one in both["encoder_k"].modules()}
    both["encoder_k"] = Network().requires_grad_(False)
    assert not copies_of_trained(both)
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 3, enable_nested_tensor=False)
    stack.layers[1].requires_grad_(False)
    assert not copies_of_trained(stack)


def test_the_copy_that_is_evaluated_is_found_among_many(tmp_path: Path) -> None:
    others = [Network() for _ in range(100)]
    assert "evaluation_inputs" in severities(tmp_path, lambda one, rows: one.eval()(rows), apart=4.0)
    assert len(others) == 100


def test_of_a_copy_that_each_step_calls_the_last_passes_are_the_training_s() -> None:
    seen: list[float] = []
    passes = CopyPasses(lambda tensors: None, lambda tensors, mode: seen.append(float(tensors[0][0, 0])))
    reference = Network().eval()
    for step in range(8):
        for place in range(3 * (step in (5, 7))):
            passes.called(reference, [torch.full((4, 24), 100.0 + 10 * step + place)], True)
        passes.called(reference, [torch.full((4, 24), float(step))], True)
        passes.put(True)
    assert seen == [151, 152, 171, 172]


def test_rows_that_a_reference_is_given_in_each_step_are_no_rows_of_an_evaluation(tmp_path: Path) -> None:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 2))
    reference = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer, budget=None)
    rows, fresh = torch.randn(640, 24), torch.randn(128, 24)

    def loss_of(some: Any) -> Any:
        with torch.no_grad():
            before = reference(some).log_softmax(1)
        apart = model(some).log_softmax(1) - before
        return -functional.logsigmoid(apart[:, 0] - apart[:, 1]).mean()

    for step in range(1, STEPS + 1):
        loss = loss_of(rows[torch.arange(32) + 32 * (step % 20)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logged = {"train/loss": loss.item()}
        if step % 10 == 0:
            with torch.no_grad():
                logged["val/loss"] = sum(loss_of(part).item() for part in fresh.split(64)) / 2
        run.log(logged, step=step)
    run.finish()
    stored = barograph.StoredRun(run.dir)
    assert "evaluation_examples" not in {one["rule"] for one in diagnose(stored)["findings"]}
    assert set(stored.series("model/evaluated_known").value.tolist()) == {0.0}
