"""What a training may do about trouble: stop, stop early, skip a step, look closely."""

from __future__ import annotations

import math
import operator
import random
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forked_python
import pytest
from alert_receivers import FakeRun, give
from hypothesis import given
from hypothesis import strategies as some

import barograph
from barograph.core.record import Record
from barograph.probes.model.schedule import WatchSchedule
from barograph.sidecar.alerts.alerts import Alerts
from barograph.training.debugging import DebugMode, WatchIntervals
from barograph.training.skipping import SkipAdvisor
from barograph.training.stopping import EarlyStopping, StopRequest, stop_agreed


def finding(rule: str = "loss_spike", severity: str = "critical", step: int = 5, **more: Any) -> Any:
    made = dict(rule=rule, severity=severity, step=step, last_step=step, message=f"{rule} at {step}", key="", segment=1)
    return SimpleNamespace(**(made | {"causes": ["bad batch: a"], "remedies": ["skip it"]} | more))


@pytest.mark.parametrize("page", ["guides/alerts.md", "start/recording.md", "guides/media.md"])
def test_what_a_page_says_of_a_run_works(tmp_path: Path, page: str) -> None:
    text = (Path(__file__).parents[1] / "docs" / page).read_text()
    said = sorted(set(re.findall(r"\brun\.(?:stop|checkpoint|alerts|data|model|about)[\w.]*\w", text)))
    run = barograph.init(project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False)
    run.request_stop("asked for")
    assert len(said) > 2 and all(operator.attrgetter(name.removeprefix("run."))(run) is not None for name in said)
    assert run.alerts.stop_reason == "asked for"
    run.alerts.stop.withdraw()
    assert not run.stop_requested
    run.finish()


# -- findings and stopping ------------------------------------------------------------------------------------


def test_a_finding_is_told_once_however_often_it_is_reported_and_again_when_it_gets_graver(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    alerts = Alerts(run)
    told = [alerts.report(finding(severity=one, last_step=at)) for at, one in enumerate(["warning"] * 3, 5)]
    assert told == [True, False, False]
    assert alerts.report(finding(last_step=9)) and not alerts.report(finding(last_step=10))
    assert run.titles == ["Loss spike"] * 2
    assert run.records[-1][2]["text"] == "loss_spike at 5 Probable cause: bad batch: a. Try: skip it"
    assert not alerts.report(finding("mild", "info"))
    assert alerts.report(finding(), over=True) and not alerts.report(finding(), over=True)
    assert run.records[-1][2]["recovered"]


def test_another_finding_of_the_rule_waits_for_the_cool_down_and_is_told_only_if_it_goes_on(tmp_path: Path) -> None:
    alerts = Alerts(FakeRun(tmp_path))
    assert alerts.report(finding(step=5))
    assert alerts.report(finding(step=6, key="layer 3"))
    assert not alerts.report(finding(step=50))
    assert not alerts.report(finding(step=60, last_step=61))
    alerts.tick(601.0)
    assert not alerts.report(finding(step=50)), "it was over long ago"
    assert alerts.report(finding(step=60, last_step=99))


def test_a_stop_is_asked_for_only_where_that_is_set_and_once_a_process(tmp_path: Path) -> None:
    asked: list[tuple[str, str, int]] = []

    def ask(request: str, reason: str, step: int, more: Any) -> None:
        if request == "stop":
            asked.append((request, reason, step))

    calm = Alerts(FakeRun(tmp_path), ask=ask)
    calm.report(finding())
    calm.send("x", level="critical")
    assert not asked
    alerts = Alerts(FakeRun(tmp_path, stop_on="critical"), ask=ask)
    alerts.report(finding(severity="warning"))
    assert not asked
    alerts.report(finding("non_finite_loss", step=7))
    alerts.send("later", level="critical")
    assert asked == [("stop", "non_finite_loss at 7", 7)]
    alerts.take_record(Record("segment", 0, 0, {"segment": 2, "kind": "resume"}))
    alerts.send("again", level="critical", cause="another")
    assert len(asked) == 2, "the next process of the run may be asked too"


def test_a_checkpoint_may_be_asked_for_alone() -> None:
    request = StopRequest()
    request.ask_checkpoint("the loss is at its best", 7)
    assert not request and request.checkpoint_requested and request.reason == "the loss is at its best"
    request.ask("the end", 8)
    assert request and request.reason == "the end"


def test_without_ranks_a_wish_is_its_own_answer() -> None:
    assert stop_agreed(True) is True and stop_agreed(StopRequest()) is False


@pytest.mark.slow
def test_ranks_that_ask_at_the_same_step_agree(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = textwrap.dedent("""
        import sys, torch.distributed as distributed
        from barograph.training.stopping import stop_agreed
        rank = int(sys.argv[1])
        distributed.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
        print([stop_agreed(rank == 1 and step == 2) for step in range(4)])
        distributed.destroy_process_group()
    """)
    programs = [
        forked_python.start(sys.executable, "-c", script, str(rank), tmp_path / "meet", stdout=subprocess.PIPE)
        for rank in (0, 1)
    ]
    for program in programs:
        assert program.communicate(timeout=120)[0].decode().strip() == "[False, False, True, False]"


# -- early stopping -------------------------------------------------------------------------------------------


def first_stop(stopper: EarlyStopping, values: list[float], every: int = 1) -> int | None:
    return next((at for at, value in enumerate(values) if stopper.update(at * every, value)), None)


def test_it_stops_after_so_many_evaluations_without_an_improvement() -> None:
    stopper = EarlyStopping(patience=3, min_delta=0.1)
    assert first_stop(stopper, [3, 2, 1.95, 1.93, 1.5, 1.45, 1.46, 1.44, 1.0]) == 7
    assert stopper.best_step == 4 and stopper.best == 1.5
    assert "3 evaluations" in stopper.reason and "1.5 at step 4" in stopper.reason


def test_small_improvements_that_add_up_are_measured_against_the_best_that_reset_the_patience() -> None:
    assert first_stop(EarlyStopping(patience=3, min_delta=0.1), [2 - 0.06 * at for at in range(20)]) is None


@pytest.mark.parametrize(
    ("options", "values", "at", "word"),
    [
        ({"mode": "max", "metric": "accuracy", "patience": 2}, [1, 2, 1, 1], 3, "accuracy has not improved"),
        ({"divergence": 5.0}, [1, 4, 6], 2, "worse than 5"),
        ({"divergence": 0.1, "mode": "max"}, [1, 0.05], 1, "worse than 0.1"),
        ({"target": 1.0}, [3, 1.0], 1, "target"),
        ({}, [1, math.nan], 1, "not finite"),
        ({"finite": False, "patience": 2}, [1, math.nan, 0.5, math.inf, math.nan], 4, "not improved"),
        ({"patience": 2, "least": 6}, [1] * 8, 5, "not improved"),
        ({"patience": None, "patience_steps": 3}, [2, 1, 1, 1, 1], 4, "3 steps"),
    ],
)
def test_each_criterion_stops(options: dict[str, Any], values: list[float], at: int, word: str) -> None:
    stopper = EarlyStopping(**options)
    assert first_stop(stopper, values) == at
    assert word in stopper.reason and stopper.update(99, 0.0)


def test_a_rewind_forgets_what_was_seen_after_it() -> None:
    stopper = EarlyStopping(patience=2)
    for step, value in ((0, 3.0), (10, 2.0), (20, 1.0), (30, 5.0)):
        assert not stopper.update(step, value)
    assert not stopper.update(15, 1.5)
    assert stopper.best == 1.5 and stopper.best_step == 15


@given(some.lists(some.floats(-10, 10), max_size=40), some.integers(1, 5), some.integers(0, 40))
def test_its_state_in_a_checkpoint_goes_on_as_if_nothing_had_happened(
    values: list[float], patience: int, cut: int
) -> None:
    import json

    whole, before, after = (EarlyStopping(patience=patience) for _ in range(3))
    told = [whole.update(step, value) for step, value in enumerate(values)]
    for step, value in enumerate(values[:cut]):
        before.update(step, value)
    after.restore(json.loads(json.dumps(before.state())))
    again = [after.update(step, value) for step, value in enumerate(values) if step >= cut]
    if True not in told[:cut]:
        assert again == told[cut:]


@pytest.mark.parametrize("options", [{"mode": "up"}, {"patience": 0}, {"min_delta": -1.0}, {"target": math.nan}])
def test_criteria_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        EarlyStopping(**options)


def test_early_stopping_that_a_loop_asked_for_asks_for_a_stop(tmp_path: Path) -> None:
    run, asked = FakeRun(tmp_path), []
    alerts = Alerts(run, ask=lambda request, reason, step, more: asked.append((request, reason, step)))
    give(alerts, Record("stop-rule", 0, 0, {"patience": 2, "metric": "val", "mode": "min"}))
    for step, value in enumerate([3.0, 2.0, 2.5, 2.6, 1.0]):
        give(alerts, Record("metrics", 0, step, {"val": value, "other": 1.0}))
    (_, reason, step), *_ = [one for one in asked if one[0] == "stop"]
    assert step == 3 and "val has not improved" in reason
    ((_, _, fields),) = run.records
    assert fields["title"] == "Early stopping" and fields["metric"] == "val" and fields["value"] == 2.6


def test_what_a_loop_asks_to_be_told_and_watched_is_done(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    alerts = Alerts(run)
    give(alerts, Record("alert-request", 0, 7, {"title": "look", "text": "here", "level": "critical"}))
    give(alerts, Record("alert-rule", 0, 8, {"metric": "loss", "above": 10, "severity": "info"}))
    give(alerts, Record("alert-rule", 0, 8, {"metric": "loss", "abov": 10}))
    give(alerts, Record("metrics", 0, 9, {"loss": 11.0}))
    assert [(step, fields["title"], fields["level"]) for _, step, fields in run.records] == [
        (7, "look", "critical"), (9, "loss above 10", "info"),
    ]  # fmt: skip
    assert "nearest one is 'above'" in run.warnings[0]


# -- skip advice ----------------------------------------------------------------------------------------------


def test_a_spike_is_advised_against_and_does_not_join_the_history() -> None:
    noise, advisor = random.Random(1), SkipAdvisor()
    for step in range(500):
        loss, norm = 3 - step / 500 + noise.gauss(0, 0.03), math.exp(noise.gauss(0, 0.4))
        assert not advisor.advise(loss, norm), step
    for _ in range(20):
        for _ in range(8):
            advice = advisor.advise(4.0, 1.0)
            assert advice and "the loss 4 is" in advice.why and advice.loss_sigmas > 6
        assert not advisor.advise(2.0, 1.0)
    assert advisor.advise(2.0, 60.0).why.startswith("the gradient norm 60 is")


def test_healthy_noise_is_hardly_ever_advised_against() -> None:
    noise, advisor = random.Random(2), SkipAdvisor()
    for step in range(20_000):
        loss = 2 + 8 * math.exp(-step / 300) + noise.gauss(0, 0.05) * (1 + (noise.random() < 0.01))
        advisor.advise(loss, math.exp(noise.gauss(0, 0.5)))
    assert advisor.advised <= 4  # 1 in 5,000


def test_what_is_not_finite_is_advised_against_from_the_first_step_on_and_never_learned() -> None:
    advisor = SkipAdvisor()
    assert advisor.advise(math.nan, 1.0).why == "the loss is not finite"
    assert advisor.advise(1.0, math.inf).why == "the gradient norm is not finite"
    assert all(advisor.advise(math.nan) for _ in range(100))
    assert len(advisor._losses) == 0


def test_nothing_finite_is_advised_against_before_enough_is_known() -> None:
    advisor = SkipAdvisor(least=64)
    assert not any(advisor.advise(2.0 if at % 10 else 1e6, 1.0) for at in range(64))


def test_a_new_level_is_accepted_after_some_advices_in_a_row() -> None:
    noise, advisor = random.Random(3), SkipAdvisor(most_in_row=8)
    for _ in range(200):
        advisor.advise(2 + noise.gauss(0, 0.01))
    told = [bool(advisor.advise(5 + noise.gauss(0, 0.01))) for _ in range(200)]
    assert told == [True] * 8 + [False] * 192


@given(some.lists(some.tuples(some.floats(), some.floats()), max_size=200))
def test_any_values_get_an_answer_and_only_sound_ones_are_kept(rows: list[tuple[float, float]]) -> None:
    advisor = SkipAdvisor(window=8, least=4, most_in_row=2)
    for loss, norm in rows:
        advice = advisor.advise(loss, norm)
        assert bool(advice) == bool(advice.why)
        assert bool(advice) or (math.isfinite(loss) and math.isfinite(norm))
        assert all(map(math.isfinite, advisor._losses._sorted))
        assert advisor._losses._sorted == sorted(advisor._losses._order)
    assert not advisor.advise("words", object())


def test_an_advice_takes_microseconds() -> None:
    noise, advisor = random.Random(4), SkipAdvisor()
    rows = [(2 + noise.gauss(0, 0.1), math.exp(noise.gauss(0, 0.3))) for _ in range(2000)]
    times = []
    for loss, norm in rows:
        began = time.perf_counter()
        advisor.advise(loss, norm)
        times.append(time.perf_counter() - began)
    assert sorted(times)[1000] < 50e-6


# -- debug mode -----------------------------------------------------------------------------------------------


def test_after_a_finding_the_model_is_looked_at_closely_for_some_steps_and_then_as_before() -> None:
    said: list[str] = []
    schedule = WatchSchedule({"norms": 1, "gradients": 10, "histograms": 500, "spectral": 0}, budget=0.01)
    before = dict(schedule.intervals)
    mode = DebugMode(steps=20, say=said.append)
    mode.watch(WatchIntervals(schedule))
    mode.told(finding(severity="warning"), 100)
    assert not mode.on
    mode.told(finding(step=99), 100)
    assert mode.on and schedule.due(101) == {"norms", "gradients"} and schedule.due(110) >= {"histograms"}
    assert schedule.budget is None and "spectral" not in schedule.due(110)
    assert mode.at(120) and not mode.at(121)
    assert schedule.intervals == before and schedule.budget == 0.01
    mode.told(finding(step=99), 130)
    assert not mode.on, "the same finding starts it once"
    assert said == [
        "debug mode is on for 20 steps from step 100: loss_spike",
        "debug mode is off; the model is watched at the usual intervals again",
    ]


def test_findings_make_it_last_longer_but_neither_for_ever_nor_again_and_again() -> None:
    mode = DebugMode(steps=10, longest=25, most=2)
    on = 0
    for step in range(1000):
        mode.told(finding(step=step), step)
        on += mode.at(step)
    assert mode.started == 2 and on <= 2 * 26
    assert not mode.on


def test_a_rewind_to_before_it_ends_it_and_a_hook_that_comes_late_is_told() -> None:
    schedule = WatchSchedule({"gradients": 10})
    mode = DebugMode(steps=10)
    mode.told(finding(), 50)
    mode.watch(WatchIntervals(schedule))
    assert schedule.intervals["gradients"] == 1
    assert mode.at(50) and not mode.at(20) and schedule.intervals["gradients"] == 10


def test_records_that_come_after_the_run_has_gone_on_do_not_end_it() -> None:
    mode = DebugMode(steps=5)
    mode.told(finding(step=40), 60)  # the run is at 60, its records are read up to 40
    assert all(mode.at(step) for step in range(41, 66)) and not mode.at(66)


def test_ranks_whose_looks_are_collectives_are_left_alone() -> None:
    experts = WatchSchedule({"gradients": 10, "moe": 10})
    WatchIntervals(experts, world_size=2).narrow({"gradients": 1, "moe": 1})
    assert experts.intervals["gradients"] == 1 and experts.intervals["moe"] == 10
    spread = WatchSchedule({"gradients": 10})
    WatchIntervals(spread, world_size=2, sharded=True).narrow({"gradients": 1})
    assert spread.intervals["gradients"] == 10


def test_a_real_watch_looks_closely_while_it_is_on(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    run = barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = run.watch(model, optimizer, gradients=100)
    mode = DebugMode(steps=5)
    mode.watch(WatchIntervals.of(watch, run.world_size))
    for step in range(40):
        mode.at(step)
        if step == 20:
            mode.told(finding(step=20), 20)
        optimizer.zero_grad()
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()
        run.log({"loss": 1.0}, step=step)
    run.finish()
    (stored,) = barograph.runs(dir=tmp_path)
    steps = stored.series("gradients/0.weight/norm").step
    assert {21, 22, 23, 24, 25} <= set(steps.tolist()) and len(steps) <= 9
