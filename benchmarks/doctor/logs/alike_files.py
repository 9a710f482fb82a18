"""Healthy trainings in files that look ill: rows of several trainings, rows that are missing, cells without a value.

In:   a random generator, the number of the case within its family.
Out:  a `Case`.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from logs import formats as told
from logs.case import Case, Family, alike
from logs.curves import joined, taken, training


def empty_cells(dice: Generator, number: int) -> Case:
    """A table whose evaluations are in one row of fifty; the other cells are empty or say nan."""
    one = training(dice, 600, 10, evaluate_every=500)
    return alike(one, ("filled_table", "step_table"))


def first_row_nan(dice: Generator, number: int) -> Case:
    """The first row was printed before there was a loss."""
    one = training(dice, 600, 1)
    one.loss[0] = one.columns["grad_norm"][0] = np.nan
    return alike(one, ("json_lines", "step_table", "logger_lines"))


def two_stages(dice: Generator, number: int) -> Case:
    """A second stage on other data in the same file, with steps that begin anew."""
    first = training(dice, 500, 10)
    second = training(dice, 300, 10, start=2.9, end=2.2)
    return alike(joined([first, second]), ("step_table", "nanogpt", "logger_lines"))


def two_runs(dice: Generator, number: int) -> Case:
    """A second training, from the start, appended to the file of the first."""
    first = training(dice, 500, 10)
    second = training(dice, 300, 10, start=9.5, end=4.8)
    return alike(joined([first, second]), ("logger_lines", "nanogpt", "step_table"))


def sweep(dice: Generator, number: int) -> Case:
    """Five trainings of a sweep in one file; the worst of them learns little."""
    ends, rates = (0.3, 0.9, 0.5, 1.6, 0.4), (1e-3, 3e-4, 3e-3, 1e-2, 1e-4)
    made = [
        training(dice, 200, 1, start=2.3, end=end, spread=0.05, peak=rate)
        for end, rate in zip(ends, rates, strict=True)
    ]
    return alike(joined(made), ("step_table", "logger_lines"))


def four_writers(dice: Generator, number: int) -> Case:
    """Four ranks print each step, with losses of their own."""
    together = joined([training(dice, 300, 10, spread=0.03) for _ in range(4)])
    return alike(taken(together, np.arange(1200).reshape(4, 300).T.ravel()), ("logger_lines", "json_lines"))


def restarted(dice: Generator, number: int) -> Case:
    """Killed and gone on with from a checkpoint: a hundred rows come twice."""
    one = training(dice, 800, 10)
    again = taken(one, np.r_[0:500, 400:800])
    again.loss[500:] *= np.exp(0.01 * dice.normal(size=400))
    return alike(again, ("megatron", "nanogpt", "logger_lines"))


def missing_rows(dice: Generator, number: int) -> Case:
    """A tenth of the rows was lost."""
    begin = int(dice.integers(200, 400))
    rows = np.r_[0:begin, begin + 70 : 700]
    return alike(taken(training(dice, 700, 10), rows), told.TELL_RATE)


FILES: tuple[Family, ...] = (
    empty_cells, first_row_nan, two_stages, two_runs, sweep, four_writers, restarted, missing_rows,
)  # fmt: skip
