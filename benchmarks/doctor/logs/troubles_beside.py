"""Trainings that go wrong beside their loss: norms, rates, scales, times, evaluations, rewards.

In:   a random generator, the number of the case within its family.
Out:  a `Case` with what is wrong, and since which row.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from logs import formats as told
from logs.case import Case, Family, trouble
from logs.curves import Floats, Training, by_epoch, training, usual


def rate_zero(dice: Generator, number: int) -> Case:
    """The learning rate is 0 from the middle on; the loss stands."""
    one = training(dice, 600, 10)
    row = one.at(dice.uniform(0.3, 0.6))
    one.columns["lr"][row:] = 0.0
    one.loss[row:] = one.expected[row] * (1 + 0.02 * dice.normal(size=600 - row))
    return trouble(one, (*told.TELL_RATE, "trainer_printed"), ("learning_rate", "plateau"), row)


def norms_explode(dice: Generator, number: int) -> Case:
    """Norms grow ninetyfold, the loss slowly after them."""
    one = training(dice, 1000, 5)
    row = one.at(dice.uniform(0.3, 0.6))
    since = np.maximum(0, np.arange(1000) - row)
    one.columns["grad_norm"] *= np.exp(np.minimum(4.5, since / 60))
    one.loss += np.minimum(2, 0.004 * since)
    return trouble(one, told.TELL_NORM, ("exploding", "divergence"), (row, row + 120))


def norms_zero(dice: Generator, number: int) -> Case:
    """Norms are exactly 0 from a row on, and the loss stands."""
    one = training(dice, 1000, 5)
    row = one.at(dice.uniform(0.3, 0.6))
    one.columns["grad_norm"][row + 1 :] = 0.0
    one.loss[row:] = one.loss[row] * np.exp(0.01 * dice.normal(size=1000 - row))
    return trouble(one, told.TELL_NORM, ("zero", "vanishing"), (row, row + 120))


def scale_collapses(dice: Generator, number: int) -> Case:
    """Half precision: each step overflows, and the loss scale halves down to 1, or to almost nothing."""
    one = training(dice, 600, 10)
    row = one.at(dice.uniform(0.3, 0.7))
    floor = 2.0**-20 if number % 2 else 1.0
    halved = 65536.0 * 2.0 ** (-4 * np.maximum(0, np.arange(600) - row).clip(max=30))
    one.columns["loss_scale"] = np.maximum(floor, halved)
    one.columns["skipped"] = np.where(np.arange(600) < row, 0.0, 10.0)
    one.columns["grad_norm"][row:] = np.inf
    one.loss[row:] = one.loss[row] + 0.03 * dice.normal(size=600 - row)
    return trouble(one, told.TELL_SCALE, ("loss_scale", "nonfinite"), row)


def slow_down(dice: Generator, number: int) -> Case:
    """Steps take 1.5 to 2.6 times as long from a row on."""
    one = usual(dice, rows=1500)
    row = one.at(dice.uniform(0.3, 0.7))
    times = 400 * np.exp(0.04 * dice.normal(size=1500))
    times[row:] *= float(dice.choice([1.5, 1.8, 2.6]))
    one.columns["milliseconds"] = times
    return trouble(one, told.TELL_TIME, ("slowdown",), row)


def overfitting(dice: Generator, number: int) -> Case:
    """A classifier: evaluations rise again after a tenth to a third of the epochs."""
    epochs = int(dice.choice([40, 80, 200]))
    at, best = np.arange(epochs), int(dice.uniform(0.1, 0.35) * epochs)
    evaluation = 1 + 1.2 * np.exp(-at / (best / 3 + 1))
    evaluation += np.maximum(0, at - best) / epochs * dice.uniform(0.4, 1.5)
    evaluation *= np.exp(0.015 * dice.normal(size=epochs))
    loss = 2.2 * np.exp(-at / (best + 3)) + 0.02
    one = by_epoch(loss, evaluation, 1 - loss / 3, 0.8 - 0.3 * (evaluation - 1))
    onset = (int(0.6 * best), int(best + 0.25 * epochs))
    return trouble(one, told.TELL_EPOCHS, ("overfit",), onset, tolerance=0.1)


def overfitting_in_steps(dice: Generator, number: int) -> Case:
    """A fine-tuning of twenty epochs: evaluations rise from a fifth of the steps on."""
    one = training(dice, 300, 20, start=2.4, end=0.15, exponent=0.5)
    one.epochs = 20
    for row in range(10, 300, 10):
        seen = 1.35 + 0.9 * np.exp(-row / 30) + dice.uniform(0.003, 0.004) * max(0, row - 60)
        one.evaluations[int(one.step[row])] = (float(one.expected[row]), float(seen))
    return trouble(one, ("trainer_state", "trainer_printed", "lightning", "tensorboard"), ("overfit",), (40, 120))


def evaluation_not_a_number(dice: Generator, number: int) -> Case:
    """Evaluations alone are NaN from one on."""
    one = training(dice, 1000, 10, evaluate_every=500)
    begin = int(one.step[one.at(dice.uniform(0.3, 0.7))])
    steps = sorted(one.evaluations)
    first = next(step for step in steps if step >= begin)
    for step in steps:
        if step >= first:
            one.evaluations[step] = (one.evaluations[step][0], float("nan"))
    return trouble(one, told.TELL_EVALUATIONS, ("nonfinite", "eval"), first // 10)


def evaluation_leaps(dice: Generator, number: int) -> Case:
    """Evaluations alone are higher by 1.6 from one on, as with another vocabulary."""
    one = training(dice, 1000, 10, evaluate_every=500)
    first = int(dice.integers(6, 15)) * 500
    for step, (loss, seen) in one.evaluations.items():
        one.evaluations[step] = (loss, seen + 1.6 * (step >= first))
    return trouble(one, told.TELL_EVALUATIONS, ("eval", "overfit"), first // 10, tolerance=0.06)


def rewarded(dice: Generator, rows: int, reward: Floats, kl: Floats, **columns: Floats) -> Training:
    """A training of a policy; all (rows,)."""
    one = Training(np.arange(1, rows + 1), 0.01 * dice.normal(size=rows))
    one.columns = {
        "grad_norm": np.exp(-1 + 0.4 * dice.normal(size=rows)),
        "lr": np.full(rows, 1e-6),
        "reward": reward,
        "kl": kl,
        "completion_length": 200 + 30 * dice.normal(size=rows),
    }
    one.columns |= columns
    return one


def policy_fails(dice: Generator, number: int) -> Case:
    """The KL blows up while the reward falls, the reward is gone at once, or it falls step by step."""
    rows = 250
    part, row = np.arange(rows) / rows, int(dice.uniform(0.4, 0.75) * rows)
    since = np.maximum(0, np.arange(rows) - row)
    kl = 0.01 + 0.05 * part + 0.005 * np.abs(dice.normal(size=rows))
    reward = 0.3 + 0.4 * (1 - np.exp(-5 * part)) + 0.08 * dice.normal(size=rows)
    if number % 3 == 0:
        kl *= np.exp(np.minimum(6, 0.3 * since))
        reward -= np.minimum(0.6, 0.03 * since)
    elif number % 3 == 1:
        reward = np.where(since > 0, 0.02 + 0.02 * dice.normal(size=rows), reward)
    else:
        reward -= np.minimum(0.62, 0.02 * since)
    one = rewarded(dice, rows, reward, kl)
    if number % 2:
        one.columns["rewards/mean"] = one.columns.pop("reward")
    return trouble(one, ("trainer_state", "tensorboard", "trainer_printed"), ("rl",), (row, row + 25))


def entropy_collapses(dice: Generator, number: int) -> Case:
    """The policy says one thing: its entropy goes to almost nothing."""
    rows = 300
    part, row = np.arange(rows) / rows, int(dice.uniform(0.25, 0.45) * rows)
    entropy = 1.2 * np.exp(-np.maximum(0, np.arange(rows) - row) / 20) + 0.004
    reward = 0.2 + 0.6 * (1 - np.exp(-4 * part)) + 0.08 * dice.normal(size=rows)
    kl = 0.0005 + 0.01 * part + 0.001 * np.abs(dice.normal(size=rows))
    one = rewarded(dice, rows, reward, kl, entropy=entropy)
    return trouble(one, ("tensorboard", "trainer_state", "trainer_printed"), ("rl",), (row, min(rows - 1, row + 120)))


def no_reward(dice: Generator, number: int) -> Case:
    """The reward function fails from the start: no reward, no advantage, no gradient."""
    rows = 300
    one = rewarded(dice, rows, np.zeros(rows), 0.001 * np.abs(dice.normal(size=rows)), reward_std=np.zeros(rows))
    one.loss = np.zeros(rows)
    one.columns["grad_norm"] = np.zeros(rows)
    return trouble(one, ("trainer_state", "trainer_printed", "tensorboard"), ("rl", "zero"), None)


BESIDE: tuple[Family, ...] = (
    rate_zero, norms_explode, norms_zero, scale_collapses, slow_down, overfitting, overfitting_in_steps,
    evaluation_not_a_number, evaluation_leaps, policy_fails, entropy_collapses, no_reward,
)  # fmt: skip
