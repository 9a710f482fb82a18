"""Rows that come on both sides of a split, where the training has rows several times."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from barograph.probes.model.whole_rows import WholeRows  # noqa: E402


class _Round:
    def __init__(self) -> None:
        self.numbers: dict[str, Any] = {}

    def put(self, name: str, names: tuple[str, ...], values: Any) -> None:
        names_before, before = self.numbers.get(name, ((), torch.zeros(0, dtype=torch.int64)))
        self.numbers[name] = names_before + names, torch.cat([before, values])


def figures(table: list[Any], held: list[Any], copied: bool = True, steps: int = 20) -> dict[str, float]:
    """What an evaluation with rows of one table says behind steps with batches of another."""
    torch.manual_seed(0)
    look, found = WholeRows(), {}
    for step in range(steps):
        some = torch.randint(0, len(table[0]), (32,))
        look.trained([one[some] for one in table])
        if step == steps - 1:
            for at in (slice(0, 40), slice(40, 80)):
                look.evaluated([one[at] for one in held])
        current = _Round()
        look.put(current)  # type: ignore[arg-type]
        rows = {name: (names, values[None].double().numpy()) for name, (names, values) in current.numbers.items()}
        found = look.fields_of(rows, copied)
    return found


def table(seed: int, count: int, ids: int = 20) -> list[Any]:
    dice = torch.Generator().manual_seed(seed)
    return [torch.randint(0, ids, (count, 3), generator=dice), torch.randn(count, 4, generator=dice),
            torch.randint(0, ids, (count,), generator=dice)]  # fmt: skip


def test_rows_that_were_trained_on_are_known_again() -> None:
    every = [one.repeat_interleave(4, 0) for one in table(1, 80)]
    order = torch.randperm(320, generator=torch.Generator().manual_seed(2))
    left, held = ([one[part] for one in every] for part in (order[80:], order[:80]))
    found = figures(left, held)
    assert found["evaluated_copies"] > 0.8 and found["evaluated_copies_passes"] == 1
    assert found["evaluated_copies_rows"] == 80 and found["evaluated_copies_of"] <= 80


def test_other_rows_are_not() -> None:
    every = [one.repeat_interleave(4, 0) for one in table(1, 80)]
    assert figures(every, table(3, 80))["evaluated_copies"] == 0


def test_one_item_of_two_users_is_two_rows() -> None:
    items, users = table(1, 80), torch.randint(0, 9, (400,), generator=torch.Generator().manual_seed(4))
    which = torch.arange(400) % 80
    left = [items[0][which], items[1][which], users]
    held = [items[0], items[1], torch.full((80,), 11)]
    assert figures(left, held).get("evaluated_copies", 0.0) == 0


@pytest.mark.parametrize("how", ["whole numbers", "few values", "a column", "no copies"])
def test_rows_that_chance_makes_alike_say_nothing(how: str) -> None:
    ids, numbers, users = table(1, 160)
    if how == "whole numbers":
        every = [ids, users]
    elif how == "few values":
        every = [ids[:, :1], (numbers > 0).float(), users % 2]
    elif how == "a column":
        every = [ids, numbers[:, :1], users]
    else:
        every = [ids, numbers, users]
    found = figures(every, [one[:80] for one in every], copied=how != "no copies")
    assert "evaluated_copies" not in found


def test_two_equal_inputs_do_not_cancel() -> None:
    numbers = table(1, 160)[1]
    found = figures([numbers, numbers], [table(5, 80)[1]] * 2)
    assert found["evaluated_copies"] == 0
