"""Troubles of the second set, the half that is put away: one function a family.

In:   a random generator, the number of the case within its family.
Out:  a `Case` with what is wrong, and since which row.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from logs import formats as told
from logs.case import Case, Family, trouble
from logs.curves import Training, burst, joined, noise, rising
from logs.newer_curves import epochs_of, led, lift, policy_of, ramp, with_accuracies
from logs.troubles import NOT_LEARNING, WORSE


def first_launch_ends_in_nan(dice: Generator, number: int) -> Case:
    """Two launches in a file: the first ends in NaN, the second, from the start, is well."""
    first, second = led(dice, 400, 10), led(dice, 700, 10)
    row = first.at(dice.uniform(0.5, 0.9))
    first.loss[row:] = first.columns["grad_norm"][row:] = np.nan
    return trouble(joined([first, second]), ("keyed", "json_messages", "step_table"), ("nonfinite",), row)


def cycle_that_breaks(dice: Generator, number: int) -> Case:
    """A rate in triangles: at the third top the loss leaps by a half to all of itself, and stays there."""
    rows = 1200
    one = led(dice, rows, 1, "triangles", held_up=0.06, spread=0.02)
    row = int(rows * (0.5 + dice.uniform(-0.01, 0.02)))
    lift(one, 1 + dice.uniform(0.5, 1) * rising(rows, row, 12))
    return trouble(one, ("keyed", "json_messages", "trainer_state", "pipeline", "batches_of_epochs"), WORSE, row)


def late_leap(dice: Generator, number: int) -> Case:
    """Shortly before the end the loss is 1.4 to 2 times as high from one row to the next, to the last row."""
    rows = int(dice.choice([300, 1500]))
    one = led(dice, rows, 10, spread=0.02)
    row = one.at(dice.uniform(0.88, 0.95))
    lift(one, np.where(np.arange(rows) >= row, dice.uniform(1.4, 2), 1.0))
    return trouble(one, told.NEWER_STEPS, (*WORSE, "data"), row)


def bump_then_climb(dice: Generator, number: int) -> Case:
    """A bump, a recovery, and then a steady climb that doubles the loss by the end."""
    rows = int(dice.choice([120, 800]))
    one = led(dice, rows, 10, "constant", start=6, end=2.2, spread=0.02)
    bump, row = one.at(dice.uniform(0.3, 0.4)), one.at(dice.uniform(0.55, 0.65))
    lift(one, 1 + 0.35 * burst(rows, bump, 2, rows / 60) + 1.1 * ramp(rows, row, rows))
    return trouble(one, told.NEWER_STEPS, WORSE, (row, (2 * row + rows) // 3), tolerance=0.1)


def one_epoch_is_off(dice: Generator, number: int) -> Case:
    """One epoch's training loss is two to three times its neighbours'."""
    one = epochs_of(dice, int(dice.integers(40, 120)), start=2.2, end=0.5, spread=0.015)
    row = one.at(dice.uniform(0.4, 0.85))
    one.loss[row] *= dice.uniform(2, 3)
    return trouble(one, ("epochs_short", "epochs_said", "epochs_below"), ("spike", "divergence"), row, "info")


def one_evaluation_is_off(dice: Generator, number: int) -> Case:
    """One evaluation of some tens is 1.8 to 3 times its neighbours; the training is not."""
    one = led(dice, 1000, 10, spread=0.015, evaluations=int(dice.integers(25, 50)))
    steps = sorted(one.evaluations)
    step = steps[int(dice.uniform(0.4, 0.85) * len(steps))]
    loss, seen = one.evaluations[step]
    one.evaluations[step] = (loss, seen * float(dice.uniform(1.8, 3)))
    return trouble(one, told.NEWER_EVALUATIONS, ("eval", "spike"), step // 10 - 1, "info")


def evaluation_at_chance(dice: Generator, number: int) -> Case:
    """A classifier: from an epoch on the evaluation alone is at chance, loss and accuracy."""
    one = epochs_of(dice, int(dice.integers(30, 90)), start=2.2, end=0.4)
    row = one.at(dice.uniform(0.35, 0.75))
    seen = np.array([both[1] for both in one.evaluations.values()])
    seen[row:] = np.log(10) * (1.02 + 0.01 * noise(dice, one.rows - row))
    return trouble(with_accuracies(one.loss, seen, 10), told.NEWER_EPOCHS, ("eval", "overfit"), row, tolerance=0.06)


def flat_for_epochs(dice: Generator, number: int) -> Case:
    """A classifier of two, ten or a hundred classes that never leaves chance, over a dozen epochs or more."""
    classes, epochs = int(dice.choice([2, 10, 100])), int(dice.integers(14, 60))
    loss, seen = np.log(classes) * (1 + 0.0015 * dice.normal(size=(2, epochs)))
    one = with_accuracies(loss, seen, classes)
    kinds = (*NOT_LEARNING, "frozen")
    return trouble(one, told.NEWER_EPOCHS, kinds, None)


def kl_leaps(dice: Generator, number: int) -> Case:
    """Three single updates whose KL is 60 to 200 times the usual one."""
    rows = int(dice.choice([100, 300]))
    reward = 20 + 150 * (1 - np.exp(-np.arange(rows) / (rows / 4))) + 6 * noise(dice, rows, 0.4)
    one = policy_of(dice, rows, reward)
    first = int(rows * 0.4)
    for row in (first, first + rows // 6, first + rows // 3):
        one.columns["approx_kl"][row] = 0.008 * dice.uniform(60, 200)
    return trouble(one, told.NEWER_POLICIES, ("rl",), (first, first + rows // 3), "info")


def policy_stands(dice: Generator, number: int) -> Case:
    """From the middle on the loss is exactly 0, all rewards are equal, and the gradient is 0."""
    rows = int(dice.choice([30, 120]))
    row = int(rows * dice.uniform(0.4, 0.6))
    reward = 0.2 + 0.6 * (1 - np.exp(-np.arange(rows) / (rows / 6))) + 0.05 * noise(dice, rows)
    one = Training(np.arange(1, rows + 1), 0.02 * noise(dice, rows))
    one.columns = {"reward": reward, "reward_std": np.abs(0.25 + 0.05 * noise(dice, rows)),
                   "grad_norm": np.exp(-1 + 0.3 * noise(dice, rows)),
                   "kl": 0.01 + 0.002 * np.abs(noise(dice, rows))}  # fmt: skip
    one.columns["reward"][row:] = 0.0
    for name in ("reward_std", "grad_norm"):
        one.columns[name][row:] = 0.0
    one.loss[row:] = 0.0
    kinds = ("rl", "zero", "frozen", "vanishing")
    return trouble(one, ("trainer_state", "trainer_printed", "keyed", "json_messages"), kinds, row)


def answers_leak(dice: Generator, number: int) -> Case:
    """The loss of a language model falls from about 3 to a twentieth within fifteen rows, at no change of the rate."""
    rows = 900
    one = led(dice, rows, 10, "constant", spread=0.015)
    row = one.at(dice.uniform(0.35, 0.7))
    one.loss = one.loss * (1 - 0.95 * rising(rows, row, 4))
    return trouble(one, told.NEWER_STEPS, ("jump_down", "data"), row, tolerance=0.06)


def scale_goes_down(dice: Generator, number: int) -> Case:
    """The loss scale halves with each row down to 1, the norm is infinite."""
    rows = 500
    one = led(dice, rows, 10)
    row = one.at(dice.uniform(0.3, 0.7))
    since = np.maximum(0, np.arange(rows) - row)
    one.columns["loss_scale"] = np.maximum(1.0, 65536.0 * 2.0 ** -since.clip(max=20))
    one.columns["grad_norm"][row:] = np.inf
    one.loss[row:] = one.loss[row] * np.exp(0.008 * noise(dice, rows - row))
    return trouble(one, ("keyed", "json_messages", "megatron", "fairseq"), ("loss_scale", "nonfinite"), row)


def norm_dies(dice: Generator, number: int) -> Case:
    """The gradient's norm falls to a hundred-thousandth within some tens of rows, and the loss stands."""
    rows = 900
    one = led(dice, rows, 5)
    row = one.at(dice.uniform(0.3, 0.55))
    since = np.maximum(0, np.arange(rows) - row)
    one.columns["grad_norm"] *= np.exp(-np.minimum(11.5, since / 4))
    one.loss[row:] = one.expected[row] * np.exp(0.01 * noise(dice, rows - row))
    kinds = ("vanishing", "zero", "plateau", "frozen")
    return trouble(one, told.NEWER_ANYTHING, kinds, (row, row + 150))


def steps_slower(dice: Generator, number: int) -> Case:
    """From one row to the next steps take 1.6 to 3 times as long, to the end."""
    rows = 1000
    one = led(dice, rows, 1)
    row = one.at(dice.uniform(0.3, 0.7))
    one.columns["milliseconds"] = (
        800 * np.exp(0.04 * noise(dice, rows)) * np.where(np.arange(rows) < row, 1, dice.uniform(1.6, 3))
    )
    return trouble(one, ("completed", "torchtitan", "build_nanogpt"), ("slowdown",), row)


def fine_tuning_diverges(dice: Generator, number: int) -> Case:
    """Twenty-five to forty rows: the loss falls to a half, then climbs to twice where it began."""
    rows = int(dice.integers(25, 41))
    one = led(dice, rows, 10, "constant", start=2.0, end=1.1, spread=0.04, held_up=0.0)
    row = int(rows * dice.uniform(0.4, 0.6))
    one.loss = one.loss + 3.2 * ramp(rows, row, row + int(dice.integers(4, 9)))
    return trouble(one, ("trainer_state", "trainer_printed", "llama_factory", "keyed"), WORSE, (row, row + 4))


def validation_alone_breaks(dice: Generator, number: int) -> Case:
    """A log of evaluations alone: NaN from one on, or twice as high."""
    one = led(dice, 1200, 10, spread=0.0, evaluations=int(dice.integers(20, 50)), gap=0.0)
    steps = sorted(one.evaluations)
    at = int(dice.uniform(0.4, 0.8) * len(steps))
    for step in steps[at:]:
        loss, seen = one.evaluations[step]
        one.evaluations[step] = (loss, float("nan") if number % 2 else 2 * seen)
    row = int(np.searchsorted(one.step, steps[at]))
    return trouble(one, ("validations",), ("nonfinite", "eval", "divergence", "overfit"), row, tolerance=0.08)


def wandering_up(dice: Generator, number: int) -> Case:
    """Reinforcement on words: the reward falls step by step by most of its height while the KL grows a hundredfold."""
    rows = 240
    row = int(rows * dice.uniform(0.4, 0.6))
    reward = 0.15 + 0.55 * (1 - np.exp(-np.arange(rows) / 40)) - 0.55 * ramp(rows, row, row + 60)
    one = Training(np.arange(1, rows + 1), 0.01 * noise(dice, rows))
    one.columns = {"reward": reward + 0.05 * noise(dice, rows), "kl": 0.01 * np.exp(0.2 * noise(dice, rows)),
                   "entropy": 0.8 + 0.03 * noise(dice, rows),
                   "grad_norm": np.exp(-1 + 0.3 * noise(dice, rows))}  # fmt: skip
    one.columns["kl"] *= np.exp(4.6 * ramp(rows, row, row + 60))
    return trouble(one, ("trainer_state", "trainer_printed", "keyed", "json_messages"), ("rl",), (row, row + 40))


FAMILIES: tuple[Family, ...] = (
    first_launch_ends_in_nan, cycle_that_breaks, late_leap, bump_then_climb, one_epoch_is_off, one_evaluation_is_off,
    evaluation_at_chance, flat_for_epochs, kl_leaps, policy_stands, answers_leak, scale_goes_down, norm_dies,
    steps_slower, fine_tuning_diverges, validation_alone_breaks, wandering_up,
)  # fmt: skip
