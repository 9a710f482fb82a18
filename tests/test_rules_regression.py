"""What is said of a mean square whose targets are known, of inputs far out, and of the KL of an autoencoder."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from test_rules_objective import DICE, FALLS, ROWS, STEP, every, of_graph, warned

LOOKS = np.arange(0, ROWS, 10)
SIDES = ["explained", "target_std", "target_mean", "output_rms"]


def looked(**values: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Figures with a little noise; those of the loss's graph have none."""
    noise = {name: 0.0 if name.startswith("loss_") else 1e-4 * min(1, abs(value)) for name, value in values.items()}
    return {
        f"model/{name}": (LOOKS, np.full(len(LOOKS), value) + noise[name] * DICE.normal(size=len(LOOKS)))
        for name, value in values.items()
    }


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("figures", "rule", "cause"),
    [
        ({"out_of_range": 0.4}, "targets_out_of_range", "targets out of reach"),
        ({"out_of_range": 0.02}, None, ""),
        ({"loss_value": 11.0, "loss_bounded": 1.0, "loss_error": 1.0, "loss_undivided": 1.0, "output_size": 5.0},
         "targets_out_of_range", "targets out of reach"),
        ({"loss_value": 0.9, "loss_bounded": 1.0, "loss_error": 1.0, "loss_undivided": 1.0}, None, ""),
        ({"loss_value": 1.9, "loss_bounded": 2.0, "loss_error": 1.0, "loss_undivided": 1.0}, None, ""),
        ({"loss_value": 11.0, "loss_bounded": 1.0, "loss_error": 1.0, "loss_undivided": 0.0}, None, ""),  # weighted
        ({"output_rms": 2.0, "target_std": 9e3, "target_mean": 4e3}, "unscaled_targets", "targets not scaled"),
        ({"output_rms": 5e3, "target_std": 9e3, "target_mean": 4e3}, None, ""),
        ({"output_rms": 0.1, "target_std": 1.0, "target_mean": 2.0}, None, ""),
        ({"loss_value": 900.0, "output_size": 2.0, "loss_error": 1.0, "loss_undivided": 1.0},
         "unscaled_targets", "targets not scaled"),
        ({"loss_value": 900.0, "output_size": 2.0, "loss_error": 1.0, "loss_undivided": 0.0}, None, ""),  # a sum
        ({"loss_value": 900.0, "output_size": 400.0, "loss_error": 1.0, "loss_undivided": 1.0}, None, ""),
        ({"loss_value": 9.0, "output_size": 0.2, "loss_error": 1.0, "loss_undivided": 1.0}, None, ""),
        ({"explained": -0.02, "target_std": 1.0, "update_p50": 1e-3}, "unexplained_targets", "labels shuffled"),
        ({"explained": -0.02, "target_std": 1.0, "update_p50": 1e-3, "input_std": 70.0, "input_mean": 127.0},
         "unexplained_targets", "inputs not normalised"),
        ({"explained": -0.02, "target_std": 1.0, "update_p50": 1e-3, "flow_first_last": 1e-4},
         "unexplained_targets", "gradients vanish"),
        ({"explained": -0.02, "target_std": 1.0, "update_p50": 1e-3, "flow_first_last": 2e-3},
         "unexplained_targets", "labels shuffled"),
        ({"explained": 0.06, "target_std": 1.0, "update_p50": 1e-3}, None, ""),
        ({"explained": -0.02, "target_std": 1.0, "update_p50": 1e-6}, None, ""),  # nothing moves
        ({"explained": 0.05, "target_std": 1.0, "update_p50": 1e-3, "input_std": 4e3, "input_mean": 2e4},
         "unexplained_targets", "inputs not normalised"),
    ],
)  # fmt: skip
def test_what_the_targets_prove_is_said(figures: dict[str, float], rule: str | None, cause: str, rows: int) -> None:
    found = warned({"loss": every(np.full(ROWS, 1.0) + 0.05 * DICE.normal(size=ROWS))} | looked(**figures), rows)
    ours = {"targets_out_of_range", "unscaled_targets", "unexplained_targets"}
    assert set(found) & ours == ({rule} if rule else set())
    assert rule is None or found[rule].causes[0].startswith(cause)


def test_what_a_batch_of_targets_in_order_leaves_to_explain_says_nothing() -> None:
    columns = {"loss": every(1 + 0.05 * DICE.normal(size=ROWS))} | looked(
        explained=0.0, target_std=0.1, update_p50=1e-3
    )
    assert "unexplained_targets" in warned(columns | {"model/target_mean": (LOOKS, 0.01 * np.sin(LOOKS))})
    assert "unexplained_targets" not in warned(columns | {"model/target_mean": (LOOKS, np.linspace(-2, 2, len(LOOKS)))})


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(("ahead", "told"), [(0.0, True), (0.4, False)])
def test_a_model_that_has_yet_to_learn_the_mean_of_its_targets_is_on_its_way(
    ahead: float, told: bool, rows: int
) -> None:
    """Worse than a constant at first, as ratings of 1 to 5 beside outputs of 0; then as good, or better."""
    course = np.concatenate(
        [np.linspace(-9, -0.1, 22 if ahead else 6), np.linspace(0, ahead, len(LOOKS) - (22 if ahead else 6))]
    )
    columns = {"loss": every(np.linspace(2, 1, ROWS))} | looked(target_std=1.0, update_p50=1e-3)
    assert ("unexplained_targets" in warned(columns | {"model/explained": (LOOKS, course)}, rows)) is told


def test_a_regression_whose_evaluation_gets_better_and_a_policys_values_are_left_alone() -> None:
    columns = {"loss": every(1 + 0.05 * DICE.normal(size=ROWS))} | looked(
        explained=0.0, target_std=1.0, update_p50=1e-3
    )
    assert "unexplained_targets" in warned(columns)
    assert "unexplained_targets" not in warned(columns | {"model/output_spread": (LOOKS, np.zeros(len(LOOKS)))})
    better = {"val_loss": (np.arange(39, ROWS, 40), np.linspace(1.0, 0.8, 10))}
    assert "unexplained_targets" not in warned(columns | better)
    raw = looked(input_std=4e3, input_mean=2e4)
    assert warned(columns | better | raw)["unexplained_targets"].causes[0].startswith("inputs not normalised")
    assert "unexplained_targets" not in warned(columns | {"reward": every(DICE.normal(size=ROWS))})


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(("worst", "told"), [(4.0, True), (0.7, False)])
def test_inputs_far_out_are_the_cause_where_the_loss_jumps_with_them(worst: float, told: bool, rows: int) -> None:
    loss = 0.5 + 0.01 * DICE.normal(size=ROWS)
    loss[[90, 180, 270]] = worst
    outliers = {"model/input_outlier": (np.array([90, 180, 270]), np.array([9e3, 8e3, 7e3]))}
    found = warned({"loss": every(loss)} | outliers, rows)
    assert ("outlier_inputs" in found) is told
    if told:
        assert (found["outlier_inputs"].step, found["outlier_inputs"].evidence["batches"]) == (90, 3)


def autoencoder(
    kl: np.ndarray, weight: float, recon: np.ndarray = FALLS, name: str = "kl"
) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
    return {"loss": every(recon + weight * kl), "recon_loss": every(recon), name: every(kl)}


@pytest.mark.parametrize("name", ["kl", "kl_loss", "train/kld_loss"])
@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("kl", "weight", "cause"),
    [
        (0.2 * np.exp(-STEP / 20) + 3e-4, 100.0, "KL weight too high"),
        (0.2 + 2 * (1 - np.exp(-STEP / 50)), 0.1, None),
        (4 * np.exp(-STEP / 20) + 0.4, 1.0, None),
        (-0.2 - STEP / 10, 0.1, "sign reversed"),
        (0.2 + STEP / 10 + 0.1 * DICE.normal(size=ROWS), -0.1, "sign reversed"),
    ],
)
def test_the_kl_of_an_autoencoder_is_judged(
    kl: np.ndarray, weight: float, cause: str | None, rows: int, name: str
) -> None:
    found = warned(autoencoder(kl, weight, name=name), rows)
    assert ("latent_term" in found) is (cause is not None)
    assert cause is None or found["latent_term"].causes[0].startswith(cause)
    assert not cause or (found["latent_term"].kind == "divergence") is (cause == "sign reversed")


@pytest.mark.parametrize(("rebuilt", "told"), [(0.003, True), (0.3, False), (None, False)])
def test_a_kl_in_another_unit_has_collapsed_where_the_outputs_explain_nothing(
    rebuilt: float | None, told: bool
) -> None:
    columns = autoencoder(0.6 * np.exp(-STEP / 10) + 2e-3, 1.0, 0.1 + 0.5 * np.exp(-STEP / 10))
    looks = looked(rebuilt=rebuilt) if rebuilt is not None else {}
    found = warned({**columns, **looks})
    assert ("latent_term" in found) is told
    assert not told or found["latent_term"].causes[0].startswith("KL weight too high")


def test_a_policys_kl_and_one_beside_broadcast_targets_are_not_judged() -> None:
    gone = 0.2 * np.exp(-STEP / 20) + 3e-4
    assert "latent_term" not in warned({**autoencoder(gone, 9.0), "reward": every(DICE.normal(size=ROWS))})
    assert "latent_term" not in warned({**autoencoder(gone, 9.0), **of_graph(loss_widened=20.0)})
    assert "latent_term" not in warned({**autoencoder(gone, 9.0), **of_graph(activation_twice=1.0)})
    found = warned({**autoencoder(gone, 9.0), **of_graph(latent_cut=1.0)})["latent_term"]
    assert found.causes == ["graph cut: latent numbers are sampled without a gradient"]


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("loss", "error", "told"), [(FALLS - 1, 1.0, True), (FALLS, 1.0, False), (FALLS - 1, None, False)]
)
def test_a_logistic_loss_below_zero_has_targets_out_of_range(
    loss: np.ndarray, error: float | None, told: bool, rows: int
) -> None:
    figures = of_graph(loss_error=error) if error is not None else {}
    assert ("targets_out_of_range" in warned({"loss": every(loss)} | figures, rows)) is told
    players = {"actor_loss": every(loss), "critic_loss": every(FALLS)}  # the graph is that of the critic's
    assert "targets_out_of_range" not in warned(players | figures, rows)


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("steps", "figures", "told"),
    [
        ([30, 200], {"loss_error": 1.0}, True),
        ([30], {"loss_error": 1.0}, False),  # one row may be a line of the log
        ([30, 200], {"loss_classes": 8.0}, False),
        ([30, 200], {"loss_error": 1.0, "half_output": 1.0}, False),
        ([30, 200], {"loss_error": 1.0, "non_finite_inputs": 1.0}, False),
    ],
)
def test_losses_that_are_not_finite_now_and_then_have_such_targets(
    steps: list[int], figures: dict[str, float], told: bool, rows: int
) -> None:
    loss = FALLS.copy()
    loss[steps] = np.nan
    found = warned({"loss": every(loss)} | of_graph(**figures), rows)
    assert ("targets_not_finite" in found) is told
    assert not told or found["targets_not_finite"].step == 30


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(("cut", "told"), [([1.0, 1.0], True), ([0.0, 0.0], False), ([0.0, 1.0], False)])
def test_latent_numbers_without_a_gradient_are_found(cut: list[float], told: bool, rows: int) -> None:
    columns = {**autoencoder(2 + 0.1 * DICE.normal(size=ROWS), 0.1), "model/latent_cut": (np.arange(2), np.array(cut))}
    found = warned(columns, rows)
    assert ("latent_term" in found) is told
    if told:
        one = found["latent_term"]
        assert (one.step, one.found, one.kind, one.causes[0].split(":")[0]) == (0, 30, "frozen", "graph cut")


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize(
    ("noise", "cause"),
    [([1.0, 1.0], None), ([2.0, 2.0], "wrong deviation"), ([3.0, 3.0], "wrong deviation"), ([2.0, 1.0], None),
     ([0.0, 0.0], "noise missing"), ([0.0, 1.0], None)],
)  # fmt: skip
def test_latent_numbers_that_are_drawn_otherwise_than_the_kl_says_are_found(
    noise: list[float], cause: str | None, logged: bool, rows: int
) -> None:
    columns = autoencoder(2 + 0.1 * DICE.normal(size=ROWS), 0.1)
    columns = columns if logged else {"loss": columns["loss"]}
    graph = {"model/latent_cut": (np.arange(1), np.zeros(1)), "model/latent_noise": (np.arange(2), np.array(noise))}
    found = warned({**columns, **graph}, rows)
    assert ("latent_term" in found) == (cause is not None)
    assert cause is None or found["latent_term"].causes[0].startswith(cause)


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("recon", "logistic", "told"),
    [
        (20 - STEP / 5, 1.0, True),
        (20 - STEP / 5, 0.0, False),  # of a learnt deviation
        (-20 + STEP / 50, 1.0, False),  # logged with the other sign
        (20 * np.exp(-STEP / 40), 1.0, False),
    ],
)
def test_a_reconstruction_below_0_is_of_targets_out_of_range(
    recon: np.ndarray, logistic: float, told: bool, rows: int
) -> None:
    columns = {**autoencoder(2 + 0.1 * DICE.normal(size=ROWS), 0.1, recon), **of_graph(latent_logistic=logistic)}
    found = warned(columns, rows)
    assert ("targets_out_of_range" in found) is told
    if told:
        assert found["targets_out_of_range"].found == 105  # the fifth row below 0
