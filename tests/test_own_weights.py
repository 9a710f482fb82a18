"""Weights that are loaded into a model, and are its own."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from rule_columns import findings
from torch import nn

from barograph.doctor.rules.evaluation.own_weights import OwnWeights
from barograph.probes.model.own_loads import OwnLoads


def of_clones(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def in_part(model: nn.Module) -> dict[str, torch.Tensor]:
    return model.state_dict() | {"1.weight": torch.zeros(2, 4)}


@pytest.mark.parametrize(
    ("kept", "count"),
    [(nn.Module.state_dict, 2), (of_clones, 0), (in_part, 0), (lambda one: dict(one.state_dict()), 2)],
)
def test_a_model_that_is_given_its_own_tensors_is_known(kept: Callable[[Any], Any], count: int) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    loads, state = OwnLoads(model), kept(model)
    for _ in range(2):
        model.load_state_dict(state)
    assert loads.figures() == ({"own_weights_loaded": float(count)} if count else {})
    assert loads.figures() == {}
    loads.close()
    model.load_state_dict(model.state_dict())
    assert loads.figures() == {} and not model._load_state_dict_pre_hooks


def test_a_wrappers_names_are_another_ones_and_copies_have_no_hook_of_ours() -> None:
    model = nn.Sequential(nn.Linear(3, 4))
    around, loads = nn.ModuleDict({"module": model}), OwnLoads(model)
    around.load_state_dict(around.state_dict())
    assert loads.figures() == {"own_weights_loaded": 1.0}
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other.load_state_dict(other.state_dict())
        other.load_state_dict(model.state_dict())
    assert loads.figures() == {}


STEP = np.arange(0, 100, 10)


@pytest.mark.parametrize(("loads", "said"), [(3, True), (2, False)])
@pytest.mark.parametrize("cuts", [(), (5, 11, 25)])
def test_three_such_loads_are_a_finding(loads: int, said: bool, cuts: tuple[int, ...]) -> None:
    columns = {"model/own_weights_loaded": (STEP[:loads], np.arange(1.0, loads + 1))}
    columns["model/passes_without_gradients"] = (STEP[:1], np.ones(1))
    assert bool(findings([OwnWeights()], columns, cuts=cuts)) == said
