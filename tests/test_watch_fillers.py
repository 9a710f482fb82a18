"""Numbers that stand for missing ones, and are read like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_curves import found

import barograph
from barograph.doctor import diagnose
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.data.missing import MissingNumbers, UnitsApart

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from barograph.probes.model.fillers import FIGURES, UNITS, Fillers, fields_of  # noqa: E402
from barograph.probes.model.rounds import ModelRound  # noqa: E402


def table(seed: int, count: int = 64, filler: float = -99.0, share: float = 0.06, columns: int = 8) -> Any:
    """Columns of different sizes, of which the first half has fillers."""
    dice = np.random.default_rng(seed)
    values = dice.normal(3, 1, (count, columns)) * np.array([0.1, 1.0, 5.0, 0.5] * (columns // 4))
    gone = (dice.random((count, columns)) < share) & (np.arange(columns) < columns // 2)
    return torch.tensor(np.where(gone, filler, values)).float()


def counted(*tables: Any) -> dict[str, float]:
    fillers, current = Fillers(), ModelRound(1, frozenset())
    kept: dict[str, Any] = {}
    current.put = lambda family, names, values: kept.update({family: (names, [values.tolist()])})  # type: ignore
    for one in tables:
        fillers.given([torch.ones(len(one)).long(), one], True, True)
        fillers.put(current)
    return fields_of({name: (names, np.array(values)) for name, (names, values) in kept.items()})


@pytest.mark.parametrize("filler", [-99.0, 99.0])
@pytest.mark.parametrize("split", [1, 4])
def test_a_number_far_beyond_its_column_counts(filler: float, split: int) -> None:
    said = counted(*(table(0, 256, filler).chunk(split)))
    assert list(said) == [*FIGURES, *UNITS] and said["filler_columns"] == 4
    assert said["filler_number"] == filler and 0.02 < said["filler_share"] < 0.12
    assert (said["filler_rows"], said["filler_size"]) == (256, 8)
    low, high = sorted((said["filler_number"], said["filler_next"]))
    assert high - low > 90


def test_flags_kinds_heavy_tails_and_padding_have_no_filler() -> None:
    dice = np.random.default_rng(1)
    flags = torch.tensor(dice.random((256, 6)) < 0.05).float()
    kinds = torch.tensor(dice.choice([0.0, 1.0, 2.0, 50.0], (256, 6), p=[0.5, 0.3, 0.15, 0.05])).float()
    heavy = torch.tensor(np.minimum(dice.standard_cauchy((256, 6)), 40.0)).float()  # clipped
    padded = table(2, 256, share=0.0)
    padded[::9] = -99.0
    mostly = table(3, 256, share=0.7)
    filled = table(4, 256, filler=0.5)
    for one in (flags, kinds, heavy, padded, mostly, filled):
        assert counted(one)["filler_columns"] == 0 and "filler_number" not in counted(one)


def test_inputs_of_several_widths_say_nothing() -> None:
    assert not counted(table(0, 32), table(1, 32, columns=12), table(2, 64))


def judged(
    pieces: tuple[int, ...] = (), low: float = -99.0, columns: float = 2.0, number: float = -99.0, reward: bool = False
) -> list[Finding]:
    step, here = np.arange(200), np.array([4, 8, 16])
    figures = {"columns": columns, "share": 0.05, "number": number, "next": 0.3, "rows": 64.0, "size": 8.0}
    curves = {f"model/filler_{name}": (here, value + 0.0 * here) for name, value in figures.items()}
    curves |= {"train/loss": (step, 1 / (1 + step))}
    curves |= {f"model/entered_{name}": (np.array([6, 7]), np.full(2, value))
               for name, value in (("low", low), ("high", -low))}  # fmt: skip
    curves |= {"rollout/ep_rew_mean": (step, step)} if reward else {}
    return found([MissingNumbers()], curves, pieces)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 200, 7))])
def test_missing_numbers_are_a_warning_where_they_get_into_the_model(pieces: tuple[int, ...]) -> None:
    for number in (-99.0, 99.0):
        assert [(one.step, one.severity) for one in judged(pieces, number=number)] == [(0, "warning")]
    assert not judged(pieces, low=-3.0) and not judged(pieces, columns=1.0) and not judged(pieces, reward=True)


@pytest.mark.parametrize("taken_out", [False, True])
def test_a_model_that_takes_them_out_itself_is_left_alone(tmp_path: Path, taken_out: bool) -> None:
    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))

        def forward(self, x: Any) -> Any:
            return self.net(torch.where(x == -99.0, 0.0, x) if taken_out else x)

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    run = barograph.init(project="tables", dir=tmp_path)
    run.watch(model, optimizer)
    for step in range(24):
        x = table(step, 32)
        loss = ((model(x) - (x[:, 5:6] + x[:, 6:7]).sin()) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log({"loss": loss.item()}, step=step)
    run.finish()
    rules = [one["rule"] for one in diagnose(barograph.StoredRun(run.dir))["findings"]]
    assert ("missing_numbers" in rules) == (not taken_out)


def measured(seed: int, count: int = 64, sizes: tuple[float, ...] = (0.2, 1.0, 5.0, 0.5, 2.0, 2000.0)) -> Any:
    """Columns of different units."""
    return torch.tensor(np.random.default_rng(seed).normal(3, 1, (count, len(sizes))) * np.array(sizes)).float()


def test_columns_that_hardly_differ_beside_another_one_are_counted() -> None:
    said = counted(measured(0, 256))
    assert (said["unit_columns"], said["unit_lost"], said["unit_number"]) == (6, 5, 5)
    assert said["unit_deviation"] == pytest.approx(2000, rel=0.2)
    assert counted(measured(0, 256, (0.2, 1.0, 5.0, 0.5, 2.0, 15.0)))["unit_lost"] == 0
    filled = table(1, 256, share=0.06)
    filled[filled == -99.0] = -9999.0
    assert counted(filled)["unit_lost"] == 0  # a filler is none of the middle half
    flags = torch.cat(
        (torch.tensor(np.random.default_rng(1).random((256, 5)) < 0.3).float(), measured(2, 256)[:, 5:]), 1
    )
    assert counted(flags)["unit_columns"] == 1


def of_units(
    pieces: tuple[int, ...] = (), reward: bool = False, config: dict[str, Any] | None = None, **change: float
) -> list[Finding]:
    figures = {"unit_columns": 6.0, "unit_lost": 5.0, "unit_deviation": 2000.0, "unit_number": 5.0, "filler_size": 6.0,
               "entered_low": -900.0, "entered_high": 8000.0} | change  # fmt: skip
    step, here = np.arange(200), np.array([4, 8, 16])
    curves = {f"model/{name}": (here, value + 0.0 * here) for name, value in figures.items()}
    curves |= {"train/loss": (step, 1 / (1 + step))} | ({"rollout/ep_rew_mean": (step, step)} if reward else {})
    return found([UnitsApart()], curves, pieces, config=config or {})


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 200, 7))])
def test_units_that_are_far_apart_are_a_warning_where_they_get_into_the_model(pieces: tuple[int, ...]) -> None:
    assert [(one.step, one.severity) for one in of_units(pieces)] == [(0, "warning")]
    assert not of_units(pieces, entered_low=-4.0, entered_high=5.0)  # the model scales them
    assert not of_units(pieces, unit_lost=2.0) and not of_units(pieces, unit_columns=12.0)
    assert not of_units(pieces, unit_deviation=60.0) and not of_units(pieces, reward=True)
    assert not of_units(pieces, filler_size=128.0)  # a spectrum, or features of a network
    for option in ({"normalize_inputs": False}, {"data.standardise": "none"}, {"feature_scaling": "off"}):
        assert [one.severity for one in of_units(pieces, config=option)] == ["info"]
    assert [one.severity for one in of_units(pieces, config={"row_norm": "none", "lr_scale": None})] == ["warning"]


@pytest.mark.parametrize("scaled", ["", "before", "within", "behind"])
def test_a_model_that_is_given_units_that_are_far_apart(tmp_path: Path, scaled: str) -> None:
    norm = nn.BatchNorm1d(6, affine=False) if scaled == "within" else nn.Identity()
    behind = nn.BatchNorm1d(16) if scaled == "behind" else nn.Identity()
    torch.manual_seed(0)
    model = nn.Sequential(norm, nn.Linear(6, 16), behind, nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    run = barograph.init(project="tables", dir=tmp_path)
    run.watch(model, optimizer)
    for step in range(24):
        x = measured(step, 32)
        target = (x[:, :1] + x[:, 1:2]).sin()
        x = (x - x.mean(0)) / x.std(0) if scaled == "before" else x
        loss = ((model(x) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log({"loss": loss.item()}, step=step)
    run.finish()
    rules = [one["rule"] for one in diagnose(barograph.StoredRun(run.dir))["findings"]]
    assert ("units_apart" in rules) == (scaled in ("", "behind"))
