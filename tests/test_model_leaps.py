"""Pictures of the same things on both sides of a split, behind noise and augmentation, and what looks like it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.rules.data.overlaps import EvaluationOverlaps
from barograph.probes.model.leaps import Leaps

torch = pytest.importorskip("torch")


class Round:
    """What a step's figures are put into."""

    def __init__(self) -> None:
        self.numbers: dict[str, Any] = {}

    def put(self, family: str, names: tuple[str, ...], values: Any) -> None:
        self.numbers[family] = names, values.double().numpy().reshape(-1, len(names))


def told(trained: Any, evaluated: Any, known: bool = False) -> dict[str, float]:
    """The last word on pictures of a training, and on an evaluation behind them."""
    leaps = Leaps()
    for batch in trained.split(50):
        current = Round()
        leaps.trained(batch)
        leaps.put(current, False)  # type: ignore[arg-type]
        assert leaps.fields_of(current.numbers, [known] * len(batch)) == {}
    current = Round()
    for part in evaluated.split(50):
        leaps.evaluated(part)
    leaps.put(current, True)  # type: ignore[arg-type]
    return leaps.fields_of(current.numbers, [])


def drawn(parts: Any, noise: float, steep: float = 1.0) -> Any:
    """Smooth pictures [n, 3, 16, 16] that are made of so many parts [n, parts], with noise in each point."""
    dice = torch.Generator().manual_seed(4)
    ways = steep * torch.randn(parts.shape[1], 108, generator=dice) / parts.shape[1] ** 0.5
    small = torch.tanh(parts @ ways).view(-1, 3, 6, 6)
    large = torch.nn.functional.interpolate(small, (16, 16), mode="bilinear")
    return large + noise * torch.randn(large.shape, generator=dice)


def parts_of(kind: str, dice: Any) -> tuple[Any, Any]:
    """What 1,000 pictures of a training, and 200 of an evaluation, are made of."""
    count = 4 if kind == "of a few smooth parts" else 12
    one_by_one = torch.randn(1200, count, generator=dice)
    if kind == "of classes":
        centres = 3 * torch.randn(6, count, generator=dice)
        one_by_one = one_by_one + centres[torch.randint(6, (1200,), generator=dice)]
    if kind in ("dealt one by one", "dealt by group"):  # four of each
        things = torch.randn(300, count, generator=dice).repeat_interleave(4, 0)
        one_by_one = things + 0.2 * torch.randn(1200, count, generator=dice)
    if kind == "dealt one by one":
        one_by_one = one_by_one[torch.randperm(1200, generator=dice)]
    if kind == "many epochs":  # of 150 examples, with noise of each epoch
        one_by_one[:1000] = one_by_one[:125].repeat(8, 1)
    return one_by_one[:1000], one_by_one[1000:]


@pytest.mark.parametrize("kind", ["dealt one by one", "dealt by group", "one by one", "of a few smooth parts",
                                  "of classes", "many epochs"])  # fmt: skip
def test_pictures_of_the_same_things_on_both_sides_are_told_behind_noise(kind: str) -> None:
    dice = torch.Generator().manual_seed(1)
    given, held_out = (drawn(part, *((0.02, 12.0) if "smooth" in kind else (0.2,))) for part in parts_of(kind, dice))
    found = told(given, held_out)
    assert found["evaluated_leap_rows"] == 200
    leaks = found["evaluated_leap"] >= 2.2 and found["evaluated_leap_least"] >= 1.9
    assert leaks if kind == "dealt one by one" else found["evaluated_leap_least"] < 1.6


def test_few_rows_and_what_is_no_picture_say_nothing() -> None:
    given, held_out = (drawn(part, 0.2) for part in parts_of("dealt one by one", torch.Generator().manual_seed(1)))
    assert told(given[:350], held_out) == {} and told(given, held_out[:80]) == {}
    assert told(given, held_out, known=True) == {}  # of the training, which came before
    assert told(given[:, :, :3, :3], held_out[:, :, :3, :3]) == {}  # too few means
    assert told(given, held_out[:1].repeat(200, 1, 1, 1)) == {}
    leaps = Leaps()
    leaps.trained(None)
    leaps.evaluated(None)
    current = Round()
    leaps.put(current, True)  # type: ignore[arg-type]
    assert current.numbers == {}


@pytest.mark.parametrize(
    ("leap", "least", "pairs", "width", "says"),
    [
        (1.9, 1.7, 0.0, 10.0, True),
        (1.89, 1.7, 0.0, 10.0, False),
        (1.9, 1.69, 0.0, 10.0, False),
        (3.0, 3.0, 32.0, 10.0, False),  # pairs, of which one thing may have several
        (3.0, 3.0, 0.0, 31.0, False),  # classes of few examples each
        (3.0, 3.0, 0.0, 30.0, True),
    ],
)
def test_siblings_in_evaluations_are_a_warning(
    leap: float, least: float, pairs: float, width: float, says: bool
) -> None:
    step = np.arange(30, 150, 30)
    names = {
        "evaluated_leap": leap, "evaluated_leap_least": least, "evaluated_leap_rows": 200.0, "output_width": width,
        "distinct_rows": 900.0, "example_rows": 32.0, "loss_pairs": pairs,
    }  # fmt: skip
    columns: dict[str, Any] = {f"model/{name}": (step, np.full(len(step), value)) for name, value in names.items()}
    columns |= {"eval/loss": (step, np.ones(len(step))), "train/loss": np.ones(150)}
    found = findings([EvaluationOverlaps()], columns)
    assert [(one.causes[0][:15], one.severity) for one in found.values()] == [("validation leak", "warning")] * says
    columns["model/evaluated_leap"] = step, np.where(np.arange(len(step)) % 2, leap, 1.0)
    assert not findings([EvaluationOverlaps()], columns)
