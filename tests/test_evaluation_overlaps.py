"""Evaluations that are given windows of the training's series, or its pictures mirrored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.data.overlaps import EvaluationOverlaps
from barograph.probes.model.cuts import Cuts, of_pictures
from barograph.probes.model.overlaps import PIECES, even_rows, numbers, pieces

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

LONG, STRIDE = 32, 4


def windows(series: Any, stride: int = STRIDE, first: int = 0) -> Any:
    return series[first:].unfold(0, LONG, stride).contiguous()


def found_in(folder: Path, given: Any, held_out: Any, network: Any) -> dict[str, str]:
    """Severities by rule, of a training that foretells the mean of the last numbers of a row."""
    torch.manual_seed(5)
    torch.set_num_threads(1)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    run = barograph.init(dir=str(folder), console="none", machine=False, sidecar=False, git=False)
    run.watch(network, optimizer)

    def loss_of(rows: Any) -> Any:
        return functional.mse_loss(network(rows)[:, 0], rows.flatten(1).square().mean(1))

    for step in range(1, 121):
        loss = loss_of(given[torch.randint(0, len(given), (32,))])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logged = {"loss": loss.item()}
        if step % 20 == 0:
            with torch.no_grad():
                logged["val_loss"] = sum(loss_of(rows).item() for rows in held_out.split(64)) / len(held_out.split(64))
        run.log(logged, step=step)
    run.finish()
    return {one["rule"]: one["severity"] for one in diagnose(barograph.StoredRun(run.dir))["findings"]}


def of_series() -> Any:
    return nn.Sequential(nn.Linear(LONG, 32), nn.ReLU(), nn.Linear(32, 1))


@pytest.mark.parametrize("kind", ["split by chance", "split by time", "beside the training's end", "of whole numbers"])
def test_windows_that_were_split_after_they_had_been_cut_are_found(tmp_path: Path, kind: str) -> None:
    dice = torch.Generator().manual_seed(1)
    series = torch.randn(4000, generator=dice)
    if kind == "of whole numbers":
        series = torch.randint(0, 4, (4000,), generator=dice).float()
    all_of_them = windows(series)
    if kind in ("split by time", "beside the training's end"):
        cut = 3000 if kind == "split by time" else 3000 - LONG // 2
        given, held_out = windows(series[:3000]), windows(series[cut:])
    else:
        order = torch.randperm(len(all_of_them), generator=dice)
        given, held_out = all_of_them[order[200:]], all_of_them[order[:200]]
    found = found_in(tmp_path, given, held_out, of_series())
    assert ("evaluation_overlaps" in found) == (kind == "split by chance")


@pytest.mark.parametrize("kind", ["mirrored", "others", "few"])
def test_pictures_of_the_training_that_are_mirrored_are_found(tmp_path: Path, kind: str) -> None:
    dice = torch.Generator().manual_seed(2)
    pictures = torch.rand(400, 1, 12, 12, generator=dice)
    given, held_out = pictures[:300], pictures[:100].flip(-1) if kind == "mirrored" else pictures[300:]
    if kind == "few":  # letters that are drawn somewhere: where is the task
        some = pictures[:12].repeat(40, 1, 1, 1)
        rolled = torch.stack([one.roll((at % 11, at % 7), (1, 2)) for at, one in enumerate(some)])
        given, held_out = rolled[::2], rolled[1::2]
    network = nn.Sequential(nn.Flatten(), nn.Linear(144, 32), nn.ReLU(), nn.Linear(32, 1))
    found = found_in(tmp_path, given, held_out, network)
    assert ("evaluation_overlaps" in found) == (kind == "mirrored")


def test_pieces_are_the_same_wherever_they_lie_and_of_others_they_are_others() -> None:
    series = torch.randn(3000, generator=torch.Generator().manual_seed(3))
    one, other = (pieces(windows(series, 64, first)) for first in (0, 8))
    assert one is not None and other is not None and one[0].shape[1] == PIECES
    common = [bool(set(a) & set(b)) for a, b in zip(one[0].tolist(), other[0].tolist(), strict=False)]
    assert sum(common) > 0.9 * len(common)
    apart = pieces(windows(torch.randn(3000), 64))
    assert apart is not None and not set(one[0].flatten().tolist()) & set(apart[0].flatten().tolist())
    assert pieces(torch.zeros(4, 40)) is not None and (pieces(torch.zeros(4, 40))[0] == -1).all()  # type: ignore[index]
    assert pieces(torch.ones(4, 40, dtype=torch.long)) is None and pieces(torch.rand(4, 8)) is None


def test_numbers_are_the_same_in_any_order_and_even_rows_reach_the_end() -> None:
    rows = torch.rand(6, 3, 8, 8)
    known = numbers(rows)
    assert known is not None and torch.equal(known, numbers(rows.flip(-1))) and len(set(known.tolist())) == 6  # type: ignore[arg-type]
    assert (numbers(torch.zeros(2, 3, 8, 8)) == -1).all()  # type: ignore[union-attr]
    assert even_rows(torch.arange(1000), 10).tolist() == list(range(0, 1000, 100))


@pytest.mark.parametrize(
    ("share", "chance", "pictures", "noised", "said"),
    [(0.15, 0.005, 1.0, False, True), (0.14, 0.005, 1.0, False, False), (0.2, 0.006, 1.0, False, False),
     (0.25, 0.05, 1.0, False, True), (0.2, 0.001, 0.0, False, False), (0.25, 0.05, 0.0, False, True),
     (0.7, 0.02, 0.0, True, False), (0.75, 0.02, 0.0, True, True)],
)  # fmt: skip
def test_few_pictures_are_enough_where_chance_brings_hardly_any_that_near_and_most_rows_behind_noise(
    share: float, chance: float, pictures: float, noised: bool, said: bool
) -> None:
    at, steps = np.array([20, 40, 60]), np.arange(0, 61, 5)
    columns = {"model/evaluated_near": (at, np.full(3, share)), "val_loss": (at, np.full(3, 1.0))}
    figures = {"chance": chance, "pictures": pictures, "passes": 1.0, "rows": 128.0, "groups": 0.0}
    figures |= {"noised": 1.0} if noised else {}
    columns |= {f"model/evaluated_near_{name}": (at, np.full(3, value)) for name, value in figures.items()}
    for name, value in (("example_rows", 32.0), ("distinct_rows", 400.0)):
        columns[f"model/{name}"] = steps, np.full(len(steps), value)
    assert bool(findings([EvaluationOverlaps()], columns)) == said


def cuts_of(kind: str) -> tuple[Any, Any]:
    """Pictures of a training and of an evaluation."""
    dice = torch.Generator().manual_seed(4)
    if kind in ("things", "plain", "grey"):
        pictures = torch.rand(500, 3, 20, 20, generator=dice)
        thing = torch.rand(3, 9, 9, generator=dice) if kind == "things" else torch.full((3, 9, 9), 0.5)
        for one, (down, across) in zip(pictures, torch.randint(12, (500, 2), generator=dice).tolist(), strict=True):
            one[:, down : down + 9, across : across + 9] = thing
        pictures = (pictures * 8).round() if kind == "grey" else pictures
        return pictures[100:], pictures[:100]
    track = torch.rand(3, 20, 5000, generator=dice)
    every = track.unfold(2, 20, 10).movedim(2, 0).contiguous()
    if kind == "parts":
        return every[100:], every[:99]
    order = torch.randperm(len(every), generator=dice)
    given, held_out = every[order[100:]], every[order[:100]]
    if kind == "noise":
        given = given + 0.01 * torch.randn(given.shape, generator=dice)
    return (given.movedim(1, 3), held_out.movedim(1, 3)) if kind == "channels last" else (given, held_out)


@pytest.mark.parametrize(
    ("kind", "some"),
    [("split by chance", True), ("channels last", True), ("parts", False), ("noise", False), ("things", False),
     ("plain", False), ("grey", False)],
)  # fmt: skip
def test_cuts_of_one_picture_are_told_from_things_that_are_in_several(kind: str, some: bool) -> None:
    def numbers_of(rows: Any) -> tuple[tuple[str, ...], np.ndarray]:
        found = of_pictures(rows)
        assert found is not None
        flat = found.movedim(0, 1).reshape(-1)
        return ("0",) * len(flat), flat.double().numpy()[None]

    given, held_out = cuts_of(kind)
    cuts = Cuts()
    for _ in range(2):
        cuts.keep({"squares": numbers_of(given)})
    seen = cuts.seen({"evaluated_squares": numbers_of(held_out)})
    assert seen.get("evaluated_cuts_rows", len(held_out)) == len(held_out)
    assert seen["evaluated_cuts"] >= 0.8 if some else seen.get("evaluated_cuts", 0.0) <= 0.02
    assert of_pictures(given[:, 0]) is None and of_pictures(given[:, :, :12, :12]) is None


@pytest.mark.parametrize("kind", ["split by chance", "parts"])
def test_cuts_that_were_split_after_they_had_been_cut_are_found(tmp_path: Path, kind: str) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(1200, 16), nn.ReLU(), nn.Linear(16, 1))
    assert ("evaluation_overlaps" in found_in(tmp_path, *cuts_of(kind), network)) == (kind == "split by chance")
