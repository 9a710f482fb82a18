"""Trainings that go wrong in their loss: one function a family.

In:   a random generator, the number of the case within its family.
Out:  a `Case` with what is wrong, and since which row.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from logs import formats as told
from logs.case import Case, Family, trouble
from logs.curves import Training, burst, by_epoch, joined, rising, taken, training, usual
from logs.troubles_beside import BESIDE

WORSE = ("divergence", "spike", "resume", "learning_rate")
"""What a loss that is suddenly higher may be called."""
NOT_LEARNING = ("not_learning", "plateau")


def not_a_number(dice: Generator, number: int) -> Case:
    """Loss and norm are NaN from a row on."""
    one = usual(dice, evaluated=False)
    row = one.at(dice.uniform(0.1, 0.9))
    one.loss[row:] = one.columns["grad_norm"][row:] = np.nan
    return trouble(one, told.TELL_STEPS, ("nonfinite",), row)


def infinite(dice: Generator, number: int) -> Case:
    """The loss is infinite from a row on."""
    one = usual(dice, evaluated=False)
    row = one.at(dice.uniform(0.1, 0.9))
    one.loss[row:] = np.inf
    return trouble(one, ("counted_lines", "step_table", "logger_lines", "llm_c", "json_lines"), ("nonfinite",), row)


def not_a_number_at_once(dice: Generator, number: int) -> Case:
    """Only the first loss is a number."""
    one = training(dice, 300, 1)
    one.loss[1:] = one.columns["grad_norm"][1:] = np.nan
    return trouble(one, told.TELL_STEPS, ("nonfinite",), 1)


def not_a_number_for_a_while(dice: Generator, number: int) -> Case:
    """Twelve rows are NaN, then all is well."""
    one = training(dice, 800, 1)
    row = one.at(dice.uniform(0.2, 0.8))
    one.loss[row : row + 12] = np.nan
    return trouble(one, ("step_table", "json_lines", "logger_lines", "llm_c"), ("nonfinite",), row, least="info")


def zero_for_nan(dice: Generator, number: int) -> Case:
    """The loss is printed as 0 and the norm as NaN, as the Trainer does with a loss that is filtered."""
    one = training(dice, 200, 10, start=2.2, end=1.1)
    row = one.at(dice.uniform(0.2, 0.6))
    one.loss[row:], one.columns["grad_norm"][row:] = 0.0, np.nan
    return trouble(one, ("trainer_state", "trainer_printed"), ("nonfinite", "zero"), row)


def epochs_not_a_number(dice: Generator, number: int) -> Case:
    """From an epoch on training and evaluation are NaN, the accuracy that of chance."""
    epochs = int(dice.integers(60, 200))
    row = int(dice.uniform(0.3, 0.7) * epochs)
    loss = 1.3 * np.exp(-np.arange(epochs) / 30) + 0.3
    loss[row:] = np.nan
    accuracy = np.where(np.isnan(loss), 0.1, 1 - loss / 2)
    one = by_epoch(loss, 1.1 * loss + 0.05, accuracy, accuracy - 0.1)
    return trouble(one, told.TELL_EPOCHS, ("nonfinite",), (row - 1, row + 1))


def divergence(dice: Generator, number: int) -> Case:
    """The loss goes up and stays, fast or over an eighth of the run; the norms with it."""
    one = usual(dice, rows=int(dice.choice([300, 800, 2500])), evaluated=False)
    row, until = one.at(dice.uniform(0.3, 0.75)), math.exp(dice.uniform(math.log(4), math.log(one.rows / 8)))
    top = one.loss[row] + (one.loss[0] - one.loss[row]) * dice.uniform(0.3, 1.1)
    risen = rising(one.rows, row, until)
    one.loss += (top - one.expected) * risen
    one.columns["grad_norm"] *= 1 + 3 * risen
    onset = (row, min(one.rows - 1, int(row + until / 2)))
    return trouble(one, told.TELL_STEPS, (*WORSE, "exploding"), onset, tolerance=0.06)


def another_divergence(dice: Generator, number: int) -> Case:
    """The same: the commonest trouble counts twice."""
    return divergence(dice, number)


def spike(dice: Generator, number: int) -> Case:
    """The loss leaps to 1.3 to 3.5 times for some rows, and comes back; small leaps may be an info finding."""
    one = usual(
        dice, rows=int(dice.choice([600, 1500, 3000])), spread=float(dice.uniform(0.006, 0.03)), evaluated=False
    )
    row, times = one.at(dice.uniform(0.2, 0.9)), float(dice.choice([1.3, 1.6, 2, 3.5]))
    leap = burst(one.rows, row, int(dice.choice([1, 2, 4])), float(dice.choice([0, 3, 15])))
    one.loss *= 1 + (times - 1) * leap
    one.columns["grad_norm"] *= 1 + 6 * leap
    least = "info" if times < 2 else "warning"
    return trouble(one, told.TELL_STEPS, ("spike", "divergence"), row, least)


def another_spike(dice: Generator, number: int) -> Case:
    """The same once more."""
    return spike(dice, number)


def many_spikes(dice: Generator, number: int) -> Case:
    """Four spikes to 1.7 times the loss; the first of them counts."""
    one = training(dice, 2500, 1)
    rows = np.sort(dice.integers(500, 2400, 4))
    for row in rows:
        one.loss *= 1 + 0.7 * burst(2500, int(row), 1, 12)
    return trouble(one, told.TELL_STEPS, ("spike",), int(rows[0]))


def huge_spike(dice: Generator, number: int) -> Case:
    """A classifier's loss at twelve times."""
    one = training(dice, 800, 1, start=0.69, end=0.2, spread=0.15)
    row = one.at(dice.uniform(0.3, 0.8))
    one.loss *= 1 + 11 * burst(800, row, 1, 2)
    return trouble(one, told.TELL_STEPS, ("spike",), row)


def jump(dice: Generator, number: int) -> Case:
    """From one row to the next the loss is 1.35 to 2 times as high, and stays."""
    one = usual(dice, rows=1000, spread=0.02, evaluated=False)
    row = one.at(dice.uniform(0.3, 0.7))
    one.loss[row:] *= dice.uniform(1.35, 2)
    return trouble(one, told.TELL_STEPS, (*WORSE, "data"), row)


def resumed_badly(dice: Generator, number: int) -> Case:
    """Gone on with from a checkpoint, the loss is a third higher, and takes long to come down."""
    one = training(dice, 1000, 10)
    row = one.at(dice.uniform(0.4, 0.7))
    one.loss[row:] += 1.1 * np.exp(-np.arange(1000 - row) / 250)
    one.said = {int(one.step[row - 1]): ["Resuming training from out", "number of parameters: 123.59M"]}
    return trouble(one, ("nanogpt", "megatron", "build_nanogpt"), WORSE, row)


def restarted_badly(dice: Generator, number: int) -> Case:
    """The steps go back to a checkpoint, and the loss of the rows that come again is higher by one."""
    one = training(dice, 600, 10)
    row = int(dice.integers(350, 500))
    first, second = taken(one, slice(0, row)), taken(one, slice(row - 100, 600))
    second.loss += np.linspace(1.4, 0.9, second.rows)
    both = joined([first, second])
    return trouble(both, ("megatron", "nanogpt", "logger_lines"), WORSE, row)


def rate_leaps(dice: Generator, number: int) -> Case:
    """The learning rate is ten times as high from a row on; the loss rises."""
    one = training(dice, 1500, 1, rates="constant")
    row = one.at(dice.uniform(0.3, 0.7))
    one.columns["lr"][row:] *= 10
    one.loss += 1.5 * rising(1500, row, 20)
    return trouble(one, told.TELL_RATE, WORSE, row)


def chance(dice: Generator, number: int) -> Case:
    """The loss stays where chance is."""
    level = [10.82, 6.9, 4.605, 2.303, 0.693, 10.37][number % 6]
    rows = int(dice.choice([100, 400, 1500]))
    one = training(dice, rows, int(dice.choice([1, 10])))
    one.loss = level * (1 + float(dice.choice([0.002, 0.01, 0.03])) * dice.normal(size=rows))
    return trouble(one, told.TELL_STEPS, (*NOT_LEARNING, "frozen"), None)


def unigrams(dice: Generator, number: int) -> Case:
    """A language model learns how frequent tokens are, and nothing more."""
    one = training(dice, 400, 10)
    one.loss[6:] = 7.6 + 0.15 * dice.normal(size=394)
    one.loss[3:6] = (8.9, 8.3, 8.0)
    return trouble(one, told.TELL_STEPS, NOT_LEARNING, None)


def epochs_of_chance(dice: Generator, number: int) -> Case:
    """A classifier of a hundred classes that never leaves chance."""
    epochs = int(dice.integers(30, 90))
    loss, evaluation = 4.605 + 0.003 * dice.normal(size=(2, epochs))
    accuracy = 0.01 + 0.001 * dice.random(epochs)
    return trouble(by_epoch(loss, evaluation, accuracy, accuracy), told.TELL_EPOCHS, NOT_LEARNING, None)


def still(dice: Generator, number: int) -> Case:
    """The loss is the same number from a row on: 0 together with the norm, or the last one."""
    one = usual(dice, rows=800, evaluated=False)
    row = one.at(dice.uniform(0.3, 0.8))
    if number % 2:
        one.loss[row:] = one.loss[row]
    else:
        one.loss[row:] = one.columns["grad_norm"][row:] = 0.0
    return trouble(one, told.TELL_STEPS, ("zero", "frozen"), row)


def still_from_the_start(dice: Generator, number: int) -> Case:
    """Every loss is the same."""
    one = training(dice, 400, 10)
    one.loss[:] = dice.uniform(0.5, 12)
    return trouble(one, told.TELL_STEPS, ("frozen", *NOT_LEARNING), None)


def class_collapses(dice: Generator, number: int) -> Case:
    """A classifier falls back to chance within an epoch."""
    epochs = int(dice.integers(60, 200))
    row = int(dice.uniform(0.3, 0.7) * epochs)
    loss = (1.8 * np.exp(-np.arange(epochs) / 15) + 0.4) * np.exp(0.02 * dice.normal(size=epochs))
    loss[row:] = 2.303 + 0.003 * dice.normal(size=epochs - row)
    accuracy = np.clip(1 - loss / 2.6, 0.1, 1)
    accuracy[row:] = 0.1
    one = by_epoch(loss, 1.05 * loss, accuracy, accuracy)
    return trouble(one, told.TELL_EPOCHS, (*WORSE, "eval"), (row - 1, row + 2), tolerance=0.06)


def small_error_grows(dice: Generator, number: int) -> Case:
    """A regression whose error goes back to where it began."""
    one = training(dice, 700, 5, start=1.0, end=0.02, spread=0.15)
    row = one.at(dice.uniform(0.4, 0.7))
    one.loss += 0.88 * rising(700, row, 25)
    return trouble(one, told.TELL_STEPS, WORSE, row)


def negative_rises(dice: Generator, number: int) -> Case:
    """A loss below zero rises by 3.5."""
    rows = 600
    row = int(dice.uniform(0.4, 0.7) * rows)
    loss = 3 * np.exp(-np.arange(rows) / 60) - 1.5 + 0.1 * dice.normal(size=rows)
    loss += np.minimum(3.5, 0.06 * np.maximum(0, np.arange(rows) - row))
    return trouble(Training(np.arange(rows), loss), told.TELL_LOSS, WORSE, row, tolerance=0.08)


FAMILIES: tuple[Family, ...] = (
    not_a_number, infinite, not_a_number_at_once, not_a_number_for_a_while, zero_for_nan, epochs_not_a_number,
    divergence, another_divergence, spike, another_spike, many_spikes, huge_spike, jump, resumed_badly,
    restarted_badly, rate_leaps, chance, unigrams, epochs_of_chance, still, still_from_the_start, class_collapses,
    small_error_grows, negative_rises, *BESIDE,
)  # fmt: skip
