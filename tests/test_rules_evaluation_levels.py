"""Evaluations that stay where they are, lie far off, or are those of an average or of other data."""

from __future__ import annotations

import numpy as np
import pytest
from rule_columns import findings
from rule_curves import found, warned

from barograph.doctor.rules.evaluation.averages import AverageBehind
from barograph.doctor.rules.evaluation.evaluation import EvaluationBetter, EvaluationFrozen, Overfitting


@pytest.mark.parametrize("option", ["ema_decay", "use_ema", ""])
def test_an_evaluation_of_an_average_that_never_moves_is_the_average(option: str) -> None:
    steps, at = np.arange(200), np.arange(10, 200, 20)
    facts = {"config": {option: 0.99}} if option else {}
    series = {"train/loss": (steps, 4 - steps / 100), "eval/loss": (at, np.full(len(at), 3.69403))}
    (one,) = found([EvaluationFrozen()], series, **facts)
    assert one.causes[0].startswith("averaged weights" if option else "optimizer holds other parameters")


def test_an_evaluation_that_never_changes_beside_adapters_is_without_them() -> None:
    steps, at = np.arange(200), np.arange(10, 200, 20)
    series = {"train/loss": (steps, 4 - steps / 100), "eval/loss": (at, np.full(len(at), 3.69403))}
    (one,) = found([EvaluationFrozen()], series | {"model/adapter_rank": (np.array([2]), np.array([4.0]))})
    assert one.severity == "warning" and one.causes[0].startswith("adapters are off in the evaluation")


@pytest.mark.parametrize(("from_start", "cause"), [(True, "loss summed"), (False, "validation leak")])
def test_an_evaluation_far_below_from_the_first_on_is_measured_in_another_way(from_start: bool, cause: str) -> None:
    steps, at = np.arange(300), np.arange(24, 300, 25)
    loss = 20 * (0.5 + 0.5 * np.exp(-steps / 80))
    share = 0.03 if from_start else np.linspace(0.97, 0.2, len(at))
    (one,) = found([EvaluationBetter()], {"train/loss": (steps, loss), "eval/loss": (at, loss[at] * share)})
    assert one.severity == "info" and one.causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("itself", "level", "noise", "warns"),
    [(False, 5.0, 0.002, True), (True, 5.0, 0.002, False), (False, 5.4, 0.06, True), (False, 4.0, 0.06, False)],
)
def test_an_average_that_is_never_updated_is_found_though_its_examples_are_augmented(
    itself: bool, level: float, noise: float, warns: bool
) -> None:
    steps, every = np.arange(320), np.arange(39, 320, 40)
    rows = {
        "loss": (steps, 1.1 + 4.4 * np.exp(-steps / 20)),
        "val/loss": (every, level + noise * np.random.default_rng(0).standard_normal(8)),
        "model/passes": (every, np.full(8, 2.0)),
    } | ({"model/passes_without_gradients": (every[:1], np.ones(1))} if itself else {})  # fmt: skip
    told = [one for one in findings([AverageBehind()], rows).values() if one.rule == "average_behind"]
    assert bool(told) == warns and all("stays at" in one.message for one in told)


def test_an_accuracy_that_never_moves_while_the_loss_does_is_of_one_class_for_all() -> None:
    steps = np.arange(1, 21)
    loss, seen = 1.0 - 0.02 * steps, 0.96 - 0.02 * steps
    series = {"train/loss": (steps, loss), "eval/loss": (steps, seen), "eval/accuracy": (steps, np.full(20, 0.7188))}
    (one,) = warned(found([EvaluationFrozen()], series))
    assert (one.severity, one.step, one.key) == ("warning", 1, "accuracy") and one.causes[0].startswith("one class")
    assert found([EvaluationFrozen()], series, range(1, 20)) == found([EvaluationFrozen()], series)
    for other in (np.full(20, 1.0), np.where(steps < 5, 0.5, 0.7188), np.where(steps % 9 == 0, 0.72, 0.7188)):
        assert not warned(found([EvaluationFrozen()], series | {"eval/accuracy": (steps, other)}))
    later = series | {"eval/accuracy": (steps, np.where(steps < 15, 0.7188, 0.8))}
    assert not warned(found([EvaluationFrozen()], later))
    assert not warned(found([EvaluationFrozen()], series | {"eval/loss": (steps, np.full(20, 0.9) + 0.001 * steps)}))


@pytest.mark.parametrize("pieces", [(), range(1, 100)])
@pytest.mark.parametrize(("begins", "each", "told"), [(10, 10, 0), (1, 10, 0), (1, 1000, 1), (10, 1000, 1)])
def test_the_last_evaluation_s_number_beside_each_step_is_not_one_that_never_changes(
    pieces: range, begins: int, each: int, told: int
) -> None:
    steps = np.arange(1, 101)
    at = steps[steps >= begins]
    series = {"loss": (steps, 1 - steps / 200), "val_loss": (at, 0.712345 - (at - begins) // each / 300)}
    assert len(warned(found([EvaluationFrozen()], series, pieces))) == told


def test_examples_that_are_learnt_and_nothing_else_are_told_after_ten_evaluations() -> None:
    steps = np.arange(1, 12)
    series = {"train/loss": (steps, np.linspace(2.3, 1.6, 11)), "eval/accuracy": (steps, 0.19 + 0.01 * (steps % 3)),
              "eval/loss": (steps, 1.8 + 0.01 * (steps % 2))}  # fmt: skip
    (one,) = warned(found([Overfitting()], series))
    assert (one.step, one.key, one.found) == (1, "never", 10) and one.causes[0].startswith("overfitting")
    assert found([Overfitting()], series, range(1, 11)) == found([Overfitting()], series)
    for name, values in (("eval/accuracy", 0.2 + 0.03 * steps), ("eval/accuracy", np.full(11, 0.6)),
                         ("eval/loss", 1.8 - 0.01 * steps), ("train/loss", np.linspace(2.3, 2.0, 11))):  # fmt: skip
        better = {name: (steps, values)}
        assert not warned(found([Overfitting()], series | better))


def test_an_evaluation_of_three_digits_that_never_changes_needs_ten_and_a_training_that_falls() -> None:
    steps = np.arange(1, 13) * 100
    series = {"train/loss": (steps, np.linspace(6.7, 3.2, 12)), "eval/loss": (steps, np.full(12, 6.89))}
    (one,) = warned(found([EvaluationFrozen()], series))
    assert (one.step, one.found) == (100, 1000)
    assert not found([EvaluationFrozen()], series | {"train/loss": (steps, np.linspace(6.7, 6.5, 12))})
    assert not found([EvaluationFrozen()], {name: (at[:9], values[:9]) for name, (at, values) in series.items()})


@pytest.mark.parametrize(
    ("ranks", "value", "alike"), [(1.0, 0.69314718, True), (0.0, 0.69314718, False), (1.0, 0.69521, False)]
)
def test_a_loss_of_pairs_that_stays_at_ln_2_is_of_equal_scores(ranks: float, value: float, alike: bool) -> None:
    steps = np.arange(1, 13) * 100
    series = {"train/loss": (steps, np.linspace(0.73, 0.68, 12)), "eval/loss": (steps, np.full(12, value)),
              "model/loss_ranks": (steps[:1], np.array([ranks]))}  # fmt: skip
    (one,) = warned(found([EvaluationFrozen()], series))
    assert (one.step, one.found) == (100, 500)
    assert one.causes[0].partition(":")[0] == (
        "chosen and rejected alike" if alike else "optimizer holds other parameters"
    )


def test_an_evaluation_that_was_mostly_right_at_first_has_the_trainings_labels() -> None:
    at = np.arange(6)
    series = {"train/loss": (at, np.array([0.22, 0.18, 0.15, 0.13, 0.12, 0.1])),
              "eval/loss": (at, np.array([0.33, 0.36, 0.4, 0.45, 0.43, 0.49]))}  # fmt: skip
    right = {"eval/accuracy": (at, np.array([0.85, 0.85, 0.84, 0.84, 0.85, 0.84]))}
    (one,) = warned(found([Overfitting()], series | right))
    assert one.causes[0].startswith("overfitting")
    (one,) = warned(found([Overfitting()], series))
    assert one.causes[0].startswith("evaluation labels are others"), "nobody knows"


@pytest.mark.parametrize(
    ("twin", "falls", "other"),
    [("val_nce", True, True), ("val_nce", False, False), ("val_margin_nce", True, False), ("", True, False)],
)
def test_what_rises_beside_the_evaluation_of_the_loss_itself_is_another_measure(
    twin: str, falls: bool, other: bool
) -> None:
    steps, at = np.arange(200), np.arange(19, 200, 20)
    loss = 0.3 + 0.9 * np.exp(-steps / 40)
    given = {"model/loss_given": (steps, loss), "model/example_rows": (steps, np.full(200, 32.0))}
    rows = {"nce": (steps, loss), "val_denoised_rmse": (at, 1.2 + 0.08 * np.arange(10))} | given
    rows |= {twin: (at, loss[at] + 0.05 if falls else np.full(10, 1.3))} if twin else {}
    told = [one for one in found([Overfitting()], rows) if one.severity == "warning"]
    assert [one.causes[0].startswith("measure is not the loss's") for one in told] == [other]
