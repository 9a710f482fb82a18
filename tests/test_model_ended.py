"""An evaluation behind a run's last step is recorded, however the run ends, and rules hear of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import until

import barograph
from barograph.doctor import diagnose
from barograph.log.read import read_log
from barograph.probes.model.watch import ModelWatch
from barograph.testing import FakeRun

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

STEPS, BATCH = 64, 32


class Task:
    """Examples of training and evaluation, a model with dropout, and an optimizer."""

    def __init__(self, leak: bool = False) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(3)
        self.inputs, self.targets = torch.randn(STEPS * BATCH, 20), torch.randint(0, 4, (STEPS * BATCH,))
        self.held_out = self.inputs[:256] if leak else torch.randn(256, 20)
        self.model = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Dropout(0.3), nn.Linear(48, 4))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)

    def backward(self, step: int) -> float:
        rows = slice(step % STEPS * BATCH, (step % STEPS + 1) * BATCH)
        loss = functional.cross_entropy(self.model(self.inputs[rows]), self.targets[rows])
        self.optimizer.zero_grad()
        loss.backward()
        return float(loss.detach())

    def epoch(self, run: Any, first: int = 0, steps: int = STEPS) -> None:
        self.model.train()
        for step in range(first, first + steps):
            loss = self.backward(step)
            self.optimizer.step()
            run.log({"train/loss": loss}, step=step)

    def evaluate(self, run: Any, step: int, training: bool = False, gradients: bool = False) -> None:
        self.model.train(training)
        with torch.set_grad_enabled(gradients):
            losses = [functional.cross_entropy(self.model(rows), self.targets[:64]) for rows in self.held_out.split(64)]
        run.log({"val/loss": float(torch.stack(losses).detach().mean())}, step=step)


def start(folder: Path, **more: Any) -> Any:
    return barograph.init(
        "p", "n", dir=str(folder), console="none", machine=False, git=False, **{"sidecar": False} | more
    )


def stored(run: Any) -> Any:
    return barograph.read(str(run.dir))[0]


def found(run: Any) -> dict[str, int]:
    told = [part for item in diagnose(stored(run))["findings"] for part in (item, *item["evidence"].get("story", ()))]
    return {item["rule"]: item["step"] for item in told if item["severity"] != "info"}


def rows(run: Any, name: str) -> list[tuple[int, float]]:
    series = stored(run).series(f"model/{name}", branch="all") if f"model/{name}" in stored(run).names() else None
    return [] if series is None else list(zip(series.step.tolist(), series.value.tolist(), strict=True))


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize(
    ("how", "leak", "expected"),
    [({}, False, {}), ({"training": True}, False, {"model_mode": STEPS}), ({}, True, {"evaluation_examples": STEPS})],
    ids=["right", "training mode", "leak"],
)
def test_an_evaluation_at_the_very_end_is_heard_of(
    tmp_path: Path, how: dict[str, bool], leak: bool, expected: dict[str, int], epochs: int
) -> None:
    run, task = start(tmp_path), Task(leak)
    run.watch(task.model, task.optimizer)
    for epoch in range(epochs):
        task.epoch(run, epoch * STEPS)
        task.evaluate(run, (epoch + 1) * STEPS - 1, **how)
    run.finish()
    assert found(run) == expected
    assert rows(run, "evaluated_last") == [(epochs * STEPS, 1)]
    assert [step for step, _ in rows(run, "evaluated_rows")] == [STEPS * epoch for epoch in range(1, epochs + 1)]


def test_the_doctor_that_runs_beside_the_training_hears_of_it_too(tmp_path: Path) -> None:
    run, task = start(tmp_path, sidecar=True), Task()
    run.watch(task.model, task.optimizer)
    task.epoch(run)
    task.evaluate(run, STEPS - 1, training=True)
    run.finish()

    def told() -> list[str]:
        logs = [path for path in run.dir.glob("*.json") if "manifest" not in path.name]
        return [record["rule"] for path in logs for record in read_log(path) if record["log"] == "finding"]

    assert until(lambda: "model_mode" in told(), 30)


def test_what_is_recorded_is_of_the_evaluation_alone() -> None:
    run, task = FakeRun(), Task()
    watch = ModelWatch(run, task.model, task.optimizer)
    epoch(run, task)
    task.model.eval()
    with torch.no_grad():
        task.model(task.held_out)
    task.model.train()
    task.backward(7)  # of a step that is never made
    watch.close()
    *steps, last = [record for record in run.records if record.kind == "model"]
    assert last.step == STEPS == steps[-1].step + 1 and last.fields["evaluated_last"] == 1
    assert last.fields["training_in_evaluation"] == 0 and last.fields["evaluated_rows"] == 64
    of_training = {"training", "grad_norm", "trained_parameters", "param_norm", "example_rows", "passes", "input_mean"}
    assert not of_training & last.fields.keys() and not run.warnings
    count = len(run.records)
    watch.close()
    run.finish()
    assert len(run.records) == count


def epoch(run: FakeRun, task: Task) -> None:
    for step in range(STEPS):
        task.backward(step)
        task.optimizer.step()
        run.current_step = step


def nothing(task: Task) -> None:
    pass


def train_more(task: Task) -> None:
    task.backward(3)


@pytest.mark.parametrize("behind", [nothing, train_more])
def test_without_an_evaluation_nothing_is_recorded(behind: Any) -> None:
    run, task = FakeRun(), Task()
    watch = ModelWatch(run, task.model, task.optimizer)
    epoch(run, task)
    behind(task)
    watch.close()
    assert all("evaluated_last" not in fields for fields in run.of("model"))


def test_a_run_that_trains_nothing_has_no_last_step() -> None:
    run, task = FakeRun(), Task()
    watch = ModelWatch(run, task.model, task.optimizer)
    with torch.no_grad():
        task.model.eval()(task.held_out)
    watch.close()
    assert not run.of("model")


def test_passes_that_each_step_has_are_no_evaluation_at_the_end_either() -> None:
    run, task = FakeRun(), Task()
    watch = ModelWatch(run, task.model, task.optimizer)
    for step in range(STEPS):
        with torch.no_grad():
            task.model(task.held_out)
        task.backward(step)
        task.optimizer.step()
        run.current_step = step
    with torch.no_grad():
        task.model(task.held_out)
    watch.close()
    assert all("evaluated_last" not in fields for fields in run.of("model"))


def test_an_evaluation_with_gradients_at_the_end_is_the_second_one(tmp_path: Path) -> None:
    run, task = start(tmp_path), Task()
    run.watch(task.model, task.optimizer)
    for at in range(2):
        task.epoch(run, at * STEPS)
        task.evaluate(run, (at + 1) * STEPS - 1, gradients=True)
    run.finish()
    assert found(run) == {"evaluation_gradients": STEPS - 1}


def test_weights_that_may_be_loaded_for_good_are_not_compared_with_the_last_ones() -> None:
    run, task = FakeRun(), Task()
    watch = ModelWatch(run, task.model, task.optimizer)
    best = {name: value + 0.1 for name, value in task.model.state_dict().items()}
    epoch(run, task)
    task.model.load_state_dict(best)
    with torch.no_grad():
        task.model.eval()(task.held_out)
    watch.close()
    last = run.of("model")[-1]
    assert last["evaluated_last"] == 1 and not {"evaluated_apart", "written"} & last.keys()


def test_a_test_set_behind_a_leak_takes_nothing_back(tmp_path: Path) -> None:
    run, task = start(tmp_path), Task(leak=True)
    run.watch(task.model, task.optimizer)
    task.epoch(run)
    task.evaluate(run, STEPS - 1)
    task.epoch(run, STEPS)
    task.held_out = torch.randn(256, 20)
    task.evaluate(run, 2 * STEPS - 1)
    run.finish()
    assert found(run) == {"evaluation_examples": STEPS}


def test_a_sample_behind_the_last_step_is_no_evaluation_in_training_mode(tmp_path: Path) -> None:
    run, task = start(tmp_path), Task()
    run.watch(task.model, task.optimizer)
    task.epoch(run)
    task.evaluate(run, STEPS - 1)
    task.epoch(run, STEPS, 8)
    with torch.no_grad():
        task.model(task.held_out[:16])
    run.finish()
    assert found(run) == {}


def test_a_run_that_an_exception_ends_has_its_last_evaluation(tmp_path: Path) -> None:
    task = Task(leak=True)
    with pytest.raises(ZeroDivisionError), start(tmp_path) as run:
        run.watch(task.model, task.optimizer)
        task.epoch(run)
        task.evaluate(run, STEPS - 1)
        print(1 / 0)
    assert rows(run, "evaluated_trained") == [(STEPS, 1)]


def test_two_launches_have_one_each(tmp_path: Path) -> None:
    for first in (0, STEPS):
        run, task = start(tmp_path, id="a-run", resume="allow"), Task()
        run.watch(task.model, task.optimizer)
        task.epoch(run, first)
        task.evaluate(run, first + STEPS - 1, training=True)
        run.finish()
    assert {step for step, _ in rows(run, "evaluated_last")} == {STEPS, 2 * STEPS}
    assert "model_mode" in found(run)


PROGRAM = """
import os, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_model_ended import STEPS, Task, start
run, task = start(Path({folder!r})), Task(leak=True)
run.watch(task.model, task.optimizer)
task.epoch(run)
task.evaluate(run, STEPS - 1)
if {kill}:
    os.kill(os.getpid(), {signal})
"""


@pytest.mark.parametrize("kill", [False, True])
def test_a_process_that_ends_without_finish_has_it_and_one_that_is_killed_has_all_before(
    tmp_path: Path, kill: bool
) -> None:
    program = PROGRAM.format(tests=str(Path(__file__).parent), folder=str(tmp_path), kill=kill, signal=signal.SIGKILL)
    ended = subprocess.run([sys.executable, "-c", program], env=dict(os.environ), timeout=120, check=False)
    assert (ended.returncode == 0) == (not kill)
    (run,) = barograph.read(str(tmp_path))
    assert run.series("train/loss").step.tolist() == list(range(STEPS))
    assert ("model/evaluated_last" in run.names()) == (not kill)
