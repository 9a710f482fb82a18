"""A rank that has the batches of another one, some steps behind it, is known; ranks with data of their own are not."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from barograph.probes.ranks.behind import BatchesBehind


def seen(batch: Callable[[int, int], int | None], steps: int = 80, ranks: int = 2) -> list[list[int]]:
    """All that is found. batch: of a rank at a step."""
    look = BatchesBehind()
    return [
        one
        for step in range(steps)
        for one in look.see(step, [batch(rank, step) for rank in range(ranks)], range(ranks))
    ]


@pytest.mark.parametrize("late", [1, 5, 16])
def test_a_rank_behind_another_one_is_found(late: int) -> None:
    found = seen(lambda rank, step: 100 + step - late * rank)
    assert found == [[1, 0, late]] * (80 - late)


def test_of_four_ranks_the_one_behind_the_first_is_found() -> None:
    found = seen(lambda rank, step: 100 + step - rank, ranks=4)
    assert {tuple(one) for one in found} == {(1, 0, 1)}  # the others' leaders have nothing new


@pytest.mark.parametrize(
    "batch",
    [
        lambda rank, step: 2 * step + rank,  # shares of their own
        lambda rank, step: 2 * (step % 8) + rank,  # the same in each epoch
        lambda rank, step: 2 * (step % 8) + (rank + step // 8) % 2,  # exchanged from epoch to epoch
        lambda rank, step: 2 * (step // 2) + rank,  # each twice
        lambda rank, step: step,  # the same at once: another finding
        lambda rank, step: 7,  # always the same
        lambda rank, step: 100 + step - 17 * rank,  # too far behind to be known
        lambda rank, step: None,
    ],
)
def test_ranks_with_shares_of_their_own_are_not(batch: Callable[[int, int], int | None]) -> None:
    assert seen(batch) == []


def test_batches_of_chance_are_hardly_ever_those_of_another_rank() -> None:
    dice = random.Random(3)
    drawn = [[dice.randrange(500) for _ in range(2)] for _ in range(300)]
    found = [tuple(one) for one in seen(lambda rank, step: drawn[step][rank], steps=300)]
    assert max((found.count(one) for one in set(found)), default=0) < 8
