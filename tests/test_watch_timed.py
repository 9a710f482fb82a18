"""Inputs of a model of denoising at the least and the greatest times, in its training and in evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_curves import found

import barograph
from barograph.doctor import diagnose
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.data.timed import EvaluationTimed, MixedApart, TimeSame, TimesReversed

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model import timed  # noqa: E402

ROWS = 200
LOOKS, EVALUATIONS = np.arange(0, ROWS, 10), np.arange(20, ROWS, 20)


def test_quarters_are_those_of_the_least_and_the_greatest_times() -> None:
    time = torch.tensor([3, 1, 2, 0] * 6)
    given = time[:, None].float() + torch.linspace(-1, 1, 9)
    early, _, first, _, late, deviation, last, _, _, middle = timed.figures(given, time).tolist()
    assert (early, first, late, last, middle) == pytest.approx((0, 0, 3, 3, 1.5), abs=1e-6)
    assert deviation == pytest.approx(float(given[time == 3].std()), rel=1e-4)
    assert timed.figures(given, torch.ones(24)).isnan().all()


def test_noise_is_rough_and_examples_are_smooth() -> None:
    dice = torch.Generator().manual_seed(2)
    time = torch.rand(64, generator=dice)
    noise = torch.randn(64, 2, 32, generator=dice)
    smooth = torch.sin(torch.linspace(0, 3, 32)) + torch.randn(64, 2, 1, generator=dice)
    names = dict(zip(timed.FIGURES, range(10), strict=True))
    for turned in (False, True):
        part = (1 - time if turned else time)[:, None, None]
        found = timed.figures(part * smooth + (1 - part) * noise, time)
        ends = ("late", "early") if turned else ("early", "late")
        rough, even = (float(found[names[f"{end}_rough"]]) for end in ends)
        assert rough > 0.8 and even < 0.4
    assert timed.figures(noise[:, 0, :4], time)[names["late_rough"]].isnan()


def judged(
    pieces: tuple[int, ...] = (), mean: float = 0.3, scale: float = 0.45, whole: float = 0.2, time: float = 0.12,
    config: dict[str, Any] | None = None, evaluations: int = 9, deviation: float = 1.0, late: float = 1.0,
    held: float = 1.0,
) -> list[Finding]:  # fmt: skip
    """An evaluation whose early quarter has this mean, deviation and time, its late one a deviation, and all of whose
    inputs have a mean and a deviation; its loss, where the training's is 1."""
    dice, here = np.random.default_rng(3), EVALUATIONS[:evaluations]
    ends = {"mean": 0.0, "std": 1.0, "early_mean": 0.0, "early_std": 1.0, "early_time": 0.12, "late_mean": 0.0,
            "late_std": 1.0, "late_time": 0.88}  # fmt: skip
    ours = {f"input_{name}": value for name, value in ends.items()}
    theirs = {"mean": whole, "std": deviation, "early_mean": mean, "early_std": scale, "early_time": time,
              "late_mean": 0.0, "late_std": late, "late_time": 0.88}  # fmt: skip
    columns = {f"model/{name}": (LOOKS, value + 0.03 * dice.normal(size=len(LOOKS))) for name, value in ours.items()}
    columns |= {f"model/eval_input_{name}": (here, value + 0.0 * here) for name, value in theirs.items()}
    columns |= {"train/loss": (LOOKS, 1.0 + 0.0 * LOOKS), "eval/loss": (here - 1, held + 0.0 * here)}
    return found([EvaluationTimed()], columns, pieces, config=config or {})


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 20, 3))])
def test_examples_that_are_prepared_in_another_way_show_at_one_end_of_the_times(pieces: tuple[int, ...]) -> None:
    (one,) = judged(pieces)
    assert one.step == 80 and one.causes[0].startswith("inputs not normalised")  # eight looks come first
    assert not judged(pieces, evaluations=5)
    assert not judged(pieces, mean=-0.36, scale=0.8, whole=-0.02)  # one class stands at these times
    assert not judged(pieces, whole=0.05) and not judged(pieces, mean=0.02) and not judged(pieces, scale=0.9)
    assert not judged(pieces, time=0.4)  # other times than the training's
    assert not judged(pieces, config={"eval_domain": "night"})
    assert judged(pieces, mean=0.02, whole=0.0, deviation=0.8)  # from 0 to 1, where the training's were scaled
    assert not judged(pieces, mean=0.02, whole=0.0, deviation=0.95)
    assert not judged(pieces, mean=0.02, scale=0.6, whole=0.0, deviation=0.8)  # one class stands at these times
    assert not judged(pieces, mean=0.02, whole=0.0, deviation=1.3)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 20, 3))])
def test_examples_of_another_size_show_where_evaluations_are_worse(pieces: tuple[int, ...]) -> None:
    other: dict[str, Any] = {"mean": 0.02, "scale": 0.7, "whole": 0.0, "deviation": 0.83}
    (one,) = judged(pieces, held=2.0, **other)
    assert one.causes[0].startswith("inputs not normalised")
    assert judged(pieces, held=2.0, **(other | {"scale": 1.4, "deviation": 1.25}))
    assert not judged(pieces, held=1.2, **other)  # no worse than on what is trained on
    assert not judged(pieces, held=2.0, **(other | {"deviation": 0.94}))  # one class stands at these times
    assert not judged(pieces, held=2.0, **(other | {"scale": 0.8}))
    assert not judged(pieces, held=2.0, late=0.8, **other)  # noise of another size


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(25, 32), nn.SiLU(), nn.Linear(32, 24))

    def forward(self, x: Any, t: Any) -> Any:
        return self.net(torch.cat([x, t[:, None]], 1))


@pytest.mark.parametrize("fault", ["none", "raw", "rand", "squares"])
def test_an_evaluation_on_raw_examples_and_noise_that_is_even_are_found(tmp_path: Path, fault: str) -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    run = barograph.init(project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False,
                         git=False)  # fmt: skip
    run.watch(model, optimizer)

    def loss_of(examples: Any, noise: Any, t: Any) -> Any:
        a, s = (1 - t)[:, None], t[:, None]
        if fault == "squares" and not torch.is_grad_enabled():  # of the evaluation alone
            a, s = a.sqrt(), s.sqrt()
        return (model(a * examples + s * noise, t) - (noise - examples)).square().mean()

    for step in range(130):
        examples = torch.randn(48, 24)
        noise = torch.rand_like(examples) if fault == "rand" else torch.randn_like(examples)
        loss = loss_of(examples, noise, torch.rand(48))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"fit/loss": loss.item()}, step=step)
        if step % 20 == 19:
            with torch.no_grad():
                held = torch.randn(64, 24) * (0.3 if fault == "raw" else 1) + (0.6 if fault == "raw" else 0)
                value = loss_of(held, torch.randn_like(held), (torch.arange(64) + 0.5) / 64)
                model(torch.randn(64, 24), torch.full((64,), 0.9))  # a sample
            run.log({"val/loss": value.item()}, step=step)
    run.finish()
    kinds = {one["rule"]: one["causes"] for one in diagnose(run)["findings"] if one["severity"] == "warning"}
    says = {"none": set(), "squares": {"mixed_apart"}}
    assert set(kinds) == says.get(fault, {"evaluation_timed"})
    assert fault != "rand" or kinds["evaluation_timed"][0].startswith("noise of the wrong distribution")


@pytest.mark.parametrize(
    ("ours", "theirs", "time", "says"),
    [((0.9, 0.2), (0.2, 0.9), 0.12, 1), ((0.2, 0.9), (0.9, 0.2), 0.12, 1), ((0.9, 0.2), (0.9, 0.2), 0.12, 0),
     ((0.6, 0.5), (0.2, 0.9), 0.12, 0), ((0.9, 0.2), (0.2, 0.9), 0.5, 0), ((0.9, 0.2), (0.5, 0.6), 0.12, 0)],
)  # fmt: skip
def test_noise_where_the_training_has_the_examples_is_a_finding(
    ours: tuple[float, float], theirs: tuple[float, float], time: float, says: int
) -> None:
    times = {"early_time": 0.12 + 0.01 * np.arange(len(LOOKS)) % 0.05, "late_time": np.full(len(LOOKS), 0.88)}
    columns = {f"model/input_{name}": (LOOKS, values) for name, values in times.items()}
    for end, mine, other, when in (("early", ours[0], theirs[0], time), ("late", ours[1], theirs[1], 0.88)):
        columns |= {
            f"model/input_{end}_rough": (LOOKS, np.full(len(LOOKS), mine)),
            f"model/eval_input_{end}_rough": (EVALUATIONS, np.full(len(EVALUATIONS), other)),
            f"model/eval_input_{end}_time": (EVALUATIONS, np.full(len(EVALUATIONS), when)),
        }
    assert len(found([TimesReversed()], columns, ())) == says


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 20, 3))])
def test_other_factors_of_noise_show_in_the_middle_of_the_times_alone(pieces: tuple[int, ...]) -> None:
    def said(whole: float = 1.0, middle: float = 1.0, early: float = 1.0, time: float = 0.5, **config: Any) -> int:
        dice = np.random.default_rng(3)
        stds = {"std": 0.87, "early_std": 1.0, "middle_std": 0.75, "late_std": 1.0}
        times = {"early_time": 0.12, "middle_time": 0.5, "late_time": 0.88}
        theirs = stds | times | {"std": whole, "early_std": early, "middle_std": middle, "middle_time": time}
        columns = {
            f"model/input_{name}": (LOOKS, value + 0.02 * dice.uniform(-1, 1, len(LOOKS)))
            for name, value in (stds | times).items()
        }
        columns |= {
            f"model/eval_input_{name}": (EVALUATIONS, np.full(len(EVALUATIONS), value))
            for name, value in theirs.items()
        }
        return len(found([MixedApart()], columns, pieces, config=config))

    assert said() == 1
    assert not said(middle=0.88) and not said(whole=0.87)
    assert not said(early=1.3)  # other examples
    assert not said(time=0.7)  # other times than the training's
    assert not said(eval_domain="night") and not said(curriculum="few levels first")


class Embedded(nn.Module):
    """Makes something of the time. whole: by a division in whole numbers; zero: its last layer begins at zero."""

    def __init__(self, whole: bool, zero: bool = False) -> None:
        super().__init__()
        self.time_mlp = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.net, self.whole = nn.Sequential(nn.Linear(40, 32), nn.SiLU(), nn.Linear(32, 24)), whole
        if zero:
            nn.init.zeros_(self.time_mlp[2].weight)

    def forward(self, x: Any, t: Any) -> Any:
        angles = (t // 100 if self.whole else t / 100)[:, None] * torch.arange(1, 9)
        return self.net(torch.cat([x, self.time_mlp(torch.sin(angles))], 1))


@pytest.mark.parametrize(
    ("whole", "zero", "times", "says"),
    [
        (True, False, 100, True),
        (False, False, 100, False),
        (False, True, 100, False),
        (True, False, 1, False),  # all rows have one time
    ],
)
def test_a_time_that_is_one_number_within_the_model_is_told(
    tmp_path: Path, whole: bool, zero: bool, times: int, says: bool
) -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Embedded(whole, zero)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    run = barograph.init(project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False,
                         git=False)  # fmt: skip
    run.watch(model, optimizer)
    for step in range(90):
        x, t = torch.randn(32, 24), torch.randint(times, (32,))
        noise = torch.randn_like(x)
        a = (t / 100)[:, None]
        loss = (model((1 - a) * x + a * noise, t) - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
    run.finish()
    assert any(one["rule"] == "time_same" for one in diagnose(run)["findings"]) == says
    left = [(name, hook) for name, module in model.named_modules() for hook in module._forward_hooks.values()]
    assert not left


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 20, 3))])
def test_times_are_looked_at_in_several_batches(pieces: tuple[int, ...]) -> None:
    def judged(looks: int = 16, low: float = 0.0, same: Any = 1.0) -> list[Finding]:
        here = LOOKS[:looks]
        columns = {"time_same": same, "time_low": low, "time_high": 99.0}
        return found([TimeSame()], {f"model/{name}": (here, one + 0.0 * here) for name, one in columns.items()}, pieces)

    (one,) = judged()
    assert one.step == 0 and one.causes[0].startswith("time lost")
    assert not judged(looks=11) and not judged(low=99.0) and not judged(same=0.0)
    assert not judged(same=np.where(np.arange(16) < 8, 1.0, 0.0))  # a layer that begins at zero
