"""The doctor beside a training: the same findings as in replay, in the sidecar's log."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.core.options import load
from barograph.doctor import diagnose
from barograph.doctor.replay import replay
from barograph.sidecar.health import Health
from barograph.sidecar.loop import Sidecar

Rows = list[dict[str, float]]


def curve(steps: int = 400, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    return [
        {
            "loss": 2 + 3 * math.exp(-step / 120) + 0.02 * float(rng.standard_normal()),
            "norm": 1.0 + 0.1 * float(rng.standard_normal()),
            "lr": 1e-3 * min(1, (step + 1) / 40),
        }
        for step in range(steps)
    ]


def train(folder: Path, rows: Rows, **options: Any) -> Sidecar:
    """A run that has ended, and its sidecar, which has read all of it."""
    quiet: dict[str, Any] = {"verbosity": -2, "git": False, "machine": False, "watchdog": False}
    run = barograph.init(project="p", dir=folder, **quiet, **options)
    for step, row in enumerate(rows):
        run.log_step(step, 0.1, 1000, 12.0, row["norm"], row["loss"], row["lr"])
    run.finish()
    return examined(run.dir, **options)


def examined(folder: Path, **options: Any) -> Sidecar:
    options.pop("resume", None), options.pop("strict", None)
    sidecar = Sidecar(folder, load(options))
    sidecar.read()
    if sidecar.health is not None:
        sidecar.health.finish()
    sidecar.journal.close()
    return sidecar


def health_of(sidecar: Sidecar) -> Health:
    assert sidecar.health is not None
    return sidecar.health


def recorded(folder: Path) -> list[dict[str, Any]]:
    (run,) = barograph.runs(folder)
    return [record.fields | {"at": record.step} for record in run.records("finding")]


def spoiled() -> Rows:
    rows = curve()
    for step in range(300, 400):
        rows[step] |= {"loss": math.nan, "norm": math.nan}
    return rows


def test_what_is_found_live_is_what_is_found_in_replay(tmp_path: Path) -> None:
    health = health_of(train(tmp_path, spoiled()))
    live = {one.identity: one for one in health._examiner.findings}
    (stored,) = barograph.runs(tmp_path)
    again = {one.identity: one for one in replay(stored).findings}
    assert live and not health.failed
    assert live == again


def test_a_nan_is_a_record_of_the_log_with_the_step_at_which_it_began(tmp_path: Path) -> None:
    train(tmp_path, spoiled())
    found = [one for one in recorded(tmp_path) if one["severity"] == "critical"]
    assert len(found) == 1 and found[0]["kind"] == "nonfinite" and found[0]["step"] == 300 == found[0]["at"]
    assert found[0]["causes"] and found[0]["remedies"] and found[0]["found"] <= 301
    (stored,) = barograph.runs(tmp_path)
    assert diagnose(stored)["findings"][0]["rule"] == found[0]["rule"]


def watched_log(folder: Path, step: int, late: int, nan_in: str) -> Path:
    """A watched run whose loss is NaN from a step on; what the watch saw of each step comes `late` steps after it."""
    run = barograph.init(project="p", dir=folder, verbosity=-2, git=False, machine=False, watchdog=False, sidecar=False)
    for number, row in enumerate(curve(step + 120)):
        run.log({"loss": math.nan if number >= step else row["loss"], "lr": 1e-3}, step=number)
        seen = number - late
        if seen >= 0:
            run._out.emit("model", seen, {"watch_ms": 0.1} | ({nan_in: 1.0} if seen == step and nan_in else {}))
    run.finish()
    return run.dir


@pytest.mark.parametrize(
    ("nan_in", "late", "rules"),
    [
        ("non_finite_inputs", 4, ["non_finite_input"]),
        ("", 4, ["non_finite_loss"]),
        ("non_finite_inputs", 1000, ["non_finite_loss"]),  # never
    ],
)
def test_a_nan_of_a_watched_run_is_said_once_the_watch_has_seen_its_step(
    tmp_path: Path, nan_in: str, late: int, rules: list[str]
) -> None:
    examined(watched_log(tmp_path, 200, late, nan_in))
    said = [one for one in recorded(tmp_path) if one["severity"] == "critical" and not one.get("merged")]
    assert [one["rule"] for one in said][: len(rules)] == rules and len({one["rule"] for one in said}) == 1
    assert said[0]["step"] == 200 and "NaN since step 200" in said[0]["message"]


def test_a_healthy_run_has_no_finding_that_is_worth_a_look(tmp_path: Path) -> None:
    train(tmp_path, curve())
    assert [one for one in recorded(tmp_path) if one["severity"] != "info"] == []


def test_switched_off_it_does_nothing(tmp_path: Path) -> None:
    assert train(tmp_path, spoiled(), doctor=False).health is None and recorded(tmp_path) == []


def test_a_silenced_rule_says_nothing_and_a_wrong_name_is_said_at_once(tmp_path: Path) -> None:
    train(tmp_path / "a", spoiled(), silence=["non_finite_loss", "non_finite_gradient"])
    assert [one for one in recorded(tmp_path / "a") if one["kind"] == "nonfinite"] == []
    with pytest.raises(barograph.ConfigError, match="non_finite_loss"):
        train(tmp_path / "b", spoiled(), silence=["nonfinite_loss"], strict=True)


def test_a_rule_that_fails_is_named_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from barograph.doctor.rules.loss.loss import RULES

    def fail(*arguments: Any) -> Any:
        raise RuntimeError("broken rule")

    asked = next(rule for rule in reversed(RULES) if rule.needs == ("loss",))  # what it needs is there
    monkeypatch.setattr(asked, "examine", fail)
    assert list(health_of(train(tmp_path, spoiled())).failed) == [asked.name]
    assert [one for one in recorded(tmp_path) if one["severity"] == "critical"]


def test_a_run_that_goes_on_is_examined_with_what_came_before(tmp_path: Path) -> None:
    rows = curve(600)
    folder = tmp_path / "run"
    for low, high in ((0, 300), (300, 600)):
        run = barograph.init(
            project="p", output_dir=folder, verbosity=-2, git=False, machine=False, resume="auto", watchdog=False
        )
        for step in range(low, high):
            row = rows[step]
            run.log_step(step, 0.1, 1000, 12.0, row["norm"], row["loss"], row["lr"])
        run.finish()
    health = health_of(examined(folder))
    loss = health._examiner.seen.role("loss")
    assert loss is not None and loss.end == 600
    assert [one for one in health._examiner.incidents() if one.severity != "info"] == []


def test_a_number_that_is_not_finite_has_all_rules_look_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from barograph.doctor.kernel.examiner import Examiner

    asked: list[bool] = []
    examine = Examiner.examine
    monkeypatch.setattr(Examiner, "examine", lambda self, urgent=False: asked.append(urgent) or examine(self, urgent))
    train(tmp_path, spoiled())
    assert sum(asked) >= 100


def test_rows_of_two_sets_of_names_keep_the_order_of_each_series(tmp_path: Path) -> None:
    run = barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False, machine=False)
    for step in range(200):
        row = {"train/loss": 3.0 - step / 100} | ({"eval/loss": 3.0} if step % 5 == 0 else {})
        run.log(row, step=step)
    run.finish()
    seen = health_of(examined(run.dir))._examiner.seen
    assert seen.channels["train/loss"].rows().step.tolist() == list(range(200))
