"""Healthy trainings of the second set, the half that is put away.

In:   a random generator, the number of the case within its family.
Out:  a `Case`.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from logs import formats as told
from logs.case import Case, Family, alike
from logs.curves import Training, joined, noise, taken
from logs.newer_curves import RATES, epochs_of, evaluate, led, lift, wandering, with_accuracies


def any_schedule(dice: Generator, number: int) -> Case:
    """Any schedule, any length, noise of two lengths."""
    kind = RATES[number % len(RATES)]
    one = led(dice, int(dice.choice([60, 250, 1000, 3000])), int(dice.choice([1, 10, 100])), kind,
              held_up=float(dice.uniform(0, 0.1)), spread=float(dice.uniform(0.008, 0.06)))  # fmt: skip
    return Case(one, told.NEWER_STEPS)


def stages_of_data(dice: Generator, number: int) -> Case:
    """Three stages, each of harder data: the loss steps up by up to a tenth and falls again; evaluations fall."""
    rows = 1800
    one = led(dice, rows, 5, "cosine", spread=0.02, evaluations=30)
    for part in (1 / 3, 2 / 3):
        since = np.arange(rows) - one.at(part)
        lift(one, 1 + dice.uniform(0.04, 0.1) * np.where(since < 0, 0, 0.4 + 0.6 * np.exp(-since / 120)), False)
    return alike(one, told.NEWER_EVALUATIONS)


def bigger_batches(dice: Generator, number: int) -> Case:
    """Batches are four times as large from the middle on: half the noise, a little lower."""
    one = led(dice, 1200, 10, "constant", spread=0.05)
    half = one.at(0.5)
    one.loss[half:] = one.expected[half:] * (one.loss[half:] / one.expected[half:]) ** 0.5 * 0.985
    one.columns["grad_norm"][half:] *= 0.6
    return alike(one, told.NEWER_STEPS)


def noise_predicted(dice: Generator, number: int) -> Case:
    """A diffusion model: flat and wide from early on, evaluations of an average a little lower and quiet."""
    one = led(dice, int(dice.choice([400, 2000])), 10, "constant", start=0.6, end=0.045, spread=0.3, held_up=0.0)
    one.expected = 0.05 + 0.4 * np.exp(-np.arange(one.rows) / 12)
    one.loss = one.expected * np.exp(0.3 * noise(dice, one.rows))
    evaluate(dice, one, 20, -0.02, 0.02)
    return alike(one, told.NEWER_EVALUATIONS)


def pairs_preferred(dice: Generator, number: int) -> Case:
    """Sixty rows of preferences: the loss falls from the logarithm of two, with wide noise; both rewards fall."""
    rows = int(dice.integers(40, 90))
    part = np.linspace(0, 1, rows)
    one = Training(5 * np.arange(1, rows + 1), np.log(2) * (1 - 0.4 * part**0.7) + 0.05 * noise(dice, rows))
    one.columns = {
        "lr": 5e-7 * np.minimum(1, part / 0.1) * (1.02 - part),
        "grad_norm": np.exp(1.2 + 0.35 * noise(dice, rows)),
        "rewards/chosen": -0.4 * part + 0.08 * noise(dice, rows),
        "rewards/rejected": -1.3 * part + 0.12 * noise(dice, rows),
        "rewards/accuracies": np.clip(0.5 + 0.25 * part**0.5 + 0.07 * noise(dice, rows), 0, 1),
        "rewards/margins": 0.9 * part + 0.1 * noise(dice, rows),
    }
    return Case(one, ("trainer_state", "trainer_printed", "keyed", "json_messages"))


def words_rewarded(dice: Generator, number: int) -> Case:
    """Group-relative policy optimisation: the reward rises in noise, answers get longer, the entropy is halved."""
    rows = int(dice.integers(90, 300))
    part = np.linspace(0, 1, rows)
    one = Training(np.arange(1, rows + 1), 0.015 * noise(dice, rows) + 0.01 * part)
    one.columns = {
        "lr": 1e-6 * (1.01 - part),
        "grad_norm": np.exp(-1.5 + 0.4 * noise(dice, rows, 0.2)),
        "reward": 0.25 + 0.45 * part**0.6 + 0.09 * noise(dice, rows, 0.2),
        "reward_std": np.abs(0.3 - 0.12 * part + 0.05 * noise(dice, rows)),
        "kl": 0.0004 + 0.02 * part**1.5 + 0.001 * np.abs(noise(dice, rows)),
        "completion_length": 180 + 260 * part + 25 * noise(dice, rows, 0.3),
        "entropy": 0.7 - 0.35 * part + 0.03 * noise(dice, rows, 0.3),
    }
    return Case(one, ("trainer_state", "trainer_printed", "keyed", "json_messages"))


def taught_by_another(dice: Generator, number: int) -> Case:
    """A distillation: the loss falls from 1 to some ten-thousandths, in noise of a fifth."""
    one = led(dice, 1200, 5, "cosine", start=1.0, end=float(dice.uniform(2e-4, 1e-3)), spread=0.15, held_up=0.2)
    return alike(one, ("keyed", "json_messages", "step_table", "losses_first"))


def launched_three_times(dice: Generator, number: int) -> Case:
    """Stopped and gone on with twice, some rows come again, the same within the noise."""
    one = led(dice, 900, 10)
    first, second, third = taken(one, slice(0, 330)), taken(one, slice(300, 640)), taken(one, slice(610, 900))
    for part in (second, third):
        part.loss *= np.exp(0.01 * noise(dice, part.rows))
    return alike(joined([first, second, third]), ("keyed", "json_messages", "megatron", "step_table"))


def errors_by_epoch(dice: Generator, number: int) -> Case:
    """A regression by epochs whose loss falls by two to four decades, evaluations a half above and noisy."""
    epochs = int(dice.integers(30, 250))
    loss = np.exp(-dice.uniform(4, 9) * np.linspace(0, 1, epochs) ** 0.6) * np.exp(0.06 * noise(dice, epochs, 0.3))
    seen = loss * (1 + 0.5 * np.linspace(0, 1, epochs)) * np.exp(0.12 * noise(dice, epochs))
    return alike(with_accuracies(loss, seen, 10), ("epochs_said", "epochs_below", "epochs_short", "epoch_table"))


def rates_stepped_down(dice: Generator, number: int) -> Case:
    """A classifier whose rate is divided by ten at two epochs: both losses fall at once, and flatten, noisy before."""
    epochs = int(dice.integers(60, 160))
    one = epochs_of(dice, epochs, start=2.2, end=0.6, spread=0.025, gap=0.12)
    at = np.arange(epochs)
    down = np.where(at > 0.5 * epochs, 0.55, 1) * np.where(at > 0.75 * epochs, 0.85, 1)
    seen = np.array([both[1] for both in one.evaluations.values()]) * down**0.6
    return alike(with_accuracies(one.loss * down, seen, 10), told.NEWER_EPOCHS)


def mask_filled(dice: Generator, number: int) -> Case:
    """A masked language model: a plateau at 7 for a sixth of the run, then the fall."""
    rows = 1500
    one = led(dice, rows, 20, "linear", spread=0.012)
    until = int(rows * dice.uniform(0.08, 0.2))
    at = np.arange(rows)
    late = 2.3 + 4.6 * np.exp(-(at - until) / 180)
    one.expected = np.where(at < 25, 10.5 - 3.4 * at / 25, np.where(at < until, 7.1 - 0.2 * at / until, late))
    one.loss = one.expected * np.exp(wandering(dice, rows, 0.01))
    return alike(one, told.NEWER_STEPS)


FAMILIES: tuple[Family, ...] = (
    any_schedule, stages_of_data, bigger_batches, noise_predicted, pairs_preferred, words_rewarded, taught_by_another,
    launched_three_times, errors_by_epoch, rates_stepped_down, mask_filled,
)  # fmt: skip
