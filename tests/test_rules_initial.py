"""The first loss beside that of a guess: what is too high, and what is as it should be."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import falling, found

from barograph.doctor.rules.loss.progress import RULES


def look(loss: np.ndarray, **facts: int):
    return found([rule() for rule in RULES], {"train/loss": (np.arange(len(loss)), loss)}, **facts)


def test_the_first_loss_is_held_against_the_vocabulary() -> None:
    loss = falling(50, start=30)
    finding = next(one for one in look(loss, vocabulary=50304) if one.rule == "initial_loss")
    assert (finding.severity, finding.step, finding.causes[0].partition(":")[0]) == ("warning", 0, "bad initialisation")
    assert [one.severity for one in look(falling(50, start=16), vocabulary=50304)] == ["info"]
    assert look(falling(50, start=4), vocabulary=50304) == []
    assert look(loss) == []


@pytest.mark.parametrize(
    ("start", "classes", "width", "says"),
    [(39.0, 5, 5, True), (6.9, 1000, 16, False), (2.5, 5, 5, False), (39.0, 5, 5, False)],
)
def test_the_graph_of_a_loss_says_among_how_many_classes_is_guessed(
    start: float, classes: int, width: int, says: bool
) -> None:
    figures = {"loss_classes": classes, "output_width": width, "loss_undivided": 1.0, "frozen_parameters": 0.0}
    if start > 30 and not says:
        figures["frozen_parameters"] = 3.0  # it was trained before
    watched = {f"model/{name}": (np.arange(1), np.full(1, float(value))) for name, value in figures.items()}
    rows = {"train/loss": (np.arange(50), falling(50, start=start))} | watched
    ours = [one for one in found([rule() for rule in RULES], rows) if one.rule == "initial_loss"]
    assert [(one.severity, len(one.causes)) for one in ours] == ([("warning", 1)] if says else [])


@pytest.mark.parametrize(("weight", "says"), [(100.0, False), (1.0, True), (20.0, True)])
def test_a_first_loss_that_is_a_known_multiple_of_a_guess_is_not_laid_to_the_initialisation(
    weight: float, says: bool
) -> None:
    figures = {"loss_classes": 6.0, "output_width": 6.0, "frozen_parameters": 0.0, "loss_weight": weight}
    watched = {f"model/{name}": (np.arange(1), np.full(1, value)) for name, value in figures.items()}
    rows = {"train/loss": (np.arange(50), falling(50, start=182.0))} | watched
    assert ("initial_loss" in {one.rule for one in found([rule() for rule in RULES], rows)}) is says


@pytest.mark.parametrize(
    ("figures", "severity"),
    [
        ({"loss_undivided": 0.0}, "info"),  # that of a second output is ten times in it
        ({"loss_undivided": 0.0, "loss_weight": 1.0}, "warning"),  # what is added to it is small
        ({"loss_undivided": 0.0, "loss_classes": 130.0}, "warning"),  # it is divided and multiplied by numbers
        ({"loss_undivided": 1.0}, "warning"),
        ({}, "warning"),
    ],
)
def test_a_first_loss_that_has_other_parts_is_not_held_against_a_guess_of_one(figures: dict, severity: str) -> None:
    figures = {"softmax_twice": 0.0, "output_width": 130.0, **figures}
    watched = {f"model/{name}": (np.arange(1), np.full(1, value)) for name, value in figures.items()}
    rows = {"train/loss": (np.arange(50), falling(50, start=13.6))} | watched
    (ours,) = (one for one in found([rule() for rule in RULES], rows) if one.rule == "initial_loss")
    assert ours.severity == severity


@pytest.mark.parametrize(
    ("start", "figures", "severity"),
    [
        (9.6, {"frozen_share": 0.85, "frozen_gains_new": 0.0}, "info"),  # a base that is sure of other answers
        (9.6, {"untrained": 0.0}, "info"),
        (9.6, {"frozen_share": 0.85, "frozen_gains_new": 1.0}, "warning"),  # nothing was loaded
        (9.6, {"untrained": 1.0}, "warning"),
        (9.6, {"frozen_share": 0.2, "frozen_gains_new": 0.0}, "info"),  # layers of few bits have no parameters
        (
            9.6,
            {"frozen_share": 0.2, "frozen_gains_new": 1.0, "trained_adapters": 16.0, "trained_parameters": 16.0},
            "warning",
        ),
        (19.0, {"frozen_share": 0.85, "frozen_gains_new": 0.0}, "warning"),  # no model is as sure
        (19.0, {"untrained": 0.0, "backwards": 2.0, "loss_weight": 1.0}, "info"),  # the sum of two micro-batches
        (19.0, {"untrained": 0.0, "backwards": 2.0, "loss_weight": 0.5}, "warning"),
    ],
)
def test_a_model_that_was_trained_before_may_be_sure_of_other_answers(
    start: float, figures: dict, severity: str
) -> None:
    watched = {f"model/{name}": (np.arange(2, 3), np.full(1, value)) for name, value in figures.items()}
    rows = {"train/loss": (np.arange(50), falling(50, start=start))} | watched
    ours = [one for one in found([rule() for rule in RULES], rows, vocabulary=40) if one.rule == "initial_loss"]
    assert [one.severity for one in ours] == [severity]


@pytest.mark.parametrize(("passes", "added"), [(2.0, False), (1.0, True)])
def test_micro_batches_whose_losses_are_divided_are_not_said_to_be_added(passes: float, added: bool) -> None:
    figures = {"softmax_twice": 0.0, "output_width": 64.0, "backwards": 2.0, "loss_weight": 1 / passes}
    watched = {f"model/{name}": (np.arange(50), np.full(50, value)) for name, value in figures.items()}
    rows = {"train/loss": (np.arange(50), falling(50, start=12.0))} | watched
    finding = next(one for one in found([rule() for rule in RULES], rows) if one.rule == "initial_loss")
    assert finding.causes[0].startswith("gradient accumulation") == added


@pytest.mark.parametrize(("start", "cause"), [(20.0, "gradient accumulation"), (200.0, "bad initialisation")])
def test_a_first_loss_that_may_be_a_sum_over_micro_batches_is_not_laid_to_the_initialisation(
    start: float, cause: str
) -> None:
    steps, figures = np.arange(50), {"softmax_twice": 0.0, "output_width": 64.0, "backwards": 4.0}
    watched = {f"model/{name}": (steps, np.full(50, value)) for name, value in figures.items()}
    rows = {"train/loss": (steps, falling(50, start=start))} | watched
    finding = next(one for one in found([rule() for rule in RULES], rows) if one.rule == "initial_loss")
    assert finding.severity == "warning" and finding.causes[0].startswith(cause)


@pytest.mark.parametrize(("weight", "cause"), [(7.5, "loss summed"), (1.0, "bad initialisation")])
def test_targets_of_more_weight_than_in_a_mean_come_before_the_initialisation(weight: float, cause: str) -> None:
    figures = {"softmax_twice": 0.0, "output_width": 29.0, "loss_weight": weight}
    watched = {f"model/{name}": (np.arange(50), np.full(50, value)) for name, value in figures.items()}
    rows = {"train/loss": (np.arange(50), falling(50, start=42.0))} | watched
    finding = next(one for one in found([rule() for rule in RULES], rows) if one.rule == "initial_loss")
    assert finding.causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("normalise", "targets", "severity"),
    [("rows", 60.0, "info"), ("tokens", 60.0, "warning"), ("rows", 64.0, "warning")],
)
def test_a_loss_that_is_divided_by_rows_by_choice_may_begin_high(normalise: str, targets: float, severity: str) -> None:
    figures = {"softmax_twice": 0.0, "output_width": 29.0, "loss_weight": 7.5, "targets": targets, "example_rows": 8.0}
    watched = {f"model/{name}": (np.arange(50), np.full(50, value)) for name, value in figures.items()}
    rows, chosen = {"train/loss": (np.arange(50), falling(50, start=42.0))} | watched, {"normalise": normalise}
    ours = [one for one in found([rule() for rule in RULES], rows, config=chosen) if one.rule == "initial_loss"]
    assert [one.severity for one in ours] == [severity]


@pytest.mark.parametrize(("weight", "says"), [(1 / np.log(2), False), (0.25 / np.log(2), False), (0.25, True)])
def test_a_loss_in_bits_begins_at_the_guess_in_bits(weight: float, says: bool) -> None:
    figures = {"loss_weight": weight, "backwards": 1.0 if weight > 1 else 4.0}
    watched = {f"model/{name}": (np.arange(1), np.full(1, value)) for name, value in figures.items()}
    rows = {"train/loss": (np.arange(50), falling(50, start=5.45))} | watched
    every = found([rule() for rule in RULES], rows, vocabulary=39)
    assert ("initial_loss" in {one.rule for one in every}) is says


def test_a_large_first_loss_of_few_classes_that_no_graph_counts_says_nothing_and_does_not_fail() -> None:
    figures = {"output_width": 7.0, "softmax_twice": 0.0}
    watched = {f"model/{name}": (np.arange(1), np.full(1, value)) for name, value in figures.items()}
    rows = {"train/loss": (np.arange(50), falling(50, start=31.0))} | watched
    assert "initial_loss" not in {one.rule for one in found([rule() for rule in RULES], rows)}
