"""A part that a model shares with its frozen copy is frozen with it, which is hardly meant."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.rl.shared import ReferenceUpdated, SharedFrozen


@pytest.mark.parametrize(
    ("shared", "trained", "adapters", "config", "told"),
    [
        (1.0, 15.0, 0.0, {}, True),
        (2.0, 8.0, 0.0, {"freeze": False}, True),
        (8.0, 15.0, 0.0, {}, False),  # most of it is a base that is shared on purpose
        (1.0, 15.0, 12.0, {}, False),
        (1.0, 15.0, 0.0, {"frozen_embeddings": True}, False),
        (1.0, 15.0, 0.0, {"share_embeddings": True}, False),
    ],
)
def test_few_parameters_that_are_frozen_with_a_copy_are_told(
    shared: float, trained: float, adapters: float, config: dict[str, Any], told: bool
) -> None:
    figures = {"trained_parameters": trained, "trained_adapters": adapters, "other_shared": shared}
    columns = {f"model/{name}": (np.array([2 * (name == "other_shared")]), np.array([value]))
               for name, value in figures.items()}  # fmt: skip
    columns |= {"loss": (np.arange(50), np.linspace(0.7, 0.5, 50))}
    found = findings([SharedFrozen()], columns, facts={"config": config})
    assert [one.rule for one in found.values()] == ["shared_frozen"] * told


@pytest.mark.parametrize("shares", [True, False])
def test_a_reference_that_has_the_embedding_of_the_model_itself_is_seen(tmp_path: Path, shares: bool) -> None:
    torch = pytest.importorskip("torch")
    nn, functional = torch.nn, torch.nn.functional
    torch.manual_seed(0)

    class Writer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.layer, self.head = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 20)

        def forward(self, ids: Any) -> Any:
            return self.head(self.layer(self.words(ids)).relu())

    policy = Writer()
    reference = copy.deepcopy(policy)
    if shares:
        reference.words = policy.words
    reference.requires_grad_(False)
    optimizer = torch.optim.AdamW([one for one in policy.parameters() if one.requires_grad], 1e-3)
    with barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False) as run:
        run.watch(policy, optimizer)

        def sums(net: Any, ids: Any) -> Any:
            return net(ids)[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).sum((1, 2))

        for step in range(30):
            good, bad = torch.randint(0, 20, (2, 12, 8))
            with torch.no_grad():
                before = sums(reference, good) - sums(reference, bad)
            loss = -functional.logsigmoid(0.1 * (sums(policy, good) - sums(policy, bad) - before)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log({"loss": loss.item()}, step=step)
    told = [one for one in diagnose(run.dir)["findings"] if one["rule"] == "shared_frozen"]
    assert len(told) == shares
    assert not told or "1 of the model's parameters is also of another network" in told[0]["message"]


@pytest.mark.parametrize("cuts", [(), (9, 20, 33)])
@pytest.mark.parametrize(
    ("moves", "far", "same", "config", "told"),
    [
        ((27, 56), 0.025, 1.0, {"reference_free": True, "beta": 0.1, "ref_model": "sft"}, "warning"),
        ((27, 56), 0.025, 1.0, {"sync_ref_model": True}, "info"),
        ((27, 56), 0.025, 1.0, {"trainer": {"ref_update_every": 27}}, "info"),
        ((27, 56), 0.025, 1.0, {"rounds": 3}, "info"),
        ((27,), 0.025, 1.0, {}, None),
        ((27, 56), 0.002, 1.0, {}, None),  # it follows slowly
        ((27, 56), 0.025, 0.0, {}, None),  # a teacher of other examples
    ],
)
def test_a_reference_that_is_made_the_policy_again_is_a_warning_unless_the_configuration_has_a_word_of_it(
    moves: tuple[int, ...], far: float, same: float, config: dict[str, Any], told: str | None, cuts: tuple[int, ...]
) -> None:
    steps = np.arange(3, 90)
    moved = np.isin(steps, moves) * far
    columns: dict[str, Any] = {
        "model/other_moved": (steps, moved),
        "model/other_apart": (steps, np.where(moved > 0, 0.0005, 0.02)),
        "model/preference_compared": (steps[:1], np.array([2.0])),
        "model/other_same_input": (steps[:2], np.array([same, 0.0])),  # an evaluation came last
        "loss": (np.arange(90), np.linspace(4, 1, 90)),
    }
    found = [*findings([ReferenceUpdated()], columns, cuts=cuts, facts={"config": config}).values()]
    assert [(one.severity, one.step) for one in found] == ([(told, moves[0])] if told else [])
