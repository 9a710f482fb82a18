"""Passes with gradients that train nothing, as an evaluation without `no_grad`: their examples were not trained on."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from watched_models import QUIET, Notes  # noqa: E402

from barograph.probes.model.trained_passes import left_out  # noqa: E402
from barograph.probes.model.watch import ModelWatch  # noqa: E402

DICE = torch.Generator().manual_seed(9)
TRAINED, HELD_OUT = torch.randn(400, 6, generator=DICE), torch.randn(64, 6, generator=DICE)


class Scores(nn.Module):
    """Gives one output, or several."""

    def __init__(self, several: bool) -> None:
        super().__init__()
        self.layers, self.several = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1)), several

    def forward(self, rows: Any) -> Any:
        out = self.layers(rows)
        return {"other": out * 2, "scores": out} if self.several else out


def train(asked: str, several: bool = False, passes: int = 1) -> list[float]:
    """Shares of the evaluations' examples that were trained on. asked: when they are asked with gradients."""
    torch.manual_seed(0)
    run, model = Notes(), Scores(several)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    watch = ModelWatch(run, model, optimizer, **QUIET)

    def scores(rows: Any) -> Any:
        return model(rows)["scores"] if several else model(rows)

    for step in range(12):
        if asked == "always" or (asked == "first" and not step):
            for part in HELD_OUT.chunk(passes):
                scores(part)
        some = TRAINED[32 * step : 32 * step + 32]
        rows = torch.cat([some, HELD_OUT[:16]]) if asked == "trained" else some
        optimizer.zero_grad()
        scores(rows).square().mean().backward()
        optimizer.step()
        run.log(step)
        if step % 4 == 3:
            with torch.no_grad():
                scores(HELD_OUT)
    watch.close()
    told = [run.fields(step) for step in run.steps]
    return [fields["evaluated_trained"] for fields in told if "evaluated_trained" in fields]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("passes", [1, 3, 8])
@pytest.mark.parametrize("asked", ["first", "always"])
def test_examples_of_a_pass_that_no_gradient_comes_back_to_were_not_trained_on(
    asked: str, several: bool, passes: int
) -> None:
    shares = train(asked, several, passes)
    assert set(shares) <= {0.0} and (shares or passes == 8)


@pytest.mark.parametrize("several", [False, True])
def test_examples_that_were_trained_on_are_still_found(several: bool) -> None:
    assert max(train("trained", several)) == 0.25


@pytest.mark.parametrize("unused", [0, 1, 2])
def test_what_a_loss_makes_of_outputs_is_seen_behind_passes_that_nothing_is_made_of(unused: int) -> None:
    torch.manual_seed(0)
    run, model = Notes(), nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 5), nn.Softmax(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in range(8):
        rows, labels = TRAINED[32 * step : 32 * step + 32], torch.arange(32) % 5
        for _ in range(unused):
            model(rows)
        loss = nn.functional.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(step)
    watch.close()
    seen = [step for step in run.steps if run.fields(step).get("softmax_twice") == 1]
    assert seen and seen[0] <= 2 * unused + 1


def test_the_next_pass_is_looked_at_where_no_gradient_came() -> None:
    assert left_out(0, 2, due=False, reached=True) == 0
    assert left_out(0, 2, due=False, reached=False) == 1
    assert left_out(1, 2, due=False, reached=False) == 0, "round again"
    assert left_out(1, 1, due=True, reached=True) == 0, "a step of fewer passes"
    assert left_out(1, 0, due=True, reached=True) == 1, "a step without one"
