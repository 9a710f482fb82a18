"""Expressions of series: what can be written is read back the same, what can't is refused in one sentence."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import barograph
from barograph.core import columns
from barograph.query import expressions
from barograph.query.expressions import ExpressionError, Node, Points, evaluate, expression, parse, written
from barograph.query.stored import StoredRun

QUIET = {"console": "none", "machine": False, "blackbox": False, "git": False, "sidecar": False}

names = some.text(min_size=1, max_size=12).filter(lambda text: "\\" not in text[-1:])
numbers = some.floats(0, 1e300, allow_nan=False, allow_infinity=False)
leaves = names.map(lambda text: Node("name", text)) | numbers.map(lambda value: Node("number", value))


def grown(inner: some.SearchStrategy[Node]) -> some.SearchStrategy[Node]:
    one = some.tuples(inner)
    two = some.tuples(inner, inner)
    return (
        some.builds(Node, some.sampled_from(["+", "-", "*", "/", "^"]), some.none(), two)
        | some.builds(Node, some.just("negative"), some.none(), one)
        | some.builds(Node, some.just("function"), some.sampled_from(["abs", "log", "slope", "best"]), one)
        | some.builds(Node, some.just("function"), some.sampled_from(["min", "max"]), two)
        | inner.map(lambda part: Node("function", "ema", (part, Node("number", 0.9))))
        | inner.map(lambda part: Node("function", "mean", (part, Node("number", 25.0))))
    )


trees = some.recursive(leaves, grown, max_leaves=8)


@given(trees.filter(lambda tree: expressions.names_in(tree) and len(written(tree)) < 2000))
def test_what_is_written_is_read_back_the_same(tree: Node) -> None:
    assert parse(written(tree)) == tree


@given(some.text(max_size=60) | some.text("ab/ -+*^().,'\"1e", max_size=40))
def test_any_text_is_an_expression_or_one_sentence(text: str) -> None:
    try:
        tree = parse(text)
    except ExpressionError as error:
        said = str(error)
        assert (said and "\n" not in said.replace(text, "").replace(text.strip()[:60], "")) or "\n" in text
        assert isinstance(error, ValueError)
        assert isinstance(error, KeyError)
    else:
        assert parse(written(tree)) == tree


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("train/loss -", "at its end: expected a series"),
        ("ema(train/loss)", "write ema(x, 0.99)"),
        ("ema(train/loss, 1)", "ema takes a factor of at least 0 and less than 1"),
        ("ema(train/loss, other)", "ema takes a factor"),
        ("mean(train/loss, 2.5)", "mean takes a whole number of points"),
        ("drop(train/loss)", "there is no function drop; there are abs, best"),
        ("(train/loss", "at its end: expected )"),
        ("train/loss eval/loss", "at character 12 (eval/loss): expected +, -, *, / or the end"),
        ("'train/loss", "a quote that is not closed"),
        ("1 + 2", "has no series"),
        ("(" * 60 + "a" + ")" * 60, "too much inside one another"),
        ("a + " * 1000 + "a", "is too long"),
    ],
)
def test_what_can_not_be_read_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["loss", "train/loss", "grad-norm/blocks.0.q_proj", "a/b/c-d", "αβγ", "x"])
def test_a_name_is_a_name(name: str) -> None:
    assert expression(name) is None
    assert parse(name) == Node("name", name)


def series(*pairs: tuple[float, float]) -> Points:
    return Points(np.array([step for step, _ in pairs]), np.array([value for _, value in pairs], float))


@given(some.lists(some.floats(-1e6, 1e6), min_size=1, max_size=30), some.floats(-1e6, 1e6))
def test_signs_are_those_of_arithmetic(values: list[float], other: float) -> None:
    held = {"a": series(*enumerate(values)), "b": series(*((at, other) for at in range(len(values))))}
    a = np.array(values)
    with np.errstate(all="ignore"):
        for text, wanted in (
            ("a - b", a - other), ("a + b * 2", a + other * 2), ("-a ^ 2", -(a**2)), 
            ("(a - b) / b", (a - other) / other),            ("abs(a) / 2", abs(a) / 2), ("max(a, b)", np.maximum(a, other)), ("a - b - b", a - other - other),
            ("best(a)", np.minimum.accumulate(a)), ("ema(a, 0.9)", columns.smooth(a, 0.9)),
        ):  # fmt: skip
            np.testing.assert_array_equal(evaluate(parse(text), held.__getitem__).value, wanted, text)


def test_two_series_meet_at_the_steps_of_the_one_with_fewer_points() -> None:
    held = {
        "loss": series((0, 9.0), (10, 5.0), (20, 3.0), (30, math.nan), (40, 1.0)),
        "eval": series((5, 8.0), (20, 4.0), (35, 2.0), (50, 1.0)),
    }
    for text in ("loss - eval", "-(eval - loss)"):
        made = evaluate(parse(text), held.__getitem__)
        assert made.step.tolist() == [5, 20, 35]  # nothing is made up behind step 40
        assert made.value[:2].tolist() == [7.0 - 8.0, 3.0 - 4.0]
        assert math.isnan(made.value[2])  # between NaN and 1


@given(
    some.lists(some.floats(-1e3, 1e3) | some.sampled_from([math.nan, math.inf]), min_size=1, max_size=40),
    some.integers(1, 90),
)
def test_a_running_mean_is_that_of_the_values_in_its_window(values: list[float], points: int) -> None:
    made = columns.running_mean(values, points)
    before = points // 2
    for at, value in enumerate(values):
        window = values[max(0, at - before) : max(0, at - before + points)] if points <= 2 * len(values) + 1 else values
        if at - before < 0:
            window = values[: max(0, at - before + points)] if points <= 2 * len(values) + 1 else values
        finite = [one for one in window if math.isfinite(one)]
        if math.isfinite(value):
            assert made[at] == pytest.approx(sum(finite) / len(finite), abs=1e-9)
        else:
            assert str(made[at]) == str(value)


@pytest.mark.parametrize("smooth", [columns.running_mean, columns.gaussian])
def test_a_huge_value_reaches_no_further_than_its_window(smooth: object) -> None:
    values = np.full(200, 3.25)
    values[50] = 1e300
    made = smooth(values, 9)  # type: ignore[operator]
    np.testing.assert_array_equal(made[:41], 3.25)
    np.testing.assert_allclose(made[60:], 3.25, rtol=1e-15)


@pytest.mark.parametrize("said", ["0.9", 0.9, "ema:0.9", "mean:25", "gaussian:7", "", "0", 0, "mean:1"])
def test_a_smoothing_is_read(said: str | float) -> None:
    made = columns.smoother(said)
    assert (made is None) == (str(said) in ("", "0", "mean:1"))


@pytest.mark.parametrize("said", ["1", "-1", "mean:0", "mean:2.5", "median:3", "nan", "ema:", "0.99999", "mean:1e9"])
def test_a_smoothing_that_is_none_is_refused(said: str) -> None:
    if said == "ema:":
        assert columns.smoother(said) is None
        return
    with pytest.raises(ValueError, match="smoothing is a factor"):
        columns.smoother(said)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    made = barograph.init(project="p", id="r", dir=str(tmp_path_factory.mktemp("runs")), **QUIET)
    for step in range(200):
        made.log({"train/loss": 5 - step / 50, "train/step_tokens": 10.0, "a - b": step}, step=step)
        if step % 20 == 0:
            made.log({"eval/loss": 6 - step / 50}, step=step)
    made.finish()
    return StoredRun(made.dir)


def test_a_run_answers_expressions_with_steps_times_and_any_x(run: StoredRun) -> None:
    gap = run.series("eval/loss - train/loss", x="tokens")
    np.testing.assert_allclose(gap.value, 1.0)
    np.testing.assert_array_equal(gap.step, np.arange(0, 200, 20))
    np.testing.assert_array_equal(gap.x, (gap.step + 1) * 10)
    assert (gap.time > 0).all() and (gap.rank == 0).all() and gap.name == "eval/loss - train/loss"
    over = run.series("train/loss", x="train/loss * 2")
    np.testing.assert_allclose(over.x, 2 * over.value)
    np.testing.assert_array_equal(
        run.series("ema(train/loss, 0.9)").value, columns.smooth(run.series("train/loss").value, 0.9)
    )


def test_a_series_that_is_called_like_an_expression_is_that_series(run: StoredRun) -> None:
    np.testing.assert_array_equal(run.series("a - b").value, np.arange(200))
    np.testing.assert_array_equal(run.series("'a - b' * 2").value, 2 * np.arange(200))


def test_what_is_missing_in_an_expression_is_named(run: StoredRun) -> None:
    with pytest.raises(KeyError, match=r"no series 'eval/los'.*nearest is 'eval/loss'"):
        run.series("train/loss - eval/los")
    with pytest.raises(ExpressionError, match="expected"):
        run.series("train/loss -")
    with pytest.raises(ExpressionError, match="one rank"):
        run.series("train/loss - eval/loss", rank="all")


def test_a_frame_has_expressions_as_columns(run: StoredRun, tmp_path: Path) -> None:
    wide = barograph.frame(run, ["train/loss", "train/loss - eval/loss"])
    assert list(wide.columns) == ["step", "time", "train/loss", "train/loss - eval/loss"]
    assert wide["train/loss - eval/loss"].notna().sum() == 10
    other = barograph.init(project="p", id="other", dir=str(tmp_path), **QUIET)
    other.log({"train/loss": 1.0}, step=0)
    other.finish()
    both = barograph.frame([run, StoredRun(other.dir)], ["train/loss - eval/loss"], layout="long")
    assert set(both["run"]) == {"r"}  # the other run has no eval/loss
