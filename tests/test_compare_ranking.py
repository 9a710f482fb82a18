"""Ranking: the best of several sides, who is as good, and no false claim of either."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared_runs import falling, make_run

from barograph.analysis.compare import statistics
from barograph.analysis.compare.comparison import Comparison, compare
from barograph.query.stored import StoredRun


def sweep(root: Path, finals: dict[float, float], seeds: int = 2, spread: float = 0.02, **given: Any) -> None:
    """Runs whose final losses lie about these, by learning rate."""
    for rate, final in finals.items():
        for seed in range(seeds):
            random = np.random.default_rng(int(rate * 1e6) + seed)
            loss = falling(final + spread * random.standard_normal(), seed, noise=0.001)
            make_run(root, f"lr{rate}-{seed}", loss, steps=80, config={"lr": rate, "seed": seed}, **given)


def outcomes(made: Comparison) -> dict[str, str]:
    assert made.ranking is not None
    for item in made.ranking.ranks:
        if item.p is not None and item.outcome in ("worse", "not distinguishable"):
            assert (item.p < made.ranking.level) == (item.outcome == "worse")
    return {item.label: item.outcome for item in made.ranking.ranks}


def test_the_best_is_named_with_those_that_it_can_not_be_told_from(tmp_path: Path) -> None:
    sweep(tmp_path, {1e-4: 3.0, 3e-4: 2.01, 1e-3: 2.0, 3e-3: 2.6, 1e-2: 3.5})
    made = compare(tmp_path)
    assert made.sides[0].label == made.ranking.ranks[0].label  # the best is the baseline
    assert [item.outcome for item in made.ranking.ranks] == ["best", "not distinguishable", "worse", "worse", "worse"]
    assert {item.label for item in made.ranking.ranks[:2]} == {"lr = 0.001", "lr = 0.0003"}
    sentence = made.verdict.sentences[0]
    assert sentence == made.ranking.sentence and " ± " in sentence
    assert "not distinguishable from lr = 0.0" in sentence and "3 are worse" in sentence
    assert sentence in made.markdown() and made.as_dict()["ranking"]["sentence"] == sentence
    assert sentence.split(":")[0] in made.text(200) and "not distinguishable" in made.html()


def test_a_baseline_that_is_asked_for_changes_no_ranking(tmp_path: Path) -> None:
    sweep(tmp_path, {1e-4: 3.0, 1e-3: 2.0, 3e-3: 2.6})
    by_itself, asked = compare(tmp_path), compare(tmp_path, baseline="0.0001")
    assert asked.sides[0].label == "lr = 0.0001"
    assert outcomes(by_itself) == outcomes(asked) and by_itself.ranking.sentence == asked.ranking.sentence


def test_one_run_each_is_no_ranking_that_is_claimed(tmp_path: Path) -> None:
    for at in range(4):
        make_run(tmp_path, f"r{at}", falling(2.0 + at, at), steps=80, config={"lr": 0.1 * (at + 1)})
    made = compare(tmp_path, group="lr")
    assert set(outcomes(made).values()) == {"best", "cannot tell"}
    assert "worse can't be concluded" in made.ranking.sentence and "best is" not in made.ranking.sentence


def test_a_side_that_lost_a_run_to_nan_is_never_the_best(tmp_path: Path) -> None:
    sweep(tmp_path, {1e-4: 3.0, 1e-3: 2.5, 3e-3: 2.6})
    for name, loss in (("good", falling(1.0, 3)), ("lost", lambda step: math.nan if step > 40 else 3.0)):
        make_run(tmp_path, name, loss, steps=80, config={"lr": 1e-2, "seed": len(name)})
    made = compare(tmp_path)
    assert made.ranking.ranks[0].label == "lr = 0.001"
    last = made.ranking.ranks[-1]
    assert last.label == "lr = 0.01" and "NaN" in last.why and last.outcome == "cannot tell"


@pytest.mark.parametrize(("lost", "words"), [(1, "; some runs of 1 ended with NaN"), (4, "; 1 ended with NaN")])
def test_a_side_is_said_to_have_ended_only_where_all_of_its_runs_did(tmp_path: Path, lost: int, words: str) -> None:
    sweep(tmp_path, {1e-3: 2.5, 3e-3: 2.6}, seeds=4)
    for seed in range(4):
        loss = falling(3.5, seed, noise=0.001)
        broken = seed < lost
        make_run(tmp_path, f"r{seed}", lambda step, loss=loss, broken=broken: math.nan if broken and step > 40 else
                 loss(step), steps=80, config={"lr": 1e-2, "seed": seed})  # fmt: skip
    assert words in compare(tmp_path).ranking.sentence


def test_a_run_without_a_commit_is_a_repeat_of_those_that_have_one(tmp_path: Path) -> None:
    sweep(tmp_path, {1e-3: 2.0, 3e-3: 2.6}, about={"git": {"commit": "a" * 40}})
    make_run(tmp_path, "killed", falling(2.0, 9), steps=80, config={"lr": 1e-3, "seed": 9}, about={"status": "crashed"})
    assert sorted(len(side.members) for side in compare(tmp_path).sides) == [2, 3]


def test_equals_are_seldom_called_worse_than_the_best() -> None:
    """Every pair of eight equal sides of two runs, by the level that the ranking uses."""
    random, sides, false = np.random.default_rng(5), 8, 0
    level = statistics.LEVEL / (sides * (sides - 1) / 2)
    for _ in range(400):
        values = random.standard_normal((sides, 2))
        pooled = statistics.pooled_spread(values.tolist())
        best = int(values.mean(1).argmin())
        found = [statistics.contrast(values[best], values[at], level=level, pooled=pooled)
                 for at in range(sides) if at != best]  # fmt: skip
        false += any(test is not None and test.settled for test in found)
    assert false / 400 < statistics.LEVEL + 3 * math.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize("runs", [2, 3])
def test_few_runs_a_side_borrow_the_deviation_of_all(tmp_path: Path, runs: int) -> None:
    for at in range(4):
        for seed in range(runs):  # seeds of their own: no pairs
            loss = falling(2 + at / 2 + 0.01 * seed, seed, noise=0.001)
            make_run(tmp_path, f"{at}-{seed}", loss, steps=80, config={"lr": float(at + 1), "seed": 10 * at + seed})
    made = compare(tmp_path, group="lr")
    assert {item.test.method for item in made.contrasts} == {"Student's t with the standard deviation of all sides"}
    dof = {item.test.dof for item in made.contrasts}
    assert dof == {4.0 * (runs - 1)}
    halves = {round(cell.high - cell.low, 9) for cell in made.rows[0].cells}
    assert len(halves) == 1  # one deviation, one number of runs: one ±


def test_runs_can_be_given_in_any_order(tmp_path: Path) -> None:
    sweep(tmp_path, {1e-4: 3.0, 1e-3: 2.0, 3e-3: 2.6})
    runs = [StoredRun(folder) for folder in sorted((tmp_path / "p").iterdir())]
    assert outcomes(compare(*runs)) == outcomes(compare(*reversed(runs)))
