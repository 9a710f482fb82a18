"""Troubles of the open half in logs that make them hard to see: much noise, few rows, averages, accuracies alone.

In:   a random generator, the number of the case within its family.
Out:  a `Case` with what is wrong, and since which row.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from logs import formats as told
from logs.case import Case, Family, trouble
from logs.curves import Training, joined, noise, rising, smoothed, taken
from logs.newer_curves import epochs_of, led, lift, policy_of, ramp, with_accuracies
from logs.troubles import NOT_LEARNING, WORSE

_FEW = ("trainer_state", "trainer_printed", "llama_factory", "keyed")


def noisy_divergence(dice: Generator, number: int) -> Case:
    """Batches of one, a third of the loss is noise: it doubles within a tenth of the run, and stays."""
    rows = int(dice.choice([800, 2500]))
    one = led(dice, rows, 1, "cosine", start=5, end=1.8, spread=0.3)
    row = one.at(dice.uniform(0.4, 0.7))
    lift(one, 1 + rising(rows, row, rows // 30))
    return trouble(one, told.NEWER_STEPS, WORSE, row, tolerance=0.08)


def divergence_in_few_rows(dice: Generator, number: int) -> Case:
    """Fifteen to twenty-five rows: the loss falls by a half, and is three times as high in the last four to six."""
    rows = int(dice.integers(15, 26))
    one = led(dice, rows, 50, "constant", start=2.4, end=1.1, spread=0.03, held_up=0.0)
    row = rows - int(dice.integers(4, 7))
    one.loss[row:] *= np.linspace(1.8, 3, rows - row)
    return trouble(one, _FEW, WORSE, row)


def averaged_divergence(dice: Generator, number: int) -> Case:
    """What is printed is an exponential average: the loss goes up by a half over sixty rows, and stays."""
    rows = 900
    one = led(dice, rows, 10, "cosine", spread=0.08)
    row = one.at(dice.uniform(0.4, 0.7))
    lift(one, 1 + dice.uniform(0.5, 0.9) * ramp(rows, row, row + 10))
    one.loss = smoothed(one.loss, 0.95)
    return trouble(one, told.NEWER_STEPS, WORSE, row)


def both_sets_leap(dice: Generator, number: int) -> Case:
    """A classifier: in one epoch both losses are three times as high, and take five to come back."""
    one = epochs_of(dice, int(dice.integers(40, 100)), start=2.2, end=0.4)
    row = one.at(dice.uniform(0.4, 0.8))
    since = np.arange(one.rows) - row
    up = 1 + 2 * np.where(since < 0, 0, np.exp(-np.maximum(since, 0) / 2))
    seen = np.array([both[1] for both in one.evaluations.values()])
    made = with_accuracies(one.loss * up, seen * up, 10)
    return trouble(made, told.NEWER_EPOCHS, ("spike", "divergence", "eval"), row, "info")


def noisy_overfit(dice: Generator, number: int) -> Case:
    """Thirty to sixty epochs, evaluations with noise of a twentieth: they rise by two thirds from a quarter on."""
    epochs = int(dice.integers(30, 60))
    at, best = np.arange(epochs), epochs // 4
    loss = 0.02 + 2.1 * np.exp(-at / (epochs / 5))
    seen = 1.1 + 1.1 * np.exp(-at / (best / 3)) + 0.75 * np.maximum(0, at - best) / (epochs - best)
    seen = seen * np.exp(0.05 * noise(dice, epochs))
    onset = (best // 2, best + epochs // 4)
    return trouble(with_accuracies(loss, seen, 10), told.NEWER_EPOCHS, ("overfit",), onset, tolerance=0.1)


def hardly_learns(dice: Generator, number: int) -> Case:
    """A language model whose loss goes from 10.9 to 10.6 over the whole run."""
    rows = int(dice.choice([40, 200, 800]))
    one = led(dice, rows, 100, "cosine")
    one.loss = (10.9 - 0.3 * np.linspace(0, 1, rows)) * np.exp(0.004 * noise(dice, rows))
    return trouble(one, told.NEWER_STEPS, (*NOT_LEARNING, "learning_rate"), None)


def rate_zero_in_few_rows(dice: Generator, number: int) -> Case:
    """Thirty to fifty rows: the rate is 0 from the middle on, and the loss stands."""
    rows = int(dice.integers(30, 51))
    one = led(dice, rows, 10, "cosine", start=2.2, end=1.0, spread=0.03)
    row = rows // 2
    one.columns["lr"][row:] = 0.0
    one.loss[row:] = one.expected[row] * np.exp(0.03 * noise(dice, rows - row))
    return trouble(one, ("trainer_state", "trainer_printed", "llama_factory", "keyed"), ("learning_rate",), row)


def below_zero_and_up(dice: Generator, number: int) -> Case:
    """A negative log-likelihood of some thousands below zero goes up again by half of what it had fallen."""
    rows = 800
    row = int(rows * dice.uniform(0.4, 0.7))
    loss = -2500 + 4000 * np.exp(-np.arange(rows) / 60) + 2000 * rising(rows, row, 30) + 60 * noise(dice, rows, 0.3)
    one = Training(np.arange(rows) * 10, loss, {"lr": np.full(rows, 1e-3)})
    return trouble(one, ("keyed", "json_messages", "losses_first", "step_table"), WORSE, row)


def reward_fades(dice: Generator, number: int) -> Case:
    """A reward that climbs, and falls slowly by most of its gain over the last half."""
    rows = int(dice.choice([160, 400]))
    row = rows // 2
    reward = 10 + 190 * (1 - np.exp(-np.arange(rows) / (rows / 10))) - 170 * ramp(rows, row, int(0.9 * rows))
    one = policy_of(dice, rows, reward + 8 * noise(dice, rows, 0.4))
    return trouble(one, told.NEWER_POLICIES, ("rl",), (row, int(0.8 * rows)), tolerance=0.1)


def policy_at_random(dice: Generator, number: int) -> Case:
    """The KL to the first policy grows five-hundredfold within twenty of sixty updates, the reward goes to nothing."""
    rows = 64
    row = 36
    one = Training(np.arange(1, rows + 1), 0.01 * noise(dice, rows))
    reward = 0.2 + 0.5 * (1 - np.exp(-np.arange(rows) / 10)) - 0.68 * ramp(rows, row, row + 8)
    one.columns = {"reward": reward + 0.02 * noise(dice, rows), "entropy": 0.8 + 0.02 * noise(dice, rows),
                   "kl": 0.01 * np.exp(0.2 * noise(dice, rows) + 6.2 * ramp(rows, row, row + 12))}  # fmt: skip
    return trouble(one, ("trainer_state", "trainer_printed", "keyed", "json_messages"), ("rl",), (row, row + 12))


def evaluation_turns_to_nan(dice: Generator, number: int) -> Case:
    """A classifier by epochs whose evaluation alone is NaN from one on."""
    one = epochs_of(dice, int(dice.integers(20, 60)), start=2.2, end=0.4)
    row = one.at(dice.uniform(0.3, 0.8))
    for step in list(one.evaluations)[row:]:
        one.evaluations[step] = (one.evaluations[step][0], float("nan"))
    return trouble(one, ("epochs_said", "epochs_below", "epoch_table"), ("nonfinite", "eval"), row)


def resumed_higher(dice: Generator, number: int) -> Case:
    """Killed and gone on with; the loss of the second launch lies two fifths higher, and falls slowly."""
    one = led(dice, 900, 10, "cosine", spread=0.02)
    row = one.at(dice.uniform(0.4, 0.6))
    first, second = taken(one, slice(0, row)), taken(one, slice(row - 20, 900))
    second.loss = second.loss * (1 + 0.4 * np.exp(-np.arange(second.rows) / 150))
    return trouble(joined([first, second]), ("keyed", "json_messages", "megatron", "step_table"), WORSE, row)


def accuracy_alone_collapses(dice: Generator, number: int) -> Case:
    """A table of accuracies without a loss: that of the evaluation falls from nine tenths to chance, and stays."""
    epochs = int(dice.integers(40, 90))
    row = int(epochs * dice.uniform(0.4, 0.7))
    part = np.arange(epochs)
    accuracy = 0.1 + 0.82 * (1 - np.exp(-part / 8)) + 0.01 * noise(dice, epochs)
    seen = np.where(part >= row, 0.1 + 0.005 * noise(dice, epochs), accuracy - 0.03)
    one = Training(part, np.clip(accuracy, 0, 1), {"val_accuracy": np.clip(seen, 0, 1)}, loss_name="accuracy")
    return trouble(one, ("keyed", "step_table"), ("eval", "divergence"), row, tolerance=0.08)


def evaluation_stands_in_epochs(dice: Generator, number: int) -> Case:
    """A classifier that learns, and whose evaluation has the same loss to the last digit in each epoch."""
    one = epochs_of(dice, int(dice.integers(14, 50)), start=2.2, end=0.4)
    loss = one.loss
    seen = np.full(one.rows, 2.3126)
    return trouble(with_accuracies(loss, seen, 10), told.NEWER_EPOCHS, ("frozen", "eval"), None)


def norms_grow_away(dice: Generator, number: int) -> Case:
    """Norms of the gradient grow a thousandfold over a third of the run, the loss stands in spite of its rate."""
    rows = 700
    one = led(dice, rows, 10, "constant")
    row = one.at(dice.uniform(0.35, 0.55))
    one.columns["grad_norm"] *= np.exp(6.9 * ramp(rows, row, row + rows // 3))
    one.loss[row:] = one.expected[row] * np.exp(0.015 * noise(dice, rows - row))
    return trouble(one, told.NEWER_ANYTHING, ("exploding", "divergence"), (row, row + 150), tolerance=0.08)


FAMILIES: tuple[Family, ...] = (
    noisy_divergence, divergence_in_few_rows, averaged_divergence, both_sets_leap, noisy_overfit, hardly_learns,
    rate_zero_in_few_rows, below_zero_and_up, reward_fades, policy_at_random, evaluation_turns_to_nan, resumed_higher,
    accuracy_alone_collapses, evaluation_stands_in_epochs, norms_grow_away,
)  # fmt: skip
