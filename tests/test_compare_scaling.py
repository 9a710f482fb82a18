"""Scaling laws: the fit finds what is there, intervals hold, refusals say what is missing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared_runs import make_run
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.analysis.scaling import law as law_module
from barograph.analysis.scaling.fit import Scaling, ScalingError, fit_scaling, fit_scaling_columns
from barograph.analysis.scaling.law import DELTA, Law, ScalingPoints, solve
from barograph.core.text import width
from barograph.query.stored import StoredRun
from barograph.views.compare.scaling_command import amount, run_scaling

TRUE = Law(1.82, 482.0, 2085.0, 0.3478, 0.3658)  # arXiv 2404.10102
SMALL = Law(1.5, 60.0, 300.0, 0.35, 0.4)  # for runs of a few thousand parameters and tokens


def design(sizes: int = 5, counts: int = 4) -> tuple[np.ndarray, np.ndarray]:
    n, d = np.meshgrid(np.geomspace(5e7, 2e9, sizes), np.geomspace(5e8, 4e10, counts))
    return n.ravel(), d.ravel()


def noisy(seed: int, noise: float = 0.005, **shape: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n, d = design(**shape)
    return n, d, TRUE.loss(n, d) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(n)))


def fitted(*columns: Any, **options: Any) -> Scaling:
    """`fit_scaling_columns` with fewer resamples than people get: what is tested here does not hang on them."""
    return fit_scaling_columns(*columns, resamples=150, **options)


# -- the law and its fit --------------------------------------------------------------------------------------


@given(flops=st.floats(1e15, 1e26), alpha=st.floats(0.1, 1.0), beta=st.floats(0.1, 1.0), a=st.floats(1, 1e4))
def test_the_optimum_is_the_least_loss_that_the_budget_buys(flops: float, alpha: float, beta: float, a: float) -> None:
    law = Law(1.0, a, 500.0, alpha, beta)
    n, d = law.optimum(flops)
    assert 6 * n * d == pytest.approx(flops, rel=1e-9)
    for factor in (0.9, 0.99, 1.01, 1.1):
        assert law.loss(n, d) <= law.loss(n * factor, d / factor) * (1 + 1e-12)


@settings(max_examples=25, deadline=None)
@given(
    E=st.floats(0.5, 3.0),
    A=st.floats(50, 3000),
    B=st.floats(50, 5000),
    alpha=st.floats(0.2, 0.7),
    beta=st.floats(0.2, 0.7),
)
def test_without_noise_the_coefficients_come_out(E: float, A: float, B: float, alpha: float, beta: float) -> None:
    true = Law(E, A, B, alpha, beta)
    n, d = design()
    found = solve(ScalingPoints(n, d), np.log(true.loss(n, d))[None])
    assert found.converged[0]
    assert np.allclose(found.at(0).loss(n, d), true.loss(n, d), rtol=2e-4)
    if min(A * n.max() ** -alpha, B * d.max() ** -beta) > 0.02 * E:  # both terms are seen everywhere
        assert found.at(0) == pytest.approx(true, rel=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_start_finds_a_better_law(seed: int) -> None:
    n, d, loss = noisy(seed, 0.01)
    points, target = ScalingPoints(n, d), np.log(loss)[None]
    found, every = solve(points, target), solve(points, target, starts=144)
    assert found.objective[0] <= every.objective[0] * (1 + 1e-3)
    chance = np.random.default_rng(seed)
    for _ in range(300):
        near = Law(*(value * math.exp(0.02 * chance.standard_normal()) for value in found.at(0)))
        r = np.abs(np.log(near.loss(n, d)) - target[0])
        assert np.where(r <= DELTA, 0.5 * r**2, DELTA * (r - 0.5 * DELTA)).sum() >= found.objective[0] * (1 - 1e-9)


def test_the_scale_of_the_objective_changes_nothing() -> None:
    """A mean of the losses instead of their sum stopped the original fit early."""
    n, d, loss = noisy(3)
    points, target = ScalingPoints(n, d), np.log(loss)[None]
    whole = solve(points, target).at(0)
    assert solve(points, target, np.full_like(target, 1e-6)).at(0) == pytest.approx(whole, rel=1e-6)


def test_a_run_that_counts_twice_is_two_runs() -> None:
    n, d, loss = noisy(4, 0.01)
    weight = np.ones((1, len(n)))
    weight[0, 3] = 2
    once = solve(ScalingPoints(n, d), np.log(loss)[None], weight).at(0)
    again = np.append(np.arange(len(n)), 3)
    twice = solve(ScalingPoints(n[again], d[again]), np.log(loss[again])[None]).at(0)
    assert np.allclose(once.loss(n, d), twice.loss(n, d), rtol=2e-4)


def test_an_outlier_hardly_moves_the_law() -> None:
    n, d, loss = noisy(5)
    bad = loss.copy()
    bad[7] *= 1.3
    made, spoilt = fitted(n, d, loss), fitted(n, d, bad)
    assert spoilt.law.loss(2e9, 4e10) == pytest.approx(made.law.loss(2e9, 4e10), rel=0.01)
    assert any("8 is +" in one and "off the law" in one for one in spoilt.cautions)


def test_the_same_seed_gives_the_same_intervals() -> None:
    n, d, loss = noisy(6)
    one, other = fitted(n, d, loss, seed=1), fitted(n, d, loss, seed=1)
    assert one.as_dict() == other.as_dict()
    assert fitted(n, d, loss, seed=2).coefficients["alpha"] != one.coefficients["alpha"]


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    hits = np.zeros(4)
    for seed in range(60):
        made = fit_scaling_columns(*noisy(100 + seed), resamples=200)
        best = made.optimal(1e22)
        pairs = [
            (made.coefficients["alpha"], TRUE.alpha), (made.coefficients["beta"], TRUE.beta),
            (made.predict(1e10, 2e11).loss, TRUE.loss(1e10, 2e11)), (best.parameters, TRUE.optimum(1e22)[0]),
        ]  # fmt: skip
        hits += [one.low <= true <= one.high for one, true in pairs]
    # 95% of 60 is 57; fewer than 52 comes by chance in one of a hundred
    assert (hits >= 52).all(), hits


def test_a_single_run_scatters_more_than_the_law() -> None:
    one = fitted(*noisy(8, 0.01)).predict(1e9, 1e10)
    assert one.run.high - one.run.low > one.loss.high - one.loss.low
    assert one.run.high / one.run.low > math.exp(2 * 0.01)
    assert one.beyond == 1.0


def test_what_is_far_out_is_said_to_be() -> None:
    made = fitted(*noisy(9))
    assert made.predict(2e10, 1e10).beyond == pytest.approx(10.0)
    assert made.optimal(6 * 2e9 * 4e10 * 50).beyond == pytest.approx(50.0)
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="above 0"):
            made.predict(wrong, 1e9)
        with pytest.raises(ValueError, match="above 0"):
            made.optimal(wrong)


# -- what the runs leave open ---------------------------------------------------------------------------------


def test_too_few_points_are_refused_with_what_is_missing() -> None:
    n, d, loss = noisy(0)
    with pytest.raises(ScalingError, match=r"3 more runs \(there are 4\)"):
        fit_scaling_columns(n[[0, 1, 7, 12]], d[[0, 1, 7, 12]], loss[[0, 1, 7, 12]])
    same = n == n[0]
    with pytest.raises(ScalingError, match=r"2 more sizes of model \(there are 1\)"):
        fit_scaling_columns(n[same], d[same], loss[same])
    low = d == d[0]
    with pytest.raises(ScalingError, match=r"2 more counts of tokens \(there are 1\).*2 more runs \(there are 5\)"):
        fit_scaling_columns(n[low], d[low], loss[low])
    with pytest.raises(ScalingError, match="1 more size of model"):
        fit_scaling_columns([1e6, 1.02e6, 2e6] * 4, np.geomspace(1e8, 1e10, 12), np.linspace(4, 3, 12))


def test_columns_that_are_no_losses_are_refused() -> None:
    n, d, loss = noisy(0)
    for wrong in (math.nan, 0.0, -1.0, math.inf):
        with pytest.raises(ScalingError, match="finite and above 0"):
            fit_scaling_columns(n, d, [wrong, *loss[1:]])
    with pytest.raises(ValueError, match="resamples"):
        fit_scaling_columns(n, d, loss, resamples=3)
    with pytest.raises(ValueError, match="level"):
        fit_scaling_columns(n, d, loss, level=95)


def test_an_exponent_that_the_runs_leave_open_is_said_to_be() -> None:
    n, d = np.meshgrid(np.geomspace(1e9, 1.4e9, 4), np.geomspace(5e8, 4e10, 4))
    n, d = n.ravel(), d.ravel()
    loss = TRUE.loss(n, d) * np.exp(0.01 * np.random.default_rng(0).standard_normal(16))
    made = fitted(n, d, loss)
    assert "alpha" in made.unidentified and "1B to 1.4B" in made.unidentified["alpha"]
    assert "not identified" in made.text(80)
    assert fitted(*noisy(0)).unidentified == {}


def test_tokens_in_proportion_to_parameters_are_said_to_tell_little() -> None:
    n = np.geomspace(5e7, 2e9, 10)
    loss = TRUE.loss(n, 20 * n) * np.exp(0.003 * np.random.default_rng(0).standard_normal(10))
    made = fitted(n, 20 * n, loss)
    assert any("Tokens grow with parameters" in one for one in made.cautions)
    assert made.unidentified


# -- from runs ------------------------------------------------------------------------------------------------


def family(root: Path, **changed: Any) -> list[StoredRun]:
    """Three sizes for three counts of steps each, evaluated at the end."""
    made = []
    for at, size in enumerate((1_000, 10_000, 100_000)):
        for steps in (50, 200, 800):
            config = {"model": {"num_parameters": size}, "max_steps": steps, "tokenizer": "bytes"} | changed
            end = SMALL.loss(size, steps * 100) * (1 + 0.002 * math.sin(7 * at + steps))
            made.append(
                make_run(root, f"n{size}-s{steps}", lambda step, end=end: end + 1 / step, steps=steps, tokens=100,
                         config=config, evaluate=lambda step, end=end: end, eval_every=50)
            )  # fmt: skip
    return made


def test_runs_give_what_their_columns_give(tmp_path: Path) -> None:
    made = fit_scaling(family(tmp_path), resamples=50)
    assert made.samples.metric == "eval/loss" and made.samples.source == "config.model.num_parameters"
    assert [(one.parameters, one.tokens) for one in made.samples.points] == [
        (n, d) for n in (1e3, 1e4, 1e5) for d in (5e3, 2e4, 8e4)
    ]
    assert fit_scaling(tmp_path, resamples=50).law == pytest.approx(made.law)
    assert made.law.loss(1e4, 2e4) == pytest.approx(SMALL.loss(1e4, 2e4), rel=0.01)
    assert made.samples.left_out == []


def spoil(run: StoredRun, **about: Any) -> None:
    path = run.dir / "run_manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | about))


def test_runs_that_did_not_end_as_planned_are_left_out_and_named(tmp_path: Path) -> None:
    runs = family(tmp_path)
    config = {"model": {"num_parameters": 5_000}, "tokenizer": "bytes"}
    more = {"config": config | {"max_steps": 1000}, "steps": 300, "tokens": 100}
    runs.append(make_run(tmp_path, "stopped", lambda step: 3.0, evaluate=lambda step: 3.0, **more))
    more = {"config": config | {"max_steps": 300}, "steps": 300, "tokens": 100}
    runs.append(make_run(tmp_path, "nan", lambda s: 3.0, evaluate=lambda s: 3.0 if s < 200 else math.nan, **more))
    runs.append(make_run(tmp_path, "rises", lambda s: 3.0, evaluate=lambda s: 2.0 + (s > 200), eval_every=20, **more))
    runs.append(make_run(tmp_path, "early", lambda s: 3.0, evaluate=lambda s: 3.0, eval_every=200, **more))
    runs.append(make_run(tmp_path, "sizeless", lambda s: 3.0, evaluate=lambda s: 3.0, steps=300))
    runs.append(make_run(tmp_path, "empty", None, steps=0, config=config))
    made = fit_scaling(runs, resamples=50)
    reasons = dict(made.samples.left_out)
    assert len(made.samples.points) == 9
    assert "at step 300 of 1,000 planned" in reasons["stopped"]
    assert "not finite from step 200" in reasons["nan"]
    assert "above its best" in reasons["rises"]
    assert "of step 200 of 300" in reasons["early"]
    assert "parameters is not known" in reasons["sizeless"]
    assert "no step" in reasons["empty"]
    assert "stopped is left out" in made.text(100)
    with_them = fit_scaling(runs, resamples=50, anyway=True)
    assert {"stopped", "rises"} <= {one.name for one in with_them.samples.points}
    assert any(one.startswith("stopped:") for one in with_them.cautions)


def test_a_learning_rate_that_stayed_up_is_another_loss(tmp_path: Path) -> None:
    def rate(end: float, steps: int) -> Any:
        return lambda step: {"train/lr": 1e-3 * (1 - (1 - end) * step / steps)}

    runs = []
    for at, size in enumerate((1_000, 10_000, 100_000)):
        for steps in (50, 200, 800):
            end = 0.9 if (at, steps) == (0, 50) else 0.1
            loss = float(SMALL.loss(size, steps * 100))
            runs.append(make_run(tmp_path, f"{size}-{steps}", lambda s, loss=loss: loss, steps=steps, tokens=100,
                                 config={"num_parameters": size}, extra=rate(end, steps)))  # fmt: skip
    made = fit_scaling(runs, resamples=50)
    assert made.samples.metric == "train/loss"
    assert dict(made.samples.left_out) == {
        "1000-50": "its learning rate ended at 90% of its peak, where others decayed"
    }


def test_other_tokenizers_and_other_data_are_no_family(tmp_path: Path) -> None:
    runs = family(tmp_path / "a") + family(tmp_path / "b", tokenizer="gpt2")
    with pytest.raises(ScalingError, match="tokenizers differ"):
        fit_scaling(runs)
    assert any("may mislead" in one for one in fit_scaling(runs, resamples=50, anyway=True).cautions)
    other = family(tmp_path / "c", val_data="c4") + family(tmp_path / "d", val_data="pile")
    with pytest.raises(ScalingError, match="evaluation data differ"):
        fit_scaling(other, metric="eval/loss")
    made = fit_scaling(other, resamples=50)
    assert made.samples.metric == "train/loss" and any("the evaluation data differ" in one for one in made.cautions)


def test_n_is_what_a_key_says(tmp_path: Path) -> None:
    runs = family(tmp_path)
    for run in runs:
        config = run.config
        spoil(run, config=config | {"width_squared": config["model"]["num_parameters"] * 2})
    made = fit_scaling(runs, parameters="width_squared", resamples=50)
    assert made.samples.source == "config.width_squared" and made.samples.points[0].parameters == 2_000
    with pytest.raises(KeyError, match="no configuration"):
        fit_scaling(runs, parameters="nothing")
    with pytest.raises(KeyError, match="no run has a series"):
        fit_scaling(runs, metric="nothing")


def test_n_comes_from_the_speed_of_light_where_no_configuration_says_it(tmp_path: Path) -> None:
    runs = []
    for size in (1_000, 10_000, 100_000):
        for steps in (50, 200, 800):
            loss = float(SMALL.loss(size, steps * 100))
            light = {"log": "sol", "blocks": 6 * size - 600, "lm_head": 600, "attention": 50}
            runs.append(make_run(tmp_path, f"{size}-{steps}", lambda s, loss=loss: loss, steps=steps, tokens=100,
                                 config={"lr": 1}, records=[light]))  # fmt: skip
    made = fit_scaling(runs, resamples=50)
    assert [one.parameters for one in made.samples.points][::3] == [1e3, 1e4, 1e5]
    assert "FLOPs" in made.samples.source


def test_few_runs_name_those_left_out(tmp_path: Path) -> None:
    runs = family(tmp_path)
    for run in runs[:4]:
        spoil(run, config=run.config | {"max_steps": 10_000})
    with pytest.raises(ScalingError, match=r"2 more runs \(there are 5\).*n1000-s50 was left out.*So were 1 more"):
        fit_scaling(runs)
    with pytest.raises(ScalingError, match="needs 7 runs"):
        fit_scaling(runs[0])
    with pytest.raises(ScalingError, match="No run meets"):
        fit_scaling(runs, keep=lambda run: False)


# -- words and pictures ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made() -> Scaling:
    return fitted(*noisy(0))


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_page_fits(made: Scaling, columns: int) -> None:
    lines = made.text(columns).splitlines()
    assert max(width([line]) for line in lines) <= columns
    assert sum("·" in line for line in lines) > 8


def test_the_data_are_plain_json(made: Scaling) -> None:
    told = json.loads(json.dumps(made.as_dict(), allow_nan=False))
    assert told["coefficients"]["alpha"]["low"] < told["coefficients"]["alpha"]["value"]
    assert len(told["runs"]) == 20
    json.dumps([made.predict(1e9, 1e10).as_dict(), made.optimal(1e21).as_dict()], allow_nan=False)


def test_names_drive_no_terminal(tmp_path: Path) -> None:
    runs = family(tmp_path)
    spoil(runs[0], name="\x1b[31mred\u202e")
    text = fit_scaling(runs, resamples=50).text(100)
    assert "red" in text and not set(text) & {"\x1b", "\u202e"}


def test_the_command_predicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    family(tmp_path)
    assert run_scaling([str(tmp_path)], predict=["1M,10M"], budget=["1e15"], as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["predictions"][0]["parameters"] == 1e6 and told["optima"][0]["flops"] == 1e15
    assert told["predictions"][0]["loss"]["value"] == pytest.approx(SMALL.loss(1e6, 1e7), rel=0.05)
    assert run_scaling([str(tmp_path)], predict=["1M,10M"], budget=["1e15"]) == 0
    text = capsys.readouterr().out
    assert "1M parameters, 10M tokens: loss" in text and "times the largest run" in text
    only = run_scaling([str(tmp_path)], condition="id!=n1000-s50", as_json=True)
    assert only == 0 and len(json.loads(capsys.readouterr().out)["runs"]) == 8


@pytest.mark.parametrize(
    ("word", "value"), [("7B", 7e9), ("1.5t", 1.5e12), ("124M", 1.24e8), ("1e22", 1e22), ("1_000", 1e3)]
)
def test_amounts_are_read_as_people_write_them(word: str, value: float) -> None:
    assert amount(word, "--budget") == pytest.approx(value)


@pytest.mark.parametrize("word", ["", "x", "0", "-1", "nan", "inf", "B", "1e999"])
def test_what_is_no_amount_is_said_to_be(word: str) -> None:
    with pytest.raises(ValueError, match="--budget"):
        amount(word, "--budget")


# -- boundaries of the law ------------------------------------------------------------------------------


def test_the_law_is_the_sum_of_its_terms_and_its_optimum_keeps_the_budget() -> None:
    law = Law(1.5, 400.0, 2000.0, 0.3, 0.4)
    assert law.loss(1e6, 1e9) == pytest.approx(1.5 + 400 / 1e6**0.3 + 2000 / 1e9**0.4, rel=1e-12)
    parameters, tokens = law.optimum(1e20)
    assert 6 * parameters * tokens == pytest.approx(1e20, rel=1e-12)
    # at the optimum a change of ln N gains what the same change of ln D loses
    assert 0.3 * 400 * parameters**-0.3 == pytest.approx(0.4 * 2000 * tokens**-0.4, rel=1e-9)


def test_the_loss_of_residuals_is_hubers() -> None:
    residual = np.array([[0.0, 5e-4, 1e-3, 2e-3, -2e-3]])
    each = [0.0, 0.5 * 25e-8, 0.5e-6, 1.5e-6, 1.5e-6]
    assert law_module._objective(residual, np.ones_like(residual), 1e-3)[0] == pytest.approx(sum(each), rel=1e-12)
    twice = law_module._objective(residual, 2 * np.ones_like(residual), 1e-3)[0]
    assert twice == pytest.approx(2 * sum(each), rel=1e-12)


def test_slopes_are_those_of_the_residuals() -> None:
    sizes, tokens = np.array([1e6, 1e7, 1e8, 1e9]), np.array([1e9, 3e9, 1e10, 1e11])
    points = law_module.ScalingPoints(sizes, tokens)
    theta, target = np.array([[0.4, -0.5, -0.3, -1.0, -1.2]]), np.zeros((1, 4))
    residual, slopes = law_module._residuals(points, target, theta)
    losses = points.law(theta).loss(sizes, tokens)
    assert residual[0] == pytest.approx(np.log(losses), rel=1e-9)
    for at in range(5):
        moved = theta.copy()
        moved[0, at] += 1e-6
        change = (law_module._residuals(points, target, moved)[0] - residual)[0] / 1e-6
        assert slopes[0, :, at] == pytest.approx(change, rel=1e-4, abs=1e-7)


def test_a_law_is_its_own_start_and_coefficients_stay_in_their_bounds() -> None:
    sizes, tokens = np.array([1e6, 1e7, 1e8, 1e9]), np.array([1e9, 3e9, 1e10, 1e11])
    points, law = law_module.ScalingPoints(sizes, tokens), Law(1.7, 400.0, 900.0, 0.33, 0.28)
    back = points.law(law_module.theta_of(points, law)[None])
    assert [float(one[0]) for one in back] == pytest.approx(list(law), rel=1e-9)
    bounded = law_module._bounded(np.array([[-99.0, 99.0, 0.0, -99.0, 99.0]]))[0]
    assert bounded.tolist() == pytest.approx([-20.0, 20.0, 0.0, np.log(0.01), np.log(5.0)])
