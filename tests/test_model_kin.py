"""Near copies of texts on both sides of a split: what says so, and what looks like it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings

torch = pytest.importorskip("torch")

from barograph.doctor.rules.data.overlaps import EvaluationOverlaps  # noqa: E402
from barograph.probes.model.kin import Kin, kin_size  # noqa: E402
from barograph.probes.model.passages import placed_marks  # noqa: E402

WORDS, EDITIONS = 300, 4


def seen(given: Any, held_out: Any) -> dict[str, float]:
    """What is said of an evaluation of two passes."""
    kin = Kin()
    for rows in given.split(32):
        kin.keep(placed_marks(rows).double().numpy())
    passes = [str(2 * at // len(held_out)) for at in range(len(held_out))]
    return kin.seen(placed_marks(held_out).double().numpy(), passes)


def editions(long: int, altered: int = 2) -> Any:
    """Texts [originals, editions, places], of which each edition has other words at some places."""
    dice = torch.Generator().manual_seed(4)
    rows = torch.randint(1, WORDS, (100, 1, long), generator=dice).repeat(1, EDITIONS, 1)
    places = torch.randint(0, long, (100, EDITIONS, altered), generator=dice)
    return rows.scatter(2, places, torch.randint(1, WORDS, places.shape, generator=dice))


@pytest.mark.parametrize("long", [20, 48, 200])
def test_editions_of_one_text_on_both_sides_are_seen_and_texts_that_are_kept_together_are_not(long: int) -> None:
    rows = editions(long, max(1, long // 50))
    dealt = rows.reshape(-1, long)[torch.randperm(400, generator=torch.Generator().manual_seed(1))]
    found = seen(dealt[64:], dealt[:64])
    assert found["evaluated_kin"] > {20: 0.1, 48: 0.4, 200: 0.5}[long]
    assert found["evaluated_kin_size"] == kin_size(long) == (8 if long < 24 else 12)
    together = seen(rows[16:].reshape(-1, long), rows[:16].reshape(-1, long))
    assert together["evaluated_kin"] == 0 and together["evaluated_kin_rows"] == 64


def test_of_passes_over_several_sets_those_with_near_copies_count() -> None:
    rows = editions(200, 4).reshape(-1, 200)[torch.randperm(400, generator=torch.Generator().manual_seed(1))]
    other = torch.randint(1, WORDS, (64, 200), generator=torch.Generator().manual_seed(9))
    found = seen(rows[64:], torch.cat([rows[:64], other]))
    assert found["evaluated_kin"] > 0.5 and found["evaluated_kin_rows"] == 64


@pytest.mark.parametrize("kind", ["trained before", "one more word", "phrases", "the same rows", "another text"])
def test_what_is_no_near_copy_is_not_taken_for_one(kind: str) -> None:
    dice = torch.Generator().manual_seed(2)
    long = torch.randint(1, WORDS, (300, 49), generator=dice)
    given, held_out = long[:, :48], torch.randint(1, WORDS, (64, 48), generator=dice)
    if kind == "trained before":  # the last one of each is asked for
        held_out = long[:64, 1:]
    elif kind == "one more word":
        given = torch.where(torch.arange(48) < 40, given, 0)
        held_out = torch.where(torch.arange(48) < 41, long[:64, :48], 0)
    elif kind == "phrases":  # forms that many rows have
        forms = torch.randint(1, WORDS, (6, 30), generator=dice)
        given, held_out = given.clone(), held_out.clone()
        given[:, 4:34] = forms[torch.randint(6, (len(given),), generator=dice)]
        held_out[:, 4:34] = forms[torch.randint(6, (64,), generator=dice)]
    elif kind == "the same rows":  # are said to be trained on
        assert not seen(given, given[:64])
        return
    assert seen(given, held_out)["evaluated_kin"] <= 0.05


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, True),
        ({"": 0.24}, False),
        ({"_size": 8.0}, False),  # alike by chance
        ({"_size": 8.0, "": 0.4}, True),
        ({"_rows": 24.0}, False),
    ],
)
def test_near_copies_of_texts_in_two_evaluations_are_a_warning(changed: dict[str, float], said: bool) -> None:
    at = np.array([40, 80, 120])
    names = {"": 0.25, "_rows": 64.0, "_size": 12.0} | changed
    columns: dict[str, Any] = {f"model/evaluated_kin{name}": (at, np.full(3, value)) for name, value in names.items()}
    columns |= {"val_loss": (at, np.full(3, 1.0)), "model/distinct_rows": (at, np.full(3, 400.0)),
                "model/example_rows": (at, np.full(3, 16.0))}  # fmt: skip
    for cuts in ((), (50, 100)):
        found = findings([EvaluationOverlaps()], columns, cuts=cuts)
        assert [one.kind for one in found.values()] == ["eval"] * said
    one = {name: (steps[:1], values[:1]) for name, (steps, values) in columns.items()}
    assert not findings([EvaluationOverlaps()], one)


@pytest.mark.parametrize(
    ("known", "ranks", "said"),
    [(0.31, 1.0, False), (0.31, 0.0, False), (0.31, None, True), (0.6, 1.0, True), (0.2, 1.0, True)],
)
def test_answers_of_one_side_come_twice_as_often_by_chance(known: float, ranks: float | None, said: bool) -> None:
    """An evaluation's rows that are looked at are those that people chose, half of the training's are others."""
    at, looks = np.array([40, 80, 120]), np.arange(0, 120, 10)
    figures = {"evaluated_kin": 0.45, "evaluated_kin_rows": 64.0, "evaluated_kin_size": 8.0, "distinct_rows": 400.0,
               "example_rows": 16.0, "evaluated_known": known, "evaluated_known_of": 1600.0}  # fmt: skip
    columns: dict[str, Any] = {f"model/{name}": (at, np.full(3, value)) for name, value in figures.items()}
    columns |= {"val_loss": (at, np.full(3, 1.0)), "model/between_rows": (looks, np.full(12, 160.0)),
                "model/between_known": (looks, np.linspace(100, 1600, 12)),
                "model/between_again": (looks, 0.13 * np.linspace(0.06, 1, 12))}  # fmt: skip
    if ranks is not None:
        columns["model/loss_ranks"] = (at[:1], np.array([ranks]))
    found = findings([EvaluationOverlaps()], columns)
    assert [one.kind for one in found.values()] == ["eval"] * said
    named = {("train_subset/loss" if name == "val_loss" else name): rows for name, rows in columns.items()}
    assert {one.severity for one in findings([EvaluationOverlaps()], named).values()} <= {"info"}


@pytest.mark.parametrize(
    ("kin", "size", "chance", "said"),
    [
        (0.34, 12.0, 0.6, True),
        (0.34, 12.0, 0.95, False),
        (0.6, 12.0, 0.95, True),
        (0.34, 12.0, None, True),
        (0.45, 8.0, 0.95, True),
    ],
)
def test_near_copies_of_long_texts_of_a_few_words_have_to_be_half_of_the_rows(
    kin: float, size: float, chance: float | None, said: bool
) -> None:
    at = np.array([40, 80, 120])
    figures = {"evaluated_kin": kin, "evaluated_kin_rows": 64.0, "evaluated_kin_size": size, "distinct_rows": 400.0,
               "example_rows": 16.0} | ({} if chance is None else {"evaluated_passages_chance": chance})  # fmt: skip
    columns: dict[str, Any] = {f"model/{name}": (at, np.full(3, value)) for name, value in figures.items()}
    found = findings([EvaluationOverlaps()], columns | {"val_loss": (at, np.full(3, 1.0))})
    assert [one.kind for one in found.values()] == ["eval"] * said
