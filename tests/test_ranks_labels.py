"""Ranks whose rows have the same labels in the same order are known, whatever is done to the examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from barograph.probes.data import batches, labels
from barograph.probes.ranks.labels import SharedLabels

torch = pytest.importorskip("torch")


def longest(mark: Callable[[int, int], int], steps: int = 100, ranks: int = 2) -> int:
    """In how many steps in a row some ranks have the same labels. mark: of a rank at a step."""
    look = SharedLabels()
    return max(look.see([mark(rank, step) for rank in range(ranks)], range(ranks))[1] for step in range(steps))


def test_steps_in_which_ranks_have_the_same_new_labels_are_counted() -> None:
    assert longest(lambda rank, step: 1 + step) == 100
    assert longest(lambda rank, step: 1 + step % 90) == 100  # epochs of ninety steps
    look = SharedLabels()
    found = [look.see([1 + step, 200 + step, 1 + step], (0, 4, 8)) for step in range(3)]
    assert found == [([[0, 8]], count) for count in (1, 2, 3)]


def test_a_step_without_labels_to_compare_says_nothing() -> None:
    assert longest(lambda rank, step: 0 if step % 3 == 0 or (rank and step % 3 == 1) else 1 + step) == 33


@pytest.mark.parametrize(
    ("mark", "most"),
    [
        (lambda rank, step: 7, 1),  # numbered through, as pairs are
        (lambda rank, step: 1 + step % 4, 4),  # in the same order again and again
        (lambda rank, step: 1 + 2 * step + rank, 0),
        (lambda rank, step: 1 + 2 * step + rank * (step % 5 == 0), 4),  # now and then others
    ],
)
def test_labels_that_come_again_or_differ_are_not_counted(mark: Callable[[int, int], int], most: int) -> None:
    assert longest(mark) == most


def told(batch: Any) -> int:
    parts = batches.find(batch, labelled=True)
    assert parts is not None
    found = batches.measure(parts, None, -100)
    return found.marked  # type: ignore[union-attr]


KINDS = torch.randint(0, 10, (32,), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("batch", "tells"),
    [
        ({"strip": "x", "flaw": KINDS}, True),
        ({"strip": "x", "flaw": KINDS.numpy()}, True),
        ({"strip": "x", "flaw": KINDS[:, None]}, True),
        ({"strip": "x", "flaw": KINDS > 4}, True),
        (("x", KINDS), True),
        (["x", KINDS, "x"], True),
        ({"strip": "x", "flaw": KINDS * 0}, False),  # all alike
        ({"strip": "x", "flaw": (torch.arange(32) == 3).long()}, False),  # nearly all
        ({"strip": "x", "flaw": KINDS[:16]}, False),  # not one a row
        ({"strip": "x", "flaw": KINDS.float()}, False),
        ({"strip": "x", "timestep": KINDS}, False),  # drawn anew, maybe by generators that are alike
        ({"strip": "x", "t": KINDS}, False),
        ("x", False),
    ],
)
def test_whole_numbers_with_one_a_row_tell_a_batch_whatever_its_examples_look_like(batch: Any, tells: bool) -> None:
    def made() -> Any:
        if isinstance(batch, dict):
            return {name: torch.randn(32, 3, 8) if value is batch.get("strip") else value
                    for name, value in batch.items()}  # fmt: skip
        if isinstance(batch, str):
            return torch.randn(32, 24)
        return type(batch)(torch.randn(32, 3, 8) if isinstance(value, str) else value for value in batch)

    first, second = told(made()), told(made())
    assert first == second and (first > 0) == tells


def test_other_labels_or_another_order_are_another_number() -> None:
    mark = labels.host_mark([KINDS])
    assert 0 < mark < 1 << 52 and mark == labels.host_mark([KINDS.numpy().astype(np.int32)])
    assert len({mark, labels.host_mark([KINDS.flip(0)]), labels.host_mark([KINDS, KINDS]),
                labels.host_mark([KINDS.roll(1), KINDS])}) == 4  # fmt: skip
    assert labels.host_mark([]) == 0


def test_labels_of_four_rows_tell_a_batch_if_all_differ() -> None:
    assert labels.host_mark([np.array([3, 1, 4, 5])]) and not labels.host_mark([np.array([3, 1, 4, 4])])


@pytest.mark.parametrize("some", [[KINDS], [KINDS, KINDS > 4], [KINDS[:, None].int()], [KINDS * 0]])
def test_a_device_gives_the_number_of_the_host(some: list[Any]) -> None:
    copy = labels.on_device(some)
    assert copy is not None and labels.device_mark(copy) == labels.host_mark(some)
    assert labels.on_device([]) is None
