"""Groups of parameters that are frozen: on purpose, or as they were drawn."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from rule_columns import findings
from rule_curves import found as found_in

from barograph.core.record import Record
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.activations.groups import FrozenGroup


def frozen(config: dict[str, object] | None = None, **figures: float) -> list[Finding]:
    named = {"trained_parameters": 10, "frozen_parameters": 30, "frozen_share": 0.9, "trained_adapters": 0}
    columns = {f"model/{name}": (numpy.array([0]), numpy.array([float(value)]))
               for name, value in (named | figures).items()}  # fmt: skip
    return list(found_in([FrozenGroup()], columns, config=config or {}))


def test_adapters_that_are_frozen_and_blocks_that_nobody_trained_warn() -> None:
    (one,) = frozen(frozen_adapters=16)
    assert (one.severity, one.kind) == ("warning", "frozen") and "None of 16" in one.message
    (one,) = frozen(frozen_adapters=0, frozen_blocks=2, frozen_untrained=1)
    assert one.severity == "warning" and "2 blocks" in one.message


@pytest.mark.parametrize(
    ("config", "zero", "severity"),
    [({"lr": 0.1}, 3, "warning"), ({"lr": 0.1}, 1, "warning"), ({"lr": 0.1}, 0, "info"),
     ({"frozen": "gates"}, 3, "info"), ({"freeze_gates": True}, 3, "info"), ({"unfreeze_at": 40}, 3, "info")],
)  # fmt: skip
def test_layers_that_are_frozen_at_0_warn(config: dict[str, object], zero: int, severity: str) -> None:
    figures = {"trained_parameters": 10, "frozen_parameters": 3, "frozen_share": 0.2, "frozen_zero": zero}
    columns = {f"model/{name}": (numpy.array([0]), numpy.array([float(value)])) for name, value in figures.items()}
    events = [Record("model", 0, 0, {"frozen": "gates.0, gates.1, gates.2", "parts_frozen": "gates"})]
    (one,) = findings([FrozenGroup()], columns, facts={"config": config}, events=events).values()
    assert one.severity == severity and (severity == "info" or "frozen at 0" in one.message)


@pytest.mark.parametrize(
    ("config", "share", "new", "severity"),
    [({}, 0.6, 1, "warning"), ({}, 0.6, 0, "info"), ({}, 0.1, 1, "info"), ({"freeze": "mid"}, 0.6, 1, "info"),
     ({"unfreeze_at": 40}, 0.6, 1, "info")],
)  # fmt: skip
def test_a_large_part_that_is_frozen_in_a_new_model_warns(
    config: dict[str, object], share: float, new: int, severity: str
) -> None:
    told = {"lr": 0.1, "width": 24, "layers": 4} | config
    (one,) = frozen(told, frozen_adapters=0, frozen_gains_new=1, untrained=new, frozen_share=share)
    assert one.severity == severity


@pytest.mark.parametrize(("new", "severity"), [(1, "warning"), (0, "info")])
def test_an_embedding_that_is_frozen_as_drawn_in_a_new_model_warns(new: int, severity: str) -> None:
    (one,) = frozen(frozen_adapters=0, frozen_tables=1, untrained=new)
    assert one.severity == severity


@pytest.mark.parametrize(
    ("config", "new", "severity"),
    [
        ({"tied": True, "lr": 0.1, "width": 24}, 1, "warning"),
        ({"tied": True, "lr": 0.1, "width": 24}, 0, "info"),  # of a model that was trained before
        ({"tied": True}, 1, "info"),  # it says next to nothing
        ({"freeze": "wte", "lr": 0.1, "width": 24}, 1, "info"),
        ({"train_embeddings": False, "lr": 0.1, "width": 24}, 1, "info"),
        ({"embedding": "glove.6B", "lr": 0.1, "width": 24}, 1, "info"),
        ({"fixed_emb": True, "lr": 0.1, "width": 24}, 1, "info"),
    ],
)
def test_an_embedding_of_random_numbers_that_nothing_says_is_frozen_warns(
    config: dict[str, object], new: int, severity: str
) -> None:
    (one,) = frozen(config, frozen_adapters=0, frozen_random_tables=1, untrained=new)
    assert one.severity == severity


@pytest.mark.parametrize(
    ("config", "adapters", "share", "names", "severity"),
    [
        ({"lr": 0.1, "keep": ""}, 0, 0.75, "gru.weight_hh, gru.bias_hh", "warning"),
        ({"lr": 0.1, "model": {"freeze": " "}}, 0, 0.75, "gru.weight_hh, stem.conv.weight", "warning"),
        ({"lr": 0.1, "freeze": None}, 0, 0.75, "gru.weight_hh", "info"),
        ({"lr": 0.1}, 0, 0.75, "gru.weight_hh", "info"),
        ({"lr": 0.1, "keep": "", "fixed": "stem"}, 0, 0.75, "gru.weight_hh", "info"),  # by another option
        ({"lr": 0.1, "keep": ""}, 8, 0.75, "gru.weight_hh", "info"),  # what adapters are for
        ({"lr": 0.1, "keep": ""}, 0, 0.75, "gru.weight_hh, layers.0.norm", "info"),  # beside trained layers
        ({"lr": 0.1, "keep": ""}, 0, 0.05, "gru.weight_hh", "info"),
        ({"lr": 0.1, "keep": ""}, 0, 0.47, "slow.weight_hh, slow.bias_hh", "info"),  # it follows what is trained
        ({"lr": 0.1, "keep": ""}, 0, 0.75, "slow.weight_hh, gru.weight_hh", "warning"),
    ],
)
def test_parts_that_are_frozen_beside_an_empty_list_of_such_warn(
    config: dict[str, object], adapters: int, share: float, names: str, severity: str
) -> None:
    figures = {"trained_parameters": 10.0, "frozen_parameters": 30.0, "frozen_share": share,
               "trained_adapters": adapters, "frozen_adapters": 0.0}  # fmt: skip
    columns = {f"model/{name}": (numpy.array([0]), numpy.array([float(value)])) for name, value in figures.items()}
    said = {"frozen": names, "parts_frozen": "gru, stem, slow", "parts_trained": "head"}
    events = [Record("model", 0, 0, said)]
    (one,) = findings([FrozenGroup()], columns, facts={"config": config}, events=events).values()
    assert one.severity == severity and ("list of such is empty" in one.message) == (severity == "warning")


def test_stages_in_which_less_is_frozen_are_on_purpose() -> None:
    steps = numpy.array([1, 70, 140])
    columns = {"model/frozen_parameters": (steps, numpy.array([30.0, 20.0, 1.0])),
               "model/trained_parameters": (steps, numpy.array([10.0, 20.0, 39.0])),
               "model/frozen_share": (steps, numpy.array([0.9, 0.5, 0.1])),
               "model/frozen_blocks": (steps[:2], numpy.array([2.0, 1.0])),  # the last look found none
               "model/frozen_untrained": (steps[:2], numpy.array([1.0, 1.0]))}  # fmt: skip
    for config, first in (({}, "warning"), ({"freeze": "gradual"}, "info"), ({"unfreeze_at": [70, 140]}, "info"),
                          ({"freeze": "blocks"}, "warning"), ({"unfreeze": False}, "warning")):  # fmt: skip
        found = found_in([FrozenGroup()], columns, config=config)
        assert [one.severity for one in found] == [first, "info", "info"], config
        assert "block" not in found[-1].message


def test_adapters_of_a_part_of_the_layers_that_are_frozen_at_0_warn() -> None:
    (one,) = frozen(frozen_adapters=8, trained_adapters=8, zero_adapters=4)
    assert one.severity == "warning" and "4 layers" in one.message and "adapters" in one.causes[0]


@pytest.mark.parametrize(
    ("products", "config", "severity"),
    [(2, {}, "warning"), (1, {}, "info"), (24, {"stages": "freeze, then thaw", "freeze": "gradual"}, "info")],
)
def test_products_that_are_frozen_at_0_warn(products: int, config: dict[str, str], severity: str) -> None:
    columns = {"model/frozen_parameters": 36, "model/trained_parameters": 12, "model/zero_products": products}
    shown = {name: (numpy.array([0]), numpy.array([float(value)])) for name, value in columns.items()}
    (one,) = found_in([FrozenGroup()], shown, config=config)
    assert one.severity == severity and ("add nothing" in one.message) == (products > 1)


def test_a_bias_that_is_all_that_is_trained_warns() -> None:
    (one,) = frozen(lone_vector=1, trained_parameters=1)
    assert one.severity == "warning" and one.message.startswith("Only one parameter of 31 is trained")
    (one,) = frozen(lone_vector=1, trained_parameters=1, frozen_parameters=3)  # as little as a toy
    assert one.severity == "info"
    (one,) = frozen(trained_parameters=1)  # a matrix, a prompt, or a scale of its own
    assert one.severity == "info"


def test_some_normalisations_that_are_all_that_is_trained_warn_where_nothing_says_so() -> None:
    options = {"lr": 1e-3, "batch_size": 8, "epochs": 3}
    (one,) = frozen(lone_norms=3, trained_parameters=6, config=options)
    assert one.severity == "warning" and one.message.startswith("3 normalisation layers are all that is trained")
    for config in ({}, options | {"tune": "norms"}, options | {"freeze_body": True}):
        (one,) = frozen(lone_norms=3, trained_parameters=6, config=config)
        assert one.severity == "info", config


@pytest.mark.parametrize(("recurrent", "severity"), [(1, "warning"), (float("nan"), "info")])
def test_one_recurrent_layer_as_drawn_is_no_random_projection(recurrent: float, severity: str) -> None:
    (one,) = frozen(frozen_adapters=0, frozen_first_as_drawn=1, frozen_recurrent=recurrent, trained_parameters=6)
    assert one.severity == severity and (severity == "info" or one.message.startswith("1 layer is frozen as drawn"))


@pytest.mark.parametrize(
    ("option", "severity"), [({"stages": 3}, "warning"), ({"staged": True}, "info"), ({"unfreeze_epoch": 2}, "info"),
     ({"net": "MiniRocket"}, "info"), ({"model": "echo_state"}, "info"), ({"model": "elmo"}, "warning")]
)  # fmt: skip
def test_how_many_stages_a_model_has_is_no_plan_of_what_is_frozen(option: dict[str, Any], severity: str) -> None:
    config = {"lr": 1e-3, "batch_size": 8, "epochs": 3} | option
    (one,) = frozen(frozen_adapters=0, frozen_first_as_drawn=6, trained_parameters=2, frozen_share=0.97, config=config)
    assert one.severity == severity


def test_what_is_frozen_as_it_was_drawn_may_not_have_been_loaded() -> None:
    (one,) = frozen(frozen_adapters=0, frozen_first_as_drawn=6, trained_parameters=2)
    assert one.severity == "info" and one.causes[0].startswith("weights not loaded")
    assert "; 6 layers are as torch draws them" in one.message
    (one,) = frozen(frozen_adapters=0, frozen_first_as_drawn=6, trained_parameters=2, loss_pairs=64)
    assert one.severity == "warning"  # a linear probe has labels
    (one,) = frozen(frozen_adapters=0, frozen_first_as_drawn=6)  # more than a linear probe is trained
    assert one.severity == "warning" and one.message.startswith("6 layers are frozen as drawn")
    (one,) = frozen(frozen_adapters=0, frozen_first_as_drawn=1)
    assert one.severity == "info" and one.causes[0].startswith("layer frozen")


@pytest.mark.parametrize(
    ("figures", "severity"),
    [
        ({"trained_adapters": 8, "frozen_gains_new": 0, "frozen_first_as_drawn": 1}, "warning"),
        ({"trained_adapters": 8, "frozen_gains_new": 0, "frozen_as_drawn": 2}, "warning"),
        ({"trained_adapters": 8, "frozen_gains_new": 0, "frozen_first_as_drawn": 0}, "info"),
        ({"trained_adapters": 8, "frozen_first_as_drawn": 1}, "info"),  # of a model without normalisations
        ({"trained_adapters": 0, "frozen_gains_new": 0, "frozen_first_as_drawn": 1}, "info"),  # a random projection
    ],
)
def test_a_new_head_that_is_frozen_beside_adapters_warns(figures: dict[str, float], severity: str) -> None:
    (one,) = frozen(frozen_adapters=0, **figures)
    assert one.severity == severity and ("as torch draws" in one.message) == (severity == "warning")


@pytest.mark.parametrize(
    "figures",
    [
        {"frozen_adapters": 16, "trained_adapters": 16},
        {"frozen_adapters": 0, "frozen_blocks": 2, "frozen_untrained": 0},
        {"frozen_adapters": 0, "trained_adapters": 8, "frozen_blocks": 2, "frozen_untrained": 1},
        {"frozen_adapters": 0},
    ],
)
def test_a_part_that_is_frozen_on_purpose_informs(figures: dict) -> None:
    (one,) = frozen(**figures)
    assert one.severity == "info" and "10 of 40" in one.message
    assert not frozen(frozen_parameters=0)
