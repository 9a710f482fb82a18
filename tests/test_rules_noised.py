"""The same examples beneath another noise: what is said of them, and what the watch sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings, only

from barograph.doctor.rules.data.noised import NoisedAgain
from barograph.probes.model import noising

LOOKS = np.r_[2:9, 18, 25, 32, 49, 56, 63, 80, 87, 94, 101, 118]
MARKS = np.random.default_rng(5).normal(size=400)
LAST = int(LOOKS[-1])


def said(marks: Any, cuts: Any = (), **config: Any) -> list[tuple[str, str]]:
    rows = {"model/clean_mark": (LOOKS, np.asarray(marks, float))}
    found = findings([NoisedAgain()], rows, facts={"config": config}, cuts=cuts)
    return [(str(one.severity), one.key) for one in only(found, "noised_again")]


@pytest.mark.parametrize(
    ("marks", "config", "told"),
    [
        (MARKS[LOOKS], {}, []),  # drawn anew
        (MARKS[LOOKS // 20], {}, [("warning", "stays")]),  # a batch for each twenty steps
        (0 * LOOKS + 1.3 + 1e-6 * MARKS[LOOKS], {"batch_size": 32}, [("warning", "stays")]),
        (0 * LOOKS + 1.3, {}, [("info", "stays")]),  # perhaps all there is
        (0 * LOOKS + 1.3, {"batch_size": 32, "overfit_batches": 1}, [("info", "stays")]),
        (MARKS[LOOKS % 16], {}, [("info", "order")]),
        (MARKS[LOOKS % 2], {}, []),  # of two batches
        (MARKS[LOOKS // 3], {"batch_size": 32}, []),  # three steps each
    ],
)
@pytest.mark.parametrize("cuts", [(), (7, 19, 60)])
def test_batches_that_come_again_beneath_another_noise(
    marks: Any, config: dict[str, Any], told: list[tuple[str, str]], cuts: tuple[int, ...]
) -> None:
    assert said(marks, cuts, **config) == told


torch = pytest.importorskip("torch")


def mark(examples: Any, seed: int, *, to_noise: bool = False, itself: bool = False, most: float = 1.0) -> float:
    """Of a batch of these examples, with noise and times of this seed. itself: the examples are the targets."""
    torch.manual_seed(seed)
    time, noise = torch.rand(len(examples)) * most, torch.randn_like(examples)
    share = (time / most)[:, None]
    given = (1 - share) * noise + share * examples
    target = examples if itself else noise - examples if to_noise else examples - noise
    output = torch.randn_like(target)
    found = noising.figures(given, time, tuple(given.shape), output, (output - target) * 2 / output.numel(),
                            output.numel())  # fmt: skip
    return dict(zip(noising.FIGURES, found.tolist(), strict=True))["clean_mark"]


@pytest.mark.parametrize(
    ("more", "normal"),
    [
        ({}, False),
        ({"to_noise": True}, False),
        ({"itself": True, "most": 1000.0}, False),
        ({}, True),  # of which neighbours are alike
        ({"to_noise": True}, True),
    ],
)
def test_the_mark_is_that_of_the_examples_whatever_their_noise_is(more: dict[str, Any], normal: bool) -> None:
    torch.manual_seed(1)
    some, others = (
        (torch.randn(32, 16, 1) + 0.1 * torch.randn(32, 16, 4)).flatten(1) if normal else torch.rand(32, 64) ** 3
        for _ in range(2)
    )
    marks = [mark(some, seed, **more) for seed in range(4)]
    assert max(marks) - min(marks) < 1e-5 * max(map(abs, marks))
    assert abs(mark(others, 1, **more) - marks[0]) > 1e-2


def test_noise_has_no_mark() -> None:
    dice = torch.Generator().manual_seed(2)
    noise = torch.randn(32, 64, generator=dice)
    assert np.isnan(mark(noise, 1)) and np.isnan(mark(noise, 1, itself=True, most=1000.0))
