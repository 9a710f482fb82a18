"""Thresholds say what stands and what is over; a cause is told once, its end if its start was."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from alert_receivers import FakeRun, give
from hypothesis import given
from hypothesis import strategies as some

from barograph.core.options import ConfigError
from barograph.core.record import Record
from barograph.sidecar.alerts.alert import LEVELS, rank
from barograph.sidecar.alerts.alerts import Alerts
from barograph.sidecar.alerts.gate import Gate
from barograph.sidecar.alerts.options import OPTIONS, read_routes, read_threshold, read_thresholds
from barograph.sidecar.alerts.thresholds import Normal, Watched
from barograph.sidecar.alerts.watching import Watching

DOCS = Path(__file__).parents[1] / "docs" / "guides" / "alerts.md"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def answers(values: list[float], **options: Any) -> list[str]:
    watched = Watched(read_threshold({"metric": "m"} | options, "here"), "m", 0.0)
    return [watched.see(value, step, 0.0) for step, value in enumerate(values)]


def step(number: int, loss: float) -> Record:
    return Record("step", 0, number, {"loss": loss, "norm": 1.0})


# -- conditions -----------------------------------------------------------------------------------------------


def test_a_condition_must_hold_for_so_many_rows_and_then_not_hold_for_as_many() -> None:
    found = answers([11, 11, 1, 11, 11, 11, 11, 1, 11, 1, 1, 1], above=10, rows=3)
    assert found == ["quiet"] * 5 + ["stands"] * 2 + ["quiet", "stands"] + ["quiet"] * 2 + ["over"]


def test_the_first_rows_do_not_count_where_that_is_asked_for() -> None:
    assert answers([11, 11, 11, 1], above=10, after=2) == ["quiet", "quiet", "stands", "over"]


def test_a_band_is_left_on_both_sides() -> None:
    assert answers([5, 11, 5, 0, 5], above=10, below=1) == ["quiet", "stands", "over", "stands", "over"]


def test_nan_is_no_breach_and_no_recovery_but_of_not_finite() -> None:
    nan, inf = math.nan, math.inf
    assert answers([nan, 11, nan, 1], above=10) == ["quiet", "stands", "quiet", "over"]
    assert answers([inf, 1], above=10) == ["stands", "over"]
    assert answers([1, nan, inf, 1], not_finite=True) == ["quiet", "stands", "stands", "over"]


def test_a_drop_is_relative_to_what_was_usual_before_it() -> None:
    usual = [100.0, 102.0, 98.0, 100.0, 101.0]
    assert answers([*usual, 80, 69, 65, 99], change="-30%", window=5) == ["quiet"] * 6 + ["stands"] * 2 + ["over"]
    assert answers([*usual, 140, 149, 155], change=0.5, window=5) == ["quiet"] * 7 + ["stands"]
    assert answers([-1.0] * 5 + [-1.6], change=-0.5, window=5)[-1] == "stands"


def test_a_new_level_that_lasts_as_long_as_the_window_is_the_usual_one() -> None:
    found = answers([100.0] * 5 + [50.0] * 6 + [20.0], change=-0.3, window=5)
    assert found == ["quiet"] * 5 + ["stands"] * 4 + ["settled", "quiet", "stands"]


@given(some.lists(some.floats(-1e6, 1e6), min_size=1, max_size=60), some.integers(2, 9))
def test_the_usual_value_is_the_median_of_the_last_window(values: list[float], window: int) -> None:
    from statistics import median

    normal = Normal(window)
    for number, value in enumerate(values, 1):
        normal.add(value)
        if number < window:
            assert math.isnan(normal.median)
        else:
            assert normal.median == pytest.approx(median(values[max(0, number - window) : number]))


# -- once a cause ---------------------------------------------------------------------------------------------

EVENTS = some.lists(
    some.tuples(some.sampled_from("ab"), some.sampled_from([*LEVELS, "over"]), some.floats(0, 50)), max_size=80
)


@given(EVENTS, some.floats(0, 100))
def test_whatever_happens_a_cause_is_told_once_and_not_again_before_its_cool_down(
    events: list[tuple[str, str, float]], cooldown: float
) -> None:
    gate, now = Gate(), 0.0
    standing: dict[str, int] = {}  # cause → level told since it began
    last: dict[str, tuple[float, int]] = {}
    for cause, what, later in events:
        now += later
        if what == "over":
            told = gate.over(cause)
            assert told == (cause in standing), "an end is told exactly where the beginning was"
            standing.pop(cause, None)
            continue
        tell, grave = gate.stands(cause, what, now, cooldown), rank(what)
        before = standing.get(cause, -1)
        cold = cause not in last or now - last[cause][0] >= cooldown or grave > last[cause][1]
        assert tell == (grave > before and (before >= 0 or cold))
        if tell:
            standing[cause], last[cause] = grave, (now, grave)


@given(some.lists(some.tuples(some.booleans(), some.floats(0, 30)), max_size=80), some.floats(1, 100))
def test_alerts_and_their_ends_alternate_and_alerts_keep_their_distance(
    rows: list[tuple[bool, float]], cooldown: float
) -> None:
    clock = Clock()
    run = FakeRun(Path("/nowhere"))
    alerts = Alerts(run)
    alerts.add("train/loss", above=10, cooldown=cooldown)
    told: list[tuple[float, bool]] = []
    for number, (breach, later) in enumerate(rows):
        clock.now += later
        alerts.tick(clock.now)
        give(alerts, step(number, 11.0 if breach else 1.0))
        alerts.settle(False)
        for _, _, fields in run.records:
            told.append((clock.now, bool(fields.get("recovered"))))
        run.records.clear()
    assert [recovered for _, recovered in told] == [bool(at % 2) for at in range(len(told))]
    starts = [moment for moment, recovered in told if not recovered]
    assert all(after - before >= cooldown for before, after in pairwise(starts))


def test_a_trouble_that_outlives_the_cool_down_is_told_then() -> None:
    clock, run = Clock(), FakeRun(Path("/nowhere"))
    alerts = Alerts(run)
    alerts.add("train/loss", above=10, cooldown=100)
    for number, (loss, seconds) in enumerate([(11, 0), (1, 10), (11, 10), (11, 70), (11, 20), (11, 500)]):
        clock.now += seconds
        alerts.tick(clock.now)
        give(alerts, step(number, loss))
        alerts.settle(False)
    assert [(at, bool(fields.get("recovered"))) for _, at, fields in run.records] == [(0, False), (1, True), (4, False)]
    assert "since step 2" in run.records[-1][2]["text"]


def test_a_metric_that_is_missing_is_told_once_and_its_return_too() -> None:
    clock, run = Clock(), FakeRun(Path("/nowhere"))
    alerts = Alerts(run)
    alerts.add("train/loss", missing=60)
    for number in range(5):
        clock.now += 50
        alerts.tick(clock.now)
        give(alerts, step(number, 1.0))
        alerts.settle(False)
    assert not run.records
    for _ in range(5):
        clock.now += 50
        alerts.tick(clock.now)
    give(alerts, step(9, 1.5))
    alerts.settle(False)
    first, second = [fields for _, _, fields in run.records]
    assert first["text"] == "train/loss has had no value for 60 s" and "value" not in first
    assert second["recovered"] and second["value"] == 1.5


def test_recovery_is_silent_where_that_is_asked_for() -> None:
    run = FakeRun(Path("/nowhere"), alert_recovery=False)
    alerts = Alerts(run)
    alerts.add("train/loss", above=10)
    for number, loss in enumerate([11.0, 1.0]):
        give(alerts, step(number, loss))
    alerts.settle(False)
    assert len(run.records) == 1


def test_the_same_words_are_sent_once_in_a_cool_down_and_graver_ones_at_once() -> None:
    clock, run = Clock(), FakeRun(Path("/nowhere"))
    alerts = Alerts(run)
    assert [alerts.send("a"), alerts.send("a"), alerts.send("b"), alerts.send("a", level="critical")] == [
        True, False, True, True,
    ]  # fmt: skip
    alerts.tick(clock.now + 601)
    assert alerts.send("a")
    assert alerts.send("odd", level="louder")
    assert run.records[-1][2]["level"] == "warning" and "louder" in run.warnings[0]


# -- names ----------------------------------------------------------------------------------------------------


def test_a_pattern_watches_each_metric_by_itself() -> None:
    run = FakeRun(Path("/nowhere"))
    alerts = Alerts(run)
    alerts.add("gpu/*/temperature", above=90)
    for device, heat in ((0, 95), (1, 50), (2, 96), (0, 97)):
        give(alerts, Record("gpu", 0, 1, {"id": device, "temperature": heat}))
    alerts.settle(False)
    assert [fields["metric"] for _, _, fields in run.records] == ["gpu/0/temperature", "gpu/2/temperature"]


def test_a_name_with_signs_of_a_pattern_is_also_that_very_name() -> None:
    watching = Watching()
    watching.add(read_threshold({"metric": "loss[a]", "above": 1}, "here"), 0.0)
    found = watching.take(("loss[a]", "lossa"), (2.0, 3.0), 0, 0.0)
    assert [watched.name for watched, _ in found] == ["loss[a]", "lossa"]


def test_rows_of_layers_are_watched_too() -> None:
    watching = Watching()
    watching.add(read_threshold({"metric": "gradients/*/norm", "above": 5}, "here"), 0.0)
    names = ("gradients/a/norm", "gradients/a/std", "gradients/b/norm")
    for at, values in enumerate(((1.0, 9.0, 1.0), (1.0, 9.0, 7.0))):
        found = watching.take(names, values, at, 0.0)
        assert [watched.name for watched, _ in found] == ([] if at == 0 else ["gradients/b/norm"])


@pytest.mark.parametrize(
    ("metric", "logged"), [("grad_norm", "train/norm"), ("val_loss", "eval/loss"), ("learning_rate", "train/lr")]
)
def test_a_metric_that_is_logged_under_another_name_is_watched_from_the_hundredth_row(metric: str, logged: str) -> None:
    watching = Watching()
    watching.add(read_threshold({"metric": metric, "above": 10, "for": 2}, "here"), 0.0)
    found = [watching.take(("other", logged), (0.0, 50.0), at, 0.0) for at in range(120)]
    assert next(at for at, answers in enumerate(found) if answers) == 100
    assert [sentence for _, sentence in watching.doubts()] == [
        f"the alert on {metric!r} has seen no value; it watches {logged!r} from here on"
    ]


def test_a_metric_that_nobody_logs_is_told_of_with_its_neighbour() -> None:
    run = FakeRun(Path("/nowhere"))
    alerts = Alerts(run)
    alerts.add("train/los", above=10)
    alerts.add("eval/loss", above=10)
    for number in range(100):
        give(alerts, step(number, 1.0))
    alerts.settle(False)
    assert list(run.warnings) == ["the alert on 'train/los' has seen no value yet; is 'train/loss' meant?"]


def test_invented_names_do_not_grow_a_pattern_for_ever() -> None:
    run = FakeRun(Path("/nowhere"))
    alerts = Alerts(run)
    alerts.add("*", above=10)
    for number in range(3000):
        give(alerts, Record("metrics", 0, number, {f"name{number}": 1.0}))
    alerts.settle(False)
    ((_, _, watched),) = alerts._watching._entries
    assert len(watched) == 1000
    assert "more than 1000 metrics" in run.warnings[0]


# -- entries --------------------------------------------------------------------------------------------------


def test_an_entry_of_yaml_and_one_of_text_say_the_same() -> None:
    import yaml

    read = yaml.safe_load("[{metric: train/loss, above: 1e1, for: 5}, 'train/loss > 10 for 5']")
    one, two = read_thresholds(read)
    assert one == two and one.rows == 5 and one.above == 10.0 and one.severity == "warning"
    full = read_threshold(
        {"metric": " a ", "change": "+50%", "window": 9, "rows": 2, "after": 3, "severity": "CRITICAL",
         "title": "x\ny", "notify": "json://h", "cooldown": 5}, "here",
    )  # fmt: skip
    assert (full.metric, full.change, full.severity, full.title) == ("a", 0.5, "critical", "x y")
    assert full.notify == (("json://h", "info"),) and full.cooldown == 5.0


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"metric": "a", "abov": 1}, "There is no option 'abov' (in alerts[0]); the nearest one is 'above'."),
        ({"metric": "a", "above": "ten"}, "above is 'ten' in alerts[0], but it accepts a number."),
        ({"metric": "a", "above": math.nan}, "above is nan in alerts[0], but it accepts a number."),
        ({"metric": "a", "above": True}, "above is True in alerts[0], but it accepts a number."),
        ({"above": 1}, "alerts[0] names no metric"),
        ({"metric": "a"}, "alerts[0] has no condition; give one of above, below, change, missing, not_finite."),
        ({"metric": "a", "above": 1, "missing": 3}, "alerts[0] has above and missing; only above and below go"),
        ({"metric": "a", "above": 1, "window": 3}, "alerts[0] has a window, which only change has a use for"),
        ({"metric": "a", "missing": 1, "for": 3}, "alerts[0] has missing, which counts seconds and not rows"),
        ({"metric": "a", "above": 1, "for": 0}, "for is 0 in alerts[0], but it accepts a whole number from 1 to"),
        ({"metric": "a", "above": 1, "severity": "bad"}, "severity is 'bad' in alerts[0], but it accepts one of info"),
        ({"metric": "a", "change": 0}, "change is 0 in alerts[0], but it accepts a share that is not zero"),
        ({"metric": "a", "above": 1, "notify": "slack"}, "notify of alerts[0][0] is ****, but an address begins"),
        ("train/loss is bad", "alerts[0] is 'train/loss is bad', but as text it accepts METRIC > NUMBER"),
        (7, "alerts[0] is 7, but it accepts {metric: train/loss"),
    ],
)
def test_a_wrong_entry_gets_one_clear_sentence(entry: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_thresholds([entry])
    assert str(raised.value).startswith(sentence) and len(str(raised.value).splitlines()) == 1


def test_a_wrong_address_is_not_shown() -> None:
    for entries in (["TOKEN12345"], [{"to": "slack://TOKEN12345", "level": "TOKENTOO://TOKEN12345"}], [7], {"too": 1}):
        with pytest.raises(ConfigError) as raised:
            read_routes(entries)
        assert "TOKEN12345" not in str(raised.value)
    with pytest.raises(ConfigError, match="nearest one is 'to'"):
        read_routes({"too": "x"})


@given(some.recursive(
    some.none() | some.booleans() | some.floats() | some.text(max_size=8) | some.integers(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(
        some.sampled_from([*OPTIONS, "rows", "x"]) | some.text(max_size=3), inner, max_size=4),
    max_leaves=8,
))  # fmt: skip
def test_any_entries_are_read_or_refused_with_a_sentence(entries: Any) -> None:
    for read in (read_thresholds, read_routes):
        try:
            read(entries)
        except ConfigError as error:
            assert len(str(error).splitlines()) == 1 and str(error).endswith(".")


def test_every_option_of_an_entry_is_documented() -> None:
    import re

    text = DOCS.read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", text.split("## Entries")[1].split("\n## ")[0], re.M)) == set(OPTIONS)
