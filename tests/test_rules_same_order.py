"""Epochs whose batches come in one order: what says so, and what looks like it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.rules.data.order import SameOrder, SamplerEpoch
from barograph.probes.model.examples import ExampleLook

LOOKS = np.array([0, 1, 2, 3, 10, 17, 34, 41, 58, 65, 82, 89, 106])


def looked(batch_at: Any, looks: Any = LOOKS) -> dict[str, Any]:
    """What the watch says of batches at the steps of its looks."""
    look, rows = ExampleLook(), {}
    for step in looks.tolist():
        marks = np.asarray(batch_at(step), float)
        rows[step] = look.fields_of({"examples": (tuple(map(str, range(len(marks)))), marks[None])}, step)
    names = {name for found in rows.values() for name in found}
    columns: dict[str, Any] = {}
    for name in names:
        some = [(step, found[name]) for step, found in rows.items() if name in found]
        columns[f"model/{name}"] = tuple(np.array(one) for one in zip(*some, strict=True))
    return columns


def fixed(batches: int) -> Any:
    return lambda step: 8 * (step % batches) + np.arange(8)


def drawn_anew(batches: int) -> Any:
    return lambda step: np.random.default_rng(step // batches).permutation(8 * batches)[8 * (step % batches) :][:8]


@pytest.mark.parametrize(
    ("batches", "count"),
    [
        (fixed(6), 1),
        (fixed(12), 1),
        (drawn_anew(7), 0),
        (fixed(1000), 0),
        (fixed(2), 0),
        (lambda step: np.arange(8), 0),
    ],
)
def test_batches_that_come_again_as_they_were_are_told_of_once(batches: Any, count: int) -> None:
    found = findings([SameOrder()], looked(batches))
    assert [one.severity for one in found.values()] == ["info"] * count
    assert all(one.causes[0].startswith("same order in each epoch") for one in found.values())


def altered(order: Any, ways: int, rows: int = 16) -> Any:
    """Batches whose examples are each altered in one of some ways, anew in each epoch."""

    def batch_at(step: int) -> Any:
        return order(step) * ways + np.random.default_rng(step).integers(0, ways, rows)

    return batch_at


OFTEN = np.array([*range(8), *range(17, 170, 7)])


@pytest.mark.parametrize("batches", [12, 24])
@pytest.mark.parametrize("ways", [2, 4])
@pytest.mark.parametrize("cuts", [(), (9, 100, 131)])
def test_an_order_shows_in_part_where_examples_are_altered(batches: int, ways: int, cuts: tuple[int, ...]) -> None:
    def kept(step: int) -> Any:
        return 16 * (step % batches) + np.arange(16)

    def drawn(step: int) -> Any:
        return np.random.default_rng(step // batches).permutation(16 * batches)[16 * (step % batches) :][:16]

    (found,) = findings([SameOrder()], looked(altered(kept, ways), OFTEN), cuts=cuts).values()
    assert found.evidence["steps"] % batches == 0 and "in part" in found.message
    assert not findings([SameOrder()], looked(altered(drawn, ways), OFTEN), cuts=cuts)


@pytest.mark.parametrize(("epoch", "severity"), [(0.0, "warning"), (2.0, "info")])
def test_an_epoch_that_is_never_set_makes_one_order_a_warning(epoch: float, severity: str) -> None:
    looks = np.array([*range(8), 86, 124, 162])  # batches of 80, 120 and 160 steps before
    columns = looked(fixed(40), looks)
    columns["model/order_epoch"] = (np.arange(0, 170, 10), np.full(17, epoch))
    (one,) = findings([SameOrder()], columns).values()
    assert one.severity == severity and one.evidence["steps"] == 40


def test_batches_that_come_again_at_no_common_distance_are_no_order() -> None:
    again = {60: 3, 71: 10, 95: 17}
    columns = looked(lambda step: 8 * again.get(step, step) + np.arange(8), np.array([0, 3, 10, 17, 60, 71, 95]))
    assert not findings([SameOrder()], columns)


def test_a_batch_that_stays_from_a_step_on_is_no_order() -> None:
    stays = looked(lambda step: 8 * min(step, 17) + np.arange(8))
    assert not findings([SameOrder()], stays)


@pytest.mark.parametrize(
    ("epoch", "examples", "found"), [(0, 160, True), (0, 400, False), (3, 160, False), (0, 0, False)]
)
def test_a_sampler_that_is_given_no_epoch_is_a_warning_when_two_have_passed(
    epoch: int, examples: int, found: bool
) -> None:
    steps = np.arange(20, 120, 10)
    columns = {
        "model/sampler_epoch": (steps, np.full(10, epoch)), "model/sampler_rows": (steps, np.full(10, examples)),
        "model/example_rows": (np.arange(0, 120, 10), np.full(12, 8.0)),
    }  # fmt: skip
    warned = [*findings([SamplerEpoch()], columns).values()]
    assert [one.severity for one in warned] == ["warning"] * found
    assert all(one.causes[0].startswith("same order in each epoch") for one in warned)


def test_samplers_that_shuffle_are_found_beside_schedulers(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data.distributed import DistributedSampler

    from barograph.probes.model import samplers, schedulers

    optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    ours = DistributedSampler(range(20), num_replicas=2, rank=0)  # type: ignore[arg-type, var-annotated]
    plain = DistributedSampler(range(99), num_replicas=2, rank=0, shuffle=False)  # type: ignore[arg-type, var-annotated]
    schedulers.find([optimizer])
    assert samplers.figures() == {}  # no ranks
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    schedulers.find([optimizer])
    assert samplers.figures() == {"sampler_epoch": 0.0, "sampler_rows": 10.0}
    ours.set_epoch(4)
    assert samplers.figures()["sampler_epoch"] == 4.0 and len(plain) == 50
    del ours
    assert samplers.figures() == {}  # nothing is kept alive


def test_data_sets_with_an_epoch_of_their_own_are_found() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import Dataset, Subset

    from barograph.probes.model import samplers, schedulers

    class Dealt(Dataset[int]):
        epoch = 7  # of the class: no order of its own

        def __getitem__(self, at: int) -> int:
            return at

        def __len__(self) -> int:
            return 20

    class Numbered(Dealt):
        def __init__(self) -> None:
            self.epoch = 0

    optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    plain = Dealt()
    schedulers.find([optimizer])
    assert samplers.figures() == {} and len(plain) == 20
    ours = Numbered()
    part = Subset(ours, [1, 2])
    schedulers.find([optimizer])
    assert samplers.figures() == {"order_epoch": 0.0} and len(part) == 2
    ours.epoch = 3
    assert samplers.figures() == {"order_epoch": 3.0}
    del ours, part
    assert samplers.figures() == {}  # nothing is kept alive


@pytest.mark.parametrize(
    ("jumps", "restarts", "config", "severity"),
    [
        (25, False, {}, "warning"),  # other data each 25 steps
        (0, False, {}, "info"),
        (60, False, {}, "info"),  # twice
        (25, True, {}, "info"),  # the learning rate begins anew
        (25, False, {"curriculum": True}, "info"),
    ],
)
def test_one_order_in_which_the_loss_jumps_is_of_sorted_data(
    jumps: int, restarts: bool, config: dict[str, Any], severity: str
) -> None:
    steps = np.arange(140)
    looks = np.array([*range(8), 20, 30, 50, 70, 106, 119, 120, 130])
    fall = np.exp(-(steps % jumps if jumps else steps) / 8.0)
    rate = np.where(steps % 25 == 0, 1.0, 0.1) if restarts else np.full(140, 0.1)
    columns = looked(fixed(50), looks) | {"train/loss": (steps, 1.0 + 3.0 * fall), "train/lr": (steps, rate)}
    (one,) = findings([SameOrder()], columns, facts={"config": config}).values()
    assert one.severity == severity and ("data sorted" in str(one.causes[0])) == (severity == "warning")


@pytest.mark.parametrize(("carried", "count"), [(1.0, 0), (0.0, 1)])
def test_streams_whose_state_is_carried_on_are_read_in_their_order(carried: float, count: int) -> None:
    columns = looked(fixed(6)) | {"model/state_carried": (np.arange(2, 14), np.full(12, carried))}
    assert len(findings([SameOrder()], columns)) == count


@pytest.mark.parametrize("cuts", [(), (9, 100, 131)])
def test_an_order_shows_where_hardly_an_example_is_as_it_was(cuts: tuple[int, ...]) -> None:
    looks = np.array([*range(8), *(step + 31 * lap for lap in range(12) for step in (17, 24, 31))])

    def kept(step: int) -> Any:
        return 16 * (step % 30) + np.arange(16)

    def drawn(step: int) -> Any:
        return np.random.default_rng(step // 30).permutation(16 * 30)[16 * (step % 30) :][:16]

    (found,) = findings([SameOrder()], looked(altered(kept, 20), looks), cuts=cuts).values()
    assert found.evidence["steps"] == 30 and found.severity == "info"
    assert not findings([SameOrder()], looked(altered(drawn, 20), looks), cuts=cuts)
    fitting = looked(altered(lambda step: 16 * (step % 31) + np.arange(16), 20), looks)  # as often as looks come
    assert all(one.evidence["steps"] % 31 == 0 for one in findings([SameOrder()], fitting, cuts=cuts).values())


@pytest.mark.parametrize("cuts", [(), (50, 61, 90)])
@pytest.mark.parametrize(
    ("after", "changed", "config", "says"),
    [
        ([22.0] * 32, {}, {}, True),
        ([22.0] * 31, {}, {}, False),
        ([22.0, 21.0] * 40, {}, {}, False),  # fixed batches in an order that is drawn
        ([7.0] * 60, {}, {}, False),  # an epoch of few batches
        ([22.0] * 60, {"state_carried": 1.0}, {}, False),
        ([22.0] * 60, {"targets": 512.0, "input_length_std": 0.0}, {}, False),  # a text, read from its beginning
        ([22.0] * 60, {"targets": 512.0, "input_length_std": 2.0}, {}, True),
        ([22.0] * 60, {"targets": 512.0, "input_length_std": 0.0, "loss_ranks": 0.0}, {}, True),  # answers
        ([22.0] * 60, {}, {"loader.shuffle": False}, False),
        ([22.0] * 60, {}, {"loader.shuffle": True}, True),
        ([22.0] * 60, {}, {"sampler": "sequential"}, False),
        ([22.0] * 60, {}, {"overfit_batches": 22}, False),
        ([22.0] * 60, {}, {"curriculum": "by_loss"}, False),
    ],
)
def test_batches_of_earlier_epochs_in_their_order_are_a_warning(
    after: list[float], changed: dict[str, float], config: dict[str, Any], says: bool, cuts: tuple[int, ...]
) -> None:
    columns: dict[str, Any] = {
        f"model/{name}": (LOOKS[:4], np.full(4, value)) for name, value in ({"example_rows": 16.0} | changed).items()
    }
    columns["data/tokens"] = np.arange(100), np.full(100, 64.0)
    columns["data/repeats_after"] = np.arange(22, 22 + len(after)), np.array(after)
    found = [*findings([SameOrder()], columns, cuts=cuts, facts={"config": config}).values()]
    assert [(one.severity, one.step, one.evidence["steps"]) for one in found] == [("warning", 22, 22)] * says
