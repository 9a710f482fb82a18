"""ModelWatch: layers that are left out by chance, and layers whose weights are computed from others."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from watched_models import EACH, Notes, run  # noqa: E402

from barograph.probes.model.findings import Witness  # noqa: E402
from barograph.probes.model.looks import named_of_adapters  # noqa: E402
from barograph.probes.model.watch import ModelWatch  # noqa: E402

__all__ = ["run"]  # a fixture


def test_layers_that_are_left_out_are_counted_where_they_had_a_gradient_before() -> None:
    witness = Witness(lambda sentence, key: None)
    assert witness.left_out({"first", "last"}, {"never"}) == {}
    assert witness.left_out({"last"}, {"first", "never"}) == {"left_out": 1}
    assert witness.left_out({"last"}, {"first", "never"}) == {}  # as in the step before
    assert witness.left_out({"first", "last"}, {"never"}) == {"left_out": 0}
    assert witness.left_out(set(), {"first", "last"}) == {}  # no gradient at all is another matter
    assert witness.left_out({"a.lora_A.weight", "first", "last"}, set()) == {"left_out": 0}
    lost = witness.left_out({"last"}, {"a.lora_A.weight", "first"})
    assert lost == {"left_out": 2, "left_out_adapters": 1}
    witness.follow(("b.up", "b.weight"), ("b.up",))  # an adapter by its shape
    assert witness.left_out({"b.up", "b.weight", "first", "last"}, {"a.lora_A.weight"}) == {"left_out": 1, **HALF}
    assert witness.left_out({"first", "last"}, {"a.lora_A.weight", "b.up", "b.weight"})["left_out_adapters"] == 2


HALF = {"left_out_adapters": 1}


class Adapter(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.zeros(8, 2))


def test_adapters_are_known_by_their_shapes() -> None:
    model = nn.Sequential(Adapter(nn.Linear(8, 8)), nn.Linear(8, 2))
    names = {id(one): name for name, one in model.named_parameters() if one.requires_grad}
    assert named_of_adapters(model, names) == {"0.down", "0.up"}
    assert named_of_adapters(model[1], names) == set()


def test_what_is_frozen_is_not_left_out(run: Notes) -> None:
    model = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watch = ModelWatch(run, model, optimizer, **EACH)
    for step in range(4):
        model[0].requires_grad_(step == 0)
        sum(layer(torch.randn(2, 4)).square().mean() for layer in model[: 2 if step == 3 else 3]).backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log(step)
    watch.flush()
    assert [run.fields(step).get("left_out") for step in range(4)] == [None, None, None, 2]


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
