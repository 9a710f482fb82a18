"""A model of which little or nothing is trained: what says so, and what looks like it and is meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import Series, found

from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.rules.activations.groups import FrozenGroup, why_never
from barograph.doctor.rules.activations.meant import said_frozen
from barograph.doctor.rules.activations.unfreezing import UnfreezingMissed
from barograph.doctor.rules.gradient.vanished import ZeroGradient
from barograph.doctor.rules.loss.learning import NotLearning
from barograph.doctor.rules.optimizer.updates import UpdateRatio

STEPS = np.arange(400)


@pytest.mark.parametrize(
    ("share", "adapters", "config", "named"),
    [
        (0.9, 0, {}, True),
        (0.6, 0, {"freeze": "none"}, True),
        (0.1, 0, {}, False),  # an embedding that stays as it was
        (0.99, 12, {}, False),  # adapters
        (0.9, 0, {"model": {"freeze_backbone": True}}, False),
        (0.9, 0, {"linear_probe": 1}, False),
    ],
)
def test_most_of_a_model_that_is_frozen_and_learns_nothing_is_the_first_cause(
    share: float, adapters: int, config: dict[str, Any], named: bool
) -> None:
    loss = np.log(40) + np.random.default_rng(3).normal(0, 0.01, 400)
    series: Series = {
        "train/loss": (STEPS, loss),
        "model/frozen_share": (STEPS[:1], np.array([share])),
        "model/trained_adapters": (STEPS[:1], np.array([adapters])),
    }
    (one,) = found([NotLearning()], series, vocabulary=40, config=config)
    assert one.causes[0].startswith("layer frozen") is named


@pytest.mark.parametrize(("update", "silent"), [(0.0, False), (1e-3, True)])
def test_a_loss_that_reaches_no_parameter_is_critical(update: float, silent: bool) -> None:
    zero = np.zeros(400)
    series = {"train/norm": (STEPS, zero), "model/update_p50": (STEPS[::5], np.full(80, update))}
    severities = [one.severity for one in found([ZeroGradient()], series)]
    assert severities == ([] if silent else ["critical"])


@pytest.mark.parametrize(("trained", "silent"), [(2, True), (3, True), (12, False)])
def test_the_median_of_a_head_and_its_bias_is_none(trained: int, silent: bool) -> None:
    ratios = np.where(STEPS[::5] == 115, 6.28, 0.02)
    series = {
        "model/update_p50": (STEPS[::5], ratios),
        "model/trained_parameters": (STEPS[:1], np.array([trained])),
    }
    assert (not [one for one in found([UpdateRatio()], series) if one.severity == "warning"]) is silent


@pytest.mark.parametrize(("end", "severity"), [(1e-9, "info"), (0.4, "warning")])
def test_updates_of_a_loss_that_has_vanished_are_small_and_nobody_is_alarmed(end: float, severity: str) -> None:
    loss = np.maximum(2 * np.exp(-STEPS / 12), end)
    examiner = Examiner([UpdateRatio()], {"finished": True})
    for name, values in (("train/loss", loss), ("eval/loss", np.full(400, 3.0)), ("train/norm", loss)):
        examiner.seen.add(name, STEPS, values, STEPS * 1_000_000)
    examiner.seen.add("model/update_p50", STEPS, np.where(STEPS < 260, 1e-3, 4e-8), STEPS * 1_000_000)
    examiner.catch_up()
    assert {one.severity for one in examiner.incidents() if one.evidence.get("ratio", 1) < 1e-6} == {severity}


@pytest.mark.parametrize(("frozen", "trained", "cause"), [(8, 0, "layer frozen"), (0, 8, "base not frozen")])
def test_adapters_that_are_frozen_beside_their_trained_layers_are_the_first_cause(
    frozen: int, trained: int, cause: str
) -> None:
    figures = {"frozen_parameters": 8, "trained_parameters": 20, "trained_carriers": 4, "frozen_adapters": frozen,
               "trained_adapters": trained, "frozen_share": 0.1}  # fmt: skip
    series: Series = {f"model/{name}": (STEPS[:1], np.array([float(value)])) for name, value in figures.items()}
    (one,) = found([FrozenGroup()], series)
    assert one.severity == "warning" and one.causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("config", "frozen", "severity"),
    [
        ({"full_finetune": True}, 0, "info"),
        ({"model": {"train_base": True}}, 0, "info"),
        ({"finetuning_type": "full"}, 0, "info"),
        ({"finetuning": "full"}, 0, "info"),
        ({"full_finetune": False}, 0, "warning"),
        ({"finetuning": "lora"}, 0, "warning"),
        ({"train_all_data": True}, 0, "warning"),
        ({"full_finetune": True}, 8, "warning"),  # the adapters are frozen
        ({}, 0, "warning"),
    ],
)
def test_layers_that_are_trained_beside_adapters_may_be_meant(
    config: dict[str, Any], frozen: int, severity: str
) -> None:
    figures = {"frozen_parameters": 8, "trained_parameters": 20, "trained_carriers": 4, "frozen_adapters": frozen,
               "trained_adapters": 8 - frozen, "frozen_share": 0.1}  # fmt: skip
    series: Series = {f"model/{name}": (STEPS[:1], np.array([float(value)])) for name, value in figures.items()}
    assert [one.severity for one in found([FrozenGroup()], series, config=config)] == [severity]


@pytest.mark.parametrize(
    ("config", "figures", "step"),
    [
        ({"unfreeze_epoch": 3}, {}, 160),
        ({"model": {"unfreeze_at_step": 120}}, {}, 120),
        ({"freeze_backbone_epochs": 2}, {}, 120),
        ({"freeze_until_step": 150}, {}, 150),
        ({"unfreeze_at": 2}, {}, 120),
        ({"unfreeze_epoch": 9}, {}, None),  # the last epoch: some count from 1
        ({"unfreeze_at_step": 390}, {}, None),
        ({"unfreeze_at_step": 4000}, {}, None),
        ({"unfreeze_layers": 2}, {}, None),  # how many
        ({"freeze_bn_epochs": 2}, {}, None),  # evaluation mode does that
        ({"freeze_after_epoch": 2}, {}, None),
        ({"freeze_last_layer_epochs": 1}, {}, None),  # gradients are dropped for a while
        ({"unfreeze_epoch": 0}, {}, None),
        ({"unfreeze_epoch": None}, {}, None),
        ({"unfreeze": True}, {}, None),
        ({"unfreeze_epoch": 3}, {"model/frozen_parameters": ([0, 130], [30, 4])}, None),  # it happened
        ({"unfreeze_epoch": 3}, {"model/trained_elements": ([0, 130], [300, 4000])}, None),
        ({"unfreeze_epoch": 3}, {"model/frozen_share": ([0], [0.02])}, None),  # positions, a token
        ({"unfreeze_epoch": 3}, {"model/frozen_parameters": ([0], [0])}, None),
        ({}, {}, None),
    ],
)
def test_unfreezing_that_is_configured_and_never_comes_is_found(
    config: dict[str, Any], figures: dict[str, Any], step: int | None
) -> None:
    series: dict[str, Any] = {
        "train/loss": (STEPS, np.linspace(2, 1, 400)),
        "train/epoch": (STEPS, STEPS // 40),
        "model/frozen_parameters": ([0], [30]),
        "model/trained_elements": ([0], [300]),
        "model/frozen_share": ([0], [0.0 if figures.get("model/frozen_parameters") == ([0], [0]) else 0.9]),
    }
    said = found([UnfreezingMissed()], series | figures, config=config)
    assert [one.step for one in said] == ([] if step is None else [step])


def test_a_launch_that_begins_behind_the_unfreezing_says_nothing_of_it() -> None:
    series: Series = {
        "train/loss": (STEPS + 500, np.linspace(2, 1, 400)),
        "train/epoch": (STEPS + 500, 5 + STEPS // 40),
        "model/frozen_parameters": ([500], [30]),
        "model/frozen_share": ([500], [0.9]),
    }
    for config in ({"unfreeze_epoch": 3}, {"unfreeze_step": 200}):
        assert not found([UnfreezingMissed()], series, config=config)


@pytest.mark.parametrize(("epochs", "told"), [(200, False), (5, True), (None, True)])
def test_a_number_without_a_unit_is_one_of_steps_where_it_is_above_the_epochs(epochs: int | None, told: bool) -> None:
    series: Series = {"train/loss": (STEPS, np.linspace(2, 1, 400)), "model/frozen_parameters": ([0], [30]),
                      "model/frozen_share": ([0], [0.9])}  # fmt: skip
    config = {"unfreeze_at": 100} | ({} if epochs is None else {"epochs": epochs})
    assert bool(found([UnfreezingMissed()], series, config=config)) is told


@pytest.mark.parametrize(
    ("names", "first"), [(["norm.bias", "score.bias"], "biases alone"), (["score.weight"], "layer")]
)
def test_biases_that_no_gradient_reaches_may_cancel_in_a_comparison(names: list[str], first: str) -> None:
    assert why_never(names)[0].startswith(first) and why_never(names)[-1].startswith("layer frozen")


@pytest.mark.parametrize(
    ("option", "severity"),
    [
        ({"freeze_image_steps": 40}, "info"),
        ({"model": {"frozen_tower_epochs": 2}}, "info"),
        ({"lock_text_until_step": 100}, "info"),
        ({"head_only_epochs": 1}, "info"),
        ({"warmup_projector_steps": 50}, "info"),
        ({"freeze_image_steps": 0}, "warning"),
        ({"freeze_bn_steps": 40}, "warning"),  # of running statistics
        ({"linear_warmup_steps": 40}, "warning"),  # of the rate
        ({"freeze_layers": 4}, "warning"),
    ],
)
def test_what_is_frozen_for_a_number_of_steps_by_the_configuration_is_meant(
    option: dict[str, Any], severity: str
) -> None:
    figures = {"frozen_parameters": 8, "trained_parameters": 32, "frozen_share": 0.16, "frozen_first_as_drawn": 2}
    series: Series = {f"model/{name}": (STEPS[:1], np.array([float(value)])) for name, value in figures.items()}
    (one,) = found([FrozenGroup()], series, config={"lr": 1e-3, "batch_size": 8} | option)
    assert one.severity == severity


@pytest.mark.parametrize(("later", "severity"), [(0.0, "info"), (2.0, "warning")])
def test_what_was_frozen_as_drawn_and_is_trained_later_was_so_for_a_while(later: float, severity: str) -> None:
    series: Series = {
        "model/frozen_parameters": (STEPS[[0, 40]], np.array([8.0, later])),
        "model/trained_parameters": (STEPS[[0, 40]], np.array([32.0, 40.0 - later])),
        "model/frozen_share": (STEPS[:1], np.array([0.16])),
        "model/frozen_first_as_drawn": (STEPS[:1], np.array([2.0])),
    }
    told = {one.step: one.severity for one in found([FrozenGroup()], series)}
    assert told[0] == severity


@pytest.mark.parametrize(
    ("config", "names", "said"),
    [
        ({"freeze_pos_embed": True, "freeze_modules": "t_embedder"}, "pos_embed, t_embedder.0, t_embedder.2", True),
        ({"freeze_pos_embed": True, "freeze_modules": ""}, "pos_embed, t_embedder.0, t_embedder.2", False),
        ({"stop_grad_stem": True}, "base.stem.0, slow.stem.0, slow.body.0 and 2 more", True),
        ({"freeze_stem": True}, "encoder.stem.0, momentum_encoder.body.1", True),
        ({"stop_grad_stem": True}, "base.stem.0, base.body.0", False),
        ({"stop_grad_stem": False}, "base.stem.0, slow.stem.0", False),
        ({"stop_grad_stem": True}, "slow.stem.0, slow.body.0", False),  # all that is frozen is the copy
        ({"train_modules": "conv,norm,embedding"}, "up.skip.weight, grow.bias", True),  # a list that leaves these out
        ({"train_modules": ["conv", "norm"]}, "up.conv.weight, grow.bias", False),
        ({"train": "full"}, "up.skip.weight, grow.bias", False),
        ({"frozen_tower": "card"}, "words.weight, card.0, card.3", True),
        ({"frozen_tower": "card"}, "words.weight, sound.0, card.0", False),
        ({"frozen_tower": "sound"}, "words.weight, card.0", False),
        ({"frozen": "card"}, "words.weight, card.0, card.3", False),
    ],
)
def test_a_part_that_is_to_be_frozen_may_stand_beside_a_copy_that_follows_the_weights(
    config: dict[str, bool | str], names: str, said: bool
) -> None:
    history = RunHistory()
    history.facts["config"] = config
    assert said_frozen(history, names) is said


@pytest.mark.parametrize(
    ("option", "severity"),
    [({"trained_layers": 1}, "info"), ({"model": {"tuned_blocks": 2}}, "info"), ({"trained_layers": 0}, "warning"),
     ({"train_layers_from": 1}, "info"), ({"freeze_first_layers": 1}, "info"), ({"num_frozen_layers": 1}, "info"),
     ({"freeze_layers": 0}, "warning"), ({"hold_layers": 1}, "info"), ({"hold_layers": 0}, "warning"),
     ({"n_pinned_blocks": 1}, "info"), ({"layers_held": 1}, "info"), ({"locked_first_n_layers": 1}, "info"),
     ({"keep_layers": 2}, "warning"),  # as where others are taken away
     ({"num_layers_unfrozen": 1}, "info"), ({"unfreeze_last_n_layers": 1}, "info"), ({"layers_trained": 1}, "info"),
     ({"n_layer": 2}, "warning"), ({"trained_layers": True}, "warning")],
)  # fmt: skip
def test_blocks_that_stay_as_drawn_are_meant_where_a_number_of_trained_layers_is_configured(
    option: dict[str, Any], severity: str
) -> None:
    figures = {"trained_parameters": 10, "frozen_parameters": 12, "frozen_blocks": 1, "frozen_untrained": 1}
    series: Series = {f"model/{name}": (STEPS[:1], np.array([float(value)])) for name, value in figures.items()}
    (one,) = found([FrozenGroup()], series, config={"lr": 1e-3, "batch_size": 8} | option)
    assert one.severity == severity
