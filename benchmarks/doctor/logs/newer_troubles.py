"""Troubles of the second set, its open half: one function a family.

In:   a random generator, the number of the case within its family.
Out:  a `Case` with what is wrong, and since which row.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from logs import formats as told
from logs.case import Case, Family, trouble
from logs.curves import burst, noise, rising
from logs.newer_curves import epochs_of, evaluate, led, lift, policy_of, ramp, wandering, with_accuracies
from logs.troubles import NOT_LEARNING, WORSE


def climbs_to_nan(dice: Generator, number: int) -> Case:
    """The loss climbs for some tens of rows, and is NaN from then on."""
    rows = int(dice.choice([300, 900, 2000]))
    one = led(dice, rows, int(dice.choice([1, 10])), spread=float(dice.uniform(0.01, 0.05)))
    row = one.at(dice.uniform(0.25, 0.8))
    until = min(rows - 2, row + int(dice.integers(8, 60)))
    lift(one, 1 + ramp(rows, row, until) ** 2 * dice.uniform(0.6, 2))
    one.loss[until:] = one.columns["grad_norm"][until:] = np.nan
    return trouble(one, told.NEWER_STEPS, ("nonfinite", "divergence"), (row, until))


def stuck_above_a_spike(dice: Generator, number: int) -> Case:
    """A spike, from which the loss does not come down again to where it was: it stays a quarter to a half above."""
    rows = int(dice.choice([500, 1500]))
    one = led(dice, rows, 10, str(dice.choice(["cosine", "stable", "constant"])), spread=0.015, evaluations=20)
    row = one.at(dice.uniform(0.3, 0.7))
    lift(one, 1 + dice.uniform(0.5, 1) * burst(rows, row, 3, 20) + dice.uniform(0.25, 0.5) * (np.arange(rows) >= row))
    return trouble(one, told.NEWER_EVALUATIONS, WORSE, row)


def slow_rise(dice: Generator, number: int) -> Case:
    """Over the last third to half the loss rises by 20 to 45%, slowly, and evaluations with it."""
    rows = int(dice.choice([400, 1200, 3000]))
    one = led(dice, rows, 5, "constant", start=4.6, end=2.0, spread=0.02, evaluations=24)
    row = one.at(dice.uniform(0.5, 0.65))
    lift(one, 1 + dice.uniform(0.2, 0.45) * ramp(rows, row, rows))
    return trouble(one, told.NEWER_EVALUATIONS, (*WORSE, "eval"), (row, (row + rows) // 2), tolerance=0.1)


def high_rate(dice: Generator, number: int) -> Case:
    """As the warm-up ends, the loss turns round and goes most of the way back to where it began, for good."""
    rows = 600
    one = led(dice, rows, 10, "cosine", spread=0.01)
    row = int(dice.integers(18, 40))
    back = 0.75 * one.loss[0]
    one.loss = np.where(
        np.arange(rows) < row, one.loss, one.loss[row] + (back - one.loss[row]) * rising(rows, row, 15)
    ) * np.exp(wandering(dice, rows, 0.012))
    kinds = (*WORSE, *NOT_LEARNING)
    return trouble(one, ("losses_first", "completed", "keyed", "json_messages", "pipeline"), kinds, row)


def growing_spikes(dice: Generator, number: int) -> Case:
    """Spikes that come more and more often and are higher each time, from 1.6 to 3 times the loss."""
    rows = 2000
    one = led(dice, rows, 1, "constant", spread=0.015)
    places = np.cumsum([700, 320, 240, 180, 130, 100, 80]) + dice.integers(-20, 20, 7)
    for nth, row in enumerate(places):
        lift(one, 1 + (0.6 + 0.2 * nth) * burst(rows, int(row), 2, 6))
    return trouble(one, told.NEWER_STEPS, ("spike", "divergence"), (int(places[0]), int(places[1])))


def short_overfit(dice: Generator, number: int) -> Case:
    """A fine-tuning of five to eight epochs, four to eight rows each, evaluated after each: best after the second."""
    epochs, each = int(dice.integers(5, 9)), int(dice.integers(4, 9))
    rows = epochs * each
    one = led(dice, rows, 10, "linear", start=2.1, end=0.25, spread=0.04, held_up=0.0)
    one.epochs = epochs
    best = float(one.expected[2 * each - 1]) + 0.15
    for epoch in range(epochs):
        away = epoch - 1
        seen = best * (1 + 0.08 * away**2 if away < 0 else 1 + dice.uniform(0.09, 0.13) * away)
        row = (epoch + 1) * each - 1
        one.evaluations[int(one.step[row])] = (float(one.expected[row]), seen)
    kept = (each, 3 * each - 1)
    return trouble(one, ("trainer_state", "trainer_printed", "llama_factory", "keyed"), ("overfit",), kept, "warning")


def validation_alone_overfits(dice: Generator, number: int) -> Case:
    """A log of evaluations alone: they fall, and then rise by a quarter to a half of their least."""
    rows, count = 1200, int(dice.integers(24, 60))
    one = led(dice, rows, 10, spread=0.0, start=4.6, end=2.4)
    row = one.at(dice.uniform(0.3, 0.5))
    flat = np.minimum.accumulate(one.expected)
    flat[row:] = flat[row] * (1 + dice.uniform(0.25, 0.5) * ramp(rows, row, rows)[row:])
    one.expected = flat
    evaluate(dice, one, count, 0.0, 0.006)
    return trouble(one, ("validations",), ("overfit", "eval", "divergence"), (row, row + 300), tolerance=0.1)


def epochs_turn_to_nan(dice: Generator, number: int) -> Case:
    """An epoch a line, the training loss alone: NaN from one on."""
    one = epochs_of(dice, int(dice.integers(20, 80)), start=1.4, end=0.3)
    row = one.at(dice.uniform(0.2, 0.8))
    one.loss[row:] = np.nan
    return trouble(one, ("epochs_short",), ("nonfinite",), row)


def perplexity_climbs(dice: Generator, number: int) -> Case:
    """Perplexity alone is printed: it falls to some tens, then climbs to thousands."""
    rows = int(dice.choice([200, 700]))
    one = led(dice, rows, 200, "constant", start=9.2, end=4.2, spread=0.012)
    row = one.at(dice.uniform(0.4, 0.75))
    one.loss = one.loss + 4 * rising(rows, row, rows // 10)
    return trouble(one, ("perplexities",), WORSE, row)


def loss_quartered(dice: Generator, number: int) -> Case:
    """After a change of the program the loss is divided once too often: from a row on it is a quarter or an eighth."""
    rows = 800
    one = led(dice, rows, 10, spread=0.015)
    row = one.at(dice.uniform(0.35, 0.7))
    one.loss[row:] /= float(dice.choice([4, 8]))
    kinds = ("jump_down", "data", "resume", "config", "zero")
    return trouble(one, told.NEWER_STEPS, kinds, row)


def reward_collapses(dice: Generator, number: int) -> Case:
    """A policy that has learnt falls back to the reward it began with, and stays there."""
    rows = int(dice.choice([120, 300]))
    row = int(dice.uniform(0.5, 0.75) * rows)
    level = 20 + 200 * (1 - np.exp(-np.arange(rows) / (rows / 6)))
    level = level - (level - 20) * rising(rows, row, 4)
    one = policy_of(dice, rows, level + 9 * noise(dice, rows, 0.4))
    one.columns["approx_kl"][row : row + 6] *= 12
    return trouble(one, told.NEWER_POLICIES, ("rl",), (row, row + 12), tolerance=0.08)


def margin_never_opens(dice: Generator, number: int) -> Case:
    """Preferences: the loss stays at the logarithm of two, the accuracy at one half, the margin at nothing."""
    rows = int(dice.choice([60, 200]))
    one = led(dice, rows, 10, "linear", start=0.7, end=0.69, spread=0.0)
    one.loss = np.log(2) + 0.0012 * noise(dice, rows)
    one.columns |= {
        "rewards/accuracies": np.clip(0.5 + 0.06 * noise(dice, rows), 0, 1),
        "rewards/margins": 0.0012 * noise(dice, rows),
        "rewards/chosen": 0.001 * noise(dice, rows),
        "rewards/rejected": 0.001 * noise(dice, rows),
    }
    kinds = (*NOT_LEARNING, "rl", "learning_rate", "frozen")
    return trouble(one, ("trainer_state", "trainer_printed", "keyed", "json_messages"), kinds, None)


def evaluation_never_changes(dice: Generator, number: int) -> Case:
    """The training goes well, and each evaluation has the same loss to the last digit: of a model that is not it."""
    one = led(dice, 900, 10, evaluations=int(dice.integers(12, 30)))
    seen = float(one.evaluations[min(one.evaluations)][1])
    one.evaluations = {step: (loss, seen) for step, (loss, _) in one.evaluations.items()}
    return trouble(one, told.NEWER_EVALUATIONS, ("eval", "frozen"), None)


def speed_fades(dice: Generator, number: int) -> Case:
    """Steps take longer and longer, up to 1.8 to 2.5 times as long."""
    rows = 1200
    one = led(dice, rows, 1)
    row = one.at(dice.uniform(0.3, 0.5))
    slower = 1 + dice.uniform(0.8, 1.5) * ramp(rows, row, row + 400)
    one.columns["milliseconds"] = 900 * np.exp(0.03 * noise(dice, rows)) * slower
    return trouble(one, ("completed", "nanogpt", "megatron"), ("slowdown", "stall"), (row, row + 400), tolerance=0.08)


def rate_of_nothing(dice: Generator, number: int) -> Case:
    """The learning rate is 0 in each row; the loss is that of the first weights."""
    rows = int(dice.choice([100, 400]))
    one = led(dice, rows, 10, spread=0.02)
    one.loss = 10.9 * np.exp(0.01 * noise(dice, rows))
    one.columns["lr"][:] = 0.0
    formats = ("keyed", "json_messages", "trainer_state", "megatron", "step_table")
    return trouble(one, formats, ("learning_rate", *NOT_LEARNING), None)


def generator_is_nan(dice: Generator, number: int) -> Case:
    """Two players: the generator's loss is NaN from a row on, the discriminator's too, or is 0."""
    rows = 900
    row = int(dice.uniform(0.3, 0.7) * rows)
    one = led(dice, rows, 1, start=1.4, end=0.9, spread=0.15)
    one.columns = {"g_loss": np.abs(1.6 + 0.5 * noise(dice, rows, 0.7)) + 0.2}
    one.columns["g_loss"][row:] = np.nan
    one.loss[row:] = np.nan if number % 2 else 0.0
    return trouble(one, ("adversarial",), ("nonfinite", "zero"), row)


def stairs_learnt_by_heart(dice: Generator, number: int) -> Case:
    """Epochs' stairs go down by two fifths each while the evaluation rises from the end of the first on."""
    epochs, each = int(dice.integers(4, 7)), 60
    rows = epochs * each
    one = led(dice, rows, 5, "linear", start=1.6, end=1.3, spread=0.0, held_up=0.0)
    one.epochs = epochs
    one.expected = one.expected * 0.6 ** (np.arange(rows) // each)
    one.loss = one.expected * np.exp(wandering(dice, rows, 0.05))
    for row in range(each // 2 - 1, rows, each // 2):
        half = row / each
        seen = 1.45 + 0.25 * np.exp(-half * 4) + 0.22 * max(0.0, half - 1)
        one.evaluations[int(one.step[row])] = (float(one.expected[row]), float(seen * (1 + 0.004 * dice.normal())))
    onset = (each // 2, 2 * each)
    return trouble(one, ("trainer_state", "trainer_printed", "keyed", "lightning"), ("overfit",), onset, tolerance=0.08)


def classes_lost(dice: Generator, number: int) -> Case:
    """A classifier by epochs: from one to the next both losses are at chance, and accuracies too, to the end."""
    one = epochs_of(dice, int(dice.integers(30, 90)), start=2.2, end=0.35)
    row = one.at(dice.uniform(0.35, 0.75))
    loss, seen = one.loss.copy(), np.array([both[1] for both in one.evaluations.values()])
    loss[row:] = np.log(10) * (1 + 0.001 * noise(dice, one.rows - row))
    seen[row:] = np.log(10) * (1 + 0.001 * noise(dice, one.rows - row))
    return trouble(with_accuracies(loss, seen, 10), told.NEWER_EPOCHS, (*WORSE, "eval"), row, tolerance=0.06)


FAMILIES: tuple[Family, ...] = (
    climbs_to_nan, stuck_above_a_spike, slow_rise, high_rate, growing_spikes, short_overfit, validation_alone_overfits,
    epochs_turn_to_nan, perplexity_climbs, loss_quartered, reward_collapses, margin_never_opens,
    evaluation_never_changes, speed_fades, rate_of_nothing, generator_is_nan, stairs_learnt_by_heart, classes_lost,
)  # fmt: skip
