"""Examples that noise hides, in the training of a model of denoising and in its evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.doctor import diagnose

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model import behind_noise  # noqa: E402
from barograph.probes.model.near import SIGNS, nearer_by_chance, tenth_of  # noqa: E402


def noised(examples: Any, dice: Any) -> tuple[Any, Any]:
    share = 0.05 + 0.9 * torch.rand(len(examples), 1, generator=dice)
    noise = torch.randn(examples.shape, generator=dice)
    return (1 - share) * examples + share * noise, noise


def sketch(*rows: Any) -> Any:
    found = behind_noise.sketched(*rows)
    assert found is not None
    return found.double().numpy().T


@pytest.mark.parametrize("weighed", [False, True])
def test_planes_of_one_example_have_a_line_in_common_whatever_noise_and_weights(weighed: bool) -> None:
    dice = torch.Generator().manual_seed(4)
    examples = torch.randn(40, 24, generator=dice).double()
    given, target = noised(examples, dice)
    held, other = noised(examples, dice)
    output = torch.randn(40, 24, generator=dice)
    weights = 0.1 + torch.rand(40, 1, generator=dice)
    training = (given, output, weights * (output - target)) if weighed else (given, target)
    ours, told = behind_noise._bases(sketch(*training))
    theirs, _ = behind_noise._bases(sketch(held, other))
    assert len(told) == 40 and len(ours) == len(training)
    squares = behind_noise._squared_sines(theirs, ours)
    assert squares.diagonal().max() < 1e-4
    assert squares[~np.eye(40, dtype=bool)].min() > 0.05


def test_sketches_are_the_same_within_autocast() -> None:
    rows = torch.randn(6, 24, generator=torch.Generator().manual_seed(4))
    plain = behind_noise.sketched(rows, rows + 1)
    with torch.autocast("cpu", torch.bfloat16):
        within = behind_noise.sketched(rows, rows + 1)
    assert plain is not None and within is not None and torch.equal(plain, within)


def test_sines_are_those_of_the_singular_values() -> None:
    dice = np.random.default_rng(1)
    one, two = (dice.normal(size=(5, count * SIGNS)) for count in (2, 3))
    ours, theirs = behind_noise._bases(one)[0], behind_noise._bases(two)[0]
    found = behind_noise._squared_sines(ours, theirs)
    values = np.linalg.svd(np.einsum("ias,jbs->abij", ours, theirs), compute_uv=False)
    assert found == pytest.approx(1 - values[..., 0] ** 2, abs=1e-9)


def test_rows_that_span_no_plane_say_nothing() -> None:
    dice = torch.Generator().manual_seed(4)
    rows = torch.randn(6, 24, generator=dice)
    assert not len(behind_noise._bases(sketch(rows, 2 * rows))[1])
    assert not len(behind_noise._bases(sketch(rows, 0 * rows))[1])
    assert not len(behind_noise._bases(sketch(rows, rows * torch.nan))[1])
    assert behind_noise.sketched(rows[:, :7], rows[:, :7]) is None  # few numbers
    assert behind_noise.sketched(rows, rows[:3]) is None


@pytest.mark.parametrize("copies", [False, True])
def test_rows_that_differ_in_few_ways_by_much_are_no_copies(copies: bool) -> None:
    dice, wide = np.random.default_rng(3), np.r_[np.ones(3), np.full(20, 0.25)]
    trained, held = (dice.normal(size=(count, 23)) * wide for count in (800, 64))
    if copies:
        held = trained[:64] + 0.05 * dice.normal(size=(64, 23)) * wide
    squares = ((held[:, None] - trained[None]) ** 2).sum(2)
    nearer, _ = nearer_by_chance(squares, most=behind_noise._NEARER)
    near = float((squares.min(1) < nearer**2 * tenth_of(squares)[:, 0]).mean())
    assert nearer > 0 and (near > 0.9) == copies and (copies or near < 0.1)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(25, 32), nn.SiLU(), nn.Linear(32, 24))

    def forward(self, x: Any, t: Any) -> Any:
        return self.net(torch.cat([x, t[:, None]], 1))


def rows_of(dice: Any, number: int, of_each: int) -> Any:
    """Curves that a few numbers bend, of_each of which are one and the same but for little."""
    kinds = torch.randn(number // of_each, 6, generator=dice)
    place = torch.linspace(0, 3, 24)
    waves = torch.stack([(place * (at + 1) / 2).sin() for at in range(6)])
    curves = (kinds @ waves).repeat_interleave(of_each, 0)
    return curves + 0.02 * torch.randn(curves.shape, generator=dice)


@pytest.mark.parametrize("learns", ["noise", "weighed", "way"])
@pytest.mark.parametrize("split", ["rows", "groups", "alone"])
def test_near_copies_behind_noise_are_told(tmp_path: Path, learns: str, split: str) -> None:
    dice = torch.Generator().manual_seed(2)
    rows = rows_of(dice, 960, 1 if split == "alone" else 4)
    order = torch.randperm(960, generator=dice) if split == "rows" else torch.arange(960)
    held, rows = rows[order[:128]], rows[order[128:]]
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    run = barograph.init(project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False,
                         git=False)  # fmt: skip
    run.watch(model, optimizer)

    def loss_of(examples: Any, t: Any) -> Any:
        noise = torch.randn_like(examples)
        a, s = (1 - t)[:, None], t[:, None]
        said = model(a * examples + s * noise, t)
        if learns == "way":
            return (said - (noise - examples)).square().mean()
        return ((said - noise).square() * (1 if learns == "noise" else (1 + 3 * s))).mean()

    for step in range(150):
        some = torch.randint(0, len(rows), (48,), generator=dice)
        loss = loss_of(rows[some], torch.rand(48))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"fit/loss": loss.item()}, step=step)
        if step % 20 == 19:
            with torch.no_grad():
                value = loss_of(held, torch.rand(len(held)))
                drawn = torch.randn(64, 24)
                for at in (1.0, 0.6, 0.2):
                    drawn = drawn - 0.4 * model(drawn, torch.full((64,), at))
            run.log({"val/loss": value.item()}, step=step)
    run.finish()
    found = [one for one in diagnose(run)["findings"] if one["rule"] == "evaluation_overlaps"]
    assert [one["severity"] for one in found] == (["warning"] if split == "rows" else [])
