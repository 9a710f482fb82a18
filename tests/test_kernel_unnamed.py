"""Evaluations whose names say nothing of a loss are told by their first rows, whenever somebody asks."""

from __future__ import annotations

import numpy as np
import pytest

from barograph.core.roles import is_loss_by_word, is_loss_of_other_data, is_of_held_out, is_unnamed_evaluation
from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.cursor import evaluations_of
from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.rules.evaluation.mode import ModelMode

STEPS, EACH = 200, 20
FALLS = 0.3 + 2 * np.exp(-np.arange(STEPS) / 40) + 0.02 * np.sin(np.arange(STEPS))
AT = np.arange(EACH - 1, STEPS, EACH)
MEANS = FALLS.reshape(-1, EACH).mean(1)


def played(columns: dict[str, tuple[np.ndarray, np.ndarray]], each: int) -> tuple[str | None, str | None, set[str]]:
    """Which series are the evaluation's loss and accuracy, asked behind so many steps each; the roles that changed."""
    seen, changed = RunHistory(), set()
    for low in range(0, STEPS, each):
        for name, (steps, values) in columns.items():
            some = (steps >= low) & (steps < low + each)
            if some.any():
                seen.add(name, steps[some], values[some], steps[some] * 1_000_000 + 1, steps[some] * 0 + 1)
        found = [seen.role(role) for role in ("loss", "eval_loss", "eval_accuracy")]
        changed |= seen.played.replaced()
    assert found[0] is not None and found[0].name in ("train/loss", "fit/loss", "fit/weighted_loss", "iter_nll", "nll")
    return *(one.name if one is not None else None for one in found[1:]), changed  # type: ignore[return-value]


def beside(loss: str, name: str, values: np.ndarray, **others: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    columns = {loss: (np.arange(STEPS), FALLS), name: (AT, values)}
    return columns | {f"{name.rpartition('/')[0]}/{other}": (AT, values) for other, values in others.items()}


@pytest.mark.parametrize("each", [1, 7, 50, STEPS])
@pytest.mark.parametrize(
    ("loss", "name", "values", "told"),
    [
        ("train/loss", "val/masses", FALLS[AT] + 0.2, True),
        ("train/loss", "heldout/masses", FALLS[AT] * 3, True),  # of other data
        ("fit/loss", "review/loss", FALLS[AT] + 0.2, True),
        ("fit/loss", "review/loss", np.linspace(3, 9, len(AT)), True),  # labels are others
        ("fit/loss", "epoch/loss", MEANS, False),  # of the training
        ("fit/loss", "whole/loss", MEANS, False),
        ("fit/loss", "extra/loss", FALLS[AT] / 20, False),  # a part
        ("train/loss", "val/agreed", np.linspace(0.3, 0.9, len(AT)), False),  # a share of what is right
        ("train/loss", "val/agreed", np.linspace(30, 90, len(AT)), False),
        ("train/loss", "val/accuracy_of_rare", FALLS[AT], False),  # its name says what it is
        ("train/loss", "val/masses", -FALLS[AT], False),
    ],
)
def test_a_loss_of_data_held_out_is_told_by_its_rows(
    loss: str, name: str, values: np.ndarray, told: bool, each: int
) -> None:
    assert played(beside(loss, name, values), each)[0] == (name if told else None)


SEEN = {"model/evaluated_rows": (AT[:-1] + 1, np.full(len(AT) - 1, 64.0))}  # at the step behind each evaluation


@pytest.mark.parametrize("each", [1, 7, 50, STEPS])
@pytest.mark.parametrize(
    ("name", "values", "seen", "told"),
    [
        ("recall/masses_loss", FALLS[AT] * 4, SEEN, True),
        ("recall/nats", FALLS[AT] / 10, SEEN, True),  # another sum
        ("ema/weighted_loss", FALLS[AT] + 0.2, SEEN, True),
        ("recall/nats", FALLS[AT] + 0.2, {}, False),  # the watch has not seen evaluations
        ("recall/nats", FALLS[AT] + 0.2, {"model/evaluated_rows": (AT[1::2] - 8, np.full(5, 64.0))}, False),
        ("recall/temperature", FALLS[AT] + 0.2, SEEN, False),
        ("recall/nats", -FALLS[AT], SEEN, False),
        ("patrol/surprise", FALLS[AT] + 1, SEEN, True),  # a word that says nothing
        ("patrol/surprise", FALLS[AT] + 1, {}, False),
        ("patrol/surprise", FALLS[AT] * 3, SEEN, False),
        ("patrol/surprise", FALLS[AT] * 0.5, SEEN, False),  # below 1, as a share is
        ("patrol/surprise", MEANS + 0.5, SEEN, True),
        ("patrol/epoch_surprise", FALLS[AT] + 1, SEEN, False),
        ("patrol/seconds", FALLS[AT] + 1, SEEN, False),
    ],
)
def test_what_is_logged_where_the_watch_has_seen_evaluations_may_be_their_loss(
    name: str, values: np.ndarray, seen: dict[str, tuple[np.ndarray, np.ndarray]], told: bool, each: int
) -> None:
    assert played(beside("fit/weighted_loss", name, values) | seen, each)[0] == (name if told else None)


@pytest.mark.parametrize("each", [1, 7, STEPS])
def test_an_evaluation_that_one_record_of_the_watch_lacks_is_told_by_another(each: int) -> None:
    rows = {"model/evaluated_rows": (AT[::2] + 1, np.full(5, 64.0)), "model/evaluated_steps": (AT + 1, AT + 1.0)}
    assert played(beside("fit/weighted_loss", "recall/nats", FALLS[AT] + 0.2) | rows, each)[0] == "recall/nats"


@pytest.mark.parametrize("each", [1, 7, STEPS])
@pytest.mark.parametrize(("seen", "told"), [(SEEN, True), ({}, False)])
def test_two_rows_of_the_training_between_evaluations_that_the_watch_saw_are_enough(
    seen: dict[str, tuple[np.ndarray, np.ndarray]], told: bool, each: int
) -> None:
    rows = np.arange(9, STEPS, 10)
    given = {"fit/weighted_loss": (rows, FALLS[rows]), "recall/nats": (AT, FALLS[AT] + 0.2)} | seen
    assert played(given, each)[0] == ("recall/nats" if told else None)


@pytest.mark.parametrize("each", [1, 7, STEPS])
@pytest.mark.parametrize(("name", "told"), [("recall/weighted_loss", False), ("val/nats", True)])
def test_what_is_logged_in_each_step_is_none_where_each_has_passes_without_gradients(
    name: str, told: bool, each: int
) -> None:
    rows = np.arange(STEPS)  # as a generator's loss beside its discriminator's
    seen = {"model/evaluated_steps": (rows[2:6], rows[2:6] + 0.0)}
    given = {"fit/weighted_loss": (rows, FALLS), name: (rows, FALLS + 0.2)} | seen
    assert played(given, each)[0] == (name if told else None)


@pytest.mark.parametrize("each", [1, 50, STEPS])
@pytest.mark.parametrize(
    ("loss", "name", "seen", "told"),
    [
        ("iter_nll", "est_nll", SEEN, True),
        ("iter_nll", "est_nll", {}, False),
        ("iter_nll", "est_rank", SEEN, False),
        ("iter_nll", "iter_other", SEEN, False),
        ("nll", "est_nll", SEEN, True),  # the same name with another word in front
    ],
)
def test_a_first_word_in_one_name_tells_where_the_watch_has_seen_evaluations(
    loss: str, name: str, seen: dict[str, tuple[np.ndarray, np.ndarray]], told: bool, each: int
) -> None:
    assert played(beside(loss, name, FALLS[AT] + 0.2) | seen, each)[0] == (name if told else None)


@pytest.mark.parametrize("name", ["ema/mse", "ema/val_flow"])
@pytest.mark.parametrize("each", [1, 7, 50, STEPS])
@pytest.mark.parametrize(
    ("watched", "over", "told"),
    [
        ({}, 36, True),
        ({}, 1, True),  # the evaluation's is the same sum
        ({}, 4000, False),  # another measure
        ({"square_weight": 18.0, "backwards": 2.0}, 36, True),
        ({"square_weight": 36.3}, 36, False),
        ({"loss_adds": 0.0}, 36, False),  # a weight of the mean
        ({"square_weight": 7.0}, 36, False),
        ({"square_weight": None, "weighted_squares_added": 36.0, "backwards": 2.0}, 36, True),
        ({"square_weight": None, "scaled_squares_added": 36.0}, 36, True),
        ({"loss_adds": None}, 36, False),
        ({"begins": 30}, 36, False),  # the sum came later
        ({"square_weight": None, "loss_adds": None, "scaled_squares_added": 36.0}, 36, True),
        ({"square_weight": None, "loss_adds": None, "scaled_squares_added": 7.0}, 36, False),
    ],
)
def test_an_evaluation_may_have_the_mean_of_squares_that_the_training_adds_up(
    name: str, watched: dict[str, float | None], over: float, told: bool, each: int
) -> None:
    known = {"square_weight": 36.0, "backwards": 1.0, "loss_adds": 1.0} | watched
    begins = int(known.pop("begins", 1) or 1)
    sums = {f"model/{name}": (np.array([begins]), np.array([value])) for name, value in known.items() if value}
    columns = beside("fit/loss", name, FALLS[AT] / over) | SEEN | sums
    assert played(columns, each)[0] == (name if told else None)


def test_what_is_told_by_its_rows_has_its_accuracy_beside_it_and_begins_rules_anew() -> None:
    right = np.linspace(0.3, 0.9, len(AT))
    columns = beside("fit/loss", "review/loss", FALLS[AT] + 0.2, accuracy=right, recall=right)
    for each, again in ((1, {"eval_loss", "eval_accuracy"}), (STEPS, set())):
        evaluation, accuracy, changed = played(columns, each)
        assert (evaluation, accuracy) == ("review/loss", "review/accuracy")
        assert changed == again, "rules that looked before, and they alone, must look again"


@pytest.mark.parametrize("each", [1, 7, STEPS])
@pytest.mark.parametrize(
    ("loss", "name", "measure", "told"),
    [
        ("train/loss", "gallery/ce", "acc1", True),
        ("fit/weighted_loss", "survey/ce", "macro_f1", True),
        ("train/loss", "gallery/ce", "seconds", False),  # nothing says how good answers are
        ("train/loss", "gen/ce", "acc1", False),  # of a player
    ],
)
def test_a_loss_under_a_name_of_its_own_is_told_by_the_measures_beside_it(
    loss: str, name: str, measure: str, told: bool, each: int
) -> None:
    columns = beside(loss, name, FALLS[AT] + 0.2, **{measure: np.linspace(0.3, 0.9, len(AT))})
    assert played(columns, each)[0] == (name if told else None)


@pytest.mark.parametrize("each", [1, 7, STEPS])
@pytest.mark.parametrize(
    ("name", "seen", "told"),
    [
        ("quiz/recall@5", True, True),
        ("quiz/recall@5", False, False),
        ("quiz/seconds", True, False),  # a clock is no measure of answers
    ],
)
def test_a_measure_where_the_watch_has_seen_evaluations_is_one(name: str, seen: bool, told: bool, each: int) -> None:
    history = RunHistory()
    columns = {"fit/weighted_loss": (np.arange(STEPS), FALLS), name: (AT, np.linspace(0.3, 0.9, len(AT)))}
    for low in range(0, STEPS, each):
        for one, (steps, values) in (columns | (SEEN if seen else {})).items():
            some = (steps >= low) & (steps < low + each)
            if some.any():
                history.add(one, steps[some], values[some], steps[some] * 1_000_000 + 1, steps[some] * 0 + 1)
        found = evaluations_of(history)
    assert (found.name if found is not None else None) == (name if told else None)


@pytest.mark.parametrize("each", [1, STEPS])
def test_a_word_of_a_loss_goes_before_one_that_says_nothing(each: int) -> None:
    columns = beside("fit/weighted_loss", "patrol/surprise", FALLS[AT] + 0.1) | {"recall/nats": (AT, FALLS[AT] + 0.4)}
    assert played(columns | SEEN, each)[0] == "recall/nats"


def test_a_name_that_is_known_goes_before_rows_that_look_like_a_loss() -> None:
    columns = beside("train/loss", "val/masses", FALLS[AT] + 0.1) | {"val/loss": (AT[3:], FALLS[AT[3:]] + 0.3)}
    assert [played(columns, each)[0] for each in (1, 20, STEPS)] == ["val/loss"] * 3


def test_the_nearest_of_two_that_came_together_is_told() -> None:
    columns = beside("train/loss", "val/masses", FALLS[AT] * 2.5) | {"val/charges": (AT, FALLS[AT] + 0.05)}
    assert {played(columns, each)[0] for each in (1, 13, STEPS)} == {"val/charges"}


@pytest.mark.parametrize(
    ("name", "may"),
    [("val/masses", True), ("eval/spans", True), ("val/f1", False), ("eval/samples_per_second", False),
     ("test/wer", False), ("val/loss", False), ("train/masses", False), ("validity", False),
     ("eval/spread", False), ("val/deviation", False), ("val/shadow_gap", False), ("eval/spreads_of_butter", True),
     ("model/eval_input_mean", False), ("goodput/eval_share", False)],
)  # fmt: skip
def test_only_a_name_that_says_nothing_of_another_measure_may_be_a_loss(name: str, may: bool) -> None:
    assert is_unnamed_evaluation(name) == may


@pytest.mark.parametrize(
    ("name", "loss", "may"),
    [("review/loss", "fit/loss", True), ("loss/review", "loss/fit", True), ("aux/loss", "train/loss", False),
     ("bits/heldout", "bits/train", True), ("acc/heldout", "bits/train", False), ("bits/herb", "bits/train", False),
     ("d/loss", "g/loss", False), ("epoch/loss", "batch/loss", False), ("loss", "fit/loss", False),
     ("fit/loss", "fit/loss", False), ("review/norm", "fit/norm", False), ("game_val/bits", "game/bits", True),
     ("val/shadow_eps_l2", "train/eps_l2", True),
     ("val/eps_l2_ema", "train/eps_l2", True), ("val/shadow_gap", "train/eps_l2", False),
     ("align_held/infonce", "align/infonce", True), ("lm_dev/nats", "lm/nats", True),
     ("q_val/bits", "game/bits", False), ("game_value/bits", "game/bits", False),
     ("game_val/moves", "game/bits", False)],
)  # fmt: skip
def test_a_loss_of_other_data_is_called_as_that_of_the_training_but_for_one_word(
    name: str, loss: str, may: bool
) -> None:
    assert is_loss_of_other_data(name, loss) == may


@pytest.mark.parametrize(
    ("name", "held_out"),
    [("val/f1", True), ("eval/rouge_l", True), ("f1/val", True), ("test recall", True), ("check/accuracy", True),
     ("held/edm", True), ("held_edm", True), ("withheld/edm", False), ("held/seconds", False),
     ("val/seconds", False), ("eval_every", False), ("train/f1", False), ("model/evaluated_rows", False),
     ("evaluated", False), ("f1", False)],
)  # fmt: skip
def test_what_is_measured_on_data_held_out_is_an_evaluation_whatever_it_measures(name: str, held_out: bool) -> None:
    assert is_of_held_out(name) == held_out
    seen = RunHistory()
    seen.add(name, np.arange(3), np.ones(3), np.arange(3) * 1_000 + 1, np.ones(3, int))
    found = evaluations_of(seen)
    assert (found is not None and found.name == name) == held_out


def told_as_loss(values: np.ndarray, at: np.ndarray, each: int, **others: np.ndarray) -> tuple[str | None, set[str]]:
    """Which series is the loss, asked behind so many steps each, where passes were called with `FALLS`; roles that
    changed. What was given of a step comes behind the next one's rows, as the watch has it."""
    seen, changed, found = RunHistory(), set(), None
    looked = np.array([one for one in range(STEPS) if one < 6 or one % 20 in (0, 19)])
    columns = {"match/nce": (at, values)} | {f"match/{name}": (np.arange(STEPS), some) for name, some in others.items()}
    for low in range(0, STEPS, each):
        for name, (steps, numbers) in [*columns.items(), ("model/loss_given", (looked + 1, FALLS[looked]))]:
            behind = name.startswith("model/")
            some = (steps >= low) & (steps < low + each)
            if some.any():
                seen.add(name, steps[some] - behind, numbers[some], steps[some] * 1_000_000 + 1, steps[some] * 0 + 1)
        found = seen.role("loss")
        changed |= seen.played.replaced()
    return (found.name if found is not None else None), changed


EVERY_STEP = np.arange(STEPS)


@pytest.mark.parametrize("each", [1, 7, 50, STEPS])
@pytest.mark.parametrize(
    ("values", "at", "told"),
    [
        (FALLS, EVERY_STEP, True),
        (FALLS / 4, EVERY_STEP, True),  # parts of a step that were not divided
        (FALLS[::10], EVERY_STEP[::10], True),
        (FALLS[9::10], EVERY_STEP[9::10], True),  # counted from 1
        (FALLS / 2.0 ** (EVERY_STEP // 30), EVERY_STEP, True),  # a scaler doubles what passes are called with
        (FALLS[19::20] / 2.0 ** np.arange(10), EVERY_STEP[19::20], True),
        (FALLS / 1.02 ** (EVERY_STEP // 2), EVERY_STEP, False),
        (np.where(EVERY_STEP < 2, FALLS / 2, FALLS), EVERY_STEP, True),  # a scale of the loss that falls at first
        (np.roll(FALLS, 1), EVERY_STEP, False),  # of another step
        (FALLS - 0.2, EVERY_STEP, False),  # a part of it
        (-FALLS, EVERY_STEP, False),  # what is maximised
        (np.exp(FALLS), EVERY_STEP, False),
        (np.linspace(1e-3, 1e-4, STEPS), EVERY_STEP, False),
    ],
)
def test_a_training_s_loss_of_any_name_is_what_its_passes_were_called_with(
    values: np.ndarray, at: np.ndarray, told: bool, each: int
) -> None:
    found, changed = told_as_loss(values, at, each, rate=np.linspace(1e-3, 1e-4, STEPS))
    assert found == ("match/nce" if told else None)
    assert changed <= ({"loss"} if told and each < STEPS else set())
    assert not told or each > 1 or changed, "rules that looked before must look again"


def test_of_a_policy_no_loss_is_told_by_its_rows_and_a_name_goes_before_them() -> None:
    assert told_as_loss(FALLS, EVERY_STEP, STEPS, reward=FALLS)[0] is None
    assert told_as_loss(FALLS, EVERY_STEP, STEPS, loss=FALLS + 0.3)[0] == "match/loss"
    assert told_as_loss(FALLS * 2, EVERY_STEP, STEPS, whole=FALLS)[0] == "match/whole", "the nearest multiple"


def test_what_passes_are_called_with_tells_no_loss_where_it_hardly_changes() -> None:
    seen, steps = RunHistory(), np.arange(40)
    for name in ("match/share", "model/loss_given"):
        seen.add(name, steps, np.full(40, 0.5), steps * 1_000_000 + 1, steps * 0 + 1)
    assert seen.role("loss") is None


@pytest.mark.parametrize("each", [1, 9, STEPS])
def test_a_rule_that_lacked_a_loss_looks_from_the_first_row_on_when_one_is_told(each: int) -> None:
    examiner = Examiner([ModelMode()])
    given = np.array([*range(6), *range(20, STEPS, 20)])
    columns = {"match/nce": (EVERY_STEP, FALLS), "model/loss_given": (given, FALLS[given]),
               "model/training": (np.array([0]), np.zeros(1))}  # fmt: skip
    for low in range(0, STEPS, each):
        for name, (steps, values) in columns.items():
            some = (steps >= low) & (steps < low + each)
            if some.any():
                examiner.seen.add(name, steps[some], values[some], steps[some] * 1_000_000 + 1, steps[some] * 0 + 1)
        examiner.examine()
    examiner.catch_up()
    assert [(finding.rule, finding.step) for finding in examiner.findings] == [("model_mode", 0)]


@pytest.mark.parametrize(
    ("loss", "name", "told"),
    [
        ("v/step", "averaged/v", True),  # the word ahead of each step's
        ("v/scale", "averaged/v", False),
        ("v/step", "averaged/seconds", False),
        ("sort.loss", "judged.loss", True),
        ("sort.loss", "sort.rate", False),
        ("sort.loss", "judged.recall", False),
        ("nll/train", "nll/audit", True),  # the word ahead of that for the data
        ("ce_train", "ce_quiz", True),
        ("info_nce/fit", "info_nce/gallery", True),
        ("nll/train", "nll/epoch", False),
        ("nll/train", "nll/entropy", False),
        ("nll/train", "nll/acc", False),
        ("nll/words", "nll/counts", False),
        ("mix/train", "mix/audit", False),
    ],
)
def test_words_of_both_names_tell_what_may_be_a_loss(loss: str, name: str, told: bool) -> None:
    assert is_loss_by_word(name, loss) == told


@pytest.mark.parametrize("each", [1, 50, STEPS])
@pytest.mark.parametrize(("times", "told"), [(20 / 3, False), (6.0 + np.linspace(0, 1, len(AT)), True)])
def test_a_measure_in_another_unit_than_one_beside_it_is_no_loss(times: float, told: bool, each: int) -> None:
    recall = np.linspace(0.2, 0.5, len(AT))
    columns = beside("train/loss", "valid/benefit", recall * times)
    columns["valid/recall@20"] = (AT, recall)
    assert played(columns, each)[0] == ("valid/benefit" if told else None)
