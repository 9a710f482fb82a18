"""Evaluations whose rows come in the training by chance, as those of a small space do."""

from __future__ import annotations

import numpy as np
import pytest
from rule_columns import findings
from test_rules_objective import EVALUATIONS, FALLS, every, of_graph

from barograph.doctor.rules.data.trained_rows import EvaluationCopies, EvaluationExamples


@pytest.mark.parametrize("cuts", [(), (3, 50, 90)])
@pytest.mark.parametrize(
    ("known", "looked", "space", "severity"),
    [
        (0.72, 0.3, True, "info"),  # more and more come again, before any epoch is over
        (0.72, 0.3, False, "warning"),  # the training's own do not come again, but in another epoch
    ],
)
def test_a_small_space_brings_most_of_an_evaluations_rows_by_chance(
    known: float, looked: float, space: bool, severity: str, cuts: tuple[int, ...]
) -> None:
    columns = {"val_loss": (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS)}
    figures = {"evaluated_trained": looked, "evaluated_rows": 64.0, "evaluated_trained_passes": 1.0,
               "evaluated_known": known, "evaluated_known_passes": 1.0, "evaluated_known_of": 450.0}  # fmt: skip
    columns |= {f"model/{name}": (EVALUATIONS[4:] + 1, np.full(6, value)) for name, value in figures.items()}
    looks = np.arange(1, EVALUATIONS[4], 4)
    before = np.linspace(10.0, 450.0, len(looks))
    shares = 1 - np.exp(-before / 400) if space else np.where(np.arange(len(looks)) < len(looks) - 2, 0.0, 1.0)
    between = {"between_rows": 96.0, "between_again": shares, "between_known": before, "rows_again": 0.0}
    columns |= {f"model/{name}": (looks, values + 0.0 * looks) for name, values in between.items()}
    columns |= of_graph(distinct_rows=3200.0, example_rows=32.0)
    found = [one.severity for one in findings([EvaluationExamples()], columns, cuts=cuts).values()]
    assert found[-1:] == [severity]


@pytest.mark.parametrize("count", [6, 1])
@pytest.mark.parametrize(("words", "severity"), [(True, "info"), (False, "warning")])
def test_texts_of_which_chance_explains_as_many_are_no_copies(words: bool, severity: str, count: int) -> None:
    """A quarter of an evaluation's rows in steps that were looked at: of numbers with fractions these are copies."""
    columns = {"val_loss": (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS)}
    figures = {"evaluated_trained": 0.28, "evaluated_rows": 64.0, "evaluated_trained_passes": 1.0,
               "evaluated_known": 0.4, "evaluated_known_passes": 1.0, "evaluated_known_of": 1679.0}  # fmt: skip
    columns |= {
        f"model/{name}": (EVALUATIONS[4 : 4 + count] + 1, np.full(count, value)) for name, value in figures.items()
    }
    looks = np.arange(1, 7)
    between = {
        "between_rows": [288.0, 192, 192, 512, 32, 160],
        "between_known": [248.0, 545, 742, 929, 1398, 1426],
        "between_again": [0.0556, 0.125, 0.1458, 0.1211, 0.125, 0.175],
        "rows_again": np.full(6, 0.15),
        "example_rows": np.full(6, 32.0),
        "distinct_rows": np.linspace(60, 200, 6),
    }
    columns |= {f"model/{name}": (looks, np.array(values)) for name, values in between.items()}
    columns |= of_graph(token_mean=13.5) if words else {}
    said = [one.severity for one in findings([EvaluationExamples()], columns).values()][-1:]
    assert said == ([severity] if count > 1 or severity == "warning" else [])


@pytest.mark.parametrize(("varied", "severity"), [(1.0, "warning"), (0.5, "info"), (None, "info")])
def test_series_of_numbers_that_differ_are_copies_whatever_the_training_repeats(
    varied: float | None, severity: str
) -> None:
    """Rows of rare classes were copied before the split: the training's own come again, as in a small space."""
    columns = {"val_loss": (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS)}
    figures = {"evaluated_trained": 0.17, "evaluated_rows": 64.0, "evaluated_trained_passes": 1.0,
               "evaluated_known": 0.4, "evaluated_known_passes": 1.0, "evaluated_known_of": 936.0}  # fmt: skip
    figures |= {} if varied is None else {"evaluated_overlap_varied": varied}
    columns |= {f"model/{name}": (EVALUATIONS[4:] + 1, np.full(6, value)) for name, value in figures.items()}
    looks = np.arange(1, 7)
    between = {
        "between_rows": [168.0, 48, 144, 120, 24, 312],
        "between_known": [179.0, 323, 380, 489, 576, 603],
        "between_again": [0.1012, 0.1667, 0.21, 0.24, 0.24, 0.25],
        "rows_again": np.full(6, 0.1),
        "example_rows": np.full(6, 24.0),
        "distinct_rows": np.linspace(100, 300, 6),
    }
    columns |= {f"model/{name}": (looks, np.array(values)) for name, values in between.items()}
    assert [one.severity for one in findings([EvaluationExamples()], columns).values()][-1:] == [severity]


@pytest.mark.parametrize(("known", "severity"), [(0.1343, "info"), (0.2, "warning")])
def test_what_chance_gives_is_a_count_of_some_rows(known: float, severity: str) -> None:
    """Of 1,170 rows 21 had come before: 14 to 31 may, and 29 of an evaluation's 216 are within four deviations."""
    columns = {"val_loss": (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS)}
    figures = {"evaluated_trained": 0.06, "evaluated_rows": 216.0, "evaluated_trained_passes": 1.0,
               "evaluated_known": known, "evaluated_known_passes": 1.0, "evaluated_known_of": 1397.0}  # fmt: skip
    columns |= {f"model/{name}": (EVALUATIONS[4:] + 1, np.full(6, value)) for name, value in figures.items()}
    looks = np.arange(1, 6)
    between = {
        "between_rows": [288.0, 144, 288, 144, 144],
        "between_known": [191.0, 475, 643, 947, 1081],
        "between_again": np.array([1.0, 0, 6, 10, 4]) / [288, 144, 288, 144, 144],
        "rows_again": np.zeros(5),
    }
    columns |= {f"model/{name}": (looks, np.array(values)) for name, values in between.items()}
    columns |= of_graph(distinct_rows=1400.0, example_rows=24.0)
    assert [one.severity for one in findings([EvaluationExamples()], columns).values()][-1:] == [severity]


@pytest.mark.parametrize(("beside", "severity"), [(True, None), (False, "warning")])
def test_passes_beside_which_no_evaluation_is_logged_are_none_where_others_have_one(
    beside: bool, severity: str | None
) -> None:
    """Hard examples are looked for among the training's own, without gradients, between the evaluations."""
    columns = {"val_loss": (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS)}
    mined = EVALUATIONS[3:-1] + 4
    figures = {"evaluated_trained": 1.0, "evaluated_rows": 64.0, "evaluated_trained_passes": 1.0}
    columns |= {f"model/{name}": (mined, np.full(6, value)) for name, value in figures.items()}
    passes = np.sort(np.r_[mined, EVALUATIONS + 1]) if beside else mined
    columns["model/evaluated_apart"] = (passes, np.zeros(len(passes)))
    columns |= of_graph(distinct_rows=3200.0, example_rows=32.0)
    found = [one.severity for one in findings([EvaluationExamples()], columns).values()][-1:]
    assert found == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("name", "severity"),
    [("val_loss", "warning"), ("train_subset/loss", "info"), ("training_rows/loss", "info"),
     ("seen_pairs/loss", "info"), ("eval_on_train/loss", "info"), ("train/eval_loss", "warning"),
     ("unseen_pairs/loss", "warning"), ("eval/train_test_loss", "warning")],
)  # fmt: skip
def test_an_evaluation_of_what_was_trained_on_may_say_so(name: str, severity: str) -> None:
    columns = {name: (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS)}
    figures = {"evaluated_trained": 0.7, "evaluated_rows": 64.0, "evaluated_trained_passes": 1.0}
    columns |= {f"model/{figure}": (EVALUATIONS + 1, np.full(10, value)) for figure, value in figures.items()}
    columns |= of_graph(distinct_rows=640.0, example_rows=32.0)
    found = findings([EvaluationExamples()], columns)
    assert [one.severity for one in found.values()] == [severity]
    found = findings([EvaluationExamples()], columns | {"test/accuracy": (EVALUATIONS, np.full(10, 0.7))})
    assert [one.severity for one in found.values()] == ["warning"]


@pytest.mark.parametrize(("batches", "severity"), [(3, "info"), (0, "warning")])
def test_a_few_batches_that_are_learnt_by_heart_may_be_evaluated(batches: int, severity: str) -> None:
    columns = {"val_loss": (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS)}
    figures = {"evaluated_trained": 1.0, "evaluated_rows": 30.0, "evaluated_trained_passes": 1.0}
    columns |= {f"model/{figure}": (EVALUATIONS + 1, np.full(10, value)) for figure, value in figures.items()}
    columns |= of_graph(distinct_rows=30.0, example_rows=10.0)
    found = findings([EvaluationExamples()], columns, facts={"config": {"overfit_batches": batches}})
    assert [one.severity for one in found.values()] == [severity]


@pytest.mark.parametrize(
    ("known", "more", "severity"),
    [(0.55, {}, "warning"), (0.55, {"model/loss_ranks": 1.0}, "info"), (0.55, {"rewards/margins": 0.3}, "info"),
     (0.95, {"model/loss_ranks": 1.0}, "warning")],
)  # fmt: skip
def test_answers_that_were_liked_come_twice_as_often_by_chance_as_both(
    known: float, more: dict[str, float], severity: str
) -> None:
    columns = {"val_loss": (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS)}
    figures = {"evaluated_trained": 0.1, "evaluated_rows": 64.0, "evaluated_trained_passes": 1.0,
               "evaluated_known": known, "evaluated_known_passes": 1.0, "evaluated_known_of": 1600.0}  # fmt: skip
    columns |= {f"model/{name}": (EVALUATIONS[4:] + 1, np.full(6, value)) for name, value in figures.items()}
    looks = np.arange(1, EVALUATIONS[4], 4)
    before = np.linspace(100.0, 1600.0, len(looks))
    between = {"between_rows": 96.0, "between_again": before / 8000, "between_known": before, "rows_again": 0.05}
    columns |= {f"model/{name}": (looks, values + 0.0 * looks) for name, values in between.items()}
    columns |= of_graph(distinct_rows=3200.0, example_rows=32.0, token_mean=13.5)
    columns |= {name: every(0.0 * FALLS + value) for name, value in more.items()}
    found = [one.severity for one in findings([EvaluationExamples()], columns).values()]
    assert found[-1:] == [severity]


@pytest.mark.parametrize("cuts", [(), (3, 50, 90)])
@pytest.mark.parametrize(
    ("how", "severity"),
    [
        ({}, "warning"),
        ({"evaluated_copies": 0.1}, None),
        ({"evaluated_copies_rows": 20.0}, None),
        ({"evaluated_copies_passes": 0.5}, None),
        ({"evaluated_copies_of": 40.0}, None),  # fewer rows than three batches have: all that there are
        ({"name": "eval_on_train/loss"}, "info"),
        ({"train/episode_reward": 1.0}, None),
    ],
)
def test_rows_that_a_table_has_several_times_are_told_of_on_both_sides_of_a_split(
    how: dict[str, float | str], severity: str | None, cuts: tuple[int, ...]
) -> None:
    columns = {str(how.get("name", "val_loss")): (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS)}
    if "train/episode_reward" in how:
        columns["train/episode_reward"] = every(FALLS)
    figures = {"evaluated_copies": 0.7, "evaluated_copies_rows": 64.0, "evaluated_copies_passes": 1.0,
               "evaluated_copies_of": 300.0, "evaluated_steps": 40.0}  # fmt: skip
    figures |= {name: value for name, value in how.items() if name in figures and not isinstance(value, str)}
    columns |= {f"model/{name}": (EVALUATIONS + 1, np.full(10, value)) for name, value in figures.items()}
    columns |= of_graph(example_rows=32.0)
    found = [one.severity for one in findings([EvaluationCopies()], columns, cuts=cuts).values()]
    assert found == ([] if severity is None else [severity])
