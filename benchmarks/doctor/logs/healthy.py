"""Healthy trainings: one function a family.

In:   a random generator, the number of the case within its family.
Out:  a `Case`.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from logs import formats as told
from logs.case import Case, Family
from logs.curves import Training, between, by_epoch, noise, smoothed, training, usual


def plain(dice: Generator, number: int) -> Case:
    """Any usual training in any format."""
    return Case(usual(dice), told.TELL_STEPS)


def plain_again(dice: Generator, number: int) -> Case:
    """The same: the commonest of all logs counts twice."""
    return Case(usual(dice), told.TELL_STEPS)


def averaged(dice: Generator, number: int) -> Case:
    """The loss that is printed is an exponential average."""
    one = usual(dice, spread=0.06, correlation=0.0)
    one.loss = smoothed(one.loss, 0.97)
    return Case(one, told.TELL_STEPS)


def classifier(dice: Generator, number: int) -> Case:
    """Epochs with two drops of the learning rate, evaluations with heavy tails."""
    epochs = int(dice.integers(50, 300))
    at = np.arange(epochs)
    drops = np.where(at > epochs * 0.5, 0.6, 1) * np.where(at > epochs * 0.75, 0.8, 1)
    loss = (2 * np.exp(-at / (epochs / 6)) + 0.15) * drops * np.exp(0.03 * dice.normal(size=epochs))
    spread = dice.uniform(0.03, 0.15) * noise(dice, epochs, heavy=True)
    evaluation = (0.5 + 1.6 * np.exp(-at / (epochs / 8))) * np.where(at > epochs * 0.5, 0.8, 1) * np.exp(spread)
    one = by_epoch(loss, evaluation, 1 - 0.2 * loss, 0.95 - 0.25 * evaluation)
    return Case(one, told.TELL_EPOCHS)


def many_decades(dice: Generator, number: int) -> Case:
    """A regression whose loss falls by five orders of magnitude."""
    rows = 1500
    loss = np.exp(-12 * (np.arange(rows) / rows) ** 0.6) * np.exp(dice.uniform(0.1, 0.5) * dice.normal(size=rows))
    return Case(Training(np.arange(rows), loss), told.TELL_LOSS)


def through_zero(dice: Generator, number: int) -> Case:
    """A negative log-likelihood of densities, which goes below zero."""
    rows = 800
    loss = 3 * np.exp(-np.arange(rows) / 80) - 1.5 + 0.2 * dice.normal(size=rows)
    return Case(Training(np.arange(rows), loss), told.TELL_LOSS)


def negative(dice: Generator, number: int) -> Case:
    """A Dice score as a loss: from about 0 to about -1."""
    rows = 900
    loss = -0.95 + 0.85 * np.exp(-np.arange(rows) / between(dice, 60, 250)) + 0.03 * dice.normal(size=rows)
    return Case(Training(np.arange(rows), loss), told.TELL_LOSS)


def tiny(dice: Generator, number: int) -> Case:
    """A loss of some millionths."""
    one = training(dice, 1500, 1, start=4e-5, end=1.2e-6, spread=float(dice.uniform(0.05, 0.2)))
    return Case(one, ("step_table", "json_lines", "tensorboard", "logger_lines"))


def summed(dice: Generator, number: int) -> Case:
    """A loss that is summed over the batch: thousands."""
    one = training(dice, 600, 1, start=5200.0, end=float(dice.uniform(500, 1500)), spread=0.04)
    return Case(one, ("step_lines", "step_table", "logger_lines", "tensorboard", "tutorial_lines"))


def diffusion(dice: Generator, number: int) -> Case:
    """A diffusion model's loss: flat from early on, and wide."""
    rows = int(dice.choice([300, 1500, 4000]))
    loss = (0.08 + 0.1 * np.exp(-np.arange(rows) / 40)) * np.exp(0.35 * dice.normal(size=rows))
    columns = {"lr": np.full(rows, 1e-4), "grad_norm": np.exp(0.5 * dice.normal(size=rows) - 2)}
    return Case(Training(np.arange(rows) * 10, loss, columns), told.TELL_STEPS)


def short_finetuning(dice: Generator, number: int) -> Case:
    """Some tens of rows of a fine-tuning."""
    rows, every = int(dice.integers(15, 100)), int(dice.choice([1, 5, 10, 50]))
    start, end, spread = float(dice.uniform(1, 3)), float(dice.uniform(0.5, 0.9)), float(dice.uniform(0.03, 0.2))
    one = training(dice, rows, every, start=start, end=end, spread=spread, rates="linear", delay=4)
    return Case(one, (*told.TELL_FINETUNING, "step_lines", "logger_lines"))


def very_short(dice: Generator, number: int) -> Case:
    """Ten to forty rows."""
    rows, every = int(dice.choice([10, 12, 20, 40])), int(dice.choice([1, 10, 100, 500]))
    return Case(training(dice, rows, every, start=3.0, end=2.0, spread=0.05, delay=3), told.TELL_STEPS)


def quieter(dice: Generator, number: int) -> Case:
    """Batches grow in the middle: the noise falls to less than half."""
    one = usual(dice, rows=1500, spread=0.05)
    half = one.at(0.47)
    one.loss[half:] = one.expected[half:] + 0.4 * (one.loss[half:] - one.expected[half:])
    return Case(one, told.TELL_STEPS)


def policy(dice: Generator, number: int) -> Case:
    """Group-relative policy optimisation: the reward rises, the KL grows slowly, the loss says nothing."""
    rows = 250
    part = np.arange(rows) / rows
    one = Training(np.arange(1, rows + 1), np.abs(0.01 * dice.normal(size=rows) * part + 0.02 * part))
    one.columns = {
        "grad_norm": np.exp(-1 + 0.4 * dice.normal(size=rows)),
        "lr": 1e-6 * (1 - part),
        "reward": 0.3 + 0.5 * (1 - np.exp(-3 * part)) + 0.12 * dice.normal(size=rows),
        "reward_std": np.abs(0.3 + 0.08 * dice.normal(size=rows)),
        "kl": 0.3 * part**2 + 0.01 * np.abs(dice.normal(size=rows)),
        "completion_length": 200 + 150 * part + 30 * dice.normal(size=rows),
        "clip_ratio": 0.003 * np.abs(dice.normal(size=rows)),
        "frac_reward_zero_std": np.clip(0.2 + 0.4 * part + 0.1 * dice.normal(size=rows), 0, 1),
        "entropy": 0.9 - 0.4 * part + 0.03 * dice.normal(size=rows),
    }
    return Case(one, ("trainer_state", "trainer_printed", "tensorboard"))


def preferences(dice: Generator, number: int) -> Case:
    """Direct preference optimisation: both rewards fall, the margin grows."""
    rows = 200
    part = np.arange(rows) / rows
    one = Training(10 * np.arange(1, rows + 1), 0.69 * np.exp(-1.5 * part) + 0.05 * dice.normal(size=rows))
    one.columns = {
        "grad_norm": np.exp(1.5 + 0.4 * dice.normal(size=rows)),
        "lr": 5e-7 * (1 - part),
        "rewards/chosen": -0.5 * part + 0.1 * dice.normal(size=rows),
        "rewards/rejected": -2.5 * part + 0.2 * dice.normal(size=rows),
        "rewards/accuracies": np.clip(0.5 + 0.3 * (1 - np.exp(-4 * part)) + 0.08 * dice.normal(size=rows), 0, 1),
        "rewards/margins": 2 * part + 0.2 * dice.normal(size=rows),
        "logps/chosen": -300 - 30 * part + 20 * dice.normal(size=rows),
    }
    return Case(one, ("trainer_state", "trainer_printed", "tensorboard"))


def single_examples(dice: Generator, number: int) -> Case:
    """Batches of one: the loss is nearly all noise."""
    spread = float(dice.uniform(0.25, 0.4))
    one = usual(dice, rows=2500, spread=spread, heavy=False, correlation=0.0, start=4.6, end=2.0)
    return Case(one, told.TELL_STEPS)


FAMILIES: tuple[Family, ...] = (
    plain, plain_again, averaged, classifier, many_decades, through_zero, negative, tiny, summed, diffusion,
    short_finetuning, very_short, quieter, policy, preferences, single_examples,
)  # fmt: skip
