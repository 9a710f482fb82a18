"""Healthy trainings that are noisy by nature, and how many of them the rules warn of.

    python benchmarks/doctor/noisy.py [--runs 100] [--first-seed 0]

In:   nothing. Each run is a small training in NumPy: a language model that sees one short sequence a step, one that
      stands at its floor, a policy trained by its own rewards, and two encoders trained by contrast.
Out:  findings of severity warning or critical, and their number.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.facts import facts_of

Columns = dict[str, tuple[Any, Any]]  # name → steps, values


def _softmax(logits: Any) -> Any:
    exp = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


def _log(rows: list[dict[str, float]], every: int = 1) -> Columns:
    """Rows by step as columns; a name may be missing in some."""
    names = dict.fromkeys(name for row in rows for name in row)
    found = {name: [(at * every, row[name]) for at, row in enumerate(rows) if name in row] for name in names}
    return {name: (np.array([at for at, _ in some]), np.array([value for _, value in some]))
            for name, some in found.items()}  # fmt: skip


def batch_of_one(dice: np.random.Generator) -> Columns:
    """A bigram model of a random language, one sequence of 8 to 32 tokens a step, with Adam and an evaluation."""
    width, steps = 48, int(dice.integers(600, 1500))
    language = _softmax(dice.normal(0, dice.uniform(1, 2.5), (width, width)))
    edges = language.cumsum(axis=1)
    weights, first, second = (np.zeros((width, width)) for _ in range(3))
    length, rate = int(dice.integers(8, 32)), dice.uniform(0.005, 0.03)
    held = dice.integers(0, width, 512)
    held_next = (edges[held] > dice.random(512)[:, None]).argmax(axis=1)
    rows: list[dict[str, float]] = []
    for step in range(steps):
        tokens = [int(dice.integers(width))]
        for draw in dice.random(length):
            tokens.append(int(np.searchsorted(edges[tokens[-1]], draw).clip(0, width - 1)))
        inputs, targets = np.array(tokens[:-1]), np.array(tokens[1:])
        guess = _softmax(weights[inputs])
        loss = -np.log(guess[np.arange(length), targets]).mean()
        guess[np.arange(length), targets] -= 1
        gradient = np.zeros_like(weights)
        np.add.at(gradient, inputs, guess / length)
        now = rate * min(1.0, (step + 1) / 50) * (0.55 + 0.45 * np.cos(np.pi * step / steps))
        first, second = 0.9 * first + 0.1 * gradient, 0.99 * second + 0.01 * gradient**2
        weights -= now * first / (1 - 0.9 ** (step + 1)) / (np.sqrt(second / (1 - 0.99 ** (step + 1))) + 1e-8)
        rows.append({"train/loss": loss, "train/norm": float(np.linalg.norm(gradient)), "train/lr": now})
        if step % 100 == 99:
            guess = _softmax(weights[held])
            rows[-1]["eval/loss"] = -np.log(guess[np.arange(512), held_next]).mean()
    return _log(rows)


def at_the_floor(dice: np.random.Generator) -> Columns:
    """Fine-tuning that has little left to learn: the loss of single sequences of very unequal difficulty."""
    steps = int(dice.integers(200, 1200))
    level = dice.uniform(1, 4) * (1 - 0.03 * np.arange(steps) / steps)
    loss = np.maximum(level + dice.normal(0, dice.uniform(0.2, 0.3), steps) * level, 0.05 * level)
    norm = np.exp(dice.normal(0, 0.5, steps)) * loss
    every = int(dice.choice([1, 10]))
    rows = [{"train/loss": a, "train/norm": b, "train/lr": 2e-5} for a, b in zip(loss, norm, strict=True)]
    for at in range(49, steps, 50):
        rows[at]["eval/loss"] = float(level[at] * (1 + dice.normal(0, 0.004)))
    return _log(rows, every)


def policy(dice: np.random.Generator) -> Columns:
    """REINFORCE with groups of 8 answers over prompts of unequal difficulty: its loss is around 0."""
    prompts, answers, steps = 64, 12, int(dice.integers(300, 900))
    worth = (dice.random((prompts, answers)) < 0.15).astype(float)
    weights = dice.normal(0, 0.3, (prompts, answers))
    reference, rate = _softmax(weights), dice.uniform(0.3, 1.2)
    rows: list[dict[str, float]] = []
    for _ in range(steps):
        some = dice.integers(0, prompts, 8)
        guess = _softmax(weights[some])
        drawn = np.array([dice.choice(answers, 8, p=row) for row in guess])
        reward = worth[some[:, None], drawn]
        advantage = reward - reward.mean(axis=1, keepdims=True)
        chance = np.take_along_axis(guess, drawn, axis=1)
        gradient = np.zeros_like(weights)
        for at, prompt in enumerate(some):
            for one, gain in zip(drawn[at], advantage[at], strict=True):
                gradient[prompt] += gain * ((np.arange(answers) == one) - guess[at]) / 64
        rows.append({
            "train/loss": float(-(advantage * np.log(chance)).mean()), "train/reward": float(reward.mean()),
            "train/norm": float(np.linalg.norm(gradient)), "train/lr": 1e-5,
            "train/kl": float((guess * np.log(guess / reference[some])).sum(axis=1).mean()),
            "train/entropy": float(-(guess * np.log(guess + 1e-12)).sum(axis=1).mean()),
            "train/clip_ratio": float(abs(dice.normal(0, 0.01))),
            "train/frac_reward_zero_std": float((reward.std(axis=1) == 0).mean()),
        })  # fmt: skip
        weights += rate * gradient
    return _log(rows)


def contrast(dice: np.random.Generator) -> Columns:
    """Two linear encoders of noisy views of the same thing, trained to tell pairs apart in small batches."""
    size, width, batch, steps = 24, 12, int(dice.choice([8, 16])), int(dice.integers(300, 800))
    views = [dice.normal(0, 1, (size, size)) / np.sqrt(size) for _ in range(2)]
    encoders = [dice.normal(0, 1, (size, width)) / np.sqrt(size) for _ in range(2)]
    rate, noise = dice.uniform(0.02, 0.1), dice.uniform(0.3, 1.0)
    rows: list[dict[str, float]] = []

    def batch_of() -> list[Any]:
        thing = dice.normal(0, 1, (batch, size))
        return [thing @ view + noise * dice.normal(0, 1, (batch, size)) for view in views]

    for step in range(steps):
        inputs = batch_of()
        out = [given @ encoder for given, encoder in zip(inputs, encoders, strict=True)]
        logits = out[0] @ out[1].T / np.sqrt(width)
        guess = _softmax(logits)
        loss = -np.log(np.diag(guess) + 1e-12).mean()
        error = (guess - np.eye(batch)) / batch / np.sqrt(width)
        gradients = [inputs[0].T @ (error @ out[1]), inputs[1].T @ (error.T @ out[0])]
        norm = float(np.sqrt(sum((one**2).sum() for one in gradients)))
        for encoder, gradient in zip(encoders, gradients, strict=True):
            encoder -= rate * gradient * min(1.0, 1.0 / norm)
        rows.append({"train/loss": float(loss), "train/norm": norm, "train/lr": rate,
                     "train/accuracy": float((logits.argmax(axis=1) == np.arange(batch)).mean())})  # fmt: skip
        if step % 50 == 49:
            out = [given @ encoder for given, encoder in zip(batch_of(), encoders, strict=True)]
            guess = _softmax(out[0] @ out[1].T / np.sqrt(width))
            rows[-1]["eval/loss"] = float(-np.log(np.diag(guess) + 1e-12).mean())
    return _log(rows)


TRAININGS: tuple[Callable[[np.random.Generator], Columns], ...] = (batch_of_one, at_the_floor, policy, contrast)


def warnings_of(seed: int) -> list[str]:
    """What the rules warn of in one training: one of each kind in turn."""
    training = TRAININGS[seed % len(TRAININGS)]
    examiner = Examiner(facts=facts_of({}))
    for name, (steps, values) in training(np.random.default_rng(seed)).items():
        examiner.seen.add(name, steps, values, steps.astype(np.int64) * 100_000)
    examiner.seen.facts["finished"] = True
    examiner.examine()
    assert not examiner.failed, examiner.failed
    return [
        f"{training.__name__} {seed}: {finding.severity} {finding.rule}: {finding.message}"
        for finding in examiner.incidents()
        if finding.severity != "info"
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=0)
    given = parser.parse_args()
    found = [line for seed in range(given.runs) for line in warnings_of(given.first_seed + seed)]
    print(*found, f"{len(found)} warnings in {given.runs} noisy, healthy trainings", sep="\n")


if __name__ == "__main__":
    main()
