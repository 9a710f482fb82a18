"""The log itself: gaps, steps that go back, clocks, several runs in one file."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from rule_curves import columns, falling, found

from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.rules.run.logging import RULES, ClockSkew


def look(steps: np.ndarray, segments: np.ndarray | None = None):
    segments = np.ones(len(steps), int) if segments is None else segments
    return found([rule() for rule in RULES], {"train/loss": (steps, falling(len(steps)), segments)})


def test_orderly_logs_are_silent() -> None:
    assert look(np.arange(500)) == []
    assert look(np.arange(0, 5000, 100)) == []


def test_missing_rows_are_counted() -> None:
    (finding,) = look(np.concatenate([np.arange(200), np.arange(260, 400)]))
    assert (finding.rule, finding.severity, finding.step, finding.last_step) == ("missing_rows", "info", 199, 260)
    assert finding.evidence == {"gaps": 1, "rows_missing": 60, "spacing": 1}


def test_another_interval_of_logging_is_not_a_gap() -> None:
    assert look(np.concatenate([np.arange(40), np.arange(200, 9000, 200)])) == []
    assert look(np.concatenate([np.arange(40), np.arange(50, 300, 10), np.arange(400, 9000, 100)])) == []
    thinner = np.unique(np.geomspace(1, 90_000, 300).astype(int))  # further and further apart
    assert look(thinner) == []


def test_gaps_count_when_rows_come_as_before() -> None:
    (finding,) = look(np.concatenate([np.arange(40), np.arange(200, 280), np.arange(500, 600)]))
    assert (finding.step, finding.last_step) == (39, 500)
    assert finding.evidence == {"gaps": 2, "rows_missing": 160 + 220, "spacing": 1}
    assert look(np.concatenate([np.arange(40), [200]])) == []  # what follows is not known


def test_steps_that_go_back_or_come_twice_are_told_of() -> None:
    (finding,) = look(np.repeat(np.arange(100), 2))
    assert finding.rule == "steps_go_back" and finding.evidence == {"back": 0, "twice": 100}
    (finding,) = look(np.concatenate([np.arange(100), np.arange(50, 150)]))
    assert finding.evidence == {"back": 1, "twice": 0} and finding.step == 50


def test_a_clock_that_goes_back() -> None:
    seen = RunHistory({"finished": True})
    times = np.arange(100) * 1_000_000
    times[60:] -= 30_000_000
    seen.add("train/loss", np.arange(100), falling(100), times, 1)
    (finding,) = ClockSkew().examine(seen)
    assert (finding.step, finding.evidence["seconds"]) == (60, 29.0)


def test_several_runs_in_one_file() -> None:
    steps = np.tile(np.arange(50), 4)
    found_ones = look(steps, np.repeat([1, 2, 3, 4], 50))
    assert {one.rule for one in found_ones} == {"runs_in_one_file"} and max(
        one.evidence["runs"] for one in found_ones
    ) == 4
    assert look(np.arange(200), np.repeat([1, 2, 3, 4], 50)) == []


@settings(max_examples=60, deadline=None)
@given(columns(("train/loss",)))
def test_pieces_of_any_size_give_the_same_findings_and_nothing_raises(drawn) -> None:
    series, cuts = drawn
    assert found([rule() for rule in RULES], series, cuts) == found([rule() for rule in RULES], series)
