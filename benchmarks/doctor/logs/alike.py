"""Healthy trainings that look ill: one function a family.

In:   a random generator, the number of the case within its family.
Out:  a `Case`. Nothing is wrong with any of them; a warning is a false alarm.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from logs import formats as told
from logs.alike_files import FILES
from logs.case import Case, Family, alike
from logs.curves import Training, by_epoch, rising, training, usual


def stairs(dice: Generator, number: int) -> Case:
    """A few examples, epoch after epoch: the loss falls at each epoch's begin and rises a little within it."""
    epochs = int(dice.integers(2, 7))
    rows = epochs * int(dice.integers(30, 120))
    epoch, part = np.divmod(np.arange(rows) * epochs / rows, 1)
    one = training(dice, rows, int(dice.choice([5, 10])))
    spread = np.exp(dice.uniform(0.03, 0.12) * dice.normal(size=rows))
    one.loss = dice.uniform(0.9, 2) * 0.72**epoch * (1 + 0.04 * part) * spread
    one.loss[:6] *= np.linspace(1.5, 1, 6)
    one.epochs = epochs
    return alike(one, told.TELL_FINETUNING)


def restarts(dice: Generator, number: int) -> Case:
    """Warm restarts: the loss has a hump in each cycle of the learning rate."""
    one = usual(dice, rows=1200, spread=0.015, evaluated=False)
    length = int(dice.choice([300, 400, 240]))
    high = 0.5 * (1 + np.cos(np.pi * (np.arange(1200) % length) / length))
    one.columns["lr"] = one.columns["lr"].max() * (0.01 + 0.99 * high)
    one.loss *= 1 + dice.uniform(0.04, 0.15) * high * (np.arange(1200) >= length)
    return alike(one, told.TELL_RATE)


def second_warm_up(dice: Generator, number: int) -> Case:
    """The learning rate is warmed up again in the middle: the loss and its evaluations rise, then fall."""
    one = training(dice, 1600, 1, evaluate_every=100)
    since = np.arange(800)
    half = 0.02 + 0.49 * (1 + np.cos(np.pi * since / 800))
    one.columns["lr"] = 6e-4 * np.concatenate([np.minimum(1, (since + 1) / 30), np.minimum(1, (since + 1) / 80)])
    one.columns["lr"] *= np.concatenate([half, half])
    hump = np.concatenate([np.zeros(800), 0.35 * (1 - np.exp(-since / 60)) * np.exp(-since / 250)])
    one.loss += hump
    one.evaluations = {step: (seen[0], seen[1] + hump[step]) for step, seen in one.evaluations.items()}
    return alike(one, ("llm_c", "build_nanogpt", "trainer_state", "step_table"))


def warm_up_hump(dice: Generator, number: int) -> Case:
    """The loss rises once as the warm-up ends."""
    one = training(dice, 1200, 1)
    one.loss += dice.uniform(0.6, 1.2) * np.exp(-(((np.arange(1200) - 25) / 12) ** 2))
    return alike(one, told.TELL_RATE)


def late_begin(dice: Generator, number: int) -> Case:
    """The loss stands for up to a third of the run, then falls."""
    rows = 1000
    one = training(dice, rows, 5)
    one.loss = 4.85 * (1 - 0.75 * rising(rows, int(dice.uniform(0.05, 0.3) * rows), 120))
    one.loss *= np.exp(0.01 * dice.normal(size=rows))
    one.loss[:5] += 0.2
    return alike(one, told.TELL_STEPS)


def masked_plateau(dice: Generator, number: int) -> Case:
    """A masked language model: unigrams at once, then a long plateau at 6.9, then all the rest."""
    rows = 1200
    at, until = np.arange(rows), int(dice.uniform(0.2, 0.35) * rows)
    loss = np.where(at < 60, 10.4 - 3.5 * at / 60, 6.9 - 0.1 * np.log1p(at / 60))
    loss = np.where(at < until, loss, 2.2 + (loss[until] - 2.2) * np.exp(-(at - until) / 150))
    one = training(dice, rows, 100)
    one.loss = loss * np.exp(0.008 * dice.normal(size=rows))
    return alike(one, told.TELL_STEPS)


def mixture(dice: Generator, number: int) -> Case:
    """Another mixture of data from the middle on: the loss steps up or down by up to 12%."""
    one = usual(dice, rows=1500, spread=0.02, evaluated=False)
    one.loss[800:] *= 1 + dice.uniform(-0.12, 0.12)
    return alike(one, told.TELL_STEPS)


def curriculum(dice: Generator, number: int) -> Case:
    """Harder data from the middle on: the training loss rises and falls, the evaluation only falls."""
    one = training(dice, 1500, 1, evaluate_every=100)
    one.loss[800:] += dice.uniform(0.15, 0.3) * np.exp(-np.arange(700) / 300)
    return alike(one, told.TELL_EVALUATIONS)


def growing_penalty(dice: Generator, number: int) -> Case:
    """A regulariser in the training loss grows, so that it rises, while the evaluation falls."""
    one = training(dice, 1500, 10, evaluate_every=500)
    one.loss += np.linspace(0, dice.uniform(1.0, 2.0), 1500)
    return alike(one, ("nanogpt", "trainer_state", "tensorboard", "step_table"))


def auxiliary(dice: Generator, number: int) -> Case:
    """One part of the loss rises and is printed beside it."""
    rows = 900
    main = (1.5 * np.exp(-np.arange(rows) / 150) + 0.4) * np.exp(0.05 * dice.normal(size=rows))
    part = 0.05 * np.sqrt(np.arange(rows) / 10) * np.exp(0.1 * dice.normal(size=rows))
    columns = {"ce_loss": main, "reg_loss": part, "lr": np.full(rows, 1e-3)}
    return alike(Training(np.arange(rows), main + 0.1 * part, columns), ("step_table", "json_lines", "tensorboard"))


def late_drift(dice: Generator, number: int) -> Case:
    """A constant learning rate to the end: the loss drifts up by one part in a hundred."""
    one = training(dice, 3000, 10, rates="constant", spread=0.01)
    one.loss[1800:] += np.linspace(0, 0.015 * 3.2, 1200)
    return alike(one, ("wandb_export", "nanogpt", "llm_c", "tensorboard"))


def loss_scaler(dice: Generator, number: int) -> Case:
    """Half precision: the scaler skips ten steps of 1500, whose norms are infinite."""
    one = training(dice, 1500, 1)
    skipped = np.zeros(1500)
    skipped[[0, 1, 2, 3, *dice.integers(100, 1500, 6)]] = 1
    doubled = np.arange(1500) % 400 == 399
    one.columns["loss_scale"] = 2.0 ** (20 + np.cumsum(np.where(skipped > 0, -1, doubled)))
    one.columns["grad_norm"] = np.where(skipped > 0, np.inf, one.columns["grad_norm"])
    one.columns["skipped"] = skipped
    return alike(one, ("megatron", "fairseq", "trainer_state"))


def heavy_norms(dice: Generator, number: int) -> Case:
    """Gradient norms of heavy tails, twenty times the usual now and then."""
    one = usual(dice, rows=1500)
    leaps = np.where(dice.random(1500) < 0.004, 20, 1)
    one.columns["grad_norm"] = np.exp(0.7 * dice.normal(size=1500)) * leaps
    return alike(one, told.TELL_NORM)


def pauses(dice: Generator, number: int) -> Case:
    """Steps that vary, a slow begin, twenty pauses, and a drift of 4%."""
    one = usual(dice, rows=1500)
    times = float(dice.choice([300, 1200])) * np.exp(dice.uniform(0.01, 0.15) * dice.normal(size=1500))
    times *= 1 + 0.04 * np.linspace(0, 1, 1500)
    times[:20] *= 4
    times[dice.integers(0, 1500, 20)] *= 10
    one.columns["milliseconds"] = times
    return alike(one, told.TELL_TIME)


def periodic_pauses(dice: Generator, number: int) -> Case:
    """Evaluations and checkpoints hold every hundredth step up."""
    one = training(dice, 3000, 1, evaluate_every=100)
    times = 330 * np.exp(0.01 * dice.normal(size=3000))
    times[::100] *= 8
    times[::250] *= 5
    one.columns["milliseconds"] = times
    return alike(one, told.TELL_TIME)


def adversaries(dice: Generator, number: int) -> Case:
    """A generator and a discriminator: two losses that go up and down."""
    rows = 800
    at = np.arange(rows)
    generator = 0.9 + 0.6 * np.abs(np.sin(at / 40)) * np.linspace(1, 2, rows) + 0.1 * dice.normal(size=rows)
    discriminator = 1.2 + 0.2 * np.sin(at / dice.uniform(10, 20)) + 0.05 * dice.normal(size=rows)
    one = Training(at, discriminator, {"g_loss": generator}, loss_name="d_loss")
    return alike(one, ("step_table", "json_lines"))


def value_function(dice: Generator, number: int) -> Case:
    """Proximal policy optimisation: the value loss grows with the return."""
    rows = 500
    total = np.linspace(0.05, 3, rows) * np.exp(0.3 * dice.normal(size=rows)) - 0.05
    one = Training(np.arange(rows) * 2048, total)
    one.columns = {
        "policy_loss": -0.01 + 0.02 * dice.normal(size=rows),
        "value_loss": np.linspace(0.1, 6, rows) * np.exp(0.3 * dice.normal(size=rows)),
        "entropy": np.linspace(1.4, 0.5, rows),
        "approx_kl": 0.01 + 0.004 * dice.normal(size=rows),
        "ep_rew_mean": 200 * (1 - np.exp(-np.arange(rows) / 120)) + 8 * dice.normal(size=rows),
    }
    return alike(one, ("step_table", "json_lines", "tensorboard"))


def wild_begin(dice: Generator, number: int) -> Case:
    """The first rows are all over the place."""
    one = training(dice, 800, 1, start=60.0, end=2.0, delay=3, exponent=1.2, spread=0.1)
    one.loss[:15] *= np.exp(dice.normal(size=15))
    return alike(one, told.TELL_STEPS)


def evaluation_blips(dice: Generator, number: int) -> Case:
    """Two evaluations of a hundred are a third off."""
    epochs = 100
    loss = (1.8 * np.exp(-np.arange(epochs) / 20) + 0.3) * np.exp(0.02 * dice.normal(size=epochs))
    evaluation = (loss + 0.1) * np.exp(0.03 * dice.normal(size=epochs))
    evaluation[[40, 71]] *= (1.5, 1.35)
    return alike(by_epoch(loss, evaluation, 1 - 0.3 * loss, 1 - 0.3 * evaluation), told.TELL_EPOCHS)


def rate_drop(dice: Generator, number: int) -> Case:
    """A learning rate that falls to a tenth at two epochs: the loss falls with it at once."""
    at = np.arange(90)
    loss = np.where(at < 30, 2 + 4 * np.exp(-at / 4), np.where(at < 60, 1.35, 1.05)) + 0.03 * dice.normal(size=90)
    return alike(by_epoch(loss, 0.95 * loss + 0.1, 0.78 - 0.08 * loss, 0.75 - 0.08 * loss), told.TELL_EPOCHS)


def memorised(dice: Generator, number: int) -> Case:
    """A few examples are learned by heart: a loss of a thousandth, with blips to three times."""
    one = training(dice, 2000, 1, start=4.6, end=6e-4, exponent=1.3, spread=0.25)
    one.loss[dice.integers(200, 2000, 8)] *= 3
    return alike(one, told.TELL_LOSS)


def data_cycles(dice: Generator, number: int) -> Case:
    """Two sorts of data take turns."""
    one = training(dice, 1500, 1)
    one.loss *= 1 + 0.06 * np.sign(np.sin(np.arange(1500) / dice.uniform(25, 45)))
    return alike(one, told.TELL_STEPS)


def rate_ends_at_zero(dice: Generator, number: int) -> Case:
    """A linear schedule that comes to exactly 0 with the last rows."""
    one = training(dice, 400, 10, start=2.0, end=1.3, rates="linear")
    one.columns["lr"][-2:] = 0.0
    return alike(one, told.TELL_RATE)


def small_last_batch(dice: Generator, number: int) -> Case:
    """A summed loss, and a last batch of each epoch that is a third of the others."""
    one = training(dice, 1000, 1, start=800.0, end=200.0, spread=0.03)
    one.loss[99::100] *= 0.3
    return alike(one, ("step_lines", "step_table", "logger_lines"))


FAMILIES: tuple[Family, ...] = (
    stairs, restarts, second_warm_up, warm_up_hump, late_begin, masked_plateau, mixture, curriculum, growing_penalty,
    auxiliary, late_drift, loss_scaler, heavy_norms, pauses, periodic_pauses, adversaries, value_function, wild_begin,
    evaluation_blips, rate_drop, memorised, data_cycles, rate_ends_at_zero, small_last_batch, *FILES,
)  # fmt: skip
