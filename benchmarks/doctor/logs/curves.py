"""The pieces of which trainings on paper are made: a loss that falls, noise, schedules, norms, evaluations.

In:   a random generator and a few settings.
Out:  a `Training`: what a program would have printed, as columns of one value a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]

VOCABULARY_LOSS = 10.8  # a language model's first loss: the logarithm of some 50 000 tokens
FINAL_RATE = 0.1  # where the cosine ends, as a part of the peak
WARM_UP = 0.02  # of the run
DECAY_FROM = 0.8  # where the decay of warm-up, stable, decay begins


@dataclass
class Training:
    """What a training printed.

    step, loss: (rows,), steps in the order of the file. columns: further series by the name that a table gives them,
    (rows,). evaluations: step → training loss and evaluation loss. expected: (rows,), the loss without its noise.
    said: step → lines that the program printed after that row. last_words: lines at the end.
    loss_name: what tables call the loss.
    """

    step: NDArray[np.int64]
    loss: Floats
    columns: dict[str, Floats] = field(default_factory=dict)
    evaluations: dict[int, tuple[float, float]] = field(default_factory=dict)
    expected: Floats = field(default_factory=lambda: np.zeros(0))
    epochs: int = 1
    said: dict[int, list[str]] = field(default_factory=dict)
    last_words: list[str] = field(default_factory=list)
    loss_name: str = "loss"

    @property
    def rows(self) -> int:
        """How many rows the training has."""
        return len(self.step)

    def column(self, name: str, otherwise: float) -> Floats:
        """A series, or a constant where the training has none of that name; (rows,)."""
        return self.columns.get(name, np.full(self.rows, otherwise))

    def at(self, part: float) -> int:
        """The row after a part of the rows, 0 to 1."""
        return min(self.rows - 1, int(part * self.rows))


def falling(rows: int, start: float, end: float, exponent: float, delay: float) -> Floats:
    """A loss that falls by a power of the row from start to end; (rows,)."""
    power = end + (start - end) * ((np.arange(rows) + delay) / delay) ** (-exponent)
    return np.asarray(power - (power[-1] - end) * np.sqrt(np.linspace(0, 1, rows)))


def noise(dice: Generator, rows: int, correlation: float = 0.0, heavy: bool = False) -> Floats:
    """Noise of about unit width, each row correlated with the last; heavy: Student's t of 4 degrees; (rows,)."""
    drawn = dice.standard_t(4, rows) if heavy else dice.normal(size=rows)
    for row in range(1, rows):
        drawn[row] = correlation * drawn[row - 1] + np.sqrt(1 - correlation**2) * drawn[row]
    return np.asarray(drawn)


def schedule(kind: str, rows: int, peak: float) -> Floats:
    """A learning rate with a warm-up: "cosine", "linear", "constant" or "stable" (then a decay to 0); (rows,)."""
    part = np.linspace(0, 1, rows)
    shapes = {
        "cosine": FINAL_RATE + (1 - FINAL_RATE) / 2 * (1 + np.cos(np.pi * part)),
        "linear": 1 - part + 1e-4,
        "constant": np.ones(rows),
        "stable": np.minimum(1, (1 - part) / (1 - DECAY_FROM) + 1e-4),
    }
    return np.asarray(peak * np.minimum(1, (part + 1e-3) / WARM_UP) * shapes[kind])


def training(
    dice: Generator,
    rows: int,
    every: int,
    *,
    start: float = VOCABULARY_LOSS,
    end: float = 3.2,
    exponent: float = 0.45,
    delay: float = 20.0,
    spread: float = 0.02,
    correlation: float = 0.0,
    heavy: bool = False,
    rates: str = "cosine",
    peak: float = 6e-4,
    evaluate_every: int | None = None,
    gap: float = 0.03,
) -> Training:
    """A healthy training with a row every n-th step.

    spread: the noise as a part of the loss. gap: how far evaluations lie above the expected loss.
    """
    step = np.arange(rows) * every
    expected = falling(rows, start, end, exponent, delay)
    loss = expected * np.exp(spread * noise(dice, rows, correlation, heavy))
    norm = (0.3 + 1.5 * np.exp(-np.arange(rows) / 60)) * np.exp(0.12 * dice.normal(size=rows))
    made = Training(step, loss, {"lr": schedule(rates, rows, peak), "grad_norm": norm}, expected=expected)
    if evaluate_every is not None:
        for row in range(0, rows, max(1, evaluate_every // every)):
            above = gap + 0.004 * float(dice.normal())
            made.evaluations[int(step[row])] = (float(expected[row]), float(expected[row]) + above)
    return made


def usual(dice: Generator, rows: int = 0, every: int = 0, evaluated: bool = True, **settings: Any) -> Training:
    """A healthy training of any of the usual sizes, losses, noises and schedules; settings as of `training`.

    evaluated: about every second one has evaluations.
    """
    rows = rows or int(dice.choice([150, 300, 600, 1200, 2500, 5000]))
    every = every or int(dice.choice([1, 1, 5, 10, 50, 100]))
    of_language = dice.random() < 0.6
    start = VOCABULARY_LOSS if of_language else float(dice.choice([4.6, 2.3, 1.6, 0.69]))
    drawn: dict[str, Any] = {
        "start": start,
        "end": float(dice.uniform(2.4, 4)) if of_language else start * float(dice.uniform(0.08, 0.5)),
        "exponent": float(dice.uniform(0.3, 0.8)),
        "spread": between(dice, 0.006, 0.12),
        "correlation": float(dice.choice([0, 0, 0.3, 0.7])),
        "delay": float(dice.choice([5, 20, 60])),
        "rates": str(dice.choice(["cosine", "linear", "constant", "stable"])),
        "heavy": bool(dice.random() < 0.3),
        "peak": between(dice, 1e-5, 3e-3),
    }
    often = max(every * rows // int(dice.choice([10, 20, 40])), every)
    with_evaluations = dice.random() < 0.5 and evaluated
    return training(dice, rows, every, **(drawn | settings), evaluate_every=often if with_evaluations else None)


def between(dice: Generator, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return float(np.exp(dice.uniform(np.log(low), np.log(high))))


def by_epoch(loss: Floats, evaluation: Floats, accuracy: Floats, evaluation_accuracy: Floats) -> Training:
    """A training that tells of whole epochs, each with an evaluation; all (epochs,)."""
    step = np.arange(len(loss))
    columns = {"accuracy": np.clip(accuracy, 0, 1), "val_accuracy": np.clip(evaluation_accuracy, 0, 1)}
    evaluations = {int(at): (float(loss[at]), float(evaluation[at])) for at in step}
    return Training(step, loss, columns, evaluations, expected=loss, epochs=len(loss))


def rising(rows: int, row: int, rows_until: float) -> Floats:
    """0 up to a row, then to 1 with that many rows as the constant of time; (rows,)."""
    since = np.maximum(0, np.arange(rows) - row)
    return np.asarray(1 - np.exp(-since / rows_until))


def burst(rows: int, row: int, width: int, fading: float) -> Floats:
    """0 up to a row, 1 for some rows, then fading with that constant of time; (rows,)."""
    since = np.arange(rows) - row
    fades = np.exp(-np.maximum(0, since - width) / fading) if fading else np.zeros(rows)
    return np.where(since < 0, 0.0, np.where(since < width, 1.0, fades))


def smoothed(values: Floats, weight: float) -> Floats:
    """The exponential average that many programs print instead of the value; (rows,)."""
    made = values.copy()
    for row in range(1, len(values)):
        made[row] = weight * made[row - 1] + (1 - weight) * values[row]
    return made


def joined(parts: list[Training]) -> Training:
    """Trainings one after the other in one file, with the columns that all of them have; no evaluations."""
    names = set.intersection(*(set(one.columns) for one in parts))
    return Training(
        np.concatenate([one.step for one in parts]),
        np.concatenate([one.loss for one in parts]),
        {name: np.concatenate([one.columns[name] for one in parts]) for name in sorted(names)},
        expected=np.concatenate([one.expected for one in parts]),
    )


def taken(one: Training, rows: Any) -> Training:
    """Some rows of a training: a slice or row numbers; no evaluations."""
    columns = {name: values[rows] for name, values in one.columns.items()}
    return Training(one.step[rows], one.loss[rows], columns, expected=one.expected[rows])
