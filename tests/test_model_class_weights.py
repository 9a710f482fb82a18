"""Weights of classes in a loss that make up for how rare classes are, each for its own or for another's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from barograph.probes.model.classes import ClassCounts

SHARES = np.array([0.14, 0.5, 0.035, 0.25, 0.075])


def said(weights: Any, shares: Any = SHARES, mean: bool = True, name: str = "class_weights_elsewhere") -> list[float]:
    """What is said of forty batches of 32 targets. mean: the loss is divided by the batch's weights."""
    dice, seen, found = np.random.default_rng(5), ClassCounts(), []
    for _ in range(40):
        counts = np.bincount(dice.choice(len(shares), 32, p=shares), minlength=len(shares)).astype(float)
        in_loss = counts * weights / (counts @ weights if mean else 1.0)
        fields = seen.fields_of({"classes": ((), np.stack([counts, in_loss]))})
        found += [fields[name]] if name in fields else []
    return found


def root(shares: Any) -> Any:
    return shares**-0.5


def whole(shares: Any) -> Any:
    return 1 / shares


@pytest.mark.parametrize("of", [root, whole])
@pytest.mark.parametrize("mean", [True, False])
def test_weights_of_the_classes_themselves_and_of_others_are_told_apart(of: Callable[[Any], Any], mean: bool) -> None:
    own, by_size, rolled = of(SHARES), of(np.sort(SHARES)[::-1]), of(np.roll(SHARES, 1))
    assert set(said(own, mean=mean)) == {0.0}
    assert {said(by_size, mean=mean)[-1]} == {1.0} and 0.0 not in said(by_size, mean=mean)
    assert said(rolled, mean=mean)[-1] == 2.0


@pytest.mark.parametrize(
    "weights",
    [
        np.ones(5),
        1 / SHARES[::-1] ** 3,
        np.array([1.0, 2.0, 1.0, 2.0, 10.0]),  # by hand
        np.array([1.0, 1.0, 5.0, 1.0, 1.0]),
        SHARES,  # the wrong way round: another rule's
        1 / np.array([0.2, 0.4, 0.1, 0.2, 0.1]),  # of another set's frequencies
        (1 - 0.999 ** (20000 * SHARES)) ** -1,  # of the effective number of examples
    ],
)
def test_other_weights_are_nobodys(weights: Any) -> None:
    assert 1.0 not in said(weights) and 2.0 not in said(weights)


@pytest.mark.parametrize("mean", [True, False])
def test_weights_that_are_the_frequencies_are_known(mean: bool) -> None:
    for weights in (SHARES, SHARES**0.5, 700 * SHARES):
        assert said(weights, mean=mean, name="class_weights_inverted")[-1] == 1.0
    others = (
        SHARES**-0.5, 1 / SHARES, SHARES**3, SHARES[::-1], np.array([1.0, 2.0, 1.0, 2.0, 10.0]),
        np.array([1.0, 5.0, 1.0, 1.0, 1.0]), np.array([0.2, 0.4, 0.1, 0.2, 0.1]),
    )  # fmt: skip
    for weights in others:
        assert 1.0 not in said(weights, mean=mean, name="class_weights_inverted")[8:]
    assert not said(np.ones(5), mean=mean, name="class_weights_inverted")
    assert not said(SHARES[:3], np.array([0.6, 0.3, 0.1]), mean, "class_weights_inverted")


@pytest.mark.parametrize("mean", [True, False])
def test_frequencies_are_known_whatever_classes_hardly_come(mean: bool) -> None:
    shares = np.array([0.1, 0.015, 0.61, 0.001, 0.22, 0.054])
    for weights, told in ((shares, True), (shares**0.5, True), (1 / shares, False), (shares[::-1], False)):
        last = said(weights, shares, mean, "class_weights_inverted")[-1]
        assert (last == 1.0) is told


@pytest.mark.parametrize("mean", [True, False])
def test_weights_that_are_one_over_the_squares_of_the_frequencies_are_known(mean: bool) -> None:
    assert said(SHARES**-2, mean=mean, name="class_weights_squared")[-1] == 1.0
    for weights in (
        1 / SHARES,
        SHARES**-0.5,
        SHARES,
        SHARES**-4,
        SHARES[::-1] ** 2,
        np.array([1.0, 2.0, 1.0, 2.0, 9.0]),
    ):
        assert 1.0 not in said(weights, mean=mean, name="class_weights_squared")[8:]


def test_three_classes_fit_too_easily() -> None:
    shares = np.array([0.7, 0.2, 0.1])
    assert not said(1 / np.roll(shares, 1), shares)


def test_classes_that_a_sampler_has_made_even_say_nothing() -> None:
    assert not said(1 / SHARES, np.full(5, 0.2))


def doubled(weights: Any, drawn: Any, asked: Any) -> list[float]:
    """What is said of weights beside an evaluation's classes, of which a batch is of `drawn` shares."""
    dice, seen, found = np.random.default_rng(5), ClassCounts(), []
    for at in range(40):
        counts = np.bincount(dice.choice(len(drawn), 32, p=drawn), minlength=len(drawn)).astype(float)
        numbers = {"classes": ((), np.stack([counts, counts * weights / (counts @ weights)]))}
        if at == 12 and asked is not None:
            numbers["asked_classes"] = ((), np.round(asked)[None])
        found += (
            [fields["class_weights_doubled"]] if "class_weights_doubled" in (fields := seen.fields_of(numbers)) else []
        )
    return found


@pytest.mark.parametrize("of", [root, whole])
def test_weights_for_what_a_sampler_has_made_even_are_told_by_an_evaluation(of: Callable[[Any], Any]) -> None:
    even = np.full(5, 0.2)
    assert set(doubled(of(SHARES), even, 200 * SHARES)) == {1.0} and len(doubled(of(SHARES), even, 200 * SHARES)) == 28
    assert set(doubled(of(SHARES), SHARES, 400 * SHARES)) == {0.0}  # of what they make up for themselves
    assert set(doubled(of(SHARES), even, 200 * even)) == {0.0}  # the evaluation is even, too
    assert set(doubled(of(SHARES), even, 200 * SHARES[::-1])) == {0.0}  # as dear as their mistakes are
    assert not doubled(np.ones(5), even, 200 * SHARES)
    assert not doubled(of(SHARES), even, None) and not doubled(of(SHARES), even, 40 * SHARES)


@pytest.mark.parametrize(("power", "summed", "told"), [(0.0, False, 0.0), (0.0, True, 0.0), (0.5, False, 0.5)])
def test_batches_of_other_sizes_and_classes_give_no_class_another_weight(
    power: float, summed: bool, told: float
) -> None:
    """As where each task has its own classes, and the last ones have smaller batches."""
    dice, seen, slopes = np.random.default_rng(5), ClassCounts(), []
    for at in range(60):
        size, shares = (48, [0.4, 0.3, 0.2, 0.05, 0.05]) if at < 30 or power else (16, [0.05, 0.05, 0.1, 0.4, 0.4])
        counts = np.bincount(dice.choice(5, size, p=shares), minlength=5).astype(float)
        in_loss = counts * SHARES**power / (1.0 if summed else size)
        fields = seen.fields_of({"classes": ((), np.stack([counts, in_loss]))})
        slopes += [fields["class_weight_slope"]] if "class_weight_slope" in fields else []
    last = slopes[-1] if slopes else 0.0
    assert abs(last) < 0.05 if told == 0 else slopes


def test_weights_that_each_batch_has_otherwise_are_no_class_s() -> None:
    dice, seen = np.random.default_rng(3), ClassCounts()
    for _ in range(60):  # rows are weighted, as by a focal loss: by chance in the order of other classes
        counts = np.random.default_rng(5).multinomial(64, SHARES).astype(float)
        fields = seen.fields_of({"classes": ((), np.stack([counts, counts * root(dice.permutation(SHARES))]))})
        assert not fields.get("class_weights_elsewhere")


def test_batches_of_which_some_rows_are_looked_at_give_no_class_another_weight() -> None:
    """As where a memory of earlier tasks is added: means over 64, 128 and 88 rows, of which 64 are looked at."""
    dice, seen, slopes = np.random.default_rng(5), ClassCounts(), []
    tasks = (64, [0.8, 0.2, 0, 0, 0]), (128, [0.4, 0.1, 0.35, 0.15, 0]), (88, [0.4, 0.1, 0.15, 0.1, 0.25])
    for size, shares in (one for one in tasks for _ in range(16)):
        counts = np.bincount(dice.choice(5, 64, p=shares), minlength=5).astype(float)
        fields = seen.fields_of({"classes": ((), np.stack([counts, counts / size]))})
        slopes += [fields["class_weight_slope"]] if "class_weight_slope" in fields else []
    assert not slopes or max(abs(one) for one in slopes) < 0.01


@pytest.mark.parametrize(
    ("trained", "looks", "asked", "said"),
    [
        ([0, 10, 20, 30], 40, [50, 50, 50, 50], (0.25, 0.0)),
        ([0, 10, 20, 30], 40, [0, 50, 50, 100], (0.0, None)),  # it asks for none of it
        ([5, 10, 20, 30], 40, [50, 50, 50, 50], (0.0, None)),
        ([0, 10, 20, 30], 5, [50, 50, 50, 50], None),  # few targets were looked at
        ([0, 10, 20, 30], 40, [5, 5, 5, 5], None),
        ([0, 10, 20, 0], 40, [20, 50, 50, 80], (0.5, 3.0)),
    ],
)
def test_classes_of_an_evaluation_that_were_never_a_target_are_counted(
    trained: list[int], looks: int, asked: list[int], said: tuple[float, float | None] | None
) -> None:
    seen, counts = ClassCounts(), np.array(trained, float)
    for _ in range(looks):
        seen.fields_of({"classes_of_places": ((), np.stack([counts, counts / counts.sum()]))})
    found = seen.fields_of({"asked_classes": ((), np.array([asked], float))})
    assert (found.get("asked_untargeted"), found.get("asked_class")) == (said or (None, None))
