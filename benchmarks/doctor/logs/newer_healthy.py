"""Healthy trainings of the second set, its open half, most of which look ill to a nervous doctor.

In:   a random generator, the number of the case within its family.
Out:  a `Case`.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from logs import formats as told
from logs.case import Case, Family, alike
from logs.curves import Training, noise
from logs.newer_curves import epochs_of, evaluate, led, lift, policy_of, wandering


def decays_at_the_end(dice: Generator, number: int) -> Case:
    """A constant rate, and a fast decay over the last 15%: the loss falls faster there, evaluations too."""
    one = led(dice, int(dice.choice([300, 1000, 4000])), 10, "stable", held_up=float(dice.uniform(0.05, 0.12)),
              spread=float(dice.uniform(0.01, 0.05)), evaluations=20)  # fmt: skip
    return Case(one, told.NEWER_EVALUATIONS)


def begins_anew_twice(dice: Generator, number: int) -> Case:
    """A cosine that begins anew, each time twice as long: the loss goes up at each, and ends lower."""
    one = led(dice, 1400, 5, "restarts", held_up=float(dice.uniform(0.06, 0.14)), evaluations=28)
    return alike(one, ("keyed", "json_messages", "trainer_state", "step_table", "pipeline"))


def triangles(dice: Generator, number: int) -> Case:
    """The rate goes up and down five times, and the loss with it by a twelfth."""
    one = led(dice, 1000, 1, "triangles", held_up=float(dice.uniform(0.05, 0.1)), start=4.6, end=1.5, spread=0.03)
    return alike(one, ("keyed", "json_messages", "trainer_state", "step_table", "batches_of_epochs"))


def three_epochs(dice: Generator, number: int) -> Case:
    """A fine-tuning of three epochs: the loss goes down by a fifth at each, the evaluation falls and stays."""
    each = int(dice.integers(40, 150))
    rows = 3 * each
    one = led(dice, rows, 10, "cosine", start=1.5, end=1.05, spread=0.0, held_up=0.0)
    one.epochs = 3
    seen = one.expected.copy()
    one.expected = one.expected * 0.82 ** (np.arange(rows) // each)
    one.loss = one.expected * np.exp(wandering(dice, rows, 0.06))
    for row in np.linspace(each / 2, rows - 1, 6).astype(int):
        one.evaluations[int(one.step[row])] = (
            float(one.expected[row]),
            float(seen[row] * (1.01 + 0.003 * dice.normal())),
        )
    return alike(one, ("trainer_state", "trainer_printed", "llama_factory", "lightning", "keyed"))


def players_in_balance(dice: Generator, number: int) -> Case:
    """A generator and a discriminator whose losses wander about a level, with leaps."""
    rows = 1500
    leaps = np.where(dice.random(rows) < 0.01, dice.uniform(1.5, 3), 1)
    one = Training(np.arange(rows), np.abs(0.9 + 0.25 * noise(dice, rows, 0.8)) * leaps + 0.1)
    one.columns = {"g_loss": np.abs(2.0 + 0.8 * noise(dice, rows, 0.8)) * leaps[::-1] + 0.1}
    return alike(one, ("adversarial",))


def policy_climbs(dice: Generator, number: int) -> Case:
    """A reward that climbs with long dips, and ends near its best; the KL is steady, the value loss wide."""
    rows = int(dice.choice([150, 400]))
    level = 15 + 210 * (1 - np.exp(-np.arange(rows) / (rows / 4)))
    dips = 1 - 0.15 * np.clip(noise(dice, rows, 0.95), 0, 2)
    return alike(policy_of(dice, rows, level * dips + 6 * noise(dice, rows, 0.3)), told.NEWER_POLICIES)


def twenty_rows(dice: Generator, number: int) -> Case:
    """A fine-tuning of fifteen to twenty-five rows with much noise, one or two evaluations."""
    rows = int(dice.integers(15, 26))
    one = led(dice, rows, int(dice.choice([5, 10, 25])), "linear", start=float(dice.uniform(1.2, 2.6)),
              end=float(dice.uniform(0.7, 1.1)), spread=float(dice.uniform(0.05, 0.15)), held_up=0.0)  # fmt: skip
    evaluate(dice, one, int(dice.integers(0, 3)), 0.05)
    return Case(one, ("trainer_state", "trainer_printed", "llama_factory", "keyed", "losses_first"))


def validations_alone(dice: Generator, number: int) -> Case:
    """A log of evaluations alone, which fall and flatten, with noise of a hundredth."""
    one = led(dice, 1000, int(dice.choice([1, 50])), "cosine", spread=0.0)
    evaluate(dice, one, int(dice.integers(10, 60)), 0.0, float(dice.uniform(0.002, 0.01)))
    return Case(one, ("validations",))


def epochs_alone(dice: Generator, number: int) -> Case:
    """The training loss of each epoch and nothing else."""
    one = epochs_of(dice, int(dice.integers(12, 200)), start=float(dice.uniform(0.8, 2.3)), end=0.3, spread=0.03)
    return Case(one, ("epochs_short",))


def both_sets(dice: Generator, number: int) -> Case:
    """A classifier with loss and accuracy of both sets: the evaluation flattens at a tenth above, and is noisy."""
    one = epochs_of(dice, int(dice.integers(15, 120)), start=2.2, end=float(dice.uniform(0.3, 0.7)),
                    gap=float(dice.uniform(0.05, 0.12)), spread=float(dice.uniform(0.01, 0.04)))  # fmt: skip
    return Case(one, told.NEWER_EPOCHS)


def perplexities(dice: Generator, number: int) -> Case:
    """Perplexity alone is printed."""
    one = led(dice, int(dice.choice([120, 600])), 200, str(dice.choice(["root", "linear"])), start=9.2, end=4.4,
              spread=float(dice.uniform(0.005, 0.02)))  # fmt: skip
    return Case(one, ("perplexities",))


def harder_data_in_steps(dice: Generator, number: int) -> Case:
    """Longer sequences from two thirds on: the loss steps up by up to 8%, evaluations on the old length only fall."""
    rows = 1500
    one = led(dice, rows, 10, "cosine", spread=0.02, evaluations=25)
    row = one.at(dice.uniform(0.5, 0.7))
    lift(one, 1 + dice.uniform(0.03, 0.08) * (np.arange(rows) >= row), evaluated=False)
    return alike(one, told.NEWER_EVALUATIONS)


FAMILIES: tuple[Family, ...] = (
    decays_at_the_end, begins_anew_twice, triangles, three_epochs, players_in_balance, policy_climbs, twenty_rows,
    validations_alone, epochs_alone, both_sets, perplexities, harder_data_in_steps,
)  # fmt: skip
