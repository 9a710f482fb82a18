"""Whole trainings as all rules judge them: noisy ones that are well, epochs that are learnt by heart, late rises."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.finding import Finding


def incidents(step: np.ndarray, series: Mapping[str, np.ndarray], rows: int = 0) -> list[Finding]:
    """The incidents of a run that is over, examined whenever so many rows have come, 0 for all at once."""
    examiner = Examiner(facts={"planned_steps": int(step[-1])})
    edges = range(0, len(step), rows or len(step))
    for low in edges:
        here = slice(low, low + (rows or len(step)))
        for name, values in series.items():
            known = ~np.isnan(values[here])
            if known.any():
                examiner.seen.add(name, step[here][known], values[here][known], step[here][known] * 1_000_000)
        examiner.examine()
    examiner.seen.facts["finished"] = True
    examiner.catch_up()
    return examiner.incidents()


def warned(found: list[Finding]) -> list[tuple[str, str, int]]:
    return [(item.rule, item.severity, item.step) for item in found if item.severity != "info"]


def noisy(kind: str, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A training that is well and whose losses are mostly noise."""
    rng = np.random.default_rng(seed)
    count = int(rng.choice([150, 300, 1000]))
    step = np.arange(1, count + 1)
    level, tau = rng.uniform(0.5, 4), rng.choice([8, 50, 300])
    base = level * (1 + rng.uniform(0.5, 2) * np.exp(-step / tau))
    waves = np.convolve(rng.normal(0, 0.035, count + 60), 0.9 ** np.arange(60))[60 : 60 + count]
    loss = {
        "batch of one": lambda: np.maximum(0.1 * level, base + rng.normal(0, 0.25 * level, count)),
        "gamma": lambda: base * rng.gamma(4, 1 / 4, count),
        "lognormal": lambda: base * np.exp(rng.normal(0, 0.6, count)),
        "wandering": lambda: base * np.exp(waves),
        "contrastive": lambda: 5.5 * (0.3 + 0.7 * np.exp(-4 * step / count)) * np.exp(rng.normal(0, 0.08, count)),
    }[kind]()
    at = np.arange(count // 15, count, count // 15)
    evaluations = np.full(count, np.nan)
    evaluations[at] = (loss if kind == "contrastive" else base)[at] * np.exp(rng.normal(0, 0.02, len(at)))
    norm = np.exp(rng.normal(0, 0.5, count)) * (1 + 2 * np.exp(-step / tau))
    return step, {"train/loss": loss, "train/grad_norm": norm, "eval/loss": evaluations}


@pytest.mark.parametrize("kind", ["batch of one", "gamma", "lognormal", "wandering", "contrastive"])
def test_noise_alone_warns_of_nothing(kind: str) -> None:
    alarms = {seed: found for seed in range(30) if (found := warned(incidents(*noisy(kind, seed))))}
    assert len(alarms) <= (kind in ("gamma", "wandering")), alarms  # five evaluations tell little of their noise


@pytest.mark.parametrize("bump", [0.0, 1.2, 4.0])
@pytest.mark.parametrize("rise", [0.35, 0.8])
def test_a_steady_rise_to_the_end_is_found_whatever_came_before(bump: float, rise: float) -> None:
    down = 4.4 * (1 + bump * (1 - np.arange(1, 41) / 40)) + 0.01 * np.sin(np.arange(40) * 7)
    up = 4.4 * (1 + rise * (1 - np.exp(-np.arange(1, 41) / 25)))
    loss = np.concatenate([[4.8] * 6, down, up])
    (finding,) = (one for one in incidents(np.arange(1, 87), {"train/loss": loss}) if one.severity != "info")
    assert finding.rule == "divergence" and 40 <= finding.step <= 52


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("train", "evaluations", "rows"),
    [
        ((3.2, 0.9), (3.25, 3.9), 200),
        ((2.8, 2.0, 1.1, 0.5, 0.15), (2.85, 2.6, 2.7, 3.0, 3.6), 150),
        ((2.6, 0.2), (2.62, 3.4), 300),
    ],
)
def test_epochs_that_are_learnt_by_heart_are_overfitting_once(
    train: tuple[float, ...], evaluations: tuple[float, ...], rows: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    step = np.arange(1, rows * len(train) + 1)
    epoch = (step - 1) // rows
    loss = np.array(train)[epoch] * np.exp(rng.normal(0, 0.08, len(step)))
    value = np.array(evaluations)[epoch] * np.exp(rng.normal(0, 0.003, len(step))) * (1 - 0.02 * (step % rows) / rows)
    found = incidents(step, {"train/loss": loss, "eval/loss": np.where(step % 50 == 0, value, np.nan)})
    assert [rule for rule, _, _ in warned(found)] == ["overfitting"]
    assert not any("labels shifted" in cause for finding in found for cause in finding.causes)


@pytest.mark.parametrize("norm", ["falls before", "level"])
@pytest.mark.parametrize(("factor", "norms"), [(3, 3), (6, 6), (4, 2.5), (32, 7), (1 / 8, 1 / 8), (0.25, 0.5)])
def test_a_clean_factor_of_the_loss_is_the_first_cause(factor: float, norms: float, norm: str) -> None:
    rng = np.random.default_rng(3)
    step = np.arange(1, 321)
    later = step >= 190
    loss = (1.9 + 3 * np.exp(-step / 40) + rng.normal(0, 0.03, 320)) * np.where(later, factor, 1)
    size = np.where((step >= 60) & (norm == "falls before"), 0.3, 1.0) * np.exp(rng.normal(0, 0.08, 320))
    head = incidents(step, {"train/loss": loss, "train/grad_norm": size * np.where(later, norms, 1)})[0]
    assert head.step in range(188, 193) and "accumulation" in head.causes[0]
    assert not any("learning rate" in remedy for remedy in head.remedies)


@pytest.mark.parametrize("seed", range(8))
def test_other_labels_are_no_clean_factor(seed: int) -> None:
    rng = np.random.default_rng(seed)
    step = np.arange(1, 321)
    later = step >= 190
    loss = np.where(later, rng.uniform(3.5, 6) * (1 + 0.3 * np.exp(-(step - 190) / 30)), 1.9 + 3 * np.exp(-step / 40))
    norm = np.exp(rng.normal(0, 0.08, 320)) * np.where(later, rng.uniform(2, 4), 1)
    found = incidents(step, {"train/loss": loss * np.exp(rng.normal(0, 0.02, 320)), "train/grad_norm": norm})
    assert warned(found) and not any("accumulation" in item.causes[0] for item in found if item.severity == "critical")
