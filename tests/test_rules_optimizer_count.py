"""An optimizer's own count of steps: what says that its state was not loaded, and what looks like it."""

from __future__ import annotations

import numpy
import pytest
from rule_columns import findings, only

from barograph.doctor.rules.optimizer.accounts import OptimizerCount


@pytest.mark.parametrize(
    ("begins", "age", "apart", "every", "told"),
    [
        (66, 0.0, 1.0, 1, True),
        (66, 0.0, 1.0, 10, True),
        (66, 66.0, 1.0, 1, False),  # it was loaded
        (66, 0.0, 0.0, 1, False),  # steps that came before are others than the model's
        (0, 0.0, 1.0, 1, False),  # what was trained before is trained on for something else
    ],
)
def test_a_run_of_its_own_that_goes_on_has_the_optimizers_count(
    begins: int, age: float, apart: float, every: int, told: bool
) -> None:
    looks = numpy.array([0, *range(begins + 10, begins + 60, 10)])
    logged = numpy.arange(-(-begins // every) * every, begins + 60, every)
    columns = {"model/optimizer_age": (looks, age + numpy.arange(len(looks)) * 10.0),
               "model/gains_apart": (looks[:1], numpy.array([apart])),
               "train/loss": (logged, numpy.linspace(2.0, 1.5, len(logged)))}  # fmt: skip
    found = only(findings([OptimizerCount()], columns), "optimizer_count")
    assert [one.causes[0].split(":")[0] for one in found] == ["optimizer state lost"] * told


@pytest.mark.parametrize(
    ("rates", "severity"),
    [
        (numpy.minimum(1, numpy.arange(1, 61) / 20), "info"),
        (numpy.full(60, 1.0), "warning"),
        (1 - numpy.arange(60) / 60, "warning"),
        (numpy.arange(66, 126) / 200, "warning"),  # a warm-up that goes on
    ],
    ids=["anew", "constant", "falls", "goes on"],
)
@pytest.mark.parametrize("name", ["train/lr", "model/rate_share"])
def test_a_run_of_its_own_that_is_warmed_up_for_a_new_optimizer_is_no_warning(
    name: str, rates: numpy.ndarray, severity: str
) -> None:
    looks = numpy.array([0, *range(76, 126, 10)])
    columns = {"model/optimizer_age": (looks, numpy.arange(len(looks)) * 10.0),
               "model/gains_apart": (looks[:1], numpy.array([1.0])), name: (numpy.arange(66, 126), 1e-3 * rates),
               "train/loss": (numpy.arange(66, 126), numpy.linspace(2.0, 1.5, 60))}  # fmt: skip
    (found,) = only(findings([OptimizerCount()], columns), "optimizer_count")
    assert found.severity == severity


@pytest.mark.parametrize(
    ("config", "told"),
    [({}, True), ({"save_only_model": True}, True),
     ({"reset_optimizer": True}, False), ({"checkpoint.load_optimizer_state": False}, False),
     ({"no_load_optim": True}, False), ({"load_weights_only": True}, False), ({"reset_optimizer": False}, True),
     ({"load_optimizer": True}, True)],
)  # fmt: skip
def test_an_optimizer_that_begins_anew_by_the_configuration_is_meant(config: dict, told: bool) -> None:
    looks = numpy.array([0, *range(76, 126, 10)])
    columns = {"model/optimizer_age": (looks, numpy.arange(len(looks)) * 10.0),
               "model/gains_apart": (looks[:1], numpy.array([1.0])),
               "train/loss": (numpy.arange(66, 126), numpy.linspace(2.0, 1.5, 60))}  # fmt: skip
    assert bool(only(findings([OptimizerCount()], columns, facts={"config": config}), "optimizer_count")) == told


@pytest.mark.parametrize(
    ("config", "apart", "age", "told"),
    [({"resume": "out/last.pt"}, 1.0, 0.0, True),
     ({"train.resume_from_checkpoint": "out/checkpoint-400"}, 1.0, 0.0, True),
     ({"resume": "out/last.pt"}, 1.0, 400.0, False), ({"resume": "out/last.pt"}, 0.0, 0.0, False),
     ({"resume": ""}, 1.0, 0.0, False), ({"resume": True}, 1.0, 0.0, False), ({"resume": "allow"}, 1.0, 0.0, False),
     ({"pretrained": "out/last.pt"}, 1.0, 0.0, False), ({"init_from": "out/last.pt"}, 1.0, 0.0, False),
     ({"resume": "https://host/r50.pth"}, 1.0, 0.0, False), ({"resume": "base.pt", "finetune": True}, 1.0, 0.0, False),
     ({"resume": "out/last.pt", "reset_optimizer": True}, 1.0, 0.0, False)],
)  # fmt: skip
def test_a_run_that_says_what_it_resumes_from_begins_with_its_optimizer(
    config: dict, apart: float, age: float, told: bool
) -> None:
    looks = numpy.arange(1, 61, 10)
    columns = {"model/optimizer_age": (looks, age + looks - 1.0),
               "model/gains_apart": (looks[:1], numpy.array([apart])),
               "train/loss": (numpy.arange(1, 61), numpy.linspace(2.0, 1.9, 60))}  # fmt: skip
    found = only(findings([OptimizerCount()], columns, facts={"config": config}), "optimizer_count")
    assert [one.step for one in found] == [1] * told
