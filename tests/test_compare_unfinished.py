"""Comparisons of runs that are not whole: without steps, cut short, lost to NaN, gone on; and wrong words."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared_runs import changed, falling, make_run, said, seeds_of

import barograph
from barograph.analysis.compare.comparison import compare


def whole(root: Path, name: str = "whole") -> Any:
    return make_run(root, name, falling(2.0, 1), config=changed())


def test_a_run_without_configuration(tmp_path: Path) -> None:
    made = compare(whole(tmp_path), make_run(tmp_path, "bare", falling(2.0, 2)))
    assert made.verdict.attribution == "unknown"
    assert "bare has no configuration" in made.verdict.sentences[0]


def test_a_run_of_no_steps(tmp_path: Path) -> None:
    made = compare(whole(tmp_path), make_run(tmp_path, "empty", steps=0, config=changed(lr=1)))
    assert "empty has logged no step" in said(made)
    assert math.isnan(made.contrasts[0].difference) if made.contrasts else True
    assert all(len(one.cells) < 2 or one.cells[1] is None for one in made.rows)
    assert "empty has logged no step" in made.text()


def test_two_runs_of_no_steps(tmp_path: Path) -> None:
    made = compare(
        make_run(tmp_path, "a", steps=0, config=changed()), make_run(tmp_path, "b", steps=0, config=changed())
    )
    assert made.metric is None and not made.rows and "a has logged no step" in made.text()


def test_a_run_of_one_step(tmp_path: Path) -> None:
    made = compare(whole(tmp_path), make_run(tmp_path, "one", falling(2.0, 2), steps=1, config=changed(lr=1)))
    assert "one has logged one step" in said(made)
    assert made.at is None and made.contrasts[0].outcome == "cannot tell"
    assert math.isnan(made.contrasts[0].difference)


def test_two_runs_of_one_step_at_the_same_place(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", lambda step: 3.0, steps=1, config=changed())
    b = make_run(tmp_path, "b", lambda step: 2.0, steps=1, config=changed(lr=1))
    (one,) = compare(a, b).contrasts
    assert one.difference == -1 and one.outcome == "cannot tell" and one.noise is None


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    run = barograph.init(
        project="p", name="live", dir=tmp_path, verbosity=-2, git=False, config=changed(lr=2e-3), doctor=False
    )
    for step in range(1, 100):
        run.log_step(step, 0.0, 4096, 1.0, 1.0, 2.0, 1e-3)
    try:
        made = compare(whole(tmp_path), "live", dir=tmp_path)
    finally:
        run.finish()
    assert "live is still running (step 99): compared up to there" in said(made)
    assert made.at == 99


def test_runs_with_other_metrics(tmp_path: Path) -> None:
    other = make_run(tmp_path, "other", config=changed(lr=1), extra=lambda step: {"reward": 1.0}, tokens=None)
    made = compare(whole(tmp_path), other)
    assert made.metric is None and not made.contrasts
    assert "No loss is logged by all of them" in said(made) and "other has reward" in said(made)
    with pytest.raises(KeyError, match="other has no metric 'train/loss'"):
        compare(tmp_path / "p" / "whole", other, metric="loss")
    with pytest.raises(KeyError, match="there is no metric"):
        compare(tmp_path / "p" / "whole", other, metric="nothing")


def test_runs_of_different_projects(tmp_path: Path) -> None:
    other = make_run(tmp_path, "b", falling(2.0, 3), project="q", config=changed(lr=1))
    assert "different projects: p, q" in said(compare(whole(tmp_path), other))


def test_nan_from_the_start_and_from_a_step_on(tmp_path: Path) -> None:
    start = make_run(tmp_path, "nan", lambda step: math.nan, config=changed(lr=1))
    made = compare(whole(tmp_path), start)
    assert "nan: train/loss is not a number at every step" in said(made)
    assert made.contrasts[0].outcome == "cannot tell" and math.isnan(made.contrasts[0].difference)
    later = make_run(tmp_path, "later", lambda step: 1.0 if step < 150 else math.nan, config=changed(lr=2))
    assert "later: train/loss is not a number from step 150 on" in said(compare(tmp_path / "p" / "whole", later))


def test_a_group_that_lost_runs_has_no_winner(tmp_path: Path) -> None:
    seeds_of(tmp_path, "a", 2.0, changed(), range(4))
    seeds_of(tmp_path, "b", 1.0, changed(lr=2e-3), range(20, 23))
    make_run(tmp_path, "b_lost", lambda step: math.nan, steps=60, config=changed(lr=2e-3, seed=24))
    (one,) = compare(tmp_path, group="lr").contrasts
    assert one.outcome == "cannot tell" and "1 of " in one.sentence


def test_a_repeat_that_stopped_early_is_left_out(tmp_path: Path) -> None:
    seeds_of(tmp_path, "a", 2.0, changed(), range(3))
    seeds_of(tmp_path, "b", 1.9, changed(lr=2e-3), range(20, 23))
    make_run(tmp_path, "b_short", falling(9.0, 5), steps=20, config=changed(lr=2e-3, seed=30))
    made = compare(tmp_path, group="lr")
    assert "b_short ended at step 20, and optimizer.lr = 0.002 continues to 60: left out" in said(made)
    assert made.contrasts[0].runs == (3, 3) and made.at == 60


@pytest.mark.parametrize("status", ["crashed", "killed", "out of memory", "failed"])
def test_a_run_that_did_not_come_to_its_end_is_left_out_of_its_side_of_two(tmp_path: Path, status: str) -> None:
    seeds_of(tmp_path, "a", 2.0, changed(), range(2))
    make_run(tmp_path, "b", falling(1.9, 20), steps=60, config=changed(lr=2e-3, seed=20))
    make_run(tmp_path, "b_lost", falling(1.9, 5), steps=31, config=changed(lr=2e-3, seed=30), about={"status": status})
    made = compare(tmp_path, group="lr")
    assert f"b_lost ended at step 31 ({status}), and optimizer.lr = 0.002 continues to 60: left out" in said(made)
    assert made.contrasts[0].runs == (2, 1) and made.at == 60


def test_a_crashed_run_that_is_all_of_its_side_is_compared_as_far_as_it_came(tmp_path: Path) -> None:
    seeds_of(tmp_path, "a", 2.0, changed(), range(2))
    make_run(tmp_path, "b_lost", falling(1.9, 5), steps=31, config=changed(lr=2e-3), about={"status": "killed"})
    made = compare(tmp_path, group="lr")
    assert "b_lost ended at step 31 (killed): compared up to there" in said(made) and made.at == 31


def test_the_end_that_a_remark_names_is_that_of_a_run(tmp_path: Path) -> None:
    make_run(tmp_path, "a1", falling(2.0, 1), steps=200, config=changed(seed=1))
    make_run(tmp_path, "a2", falling(2.0, 2), steps=100, config=changed(seed=2))
    seeds_of(tmp_path, "b", 1.9, changed(lr=2e-3), range(20, 22))
    made = compare(tmp_path, group="lr")
    assert made.at == 60 and "ends at 60" in said(made)
    assert "150" not in said(made)


def test_a_copy_counts_once(tmp_path: Path) -> None:
    seeds_of(tmp_path, "a", 2.0, changed(), range(3))
    seeds_of(tmp_path, "b", 1.9, changed(lr=2e-3), range(20, 23))
    shift = float(np.random.default_rng((20, 7)).standard_normal()) * 0.01
    make_run(tmp_path, "b_copy", falling(1.9 + shift, 20), steps=60, config=changed(lr=2e-3, seed=20))
    made = compare(tmp_path, group="lr")
    assert "digit for digit" in said(made) and made.contrasts[0].runs == (3, 3)


def test_wrong_words_get_a_sentence(tmp_path: Path) -> None:
    a, b = whole(tmp_path), make_run(tmp_path, "b", falling(2.0, 2), config=changed(lr=1))
    with pytest.raises(ValueError, match="needs two runs"):
        compare(a)
    with pytest.raises(ValueError, match="needs two runs"):
        compare(a, a)
    with pytest.raises(ValueError, match="no axis 'tokns'; the nearest is 'tokens'"):
        compare(a, b, x="tokns")
    with pytest.raises(KeyError, match=r"has a key 'optimizer.lrr'; the nearest is 'optimizer.lr'"):
        compare(a, b, group="optimizer.lrr")
    with pytest.raises(KeyError, match="there is no run"):
        compare(a, "nowhere", dir=tmp_path)
    with pytest.raises(ValueError, match="between 0 and 1"):
        compare(a, b, level=5)
    with pytest.raises(ValueError, match="has no axis flops"):
        compare(a, b, x="flops")
    with pytest.raises(ValueError, match="a run is a StoredRun, an open run"):
        compare(a, [1, 2])  # type: ignore[list-item]
