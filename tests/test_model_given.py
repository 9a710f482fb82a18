"""Single columns of inputs, beginnings of texts, and parts that an evaluation asks alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_curves import found

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.data.sides import EvaluationColumns, EvaluationOpenings

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model import columns, given, openings  # noqa: E402
from barograph.probes.model.given import GivenInputs  # noqa: E402
from barograph.probes.model.rounds import ModelRound  # noqa: E402

DICE = torch.Generator().manual_seed(1)


def recorded(of: Any, training: list[list[Any]], evaluation: list[list[Any]]) -> dict[str, float]:
    """What is recorded of passes of the training, and behind those of an evaluation."""
    look, current = GivenInputs(), ModelRound(9, frozenset())
    for some in training:
        look.given(some, True, True)
        look.put(ModelRound(1, frozenset()))
    for some in evaluation:
        look.given(some, False, False)
    look.put(current)
    current.send()
    return dict(of.fields_of(current.numbers()))


def table(rows: int = 64, **units: float) -> Any:
    """Five standardised columns; unit of `c2=60` is 1 / 60."""
    values = torch.randn(rows, 5, generator=DICE)
    for name, times in units.items():
        values[:, int(name[1:])] = values[:, int(name[1:])].abs() * times
    return values


def test_the_column_that_lies_the_furthest_beyond_is_recorded() -> None:
    seen = recorded(columns, [[table()], [table()]], [[table(c3=900.0)]])
    assert (seen["column_place"], seen["column_dimension"], seen["column_number"]) == (0, 1, 3)
    assert seen["column_looks"] == 2 and seen["column_beyond"] > 50
    assert seen["column_deviation"] == pytest.approx(1, 0.2)
    ours, theirs = (one[:, :, None].expand(-1, -1, 7) for one in (table(), table(c1=0.001)))
    seen = recorded(columns, [[ours]] * 3, [[theirs]])
    assert (seen["narrow_dimension"], seen["narrow_number"]) == (1, 1) and seen["narrow_times"] > 300


def test_columns_that_have_what_another_one_has_are_counted() -> None:
    level = torch.tensor([3.0, 20.0, 60.0, 150.0, 400.0])
    rows = [level + level / 6 * table(rows=128) for _ in range(4)]
    seen = recorded(columns, [[one] for one in rows[:3]], [[rows[3].flip(1)]])
    assert (seen["column_moved"], seen["column_swapped"]) == (4, 4)  # the one in the middle stays
    seen = recorded(columns, [[one] for one in rows[:3]], [[1000 + rows[3]]])
    assert (seen["column_moved"], seen["column_swapped"]) == (5, 0)


def test_columns_that_are_all_one_number_times_the_trainings_are_told_by_it() -> None:
    level, wide = torch.tensor([3.0, 4.0, 5.0, 6.0, 0.0]), torch.tensor([1.0, 0.5, 1.2, 2.0, 1.0])
    rows = [level + wide * table(rows=128) for _ in range(4)]

    def factor(evaluation: Any) -> float:
        return recorded(columns, [[one] for one in rows[:3]], [[evaluation]])["column_factor"]

    assert factor(rows[3]) == pytest.approx(1, 0.03)
    assert factor(rows[3] / math.log(10)) == pytest.approx(1 / math.log(10), 0.03)
    other = rows[3] / math.log(10)
    other[:, 1] = rows[3][:, 1]
    assert factor(other) == 0  # one column is as it was
    assert factor(level / 2 + wide * table(rows=128)) == 0  # all have another mean, and vary as before
    assert factor((rows[3] - level) / math.log(10)) == 0


def test_rows_of_an_evaluation_are_looked_at_evenly() -> None:
    held = table(rows=240).sort(0).values  # it lies in an order
    seen = recorded(columns, [[table()]] * 3, [[held]])
    number = int(seen["column_number"])
    assert seen["column_eval_mean"] == pytest.approx(float(held[:, number].mean()), abs=0.05)
    assert seen["column_eval_deviation"] == pytest.approx(float(held[:, number].std()), rel=0.1)
    assert abs(seen["column_mean"]) < 0.4 and seen["column_beyond"] < 0


@pytest.mark.parametrize(
    "evaluation",
    [
        [table(rows=16)],  # of too few rows
        [table(c3=900.0), torch.ones(64)],  # another pass
        [table(c3=900.0).round().clamp(max=3)],  # few numbers
        [table()[:, :4] * 900],  # another width
        [table(c3=900.0).long()],
    ],
)
def test_few_rows_and_other_passes_are_not_compared(evaluation: list[Any]) -> None:
    assert recorded(columns, [[table()]] * 3, [evaluation]).get("column_number") != 3


def test_inputs_that_changed_places_are_not_beyond() -> None:
    one, other = table(), table(c0=900.0, c1=900.0, c2=900.0, c3=900.0, c4=900.0)
    assert recorded(columns, [[one, other]] * 3, [[other, one]])["column_beyond"] < 1


def texts(first: int | None, rows: int = 16, pad: int = 0) -> Any:
    found = torch.randint(5, 50, (rows, 9), generator=DICE)
    if first is not None:
        found[:, 0] = first
    return torch.cat((torch.zeros(rows, pad, dtype=torch.long), found), 1)


@pytest.mark.parametrize(
    ("training", "evaluation", "expected"),
    [
        (texts(1), texts(1), (1, 1, 1, 1)),
        (texts(1), texts(1, pad=3), (1, 1, 1, 1)),  # padded on the left
        (texts(1), texts(3), (3, 1, 0, 0)),
        (texts(1), texts(3, rows=4), None),  # few rows
        (texts(1), texts(3)[:, :2], None),  # token by token
    ],
)
def test_the_opening_of_texts_is_recorded(training: Any, evaluation: Any, expected: tuple[float, ...] | None) -> None:
    seen = recorded(given, [[training]] * 2, [[evaluation]])
    assert tuple(seen[name] for name in openings.EVALUATED if name in seen) == (expected or ())


class Towers(nn.Module):
    """An encoder and a head; the encoder may be asked alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.encoder = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            self.encoder(10 + 5 * x)  # beside the pass, and within it
        return self.head(self.encoder(x))


def trained(folder: Path, evaluate: Callable[[Towers, Any], Any], watched: bool = True) -> tuple[Any, list[Any]]:
    model, dice = Towers(), torch.Generator().manual_seed(3)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    run = barograph.init(dir=str(folder), console="none", machine=False, sidecar=False, git=False)
    if watched:
        run.watch(model, optimizer)
    for step in range(100):
        x = torch.randn(32, 6, generator=dice)
        loss = nn.functional.cross_entropy(model(x), (x[:, :4]).argmax(1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        row = {"train/loss": loss.item()}
        if step % 20 == 19:
            with torch.no_grad():
                evaluate(model, torch.randn(64, 6, generator=dice))
            row["neighbours"] = 0.5
        run.log(row, step=step)
    run.finish()
    return run, [one.detach().clone() for one in model.parameters()]


@pytest.mark.parametrize(
    ("name", "evaluate", "told"),
    [
        ("encoder", lambda model, x: model.encoder(4 * x + 3), True),
        ("its first layer", lambda model, x: model.encoder[0](4 * x + 3), True),
        ("as it should", lambda model, x: model.encoder(x), False),
        ("the model first", lambda model, x: (model(x), model.encoder(4 * x + 3)), False),
        ("a part behind", lambda model, x: model.head(torch.full((64, 8), 9.0)), False),
    ],
)
def test_a_part_that_is_asked_alone_is_seen(tmp_path: Path, name: str, evaluate: Any, told: bool) -> None:
    run, _ = trained(tmp_path, evaluate)
    stored = barograph.StoredRun(run.dir)
    assert [one["step"] for one in diagnose(stored)["findings"] if one["rule"] == "evaluation_inputs"] == [20] * told
    assert ("model/parts_without_gradients" in stored.names()) == (name != "a part behind")


def test_parts_that_each_step_asks_say_nothing_and_no_hook_is_left(tmp_path: Path) -> None:
    model, dice = Towers(), torch.Generator().manual_seed(3)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(60):
        x = torch.randn(32, 6, generator=dice)
        with torch.no_grad():
            model.encoder(5 * x + 3)
        nn.functional.cross_entropy(model(x), x[:, :4].argmax(1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log({"train/loss": 1.0}, step=step)
    run.finish()
    names = set(barograph.StoredRun(run.dir).names())
    assert "model/input_std" in names and "model/eval_input_std" not in names
    assert not any(one._forward_pre_hooks or one._forward_hooks for one in model.modules())


def test_the_training_is_bit_for_bit_as_without_the_watch(tmp_path: Path) -> None:
    def evaluate(model: Towers, x: Any) -> Any:
        return model.encoder(4 * x + 3)

    _, plain = trained(tmp_path / "plain", evaluate, watched=False)
    _, seen = trained(tmp_path / "watched", evaluate)
    assert all(torch.equal(one, other) for one, other in zip(plain, seen, strict=True))


STEPS = np.arange(1, 8) * 20
BEYOND = {"column_beyond": 3.1, "column_looks": 8.0, "column_low": -3.0, "column_high": 3.0, "column_median": 21.6,
          "column_place": 0.0, "column_dimension": 1.0, "column_number": 3.0, "column_deviation": 1.0,
          "column_eval_deviation": 9.0, "narrow_times": 1.0}  # fmt: skip
CELSIUS = BEYOND | {"column_beyond": 0.7, "column_low": -1.0, "column_high": 32.0, "column_median": 57.0,
                    "column_mean": 15.0, "column_eval_mean": 59.5, "column_deviation": 5.5,
                    "column_eval_deviation": 9.5}  # fmt: skip
FAHRENHEIT = CELSIUS | {"column_low": 30.0, "column_high": 90.0, "column_median": 14.6, "column_beyond": 0.2,
                        "column_mean": 59.0, "column_eval_mean": 15.2, "column_deviation": 9.9,
                        "column_eval_deviation": 5.4}  # fmt: skip
TO_TEN = BEYOND | {"column_beyond": 0.1, "column_low": 1.6, "column_high": 11.0, "column_factor": 0.43}
NARROW = {f"narrow_{name.removeprefix('column_')}": value for name, value in BEYOND.items() if "_" in name}
NARROW |= {"column_beyond": 0.0, "narrow_times": 31.0, "narrow_median": -1.5}


def said(rule: Any, figures: dict[str, float], worse: float, pieces: Any = (), facts: Any = None) -> list[int]:
    series: dict[str, Any] = {f"model/{name}": (STEPS, np.full(len(STEPS), value)) for name, value in figures.items()}
    series |= {"train/loss": (np.arange(140), np.ones(140)), "val/loss": (STEPS - 1, np.full(len(STEPS), worse))}
    return [one.step for one in found([rule], series, pieces, **({"facts": facts} if facts else {}))]


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 140, 9))])
@pytest.mark.parametrize(
    ("figures", "worse", "told"),
    [
        (BEYOND, 1.0, True),
        (BEYOND, 0.9, False),  # better than the training
        (BEYOND | {"column_beyond": 2.9}, 1.0, False),  # it went on, or has grown
        (BEYOND | {"column_looks": 7.0}, 1.0, False),
        (CELSIUS, 1.2, True),
        (FAHRENHEIT, 1.2, True),
        (CELSIUS, 0.9, False),
        (CELSIUS | {"column_looks": 7.0}, 1.2, False),
        (CELSIUS | {"column_beyond": -0.1}, 1.2, False),
        (CELSIUS | {"column_eval_mean": 63.0}, 1.2, False),
        (CELSIUS | {"column_eval_deviation": 5.5}, 1.2, False),  # it has moved
        (CELSIUS | {"column_high": 900.0}, 1.2, False),  # no temperature
        (TO_TEN, 1.2, True),
        (TO_TEN | {"column_factor": math.log(2)}, 1.2, True),
        (TO_TEN, 1.05, False),
        (TO_TEN | {"column_factor": 0.5}, 1.2, False),  # half as much of everything
        (TO_TEN | {"column_factor": 0.0}, 1.2, False),
        (TO_TEN | {"column_factor": 1.0}, 1.2, False),
        (TO_TEN | {"column_high": 900.0}, 1.2, False),  # no logarithm
        (TO_TEN | {"column_looks": 7.0}, 1.2, False),
        (NARROW, 1.2, True),
        (NARROW, 1.05, False),
        (NARROW | {"narrow_times": 29.0}, 1.2, False),
        (NARROW | {"narrow_median": 2.9}, 1.2, False),  # the time that is held out
        (NARROW | {"narrow_deviation": 0.5}, 1.2, False),  # a few large numbers, which an evaluation may lack
    ],
)
def test_a_column_in_other_units_is_told_at_three_evaluations(
    figures: dict[str, float], worse: float, told: bool, pieces: tuple[int, ...]
) -> None:
    assert said(EvaluationColumns(), figures, worse, pieces) == [20] * told


@pytest.mark.parametrize(
    ("moved", "swapped", "cause"),
    [(5.0, 5.0, "columns in another order"), (5.0, 4.0, "normalisation differs"), (3.0, 3.0, "normalisation differs")],
)
def test_columns_that_all_have_what_others_have_are_in_another_order(moved: float, swapped: float, cause: str) -> None:
    figures = BEYOND | {"column_moved": moved, "column_swapped": swapped}
    series = {f"model/{name}": (STEPS, np.full(len(STEPS), value)) for name, value in figures.items()}
    series |= {"train/loss": (np.arange(140), np.ones(140)), "val/loss": (STEPS - 1, np.full(len(STEPS), 1.2))}
    (one,) = found([EvaluationColumns()], series, ())
    assert one.causes[0].startswith(cause)


OPENINGS = {"eval_opening": 9.0, "eval_opening_share": 0.96, "eval_opening_known": 0.0}


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 140, 9))])
@pytest.mark.parametrize(
    ("figures", "opening", "share", "told"),
    [
        (OPENINGS, 4.0, 0.2, True),  # a token that the training never had
        (OPENINGS | {"eval_opening_share": 0.94}, 4.0, 0.2, False),
        (OPENINGS | {"eval_opening_known": 1.0}, 4.0, 0.2, False),  # all go on from one prompt
        (OPENINGS | {"eval_opening_known": 1.0}, 4.0, 0.96, True),  # another template
        (OPENINGS | {"eval_opening_known": 1.0}, 9.0, 0.96, False),
    ],
)
def test_texts_of_evaluations_that_begin_otherwise_are_told(
    figures: dict[str, float], opening: float, share: float, told: bool, pieces: tuple[int, ...]
) -> None:
    series: dict[str, Any] = {f"model/{name}": (STEPS, np.full(len(STEPS), value)) for name, value in figures.items()}
    looks = np.arange(0, 140, 2)
    series |= {"model/opening": (looks, np.full(len(looks), opening)), "train/loss": (np.arange(140), np.ones(140)),
               "model/opening_share": (looks, np.full(len(looks), share)),
               "val/loss": (STEPS - 1, np.full(len(STEPS), 1.2))}  # fmt: skip
    assert [one.step for one in found([EvaluationOpenings()], series, pieces)] == [20] * told
