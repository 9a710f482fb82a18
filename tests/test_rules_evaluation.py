"""Evaluations beside the training: overfitting, leaps, frozen and missing ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from rule_columns import findings
from rule_curves import columns, falling, found, warned

from barograph.doctor.rules.evaluation import evaluation, mode
from barograph.doctor.rules.evaluation.evaluation import Overfitting

AT = np.arange(100, 2000, 100)
RULES = (*evaluation.RULES, *mode.RULES)


def look(loss: np.ndarray, evaluations: np.ndarray, at: np.ndarray = AT, checkpoints=(), **more):
    series = {"train/loss": (np.arange(len(loss)), loss), "eval/loss": (at, evaluations)}
    series |= {name.replace("__", "/"): values for name, values in more.items()}
    return found([rule() for rule in RULES], series, checkpoints=list(checkpoints))


def after(step: int, size: float) -> np.ndarray:
    """A factor that grows after a step, up to 1 + size."""
    return 1 + size * np.clip((AT - step) / (1900 - step), 0, None)


def test_overfitting_begins_at_the_best_evaluation_and_names_its_checkpoint() -> None:
    loss = falling(2000, noise=0.005) * np.linspace(1, 0.5, 2000)
    evaluations = falling(2000, noise=0)[AT] * after(1000, 0.5)
    finding = next(
        one for one in look(loss, evaluations, checkpoints=[(900, "a"), (1500, "b")]) if one.rule == "overfitting"
    )
    assert (finding.severity, finding.kind) == ("warning", "overfit") and abs(finding.step - 1000) <= 100
    assert "(a)" in finding.remedies[0] and finding.causes[0].startswith("overfitting")


@pytest.mark.parametrize(
    ("config", "size", "severity"),
    [({}, 0.3, "warning"), ({"val_tasks": 6}, 0.3, "info"), ({"eval.num_eval_samples": 12}, 0.3, "info"),
     ({"val_tasks": 6}, 1.5, "warning"), ({"val_tasks": 64}, 0.3, "warning"), ({"val_every": 6}, 0.3, "warning"),
     ({"val_tasks": 6, "test_rows": 400}, 0.3, "warning"), ({"overfit_batches": 4}, 1.5, "info"),
     ({"overfit_batches": 0}, 1.5, "warning")],
)  # fmt: skip
def test_a_small_rise_of_few_examples_is_an_info_finding(config: dict[str, int], size: float, severity: str) -> None:
    loss = falling(2000, noise=0.005) * np.linspace(1, 0.5, 2000)
    columns = {"train/loss": loss, "eval/loss": (AT, falling(2000, noise=0)[AT] * after(1000, size))}
    (one,) = findings([Overfitting()], columns, facts={"config": config}).values()
    assert one.severity == severity


AGAIN = {f"model/{name}": (np.arange(0, 2000, 100), np.full(20, value))
         for name, value in (("rows_again", 0.04), ("example_rows", 10), ("distinct_rows", 200))}  # fmt: skip


@pytest.mark.parametrize(
    ("series", "first"),
    [
        ({"train/epoch": (np.arange(0, 2000, 10), np.arange(200) / 250)}, True),
        ({"train/epoch": (np.arange(0, 2000, 10), np.ones(200))}, True),
        ({"data/repeats_total": (np.arange(2000), np.zeros(2000))}, True),
        ({"train/epoch": (np.arange(0, 2000, 10), np.arange(200) / 50)}, False),
        ({"data/repeats_total": (np.arange(2000), np.clip(np.arange(2000) - 900, 0, None))}, False),
        ({"train/epoch": (np.arange(2000), np.zeros(2000)),
          "data/repeated_rows_share": (np.arange(2000), np.full(2000, 0.4))}, False),
        ({"train/epoch": (np.arange(2000), np.zeros(2000)),
          "model/rows_again": (np.arange(0, 2000, 10), np.ones(200))}, False),
        ({"model/rows_again": (np.arange(0, 2000, 10), np.zeros(200))}, False),
        ({"train/epoch": (np.arange(2000), np.zeros(2000)), **AGAIN}, False),  # of the few rows that are known
        ({}, False),
    ],
)  # fmt: skip
def test_nothing_is_memorized_in_the_first_epoch(series: dict, first: bool) -> None:
    loss = falling(2000, noise=0.005) * np.linspace(1, 0.2, 2000)
    evaluations = falling(2000, noise=0)[AT] * after(1000, 0.5)
    named = {name.replace("/", "__"): rows for name, rows in series.items()}
    all_found = look(loss, evaluations, **named)
    finding = next(one for one in all_found if one.rule == "overfitting")
    assert finding.severity == "warning" and finding.message.endswith("in the first epoch") == first
    assert finding.causes[0].startswith("labels shifted" if first else "overfitting")
    gap = next(one for one in all_found if one.rule == "evaluation_gap")
    assert gap.causes[0].startswith("tokenizer" if first else "overfitting")


EPOCHS = np.arange(12)


@pytest.mark.parametrize(
    ("train", "first", "area", "cause"),
    [
        (0.4 + 0.57 * 0.7**EPOCHS, 1.52, None, "evaluation labels are others"),
        (0.4 + 0.57 * 0.7**EPOCHS, 1.1, None, "overfitting"),  # a seventh above a mean that lags behind
        (0.4 + 0.57 * 0.7**EPOCHS, 7.1, None, "inputs not normalised"),
        (0.52 * 0.3**EPOCHS, 0.85, None, "labels can be seen"),
        (0.4 + 0.57 * 0.7**EPOCHS, 0.9, 0.5, "evaluation labels are others"),
        (0.4 + 0.57 * 0.7**EPOCHS, 0.9, 0.6, "overfitting"),
    ],
)
def test_what_is_apart_before_anything_can_be_memorized_is_not_laid_to_memory(
    train: np.ndarray, first: float, area: float | None, cause: str
) -> None:
    series = {"train_loss": (EPOCHS, train), "val_loss": (EPOCHS, first * 1.09**EPOCHS)}
    if area is not None:
        series["val_auc"] = EPOCHS, area + 0.01 * np.sin(EPOCHS)
    finding = next(one for one in found([Overfitting()], series) if one.severity == "warning")
    assert finding.causes[0].startswith(cause)
    # of rows that are no epochs, and of a launch that goes on, nobody knows what was seen before
    later = {name: (steps * 100 + 900, values) for name, (steps, values) in series.items() if name != "val_auc"}
    assert next(one for one in found([Overfitting()], later)).causes[0].startswith("overfitting")


@pytest.mark.parametrize(
    ("first", "train", "figures", "cause"),
    [
        (4.0, 0.2, {"loss_classes": 5.0}, "evaluation labels are others"),
        (4.0, 0.2, {"loss_classes": 5.0, "rows_again": 0.0}, "evaluation labels are others"),
        (4.0, 0.2, {"loss_classes": 5.0, "rows_again": 0.9}, "overfitting"),  # the first evaluation came late
        (2.4, 0.2, {}, "evaluation labels are others"),  # never better than the training's first loss
        (40.0, 0.2, {}, "inputs not normalised"),
        (1.3, 0.2, {"loss_classes": 5.0}, "overfitting"),  # it was better than a guess
        (1.3, 0.2, {}, "overfitting"),
        (1.7, 1.64, {"loss_classes": 5.0}, "labels shuffled"),
        (1.5, 1.64, {"loss_classes": 5.0}, "overfitting"),
        (1.5, 1.0, {"noise_target": 1.0}, "evaluation data differ"),
        (1.02, 1.0, {"noise_target": 1.0}, "overfitting"),
    ],
)  # fmt: skip
def test_an_evaluation_that_was_never_better_than_a_guess_is_of_other_data_before_it_is_memory(
    first: float, train: float, figures: dict[str, float], cause: str
) -> None:
    steps, at = np.arange(1, 601), np.arange(50, 601, 50)
    falls = np.interp(steps, [1, 50, 600], [1.61, train, 0.5 * train])
    looks = np.arange(1, 600, 10)
    series = {"loss": (steps, falls), "val_loss": (at, first * np.linspace(1, 1.8, len(at)))}
    series |= {f"model/{name}": (looks, np.full(len(looks), value)) for name, value in figures.items()}
    told = next(one for one in found([Overfitting()], series) if one.severity == "warning")
    assert told.causes[0].startswith(cause) and any("overfitting" in one for one in told.causes)


@pytest.mark.parametrize(("evaluations", "cause"), [
    (np.cumsum(0.2 + 0.3 * 0.8**EPOCHS), "evaluation never reset"),
    (0.5 * (1 + 0.3 * EPOCHS), "overfitting"),
    (np.cumsum(0.5 * 1.3**EPOCHS), "overfitting"),  # by more each time
])  # fmt: skip
def test_evaluations_that_are_sums_of_all_so_far_are_not_laid_to_memory(evaluations: np.ndarray, cause: str) -> None:
    series = {"train_loss": (100 * EPOCHS + 900, 0.6 * 0.9**EPOCHS), "val_loss": (100 * EPOCHS + 900, evaluations)}
    finding = next(one for one in found([Overfitting()], series) if one.severity == "warning")
    assert finding.causes[0].startswith(cause)


def test_an_evaluation_that_gets_better_beside_a_noisy_training_loss_is_no_leak() -> None:
    loss = 1.1 * np.exp(np.random.default_rng(3).normal(0, 0.5, 2000))
    evaluations = np.where(AT < 1000, 1.08, 0.8) * np.exp(np.random.default_rng(4).normal(0, 0.01, len(AT)))
    assert not [one for one in warned(look(loss, evaluations)) if one.rule == "evaluation_jump"]
    rising = np.full(2000, 1.1)
    rising[950:] = 1.5
    assert [one for one in warned(look(rising, evaluations)) if one.rule == "evaluation_jump"]


ALONE = np.arange(100, 4100, 100)


def alone(evaluations: np.ndarray):
    return found([rule() for rule in RULES], {"eval/loss": (ALONE, evaluations)})


def course(noise: float = 0.004, seed: int = 0) -> np.ndarray:
    """Forty evaluations that fall."""
    return (2 + 2 * np.exp(-ALONE / 500)) * np.exp(np.random.default_rng(seed).normal(0, noise, len(ALONE)))


@pytest.mark.parametrize("noise", [0.001, 0.01])
@pytest.mark.parametrize("rise", [0.2, 0.5])
def test_evaluations_alone_tell_that_they_keep_rising(noise: float, rise: float) -> None:
    up = 1 + rise * np.clip((ALONE - 1500) / 2500, 0, None)
    (one,) = warned(alone(np.minimum.accumulate(course(0)) * up * course(noise) / course(0)))
    assert (one.rule, one.severity, one.kind) == ("overfitting", "warning", "overfit")
    assert abs(one.step - 1500) <= 400 and "no training loss is logged" in one.message and "nan" not in one.message


@pytest.mark.parametrize(
    "factor",
    [
        1 + 0 * ALONE,
        1 + 0.3 * np.exp(-(((ALONE - 2000) / 300) ** 2)),  # a hump
        1 + 0.25 * (ALONE > 3700),  # three of forty
        1 + 0.02 * np.clip((ALONE - 1500) / 2500, 0, None),  # a fiftieth
        1 + 0.15 * np.where(ALONE > 1500, np.exp(-(ALONE - 1500) / 500), 0),  # the rate begins anew
    ],
)  # fmt: skip
def test_evaluations_alone_that_come_down_again_or_hardly_rise_give_no_warning(factor: np.ndarray) -> None:
    for seed in range(3):
        assert not [one for one in warned(alone(course(seed=seed) * factor)) if one.rule == "overfitting"]


def test_of_a_training_loss_that_is_no_number_nobody_says_that_it_is_missing() -> None:
    evaluations = np.minimum.accumulate(course(0)) * (1 + 0.5 * np.clip((ALONE - 1500) / 2500, 0, None))
    series = {"train/loss": (np.arange(4100), np.full(4100, np.nan)), "eval/loss": (ALONE, evaluations)}
    assert not [one for one in found([Overfitting()], series) if "no training loss" in one.message]


def test_a_leap_without_a_training_loss_names_no_training_loss() -> None:
    (one,) = [one for one in alone(np.where(ALONE > 2000, 2, 1) * course()) if one.rule == "evaluation_jump"]
    assert "training loss" not in one.message and one.severity == "warning"


def test_a_slight_rise_is_an_info_finding() -> None:
    loss = 0.3 * falling(2000, noise=0.005) * np.linspace(1, 0.5, 2000)
    evaluations = 0.3 * falling(2000, noise=0)[AT] * after(1000, 0.12)
    assert [one.severity for one in look(loss, evaluations) if one.rule == "overfitting"] == ["info"]


def test_a_model_that_is_only_too_sure_is_an_info_finding() -> None:
    loss = falling(2000) * np.linspace(1, 0.3, 2000)
    evaluations = falling(2000, noise=0)[AT] * after(1000, 0.3)
    right = (AT, np.linspace(0.5, 0.8, len(AT)))
    assert not warned(look(loss, evaluations, eval__accuracy=right))


@pytest.mark.parametrize("noise", [0.003, 0.02, 0.05])
def test_healthy_evaluations_give_no_warning(noise: float) -> None:
    for seed in range(4):
        dice = np.random.default_rng(seed)
        loss = falling(2000, seed=seed)
        assert not warned(look(loss, loss[AT] * np.exp(dice.normal(0.02, noise, len(AT)))))


def test_both_losses_rising_is_a_divergence() -> None:
    loss = falling(2000)
    loss[1200:] *= 1.15
    finding = next(one for one in look(loss, loss[AT] * 1.01) if one.rule == "validation_divergence")
    assert (finding.severity, finding.kind, finding.step) == ("warning", "divergence", 1200 + 0)


@pytest.mark.parametrize(("up", "trained"), [(1.1, 1.2), (1.3, 1.3), (4.0, 1.4)])
@pytest.mark.parametrize("seed", range(3))
def test_the_event_is_no_noise_of_a_short_run(up: float, trained: float, seed: int) -> None:
    at = np.arange(0, 200, 25)
    course = 2 + 3 * np.exp(-np.arange(200) / 25)
    loss = course * np.exp(np.random.default_rng(seed).normal(0, 0.05, 200))
    assert not warned(look(loss, course[at], at))
    since = np.arange(200) > 110
    seen = look(loss * np.where(since, trained, 1.0), course[at] * np.where(since[at], up, 1.0), at)
    (finding,) = [one for one in seen if one.rule == "validation_divergence"]
    assert (finding.severity, finding.step) == ("warning", 125)
    assert not [one for one in seen if one.rule == "overfitting"], "a training loss that rose has memorized nothing"


@pytest.mark.parametrize(("targets", "told"), [(None, True), (4000.0, True), (240.0, False)])
def test_an_evaluation_that_gets_few_answers_wrong_rises_by_a_few_of_them(targets: float | None, told: bool) -> None:
    at = np.arange(17, 160, 18)
    course = 0.05 + 1.7 * np.exp(-np.arange(160) / 12)
    loss = course * np.exp(np.random.default_rng(1).normal(0, 0.2, 160)) * np.where(np.arange(160) > 90, 1.8, 1.0)
    counted = {} if targets is None else {"model__evaluated_targets": (at + 1, np.full(len(at), targets))}
    seen = look(loss, course[at] * np.where(at > 90, 1.4, 1.0), at, **counted)
    assert ("validation_divergence" in {one.rule for one in warned(seen)}) == told


@pytest.mark.parametrize("ratio", [1.4, 2.0, 0.5])
def test_an_evaluation_that_leaps_alone_is_another_evaluation(ratio: float) -> None:
    loss = falling(2000)
    evaluations = falling(2000, noise=0.002, seed=1)[AT]
    evaluations[12:] *= ratio
    finding = next(one for one in look(loss, evaluations) if one.rule == "evaluation_jump")
    assert (finding.severity, finding.step) == ("warning" if ratio > 1 else "info", AT[12])
    assert finding.causes[0].startswith("tokenizer mismatch" if ratio > 1 else "validation leak")


def test_an_evaluation_leaps_early_while_it_still_falls_steeply() -> None:
    evaluations = 2.8 + 8 * np.arange(1, 1 + len(AT)) ** -0.75
    evaluations[6:] += 1.6
    finding = next(one for one in look(falling(2000), evaluations) if one.rule == "evaluation_jump")
    assert (finding.severity, finding.step) == ("warning", AT[6])


@pytest.mark.parametrize("seed", range(10))
def test_noisy_evaluations_do_not_leap(seed: int) -> None:
    evaluations = falling(2000)[AT] * np.exp(np.random.default_rng(seed).normal(0, 0.08, len(AT)))
    assert not [one for one in look(falling(2000), evaluations) if one.rule == "evaluation_jump"]


@pytest.mark.parametrize("values", [(1e300, 1e-300), (1e300, 1e-300, 1.0), (0.125, 0.5, 0.0, 1.0, 1.0, 0.25)])
def test_evaluations_beyond_reason_do_not_raise(values: tuple[float, ...]) -> None:
    look(falling(2000), np.resize(values, len(AT)))  # `found` fails if a rule raised


def test_one_odd_evaluation_is_an_info_finding() -> None:
    evaluations = falling(2000, noise=0.002, seed=1)[AT]
    evaluations[12] *= 1.5
    assert not warned(look(falling(2000), evaluations))


def test_an_evaluation_that_never_changes_looks_at_other_weights() -> None:
    finding = next(one for one in look(falling(2000), np.full(len(AT), 5.61234)) if one.rule == "evaluation_frozen")
    assert (finding.severity, finding.kind, finding.step) == ("warning", "frozen", AT[0])
    assert not [one for one in look(falling(2000), np.full(len(AT), 5.6)) if one.rule == "evaluation_frozen"]


@pytest.mark.parametrize(
    ("share", "wide", "count", "says"),
    [
        (0.57318449, 0.05, 19, True),
        (0.57318449, 0.05, 14, False),  # too few
        (0.57318449, 0.01, 19, False),  # a loss that stands still too
        (0.85, 0.05, 19, False),  # seventeen of twenty
        (0.99318449, 0.05, 19, False),  # nearly all are right
    ],
)
def test_an_accuracy_of_many_digits_that_never_changes_while_the_loss_goes_up_and_down(
    share: float, wide: float, count: int, says: bool
) -> None:
    at = AT[:count]
    losses = 0.67 * (1 + wide * np.sin(np.arange(count) * 2.0))
    losses[0] = 0.67
    told = [
        one
        for one in look(np.full(2000, 0.66), losses, at, eval__accuracy=(at, np.full(count, share)))
        if one.rule == "evaluation_frozen" and one.key == "accuracy"
    ]
    assert bool(told) == says and all("was between" in one.message for one in told[:1])


def test_info_findings_on_the_distance_to_the_training() -> None:
    loss = falling(2000)
    assert "evaluation_better" in {one.rule for one in look(loss, loss[AT] * 0.8)}
    assert "evaluation_gap" in {one.rule for one in look(loss, loss[AT] * 1.8)}
    assert not warned(look(loss, loss[AT] * 0.8)) and not warned(look(loss, loss[AT] * 1.8))


@pytest.mark.parametrize(("apart", "tells"), [((1.1, 1.0), False), ((1.1, 2.0), True), ((1.1,), True)])
def test_a_loss_whose_terms_have_weights_is_told_by_the_terms_that_both_sides_log(
    apart: tuple[float, ...], tells: bool
) -> None:
    loss, steps = falling(2000), np.arange(2000)
    terms = {f"train__{name}": (steps, 0.6 * loss) for name in ("price", "kind")}
    terms |= {
        f"eval__{name}": (AT, 0.6 * loss[AT] * times) for name, times in zip(("price", "kind"), apart, strict=False)
    }
    assert ("evaluation_gap" in {one.rule for one in look(loss, loss[AT] * 1.8, **terms)}) == tells


def test_ten_thousand_steps_without_a_better_evaluation_are_info() -> None:
    at = np.arange(1000, 25_000, 1000)
    evaluations = np.maximum(3 - at / 5000, 1.2) + (at > 9000) * 0.001 * (at % 3000) / 1000
    finding = next(one for one in look(falling(2000), evaluations, at) if one.rule == "validation_plateau")
    assert finding.severity == "info" and finding.step == 9000


def test_another_stage_begins_anew() -> None:
    loss = np.concatenate([falling(500), 4 + falling(500)])
    steps = np.concatenate([np.arange(500), np.arange(500)])
    segments = np.repeat([1, 2], 500)
    keep = steps % 50 == 25
    series = {"train/loss": (steps, loss, segments), "eval/loss": (steps[keep], loss[keep], segments[keep])}
    assert not warned(found([rule() for rule in RULES], series))


@settings(max_examples=60, deadline=None)
@given(columns(("train/loss", "eval/loss", "train/lr", "train/step_tokens")))
def test_pieces_of_any_size_give_the_same_findings_and_nothing_raises(drawn) -> None:
    series, cuts = drawn
    assert found([rule() for rule in RULES], series, cuts) == found([rule() for rule in RULES], series)


def test_a_rise_of_a_tenth_of_the_perplexity_that_stays_is_a_warning() -> None:
    loss = falling(2000, noise=0.005) * np.linspace(1, 0.5, 2000)
    evaluations = falling(2000, noise=0)[AT] * after(1000, 0.12)
    (finding,) = [one for one in look(loss, evaluations) if one.rule == "overfitting"]
    assert finding.severity == "warning" and finding.evidence["rise"] < 0.1


def test_training_and_evaluation_that_rise_with_calm_gradients_accuse_the_labels() -> None:
    loss = falling(2000) * np.where(np.arange(2000) > 950, 1.3, 1.0)
    evaluations = falling(2000, noise=0)[AT] * np.where(AT > 950, 1.3, 1.0)
    rate = {"train__lr": (np.arange(2000), np.linspace(1e-3, 1e-4, 2000))}
    for after_it, cause in ((1.0, "labels shifted"), (6.0, "learning rate too high")):
        norm = (np.arange(2000), np.where(np.arange(2000) > 950, after_it, 1.0))
        finding = next(
            one for one in look(loss, evaluations, train__norm=norm, **rate) if one.rule == "validation_divergence"
        )
        assert finding.causes[0].startswith(cause)


def tables(moved: float, since: int = 600) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Gradients of weights and of biases that a batch norm makes useless, which are not any more since some step."""
    at = np.arange(0, 1000, 50)
    series = {f"gradients__{name}.weight__norm": (at, np.full(len(at), 0.5)) for name in ("a", "b", "c")}
    return series | {f"gradients__{name}.bias__norm": (at, np.where(at >= since, moved, 3e-8)) for name in ("a", "b")}


def test_biases_before_batch_norm_that_get_a_gradient_tell_of_evaluation_mode() -> None:
    (finding,) = [one for one in look(falling(1000), falling(19), **tables(0.1)) if one.rule == "evaluation_mode"]
    assert (finding.kind, finding.severity, finding.step, finding.found) == ("eval", "warning", 600, 650)
    assert finding.causes[0].startswith("evaluation mode left on") and "evaluation of step 600" in finding.message


def test_gradients_that_stay_nothing_or_were_never_nothing_are_silent() -> None:
    for series in (tables(3e-7), tables(0.1, since=150), tables(0.1, since=950)):
        assert not [one for one in look(falling(1000), falling(19), **series) if one.rule == "evaluation_mode"]


def noisy_evaluations(count: int, width: float, seed: int) -> np.ndarray:
    """Evaluations that fall and then stand, with wide tails."""
    along = np.arange(count)
    return (0.35 + 1.5 * np.exp(-along / 12)) * np.exp(width * np.random.default_rng(seed).standard_t(4, count))


@pytest.mark.parametrize("seed", range(12))
def test_wide_noise_around_a_level_is_no_trouble(seed: int) -> None:
    count = 120
    loss = 0.1 + 1.8 * np.exp(-np.arange(count) / 12)
    at = np.arange(count)
    one = look(
        loss * np.exp(0.02 * np.random.default_rng(seed).normal(size=count)), noisy_evaluations(count, 0.12, seed), at
    )
    assert not warned(one)


@pytest.mark.parametrize(
    ("learnt", "cause"),
    [(0.95, "labels shifted"), (0.9, "labels shifted"), (0.3, "overfitting"), (0.05, "overfitting")],
)
def test_who_has_learnt_little_has_memorized_nothing(learnt: float, cause: str) -> None:
    steps = np.arange(400)
    loss = 3.7 * (learnt + (1 - learnt) * np.exp(-steps / 60)) * np.exp(np.random.default_rng(1).normal(0, 0.01, 400))
    at = np.arange(24, 400, 25)
    found_there = found(
        [Overfitting()], {"train/loss": (steps, loss), "eval/loss": (at, 3.72 + 2.4 * np.arange(len(at)) / len(at))}
    )
    (one,) = [item for item in found_there if item.severity == "warning"]
    assert one.causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("name", "lower", "end", "severity"),
    [
        ("clean", 0.7, 0.2, "info"),
        ("clean", 1.0, 0.2, "warning"),  # as good at first: what was memorized since is no other data
        ("clean", 0.7, 0.9, "warning"),  # it has learnt nothing
        ("seen", 0.7, 0.2, "warning"),
        ("training", 0.7, 0.2, "warning"),
    ],
)
@pytest.mark.parametrize("before", [300, 0])
def test_a_set_of_other_data_that_rises_beside_one_that_falls_informs(
    name: str, lower: float, end: float, severity: str, before: int
) -> None:
    loss = falling(2000, noise=0.005) * np.linspace(1, 0.5, 2000)
    risen = falling(2000, noise=0)[AT] * after(1000, 0.5)
    beside = risen[0] * lower * np.geomspace(1, end, len(AT))
    series = {"train/loss": (np.arange(2000), loss), "eval/far/loss": (AT, risen), f"eval/{name}/loss": (AT, beside)}
    cuts = range(0, 2000, before) if before else ()
    (one,) = findings([Overfitting()], series, cuts=cuts).values()
    assert one.severity == severity and (f"eval/{name}/loss" in one.causes[0]) == (severity == "info")


@pytest.mark.parametrize(("end", "severity"), [(0.5, "warning"), (0.75, "info")])
def test_a_training_loss_that_falls_far_below_the_evaluations_of_now_is_memory_wherever_it_began(
    end: float, severity: str
) -> None:
    at = np.arange(10)
    loss = np.concatenate([[3.2, 2.9, 2.2, 1.7, 1.3], np.linspace(1.0, end, 5)])
    seen = np.array([1.6, 1.3, 0.95, 0.73, 0.66, 0.7, 0.8, 0.86, 0.93, 0.99])
    (one,) = found([Overfitting()], {"train/loss": (at, loss), "eval/loss": (at, seen)})
    assert one.severity == severity
