"""Whether texts come in an order, as the sketches of their tokens tell it."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from barograph.probes.model.rounds import ModelRound  # noqa: E402
from barograph.probes.model.wording import WordingLook, most_apart  # noqa: E402

ROWS, BATCHES, WORDS = 16, 40, 6


def told(batches: list[torch.Tensor], again: int = 1, text: bool = True) -> dict[str, float]:
    """What is recorded of the last of these batches, one a step."""
    look, found, seen = WordingLook(text=text), {}, set()
    for step, rows in enumerate(batches * again):
        look.trained(rows)
        current = ModelRound(step, frozenset())
        look.put(current)
        current.send()
        marks = [tuple(row) for row in rows.tolist()]
        found |= look.fields_of(current.numbers(), [mark in seen for mark in marks], step)
        seen.update(marks)
    return found


def texts(kind: str) -> list[torch.Tensor]:
    dice = torch.Generator().manual_seed(0)
    rows = torch.randint(100, 160, (ROWS * BATCHES, 12), generator=dice)
    about = torch.randint(0, WORDS, (len(rows),), generator=dice)
    rows[:, 3] = about + 1
    lengths = torch.randint(6, 13, (len(rows),), generator=dice)
    if kind == "sorted":
        rows = rows[about.argsort(stable=True)]
    elif kind == "one kind a batch":
        rows = rows[about.argsort(stable=True)].view(BATCHES, ROWS, 12)[torch.randperm(BATCHES, generator=dice)]
    elif kind == "by length":
        lengths = lengths.sort().values
    rows = rows.reshape(-1, 12)
    if kind != "one kind a batch":
        rows = torch.where(torch.arange(12) < lengths[:, None], rows, 0)
    return list(rows.split(ROWS))


@pytest.mark.parametrize(
    ("kind", "apart", "beside"),
    [("sorted", True, True), ("shuffled", False, False), ("one kind a batch", True, False), ("by length", False, None)],
)
def test_texts_in_an_order_are_told_from_shuffled_ones(kind: str, apart: bool, beside: bool | None) -> None:
    found = told(texts(kind))
    assert found["wording_batches"] == BATCHES
    assert (found["wording_apart"] >= 0.05) == apart
    assert beside is None or (found["wording_beside"] <= 0.5) == beside
    assert (found["wording_beyond"] >= 0.4) == apart


def test_texts_that_come_again_and_what_is_no_text_say_nothing() -> None:
    assert told(texts("sorted"), 3)["wording_batches"] == BATCHES
    assert not told([torch.randn(ROWS, 12) for _ in range(20)])
    assert not told([rows[:3] for rows in texts("sorted")])


@pytest.mark.parametrize("rows", [4, 6])
def test_of_batches_of_few_rows_more_are_needed(rows: int) -> None:
    few = [one[:rows] for one in texts("sorted")]
    assert not told(few[: 448 // rows**2])
    found, shuffled = told(few), told([one[:rows] for one in texts("shuffled")])
    assert found["wording_apart"] >= 0.05 > shuffled["wording_apart"]
    assert found["wording_beside"] <= 0.75 < 0.9 <= shuffled["wording_beside"]


def test_of_a_second_input_masks_and_numbers_that_count_say_nothing() -> None:
    assert told(texts("sorted"), text=False)["wording_beside"] <= 0.5
    padded = texts("by length")
    places = torch.arange(12).expand(ROWS, 12)
    documents = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3]).expand(ROWS, 12)
    for other in (
        [(rows != 0).long() for rows in padded],
        [places + n for n in range(40)],
        [documents + n for n in range(40)],
    ):
        assert not told(other, text=False)
    assert not told([torch.ones(ROWS, 12, dtype=torch.long)] * 20, text=False)


def test_the_text_that_lies_between_batches_is_recorded() -> None:
    one, other = {"wording_apart": 0.01, "wording_batches": 9.0}, {"wording_apart": 0.3, "wording_batches": 8.0}
    assert most_apart([one, other]) == other == most_apart([{}, other])
    assert most_apart([{}, {}]) == {}


def test_a_sketch_takes_no_random_numbers_and_leaves_the_tokens() -> None:
    torch.manual_seed(3)
    before, rows = torch.random.get_rng_state(), torch.tensor([[5, 5, -100, 9], [9, 5, 0, 0]])
    kept = rows.clone()
    look = WordingLook()
    look.trained(rows)
    assert torch.equal(torch.random.get_rng_state(), before) and torch.equal(rows, kept)
    assert np.isfinite(look._rows.numpy()).all()
