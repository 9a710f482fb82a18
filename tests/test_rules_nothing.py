"""Classifiers of which nothing holds for others, or which stay a guess among their classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.evaluation.nothing import NothingHolds
from barograph.doctor.rules.loss.learning import NotLearning

STEPS, AT = np.arange(240), np.arange(23, 240, 24)
NOISE = np.random.default_rng(0).normal(0, 0.03, len(STEPS))


def look(ends: float, accuracy: np.ndarray, trained: float = 1.4, classes: int = 6, **facts: Any) -> list[Any]:
    columns = {
        "train/loss": (STEPS, np.linspace(1.82, trained, len(STEPS)) + NOISE),
        "val/loss": (AT, np.linspace(1.75, ends, len(AT))),
        "val/acc": (AT, accuracy),
        "model/output_width": (np.zeros(1, int), np.full(1, float(classes))),
    }
    return found([NothingHolds()], columns, **facts)


@pytest.mark.parametrize(("trained", "cause"), [(1.4, "labels shuffled"), (1.8, "labels shuffled")])
def test_evaluations_that_stay_the_first_one_are_found(trained: float, cause: str) -> None:
    (one,) = look(1.72, np.full(10, 0.43), trained)
    assert one.severity == "warning" and one.causes[0].startswith(cause)
    assert any(name.startswith("overfitting") for name in one.causes) is (trained < 1.7)


@pytest.mark.parametrize(("known", "kind"), [(64.0, "overfit"), (4000.0, "not_learning")])
def test_a_few_examples_that_are_known_by_heart_are_overfitting_first(known: float, kind: str) -> None:
    columns = {
        "train/loss": (STEPS, np.linspace(1.82, 0.01, len(STEPS))), "val/loss": (AT, np.linspace(1.75, 2.8, len(AT))),
        "val/acc": (AT, np.full(10, 0.17)), "model/output_width": (np.zeros(1, int), np.full(1, 6.0)),
        "model/rows_again": (AT, np.ones(len(AT))), "model/distinct_rows": (AT, np.full(len(AT), known)),
    }  # fmt: skip
    (one,) = found([NothingHolds()], columns)
    assert one.kind == kind and one.causes[0].startswith("overfitting" if kind == "overfit" else "labels shuffled")


@pytest.mark.parametrize(
    ("ends", "accuracy", "classes"),
    [
        (1.2, np.full(10, 0.43), 6),  # the loss falls
        (1.72, np.linspace(0.3, 0.43, 10), 6),  # what is right grows
        (1.72, np.full(10, 0.9), 6),  # nine in ten are of one class
        (1.72, np.full(10, 0.43), 60),  # a model that was trained before
    ],
)
def test_evaluations_that_get_better_or_were_good_are_not(ends: float, accuracy: np.ndarray, classes: int) -> None:
    assert not look(ends, accuracy, classes=classes)


@pytest.mark.parametrize(("classes", "warns"), [(6, True), (8, False)])
def test_a_loss_that_stays_a_guess_among_the_watched_classes_warns(classes: int, warns: bool) -> None:
    columns = {
        "train/loss": (STEPS, np.log(6) + NOISE), "lr": (STEPS, np.full(len(STEPS), 1e-3)),
        "model/output_width": (np.zeros(1, int), np.full(1, float(classes))),
        "model/class_targets": (np.zeros(1, int), np.full(1, 16.0)),
    }  # fmt: skip
    said = found([NotLearning()], columns)
    assert any(one.severity != "info" and "among 6" in one.message for one in said) is warns


PAIRED = np.concatenate([np.linspace(4.5, 3.4, 40), np.linspace(3.3, 3.0, 200)]) + NOISE


@pytest.mark.parametrize(
    ("loss", "best", "right", "said"),
    [
        (PAIRED, 3.67, 0.025, True),
        (PAIRED, 3.4, 0.025, False),  # better than a guess among forty
        (PAIRED, 3.67, 0.2, False),  # right more often, at a low temperature
        (np.maximum(PAIRED, 3.4), 3.67, 0.025, False),  # nothing is learnt at all
    ],
)
@pytest.mark.parametrize("watched", [True, False])
def test_pairs_of_which_nothing_holds_for_others_are_found(
    loss: np.ndarray, best: float, right: float, said: bool, watched: bool
) -> None:
    at = AT[::2]
    columns = {
        "train/loss": (STEPS, loss), "val/loss": (at, np.linspace(3.72, best, len(at))),
        "model/loss_pairs": (np.zeros(1, int), np.full(1, 32.0)),
    } | ({
        "model/compared_width": (at, np.full(len(at), 40.0)), "model/compared_own": (at, np.full(len(at), right)),
    } if watched else {})  # fmt: skip
    findings = found([NothingHolds()], columns)
    assert bool(findings) is (said and watched)
    assert all(one.causes[0].startswith("labels shuffled") for one in findings)


@pytest.mark.parametrize(("kept", "said"), [(0.99, False), (0.01, True)])
def test_an_average_that_lags_says_nothing_of_what_holds(kept: float, said: bool) -> None:
    at = AT[::2]
    figures = {"compared_width": 40.0, "compared_own": 0.025, "evaluated_kept": kept}
    columns = {
        "train/loss": (STEPS, PAIRED), "val/loss": (at, np.linspace(3.72, 3.67, len(at))),
        "model/loss_pairs": (np.zeros(1, int), np.full(1, 32.0)),
    } | {f"model/{name}": (at, np.full(len(at), value)) for name, value in figures.items()}  # fmt: skip
    assert bool(found([NothingHolds()], columns)) is said


@pytest.mark.parametrize(
    ("alike", "known", "tokens", "other"),
    [(0.0, 1.0, 6, True), (0.1, 1.0, 6, False), (0.0, 0.0, 6, False), (0.0, 1.0, 3, False)],
)
def test_texts_of_evaluations_that_begin_otherwise_have_other_numbers(
    alike: float, known: float, tokens: int, other: bool
) -> None:
    at = AT[::2]
    figures = {"compared_width": 40.0, "compared_own": 0.025, "eval_opening_alike": alike, "eval_opening_known": known}
    columns = {
        "train/loss": (STEPS, PAIRED), "val/loss": (at, np.linspace(3.72, 3.67, len(at))),
        "model/loss_pairs": (np.zeros(1, int), np.full(1, 32.0)), "model/opening": (STEPS, 90.0 + STEPS % tokens),
    } | {f"model/{name}": (at, np.full(len(at), value)) for name, value in figures.items()}  # fmt: skip
    (one,) = found([NothingHolds()], columns)
    assert one.causes[0].startswith("vocabulary differs" if other else "labels shuffled")
    assert one.kind == ("data" if other else "not_learning")
