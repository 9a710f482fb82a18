"""The worst fact first, one incident once, info findings of a rule on one line, advice that fits the run."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy
import pytest

import barograph
from barograph.doctor import diagnose
from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.facts import facts_of
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.remedies import fitting
from barograph.doctor.kernel.story import in_order, tell
from barograph.doctor.report import page
from barograph.query.findings import grouped, headline


def finding(rule: str, step: int, severity: str = "warning", **about: Any) -> Finding:
    about = {"family": "loss", "kind": "spike", "message": f"{rule} at step {step}"} | about
    return Finding(rule=rule, step=step, severity=severity, **about)


def diagnosed(folder: Path, text: str, name: str = "run.csv") -> dict[str, Any]:
    path = folder / name
    path.write_text(text)
    (run,) = barograph.read(path)
    return diagnose(run)


def table(steps: int, **columns: Any) -> str:
    rows = [",".join(str(column(step)) for column in columns.values()) for step in range(1, steps + 1)]
    return ",".join(["step", *columns]) + "\n" + "".join(f"{step},{row}\n" for step, row in enumerate(rows, 1))


@pytest.mark.parametrize("before", [1, 8, 40])
def test_a_run_whose_loss_is_nan_says_so_first_with_the_step_whatever_went_before(tmp_path: Path, before: int) -> None:
    chance = random.Random(1)

    def loss(step: int) -> float:
        return math.nan if step >= 200 else 2 + 3 * math.exp(-step / 60) + chance.gauss(0, 0.02)

    def norm(step: int) -> float:
        return math.nan if step >= 200 else (400.0 if step >= 200 - before else 1.0) + chance.random() / 10

    result = diagnosed(tmp_path, table(300, loss=loss, grad_norm=norm, lr=lambda step: 1e-3))
    assert result["headline"] == "The loss is NaN since step 200"
    first = page(result).splitlines()[0]
    assert "critical" in first and first.index("NaN") > first.index("critical")
    shown = page(result)
    assert shown.count("the step before had") == 1  # a consequence or a cause, not a second trouble
    assert sum(one["severity"] == "critical" for one in result["findings"]) == 1


def test_an_incident_with_a_nan_loss_stands_before_a_worse_one_that_began_earlier() -> None:
    nan = finding("non_finite_loss", 900, "critical", kind="nonfinite", message="The loss is NaN since step 900; 2.")
    told = tell([finding("gradient_spike", 890, "critical"), nan, finding("crashed", 100, "critical", kind="crash")])
    assert [item.rule for item in in_order(told)] == ["gradient_spike", "crashed"]
    assert headline([{"severity": item.severity, "message": item.message, "step": item.step} for item in told]) == (
        "The loss is NaN since step 900"
    )
    assert [entry["rule"] for entry in told[0].evidence["story"]] == []


def test_a_headline_has_the_step_where_the_sentence_does_not_say_it() -> None:
    items = [{"severity": "warning", "message": "The loss does not fall. At all.", "step": 1200}]
    assert headline(items) == "The loss does not fall, step 1,200"
    items[0]["message"] = "The loss rises since step 1,200; it was 2."
    assert headline(items) == "The loss rises since step 1,200"
    assert headline([]) == "No problems found" and headline([], None) == "No verdict: no loss was found"


@pytest.mark.parametrize("count", [1, 2, 20])
def test_info_findings_of_a_rule_are_one_line_with_a_count_and_the_data_keep_all(count: int) -> None:
    infos = [finding("unchanged_parameters", at, "info", key=f"layer{at}", confidence=0.3) for at in range(count)]
    items = [{"rule": item.rule, "severity": item.severity, "message": item.message, "step": item.step,
              "last_step": item.last_step, "evidence": {}, "causes": [], "remedies": [], "confidence": 0.3}
             for item in [finding("divergence", 5), *infos, finding("plateau", 7, "info")]]  # fmt: skip
    shown = grouped(items)
    assert [item["rule"] for item in shown] == ["divergence", "unchanged_parameters", "plateau"]
    assert (shown[1]["count"], shown[1]["step"], shown[1]["last_step"]) == (count, 0, count - 1)
    diagnosis = {"run": "r", "findings": items, "checked": [], "abstained": []}
    text = page(diagnosis)
    assert text.count("unchanged_parameters,") == (count > 1)
    assert page(diagnosis, everything=True).count("unchanged_parameters at") == count


@pytest.mark.parametrize(
    ("limit", "remedy", "stays"),
    [
        (1.0, "Clip gradients.", False),
        (1.0, "Clip the gradient norm at 2.5 or below.", False),
        (1.0, "Clip the gradient norm at 0.25 or below.", True),
        (0.0, "Clip gradients.", True),
        (None, "Clip gradients at a norm of 1.0.", True),
    ],
)
def test_who_clips_already_does_not_hear_of_it(limit: float | None, remedy: str, stays: bool) -> None:
    config = {} if limit is None else {"optimizer": {"max_grad_norm": limit}}
    item = finding("loss_spike", 10, remedies=["Look at the batch.", remedy])
    assert (remedy in fitting(item, RunHistory(facts_of(config))).remedies) is stays


@pytest.mark.parametrize("rate", [0.0, 1e-4])
def test_a_learning_rate_of_zero_is_not_lowered_and_not_too_high(rate: float) -> None:
    history = RunHistory({})
    steps = numpy.arange(40)
    history.add("lr", steps, numpy.where(steps < 20, 1e-3, rate), steps, numpy.ones(40, numpy.int32))
    remedies = ["Lower the learning rate, from 0.1 to 0.03.", "Try a learning rate of 1.", "Look."]
    item = finding("divergence", 30, segment=1, causes=["learning rate too high", "bad batch"], remedies=remedies)
    kept = fitting(item, history)
    assert ("learning rate too high" in kept.causes) is (rate > 0)
    assert kept.remedies == (item.remedies if rate else ["Look."])


def test_one_finding_does_not_advise_to_raise_and_to_lower_the_rate() -> None:
    item = finding("x", 1, remedies=["Raise the learning rate.", "Lower the learning rate.", "Look."])
    assert fitting(item, RunHistory({})).remedies == ["Raise the learning rate.", "Look."]


@pytest.mark.parametrize(("clock", "throttled"), [(1400, True), (1980, False), (None, False)])
def test_a_slow_device_is_blamed_only_where_its_clock_is_lower(
    tmp_path: Path, clock: int | None, throttled: bool
) -> None:
    chance = random.Random(2)
    columns: dict[str, Any] = {
        "loss": lambda step: f"{2 + 3 * math.exp(-step / 90):.4f}",
        "tokens_per_second": lambda step: (5000 if step < 140 else 1000) * math.exp(chance.gauss(0, 0.02)),
    }
    if clock is not None:
        columns["gpu/0/clock"] = lambda step: 1980 if step < 140 else clock
    (drop,) = [
        one for one in diagnosed(tmp_path, table(300, **columns))["findings"] if one["rule"] == "throughput_drop"
    ]
    assert any(cause.startswith("device throttled") for cause in drop["causes"]) is throttled
    assert any("power limit" in remedy for remedy in drop["remedies"]) is throttled
    assert not any(cause.startswith("rank slow") for cause in drop["causes"])


def test_what_a_first_evaluation_did_not_have_is_overfitting_and_no_leak(tmp_path: Path) -> None:
    def train(step: int) -> float:
        return 2.6 if step == 1 else 0.01 + 0.1 / step

    def evaluation(step: int) -> float:
        return 2.6 if step == 1 else 6.5 + 0.1 * math.sin(step)

    rows = table(40, loss=train, eval_loss=evaluation)
    (over,) = [one for one in diagnosed(tmp_path, rows)["findings"] if one["rule"] == "overfitting"]
    assert over["causes"][0].startswith("overfitting")
