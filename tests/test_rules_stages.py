"""Rounds, tasks and stages that a training logs: what begins with them is no trouble, and all else still is."""

from __future__ import annotations

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.stages import has_stages
from barograph.doctor.rules.data.labels import MissingClasses
from barograph.doctor.rules.data.other_labels import OtherLabels
from barograph.doctor.rules.data.targets import EvaluationInputs
from barograph.doctor.rules.evaluation.evaluation import Overfitting, ValidationDivergence
from barograph.doctor.rules.evaluation.signs import EvaluationJump
from barograph.doctor.rules.loss.loss import LossLevel
from barograph.doctor.rules.loss.progress import Divergence
from barograph.doctor.rules.loss.spikes import LossSpike
from barograph.doctor.rules.optimizer.steps import WeightsReplaced

STEP = np.arange(300)


def learnt_anew(*, again: int = 300) -> np.ndarray:
    """A loss that begins anew at step 150, and rises from step `again` on."""
    along = STEP % 150
    loss = 0.05 + 0.35 * (STEP >= 150) + 1.6 * np.exp(-along / 12.0)
    loss[again:] += 2.0 * (1 - np.exp(-np.arange(300 - again) / 6.0))
    return loss * np.exp(np.random.default_rng(0).normal(0, 0.02, 300))


def loud(columns: dict, cuts: tuple[int, ...] = ()) -> dict[str, int]:
    """Rules that warn, and since which step."""
    rules = [LossSpike(), Divergence(), LossLevel(), WeightsReplaced()]
    found = findings(rules, columns, cuts=cuts).values()
    return {one.rule: one.step for one in found if one.severity != "info"}


@pytest.mark.parametrize(
    ("share", "name", "quiet"),
    [(0.8 * (STEP >= 150), "sparsity", True), (0.3 + 0.5 * (STEP >= 150), "train/weight_sparsity", True),
     (0.8 * (STEP >= 150), "relu_share", False), (0.8 * (STEP >= 60), "sparsity", False),
     (np.random.default_rng(3).uniform(0.4, 0.5, 300), "sparsity", False)],
    ids=["pruned", "pruned further", "no weights", "elsewhere", "of activations"],
)  # fmt: skip
@pytest.mark.parametrize("cuts", [(), (150, 151, 160)])
def test_a_loss_that_begins_anew_with_weights_that_are_pruned_gets_no_warning(
    share: np.ndarray, name: str, quiet: bool, cuts: tuple[int, ...]
) -> None:
    columns = {"train/loss": learnt_anew(), name: share, "model/written": ([150], [0.4])}
    assert (loud(columns, cuts) == {}) is quiet
    assert not quiet or "divergence" in loud(columns | {"train/loss": learnt_anew(again=200)}, cuts)


@pytest.mark.parametrize("name", ["round", "train/task_id", "al_cycle"])
@pytest.mark.parametrize("cuts", [(), (150, 151, 160)])
def test_a_loss_that_begins_anew_with_a_logged_stage_gets_no_warning(name: str, cuts: tuple[int, ...]) -> None:
    columns = {"train/loss": learnt_anew(), name: STEP // 150, "model/written": ([150], [0.4])}
    assert loud(columns, cuts) == {}


def test_a_stage_that_is_logged_once_where_it_begins_is_one() -> None:
    loss = {"train/loss": learnt_anew(), "model/written": ([150], [0.4])}
    assert loud(loss | {"stage": ([150], [2])}, (150, 151, 160)) == {}
    for number in (([60], [2]), ([0], [1])):  # elsewhere, and at the start
        assert "divergence" in loud(loss | {"stage": number})


def test_a_loss_that_begins_anew_with_a_model_that_is_drawn_anew_gets_no_warning() -> None:
    columns = {"train/loss": learnt_anew(), "model/drawn": ([0, 150], [1, 1])}
    for cuts in ((), (150, 151, 160)):
        assert loud(columns, cuts) == {}
    assert "divergence" in loud(columns | {"model/drawn": ([0, 150], [1, 0])})
    assert "divergence" in loud(columns | {"train/loss": learnt_anew(again=170)})


def folded(number: np.ndarray, *, grows: bool = False) -> dict:
    """Five folds of sixty epochs, each with a model of its own; in the later ones the evaluation is worse."""
    along, dice = STEP % 60, np.random.default_rng(4)
    train = 0.45 + 0.9 * np.exp(-along / 6.0) + 0.06 * (STEP < 60)
    held = (0.5 + 0.8 * np.exp(-along / 6.0) + 0.3 * (STEP >= 60)) * np.exp(dice.normal(0, 0.01, 300))
    if grows:
        train, held = train - 0.006 * along, held + 0.02 * np.maximum(0, along - 20)
    return {"train_loss": train, "val_loss": held, "fold": number}


@pytest.mark.parametrize(
    ("number", "grows", "warns"),
    [(STEP // 60, False, False), (0 * STEP, False, True), (STEP, False, True), (STEP // 60, True, True)],
    ids=["folds", "one fold", "a number of each step", "folds that overfit"],
)
def test_a_fold_is_not_compared_with_the_model_of_another(number: np.ndarray, grows: bool, warns: bool) -> None:
    found = findings([Overfitting(), ValidationDivergence()], folded(number, grows=grows)).values()
    assert any(one.severity != "info" for one in found) == warns
    assert warns or not found


@pytest.mark.parametrize(
    ("drawn", "falls", "warns"),
    [([1] * 5, True, False), ([1, 0, 0, 0, 0], True, True), ([1] * 5, False, True)],
    ids=["drawn anew", "trained before", "a loss that goes on"],
)
@pytest.mark.parametrize("cuts", [(), (61, 70, 121)])
def test_a_model_that_is_drawn_and_watched_anew_is_another_one(
    drawn: list[int], falls: bool, warns: bool, cuts: tuple[int, ...]
) -> None:
    columns = folded(0 * STEP) | {"model/drawn": (list(range(0, 300, 60)), drawn)}
    if not falls:
        columns["train_loss"] = np.minimum.accumulate(columns["train_loss"])
    found = findings([Overfitting(), ValidationDivergence()], columns, cuts=cuts).values()
    assert any(one.severity != "info" for one in found) == warns


@pytest.mark.parametrize(
    ("config", "severity"),
    [({"rewind_rounds": 3}, "info"), ({"prune_amount": 0.8}, "info"), ({"compress": "prune"}, "info"),
     ({"prune": False}, "critical"), ({"recipe": "born_again"}, "info"), ({"rewind": False}, "critical"),
     ({"reinitial_lr": 0.1}, "critical")],
)  # fmt: skip
def test_weights_that_are_set_back_on_purpose_are_no_trouble(config: dict, severity: str) -> None:
    columns = {"train/loss": learnt_anew(), "model/written": ([150], [0.4])}
    found = findings([WeightsReplaced()], columns, facts={"config": config}).values()
    assert [one.severity for one in found] == [severity]
    rules = [LossSpike(), Divergence(), LossLevel()]
    found = findings(rules, columns, facts={"config": config}).values()
    assert any(one.severity != "info" for one in found) == (severity != "info")


@pytest.mark.parametrize(
    ("config", "quiet"),
    [
        ({"adversarial_start": 150}, True), ({"aug.switch_at": 150}, True), ({"task": {"hard_from_step": 149}}, True),
        ({"adversarial_start": 200}, False), ({"lr_decay_start": 150}, False), ({"ema_start_step": 150}, False),
        ({"batch_size": 150}, False), ({"resume_from_step": 150}, False), ({"log_after": 150}, False),
    ],
)  # fmt: skip
def test_a_loss_that_rises_where_the_configuration_has_something_start_is_a_stage(config: dict, quiet: bool) -> None:
    rules = [LossSpike(), Divergence(), LossLevel()]
    found = findings(rules, {"train/loss": learnt_anew()}, facts={"config": config}).values()
    assert ({one.rule for one in found if one.severity != "info"} == set()) == quiet


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("epoch", STEP // 150),  # a loss does not begin anew with an epoch
        ("round", STEP // 100),  # it changes elsewhere
        ("round", STEP),  # it changes at each step
        ("round", STEP * 0),
        ("phase", (STEP >= 150) + 0.5),  # no number of a stage
    ],
    ids=["epoch", "elsewhere", "each step", "never", "no whole number"],
)
def test_a_loss_that_begins_anew_by_itself_stays_a_warning(name: str, number: np.ndarray) -> None:
    found = loud({"train/loss": learnt_anew(), name: number, "model/written": ([150], [0.4])})
    assert found["weights_replaced"] == 150 and "divergence" in found


@pytest.mark.parametrize(
    ("term", "name", "quiet"),
    [("falls", "recon_loss", True), ("stands", "recon_loss", False), ("falls", "lr", False),
     ("small", "recon_loss", False), ("falls", "ema/loss", False)],
)  # fmt: skip
@pytest.mark.parametrize("cuts", [(), (30, 90, 151)])
def test_a_rise_of_what_is_added_to_the_term_that_the_loss_began_as_is_none(
    term: str, name: str, quiet: bool, cuts: tuple[int, ...]
) -> None:
    main = 0.4 + 1.1 * np.exp(-STEP / 60.0) if term != "stands" else 1.5 + 0.0 * STEP
    main = main * np.exp(np.random.default_rng(0).normal(0, 0.02, 300))
    added = 0.05 + 12.0 * (1 - np.exp(-np.maximum(0, STEP - 20) / 150.0))
    columns = {"loss": main + added, name: main if term != "small" else 0.2 * main}
    found = loud(columns, cuts)
    assert found == {} if quiet else "divergence" in found


@pytest.mark.parametrize(
    ("term", "evaluated", "told"),
    [("falls", "val/vq_loss", set()), ("stands", "val/vq_loss", {"divergence", "validation_divergence"}),
     ("falls", "val/recon_loss", {"validation_divergence"})],
)  # fmt: skip
@pytest.mark.parametrize("cuts", [(), (30, 90, 151)])
def test_a_term_may_rise_from_the_first_step_on_and_its_evaluation_with_it(
    term: str, evaluated: str, told: set[str], cuts: tuple[int, ...]
) -> None:
    main = 0.35 + 0.45 * np.exp(-STEP / 40.0) if term != "stands" else 0.8 + 0.0 * STEP
    main = main * np.exp(np.random.default_rng(0).normal(0, 0.02, 300))
    added = 0.03 + 9.0 * STEP**2 / (4000.0 + STEP**2)
    columns = {"train/loss": main + added, "train/recon_loss": main,
               evaluated: (STEP[19::20], (0.02 + added)[19::20])}  # fmt: skip
    found = findings([Divergence(), ValidationDivergence()], columns, cuts=cuts).values()
    assert {one.rule for one in found if one.severity != "info"} == told


@pytest.mark.parametrize(
    ("kind", "quiet"), [("added", True), ("blows up", False), ("cut off", False), ("smoothed", False), ("none", False)]
)
def test_a_loss_that_gets_a_term_is_told_from_one_that_rises(kind: str, quiet: bool) -> None:
    old = (0.05 + 1.6 * np.exp(-STEP / 12.0)) * np.exp(np.random.default_rng(0).normal(0, 0.05, 300))
    loss = old + (STEP >= 150) * (0.9 + 0.01 * np.sin(STEP))
    term = {"added": old, "blows up": old + 0.5 * (STEP >= 150), "cut off": np.minimum(loss, 0.2 + 9 * (STEP < 150)),
            "smoothed": 1.001 * old, "none": loss}[kind]  # fmt: skip
    found = loud({"train/loss": loss, "train/ce": term})
    assert loud({"train/loss": loss, "train/ce": term}, (150, 151, 152, 170, 180)) == found
    assert found == {} if quiet else found.get("divergence") == 150 or "loss_spike" in found


def test_a_loss_that_rises_within_a_stage_is_still_found() -> None:
    found = loud({"train/loss": learnt_anew(again=240), "round": STEP // 150})
    assert abs(found["divergence"] - 240) < 4


@pytest.mark.parametrize(("name", "severity"), [("task", "info"), ("epoch", "warning")])
def test_classes_of_a_later_task_may_be_missing_in_the_first(name: str, severity: str) -> None:
    looks = np.arange(0, 300, 10)
    figures = {"untargeted_classes": 4, "top_target_share": 0.5, "output_width": 6}
    columns = {f"model/{one}": (looks, np.full(30, float(value))) for one, value in figures.items()}
    columns |= {"model/class_targets": (looks, 64.0 * np.arange(1, 31)), "train/loss": learnt_anew(), name: STEP * 0}
    found = findings([MissingClasses(), OtherLabels()], columns).values()
    assert [one.severity for one in found if one.rule == "missing_classes"] == [severity]


@pytest.mark.parametrize(
    ("times", "severity"), [(1.0, "info"), (2.0, "warning"), (None, "warning")], ids=["as good", "worse", "none"]
)
def test_an_output_that_is_wider_than_its_task_lacks_no_class(times: float | None, severity: str) -> None:
    looks = np.arange(0, 300, 10)
    figures = {"untargeted_classes": 6, "top_target_share": 0.2, "output_width": 16}
    columns = {f"model/{one}": (looks, np.full(30, float(value))) for one, value in figures.items()}
    columns |= {"model/class_targets": (looks, 64.0 * np.arange(1, 31)), "train/loss": 0.1 + 2 * np.exp(-STEP / 100)}
    if times is not None:
        columns["val/loss"] = looks, times * (0.1 + 2 * np.exp(-looks / 100))
    found = findings([MissingClasses()], columns).values()
    assert [one.severity for one in found][-1] == severity


@pytest.mark.parametrize(("targets", "share", "found"), [(170, 0.0, ""), (170, 0.1, "warn"), (4096, 0.0, "warn")])
def test_the_same_few_examples_say_nothing_of_other_classes(targets: int, share: float, found: str) -> None:
    looks = np.arange(0, 300, 10)
    figures = {"untargeted_classes": 1, "output_width": 17, "targets": targets}
    columns = {f"model/{one}": (looks, np.full(30, float(value))) for one, value in figures.items()}
    columns |= {"model/top_target_share": (looks, 0.2 + share * (looks % 20 == 0)),
                "model/class_targets": (looks, 64.0 * np.arange(1, 31)), "train/loss": 2.8 * np.exp(-STEP / 50.0),
                "val/loss": (looks, 2.8 + looks / 60), "val/acc": (looks, np.zeros(30))}  # fmt: skip
    some = {one.rule: one.severity for one in findings([MissingClasses(), OtherLabels()], columns).values()}
    loud = {rule for rule in ("missing_classes", "other_labels") if some.get(rule) == "warning"}
    assert bool(loud) == bool(found)


@pytest.mark.parametrize("cuts", [(), (150, 151, 152, 160, 170)])
def test_a_loss_whose_graph_gets_a_term_gets_no_warning(cuts: tuple[int, ...]) -> None:
    columns = {"train/loss": with_a_term(), "model/loss_terms": ([0, 150], [1, 2])}
    found = findings([LossSpike(), Divergence(), LossLevel()], columns, cuts=cuts).values()
    assert all(one.severity == "info" for one in found)
    assert any("another term at step 150" in one.message for one in found)


@pytest.mark.parametrize(
    "terms",
    [
        ([0], [1]),
        ([0, 150], [2, 1]),
        ([0, 120], [1, 2]),
        ([0, 145, 150], [2, 1, 2]),
        ([0, 150, 155], [1, 2, 1]),
    ],
    ids=["the same", "fewer", "elsewhere", "again", "for some rows"],
)
def test_a_loss_that_rises_without_another_term_stays_a_warning(terms: tuple[list[int], list[int]]) -> None:
    assert "divergence" in loud({"train/loss": with_a_term(), "model/loss_terms": terms})


def test_a_loss_that_blows_up_with_its_new_term_stays_a_warning() -> None:
    loss = with_a_term() * np.exp(0.05 * np.maximum(STEP - 150, 0))
    assert "divergence" in loud({"train/loss": loss, "model/loss_terms": ([0, 150], [1, 2])})


def with_a_term() -> np.ndarray:
    """A loss to which a second one is added at step 150, which falls from there on."""
    old = 0.05 + 1.6 * np.exp(-STEP / 12.0)
    loss = old + (STEP >= 150) * (0.9 + 3.0 * np.exp(-np.maximum(STEP - 150, 0) / 10.0))
    return loss * np.exp(np.random.default_rng(0).normal(0, 0.05, 300))


@pytest.mark.parametrize(
    ("config", "severity"),
    [({}, "warning"), ({"curriculum": "easy"}, "info"), ({"sampler": "easy_to_hard"}, "info"),
     ({"order": "easier ones first"}, "info"), ({"sort_by": "difficulty"}, "info"), ({"long_ones_last": True}, "info"),
     ({"curriculum": False}, "warning"), ({"first_layer": "small"}, "warning"), ({"keep_last": "long"}, "warning"),
     ({"note": "simple to train"}, "warning")],
)  # fmt: skip
def test_inputs_of_a_curriculum_are_not_yet_the_evaluations(config: dict, severity: str) -> None:
    looks, evaluations = np.arange(0, 300, 10), np.arange(30, 300, 30)
    loss = 0.2 + np.exp(-STEP / 50.0)
    columns = {"loss": loss, "eval/loss": (evaluations, 2 * loss[evaluations]),
               "model/input_std": (looks, np.ones(30)), "model/input_mean": (looks, np.zeros(30)),
               "model/eval_input_std": (evaluations, np.full(9, 0.5)),
               "model/eval_input_mean": (evaluations, np.full(9, -1.0))}  # fmt: skip
    (found,) = findings([EvaluationInputs()], columns, facts={"config": config}).values()
    assert found.severity == severity


@pytest.mark.parametrize(("config", "quiet"), [({"hard_start": 150}, True), ({"hard_start": 90}, False), ({}, False)])
def test_an_evaluation_that_gets_better_at_once_with_a_stage_is_none(config: dict, quiet: bool) -> None:
    evaluations = np.arange(20, 300, 20)
    evaluated = np.where(evaluations < 150, 2.7, 1.2) + 0.001 * np.sin(evaluations)
    columns = {"train/loss": 0.3 + 0.5 * (STEP >= 150) + 0.001 * np.sin(STEP), "val/loss": (evaluations, evaluated)}
    found = findings([EvaluationJump()], columns, facts={"config": config}).values()
    assert [one.severity for one in found] == ["info" if quiet else "warning"]


@pytest.mark.parametrize("name", ["length", "train/seq_len", "max_length", "curriculum/difficulty", "n_digits", "size"])
def test_examples_that_get_longer_or_larger_by_what_is_logged_are_a_stage(name: str) -> None:
    columns = {"train/loss": learnt_anew(), name: 2 + STEP // 150}
    assert loud(columns) == {}
    (spike,) = (one for one in findings([LossSpike()], columns).values() if one.step >= 150)
    assert "where a stage of the training begins" in spike.message and not spike.causes and not spike.remedies


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("length", 2 + STEP // 100),
        ("model/output_size", 2 + STEP // 150),
        ("length", STEP % 7),
        ("wavelength", STEP // 150),
    ],
)
def test_sizes_that_change_elsewhere_or_are_the_models_own_excuse_nothing(name: str, number: np.ndarray) -> None:
    assert "divergence" in loud({"train/loss": learnt_anew(), name: number})


@pytest.mark.parametrize(
    ("name", "values", "stages"),
    [
        ("data_seq_len", np.repeat([128.0, 256.0, 512.0], 40), True),
        ("pref/step_size", np.linspace(1e-4, 1e-3, 120), False),  # a rate
        ("batch_size", np.full(120, 32.0), False),
        ("answers/length", np.random.default_rng(0).integers(9, 30, 120).astype(float), False),
        ("answers/mean_length", np.random.default_rng(0).normal(20, 2, 120), False),
        ("round", np.arange(120.0), True),
    ],
)
def test_a_size_tells_stages_where_it_is_whole_and_seldom_changes(name: str, values: np.ndarray, stages: bool) -> None:
    history = RunHistory()
    history.add(name, np.arange(120), values, np.arange(120) + 1, np.ones(120, int))
    assert has_stages(history, 1000) == stages and not has_stages(history, 0)


@pytest.mark.parametrize(("at", "quiet"), [(40, True), (60, False), (20, False), (300, False)])
def test_a_task_that_begins_where_the_one_before_was_known_by_heart_is_a_stage(at: int, quiet: bool) -> None:
    known = [3e-4, 1.1e-3, 2.5e-4, 9.7e-3, 2.5e-3, 1.1e-2, 2.4e-5, 5e-2, 7.6e-6, 5.3e-4, 3.1e-6, 9.7e-8, 1.1e-6]
    known += [1.9e-6, 0.11, 2.7e-7, 0.0, 4.1e-8, 1e-5, 3e-4, 1.2e-6, 1.5e-5, 4.8e-8, 1.3e-5]
    learnt = 2.3 * np.exp(-np.arange(16) / 3.0)
    anew = 0.3 + 17 * np.exp(-np.arange(160) / 1.5)
    columns = {"train/loss": np.concatenate([learnt, known, anew]), "task": (np.arange(200) >= at).astype(int)}
    found = findings([Divergence()], columns).values()
    assert ("divergence" not in {one.rule for one in found if one.severity != "info"}) == quiet


@pytest.mark.parametrize("cuts", [(), (20, 40, 60, 120)])
@pytest.mark.parametrize(("logged", "severity"), [(True, "info"), (False, "critical")])
def test_a_term_that_is_more_than_the_loss_counts_where_another_makes_up_for_it(
    logged: bool, severity: str, cuts: tuple[int, ...]
) -> None:
    main = 0.36 * np.exp(-STEP / 60.0)  # falls, while codes get farther from what they stand for
    codes = -0.12 + 0.5 * np.clip((STEP - 20) / 60.0, 0, 1)
    columns = {"loss": main + codes, "recon": main} | ({"codes": codes} if logged else {})
    found = [one for one in findings([Divergence()], columns, cuts=cuts).values() if one.rule == "divergence"]
    assert [one.severity for one in found][-1] == severity
