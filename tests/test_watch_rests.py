"""A watch in a training of short steps: it rests between some that it looks at, and says nothing else for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from watched_models import TOKENS, Model, Notes, loss_of, run  # noqa: E402

from barograph.probes.model.schedule import AWAKE, BUDGET, WatchSchedule  # noqa: E402
from barograph.probes.model.watch import ModelWatch  # noqa: E402

__all__ = ["run"]  # a fixture


def resting(notes: Notes, model: Any, optimizer: Any = None, **options: Any) -> ModelWatch:
    """A watch whose first steps, in which it never rests, are over."""
    watch = ModelWatch(notes, model, optimizer, **options)
    watch.schedule._opening = 0
    return watch


def train(
    notes: Notes,
    watch: ModelWatch,
    optimizer: Any,
    steps: range,
    loss: Callable[[Any], Any] = loss_of,
    each: Callable[[int], Any] = lambda step: None,
) -> list[bool]:
    """Whether each of the steps was one in which the watch rested."""
    rested = []
    for step in steps:
        rested.append(watch._rests)
        loss(watch.model).backward()
        optimizer.step()
        optimizer.zero_grad()
        notes.log(step)
        each(step)
    return rested


def passes_looked_at(watch: ModelWatch, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each pass that is looked at from here on, whether it is one with gradients."""
    looked: list[bool] = []
    given = watch._state._output.given
    monkeypatch.setattr(watch._state._output, "given", lambda *every: (looked.append(every[1]), given(*every)))
    return looked


def test_on_short_steps_some_are_looked_at_in_a_row_and_most_not_at_all(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    watch = resting(run, model, optimizer)
    rested = train(run, watch, optimizer, range(1500))
    assert sum(rested) > 1000
    groups = "".join("r" if one else "a" for one in rested).split("r")
    awake = [len(group) for group in groups if group]
    assert min(awake) >= AWAKE and len(awake) > 1
    watch.flush()
    assert sum(record.step > 500 for record in run.records if record.kind == "model") >= 2


def test_what_a_watch_takes_comes_to_its_budget_where_it_rests() -> None:
    schedule, taken, whole = WatchSchedule({"norms": 1}, BUDGET), 0.0, 0.0
    schedule._opening = 0
    for step in range(20_000):
        due = schedule.begin(step) if not schedule.rests else frozenset()
        costs, besides = dict.fromkeys(due, 4e-4), 2e-5 if schedule.rests else 1e-3
        schedule.spend(costs, 0.01, due, besides)
        taken, whole = taken + sum(costs.values()) + besides, whole + 0.01
    assert 0.5 * BUDGET < taken / whole < 1.1 * BUDGET


def test_long_steps_are_all_looked_at() -> None:
    schedule = WatchSchedule({"norms": 1}, BUDGET)
    schedule._opening = 0
    for step in range(1000):
        schedule.spend(dict.fromkeys(schedule.begin(step), 4e-4), 0.2, besides=1e-3)
        assert not schedule.rests


def test_a_long_evaluation_is_not_paid_by_thousands_of_steps() -> None:
    schedule = WatchSchedule({"norms": 1}, BUDGET)
    schedule._opening, rested = 0, 0
    for _ in range(10):
        schedule.spend({}, 0.002, besides=1e-5)
    schedule.spend({}, 0.002, besides=5.0)
    for _ in range(3000):
        schedule.spend({}, 0.002, besides=1e-5)
        rested += schedule.rests
    assert 100 < rested <= 600


def test_the_first_thousand_steps_are_all_looked_at(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    watch = ModelWatch(run, model, optimizer)
    assert not any(train(run, watch, optimizer, range(1000)))


@pytest.mark.parametrize("options", [{"budget": None}, {"gradients": 5}])
def test_nothing_rests_without_a_budget(run: Notes, options: dict[str, Any]) -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    watch = resting(run, model, optimizer, **options)
    assert not any(train(run, watch, optimizer, range(200)))


def test_gradients_are_not_called_stale_behind_a_rest_and_stale_ones_are(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    watch = resting(run, model, optimizer)
    rested = train(run, watch, optimizer, range(600))
    assert any(rested)
    watch.flush()
    assert not any(record.fields.get("stale_gradients") for record in run.records if record.kind == "model")
    optimizer.zero_grad = lambda *given: None
    train(run, watch, optimizer, range(600, 1500))
    watch.flush()
    assert any(record.fields.get("stale_gradients") for record in run.records if record.kind == "model")


def test_optimizers_count_their_steps_through_rests(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    watch = resting(run, model, optimizer)
    rested = train(run, watch, optimizer, range(1500), each=lambda step: scheduler.step())
    watch.flush()
    assert sum(rested) > 800
    said = [record for record in run.records if record.kind == "model" and "rate_sum" in record.fields]
    assert said[-1].step > 400
    for record in said:
        assert record.fields["rate_sum"] == pytest.approx(0.001 * (record.step + 1))
        if "scheduled_steps" in record.fields:
            assert record.fields["scheduled_steps"] == record.step == record.fields["scheduler_steps"]


def test_an_evaluation_during_a_rest_is_recorded_at_the_next_step(run: Notes) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 50))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = resting(run, model, optimizer)
    asleep: list[int] = []

    def evaluate(step: int) -> None:
        if step % 100 == 99:
            asleep.extend([step] if watch._rests else [])
            model.train(step > 300)  # forgotten later on
            with torch.no_grad():
                model(TOKENS)
            model.train()

    train(run, watch, optimizer, range(1000), each=evaluate)
    watch.flush()
    asleep = [step for step in asleep if step > 400]
    assert asleep
    modes = [record for record in run.records if record.kind == "model" and "training_in_evaluation" in record.fields]
    assert [record.fields["training_in_evaluation"] for record in modes] == [0.0, 1.0]
    assert modes[-1].step == 400  # the step behind the first one that forgot


def test_passes_of_each_step_are_looked_at_with_the_steps_alone(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = resting(run, model, optimizer)

    def act(step: int) -> None:
        with torch.no_grad():
            for _ in range(5):
                model(TOKENS)

    train(run, watch, optimizer, range(300), each=act)
    rested = train(run, watch, optimizer, range(300, 900), each=act)
    assert sum(rested) > 300


def test_few_of_the_passes_of_a_policy_that_acts_are_looked_at(run: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = ModelWatch(run, model, optimizer)
    looked = passes_looked_at(watch, monkeypatch)

    def act(step: int) -> None:
        with torch.no_grad():
            for _ in range(50):
                model(TOKENS)

    train(run, watch, optimizer, range(20), each=act)
    assert looked.count(True) == 20
    assert looked.count(False) <= 2 * 50 + 8 * 20


def test_all_passes_of_an_evaluation_are_looked_at(run: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = ModelWatch(run, model, optimizer)
    looked = passes_looked_at(watch, monkeypatch)

    def evaluate(step: int) -> None:
        with torch.no_grad():
            for _ in range(30 if step % 10 == 9 else 0):
                model(TOKENS)

    train(run, watch, optimizer, range(40), each=evaluate)
    assert looked.count(False) == 4 * 30


def test_a_training_with_a_second_network_is_looked_at_in_each_step(run: Notes) -> None:
    model, target = Model(), Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = resting(run, model, optimizer)

    def loss(of: Any) -> Any:
        with torch.no_grad():
            goal = target(TOKENS)
        return (of(TOKENS) - goal).square().mean()

    train(run, watch, optimizer, range(60), loss=loss)
    assert not any(train(run, watch, optimizer, range(60, 300), loss=loss))


def test_steps_of_a_rest_are_not_taken_for_weights_that_somebody_wrote(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = resting(run, model, optimizer)
    train(run, watch, optimizer, range(300))
    watch.flush()
    assert not any("written" in record.fields for record in run.records if record.kind == "model")


def test_of_a_number_that_is_not_finite_since_a_rest_it_is_not_said_that_the_step_before_was_finite(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = resting(run, model, optimizer)
    since: list[int] = []

    def spoil(step: int) -> None:
        if not since and step > 400 and watch._rests:
            since.append(step)
            with torch.no_grad():
                next(model.parameters()).view(-1)[:] = float("nan")

    train(run, watch, optimizer, range(1500), each=spoil)
    watch.flush()
    broken = [one for one in run.records if one.kind == "model" and one.fields.get("broken_output")]
    assert broken and since[0] < broken[0].step - 1
    assert 0 <= broken[0].fields["finite_until"] <= since[0] < broken[0].step - 1


def test_resting_steps_cost_less_than_those_that_are_looked_at(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    watch = resting(run, model, optimizer)
    taken: dict[bool, list[float]] = {False: [], True: []}
    for step in range(1500):
        rests, loss = watch._rests, loss_of(model)
        loss.backward()
        began = time.thread_time()
        optimizer.step()
        if step > 100:
            taken[rests].append(time.thread_time() - began)
        optimizer.zero_grad()
        run.log(step)
    looked, rested = (sorted(taken[key])[len(taken[key]) // 2] for key in (False, True))
    assert rested < looked
