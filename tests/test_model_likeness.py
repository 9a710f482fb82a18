"""Sketches of examples: near copies across the split, batches whose examples are alike, and what looks like either."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from barograph.probes.model.likeness import Likeness, small_pictures

torch = pytest.importorskip("torch")


class Round:
    """What a step's figures are put into."""

    def __init__(self) -> None:
        self.numbers: dict[str, Any] = {}

    def put(self, family: str, names: tuple[str, ...], values: Any) -> None:
        self.numbers[family] = names, values.double().numpy().reshape(-1, len(names))


def told(batches: list[Any], evaluated: Any = None, known: bool = False) -> dict[str, float]:
    """The last word on batches [n, …], and on an evaluation behind them."""
    look, found = Likeness(), {}
    for step, batch in enumerate(batches):
        current = Round()
        look.trained(batch)
        look.put(current, True)  # type: ignore[arg-type]
        found |= look.fields_of(current.numbers, [known] * len(batch), step)
    if evaluated is not None:
        current = Round()
        for part in evaluated.split(16):
            look.evaluated(part)
        look.put(current, True)  # type: ignore[arg-type]
        found |= look.fields_of(current.numbers, [], len(batches))
    return found


def drawn(*sizes: int, seed: int = 0) -> Any:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("kind", "near"),
    [
        ("noisy", 1.0), ("brighter", 1.0), ("half", 0.5), ("others", 0.0), ("classes", 0.0), ("flat", None),
        ("solid", 0.0), ("thin", None), ("few", None), ("narrow", 1.0), ("few numbers", None), ("repeated", None),
        ("copies of ten", 0.0),
    ],
)  # fmt: skip
def test_near_copies_are_told_from_what_is_near_for_another_reason(kind: str, near: float | None) -> None:
    rows, fresh = drawn(512, 1, 12, 12), drawn(64, 1, 12, 12, seed=1)
    evaluated = {
        "noisy": rows[::8] + 0.1 * fresh, "brighter": 1.15 * rows[::8],
        "half": torch.where(torch.arange(64).view(64, 1, 1, 1) % 2 == 0, rows[::8] + 0.1 * fresh, fresh),
    }.get(kind, fresh)  # fmt: skip
    if kind == "classes":  # tight groups, of sixty-four examples each
        centres = 5 * drawn(8, 1, 12, 12, seed=3)
        rows, evaluated = rows + centres.repeat(64, 1, 1, 1), fresh + centres.repeat(8, 1, 1, 1)
    elif kind in ("flat", "solid", "thin"):  # pictures in three dimensions, and rows in three, or in two
        ways = drawn(2 if kind == "thin" else 3, 144, seed=4)
        rows, evaluated = (drawn(n, len(ways), seed=n) @ ways for n in (512, 64))
        if kind == "flat":
            rows, evaluated = rows.view(-1, 1, 12, 12), evaluated.view(-1, 1, 12, 12)
    elif kind == "few":
        rows, evaluated = rows[:128], rows[:64] + 0.1 * fresh
    elif kind in ("narrow", "few numbers"):
        width = 20 if kind == "narrow" else 7
        rows, evaluated = rows.flatten(1)[:, :width], rows.flatten(1)[:64, :width] + 0.01
    elif kind == "repeated":  # drawn letters: nothing but black and white
        rows, evaluated = rows.sign(), rows[:64].sign()
    elif kind == "copies of ten":  # of each example of the training itself
        rows = (rows[:40, None] + 0.1 * drawn(40, 12, 1, 12, 12, seed=5)).flatten(0, 1)
        evaluated = rows[::8] + 0.1 * drawn(60, 1, 12, 12, seed=6)
    found = told(list(rows.split(32)), evaluated)
    if near is None:
        assert "evaluated_near" not in found
    else:
        assert found.get("evaluated_near", 0.0) == pytest.approx(near, abs=0.05)
        assert not near or found["evaluated_near_passes"] == np.ceil(near)


@pytest.mark.parametrize(
    ("kind", "apart", "even"),
    [
        ("shuffled", False, False), ("groups", True, True), ("brightness", True, False), ("slow", True, False),
        ("brightness of a batch", True, False), ("contrast of a batch", None, False), ("many classes", False, False),
    ],
)  # fmt: skip
def test_batches_whose_examples_are_alike_are_told_from_shuffled_ones(
    kind: str, apart: bool | None, even: bool
) -> None:
    rows = drawn(20 * 16, 1, 8, 8)
    one_each = torch.arange(320).view(-1, 1, 1, 1)
    if kind == "groups":
        rows = rows + 1.5 * drawn(20, 1, 8, 8, seed=1).repeat_interleave(16, 0)
    elif kind == "brightness":
        rows = rows + one_each / 80
    elif kind == "slow":
        rows = rows + torch.sin(one_each / 40) * drawn(1, 1, 8, 8, seed=2) * 2
    elif kind == "brightness of a batch":
        rows = rows + 2 * drawn(20, 1, 1, 1, seed=3).repeat_interleave(16, 0)
    elif kind == "contrast of a batch":
        rows = rows * drawn(20, 1, 1, 1, seed=3).exp().repeat_interleave(16, 0)
    elif kind == "many classes":
        rows = rows + 3 * drawn(20, 1, 8, 8, seed=1).repeat(16, 1, 1, 1)
    found = told(list(rows.split(16)))
    assert found["apart_batches"] == 20
    assert apart is None or (found["rows_apart"] >= 0.5) == apart
    assert (found["rows_apart_even"] >= 0.3) == even


def test_batches_that_came_before_and_what_has_no_numbers_say_nothing() -> None:
    assert not told(list(drawn(320, 8).split(16)), known=True)
    assert not told([torch.ones(16, 8, dtype=torch.long)] * 20)
    assert not told([torch.full((16, 8), torch.nan)] * 20)


@pytest.mark.parametrize(
    ("kind", "grouped"), [("a copy of each", False), ("made anew in each epoch", False), ("six of each", True)]
)
def test_copies_are_told_from_others_of_a_group(kind: str, grouped: bool) -> None:
    originals, order = drawn(200, 1, 12, 12), torch.Generator().manual_seed(9)
    rows, batches = originals, []
    if kind == "six of each":
        rows = (originals[:, None] + 0.1 * drawn(200, 6, 1, 12, 12, seed=5)).flatten(0, 1)[:1200]
    for epoch in range(1 if kind != "made anew in each epoch" else 5):
        shown = rows[torch.randperm(len(rows), generator=order)]
        batches += list((shown + 0.1 * drawn(*shown.shape, seed=epoch + 20)).split(25))
    found = told(batches, originals[:64] + 0.1 * drawn(64, 1, 12, 12, seed=7))
    assert found["evaluated_near"] > 0.9 and (found["evaluated_near_groups"] > 0.1) == grouped


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [12, 96])  # of larger ones the spectrum is taken of means of their points
@pytest.mark.parametrize("same", [True, False])
def test_photographs_of_one_thing_are_known_though_each_is_moved_and_mirrored(
    channels: int, size: int, same: bool
) -> None:
    dice = torch.Generator().manual_seed(4)

    def shown(pictures: Any) -> Any:
        moved = torch.randint(-2, 3, (len(pictures), 2), generator=dice).tolist()
        found = torch.stack([one.roll(by, (1, 2)) for one, by in zip(pictures, moved, strict=True)])
        mirrored = torch.rand(len(found), 1, 1, 1, generator=dice) < 0.5
        found = torch.where(mirrored, found.flip(3), found)
        return found + 0.1 * torch.randn(found.shape, generator=dice)

    def things(number: int) -> Any:
        spots = torch.randn(number, channels, 6, 6, generator=dice)
        return torch.nn.functional.interpolate(spots, (size, size), mode="bilinear")

    own = things(200)
    batches = [shown(own[at : at + 20]) for at in range(0, 200, 20)] * 2
    found = told(batches, shown(own[::4] if same else things(50)))
    assert found["evaluated_near_pictures"] == 1.0
    assert found["evaluated_near"] > 0.9 if same else found["evaluated_near"] < 0.05


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_sketches_are_the_same_under_autocast(kind: Any) -> None:
    pictures = 255 * torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(2))  # the sums of a half are less
    alone = Likeness()._sketched(pictures, small_pictures(pictures))
    with torch.autocast("cpu", kind):
        under = Likeness()._sketched(pictures, small_pictures(pictures))
    assert alone is not None and under is not None and torch.equal(alone, under) and alone.isfinite().all()


def test_what_is_no_picture_has_no_spectrum() -> None:
    found = told(list(drawn(320, 100).split(16)), drawn(64, 100, seed=1))
    assert found["evaluated_near"] == found["evaluated_near_pictures"] == 0.0


@pytest.mark.parametrize(("kind", "period"), [("sorted", 12.0), ("drawn", 0.0), ("take turns", 0.0), ("shuffled", 0.0)])
def test_groups_in_a_fixed_order_are_told_from_groups_that_are_drawn(kind: str, period: float) -> None:
    groups, order = drawn(12, 1, 8, 8, seed=1), torch.Generator().manual_seed(2)
    which = {
        "sorted": torch.arange(60) % 12, "drawn": torch.randint(12, (60,), generator=order),
        "take turns": torch.arange(60) % 3,
    }.get(kind)  # fmt: skip
    rows = drawn(60, 16, 1, 8, 8, seed=3)
    if which is not None:
        rows = rows + 1.5 * groups[which][:, None]
    assert told(list(rows))["apart_period"] == period


@pytest.mark.parametrize(
    ("kind", "beside"), [("sorted", True), ("drawn for each batch", False), ("rolled as one", False)]
)
def test_batches_that_follow_each_other_are_alike_where_groups_come_one_after_the_other(
    kind: str, beside: bool
) -> None:
    rows = drawn(24, 16, 1, 8, 8, seed=3)
    groups = 1.5 * drawn(4, 1, 8, 8, seed=1)
    if kind == "sorted":
        rows = rows + groups.repeat_interleave(6, 0)[:, None]
    elif kind == "drawn for each batch":
        rows = rows + groups[torch.randint(4, (24,), generator=torch.Generator().manual_seed(2))][:, None]
    else:  # an alteration of what all have in common, drawn once for a batch
        rows = torch.stack([(one + groups[0]).roll(at * 5, -1) for at, one in enumerate(rows)])
    found = told(list(rows))
    assert found["rows_apart_even"] >= 0.1
    assert (found["apart_beside"] <= 0.5) == beside
    assert (found["apart_beyond"] >= 0.4 and found["apart_beside"] <= 0.8) == beside


def test_shuffled_rows_explain_how_far_apart_the_means_of_batches_are_and_views_of_one_example_do_not() -> None:
    rows = drawn(24, 16, 1, 8, 8, seed=3)
    assert told(list(rows))["apart_beyond"] < 0.2
    twice = told(list(rows.repeat_interleave(2, 1)))  # half of the rows are others again
    assert twice["apart_beyond"] > 0.4 and twice["apart_beside"] > 0.8


@pytest.mark.parametrize(
    ("kind", "says"),
    [("blocks", True), ("two", False), ("two by turns", False), ("shuffled", False), ("drawn for each batch", False),
     ("drifts", False)],
)  # fmt: skip
def test_blocks_are_seen_in_a_single_pass(kind: str, says: bool) -> None:
    at = [*range(8), 17, 24, 31, 48, 55, 62, 79, 86, 93, 100]
    groups = 1.5 * drawn(8, 1, 8, 8, seed=1)
    of = {
        "blocks": [step // 26 for step in at],
        "two": [step // 52 for step in at],
        "two by turns": [step // 26 % 2 for step in at],
        "drawn for each batch": torch.randint(8, (len(at),), generator=torch.Generator().manual_seed(2)).tolist(),
    }.get(kind)
    rows = drawn(len(at), 16, 1, 8, 8, seed=3)
    if of is not None:
        rows = rows + groups[of][:, None]
    elif kind == "drifts":
        rows = rows + torch.tensor(at).view(-1, 1, 1, 1, 1) / 100 * groups[0]
    alike, found = Likeness(), {}
    for step, one in zip(at, rows, strict=True):
        alike.trained(one)
        assert alike._rows is not None
        numbers = {"likeness": (tuple(map(str, range(len(one)))), alike._rows.double().numpy())}
        found |= alike.fields_of(numbers, [False] * len(one), step)
    assert (found["apart_blocks"] >= 4) == says


def test_rows_of_another_width_are_not_compared() -> None:
    batches = [drawn(16, 1, 8, (8, 12, 16)[at % 3], seed=at).abs() for at in range(60)]
    found = told(batches)
    assert found["apart_batches"] == 20 and found["rows_apart_even"] < 0.1


def sketched(pictures: Any) -> Any:
    likeness = Likeness()
    rows = likeness._sketched(pictures, small_pictures(pictures))
    assert rows is not None
    return rows.T.double().numpy()


def altered(first: Any, second: Any) -> tuple[float, float]:
    likeness = Likeness()
    assert likeness._altered(sketched(first)) == {}
    found = likeness._altered(sketched(second))
    return found["evaluated_altered"], found["evaluated_altered_by"]


def test_examples_of_an_evaluation_that_are_altered_are_known_by_their_order() -> None:
    dice = torch.Generator().manual_seed(0)
    colours = torch.rand(128, 3, 1, 1, generator=dice)
    pictures = colours + 0.3 * torch.randn(128, 3, 12, 12, generator=dice)
    mirrored = torch.where(torch.rand(128, 1, 1, 1, generator=dice) < 0.7, pictures.flip(-1), pictures.roll(1, -1))
    nearer, by = altered(pictures, mirrored)
    assert nearer > 5 and by > 0.02
    assert altered(pictures, pictures) == (0.0, 0.0)
    assert altered(pictures, pictures + 0.01 * torch.randn(128, 3, 12, 12, generator=dice))[1] < 0.02
    assert altered(pictures, torch.rand(128, 3, 1, 1, generator=dice) + torch.randn(128, 3, 12, 12))[0] < 5
    by_class = torch.arange(128).div(32, rounding_mode="floor").view(-1, 1, 1, 1) + 0.3 * torch.randn(128, 3, 12, 12)
    others = torch.arange(128).div(32, rounding_mode="floor").view(-1, 1, 1, 1) + 0.3 * torch.randn(128, 3, 12, 12)
    assert altered(by_class, others)[0] < 5  # others of the same classes
    turns = torch.arange(128).remainder(8).view(-1, 1, 1, 1).expand(-1, 3, 12, 12)
    assert altered(turns + 0.3 * torch.randn(128, 3, 12, 12), turns + 0.3 * torch.randn(128, 3, 12, 12))[0] < 5


@pytest.mark.parametrize(("order", "period"), [("sorted", 30), ("drawn", 0), ("once", 0)])
def test_a_mean_that_rises_through_each_epoch_has_its_length(order: str, period: int) -> None:
    dice = np.random.default_rng(0)
    likeness = Likeness()
    for step in [*range(8), *range(8, 120, 5)]:
        place = {"sorted": step % 30 / 30, "drawn": dice.random(), "once": step / 120}[order]
        likeness._steps.append(step)
        likeness._means.append(np.array([dice.random(), np.exp(3 * place) + 0.05 * dice.random()]))
    assert abs(likeness._rising() - period) <= (2 if period else 0)
