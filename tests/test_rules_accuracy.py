"""An accuracy that is lost again, and accuracies that only wander."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_curves import found, warned

from barograph.doctor.rules.evaluation.accuracy import RULES, AccuracySummed

AT = np.arange(60)


def risen(seed: int = 0, noise: float = 0.01, high: float = 0.9) -> np.ndarray:
    """An accuracy from a tenth to `high`."""
    return 0.1 + (high - 0.1) * (1 - np.exp(-AT / 7)) + np.random.default_rng(seed).normal(0, noise, 60)


def look(accuracy: np.ndarray, pieces=(), name: str = "eval/accuracy", **more):
    return found([rule() for rule in RULES], {name: (np.arange(len(accuracy)), accuracy)} | more, pieces)


@pytest.mark.parametrize("name", ["eval/accuracy", "train/accuracy", "accuracy", "acc"])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_an_accuracy_at_chance_again_is_a_warning_since_it_fell(name: str, scale: float) -> None:
    (one,) = look(scale * np.where(AT >= 40, 0.1, risen()), name=name)
    assert (one.severity, one.kind, one.step) == ("warning", "eval", 40) and one.evidence["series"] == name


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "change",
    [
        lambda at: 1 + 0 * at,
        lambda at: np.where(at >= 40, 0.7, 1),  # a part is lost
        lambda at: np.where((at >= 40) & (at < 42), 0.2, 1),  # two evaluations
        lambda at: 1 + 0.1 * np.sin(at / 3),
    ],
)
def test_one_that_stays_or_loses_a_part_or_comes_back_gives_no_warning(change, seed: int) -> None:
    assert not warned(look(risen(seed) * change(AT)))
    assert not warned(look(risen(seed, 0.06) * change(AT)))


def test_one_that_comes_back_after_long_is_an_info_finding() -> None:
    (one,) = look(np.where((AT >= 30) & (AT < 45), 0.1, risen()))
    assert one.severity == "info" and "it was back at step 45" in one.message


def test_one_that_was_hardly_gained_or_beside_a_reward_is_left_alone() -> None:
    assert not look(np.where(AT >= 40, 0.1, risen(high=0.2)))
    lost = np.where(AT >= 40, 0.1, risen())
    assert look(lost) and not look(lost, **{"train/reward": (AT, AT / 60)})


def test_where_the_evaluation_holds_the_trainings_own_accuracy_is_not_looked_at() -> None:
    lost = {"train/accuracy": (AT, np.where(AT >= 40, 0.1, risen()))}
    assert not look(risen(), **lost)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 59), max_size=6))
def test_pieces_of_any_size_give_the_same(cuts: list[int]) -> None:
    accuracy = np.where((AT >= 30) & (AT < 50), 0.1, risen())
    assert look(accuracy, cuts) == look(accuracy)


@pytest.mark.parametrize(
    ("name", "scale"), [("val mIoU", 1.0), ("psnr", 40.0), ("valid_0 auc", 1.0), ("mAP@.5", 100.0)]
)
@pytest.mark.parametrize("pieces", [(), (7, 41, 50)])
def test_a_score_that_is_lost_is_a_warning_where_nothing_else_was_evaluated(name: str, scale: float, pieces) -> None:
    lost = scale * np.where(AT >= 40, 0.1, risen())
    (one,) = look(lost, pieces, name)
    assert (one.severity, one.step) == ("warning", 40) and name in one.message
    assert not look(lost, pieces, name, **{"eval/loss": (AT, 2 - AT / 100)})
    assert not look(scale * risen(), pieces, name)


@pytest.mark.parametrize("name", ["train mIoU", "best psnr", "lpips", "fid", "val precision"])
def test_what_is_no_score_of_an_evaluation_is_left_alone(name: str) -> None:
    assert not look(np.where(AT >= 40, 0.1, risen()), name=name)


def test_a_signal_to_noise_ratio_that_falls_by_little_is_left_alone() -> None:
    assert not look(30 + np.where(AT >= 40, 0.2, risen(noise=0.002)), name="psnr")


@pytest.mark.parametrize("pieces", [(), (20, 41), (61,)])
@pytest.mark.parametrize(
    ("times", "right", "ranks", "cause"),
    [
        (2.0, 0.8, 2, "of 2 ranks"),
        (3.0, 0.8, 2, "of batches, or ranks"),
        (1.0, 0.8, 2, ""),
        (2.5, 0.8, 2, ""),
        (100.0, 0.8, 2, ""),  # in percent
        (100.0, 0.02, 2, ""),
        (2.0, 0.4, 2, ""),  # it may be of other rows
        (2.0, [0.8, 0.8, 0.8, 0.4], 2, "of 2 ranks"),
        (2.0, [0.8, 0.4, 0.8, 0.4], 2, ""),
    ],
)
def test_an_accuracy_above_1_is_a_sum_of_shares(
    times: float, right: float | list[float], ranks: int, cause: str, pieces: tuple[int, ...]
) -> None:
    at, own = np.array([20, 40, 60, 80]), np.broadcast_to(np.array(right), 4)
    series = {"eval/accuracy": (at, times * own + 0.01), "model/compared_own": (at + 1, own),
              "model/compared_rows": (at + 1, np.full(4, 200.0))}  # fmt: skip
    told = [one for one in found([AccuracySummed()], series, pieces, world_size=ranks)]
    assert [(one.step, one.severity) for one in told] == [(21, "warning")] * bool(cause)
    assert all(cause in one.causes[0] for one in told)
