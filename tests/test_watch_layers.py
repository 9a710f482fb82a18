"""ModelWatch: layers that are left out by chance, and layers whose weights are computed from others."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from watched_models import EACH, Notes, run  # noqa: E402

from barograph.probes.model.findings import Witness  # noqa: E402
from barograph.probes.model.watch import ModelWatch  # noqa: E402

__all__ = ["run"]  # a fixture


def test_layers_that_are_left_out_are_counted_where_they_had_a_gradient_before() -> None:
    witness = Witness(lambda sentence, key: None)
    assert witness.left_out({"first", "last"}, {"never"}) == {}
    assert witness.left_out({"last"}, {"first", "never"}) == {"left_out": 1}
    assert witness.left_out({"last"}, {"first", "never"}) == {}  # as in the step before
    assert witness.left_out({"first", "last"}, {"never"}) == {"left_out": 0}
    assert witness.left_out(set(), {"first", "last"}) == {}  # no gradient at all is another matter


@pytest.mark.parametrize("kind", ["spectral_norm", "weight_norm"])
def test_a_model_of_parametrised_layers_is_watched_and_stays_as_it_is(run: Notes, kind: str) -> None:
    wrap = getattr(nn.utils.parametrizations, kind)
    model = nn.Sequential(wrap(nn.Linear(4, 16)), nn.ReLU(), wrap(nn.Linear(16, 4)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    watch = ModelWatch(run, model, optimizer, **EACH)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for _ in range(2):
        model(torch.randn(8, 4)).square().mean().backward()
        kept = {name: value.clone() for name, value in model.named_buffers()}
        optimizer.step()
        optimizer.zero_grad()
        assert all(torch.equal(value, kept[name]) for name, value in model.named_buffers())
    watch.flush()
    assert run.fields(1)["grad_norm"] > 0
