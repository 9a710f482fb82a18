"""Players that take turns: what the one's optimizer holds is frozen while the other one is trained, and no fault."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from watched_models import QUIET, Notes  # noqa: E402

from barograph.probes.model.watch import ModelWatch  # noqa: E402


@pytest.mark.parametrize(("held", "frozen"), [("apart", 0.0), ("together", 4.0), ("nowhere", 4.0)])
def test_what_an_optimizer_of_its_own_holds_is_trained_by_turns(held: str, frozen: float) -> None:
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    judge = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    both = nn.ModuleDict({"maker": maker, "judge": judge})
    parts = {"apart": [judge, maker], "together": [both], "nowhere": [judge]}[held]
    optimizers = [torch.optim.Adam(part.parameters(), lr=1e-3) for part in parts]
    run = Notes()
    watch = ModelWatch(run, both, optimizers, **QUIET)
    maker.requires_grad_(False)
    for step in range(3):
        optimizers[0].zero_grad()
        judge(maker(torch.randn(16, 3))).mean().backward()
        optimizers[0].step()
        run.log(step)
    watch.close()
    told = [run.fields(step) for step in run.steps]
    assert next(fields["frozen_parameters"] for fields in told if "frozen_parameters" in fields) == frozen
