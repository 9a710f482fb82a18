"""The pieces of the second set of families: losses that follow their learning rate, noise of two lengths, schedules.

In:   a random generator and a few settings.
Out:  a `Training`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from logs.curves import Floats, Training, between, falling, noise

RATES = ("cosine", "linear", "constant", "stable", "root", "restarts", "triangles")


def rates(kind: str, rows: int, peak: float, warm_up: float = 0.03) -> Floats:
    """A learning rate; (rows,). "stable": decays over the last 15%; "root": one over the root of the row; "restarts":
    a cosine that begins anew, each twice as long as the one before; "triangles": up and down, five times."""
    part = (np.arange(rows) + 0.5) / rows
    third = np.searchsorted([1 / 7, 3 / 7], part)  # cycles of 1/7, 2/7 and 4/7
    begin, length = np.array([0, 1 / 7, 3 / 7])[third], np.array([1, 2, 4])[third] / 7
    shapes = {
        "cosine": 0.1 + 0.45 * (1 + np.cos(np.pi * part)),
        "linear": 1.0 - part,
        "constant": np.ones(rows),
        "stable": np.minimum(1, (1 - part) / 0.15 + 0.01),
        "root": np.minimum(1, np.sqrt(warm_up / part)),
        "restarts": 0.02 + 0.49 * (1 + np.cos(np.pi * (part - begin) / length)),
        "triangles": 0.1 + 0.9 * (1 - np.abs(2 * (5 * part % 1) - 1)),
    }
    return np.asarray(peak * np.minimum(1, part / warm_up) * shapes[kind])


def wandering(dice: Generator, rows: int, spread: float) -> Floats:
    """Noise of a part that changes each row and one that changes slowly, as batches and data do; (rows,)."""
    slow = noise(dice, rows, 0.5 ** (1 / max(2.0, rows / 60)))
    return np.asarray(spread * (0.9 * noise(dice, rows, heavy=bool(dice.random() < 0.3)) + 0.35 * slow))


def led(
    dice: Generator,
    rows: int,
    every: int = 1,
    kind: str = "cosine",
    *,
    start: float = 10.8,
    end: float = 3.1,
    spread: float = 0.02,
    held_up: float = 0.06,
    evaluations: int = 0,
    gap: float = 0.02,
) -> Training:
    """A training whose loss lies higher by a part `held_up` where the rate is at its peak.

    evaluations: how many, at equal distances, on rows of the training; above the expected loss by a part `gap`.
    """
    rate = rates(kind, rows, between(dice, 1e-5, 2e-3))
    exponent, delay = float(dice.uniform(0.35, 0.9)), float(rows * dice.uniform(0.01, 0.05))
    expected = falling(rows, start, end, exponent, max(2.0, delay))
    lifted = 1 + held_up * (rate / rate.max()) * np.linspace(0, 1, rows) ** 0.5
    expected = expected * lifted
    loss = expected * np.exp(wandering(dice, rows, spread))
    norm = (0.4 + 2 * np.exp(-np.arange(rows) / (rows / 15))) * np.exp(0.15 * noise(dice, rows, 0.3))
    one = Training(np.arange(1, rows + 1) * every, loss, {"lr": rate, "grad_norm": norm}, expected=expected)
    evaluate(dice, one, evaluations, gap)
    return one


def evaluate(dice: Generator, one: Training, count: int, gap: float, quiet: float = 0.004) -> None:
    """Give a training that many evaluations, which follow its expected loss."""
    for row in np.linspace(one.rows / max(count, 1) - 1, one.rows - 1, count).round().astype(int) if count else ():
        seen = float(one.expected[row]) * (1 + gap + quiet * float(dice.normal()))
        one.evaluations[int(one.step[row])] = (float(one.expected[row]), seen)


def lift(one: Training, times: Floats, evaluated: bool = True) -> None:
    """Multiply a training's loss, and its evaluations, by a factor a row; (rows,)."""
    one.loss = one.loss * times
    one.expected = one.expected * times
    if evaluated:
        for step, (loss, seen) in list(one.evaluations.items()):
            row = int(np.searchsorted(one.step, step))
            one.evaluations[step] = (loss * float(times[row]), seen * float(times[row]))


def ramp(rows: int, row: int, until: int) -> Floats:
    """0 up to a row, then evenly to 1 at another; (rows,)."""
    return np.clip((np.arange(rows) - row) / max(1, until - row), 0, 1)


def epochs_of(
    dice: Generator,
    epochs: int,
    *,
    start: float,
    end: float,
    classes: int = 10,
    gap: float = 0.08,
    spread: float = 0.02,
) -> Training:
    """A classifier by epochs: loss and accuracy of both sets; accuracies follow the losses."""
    at = np.arange(epochs)
    loss = (end + (start - end) * np.exp(-at / (epochs * dice.uniform(0.08, 0.25)))) * np.exp(
        spread * noise(dice, epochs, 0.2)
    )
    seen = (loss * (1 + gap * np.linspace(0.2, 1, epochs))) * np.exp(1.5 * spread * noise(dice, epochs))
    return with_accuracies(loss, seen, classes)


def with_accuracies(loss: Floats, seen: Floats, classes: int) -> Training:
    """A training by epochs from the losses of both sets, with accuracies that follow from them; (epochs,)."""

    def accuracy(of: Floats) -> Floats:
        return np.asarray(1 / classes + (1 - 1 / classes) * np.clip(1 - of / np.log(classes), 0, 1) ** 0.8)

    step = np.arange(len(loss))
    columns = {"accuracy": accuracy(loss), "val_accuracy": accuracy(seen)}
    both = {int(at): (float(loss[at]), float(seen[at])) for at in step}
    return Training(step, loss, columns, both, expected=loss, epochs=len(loss))


def policy_of(dice: Generator, rows: int, reward: Floats, **columns: Floats) -> Training:
    """A policy's training as a table of updates tells it: reward, KL, entropy, losses; all (rows,)."""
    one = Training(np.arange(1, rows + 1) * 2048, 0.02 * dice.normal(size=rows), loss_name="loss")
    usual: dict[str, Any] = {
        "ep_rew_mean": reward,
        "ep_len_mean": 180 + 15 * noise(dice, rows, 0.8),
        "approx_kl": 0.008 * np.exp(0.35 * noise(dice, rows, 0.2)),
        "clip_fraction": np.clip(0.09 + 0.03 * noise(dice, rows, 0.2), 0.0, 1.0),
        "entropy": 1.4 - 0.7 * np.linspace(0, 1, rows) + 0.02 * noise(dice, rows, 0.5),
        "value_loss": 20 * np.exp(0.4 * noise(dice, rows, 0.4)),
    }
    one.columns = usual | columns
    return one
