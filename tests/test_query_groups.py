"""Groups of runs are one thing, whoever asks: Python, comparisons, the page."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_runs import finished

import barograph
from barograph.analysis.compare.sides import gather_sides
from barograph.query.groups import ALL_BUT_SEED, Traits, full_keys, group_runs, groups, statistics
from barograph.query.keys import flatten
from barograph.query.metrics import last_values


def traits(config: dict[str, Any], **facts: Any) -> Traits:
    return Traits(flatten(config), facts)


def labels(configs: list[dict[str, Any]], *keys: str) -> list[tuple[str, int]]:
    every = [traits(config) for config in configs]
    return [(group.label, len(group.runs)) for group in group_runs(every, keys, lambda item: item)]


def test_groups_stand_in_the_order_of_their_values_and_what_has_none_last() -> None:
    configs: list[dict[str, Any]] = [{"w": 512}, {"w": 64}, {"w": "block 10"}, {}, {"w": 64.0}, {"w": "block 9"}]
    assert labels(configs, "config.w") == [
        ("w = 64", 2), ("w = 512", 1), ("w = block 9", 1), ("w = block 10", 1), ("w = none", 1),
    ]  # fmt: skip


def test_true_is_not_one_and_nan_is_nan() -> None:
    assert labels([{"a": True}, {"a": 1}, {"a": math.nan}, {"a": math.nan}], "config.a") == [
        ("a = 1", 1), ("a = nan", 2), ("a = True", 1),
    ]  # fmt: skip


def test_several_keys() -> None:
    configs = [{"lr": lr, "w": w, "seed": seed} for lr in (1e-3, 1e-2) for w in (64, 128) for seed in range(3)]
    assert labels(configs, "config.w", "config.lr") == [
        ("w = 64, lr = 0.001", 3), ("w = 64, lr = 0.01", 3), ("w = 128, lr = 0.001", 3), ("w = 128, lr = 0.01", 3),
    ]  # fmt: skip


@pytest.mark.parametrize("differing", ["seed", "run_name", "output_dir", "num_workers", "data.seed"])
def test_all_but_the_seed_puts_repeats_together(differing: str) -> None:
    configs = [{"lr": lr, "w": 64, differing: at} for lr in (1e-2, 1e-3) for at in range(3)]
    assert labels(configs, ALL_BUT_SEED) == [("lr = 0.001", 3), ("lr = 0.01", 3)]


def test_another_commit_is_another_setup() -> None:
    every = [traits({"lr": 1}, commit=commit) for commit in ("a", "b", "a")]
    assert [len(group.runs) for group in group_runs(every, [ALL_BUT_SEED], lambda item: item)] == [2, 1]


def test_a_run_whose_commit_is_not_known_goes_with_the_only_one_there_is() -> None:
    def sizes(*commits: str | None) -> list[int]:
        every = [traits({"lr": 1}, commit=commit) for commit in commits]
        return [len(group.runs) for group in group_runs(every, [ALL_BUT_SEED], lambda item: item)]

    assert sizes("a", None, "a", None) == [4]
    assert sizes("a", None, "b") == [1, 1, 1], "of two nobody knows which"
    assert sizes(None, None) == [2]


def test_setups_of_several_commits_say_which() -> None:
    every = [traits({"lr": lr}, commit=commit) for lr in (1, 2) for commit in ("a", "b")]
    found = [group.label for group in group_runs(every, [ALL_BUT_SEED], lambda item: item)]
    assert found == [f"lr = {lr}, commit = {commit}" for lr in (1, 2) for commit in ("a", "b")]


def test_setups_are_named_by_as_many_keys_as_it_takes() -> None:
    configs = [{"a": a, "b": b, "c": c} for a in (1, 2) for b in (1, 2) for c in (1, 2)]
    found = [label for label, _ in labels(configs, ALL_BUT_SEED)]
    assert len(set(found)) == 8 and found[0] == "a = 1, b = 1, c = 1"


def test_a_run_with_two_tags_stands_in_both_groups() -> None:
    every = [traits({}, tags=["x", "y"]), traits({}, tags=["y"]), traits({}, tags=[])]
    found = group_runs(every, ["tags"], lambda item: item)
    assert [(group.values["tags"], len(group.runs)) for group in found] == [("x", 1), ("y", 2), (None, 1)]


@pytest.mark.parametrize("word", ["lr", "optimizer.lr", "optimizer/lr", "config.optimizer.lr"])
def test_a_key_may_be_named_by_its_end(word: str) -> None:
    assert full_keys([word], [traits({"optimizer": {"lr": 1}})]) == ["config.optimizer.lr"]


def test_a_key_that_no_run_has_is_refused_with_the_nearest() -> None:
    with pytest.raises(KeyError, match=r"nearest is 'model\.width'"):
        full_keys(["model.widht"], [traits({"model": {"width": 1}})])


def test_statistics_do_not_depend_on_the_order() -> None:
    chance = random.Random(3)
    values = [chance.gauss(3, 1) * 10 ** chance.randrange(-6, 6) for _ in range(500)]
    found = statistics(values, -1)
    chance.shuffle(values)
    assert statistics(values, -1) == found
    assert found.mean == pytest.approx(np.mean(values), rel=1e-12) and found.best == min(values)
    assert found.deviation == pytest.approx(np.std(values, ddof=1), rel=1e-12)


@pytest.mark.parametrize("values", [[1.7e308, 1.7e308], [1.7e308, -1.7e308, 1.0], [1e-300, 1.7e308]])
def test_statistics_of_the_largest_numbers_are_numbers(values: list[float]) -> None:
    found = statistics(values, 1)
    assert min(values) <= found.mean <= max(values) and found.deviation >= 0 and math.isfinite(found.deviation)


def test_statistics_of_one_of_none_and_of_what_is_not_finite() -> None:
    assert statistics([2.0], 1) == (found := statistics([2.0, math.nan, math.inf], 1)) or found.not_finite == 2
    assert found.mean == found.best == 2.0 and found.deviation is None and found.count == 1
    assert statistics([]).mean is None and statistics([math.nan]).not_finite == 1
    assert statistics([1.0, 2.0]).best is None, "nobody knows which is better"


def test_python_and_comparisons_have_the_same_groups(tmp_path: Path) -> None:
    for lr in (1e-3, 1e-2):
        for seed in range(3):
            finished(tmp_path, f"r{lr}-{seed}", 20 + seed, config={"optimizer": {"lr": lr}, "seed": seed})
    finished(tmp_path, "other", 20, project="q", config={"width": 64})
    for by in ("lr", ALL_BUT_SEED):
        found = [group for group in barograph.groups(str(tmp_path / "p"), by) if None not in group.values.values()]
        sides = gather_sides([str(tmp_path / "p")], group=by, notes=[])
        assert [(side.label, [member.run.id for member in side.members]) for side in sides] == [
            (group.label, [run.id for run in group.runs]) for group in found
        ]
    low, _ = groups(str(tmp_path / "p"), "lr")
    assert low.label == "optimizer.lr = 0.001" and low.failed == 0
    values = [last_values(run)["train/loss"] for run in low.runs]
    assert low.last("train/loss") == statistics(values, -1) and low.best("train/loss").best == min(values)
    assert [group.label for group in groups(str(tmp_path), "project")] == ["project = p", "project = q"]
