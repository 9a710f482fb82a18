"""Lengths of texts, and batches that come by them, as the watch sees them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rule_curves

from barograph.doctor.rules.data.lengths import SortedLengths
from barograph.probes.model.examples import lengths

torch = pytest.importorskip("torch")
from test_watch_examples import Reader, train  # noqa: E402


@pytest.mark.parametrize("left", [False, True])
def test_lengths_are_those_without_padding(left: bool) -> None:
    rows = [list(range(1, 13)), [*range(1, 8), *[0] * 5], [*range(1, 10), *[0] * 3], list(range(2, 14))]
    mean, *_ = lengths(torch.tensor([row[::-1] if left else row for row in rows])).tolist()
    assert mean == pytest.approx((12 + 7 + 9 + 12) / 4)


@pytest.mark.parametrize("kind", ["shuffled", "sorted", "falling", "saw", "pieces", "buckets", "planned"])
def test_batches_that_come_by_length_are_proven(tmp_path: Path, kind: str) -> None:
    generator = torch.Generator().manual_seed(9)

    def batch(step: int) -> tuple[Any, Any]:
        if kind == "saw":  # the same batches in each epoch; of pieces that are sorted one by one they are new
            generator.manual_seed(step % 50)
        rising = step % 50 / 50
        share = {"sorted": step / 200, "falling": 1 - step / 200, "saw": rising, "pieces": rising}.get(kind, 0.0)
        if kind == "buckets":
            share = float(torch.rand(1, generator=generator))
        sizes = 6 + 20 * share + 3 * torch.rand(16, generator=generator)
        if kind == "shuffled":
            sizes = 6 + 20 * torch.rand(16, generator=generator)
        elif kind == "planned":
            sizes = torch.full((16,), 6 + step // 10)
        rows = torch.randint(1, 40, (16, 30), generator=generator)
        rows[torch.arange(30)[None] >= sizes[:, None].floor()] = 0
        return rows, rows[:, 0] % 3

    found = train(tmp_path, Reader(classes=3), batch, steps=200)
    assert (found.get("sorted_lengths") == "warning") == (kind in ("sorted", "falling", "saw"))


@pytest.mark.parametrize("pieces", [(), (40, 149, 152)])
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("each epoch", True), ("long first", True), ("planned", False), ("random", False), ("buckets", False),
        ("pieces", False),
    ],
)  # fmt: skip
def test_lengths_of_all_batches_that_rise_and_begin_anew_are_proven(
    kind: str, says: bool, pieces: tuple[int, ...]
) -> None:
    steps, dice = np.arange(300), np.random.default_rng(1)
    lengths = {
        "each epoch": 5 + steps % 150 // 6, "long first": 30 - steps % 150 // 6, "planned": 5 + steps // 12,
        "random": dice.integers(5, 30, 300), "buckets": 5 + 5 * dice.integers(0, 5, 300),
        "pieces": np.sort(dice.uniform(5, 30, (12, 25)))[:, ::-1].ravel(),  # shuffled, then sorted 25 by 25
    }[kind]  # fmt: skip
    series = {"data/length_mean": (steps, lengths.astype(float))}
    judged = rule_curves.found([SortedLengths()], series, pieces)
    assert [one.rule for one in judged] == (["sorted_lengths"] if says else [])
    grouped = {"config": {"group_by_length": True}}
    assert not rule_curves.found([SortedLengths()], series, pieces, **grouped)
    rewarded = series | {"reward": (steps, 0.001 * steps)}  # lengths of what a policy writes
    assert not rule_curves.found([SortedLengths()], rewarded, pieces)


@pytest.mark.parametrize("pieces", [(), (11, 30)])
@pytest.mark.parametrize(("kind", "says"), [("each epoch", True), ("planned", False), ("buckets", False)])
def test_batches_of_one_length_each_have_to_rise_and_to_begin_anew(
    kind: str, says: bool, pieces: tuple[int, ...]
) -> None:
    steps, dice = np.array([*range(8), *range(18, 300, 9)]), np.random.default_rng(1)
    lengths = {
        "each epoch": 6 + steps % 50 // 2, "planned": 6 + steps // 12, "buckets": dice.integers(6, 30, len(steps)),
    }[kind]  # fmt: skip
    series = {
        "model/input_length_mean": (steps, lengths.astype(float)),
        "model/input_length_std": (steps, np.zeros(len(steps))),
        "model/example_rows": (steps, np.full(len(steps), 32.0)),
    }
    judged = rule_curves.found([SortedLengths()], series, pieces)
    assert [one.rule for one in judged] == (["sorted_lengths"] if says else [])


@pytest.mark.parametrize(
    ("whole", "lengths", "says"),
    [
        (1.0, "one order, and a jump", True),
        (1.0, "one order", True),
        (0.0, "one order", False),  # a plan that cuts texts
        (math.nan, "one order", False),
        (1.0, "two stages", False),
        (1.0, "buckets", False),
    ],
)
def test_whole_texts_of_one_length_a_batch_in_one_order_to_the_end_are_sorted(
    whole: float, lengths: str, says: bool
) -> None:
    steps, dice = np.array([*range(8), *range(18, 300, 9)]), np.random.default_rng(1)
    rising = 6 + steps // 30
    long = {"one order": rising, "one order, and a jump": rising + 5 * (steps > 170),
            "two stages": 6 + 6 * (steps > 150), "buckets": dice.integers(6, 16, len(steps))}[lengths]  # fmt: skip
    series = {"model/input_length_mean": (steps, long.astype(float)),
              "model/input_length_std": (steps, np.zeros(len(steps))),
              "model/example_rows": (steps, np.full(len(steps), 32.0))}  # fmt: skip
    if whole == whole:
        series["model/input_length_whole"] = steps, np.full(len(steps), whole)
    judged = rule_curves.found([SortedLengths()], series, finished=True)
    assert [one.rule for one in judged] == (["sorted_lengths"] if says else [])


@pytest.mark.parametrize(
    ("rows", "whole"),
    [
        ([[5, 6, 9, 0, 0, 0, 0], [7, 8, 6, 9, 0, 0, 0]], 1.0),
        ([[5, 6, 7, 0, 0, 0, 0], [7, 8, 6, 9, 0, 0, 0]], 0.0),
        ([[5, 9, 9, 0, 0, 0, 0], [7, 8, 6, 9, 0, 0, 0]], 0.0),  # it stands elsewhere, too
        ([[5, 6, 9, 0, 0, 0, 0], [7, 8, 6, 5, 5, 4, 9]], math.nan),
    ],
)
def test_texts_are_whole_where_one_token_ends_them_all(rows: list[list[int]], whole: float) -> None:
    found = lengths(torch.tensor(rows))
    assert found is not None and float(found[2]) == pytest.approx(whole, nan_ok=True)


def test_lengths_follow_a_mask_beside_the_tokens_and_nothing_that_only_looks_like_one() -> None:
    words = torch.randint(2, 40, (6, 12), generator=torch.Generator().manual_seed(1))
    long = torch.tensor([12, 11, 11, 10, 12, 12])
    mask = (torch.arange(12) < long[:, None]).long()
    words = torch.where(mask > 0, words, 0)
    for beside in (mask, mask.bool(), mask.float()):
        assert lengths(words, [beside])[0] == long.double().mean()
    parts = (torch.arange(12) < 5).long().expand(6, 12)  # of which sentence a token is
    for beside in (parts, words, torch.zeros_like(words), mask[:, :8]):
        assert lengths(words, [beside])[0] == 12
    assert lengths(words.flip(1), [mask.flip(1)])[0] == long.double().mean()
