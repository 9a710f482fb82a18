"""Running statistics that a part of a model keeps by itself: whether they ever moved."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model.running import BatchNormStatistics  # noqa: E402


class Standard(nn.Module):
    """Less a running mean, by a running deviation; `how` they follow the inputs."""

    def __init__(self, how: str):
        super().__init__()
        self.how = how
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("deviation", torch.ones(3) if how != "constants" else torch.full((3,), 0.2))
        self.register_buffer("seen", torch.tensor(0.0))

    def forward(self, given: Any) -> Any:
        if self.how == "in place":
            self.mean.lerp_(given.mean(0), 0.1)
        elif self.how == "replaced":
            self.mean = 0.9 * self.mean + 0.1 * given.mean(0)
        return (given - given.mean(0)) / given.std(0)


@pytest.mark.parametrize(
    ("how", "unset"),
    [("never", [1.0, 1.0]), ("in place", [0.0, 0.0]), ("replaced", [0.0, 0.0]), ("constants", [0.0, 0.0]),
     ("evaluated", [])],
)  # fmt: skip
def test_buffers_of_zero_and_one_that_nothing_moves_are_seen(how: str, unset: list[float]) -> None:
    model = nn.Sequential(Standard(how), nn.Linear(3, 2), nn.BatchNorm1d(2))
    model[0].train(how != "evaluated")
    look, put = BatchNormStatistics(model), []
    current = SimpleNamespace(put=lambda family, names, values: put.append((family, float(values))))
    for _ in range(30):
        model(torch.randn(8, 3) + 5)
        look.put(current, True)  # type: ignore[arg-type]
    assert [value for family, value in put if family == "unset_buffers"] == unset


def test_layers_of_torch_are_not_asked() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    assert not BatchNormStatistics(model)._pairs


@pytest.mark.parametrize(
    ("how", "said"),
    [("new", [2.0]), ("loaded before", [0.0]), ("loaded behind", [42.0]), ("evaluated", []), ("counts nothing", [])],
)
def test_of_how_many_batches_statistics_are_that_were_new_when_the_watch_began(how: str, said: list[float]) -> None:
    trained = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    for _ in range(40):
        trained(torch.randn(8, 3) + 5)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    if how == "loaded before":
        model.load_state_dict(trained.state_dict())
    if how == "counts nothing":
        model[1].num_batches_tracked = None
    look, put = BatchNormStatistics(model.train(how != "evaluated")), []
    if how == "loaded behind":
        model.load_state_dict(trained.state_dict())
    current = SimpleNamespace(put=lambda family, names, values: put.append((family, float(values))))
    for _ in range(2):
        model(torch.randn(8, 3)), model(torch.randn(8, 3))
        look.put(current, how != "evaluated")  # type: ignore[arg-type]
    assert [value for family, value in put if family == "begun_statistics"] == said


@pytest.mark.parametrize(("unseen", "said"), [(0, [2.0]), (1, [2.0]), (2, [2.0]), (3, [])])
def test_passes_of_the_first_steps_need_not_be_seen(unseen: int, said: list[float]) -> None:
    """As where a method of the model is called, and not the model."""
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    look, put = BatchNormStatistics(model), []
    current = SimpleNamespace(put=lambda family, names, values: put.append((family, float(values))))
    for step in range(6):
        model(torch.randn(8, 3)), model(torch.randn(8, 3))
        look.put(current, step >= unseen, step >= unseen)  # type: ignore[arg-type]
    assert [value for family, value in put if family == "begun_statistics"] == said


def test_layers_without_numbers_have_no_statistics_to_begin_with() -> None:
    assert BatchNormStatistics(nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d()))._made is None
    assert BatchNormStatistics(nn.Sequential(nn.BatchNorm1d(2, device="meta")))._made is None


def test_frozen_layers_that_gather_are_counted_where_that_changes() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4))
    model[1].requires_grad_(False)
    look, found = BatchNormStatistics(model), []
    for step in range(40):
        current = SimpleNamespace(put=lambda *item: None, figures={})
        model.train()
        if step > 20:
            model[1].eval()
        model(torch.randn(8, 3))
        look.put(current, True)  # type: ignore[arg-type]
        found += current.figures.values()
    assert found == [1.0, 0.0]
