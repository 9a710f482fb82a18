"""A loss that stays at a guess's: whether labels are to blame, or what the first steps did."""

from __future__ import annotations

import numpy as np
import pytest
from test_rules_objective import FLAT, STEP, every, of_graph, warned

LOOKS = STEP[::10]


@pytest.mark.parametrize("rows", [7, len(STEP)])
@pytest.mark.parametrize(
    ("first", "later", "cause"),
    [
        (1.0, 0.005, "learning rate too high"),  # steps broke what was initialised
        (1.0, 0.2, "labels shuffled"),
        (0.1, 0.005, "labels shuffled"),  # an initialisation of its own
        (1.0, 1e-5, "gradients vanish"),
    ],
)
def test_the_first_steps_are_to_blame_where_the_first_layers_had_gradients_before_them(
    first: float, later: float, cause: str, rows: int
) -> None:
    flow = LOOKS, np.where(LOOKS == 0, first, later)
    columns = {"loss": every(FLAT), "model/flow_first_last": flow} | of_graph(loss_classes=8.0, update_p50=1e-3)
    found = warned(columns, rows)["unrelated_labels"]
    assert found.causes[0].startswith(cause) and (found.kind == "data") == (cause == "labels shuffled")


@pytest.mark.parametrize(("middle", "vanishes"), [(1e-11, True), (1e-4, False)])
def test_half_of_the_layers_without_a_gradient_are_seen_wherever_the_blocks_are(middle: float, vanishes: bool) -> None:
    columns = {"loss": every(FLAT)} | of_graph(loss_classes=8.0, update_p50=1e-3)
    flow = {"flow_first_last": 0.9, "flow_p5": 1e-12, "flow_p50": middle, "flow_p95": 0.05}
    columns |= {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in flow.items()}
    found = warned(columns)["unrelated_labels"]
    assert found.causes[0].startswith("gradients vanish" if vanishes else "labels shuffled")


@pytest.mark.parametrize(
    ("level", "spread", "cause"),
    [
        (0.996, 0.001, "temperature inverted"),
        (1.0, 0.001, "labels shifted"),  # half of the rows are above a guess
        (0.985, 0.02, "labels shifted"),  # some of its own examples are known by heart
    ],
)
def test_pairs_whose_loss_hardly_moves_below_a_guess_are_nearly_equal_to_it(
    level: float, spread: float, cause: str
) -> None:
    guess = np.log(24)
    loss = guess * (level + spread * np.random.default_rng(3).standard_normal(len(STEP)))
    columns = {"loss": every(loss), "val/loss": (LOOKS, np.linspace(1.5, 3, len(LOOKS)) * guess)}
    columns |= of_graph(loss_pairs=24.0, loss_classes=24.0, update_p50=1e-3)
    assert warned(columns)["unrelated_labels"].causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("first", "level", "of", "moves", "told"),
    [
        (1.2, 1.0, "loss_pairs", 2e-5, True),  # all pairs are alike, and no gradient is left
        (1.05, 1.0, "loss_pairs", 2e-5, False),
        (1.2, 1.003, "loss_pairs", 2e-5, False),  # on its way
        (1.2, 1.003, "loss_pairs", 1e-3, True),
        (1.2, 1.0, "loss_classes", 2e-5, False),
    ],
)
def test_pairs_that_have_come_down_to_a_guess_have_moved(
    first: float, level: float, of: str, moves: float, told: bool
) -> None:
    loss = np.log(24) * np.where(STEP < 5, first, level + 1e-4 * np.random.default_rng(3).standard_normal(len(STEP)))
    some = warned({"loss": every(loss)} | of_graph(**{of: 24.0, "update_p50": moves}))
    assert ("unrelated_labels" in some) is told
    assert not told or some["unrelated_labels"].confidence == (0.9 if moves > 1e-4 else 0.7)


@pytest.mark.parametrize(("first", "cause"), [(1.0, "temperature inverted"), (1.1, "labels shifted")])
def test_pairs_that_are_far_apart_at_first_are_not_nearly_equal(first: float, cause: str) -> None:
    guess = np.log(24)
    loss = guess * np.where(STEP < 3, first, 0.98 + 0.002 * np.random.default_rng(3).standard_normal(len(STEP)))
    columns = {"loss": every(loss), "val/loss": (LOOKS, np.full(len(LOOKS), 0.98) * guess)}
    columns |= of_graph(loss_pairs=24.0, loss_classes=24.0, update_p50=1e-3)
    assert warned(columns)["unrelated_labels"].causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("first", "last", "theirs", "cause"),
    [
        (0.3, 0.8, 1.0, "temperature inverted"),
        (0.8, 0.7, 1.01, "labels shifted"),  # what is alike is near each other from the start
        (0.04, 0.05, 1.0, "labels shifted"),
    ],
)
def test_answers_that_the_watch_has_seen_are_right_where_pairs_are_nearly_equal(
    first: float, last: float, theirs: float, cause: str
) -> None:
    guess, looks = np.log(24), LOOKS[4:]
    loss = guess * (1.02 + 0.02 * np.random.default_rng(3).standard_normal(len(STEP)))
    columns = {"loss": every(loss), "val/loss": (looks, np.linspace(1, theirs, len(looks)) * guess),
               "model/compared_own": (looks, np.linspace(first, last, len(looks)))}  # fmt: skip
    columns |= of_graph(loss_pairs=24.0, update_p50=1e-3)
    assert warned(columns)["unrelated_labels"].causes[0].startswith(cause)
