"""Gradients of a scaled loss that nothing divides, and a loss that is the sum of what an evaluation averages."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import falling, found

from barograph.doctor.rules.evaluation.running import StatisticsOther
from barograph.doctor.rules.evaluation.units import TrainingSummed
from barograph.doctor.rules.gradient.undivided import DividedByPart, GradientsUndivided

STEPS, LOOKS, EVALUATED = np.arange(120), np.array([*range(6), *range(20, 120, 20)]), np.arange(0, 120, 20)


@pytest.mark.parametrize("pieces", [(), (4, 30, 70)])
@pytest.mark.parametrize(
    ("times", "norm", "scale", "says"),
    [
        (4096.0, 3000.0, None, True),
        (4096.0, 0.9, None, False),  # divided by hand
        (4096.0, 3000.0, 4096.0, False),  # a scaler makes the steps, and divides in them
        (3000.0, 3000.0, None, False),  # weights of the loss
        (64.0, 60.0, None, False),  # a sum over a batch
        (1.0, 1.0, None, False),
    ],
)
@pytest.mark.parametrize("logged", [None, "scaled", "divided"])
def test_steps_past_the_scaler_are_told_of(
    times: float, norm: float, scale: float | None, says: bool, logged: str | None, pieces: tuple[int, ...]
) -> None:
    loss = falling(120, 3.6, 2.0)
    series = {
        "train/loss": (STEPS, loss),
        "model/loss_given": (LOOKS, times * loss[LOOKS]),
        "model/grad_norm_before": (LOOKS, np.full(len(LOOKS), norm)),
        "model/grad_norm": (LOOKS, np.full(len(LOOKS), min(1.0, norm))),
    }
    if scale:
        series["model/loss_scale"] = LOOKS, np.full(len(LOOKS), scale)
    if logged is not None:  # by the program, as it clips
        series["train/grad_norm"] = STEPS, np.full(120, norm / (times if logged == "divided" else 1))
    told = found([GradientsUndivided()], series, pieces)
    assert [one.causes[0][:16] for one in told] == ["scaler passed by"] * (says and logged != "divided")


@pytest.mark.parametrize(
    ("passed", "scale", "met", "says"),
    [(1.0, 4096.0, 1.0, True), (0.0, 4096.0, 1.0, False), (1.0, 2048.0, 1.0, False), (1.0, 4096.0, 0.7, False)],
)
@pytest.mark.parametrize("pieces", [(), (1, 30, 70)])
def test_steps_past_a_scaler_that_is_known_are_told_of_where_gradients_are_larger_than_divided(
    passed: float, scale: float, met: float, says: bool, pieces: tuple[int, ...]
) -> None:
    loss = falling(120, 3.6, 2.0)
    series = {
        "train/loss": (STEPS, loss),
        "model/loss_given": (LOOKS, 4096.0 * loss[LOOKS]),
        "model/grad_norm_before": (LOOKS, 1.2 + 0.5 * np.sin(LOOKS)),  # divided by the scale
        "model/grad_norm": (LOOKS, np.full(len(LOOKS), met)),  # clipped
        "model/loss_scale": (LOOKS, np.full(len(LOOKS), scale)),
        "model/scaler_passed_by": (LOOKS, np.full(len(LOOKS), passed)),
    }
    assert bool(found([GradientsUndivided()], series, pieces)) == says


@pytest.mark.parametrize("way", ["scaler", "past", "disabled", "unscaled"])
def test_a_step_past_the_scaler_is_known_by_its_state(way: str) -> None:
    torch = pytest.importorskip("torch")
    from barograph.probes.model.hooks import passes_by

    weight = torch.nn.Parameter(torch.ones(4))
    optimizer, seen = torch.optim.SGD([weight], 1e-3), []
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=way != "disabled")
    optimizer.register_step_pre_hook(lambda one, *_: seen.append(passes_by(scaler, one)))
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(weight.square().sum()).backward()
        if way == "unscaled":
            scaler.unscale_(optimizer)
        if way in ("scaler", "unscaled"):
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    assert seen == [way == "past"] * 3


@pytest.mark.parametrize("divided", [True, False])
def test_an_optimizer_that_meets_divided_gradients_is_not_passed_a_scale(divided: bool) -> None:
    loss, norms = falling(120, 3.6, 2.0), 4096.0 * (1 + 0.5 * np.sin(LOOKS))
    series = {
        "train/loss": (STEPS, loss),
        "model/loss_given": (LOOKS, 4096.0 * loss[LOOKS]),
        "model/grad_norm_before": (LOOKS, norms),
        "model/grad_norm": (LOOKS, norms / 4096 if divided else np.ones(len(LOOKS))),  # else clipped
    }
    assert bool(found([GradientsUndivided()], series)) != divided


@pytest.mark.parametrize("pieces", [(), (1, 30, 70)])
@pytest.mark.parametrize(
    ("times", "rows", "passes", "first", "says"),
    [
        (16.3, 16.0, 1.0, 0, True),
        (8.2, 16.0, 1.0, 0, True),  # rows are pairs of answers
        (16.3, 32.0, 2.0, 0, True),
        (4.0, 4.0, 4.0, 0, False),  # logged as the sum of a step's passes
        (1.1, 16.0, 1.0, 0, False),
        (12.0, 16.0, 1.0, 0, False),
        (3.0, 3.0, 1.0, 0, False),
        (16.3, 16.0, 1.0, 20, False),  # nobody knows the evaluation of the model that began
    ],
)
def test_a_loss_of_as_many_times_the_first_evaluation_as_the_batch_has_rows_is_a_sum(
    times: float, rows: float, passes: float, first: int, says: bool, pieces: tuple[int, ...]
) -> None:
    loss = falling(120, 0.69, 0.4)
    some = EVALUATED[first <= EVALUATED]
    series = {
        "train/loss": (STEPS, times * loss),
        "eval/loss": (some, loss[some]),
        "model/loss_given": (LOOKS, times * loss[LOOKS]),
        "model/example_rows": (LOOKS, np.full(len(LOOKS), rows)),
        "model/backwards": (LOOKS, np.full(len(LOOKS), passes)),
    }
    told = found([TrainingSummed()], series, pieces)
    assert [one.causes[0][:15] for one in told] == ["wrong reduction"] * says


@pytest.mark.parametrize("pieces", [(), (30, 70)])
@pytest.mark.parametrize(
    ("pairs", "ranks", "config", "says"),
    [
        (12.0, 1.0, {}, True),
        (12.0, None, {}, False),  # another loss, whose first value is not known
        (11.5, 1.0, {}, False),
        (1.0, 1.0, {}, False),
        (12.0, 1.0, {"loss_reduction": "sum"}, False),
    ],
)
def test_a_preference_that_begins_at_as_many_times_ln_2_as_there_are_pairs_is_a_sum(
    pairs: float, ranks: float | None, config: dict[str, str], says: bool, pieces: tuple[int, ...]
) -> None:
    """Whose first evaluation comes when the model has learnt, so that nothing else is known of it."""
    mean = np.log(2) * np.exp(-STEPS / 60)
    series = {
        "train/loss": (STEPS, pairs * mean), "eval/loss": (EVALUATED[1:], 0.9 * mean[EVALUATED[1:]]),
        "model/loss_given": (LOOKS, pairs * mean[LOOKS]), "model/example_rows": (LOOKS, np.full(len(LOOKS), 24.0)),
        "model/backwards": (LOOKS, np.ones(len(LOOKS))),
    }  # fmt: skip
    if ranks is not None:
        series["model/loss_ranks"] = (LOOKS[:1], np.full(1, ranks))
    assert len(found([TrainingSummed()], series, pieces, config=config)) == says


@pytest.mark.parametrize("pieces", [(), (30, 70)])
@pytest.mark.parametrize(
    ("graph", "times", "config", "says"),
    [
        ({}, 7.0, {}, True),
        ({}, 1.2, {}, False),
        ({"loss_adds": 0.0}, 7.0, {}, False),
        ({"evaluated_averaged": 0.0}, 7.0, {}, False),  # both are sums, of other rows
        ({"loss_multiplied": 0.0625}, 7.0, {}, False),  # divided
        ({"loss_terms": 2.0}, 7.0, {}, False),
        ({"backwards": 2.0}, 7.0, {}, False),
        ({}, 7.0, {"reduction": "sum"}, False),
    ],
)
def test_a_loss_that_is_a_sum_by_its_graph_where_evaluations_average_is_told_of(
    graph: dict[str, float], times: float, config: dict[str, str], says: bool, pieces: tuple[int, ...]
) -> None:
    """Of logits that are adjusted, so that the first loss says nothing."""
    mean = falling(120, 1.4, 0.6)
    series = {
        "train/loss": (STEPS, times * mean), "eval/loss": (EVALUATED[1:], mean[EVALUATED[1:]]),
        "model/loss_given": (LOOKS, times * mean[LOOKS]), "model/example_rows": (LOOKS, np.full(len(LOOKS), 16.0)),
    }  # fmt: skip
    figures = {"loss_adds": 1.0, "loss_terms": 1.0, "loss_multiplied": 1.0, "evaluated_averaged": 1.0, "backwards": 1.0}
    series |= {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in (figures | graph).items()}
    assert len(found([TrainingSummed()], series, pieces, config=config)) == says


@pytest.mark.parametrize(
    ("weight", "said", "says"),
    [(0.001, 0.1, True), (0.1, 0.1, False), (0.01, 0.99, False), (0.05, 0.1, False), (0.001, None, False)],
)
def test_a_momentum_of_batch_norm_that_is_not_the_configured_one_is_told_of(
    weight: float, said: float | None, says: bool
) -> None:
    config = {} if said is None else {"bn_momentum": said}
    told = found([StatisticsOther()], {"model/norm_momentum": ([0], [weight])}, config=config)
    assert bool(told) == says


@pytest.mark.parametrize("pieces", [(), (4, 30, 70)])
@pytest.mark.parametrize(
    ("passes", "divided", "config", "told"),
    [
        (4.0, 30.0, {}, True),
        (4.0, 34.0, {}, True),
        (4.0, 120.0, {}, False),  # by all of them
        (4.0, 1.0, {}, False),  # by nothing: `loss_weight` says it
        (2.0, 30.0, {}, False),  # two passes may be of two losses
        (1.0, 30.0, {}, False),
        (4.0, 30.0, {"reduction": "sum"}, False),
    ],
)
def test_gradients_that_are_divided_by_the_targets_of_one_of_several_micro_batches_are_told_of(
    passes: float, divided: float, config: dict[str, str], told: bool, pieces: tuple[int, ...]
) -> None:
    norm = 120 * falling(120, 3.6, 2.0)
    series = {
        "train/loss": (STEPS, falling(120, 3.6, 2.0)),
        "train/grad_norm": (STEPS, norm / divided),
        "model/grad_norm_before": (LOOKS, norm[LOOKS]),
        "model/loss_weight": (LOOKS, np.full(len(LOOKS), 30.0)),
        "model/backwards": (LOOKS, np.full(len(LOOKS), passes)),
    }
    said = found([DividedByPart()], series, pieces, config=config)
    assert [one.severity for one in said] == ["warning"] * told
