"""Ranks that are watched are compared without being asked: their weights, their gradients and what they are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from rule_columns import findings

from barograph.core.record import Record
from barograph.core.values import DeviceValues
from barograph.doctor.rules.ranks.modes import RanksModes
from barograph.doctor.rules.ranks.ranks import RanksDrifted
from barograph.probes.data import labels
from barograph.probes.ranks import entries
from barograph.probes.ranks.copies import FIRST, GRADIENTS, WEIGHTS, CopiesSeen, both_numbers
from barograph.probes.ranks.exchange import ExchangeEntry

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model.copies import RankCopies  # noqa: E402


def compared(looks: list[tuple[int, list[Any]]]) -> list[dict[str, Any]]:
    """What is said at each look, a step each."""
    seen = CopiesSeen()
    frames = [SimpleNamespace(checks=[kind] * len(sums), checksums=sums, step=step)
              for step, (kind, sums) in enumerate(looks)]  # fmt: skip
    return [seen.compare(frame, list(range(len(frame.checksums)))) for frame in frames]  # type: ignore[arg-type]


SAME, OTHER = (WEIGHTS, [3, 3]), (WEIGHTS, [3, 4])


def test_ranks_that_began_alike_and_differ_in_six_looks_are_apart_since_the_first_of_them() -> None:
    said = compared([(FIRST, [1, 1]), (GRADIENTS, [1, 2]), *[OTHER] * 9])
    assert [one for one in said if one] == [{"apart": [0, 1], "apart_since": 0}] and said[7]
    late = compared([(FIRST, [1, 1]), (GRADIENTS, [2, 2]), *[SAME] * 4, *[(WEIGHTS, [5, 5, 9])] * 6])
    assert late[-1] == {"apart": [2], "apart_since": 6}


@pytest.mark.parametrize(
    "looks",
    [
        [(FIRST, [1, 1]), (GRADIENTS, [2, 2]), *[SAME] * 20],
        [(FIRST, [1, 2]), (GRADIENTS, [2, 3]), *[OTHER] * 20],  # parts of one model
        [(FIRST, [1, 1]), (GRADIENTS, [2, 3]), *[OTHER] * 3, SAME, *[OTHER] * 20],  # averaged now and then
        [(FIRST, [1, 2]), (GRADIENTS, [0, 0]), *[OTHER] * 20],  # gradients that are all 0
        [(FIRST, [1, None]), (GRADIENTS, [2, 2]), *[OTHER] * 20],
        [(GRADIENTS, [2, 2]), *[OTHER] * 20],
    ],
)
def test_ranks_that_may_be_meant_so_are_left_alone(looks: list[tuple[int, list[Any]]]) -> None:
    assert not any(compared(looks))


def test_ranks_that_share_gradients_and_began_with_other_weights_were_never_equal() -> None:
    assert compared([(FIRST, [1, 2]), (GRADIENTS, [7, 7]), OTHER])[1] == {"never_equal": 2}


def test_one_batch_on_all_ranks_is_one_only_where_they_are_copies() -> None:
    seen = CopiesSeen()
    assert seen.are_copies
    seen.compare(SimpleNamespace(checks=[FIRST] * 2, checksums=[1, 2], step=0), [0, 1])  # type: ignore[arg-type]
    assert not seen.are_copies
    late = CopiesSeen()  # how they began was not seen
    late.compare(SimpleNamespace(checks=[WEIGHTS] * 2, checksums=[1, 1], step=9), [0, 1])  # type: ignore[arg-type]
    assert not late.are_copies


@pytest.mark.parametrize(
    ("fields", "config", "cause"),
    [
        ({"apart": [0, 1], "apart_since": 3}, {}, "all-reduce missing"),
        ({"apart": [1], "apart_since": 3}, {}, "ranks drifted apart"),
        ({"apart": [0, 1], "apart_since": 3}, {"local_steps": 50}, ""),
        ({"apart": [0, 1], "apart_since": 3}, {"expert_parallel_size": 2}, ""),
        ({"never_equal": 2}, {}, "ranks drifted apart: initial weights differ"),
        ({"never_equal": 2}, {"tensor_parallel": 2}, ""),
    ],
)
def test_what_the_watches_compare_is_a_warning(fields: dict[str, Any], config: dict[str, Any], cause: str) -> None:
    event = Record("ranks", 0, 40, dict(fields))
    found = findings([RanksDrifted()], {}, events=[event], facts={"world_size": 2, "config": config})
    assert len(found) == bool(cause)
    for one in found.values():
        assert one.severity == "warning" and one.causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("config", "passes", "cause"),
    [
        ({"sync_every": 2}, 2, "all-reduce missing: gradients are not averaged, as where the last part"),
        ({"sync_every": 1}, 1, "all-reduce missing: gradients are not averaged"),
        ({"sync_every": 8}, 1, ""),
        ({"sync_every": 8}, 2, ""),
        ({"sync_interval": "epoch"}, 2, ""),
        ({"sync_every": 2, "outer_lr": 0.7}, 2, ""),
    ],
)
def test_what_is_made_alike_in_each_step_is_not_workers_that_are_averaged_now_and_then(
    config: dict[str, Any], passes: int, cause: str
) -> None:
    event = Record("ranks", 0, 9, {"apart": [0, 1], "apart_since": 0})
    columns = {"model/backwards": numpy.full(20, passes)}
    found = findings([RanksDrifted()], columns, events=[event], facts={"world_size": 2, "config": config})
    assert [one.causes[0][: len(cause)] for one in found.values()] == [cause] * bool(cause)
    assert all(("no_sync" in one.causes[0]) == (passes > 1) for one in found.values())


@pytest.mark.parametrize(
    ("written", "steps", "told"),
    [
        ([16, 32], 300, False),
        ([100], 300, False),
        ([500], 700, False),
        ([], 700, True),
        ([600], 700, True),
        ([1], 700, True),
        ([], 20, True),
    ],
)
@pytest.mark.parametrize("cuts", [(), (5, 50, 171)])
def test_workers_whose_weights_are_averaged_now_and_then_have_not_drifted(
    written: list[int], steps: int, told: bool, cuts: tuple[int, ...]
) -> None:
    event = Record("ranks", 0, 9, {"apart": [0, 1], "apart_since": 2})
    columns = {"train/loss": (numpy.arange(1, steps), numpy.linspace(3.0, 2.0, steps - 1)),
               "model/written": (numpy.array([1, *written]), numpy.array([0.0] + [0.01] * len(written)))}  # fmt: skip
    found = findings([RanksDrifted()], columns, events=[event], facts={"world_size": 2}, cuts=cuts)
    assert bool(found) == told


def test_a_watch_says_what_it_is_given_and_what_its_weights_are_and_leaves_no_hook() -> None:
    torch.manual_seed(1)
    model, twin = nn.Linear(6, 3), nn.Linear(6, 3)
    twin.load_state_dict(model.state_dict())
    ours, theirs = RankCopies(model), RankCopies(twin)
    batch = torch.randn(4, 6)
    for one, inputs in ((model, batch), (twin, batch.clone())):
        one(inputs).sum().backward()
        with torch.no_grad():
            one(torch.randn(4, 6))  # an evaluation
    first = ours.take()
    assert first == theirs.take() and first["checks"] == FIRST
    model(batch), twin(batch + 1)
    second, other = ours.take(), theirs.take()
    assert second["checks"] == GRADIENTS and second["checksum"] == other["checksum"]
    assert "fingerprint" not in second and "fingerprint" in other  # an input that never changes says nothing
    with torch.no_grad():
        twin.weight[0, 0] += 1e-6
    assert ours.take()["checksum"] != theirs.take()["checksum"]
    for _ in range(9):
        ours.take()
    assert not ours.take() and all("checksum" not in ours.take() for _ in range(7)) and ours.take()
    ours.restart()
    assert ours.take() == {"checksum": first["checksum"], "checks": FIRST}  # the loop compares from now on
    ours.close()
    assert not model._forward_pre_hooks


def test_weights_that_are_frozen_at_first_are_compared_too() -> None:
    def made(device: str = "cpu") -> Any:
        torch.manual_seed(1)
        model = nn.Sequential(*(nn.Linear(4, 4, device=device if at < 9 else "cpu") for at in range(10)))
        return model[:9].requires_grad_(False) and model

    one, other = made(), made()
    ours, theirs = RankCopies(one), RankCopies(other)
    assert len(ours._some) == 2 + 6  # fewer than are looked at of those that are trained
    assert ours.take()["checksum"] == theirs.take()["checksum"]
    ours.take(), theirs.take()
    assert ours.take()["checksum"] == theirs.take()["checksum"]
    with torch.no_grad():
        for item in other[:9].requires_grad_(True).parameters():
            item += 1e-6  # what a wrapper that knows nothing of them does not average
    assert ours.take()["checksum"] != theirs.take()["checksum"]
    assert len(RankCopies(made("meta"))._some) == 2  # nothing is there to be compared
    assert not RankCopies(nn.Linear(2, 2).requires_grad_(False))._some


@pytest.mark.parametrize("same", [True, False])
def test_a_watch_tells_labels_by_the_gradient_of_the_scores_whatever_is_done_to_the_examples(same: bool) -> None:
    torch.manual_seed(1)
    one, other = nn.Linear(6, 5), nn.Linear(6, 5)
    ours, theirs = RankCopies(one), RankCopies(other)
    drawn = torch.randint(0, 5, (24,))
    for model, target in ((one, drawn), (other, drawn if same else drawn.roll(1))):
        nn.functional.cross_entropy(model(torch.randn(24, 6)), target).backward()
        with torch.no_grad():
            model(torch.randn(24, 6))  # an evaluation
    first, second = ours.take(), theirs.take()
    assert first["labels"] and (first["labels"] == second["labels"]) == same
    assert "labels" not in ours.take()
    nn.functional.cross_entropy(one(torch.randn(24, 6)), torch.zeros(24, dtype=torch.long)).backward()
    assert "labels" not in ours.take()  # one class tells nothing
    ours.close()
    assert not one._forward_hooks


def test_what_is_on_its_way_from_a_device_is_waited_for_before_it_is_exchanged() -> None:
    class Late(DeviceValues):
        """Values that are not there at the first looks."""

        def __init__(self, values: dict[str, Any], looks: int = 3):
            super().__init__(values)
            self.left = looks
            self.arrivals = [self._arrived]

        def _arrived(self) -> bool:
            self.left -= 1
            return self.left < 0

    target = torch.arange(24) % 5
    told = Late({"all": labels.on_device([target]).values["all"]})  # type: ignore[union-attr]
    entry = ExchangeEntry(3, ("loss",), 7, [1.5])
    entries.mark(entry, 12, None, {"labels": told})
    assert entry.labels == 0 and entry.fingerprint == 12 and entry.settle is not None
    entry.settle(entry)
    assert told.left < 0 and entry.labels == labels.host_mark([target]) and entry.values == [1.5]


def test_gradients_that_a_loop_clears_before_it_compares_are_those_of_the_step() -> None:
    torch.manual_seed(1)
    one, other = nn.Linear(6, 3), nn.Linear(6, 3)
    ours, theirs = RankCopies(one), RankCopies(other)
    said = []
    for _ in range(2):
        for model in (one, other):
            model(torch.randn(4, 6)).sum().backward()
        for mine, its in zip(one.parameters(), other.parameters(), strict=True):
            mean = (mine.grad + its.grad) / 2  # as an all-reduce does it
            mine.grad.copy_(mean), its.grad.copy_(mean)
        for copies, model in ((ours, one), (theirs, other)):
            copies.see_gradients()
            model.zero_grad()
        said.append([ours.take(), theirs.take()])
    looks = [(found[0]["checks"], [each["checksum"] for each in found]) for found in said]
    assert compared(looks)[1] == {"never_equal": 2}


def test_weights_that_are_made_equal_behind_the_watch_and_before_the_first_pass_are_equal() -> None:
    one, other = nn.Linear(6, 3), nn.Linear(6, 3)
    ours, theirs = RankCopies(one), RankCopies(other)
    other.load_state_dict(one.state_dict())
    for model in (one, other):
        model(torch.randn(4, 6))
    assert ours.take()["checksum"] == theirs.take()["checksum"]


def modes(looks: list[list[tuple[int, int]]], same: bool = True) -> list[dict[str, Any]]:
    """What is said at each look, a step each. looks: of each rank, how many layers, and how many in training mode."""
    seen = CopiesSeen()
    seen.compare(SimpleNamespace(checks=[FIRST] * 2, checksums=[1, 1 if same else 2], step=0), [0, 1])  # type: ignore[arg-type]
    frames = [SimpleNamespace(layers=[both_numbers(*one) for one in each], step=step)
              for step, each in enumerate(looks)]  # fmt: skip
    return [seen.modes(frame, list(range(len(frame.layers)))) for frame in frames]  # type: ignore[arg-type]


ALIKE, APART = [(3, 3), (3, 3)], [(3, 3), (3, 0)]


def test_ranks_that_train_in_evaluation_mode_while_others_do_not_are_told_once() -> None:
    said = modes([ALIKE, APART, ALIKE, *[APART] * 9])
    assert [(at, one) for at, one in enumerate(said) if one] == [(5, {"modes_apart": [1], "modes_since": 3})]


@pytest.mark.parametrize(
    ("looks", "same"),
    [
        ([ALIKE] * 9, True),
        ([[(3, 0), (3, 0)]] * 9, True),  # all of them
        ([APART, APART, ALIKE] * 9, True),
        ([[(3, 3), (2, 0)]] * 9, True),  # other parts of a model
        ([[(3, 3), (0, 0)]] * 9, True),  # one did not train
        ([APART] * 9, False),  # no copies
        ([[]] * 9, True),
    ],
)
def test_modes_that_are_alike_or_of_other_models_are_not(looks: list[list[tuple[int, int]]], same: bool) -> None:
    assert not any(modes(looks, same))


def test_a_watch_counts_its_layers_in_training_mode_in_passes_with_gradients() -> None:
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.2), nn.BatchNorm1d(3), nn.Dropout(0.0))
    copies, said = RankCopies(model), []
    for trains in (True, False):
        model.train(trains)(torch.randn(4, 6))
        with torch.no_grad():
            model.eval()(torch.randn(4, 6))
        said.append(copies.take().get("layers"))
    assert said == [both_numbers(2, 2), both_numbers(2, 0)] and "layers" not in copies.take()
    model.train()(torch.randn(4, 6))
    model.eval()(torch.randn(4, 6))  # an evaluation with gradients behind the step's own pass
    assert copies.take()["layers"] == both_numbers(2, 2)


@pytest.mark.parametrize(("config", "told"), [({}, True), ({"tensor_parallel": 2}, False)])
def test_ranks_in_evaluation_mode_are_a_warning(config: dict[str, Any], told: bool) -> None:
    event = Record("ranks", 0, 60, {"modes_apart": [1, 2], "modes_since": 40})
    found = findings([RanksModes()], {}, events=[event], facts={"world_size": 4, "config": config})
    said = [(one.step, one.severity, one.message[:17], one.causes[0][:28]) for one in found.values()]
    assert said == [(40, "warning", "Ranks 1, 2 traine", "evaluation mode left on: on ")][: len(said)]
    assert bool(said) == told


def test_a_model_of_shards_has_inputs_and_no_weights_to_compare() -> None:
    class FSDPModule:
        pass

    class Sharded(FSDPModule, nn.Linear):
        pass

    model = Sharded(6, 3)
    copies = RankCopies(model)
    model(torch.randn(4, 6))
    assert set(copies.take()) == {"fingerprint"}


def border(rows: Any, size: int = 8) -> Any:
    """Pictures whose edge is empty, as those of digits are."""
    rows[:, :1] = rows[:, -1:] = 0
    rows[:, :, :2] = rows[:, :, -2:] = 0
    return rows.view(len(rows), 1, size, size)


@pytest.mark.parametrize("kind", ["pictures", "the same", "rare ones", "nothing"])
def test_batches_are_the_same_only_where_what_is_compared_of_them_varies(kind: str) -> None:
    said = []
    for seed in (0, 1):
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
        copies, dice = RankCopies(model), torch.Generator().manual_seed(0 if kind == "the same" else seed)
        rows = torch.rand(64, 8, 8, generator=dice)
        if kind in ("rare ones", "nothing"):
            rows = (rows < (0.05 if kind == "rare ones" else 0)).float()
        model(border(rows)).sum().backward()
        said.append(copies.take()["fingerprint"])
        copies.close()
    assert (said[0] == said[1]) == (kind == "the same")
