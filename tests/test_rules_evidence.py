"""What the doctor says of a log follows from what is in it: severities, causes and remedies, two cases a class."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.doctor import diagnose


def judged(folder: Path, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Findings in rows of numbers, as a table of another tool."""
    path = folder / "run.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found: list[dict[str, Any]] = diagnose(barograph.read(path)[0])["findings"]
    return found


def of(found: list[dict[str, Any]], rule: str) -> list[dict[str, Any]]:
    return [one for one in found if one["rule"] == rule]


def loud(found: list[dict[str, Any]]) -> list[str]:
    return [one["rule"] for one in found if one["severity"] != "info"]


def noise(seed: int = 3) -> Callable[[float], float]:
    chance = random.Random(seed)
    return lambda spread: chance.gauss(0, spread)


@pytest.mark.parametrize("end", ["nan", "inf"])
def test_a_restart_heals_no_nan(tmp_path: Path, end: str) -> None:
    first = "".join(f"{step},{end if step >= 900 else 6 * math.exp(-step / 700)}\n" for step in range(20, 1601, 20))
    second = "".join(f"{step},{6 * math.exp(-step / 700)}\n" for step in range(20, 3001, 20))
    path = tmp_path / "run.csv"
    path.write_text("step,loss\n" + first + second)
    (one,) = of(diagnose(barograph.read(path)[0])["findings"], "non_finite_loss")
    assert (one["severity"], one["step"], one["segment"]) == ("critical", 900, 1)


@pytest.mark.parametrize("last", [1600, 1000])
def test_nan_of_one_launch_hides_none_of_the_next(tmp_path: Path, last: int) -> None:
    first = "".join(f"{step},{'nan' if step >= 900 else 6 * math.exp(-step / 700)}\n" for step in range(20, 1601, 20))
    second = "".join(f"{step},{'nan' if step >= 700 else 6 * math.exp(-step / 700)}\n" for step in range(20, last, 20))
    path = tmp_path / "run.csv"
    path.write_text("step,loss\n" + first + second)
    found = of(diagnose(barograph.read(path)[0])["findings"], "non_finite_loss")
    assert {(one["severity"], one["step"], one["segment"]) for one in found} == {
        ("critical", 900, 1),
        ("critical", 700, 2),
    }


@pytest.mark.parametrize("name", ["train/CrossEntropyLoss", "CELoss", "nll", "train_xent", "trainLoss", "loss_per_tok"])
def test_a_loss_is_known_by_any_usual_name(tmp_path: Path, name: str) -> None:
    rows = ({"step": at, name: math.nan if at >= 150 else 2 + 8 * math.exp(-at / 60)} for at in range(1, 251))
    path = tmp_path / "run.csv"
    path.write_text(f"step,{name}\n" + "".join(f"{row['step']},{row[name]}\n" for row in rows))
    assert "non_finite_loss" in loud(diagnose(barograph.read(path)[0])["findings"])


@pytest.mark.parametrize("name", ["val/CrossEntropyLoss", "eval_xent", "valLoss"])
def test_a_loss_of_evaluation_is_none_of_training(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run.csv"
    path.write_text(f"step,{name}\n" + "".join(f"{at},{2 - at / 100}\n" for at in range(1, 51)))
    assert diagnose(barograph.read(path)[0])["judged_by"] in (name, "eval/loss")


@pytest.mark.parametrize("name", ["grad_clip_ratio", "clip_fraction_of_grad_norm"])
def test_clipped_gradients_are_no_policy(tmp_path: Path, name: str) -> None:
    found = judged(tmp_path, ({"step": at, "loss": 4 - at / 100, "reward": 1.0, name: 0.47} for at in range(1, 200)))
    assert not of(found, "policy_clipping")


@pytest.mark.parametrize("name", ["lrm", "lr_multiplier"])
def test_a_multiplier_is_no_learning_rate(tmp_path: Path, name: str) -> None:
    def loss(at: int) -> float:
        return 2.5 + 7 * math.exp(-at / 60) if at < 300 else 2.5 * math.exp((at - 300) / 150)

    found = judged(tmp_path, ({"step": at, "loss": loss(at), name: 1.0} for at in range(600)))
    assert "divergence" in [one["rule"] for one in found]
    assert not [remedy for one in found for remedy in one["remedies"] if "learning rate of" in remedy]


@pytest.mark.parametrize("name", ["lm loss", "train/loss"])
def test_numbers_by_step_in_a_document_are_a_series(tmp_path: Path, name: str) -> None:
    values = {str(at): 3 + 7 * math.exp(-at / 20) for at in range(60, 0, -1)}
    for number, shape in enumerate([{name: {"start_step": 1, "values": values}}, {name: values}]):
        path = tmp_path / f"values-{number}.json"
        path.write_text(json.dumps(shape))
        series = barograph.read(path)[0].series("train/loss")
        assert list(series.step) == list(range(1, 61)) and series.value[0] == values["1"]


@pytest.mark.parametrize("how", ["late", "leap"])
def test_a_rise_that_the_validation_does_not_share_warns_nobody(tmp_path: Path, how: str) -> None:
    draw = noise()

    def row(at: int) -> dict[str, Any]:
        rise = 3 * min(1, max(0, at - 60) / 20) if how == "late" else 4000.0 * (at > 60)
        loss = (2 + 3 * math.exp(-at / 12) + rise) * math.exp(draw(0.01))
        evaluation = {"val_loss": 2.2 + 2 * math.exp(-at / 25)} if at % 20 == 0 else {}
        return {"step": 10 * at, "loss": loss} | evaluation

    found = judged(tmp_path, map(row, range(1, 161)))
    assert not {"divergence", "loss_level"} & set(loud(found))


@pytest.mark.parametrize("best", [3, 5])
def test_overfitting_names_the_best_evaluation(tmp_path: Path, best: int) -> None:
    evaluations = [4.0 - 0.3 * at for at in range(best)] + [4.0 - 0.3 * best + 0.5 * at for at in range(9)]
    rows = [
        {"step": at, "train/loss": 3.5 * 0.9985**at}
        | ({"eval/loss": evaluations[at // 100 - 1]} if at % 100 == 0 else {})
        for at in range(10, 100 * len(evaluations) + 1, 10)
    ]
    assert of(judged(tmp_path, rows), "overfitting")[0]["step"] == 100 * (best + 1)


@pytest.mark.parametrize("above", [6.4, 4.5])
def test_nothing_is_learnt_by_heart_whose_training_loss_is_far_above(tmp_path: Path, above: float) -> None:
    draw = noise()
    rows = [
        {"step": at, "train/loss": above + 0.9 * math.exp(-at / 400) + draw(0.02)}
        | ({"eval/loss": 2.9 + 0.001 * max(0, at - 200)} if at % 100 == 0 else {})
        for at in range(10, 1201, 10)
    ]
    found = judged(tmp_path, rows)
    assert of(found, "overfitting") and "overfitting" not in loud(found)
    assert not [cause for one in found for cause in one["causes"] if "by heart" in cause]


@pytest.mark.parametrize("to", [15.0, 2.0])
def test_an_evaluation_that_gets_better_is_no_warning(tmp_path: Path, to: float) -> None:
    rows = [
        {"step": at, "loss": 2 + 3 * math.exp(-at / 90)}
        | ({"val_loss": 50.0 if at < 400 else to} if at % 40 == 0 else {})
        for at in range(1, 801)
    ]
    assert not loud(judged(tmp_path, rows))


def test_a_second_copy_of_a_run_begins_as_steeply_as_the_first(tmp_path: Path) -> None:
    draw = noise()
    rows = [
        {"step": at, "loss": (1.5 + 9 * math.exp(-at / tau)) * math.exp(draw(0.005))}
        for tau in (150, 60)
        for at in range(0, 3000, 10)
    ]
    assert not of(judged(tmp_path, rows), "loss_jump_down")


def test_a_device_is_blamed_by_what_it_says(tmp_path: Path) -> None:
    draw = noise()
    slow = [
        {
            "step": at,
            "loss": 2 + 3 * math.exp(-at / 90),
            "tokens_per_second": (5000 if at < 140 else 1000) * math.exp(draw(0.02)),
        }
        for at in range(1, 301)
    ]
    assert not [cause for cause in of(judged(tmp_path, slow), "throughput_drop")[0]["causes"] if "throttled" in cause]
    seen = [row | {"gpu/0/temperature": 66.0} for row in slow]
    assert not [cause for cause in of(judged(tmp_path, seen), "throughput_drop")[0]["causes"] if "throttled" in cause]
    lower = [row | {"gpu/0/clock": 1980.0 if at < 139 else 1200.0} for at, row in enumerate(seen)]
    assert of(judged(tmp_path, lower), "throughput_drop")[0]["causes"][0].startswith("device throttled")
    hot = [row | {"gpu/0/temperature": 86.0, "gpu/0/clock": 1980.0} for row in slow[:100]]
    assert "device_throttled" not in loud(judged(tmp_path, hot))
    limited = [row | {"gpu/0/temp_slowdown": 84.0} for row in hot]
    assert "device_throttled" in loud(judged(tmp_path, limited))


@pytest.mark.parametrize(
    ("name", "value"), [("mfu", 131.0), ("bf16_mfu", 131.0), ("mfu_percent", 131.0), ("train/mfu", 1.31)]
)
def test_an_mfu_is_read_in_its_unit_live_and_imported(tmp_path: Path, name: str, value: float) -> None:
    run = barograph.init(project="p", dir=tmp_path, console="none", machine=False, doctor=False)
    for at in range(100):
        run.log({"train/loss": 3.0 - at / 100, name: value}, step=at)
    run.finish()
    recorded = diagnose(barograph.read(run.dir)[0])["findings"]
    imported = judged(tmp_path, ({"step": at, "loss": 3.0 - at / 100, name: value} for at in range(100)))
    for found in (recorded, imported):
        assert "131%" in of(found, "impossible_mfu")[0]["message"]


def test_a_small_mfu_in_percent_is_possible(tmp_path: Path) -> None:
    for name, value in (("mfu_percent", 1.6), ("bf16_mfu", 45.0), ("mfu", 60.0)):
        assert not of(judged(tmp_path, ({"step": at, "loss": 3.0, name: value} for at in range(100))), "impossible_mfu")


@pytest.mark.parametrize("spacing", [1, 100])
def test_a_rate_that_never_decays_is_known_by_its_steps(tmp_path: Path, spacing: int) -> None:
    for rows in (60, 240):
        found = judged(tmp_path, ({"step": spacing * at, "loss": 3 - at / rows, "lr": 1e-3} for at in range(rows)))
        assert bool(of(found, "learning_rate_constant")) is (spacing * rows >= 100)


def test_a_loss_column_that_is_never_filled_in_is_not_logged(tmp_path: Path) -> None:
    draw = noise()
    for norm, cause in ((0.5, "loss not logged"), (0.0, "loss masked out")):
        rows = (
            {"step": at, "loss": 0.0, "grad_norm": norm and norm + draw(0.01), "eval_loss": 2.0} for at in range(200)
        )
        assert of(judged(tmp_path, rows), "zero_loss")[0]["causes"][0].startswith(cause)


@pytest.mark.parametrize("begin", [0, 5000])
def test_only_a_beginning_is_a_guess(tmp_path: Path, begin: int) -> None:
    draw = noise()
    rows = ({"step": at, "loss": math.log(90) + draw(0.004), "lr": 2e-6} for at in range(begin, begin + 400))
    (one,) = of(judged(tmp_path, rows), "not_learning")
    assert "guess" not in one["message"], "nothing says how many classes there are"
    assert (one["severity"] != "info") is (begin == 0)


@pytest.mark.parametrize("rate", [3e-3, 1e-5])
def test_a_rate_is_not_raised_that_is_said_to_be_too_high(tmp_path: Path, rate: float) -> None:
    draw = noise()
    rows = ({"step": at, "loss": 5.53 - 0.0014 * at + draw(0.02), "lr": rate} for at in range(1, 201))
    for one in of(judged(tmp_path, rows), "not_learning"):
        assert not ("too high" in str(one["causes"]) and "Raise" in str(one["remedies"]))


@pytest.mark.parametrize("times", [150, 60])
def test_one_row_of_a_kl_far_above_its_median_is_told(tmp_path: Path, times: int) -> None:
    chance = random.Random(3)
    rows = [
        {"step": at, "loss": chance.gauss(0, 0.1), "reward": 0.5 + chance.random() / 5,
         "kl": (0.1 + chance.random() / 20) * (times if at in (40, 90) else 1)}
        for at in range(1, 101)
    ]  # fmt: skip
    assert "kl_blow_up" in loud(judged(tmp_path, rows))


def test_shuffled_labels_send_to_the_data_first(tmp_path: Path) -> None:
    draw = noise()

    def row(at: int) -> dict[str, Any]:
        worse = 0.25 * min(1, max(0, at - 1500) / 400)
        loss, evaluation = (2.6 + 3 * math.exp(-at / 300) + worse * times + draw(0.01) for times in (1, 1.2))
        beside = {"eval_loss": evaluation} if at % 100 == 0 else {}
        return {"step": at, "loss": loss, "lr": 0.001, "grad_norm": 0.5 + abs(draw(0.02))} | beside

    (one,) = of(judged(tmp_path, map(row, range(10, 3001, 10))), "validation_divergence")
    assert one["causes"][0].startswith("labels") and "labels" in one["remedies"][0]


@pytest.mark.parametrize("config", [{"dtype": "bfloat16"}, {"trainer": {"bf16": True}}, {"precision": "fp32"}])
def test_what_the_configuration_rules_out_is_no_cause(tmp_path: Path, config: dict[str, Any]) -> None:
    for given, possible in ((config, False), ({"dtype": "float16"}, True), ({}, True)):
        name = f"{possible}-{len(given)}"
        run = barograph.init(
            project="p", id=name, dir=tmp_path, console="none", machine=False, doctor=False, config=given
        )
        for at in range(200):
            bad = math.nan if at >= 150 else 0.0
            run.log({"train/loss": 3 - at / 400 + bad, "train/norm": 1 + bad, "train/lr": 1e-3}, step=at)
            if at % 20 == 0:
                run.log({"eval/loss": 3 + bad}, step=at)
        run.finish()
        head = diagnose(barograph.read(run.dir)[0])["findings"][0]
        assert any("fp16" in cause for cause in head["causes"]) is possible
        assert not [remedy for remedy in head["remedies"] if "evaluation batches" in remedy]


def test_a_run_that_ended_in_nan_is_headed_by_it(tmp_path: Path) -> None:
    def loss(at: int) -> float:
        return math.nan if at >= 560 else 2 + 6 * math.exp(-at / 100) + (at > 500) * 0.15 * (at - 500)

    path = tmp_path / "run.csv"
    path.write_text("step,loss\n" + "".join(f"{at},{loss(at)}\n" for at in range(600)))
    head = diagnose(barograph.read(path)[0])["findings"][0]
    assert head["severity"] == "critical" and "NaN since step 560" in head["message"].partition(".")[0] + "."


@pytest.mark.parametrize("scale", [3e-7, 5e-5])
def test_a_loss_that_has_all_but_vanished_alarms_nobody(tmp_path: Path, scale: float) -> None:
    chance = random.Random(2)
    rows = [
        {"step": at, "loss": 2 * math.exp(-at / 20) + scale * (0.5 + chance.random()) * (1 + (at > 300)),
         "val_loss": 2 * math.exp(-at / 20) + scale * (1 + at / 200),
         "grad_norm": math.exp(-at / 20) + scale * chance.random() * (60 if at == 450 else 1)}
        for at in range(600)
    ]  # fmt: skip
    found = judged(tmp_path, rows)
    assert not loud(found)
    assert not [remedy for one in found for remedy in one["remedies"] if "lip gradients at" in remedy]


@pytest.mark.parametrize("held_out", [1.0, 0.0])
def test_a_policy_that_has_collapsed_is_found_in_a_short_log(tmp_path: Path, held_out: float) -> None:
    chance = random.Random(2)

    def row(at: int, collapsed: bool) -> dict[str, Any]:
        return {
            "step": 25 * at,
            "mean_reward": chance.uniform(-0.8, 0.8),
            "loss": 0.0 if collapsed else chance.uniform(-0.4, 0.4),
            "held_out_accuracy": held_out if collapsed else 0.4 + 0.1 * chance.random(),
        }

    assert "zero_loss" in loud(judged(tmp_path, [row(at, at >= 11) for at in range(1, 25)]))
    assert not loud(judged(tmp_path, [row(at, at % 6 == 5) for at in range(1, 25)]))


@pytest.mark.parametrize(
    ("to", "at_step", "known"), [(3e-7, 100, True), (1e-5, 140, True), (3e-4, 100, False), (3e-7, 280, False)]
)
def test_a_rate_that_collapses_is_found_and_a_schedule_is_not(
    tmp_path: Path, to: float, at_step: int, known: bool
) -> None:
    rows = [
        {"step": at, "loss": 2.5 + 3 * math.exp(-min(at, at_step) / 60), "lr": 3e-3 if at < at_step else to}
        for at in range(1, 301)
    ]
    assert [one["step"] for one in of(judged(tmp_path, rows), "learning_rate_collapse")] == [at_step] * known
