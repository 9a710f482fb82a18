"""Healthy trainings whose programs measure, average or print in ways that make them look ill: of the open half.

In:   a random generator, the number of the case within its family.
Out:  a `Case`. Nothing is wrong with any of them.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from logs import formats as told
from logs.case import Case, Family, alike
from logs.curves import Training, noise
from logs.newer_curves import epochs_of, led, lift, wandering, with_accuracies

_STEPS = ("losses_first", "keyed", "json_messages", "pipeline", "step_table")


def averaged_by_epoch(dice: Generator, number: int) -> Case:
    """What is printed is the mean since the epoch began: it goes down within each, and leaps at each border."""
    each = 120
    rows = each * int(dice.integers(3, 9))
    one = led(dice, rows, 10, "cosine", start=2.3, end=0.5, spread=float(dice.uniform(0.03, 0.12)))
    parts = one.loss.reshape(-1, each)
    one.loss = (parts.cumsum(1) / np.arange(1, each + 1)).ravel()
    return alike(one, ("batches_of_epochs", "keyed", "step_table"))


def summed_since(dice: Generator, number: int) -> Case:
    """What is printed is the sum over a hundred batches, and over fewer at the end of each epoch."""
    rows, each = 900, int(dice.choice([45, 90]))
    one = led(dice, rows, 100, "linear", start=6.0, end=2.0, spread=0.02)
    one.loss = one.loss * np.where(np.arange(rows) % each == each - 1, dice.uniform(0.2, 0.7), 1.0) * 100
    return alike(one, _STEPS)


def two_tasks(dice: Generator, number: int) -> Case:
    """Batches of two tasks take turns, or come by chance: two levels of loss."""
    rows = 1000
    one = led(dice, rows, 1, "cosine", start=5, end=1.4, spread=0.04)
    other = dice.random(rows) < 0.3 if number % 2 else np.arange(rows) % 2 == 0
    one.loss = one.loss * np.where(other, dice.uniform(1.4, 2.2), 1)
    return alike(one, _STEPS)


def penalty_annealed(dice: Generator, number: int) -> Case:
    """An autoencoder whose KL term is weighted in over the first third: the loss falls, rises by a tenth, falls."""
    rows = 1200
    one = led(dice, rows, 10, "constant", start=550, end=105, spread=0.02, held_up=0.0)
    part = np.arange(rows) / rows
    weight = np.clip((part - 0.05) / 0.28, 0, 1)
    one.loss = one.expected * np.exp(wandering(dice, rows, 0.02)) + 22 * weight * np.exp(-0.6 * part)
    one.columns = {"recon_loss": one.loss - 22 * weight * np.exp(-0.6 * part), "kl_loss": 22 * np.exp(-0.6 * part)}
    return alike(one, ("keyed", "json_messages", "step_table"))


def margin_reached(dice: Generator, number: int) -> Case:
    """Triplets: the loss falls from the margin, and more and more batches have exactly none."""
    rows = 900
    level = 0.3 * np.exp(-np.arange(rows) / dice.uniform(90, 200))
    loss = np.maximum(0, level * np.exp(0.4 * noise(dice, rows)) - 0.012)
    one = Training(np.arange(rows) * 5, np.round(loss, 5), {"lr": np.full(rows, 1e-4)})
    return alike(one, ("keyed", "json_messages", "losses_first", "step_table"))


def augmentation_off(dice: Generator, number: int) -> Case:
    """Over the last tenth images are no longer mixed: the training loss drops by a sixth to a third, at once."""
    epochs = int(dice.integers(60, 200))
    one = epochs_of(dice, epochs, start=3.0, end=1.5, classes=100, gap=-0.35)
    row = one.at(0.9)
    seen = np.array([both[1] for both in one.evaluations.values()])
    loss = np.where(np.arange(epochs) >= row, one.loss * dice.uniform(0.65, 0.85), one.loss)
    return alike(with_accuracies(loss, seen * np.where(np.arange(epochs) >= row, 0.97, 1), 100), told.NEWER_EPOCHS)


def larger_images(dice: Generator, number: int) -> Case:
    """Images grow at each third: both losses step up by up to 15%, and fall below where they were."""
    epochs = int(dice.integers(45, 120))
    one = epochs_of(dice, epochs, start=4.2, end=1.1, classes=100)
    up = np.ones(epochs)
    for row in (epochs // 3, 2 * epochs // 3):
        since = np.arange(epochs) - row
        up *= 1 + dice.uniform(0.05, 0.15) * np.where(since < 0, 0, np.exp(-np.maximum(since, 0) / (epochs / 12)))
    seen = np.array([both[1] for both in one.evaluations.values()])
    return alike(with_accuracies(one.loss * up, seen * up, 100), told.NEWER_EPOCHS)


def negatives_queue_up(dice: Generator, number: int) -> Case:
    """A contrastive model with a queue: the loss rises while it fills, then falls, in the end below its start."""
    rows = 1500
    until = int(dice.uniform(0.03, 0.08) * rows)
    at = np.arange(rows)
    late = 5.2 + 3.4 * np.exp(-(at - until) / 350)
    course = np.where(at < until, 6.2 + 2.4 * at / until, late)
    one = led(dice, rows, 10, "cosine")
    one.loss, one.expected = course * np.exp(wandering(dice, rows, 0.01)), course
    return alike(one, _STEPS)


def values_learnt(dice: Generator, number: int) -> Case:
    """A value-based agent: its loss grows with the reward, in noise of a half; the reward climbs."""
    rows = 400
    part = np.linspace(0, 1, rows)
    loss = (0.02 + 0.9 * part) * np.exp(0.5 * noise(dice, rows, 0.3))
    one = Training(np.arange(1, rows + 1) * 1000, loss)
    one.columns = {"ep_rew_mean": 20 + 400 * (1 - np.exp(-3 * part)) + 15 * noise(dice, rows, 0.6),
                   "exploration_rate": np.maximum(0.05, 1 - 5 * part)}  # fmt: skip
    return alike(one, ("keyed", "json_messages", "step_table"))


def five_folds(dice: Generator, number: int) -> Case:
    """Five folds one after the other, each from new weights, with epochs that begin anew."""
    epochs = int(dice.integers(12, 30))
    parts = [epochs_of(dice, epochs, start=1.9, end=0.45, spread=0.03) for _ in range(5)]
    one = Training(
        np.tile(np.arange(epochs), 5),
        np.concatenate([part.loss for part in parts]),
        {name: np.concatenate([part.columns[name] for part in parts]) for name in ("accuracy", "val_accuracy")},
    )
    seen = np.concatenate([[both[1] for both in part.evaluations.values()] for part in parts])
    one.columns["val_loss"] = seen
    return alike(one, ("keyed", "step_table"))


def harder_masks(dice: Generator, number: int) -> Case:
    """More and more of the words are masked: the loss falls, and rises by up to an eighth over the last half."""
    rows = 1400
    one = led(dice, rows, 10, "linear", start=10.3, end=2.2, spread=0.02, evaluations=24)
    part = np.arange(rows) / rows
    lift(one, 1 + dice.uniform(0.06, 0.12) * np.clip(2 * part - 1, 0, 1), evaluated=False)
    return alike(one, ("keyed", "json_messages", "pipeline", "trainer_state"))


def attacked(dice: Generator, number: int) -> Case:
    """From an epoch on images are attacked: the training loss is a half higher at once, the evaluation stays."""
    epochs = int(dice.integers(40, 90))
    one = epochs_of(dice, epochs, start=2.2, end=0.5, gap=0.2)
    row = one.at(dice.uniform(0.3, 0.6))
    loss = one.loss * np.where(np.arange(epochs) >= row, 1.5, 1)
    seen = np.array([both[1] for both in one.evaluations.values()])
    return alike(with_accuracies(loss, seen, 10), told.NEWER_EPOCHS)


def ones_of_a_batch(dice: Generator, number: int) -> Case:
    """A fine-tuning with batches of one and thirty to ninety rows: the loss is nearly all noise."""
    rows = int(dice.integers(30, 90))
    one = led(dice, rows, 1, "linear", start=1.6, end=1.1, spread=float(dice.uniform(0.25, 0.45)), held_up=0.0)
    return alike(one, ("trainer_state", "trainer_printed", "llama_factory", "keyed"))


def likelihood_of_pixels(dice: Generator, number: int) -> Case:
    """A negative log-likelihood that falls from thousands to below zero, and on."""
    rows = 1000
    loss = -3200 + 6500 * np.exp(-np.arange(rows) / dice.uniform(80, 250)) + 90 * noise(dice, rows, 0.3)
    one = Training(np.arange(rows) * 20, loss, {"lr": np.full(rows, 1e-3)})
    return alike(one, ("keyed", "json_messages", "losses_first", "step_table"))


def spoken_words(dice: Generator, number: int) -> Case:
    """A model of speech: a long plateau of blanks at the beginning, then the fall; single long utterances."""
    rows = 1600
    until = int(dice.uniform(0.05, 0.18) * rows)
    at = np.arange(rows)
    course = np.where(at < until, 310 - 120 * np.minimum(1, at / 30), 25 + 165 * np.exp(-(at - until) / 260))
    one = led(dice, rows, 50, "root")
    long = np.where(dice.random(rows) < 0.004, dice.uniform(1.3, 1.6), 1)
    one.loss, one.expected = course * long * np.exp(0.07 * noise(dice, rows)), course
    return alike(one, _STEPS)


FAMILIES: tuple[Family, ...] = (
    averaged_by_epoch, summed_since, two_tasks, penalty_annealed, margin_reached, augmentation_off, larger_images,
    negatives_queue_up, values_learnt, five_folds, harder_masks, attacked, ones_of_a_batch, likelihood_of_pixels,
    spoken_words,
)  # fmt: skip
