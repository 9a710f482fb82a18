"""What a model of denoising is given where examples are drawn with it, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_curves import found

import barograph
from barograph.doctor import diagnose
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.data.drawn import DrawnApart

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model import timed  # noqa: E402

LOOKS, EVALUATIONS = np.arange(0, 200, 10), np.arange(100, 200, 10)
TRAINING = {"early_time": 0.12, "early_std": 1.0, "early_rough": 1.0, "late_time": 0.88, "late_std": 0.9,
            "late_rough": 0.2}  # fmt: skip
RIGHT = {"first_time": 0.0, "first_std": 1.0, "first_rough": 1.0, "last_time": 0.95, "last_std": 0.8, "last_rough": 0.4}
AWAY: dict[str, Any] = {"last_std": 1.6, "last_rough": 0.95}


def judged(pieces: tuple[int, ...] = (), training: dict[str, float] | None = None, many: int = 10, fall: float = 0.0,
           loss: float = 0.2, evaluated: float | None = None, times: dict[str, float] | None = None,
           **drawn: Any) -> list[Finding]:  # fmt: skip
    """Of a training and drawings that differ from the right ones. fall: of the last size, from one to the next. loss:
    the last one, of a first of 1. evaluated: the last one of evaluations. times: the least and greatest of a look."""
    here, dice = EVALUATIONS[:many], np.random.default_rng(2)
    columns: dict[str, Any] = {
        f"model/input_{name}": (LOOKS, value + 0.02 * dice.normal(size=len(LOOKS)))
        for name, value in (TRAINING | (training or {})).items()
    }
    for name, value in (RIGHT | drawn).items():
        falls = (1 - fall) ** np.arange(many) if name in ("last_std", "last_rough") else 1.0
        columns[f"model/drawn_{name}"] = here, value * falls + 0.0 * here
    columns |= {f"model/time_{end}": (LOOKS, np.full(len(LOOKS), value)) for end, value in (times or {}).items()}
    columns["train/loss"] = LOOKS, np.maximum(loss, 1.0 - LOOKS / 60)
    if evaluated is not None:
        columns["val/loss"] = here, np.maximum(evaluated, 1.0 - (here - 100) / 30)
    return found([DrawnApart()], columns, pieces)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 20, 3))])
def test_a_drawing_begins_with_the_noise_of_the_training(pieces: tuple[int, ...]) -> None:
    assert not judged(pieces)
    (one,) = judged(pieces, first_std=0.1)
    assert one.step == 100 and one.causes[0].startswith("sampler wrong")
    assert judged(pieces, first_std=10.0) and not judged(pieces, first_std=10.0, many=2)
    assert not judged(pieces, first_std=0.7)  # drawn a little colder
    assert not judged(pieces, first_std=0.1, first_rough=0.3)  # no noise: what is changed, or goes on from a state
    assert not judged(pieces, {"late_std": 12.0}, first_std=80.0)  # levels that the inputs are not divided by
    assert not judged(pieces, {"early_rough": 0.2}, first_std=0.1)  # no model of denoising


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 20, 3))])
def test_a_drawing_goes_from_noise_to_examples(pieces: tuple[int, ...]) -> None:
    turned: dict[str, Any] = {"first_time": 1.0, "last_time": 0.05}
    (one,) = judged(pieces, **turned)
    assert one.causes[0].startswith("time reversed")
    assert not judged(pieces, **turned, first_rough=0.2)  # an example is taken back to its noise
    assert not judged(pieces, first_time=0.6)  # begins in the middle
    ends = {"early_time": 0.88, "late_time": 0.12}
    assert not judged(pieces, ends, **turned) and judged(pieces, ends)
    assert not judged(pieces, {"late_rough": 1.0}, **turned)  # examples are as rough as noise


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 20, 3))])
def test_steps_lead_to_examples(pieces: tuple[int, ...]) -> None:
    (one,) = judged(pieces, **AWAY)
    assert one.causes[0].startswith("sign reversed") and not judged(pieces, many=4, **AWAY)
    assert not judged(pieces, fall=0.02, **AWAY)  # a model that has learnt little, and learns
    assert not judged(pieces, last_std=1.6, last_rough=0.6, loss=0.8)
    assert not judged(pieces, last_std=1.2, last_rough=0.95, loss=0.8)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 20, 3))])
def test_steps_take_the_noise_out(pieces: tuple[int, ...]) -> None:
    (one,) = judged(pieces, last_rough=0.7)
    assert one.causes[0].startswith("sampler wrong: its levels") and not judged(pieces, many=4, last_rough=0.7)
    assert not judged(pieces, last_rough=0.7, loss=0.8)  # the model has learnt little
    assert judged(pieces, last_rough=0.98, loss=0.4, fall=0.009)  # all of the noise is left, and a bit less of it
    assert not judged(pieces, last_rough=0.7, loss=0.33)  # as by a loss that weighs little where noise is little
    assert not judged(pieces, last_rough=0.62, fall=0.01)  # and learns slowly
    assert not judged(pieces, last_rough=0.95, fall=0.02)  # and learns
    assert not judged(pieces, last_rough=0.95, evaluated=0.7)  # an average that lags behind
    assert judged(pieces, last_rough=0.95, evaluated=0.1)
    assert not judged(pieces, last_rough=0.7, last_time=0.8)  # the last step is a long one
    assert not judged(pieces, {"late_rough": 0.6}, last_rough=0.7)  # examples are rough


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 20, 3))])
def test_what_a_better_model_draws_is_smoother(pieces: tuple[int, ...]) -> None:
    (one,) = judged(pieces, last_rough=0.42, fall=-0.06)
    assert one.causes[0].startswith("sampler wrong: it uses") and "three evaluations before" in one.message
    assert not judged(pieces, last_rough=0.42, fall=-0.06, many=3)
    assert not judged(pieces, last_rough=0.42, fall=-0.03)  # by little
    assert not judged(pieces, last_rough=0.24, fall=-0.06)  # hardly rougher than the training's
    assert not judged(pieces, last_rough=0.42, fall=-0.06, loss=0.4)  # the model has learnt little
    assert not judged(pieces, last_rough=0.42, fall=-0.06, last_time=0.8)  # the last step is a long one


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 20, 3))])
@pytest.mark.parametrize(
    ("first", "last", "more", "told"),
    [
        (0.0, 15.0, {}, True),  # the number of the step
        (15.0, 0.0, {}, True),
        (0.0, 2.0, {}, False),
        (0.0, 0.015, {}, True),  # a share, where the training has numbers
        (0.0, 0.2, {}, False),
        (0.0, 15.0, {"first_rough": 0.2}, False),  # no noise
        (0.0, 80.0, {"first_std": 80.0}, False),  # levels of noise, which the numbers have
        (0.0, 80.0, {"times": {"low": 0.0, "high": 9.0}}, False),  # levels that are seldom large
        (0.0, 15.0, {"times": {}}, False),
    ],
)
def test_times_of_a_drawing_are_in_the_units_of_the_training(
    first: float, last: float, more: dict[str, Any], told: bool, pieces: tuple[int, ...]
) -> None:
    some = judged(pieces, **({"times": {"low": 0.01, "high": 0.99}, "first_time": first, "last_time": last} | more))
    assert any(one.causes[0].startswith("time scaled otherwise") for one in some) is told


def test_only_what_is_drawn_is_of_one_time() -> None:
    dice = torch.Generator().manual_seed(1)
    noise, smooth = torch.randn(32, 24, generator=dice), torch.linspace(-1, 1, 24).expand(32, 24)
    time, rough = timed.all_rows(noise, torch.full((32,), 0.5)).tolist()[::2]
    assert time == 0.5 and rough > 0.8 and timed.all_rows(smooth, torch.ones(32))[2] < 0.1
    assert timed.all_rows(noise[:, :4], torch.ones(32))[2].isnan()
    assert timed.is_one(torch.full((32,), 0.5)) and timed.is_one(torch.tensor(0.5).expand(32))
    assert not timed.is_one(torch.rand(32, generator=dice))


class Velocity(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(25, 48), nn.Linear(48, 24)

    def forward(self, x: Any, t: Any) -> Any:
        return self.last(torch.tanh(self.first(torch.cat([x, t[:, None]], 1))))


@pytest.mark.parametrize("way", ["right", "small", "turned"])
def test_a_sampler_is_followed(way: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Velocity()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    run = barograph.init(project="drawn", name=way, dir=str(tmp_path), sidecar=False, verbosity=-2, git=False)
    run.watch(model, optimizer, budget=None)
    line = torch.linspace(0, 6, 24)
    for step in range(60):
        x = torch.sin(line + 6 * torch.rand(32, 1)) * 1.4
        t, noise = torch.rand(32), torch.randn(32, 24)
        loss = (model((1 - t[:, None]) * noise + t[:, None] * x, t) - (x - noise)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log({"train/loss": loss.item()}, step=step)
        if step % 10 == 9:
            with torch.no_grad():
                drawn = torch.randn(32, 24) * (0.1 if way == "small" else 1.0)
                for at in range(8):
                    time = 1 - at / 8 if way == "turned" else at / 8
                    drawn = drawn + model(drawn, torch.full((32,), time)) / 8
            run.log({"val/size": drawn.std().item()}, step=step)
    run.finish()
    causes = [one["causes"][0] for one in diagnose(run.dir)["findings"] if one["rule"] == "drawn_apart"]
    wanted = {"small": "sampler wrong", "turned": "time reversed"}
    assert [cause.partition(":")[0] for cause in causes] == ([wanted[way]] if way in wanted else [])
