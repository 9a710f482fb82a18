"""The worst fact first, one incident once, info findings of a rule on one line, advice that fits the run."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy
import pytest

import barograph
from barograph.cli import main
from barograph.core.record import Record
from barograph.doctor import diagnose
from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.facts import facts_of
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.remedies import fitting
from barograph.doctor.kernel.story import in_order, tell
from barograph.doctor.report import page
from barograph.query.findings import grouped, headline
from barograph.training.console.console import Console
from barograph.views.assistant.answers import Answers


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


@pytest.mark.parametrize("every", [97, 61])
def test_spikes_that_come_again_and_again_are_one_incident(tmp_path: Path, every: int) -> None:
    chance = random.Random(5)

    def spike(step: int) -> bool:
        return step % every == 0

    columns: dict[str, Any] = {
        "loss": lambda step: 2 + 4 * math.exp(-step / 120) + chance.gauss(0, 0.03) + 3 * spike(step),
        "grad_norm": lambda step: (1 + abs(chance.gauss(0, 0.1))) * (10 if spike(step) else 1),
    }
    findings = diagnosed(tmp_path, table(700, **columns))["findings"]
    (incident,) = [one for one in findings if one["severity"] != "info"]
    assert f"every {every} steps" in incident["message"]
    assert not any(f"steps {step} to {step}" in remedy for step in range(700) for remedy in incident["remedies"])


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


def test_a_finding_that_was_sent_is_drawn_once_and_its_end_too(tmp_path: Path) -> None:
    console = Console(0, rank=0)
    fields = {"title": "Loss spike", "text": "The loss jumped.", "level": "warning", "cause": "doctor: loss_spike"}
    about = {"rule": "loss_spike", "severity": "warning", "message": "The loss jumped.", "causes": [], "remedies": []}
    records = [Record("finding", 1, 7, about), Record("alert", 1, 7, fields)]
    assert [text for record in records for text in console.lines(record)] == [
        "!! warning | step 7 | loss_spike: The loss jumped."
    ]
    assert console.lines(Record("alert", 1, 7, fields | {"cause": "loss above 10"}))
    assert console.lines(Record("alert", 1, 9, fields | {"recovered": True}))


@pytest.mark.parametrize(("name", "evaluation"), [("ppl", "val/ppl"), ("train/perplexity", "eval_ppl")])
def test_a_perplexity_is_judged_by_its_logarithm_live_and_imported(tmp_path: Path, name: str, evaluation: str) -> None:
    def value(step: int) -> float:
        return math.exp(2 + 3 * math.exp(-step / 60)) if step < 200 else math.inf

    run = barograph.init(dir=tmp_path, verbosity=-2, git=False, machine=False, sidecar=False)
    for step in range(1, 301):
        run.log({name: value(step)} | ({evaluation: value(step)} if step % 20 == 0 else {}), step=step)
    run.finish()
    live = diagnose(barograph.StoredRun(run.dir))
    imported = diagnosed(tmp_path, table(300, **{name: value}))
    assert live["judged_by"] == f"log('{name}')" and imported["judged_by"].endswith("log_perplexity")
    assert barograph.StoredRun(run.dir).series(live["judged_by"]).value[0] == pytest.approx(math.log(value(1)))
    for result in (live, imported):
        assert result["headline"].startswith("The loss is infinite since step 200")


def test_a_loss_beside_a_perplexity_is_the_loss() -> None:
    for names in (("ppl", "loss"), ("loss", "ppl"), ("train_nll", "train_ppl"), ("my_very_long_name_loss", "ppl")):
        history = RunHistory({})
        for name in names:
            history.add(name, numpy.arange(9), numpy.full(9, 20.0), numpy.arange(9), numpy.ones(9, numpy.int32))
        role = history.role("loss")
        assert role is not None and role.name == next(name for name in names if "ppl" not in name)


def test_the_logarithm_of_an_imported_perplexity_is_not_taken_twice() -> None:
    for names in (("ppl", "log_perplexity"), ("log_perplexity", "ppl")):
        history = RunHistory({})
        for name in names:
            value = numpy.full(9, 20.0 if name == "ppl" else math.log(20))
            history.add(name, numpy.arange(9), value, numpy.arange(9), numpy.ones(9, numpy.int32))
        role = history.role("loss")
        assert role is not None and (role.name, len(role)) == ("log_perplexity", 9)


@pytest.mark.parametrize("other", [150, 175])
def test_two_runs_that_spike_at_one_step_blame_the_data_before_the_learning_rate(
    tmp_path: Path, other: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, at in enumerate((150, other)):
        chance = random.Random(seed)

        def loss(step: int, at: int = at, chance: random.Random = chance) -> float:
            rise = 4 * math.exp(-(step - at) / 4) if step >= at else 0.0
            return 2 + 3 * math.exp(-step / 60) + chance.gauss(0, 0.02) + rise

        (tmp_path / f"run{seed}.csv").write_text(table(300, loss=loss, lr=lambda step: 1e-3))
    assert main(["doctor", str(tmp_path), "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["runs"]
    spikes = [one for result in results for one in result["findings"] if one["kind"] == "spike"]
    assert len(spikes) >= 2
    for one in spikes:
        assert ("has a spike at the same step 150" in one["causes"][0]) is (other == 150)


def test_a_run_without_a_verdict_is_called_well_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 3.0\nstep 2 loss 2.5\nstep 3 loss 2.2\n")
    runs = str(tmp_path / "runs")
    assert main(["import", str(log), "--dir", runs]) == 0
    (run,) = barograph.runs(dir=runs)
    capsys.readouterr()
    told = [json.dumps(Answers(Path(runs)).doctor(run.id)), json.dumps(diagnose(run))]
    for words in (["doctor"], ["doctor", "--json"], ["top", "--once", "--page", "findings"]):
        main([*words[:1], run.id, *words[1:], "--dir", runs])
        told.append(capsys.readouterr().out)
    assert main(["report", run.id, "--dir", runs, "--out", str(tmp_path / "report")]) == 0
    told += [(tmp_path / "report" / name).read_text() for name in ("report.html", "report.md", "findings.md")]
    for text in told:
        words = " ".join(text.lower().split())  # lines are as wide as the terminal
        assert "no verdict: 3 rows of train/loss are too few" in words
        assert "no problems" not in words
