"""The monitor of DeepSpeed and the hooks of its engine, called as the engine's own code (0.19) calls them."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.integrations.deepspeed import add_monitor


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("BLACKBOX", "GIT"):
        monkeypatch.setenv(f"BAROGRAPH_{name}", "false")


class Monitor:
    """Another monitor of the engine."""

    def __init__(self) -> None:
        self.enabled, self.events, self.tb_monitor = True, [], "kept"  # type: ignore[var-annotated]

    def write_events(self, events: list[Any]) -> None:
        self.events += events


def test_a_monitor_of_deepspeed() -> None:
    before = Monitor()
    engine: Any = types.SimpleNamespace(monitor=before, global_steps=0)
    run = add_monitor(engine, project="ds")
    assert add_monitor(engine) is run and engine.monitor.enabled and engine.monitor.tb_monitor == "kept"
    for step in range(1, 4):
        engine.global_steps = step
        engine.monitor.write_events([("Train/Samples/train_loss", 1.0 / step, 32 * step)])
        engine.monitor.write_events([("Train/Samples/lr", 1e-4, 32 * step)])
    run.finish()
    found = barograph.StoredRun(run.dir)
    assert (
        list(found.series("Train/Samples/train_loss").step) == [1, 2, 3] == list(found.series("Train/Samples/lr").step)
    )
    assert {32.0, 64.0, 96.0} == set(found.series("samples").value) and len(before.events) == 6


class Engine:
    """The calls of a training loop, two micro-batches a step, with a real model and optimizer."""

    def __init__(self, torch: Any) -> None:
        self.module = torch.nn.Linear(3, 1)
        self.monitor, self.global_steps, self.micro_steps, self.skipped_steps = Monitor(), 0, 0, 0
        self._optimizer, self._torch = torch.optim.SGD(self.module.parameters(), lr=0.1), torch
        self._norm: Any = None

    def forward(self, batch: Any) -> Any:
        return self.module(batch).square().mean()

    def backward(self, loss: Any, retain_graph: bool = False, scale_wrt_gas: bool = True) -> Any:
        (loss / 2).backward()
        return loss

    def step(self, lr_kwargs: Any = None) -> None:
        self.micro_steps += 1
        if self.micro_steps % 2 == 0:
            self._norm = self._torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
            self._optimizer.step()
            self._optimizer.zero_grad()
            self.global_steps += 1
            self.monitor.write_events([("Train/Samples/lr", 0.1, 8 * self.global_steps)])

    def get_global_grad_norm(self) -> Any:
        return self._norm

    def save_checkpoint(self, save_dir: str, tag: str | None = None, client_state: Any = None) -> bool:
        (Path(save_dir) / (tag or f"global_step{self.global_steps}")).mkdir(parents=True)
        return True


def test_an_engines_steps_are_recorded_as_it_goes() -> None:
    torch = pytest.importorskip("torch")
    engine: Any = Engine(torch)
    run = add_monitor(engine, project="ds")
    losses = []
    for _ in range(8):
        loss = engine.forward(torch.randn(4, 3))
        assert engine.backward(loss) is loss  # what the engine's calls return is what the loop gets
        losses.append(float(loss.detach()))
        engine.step()
    engine.module.eval()
    engine.forward(torch.randn(4, 3))  # an evaluation is no step
    assert engine.save_checkpoint("kept") is True
    engine.save_checkpoint("kept", tag="last")
    run.finish()
    engine.module.train()
    engine.backward(engine.forward(torch.randn(4, 3)))  # and after its end the training goes on without it
    engine.step()
    found = barograph.StoredRun(run.dir)
    means = [sum(pair) / 2 for pair in zip(losses[::2], losses[1::2], strict=True)]
    assert found.series("train/loss").step.tolist() == [1, 2, 3, 4]
    assert found.series("train/loss").value.tolist() == pytest.approx(means)
    assert found.series("train/norm").step.tolist() == found.series("speed/step_ms").step.tolist() == [1, 2, 3, 4]
    assert [Path(record.fields["path"]).name for record in found.records("checkpoint")] == ["global_step4", "last"]


def test_an_engine_that_fails_raises_as_without_us_and_a_hook_that_fails_does_not() -> None:
    torch = pytest.importorskip("torch")
    engine: Any = Engine(torch)
    run = add_monitor(engine, project="ds")
    with pytest.raises(RuntimeError, match="shapes"):
        engine.forward(torch.randn(4, 5))
    engine._norm, engine.get_global_grad_norm = None, lambda: 1 / 0
    for _ in range(2):
        engine.backward(engine.forward(torch.randn(4, 3)))
        engine.step()
    run.finish()
    assert engine.global_steps == 1


def test_a_second_engine_after_the_first_ones_run_gets_a_run_of_its_own() -> None:
    engine: Any = types.SimpleNamespace(monitor=Monitor(), global_steps=0)
    first = add_monitor(engine, project="ds")
    first.finish()
    second = add_monitor(engine, project="ds")
    assert second is not first and engine.monitor.run is second
    engine.global_steps = 1
    engine.monitor.write_events([("Train/Samples/lr", 0.1, 8)])
    second.finish()
    assert barograph.StoredRun(second.dir).series("Train/Samples/lr").step.tolist() == [1]
