"""Texts of one origin on both sides of a split, as copies, drafts and orders of one thing; and what looks like it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings

torch = pytest.importorskip("torch")

from barograph.doctor.rules.data.groups import EvaluationGroups  # noqa: E402
from barograph.probes.model import groups as model_groups  # noqa: E402
from barograph.probes.model.groups import Groups, RowEnds, compared, opposed  # noqa: E402

WORDS, LONG = 40, 14


def marks(rows: Any) -> Any:
    return model_groups.marks(rows, RowEnds())


def put(*passes: Any) -> tuple[tuple[str, ...], Any]:
    found = [marks(rows).double().numpy().reshape(-1) for rows in passes]
    return tuple(str(at) for at, one in enumerate(found) for _ in one), np.concatenate(found)[None]


def seen(given: Any, held_out: Any) -> dict[str, float]:
    """What is said of an evaluation behind steps of 16 rows, every fourth of which is looked at."""
    groups = Groups()
    for at, rows in enumerate(given.split(16)):
        groups.fields_of({"between_groups" if at % 4 else "groups": put(rows)})
    return groups.fields_of({"evaluated_groups": put(held_out)})


def said(found: dict[str, float]) -> bool:
    """Whether the rule warns of two evaluations of which that is recorded."""
    at = np.array([40, 80])
    columns: dict[str, Any] = {f"model/{name}": (at, np.full(2, value)) for name, value in found.items()}
    columns["train/loss"] = (np.arange(100), np.linspace(3, 1, 100))
    columns["val/loss"] = (at, np.array([2.0, 1.5]))
    return "evaluation_groups" in {one.rule for one in findings([EvaluationGroups()], columns).values()}


def epochs(rows: Any, count: float, seed: int = 5) -> Any:
    """Rows in a new order in each epoch."""
    dice, left = torch.Generator().manual_seed(seed), round(count * len(rows))
    orders = [torch.randperm(len(rows), generator=dice) for _ in range(int(count) + 1)]
    return rows[torch.cat(orders)[:left]]


def texts(count: int, seed: int = 1) -> Any:
    return torch.randint(1, WORDS, (count, LONG), generator=torch.Generator().manual_seed(seed))


def in_groups(kind: str, copies: int = 4) -> Any:
    """Rows [groups, copies, places] of one origin each."""
    rows, dice = texts(240)[:, None].repeat(1, copies, 1), torch.Generator().manual_seed(2)
    if kind == "beginning differs":
        rows[:, :, :3] = torch.randint(1, WORDS, (240, copies, 3), generator=dice)
    elif kind == "end differs":
        rows[:, :, -4:] = torch.randint(1, WORDS, (240, copies, 4), generator=dice)
    elif kind == "one side":  # the other texts of these pairs are nobody's copies
        rows = torch.cat([rows, texts(240 * copies, 3).reshape(240, copies, LONG)], 1)
    elif kind == "lengths differ":  # of 15 to 17: half of them is more than the next power of two in the longest
        front = torch.randint(1, WORDS, (240, copies, 3), generator=dice)
        none = torch.arange(3) >= torch.randint(1, 4, (240, copies, 1), generator=dice)
        rows = torch.cat([front.masked_fill(none, 0), rows], 2)
        rows = rows.gather(2, (rows == 0).long().sort(dim=2, stable=True).indices)
    elif kind == "short":  # of 9 or 10
        more = torch.randint(0, 2, (240, copies, 1), generator=dice)
        rows = torch.cat([rows[:, :, :9], more * rows[:, :, 9:10], torch.zeros_like(more)], 2)
    elif kind == "padded":
        rows = torch.nn.functional.pad(rows, (0, 4))
    return rows


KINDS = ["copies", "beginning differs", "end differs", "lengths differ", "short", "one side", "padded"]


@pytest.mark.parametrize("count", [1.0, 2.5, 0.9])
@pytest.mark.parametrize("kind", KINDS)
def test_groups_that_were_dealt_to_both_sides_are_known_by_what_the_training_lacks(kind: str, count: float) -> None:
    rows = in_groups(kind)
    rows = rows.reshape(-1, rows.shape[2])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(4))]
    assert said(seen(epochs(rows[160:], count), rows[:160]))


@pytest.mark.parametrize("kind", KINDS)
def test_groups_that_are_kept_together_are_none(kind: str) -> None:
    rows = in_groups(kind)
    assert not said(seen(epochs(rows[40:].reshape(-1, rows.shape[2]), 2.0), rows[:40].reshape(-1, rows.shape[2])))


@pytest.mark.parametrize("count", [1.0, 2.0, 3.4])
@pytest.mark.parametrize(
    "habit",
    ["even", "frequent ones", "copied in the training", "with replacement", "rare 80", "rare 16", "rare 300"],
)
def test_texts_of_a_small_language_come_in_both_by_chance(habit: str, count: float) -> None:
    language, dice = texts(300), torch.Generator().manual_seed(6)
    often = torch.ones(300) if habit != "frequent ones" else 1 / torch.arange(1.0, 301)
    given = language[torch.multinomial(often, 800, True, generator=dice)]
    held_out = language[torch.multinomial(often, 160, True, generator=dice)]
    if habit == "copied in the training":
        given = given[:200].repeat_interleave(4, 0)
    rows = epochs(given, count)
    if habit == "with replacement":
        rows = given[torch.randint(0, len(given), (round(800 * count),), generator=dice)]
    if habit.startswith("rare"):  # rows of a rare class are drawn as often as all others together
        rare = int(habit.split()[1])
        weights = torch.ones(800)
        weights[:rare] = 800 / rare
        rows = given[torch.multinomial(weights, round(800 * count), True, generator=dice)]
    found = seen(rows, held_out)
    assert found["evaluated_groups"] > 0.25 and found["evaluated_against"] > -0.5
    assert not said(found)


def test_groups_are_known_beside_passes_of_another_set() -> None:
    rows = in_groups("end differs").reshape(-1, LONG)
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(4))]
    groups = Groups()
    for part in epochs(rows[160:], 2.0).split(16):
        groups.fields_of({"groups": put(part)})
    others = [texts(64, seed) for seed in range(20, 30)]
    found = groups.fields_of({"evaluated_groups": put(*others[:5], *rows[:160].split(40), *others[5:])})
    assert said(found) and found["evaluated_groups_rows"] == 160


def test_what_a_model_writes_in_an_evaluation_is_not_taken_for_padding() -> None:
    padding, rows = RowEnds(), torch.nn.functional.pad(texts(32), (0, 2))
    before = model_groups.marks(rows, padding)
    written = torch.nn.functional.pad(texts(32, 7)[:, :6], (0, 8), value=5)
    model_groups.marks(written, padding, trains=False)
    assert torch.equal(before, model_groups.marks(rows, padding))
    behind = model_groups.marks(rows, padding, trains=False)
    assert torch.equal(before, behind)


def test_what_is_evaluated_of_the_training_itself_is_not_called_a_group() -> None:
    rows = in_groups("copies").reshape(-1, LONG)
    assert not said(seen(epochs(rows, 2.0), rows[:160]))


def test_padding_in_front_or_behind_changes_no_fingerprint_and_short_rows_have_none() -> None:
    rows = texts(8)
    rows[:, 0], rows[:, -1] = 41, 42
    behind, more = (torch.nn.functional.pad(rows, (0, many)) for many in (3, 9))
    assert torch.equal(marks(behind), marks(more))
    before, further = (torch.nn.functional.pad(rows, (many, 0)) for many in (3, 9))
    assert torch.equal(marks(before), marks(further))
    assert marks(torch.tensor([[1, 2, 3, 0, 0, 0, 0, 0], [5, 5, 5, 5, 5, 5, 5, 5]])).eq(-1).all()
    assert marks(rows.float()) is None and marks(rows[:, :4]) is None


@pytest.mark.parametrize("held", [160, 400])
def test_groups_of_which_most_have_some_on_each_side_are_known_by_what_both_have(held: int) -> None:
    rows = in_groups("end differs", 6)[:120].reshape(-1, LONG)
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(4))]
    found = seen(epochs(rows[held:], 2.5), rows[:held])
    assert said(found)
    assert found["evaluated_against"] < -0.7 or held == 160


def test_forms_that_many_rows_begin_with_are_no_groups() -> None:
    forms = texts(30)[:, None].repeat(1, 40, 1)
    forms[:, :, 9:] = torch.randint(1, WORDS, (30, 40, LONG - 9), generator=torch.Generator().manual_seed(2))
    rows = forms.reshape(-1, LONG)[torch.randperm(1200, generator=torch.Generator().manual_seed(4))]
    assert not said(seen(epochs(rows[240:], 2.0), rows[:240]))


def test_an_evaluation_that_says_nothing_is_none_of_two_in_a_row() -> None:
    """All figures are its own: an earlier one's, whose parts were known, are not taken for it."""
    rows = in_groups("copies").reshape(-1, LONG)
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(4))]
    groups, other = Groups(), texts(64, 9)
    for part in epochs(rows[160:], 1.0).split(16):
        groups.fields_of({"groups": put(part)})
    each = [groups.fields_of({"evaluated_groups": put(held)}) for held in (rows[:160], other, rows[:160], rows[:160])]
    assert len({frozenset(one) for one in each}) == 1
    assert (each[1]["evaluated_groups"], each[1]["evaluated_groups_often"], each[1]["evaluated_against"]) == (0, 1, 0)
    at = np.array([40, 80, 120, 160])
    columns: dict[str, Any] = {f"model/{name}": (at, np.array([one[name] for one in each])) for name in each[0]}
    columns |= {"train/loss": (np.arange(200), np.linspace(3, 1, 200)), "val/loss": (at, np.linspace(2, 1, 4))}
    for cuts in ((), (50, 90, 130)):
        (found,) = findings([EvaluationGroups()], columns, cuts=cuts).values()
        assert (found.step, found.found) == (120, 160)
    assert Groups().fields_of({"evaluated_groups": put(other)}) == {}


def test_few_things_in_common_say_nothing() -> None:
    assert compared([1] * 7, [4] * 100) is None
    found = compared([1] * 20 + [3] * 40, [4] * 100 + [1] * 50)
    assert found is not None and (found.times, found.share) == (4, 0.0)
    assert opposed([4] * 100, [0, 1] * 50) is None and opposed([1, 2] * 5, [1, 0] * 5) is None
    both = opposed([1, 2, 3, 4] * 20, [3, 2, 1, 0] * 20)
    assert both is not None and both.correlation == pytest.approx(-1) and both.of == 80
