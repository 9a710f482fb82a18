"""With which weight a loss is differentiated: for passes that never come, over weighted classes, over padding."""

from __future__ import annotations

import numpy as np
import pytest
import rule_curves

from barograph.doctor.rules.loss.sums import LossWeight


@pytest.mark.parametrize(
    ("weight", "passes", "looks", "facts", "told"),
    [
        (0.25, 1, 6, {}, True),
        (0.25, 1, 5, {}, False),
        (0.25, 4, 6, {}, False),  # as it is meant
        (1.0, 1, 6, {}, False),  # the configuration's micro-batches are somebody else's
        (0.25, 1, 6, {"world_size": 4}, False),  # the ranks' passes are added
    ],
)
def test_a_loss_that_is_divided_for_passes_that_never_come_is_stepped_at_each_micro_batch(
    weight: float, passes: int, looks: int, facts: dict[str, int], told: bool
) -> None:
    steps = np.arange(0, 10 * looks, 10)
    figures = {"loss_weight": weight, "passes": passes, "backwards": passes, "targets": 64.0}
    columns = {f"model/{name}": (steps, np.full(looks, float(value))) for name, value in figures.items()}
    columns["loss"] = np.arange(100), np.linspace(4.0, 2.0, 100)
    found = rule_curves.found([LossWeight()], columns, config={"grad_accum": 4}, **facts)
    assert bool(found) == told
    assert all(one.causes[0].startswith("optimizer stepped at each micro-batch") for one in found)


@pytest.mark.parametrize(
    ("name", "weight", "parts", "told"),
    [
        ("loss_weight", 1 / 4, 2, True),
        ("loss_weight", 1 / 2, 2, False),
        ("loss_weight", 1 / 3, 2, False),
        ("square_weight", 1 / 16, 4, True),
        ("square_weight", 1 / 4, 4, False),
        ("square_weight", 1 / 8, 4, False),  # half of a mean square, divided by 4
        ("square_weight", 1 / 4, 2, False),  # or by 2
        ("square_weight", 1.0, 2, False),  # squares of two columns added up, divided by 2
    ],
)
def test_a_loss_that_is_divided_by_its_micro_batches_twice_is_too_small(
    name: str, weight: float, parts: int, told: bool
) -> None:
    steps = np.arange(0, 30, 10)
    figures = {name: weight, "passes": float(parts), "backwards": float(parts), "targets": 64.0}
    columns = {f"model/{key}": (steps, np.full(3, value)) for key, value in figures.items()}
    columns["loss"] = np.arange(100), np.linspace(4.0, 2.0, 100)
    found = rule_curves.found([LossWeight()], columns, config={"gradient_accumulation_steps": parts})
    says = ("vanishing", "warning", [f"gradient accumulation scaled wrongly: divided twice by {parts}"])
    assert [(one.kind, one.severity, one.causes) for one in found] == [says] * told


@pytest.mark.parametrize(
    ("weight", "often"),
    [(1.0, "not at all"), (1 / 4, ""), (1 / 16, "twice"), (1.01, ""), (1 / 2, "")],
)
def test_micro_batches_of_a_loss_in_bits_are_divided_once(weight: float, often: str) -> None:
    steps = np.arange(0, 30, 10)
    figures = {"loss_weight": weight / np.log(2), "passes": 4.0, "backwards": 4.0, "targets": 64.0}
    columns = {f"model/{key}": (steps, np.full(3, value)) for key, value in figures.items()}
    columns["loss"] = np.arange(100), np.linspace(4.0, 2.0, 100)
    found = rule_curves.found([LossWeight()], columns, config={"gradient_accumulation_steps": 4})
    says = [f"gradient accumulation scaled wrongly: divided {often} by 4"] * bool(often)
    assert [one.causes for one in found] == [[one] for one in says]


@pytest.mark.parametrize(
    ("weight", "averaged", "told"),
    [
        (1 / 16, 4.0, True),  # by 2 for the passes, by 8 for those of all ranks
        (1 / 16, None, False),  # nobody knows whether gradients are averaged over ranks
        (1 / 8, 4.0, False),  # by the passes of all ranks, which may be added
        (1 / 2, 4.0, False),  # as it is meant
    ],
)
def test_a_loss_that_is_divided_by_the_micro_batches_of_all_ranks_beside_its_own_is_too_small(
    weight: float, averaged: float | None, told: bool
) -> None:
    steps = np.arange(0, 30, 10)
    figures = {"loss_weight": weight, "passes": 2.0, "backwards": 2.0, "targets": 64.0, "averaged_ranks": averaged}
    columns = {f"model/{key}": (steps, np.full(3, value)) for key, value in figures.items() if value is not None}
    columns["loss"] = np.arange(100), np.linspace(4.0, 2.0, 100)
    found = rule_curves.found([LossWeight()], columns, config={"gradient_accumulation_steps": 2}, world_size=4)
    says = ["gradient accumulation scaled wrongly: divided twice by 2, and by 4 ranks"]
    assert [one.causes for one in found] == [says] * told


@pytest.mark.parametrize(
    ("terms", "slope", "told"),
    [(24.0, -0.5, True), (24.0, None, False), (None, -0.5, False), (6.0, -0.5, False)],
)
def test_a_sum_over_weighted_classes_is_seen_in_its_graph(terms: float | None, slope: float | None, told: bool) -> None:
    steps = np.arange(0, 60, 10)
    figures = {"loss_weight": 7.46, "targets": 24.0, "loss_summed": terms, "class_weight_slope": slope}
    columns = {f"model/{name}": (steps, np.full(6, value)) for name, value in figures.items() if value is not None}
    columns["loss"] = np.arange(100), np.linspace(33.0, 4.0, 100)
    found = [one for one in rule_curves.found([LossWeight()], columns) if one.severity == "warning"]
    assert [one.causes[0] for one in found] == ["loss summed: over 24 targets, not averaged"] * told


@pytest.mark.parametrize(("last", "ranks"), [(0, None), (8, None), (0, 1.0)])
def test_a_loss_that_is_averaged_over_all_places_is_one_of_padding(last: int, ranks: float | None) -> None:
    """last: places of the rows' ends, which have no target; ranks: said of a preference, whose gradient is another."""
    steps, targets = np.arange(0, 60, 10), np.array([30.0, 40.0, 35.0, 50.0, 45.0, 38.0])
    places = np.array([64.0, 72.0, 64.0, 80.0, 64.0, 72.0])
    figures = {"targets": targets, "places": places, "loss_weight": targets / (places - last), "passes": np.ones(6),
               "example_rows": np.full(6, 8.0)}  # fmt: skip
    columns = {f"model/{name}": (steps, values) for name, values in figures.items()}
    columns["loss"] = np.arange(100), np.linspace(3.0, 1.0, 100)
    if ranks is not None:
        columns["model/loss_ranks"] = np.arange(1), np.full(1, ranks)
    found = rule_curves.found([LossWeight()], columns)
    said = [(one.kind, one.severity, one.causes[0].partition(":")[0]) for one in found]
    assert said == [("padding", "warning", "padding in the mean")] * (ranks is None)


@pytest.mark.parametrize(("share", "asked", "told"), [(0.95, None, True), (0.95, 1.0, False), (0.95, 0.0, True)])
def test_a_weight_near_the_share_of_places_is_of_a_reference_where_one_is_asked(
    share: float, asked: float | None, told: bool
) -> None:
    steps, targets = np.arange(0, 60, 10), np.array([158.0, 155.0, 164.0, 154.0, 156.0, 161.0])
    figures = {"targets": targets, "places": np.full(6, 336.0), "loss_weight": targets / (share * 336),
               "passes": np.ones(6), "example_rows": np.full(6, 24.0)}  # fmt: skip
    columns = {f"model/{name}": (steps, values) for name, values in figures.items()}
    columns["loss"] = np.arange(100), np.linspace(0.5, 0.3, 100)
    if asked is not None:
        columns["model/other_asked"] = steps, np.full(6, asked)
    assert len(rule_curves.found([LossWeight()], columns)) == told


@pytest.mark.parametrize(
    ("targets", "weight", "looks", "told"),
    [
        (224.0, 7 / 15, 9, True),  # of 32 rows of 15 places
        (224.0, 7 / 15, 7, False),
        (240.0, 1 / 2, 9, False),  # a weight that may be chosen
        (224.0, 0.47, 9, False),  # is another number than the share
    ],
)
def test_a_loss_that_is_averaged_over_all_places_is_told_where_their_share_stays_as_it_is(
    targets: float, weight: float, looks: int, told: bool
) -> None:
    figures = {"targets": targets, "places": 512.0, "loss_weight": weight, "passes": 1.0, "example_rows": 32.0}
    columns = {f"model/{name}": (np.arange(0, 10 * looks, 10), np.full(looks, value))
               for name, value in figures.items()}  # fmt: skip
    columns["loss"] = np.arange(100), np.linspace(3.0, 1.0, 100)
    found = rule_curves.found([LossWeight()], columns)
    said = [(one.kind, one.severity, one.causes[0].partition(":")[0]) for one in found]
    assert said == [("padding", "warning", "padding in the mean")] * told


@pytest.mark.parametrize(
    ("weights", "figures", "told"),
    [
        ((38.3, 37.8, 36.4), {}, True),
        ((38.3, 37.8, 3.4), {}, False),
        ((38.3, 37.8, 36.4), {"loss_adds": 0.0}, False),  # a mean whose classes have weights
        ((38.3, 37.8, 36.4), {"loss_terms": 2.0}, False),
        ((1.19, 1.18, 1.14), {}, False),  # divided by their number
        ((80.0, 79.0, 78.0), {}, False),
    ],
)
def test_a_sum_of_losses_with_factors_of_their_own_is_summed_over_its_targets(
    weights: tuple[float, ...], figures: dict[str, float], told: bool
) -> None:
    steps = np.arange(0, 30, 10)
    figures = {"loss_adds": 1.0, "loss_terms": 1.0, "passes": 1.0, "targets": 32.0, "output_width": 6.0} | figures
    columns = {f"model/{key}": (steps, np.full(3, value)) for key, value in figures.items()}
    columns |= {"model/loss_weight": (steps, np.array(weights)), "loss": (np.arange(100), np.linspace(42.0, 6.0, 100))}
    found = rule_curves.found([LossWeight()], columns)
    says = ("warning", ["loss summed: over 32 targets, not averaged"])
    assert [(one.severity, one.causes) for one in found] == [says] * told


@pytest.mark.parametrize(
    ("divided", "limit", "config", "severity"),
    [
        (1.0, 1.0, {}, "warning"),
        (64.0, 1.0, {}, "info"),  # divided behind the passes
        (1.0, 90.0, {}, "info"),  # clipping is meant for a sum
        (1.0, 1.0, {"per_token": False}, "info"),
        (1.0, 1.0, {"per_token": True}, "warning"),
    ],
)
def test_a_sum_whose_gradients_nothing_divides_before_they_are_clipped_is_a_warning(
    divided: float, limit: float, config: dict[str, bool], severity: str
) -> None:
    """Though what is logged is a mean."""
    steps = np.arange(3)
    figures = {"loss_weight": 64.0, "passes": 1.0, "backwards": 1.0, "targets": 64.0, "output_width": 50.0,
               "grad_norm_before": 200.0, "clip_coefficient": limit / 200, "grad_norm": limit}  # fmt: skip
    columns = {f"model/{key}": (steps, np.full(3, value)) for key, value in figures.items()}
    columns |= {"loss": (np.arange(100), np.linspace(3.9, 2.0, 100))}
    columns |= {"grad_norm": (np.arange(100), np.full(100, 200 / divided))}
    (one,) = rule_curves.found([LossWeight()], columns, config=config)
    assert one.severity == severity
