"""The budget of a watch: what it pays for, and what is recorded whatever it is."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import forked_python
import pytest

torch = pytest.importorskip("torch")
from watched_models import TOKENS, Model, Notes, loss_of, run  # noqa: E402

from barograph.probes.model.schedule import BUDGET, DEFAULTS, OPENING  # noqa: E402
from barograph.probes.model.watch import ModelWatch  # noqa: E402

__all__ = ["run"]  # a fixture


@pytest.mark.parametrize(
    "options, budget",
    [
        ({}, BUDGET),
        ({"histograms": 0, "scaler": None}, BUDGET),  # off is no interval
        ({"gradients": 5}, None),  # what is asked for is measured as asked
        ({"gradients": 5, "budget": 0.5}, 0.5),
        ({"budget": None}, None),
    ],
)
def test_default_intervals_have_a_budget(run: Notes, options: dict[str, Any], budget: float | None) -> None:
    watch = ModelWatch(run, Model(), **options)
    assert watch.schedule.budget == budget
    assert watch.schedule.given == DEFAULTS | {name: value for name, value in options.items() if name in DEFAULTS}


def test_what_is_certain_at_the_start_is_recorded_whatever_the_budget(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, budget=1e-6)
    for step in range(12):
        model(TOKENS.clone()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log(step)
    watch.flush()
    assert run.fields(0)["output_width"] == 50 and run.fields(0)["trained_parameters"] == 14
    assert run.fields(0)["grad_norm"] > 0  # the first measurement, of which it learns what the others cost
    assert not any("grad_norm" in run.fields(step) for step in run.steps[1:]) and not run.tables


def test_nothing_is_measured_before_the_steps_have_paid_for_all_that_the_watch_did(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    watch = ModelWatch(run, model, optimizer)
    schedule, account, measured, charged = watch.schedule, 0.0, [], 0.0
    begin, spend = schedule.begin, schedule.spend

    def begun(step: int) -> frozenset[str]:
        due = begin(step)
        if due:
            measured.append((step, account))
        return due

    def spent(costs: Any, seconds: float, due: Any = (), besides: float = 0.0) -> None:
        nonlocal account, charged
        least = besides if costs else min(besides, BUDGET * seconds / 2)
        charged += sum(costs.values()) + besides
        account += BUDGET * seconds + OPENING - sum(costs.values()) - least
        spend(costs, seconds, due, besides)

    schedule.begin, schedule.spend = begun, spent  # type: ignore[method-assign]
    for step in range(400):
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log(step)
    watch.flush()
    assert measured[0][0] == 0 and all(before > 0 for _, before in measured[1:])
    assert run.steps == sorted({step for step, _ in measured} | set(run.steps)) and len(run.steps) < 400
    own = sum(record.fields["watch_ms"] for record in run.records if record.kind == "model")
    assert charged * 1e3 > 0.9 * own  # nothing that the watch does is free


def test_a_loop_that_frees_gradients_in_backward_is_recognized_within_the_default_budget(run: Notes) -> None:
    model = Model()
    watch = ModelWatch(run, model)

    def use(parameter: Any) -> None:
        with torch.no_grad():
            parameter -= 0.1 * parameter.grad
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(use)
    for step in range(4):
        loss_of(model).backward()
        run.log(step)
    watch.flush()
    assert run.warned("gradients are freed while backward runs") and run.steps


SHARDED = """
import sys, json, torch, torch.distributed as distributed
sys.path.insert(0, sys.argv[1])
torch.set_num_threads(1)
from torch.distributed.fsdp import fully_shard
from watched_models import Model, Notes, loss_of
from barograph.probes.model.watch import ModelWatch

distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=0, world_size=1)
model, run = Model(), Notes()
for part in [*model.blocks, model]:
    fully_shard(part)
optimizer = torch.optim.AdamW(model.parameters())
watch = ModelWatch(run, model, optimizer, budget=None)
for step in range(4):
    for number in range(2):
        model.set_requires_gradient_sync(number == 1)
        loss_of(model).backward()
    optimizer.step()
    optimizer.zero_grad()
    run.log(step)
watch.close()
distributed.destroy_process_group()
print(json.dumps([run.warned("gradients are freed"), "grad_norm" in run.fields(0)]))
"""


@pytest.mark.slow
def test_gradients_that_fsdp2_keeps_until_the_last_micro_batch_are_not_taken_for_freed(tmp_path: Path) -> None:
    tests = Path(__file__).parent
    said = forked_python.run(
        sys.executable, "-W", "ignore", "-c", SHARDED, tests, tmp_path / "meeting",
        env=os.environ | {"PYTHONPATH": str(tests.parent / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr[-2000:]
    freed, norm = json.loads(said.stdout.splitlines()[-1])
    assert not freed and norm
