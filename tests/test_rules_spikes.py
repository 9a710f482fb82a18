"""Spikes of the loss: which are worth a warning, and what looks like one."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import falling, found
from test_rules_loss import look

from barograph.doctor.rules.loss.loss import RULES


@pytest.mark.parametrize("lift", [1.25, 1.5, 1.9])
@pytest.mark.parametrize(("rows", "step"), [(60, 100), (400, 1), (3000, 1)])
def test_a_bad_batch_is_seen_at_its_step(lift: float, rows: int, step: int) -> None:
    loss = falling(rows)
    bad = int(0.7 * rows)
    loss[bad] *= lift
    spikes = [one for one in look(loss, step=step) if one.rule == "loss_spike"]
    assert [one.step for one in spikes] == [bad * step]
    assert spikes[0].severity == "info" and spikes[0].evidence["course"] == "fast"
    assert abs(spikes[0].evidence["lift"] - lift) < 0.1


def test_a_spike_over_rows_or_with_the_gradient_is_a_warning() -> None:
    loss, norm = falling(800), np.random.default_rng(1).normal(1, 0.05, 800)
    loss[500:503] *= 1.7
    assert [one.severity for one in look(loss) if one.rule == "loss_spike"] == ["warning"]
    loss = falling(800)
    loss[500] *= 1.6
    norm[500] = 20.0
    finding = next(one for one in look(loss, norm=norm) if one.rule == "loss_spike")
    assert finding.severity == "warning" and finding.evidence["with_gradient_spike"]
    assert any("Clip" in one for one in finding.remedies)


@pytest.mark.parametrize(("last", "stays"), [(40, True), (16, True), (5, False)])
def test_a_loss_that_jumps_late_and_stays_is_a_level_and_not_a_bad_batch(last: int, stays: bool) -> None:
    loss = falling(600)
    loss[-last:] *= 1.6
    (finding,) = (one for one in look(loss) if one.rule == "loss_spike")
    assert finding.step == 600 - last and (finding.evidence["course"] == "not") is stays
    assert (finding.severity == "warning" and "Compare data" in finding.remedies[0]) or not stays
    assert finding.causes[0].startswith("labels" if stays else "bad batch")


@pytest.mark.parametrize(("before", "severity"), [(0, "warning"), (2, "warning"), (3, "info"), (4, "info")])
def test_a_rise_that_came_and_went_three_times_before_is_what_this_loss_does(before: int, severity: str) -> None:
    loss = falling(600, start=4, end=3)
    for row in [300 - 12 * nth for nth in range(1, before + 1)]:
        loss[row] *= 1.9
    loss[300:304] *= 2
    findings = [one for one in look(loss) if one.rule == "loss_spike" and one.step == 300]
    assert [one.severity for one in findings] == [severity]


@pytest.mark.parametrize(
    ("level", "peak", "severity"),
    [(2e-4, 0.01, "info"), (2e-4, 0.05, "warning"), (2e-3, 0.01, "warning")],
)
def test_a_jump_from_next_to_nothing_to_little_is_what_an_optimizer_does(
    level: float, peak: float, severity: str
) -> None:
    noise = np.exp(np.random.default_rng(3).normal(0, 0.05, 600))
    loss = np.maximum(np.exp(-np.arange(600) / 10), level) * noise
    loss[400:430] = level + (peak - level) * np.exp(-np.arange(30) / 5)
    (one,) = (each for each in look(loss) if each.rule == "loss_spike" and each.step >= 390)
    assert (one.severity, one.evidence["course"]) == (severity, "fast")


def test_a_loss_that_does_not_come_back_is_a_warning_that_says_so() -> None:
    loss = falling(1000)
    loss[600:] *= 1.5
    finding = next(one for one in look(loss) if one.rule == "loss_spike")
    assert (finding.severity, finding.step, finding.evidence["course"]) == ("warning", 600, "not")
    assert finding.causes[0].startswith("labels shuffled")  # it was there from one row to the next


@pytest.mark.parametrize(("fading", "severity"), [(110, "warning"), (60, "info")])
def test_a_jump_that_takes_a_hundred_rows_to_come_back_is_a_warning(fading: int, severity: str) -> None:
    loss = falling(1000, noise=0.02)
    loss[600:] *= 1 + 0.28 * np.exp(-np.arange(400) / fading)
    (one,) = (each for each in look(loss) if each.rule == "loss_spike")
    assert (one.severity, one.evidence["course"]) == (severity, "slow") and abs(one.step - 600) <= 1


def test_a_loss_that_climbs_row_by_row_and_stays_up_accuses_the_learning_rate() -> None:
    loss = falling(1000)
    loss[600:] *= 1 + 1.5 * np.clip(np.arange(400) / 8, 0, 1)
    finding = next(one for one in look(loss) if one.rule == "loss_spike" and one.evidence["course"] == "not")
    assert finding.causes[0].startswith("learning rate too high")


def test_a_loss_that_comes_back_over_many_rows_has_learnt_other_targets() -> None:
    loss = falling(1000)
    loss[600:] *= 1 + np.exp(-np.arange(400) / 8)
    finding = next(one for one in look(loss) if one.rule == "loss_spike")
    assert finding.evidence["course"] == "fast" and finding.causes[0].startswith("labels shifted")
    loss = falling(1000)
    loss[600:603] *= 3
    assert next(one for one in look(loss) if one.rule == "loss_spike").causes[0].startswith("bad batch")


def test_small_bumps_are_silent() -> None:
    loss = falling(2000)
    loss[[700, 1200]] *= 1.1
    assert look(loss) == []


def test_ten_times_the_average_warns_and_a_hundred_times_stops() -> None:
    loss = np.full(50, 2.0) + np.arange(50) * 1e-3
    loss[30:] = 25.0 + np.arange(20) * 1e-3
    level = [one for one in look(loss) if one.rule == "loss_level"]
    assert [(one.severity, one.step) for one in level] == [("warning", 30)]
    loss[30:] = 300.0 + np.arange(20)
    assert [one.severity for one in look(loss) if one.rule == "loss_level"] == ["critical"]


def test_the_spike_score_counts_rows_far_off() -> None:
    loss = falling(4000, end=3.0)
    loss[[2500, 3000, 3100, 3300, 3600]] *= 4
    score = next(one for one in look(loss) if one.rule == "spike_score")
    assert score.severity == "info" and score.evidence["spikes"] == 5


def test_a_spike_of_a_log_with_a_line_now_and_then_is_worth_a_look_earlier() -> None:
    loss = falling(48, noise=0.02, end=6.0)
    loss[40] *= 5
    severities = {
        every: next(
            one.severity
            for one in found([rule() for rule in RULES], {"train/loss": (np.arange(48) * every, loss)})
            if one.rule == "loss_spike"
        )
        for every in (1, 5)
    }
    assert severities == {1: "info", 5: "warning"}


@pytest.mark.parametrize(
    ("peak", "targets", "severity"), [(0.36, 32, "info"), (3.0, 32, "warning"), (0.36, 4096, "warning")]
)
def test_a_spike_that_few_wrong_guesses_make_is_worth_knowing_alone(peak: float, targets: int, severity: str) -> None:
    dice = np.random.default_rng(5)
    loss = 1.4 * np.exp(-np.arange(240) / 30) + 0.06 * np.exp(dice.normal(0, 0.1, 240))
    loss[180] = peak
    series = {
        "train/loss": (np.arange(240), loss),
        "model/targets": (np.arange(1, 240, 10), np.full(24, float(targets))),
    }
    spikes = [one for one in found([rule() for rule in RULES], series) if one.rule == "loss_spike"]
    assert [one.severity for one in spikes] == [severity]


@pytest.mark.parametrize(
    ("level", "peak", "rows", "severity"),
    [
        (0.06, 0.36, 24, "info"),  # one text of them is of a sort that the model gets wrong
        (0.06, 3.0, 24, "warning"),  # a batch of other labels
        (0.06, 0.36, 512, "warning"),
        (0.5, 3.0, 24, "warning"),  # little is learnt: each target costs about as much
    ],
)
def test_the_targets_of_a_text_that_is_got_wrong_are_wrong_together(
    level: float, peak: float, rows: int, severity: str
) -> None:
    loss = 1.4 * np.exp(-np.arange(240) / 30) + level * np.exp(np.random.default_rng(5).normal(0, 0.1, 240))
    loss[180], looks = peak, np.arange(1, 240, 10)
    series = {"train/loss": (np.arange(240), loss), "model/targets": (looks, np.full(24, 18.0 * rows)),
              "model/example_rows": (looks, np.full(24, float(rows)))}  # fmt: skip
    spikes = [one for one in found([rule() for rule in RULES], series) if one.rule == "loss_spike"]
    assert [one.severity for one in spikes] == [severity]


@pytest.mark.parametrize(("changes", "severity"), [(40, "info"), (3, "warning")])
def test_a_spike_of_a_training_whose_layers_are_left_out_by_chance_is_worth_knowing_alone(
    changes: int, severity: str
) -> None:
    loss = 1.4 * np.exp(-np.arange(240) / 30) + 0.5 * np.exp(np.random.default_rng(5).normal(0, 0.1, 240))
    loss[180] = 3.0
    series = {
        "train/loss": (np.arange(240), loss),
        "model/left_out": (180 - np.arange(changes)[::-1] * 3, np.arange(changes) % 3.0),
    }
    spikes = [one for one in found([rule() for rule in RULES], series) if one.rule == "loss_spike"]
    assert [one.severity for one in spikes] == [severity]


@pytest.mark.parametrize(
    ("level", "rows", "config", "severity"),
    [
        (0.06, 24, {}, "info"), (0.3, 24, {}, "warning"), (0.06, 0, {}, "warning"),
        (0.06, 0, {"batch_size": 24}, "info"), (0.06, 0, {"batch_size": 512}, "warning"),
        (0.3, 0, {"batch_size": 24}, "warning"),
    ],
)  # fmt: skip
def test_a_spike_of_a_loss_of_several_parts_is_of_as_many_targets_as_rows(
    level: float, rows: int, config: dict, severity: str
) -> None:
    loss = 1.4 * np.exp(-np.arange(240) / 30) + level * np.exp(np.random.default_rng(5).normal(0, 0.1, 240))
    loss[180] = 5 * level
    series = {"train/loss": (np.arange(240), loss)}
    if rows:
        series["model/example_rows"] = (np.arange(1, 240, 10), np.full(24, float(rows)))
    spikes = [one for one in found([rule() for rule in RULES], series, config=config) if one.rule == "loss_spike"]
    assert [one.severity for one in spikes] == [severity]


@pytest.mark.parametrize(
    ("ends", "rows", "severity"), [(0.9, 1, "info"), (0.9, 2, "warning"), (3.0, 1, "warning"), (None, 1, "warning")]
)
def test_one_row_far_above_with_which_a_run_ends_is_a_batch_where_the_evaluation_holds(
    ends: float | None, rows: int, severity: str
) -> None:
    loss = np.r_[falling(120), np.full(rows, 60.0)]
    last = len(loss) - rows
    series = {"train/loss": (np.arange(len(loss)), loss)}
    if ends is not None:
        series["eval/loss"] = (np.array([40, 80, last]), np.array([1.4, 1.0, ends]))
    level = [one for one in found([rule() for rule in RULES], series) if one.rule == "loss_level"]
    assert [one.severity for one in level] == [severity]


@pytest.mark.parametrize(("first", "said"), [(0, False), (30, True)])
def test_a_training_that_begins_anew_has_an_average_of_its_own(first: int, said: bool) -> None:
    loss = np.r_[np.full(60, 0.01), np.full(6, 2.5)]
    steps = np.r_[np.arange(60), np.arange(first, first + 6)]
    findings = found([rule() for rule in RULES], {"train/loss": (steps, loss)})
    assert [one.rule for one in findings if one.rule == "loss_level"] == ["loss_level"] * said


@pytest.mark.parametrize(
    ("within", "length", "severity"),
    [(0.1, 2.5, "info"), (0.1, 12, "info"), (0.1, 7, "warning"), (4.0, 2.5, "warning"), (None, 2.5, "warning")],
)
def test_a_batch_of_the_shortest_texts_is_one_of_several_sorts_where_batches_are_grouped_by_length(
    within: float | None, length: float, severity: str
) -> None:
    loss = falling(600)
    loss[400] *= 3.5
    mean = np.random.default_rng(3).integers(3, 12, 600).astype(float)
    mean[400] = length
    data = {} if within is None else {"length_mean": mean, "length_std": np.full(600, within)}
    series = {"train/loss": loss} | {f"data/{name}": values for name, values in data.items()}
    findings = found([rule() for rule in RULES], {name: (np.arange(600), values) for name, values in series.items()})
    (finding,) = (one for one in findings if one.rule == "loss_spike")
    assert (finding.step, finding.severity) == (400, severity)
