"""Searching runs, projects, and the commands around them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from compared_runs import falling, make_run

from barograph.query import curation
from barograph.query.filters import FilterError
from barograph.query.projects import projects
from barograph.query.search import choose, read, search
from barograph.query.stored import StoredRun
from barograph.views.tables import keeping as command

FINDING = {
    "log": "finding",
    "step": 90,
    "rule": "loss_spike",
    "message": "The loss leapt to 9.1",
    "severity": "warning",
}


@pytest.fixture
def runs(tmp_path: Path) -> list[StoredRun]:
    made = [
        make_run(tmp_path, f"run-{at}", falling(1.0, at), project="gpt", steps=20,
                 config={"optimizer": {"lr": 1e-3 * (at + 1), "name": "adamw"}, "warmup": 50},
                 about={"created": f"2026-01-0{at + 1}T00:00:00.000000", "tags": ["sweep"] if at else []})
        for at in range(3)
    ]  # fmt: skip
    made.append(
        make_run(tmp_path, "other", falling(1.0, 9), project="moe", steps=20, records=[FINDING],
                 about={"repo_commit": "c0ffee1234", "status": "failed", "created": "2026-01-09T00:00:00.000000"})
    )  # fmt: skip
    return made


def ids(words: list[str], runs: list[StoredRun]) -> list[str]:
    return [hit.run.id for hit in search(words, runs).hits]


def test_words_are_found_wherever_a_run_has_them(runs: list[StoredRun]) -> None:
    curation.edit(runs[0].dir, name="The Best One", notes="needed a longer Warm-up")
    assert ids(["best"], runs) == ["run-0"]
    assert ids(["WARM-UP"], runs) == ["run-0"]
    assert ids(["sweep"], runs) == ["run-2", "run-1"]
    assert ids(["adamw", "sweep"], runs) == ["run-2", "run-1"]
    assert ids(["c0ffee"], runs) == ["other"]
    assert ids(["leapt"], runs) == ["other"]
    assert ids(["adamw", "leapt"], runs) == []
    assert search(["leapt"], runs).hits[0].found == {"finding": "loss_spike: The loss leapt to 9.1"}
    assert search(["leapt"], runs, findings=False).hits == []


def test_a_name_counts_more_than_a_mention(runs: list[StoredRun]) -> None:
    curation.edit(runs[2].dir, notes="as other, with more data")
    assert ids(["other"], runs) == ["other", "run-2"]


def test_conditions_pairs_and_words_go_together(runs: list[StoredRun]) -> None:
    assert ids(["config.optimizer.lr > 1.5e-3"], runs) == ["run-2", "run-1"]
    assert ids(["config.optimizer.lr", ">", "1.5e-3", "and", "tag", "=", "sweep"], runs) == ["run-2", "run-1"]
    assert ids(["lr=2e-3"], runs) == ["run-1"]
    assert ids(["lr>=2e-3", "run-2"], runs) == ["run-2"]
    assert ids(["status = failed"], runs) == ["other"]
    assert search(["lr=0.002"], runs).hits[0].found == {"config": "optimizer.lr=0.002"}


@pytest.mark.parametrize("words", [["status ="], ["config.lr > "], ["(a = 1"], ["tag = 'open"]])
def test_a_condition_that_can_not_be_read_is_said_to_be(words: list[str]) -> None:
    with pytest.raises(FilterError, match="cannot be read"):
        read(words)


def test_no_word_is_no_search(runs: list[StoredRun]) -> None:
    with pytest.raises(ValueError, match="say what to search for"):
        search([" "], runs)
    assert choose(runs, []) == runs


def test_the_nearest_word_is_named_where_nothing_is_found(runs: list[StoredRun]) -> None:
    assert search(["optimiser"], runs).nearest == "optimizer"
    assert search(["xyzzy"], runs).nearest is None


def test_projects_are_counted(runs: list[StoredRun]) -> None:
    curation.edit(runs[0].dir, archived=True)
    moe, gpt = projects(runs)
    assert (moe.name, moe.runs, moe.failed, moe.newest) == ("moe", 1, 1, "other")
    assert (gpt.name, gpt.runs, gpt.failed, gpt.archived, gpt.newest) == ("gpt", 3, 0, 1, "run-2")


# -- commands -----------------------------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_mark_adds_takes_away_and_tells(runs: list[StoredRun], tmp_path: Path, capsys: Any) -> None:
    where = str(tmp_path)
    assert command.run_mark(["run-1", "run-2"], dir=where, tags=["good"], note="first") == 0
    assert command.run_mark(["run-1"], dir=where, untags=["sweep"], note="second", name="N", pin=True) == 0
    printed(capsys)
    assert command.run_mark(["gpt/run-1"], dir=where, as_json=True) == 0
    (row,) = json.loads(printed(capsys))
    assert (row["tags"], row["notes"], row["name"], row["pinned"], row["archived"]) == (
        ["good"], "first\nsecond", "N", True, False,
    )  # fmt: skip
    command.run_mark(["run-1"], dir=where, clear_notes=True, pin=False)
    assert curation.read(tmp_path / "gpt" / "run-1")["notes"] == ""
    with pytest.raises(ValueError, match="can't have one name"):
        command.run_mark(["run-1", "run-2"], dir=where, name="x")
    with pytest.raises(ValueError, match="log file"):
        command.run_mark([str(tmp_path / "gpt" / "run-1" / "training.json")], dir=where, name="x")


def test_what_people_wrote_drives_no_terminal(runs: list[StoredRun], tmp_path: Path, capsys: Any) -> None:
    curation.edit(runs[0].dir, name="\x1b[31mred", notes="\x1b]0;title\x07 \u202e", tags=["\x9b1m"])
    command.run_mark(["run-0"], dir=str(tmp_path))
    command.run_search(["red"], dir=str(tmp_path))
    shown = printed(capsys)
    assert "red" in shown and not set(shown) & {"\x1b", "\x07", "\x9b", "\u202e"}


def test_delete_asks_and_restore_brings_back_the_last(
    runs: list[StoredRun], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = str(tmp_path)
    with pytest.raises(ValueError, match="--yes"):
        command.run_delete(["run-0"], dir=where)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda prompt: "n")
    assert command.run_delete(["run-0"], dir=where) == 1 and runs[0].dir.is_dir()
    monkeypatch.setattr("builtins.input", lambda prompt: "y")
    assert command.run_delete(["run-0", "gpt/run-0"], dir=where) == 0
    assert command.run_delete(["run-1"], dir=where, yes=True) == 0
    printed(capsys)
    command.run_restore([], dir=where, list_them=True)
    assert printed(capsys).count("deleted just now") == 2
    assert command.run_restore([], dir=where) == 0
    assert runs[1].dir.is_dir() and not runs[0].dir.is_dir()
    assert command.run_restore(["run-0"], dir=where) == 0 and runs[0].dir.is_dir()
    with pytest.raises(KeyError, match="is empty"):
        command.run_restore([], dir=where)


def test_search_exits_as_grep_does(runs: list[StoredRun], tmp_path: Path, capsys: Any) -> None:
    where = str(tmp_path)
    assert command.run_search(["sweep"], dir=where) == 0
    assert printed(capsys).startswith("2 of 4 runs\n")
    assert command.run_search(["nothing-like-it"], dir=where) == command.NOTHING_FOUND
    assert "None of 4 runs" in printed(capsys)
    command.run_search(["leapt"], dir=where, as_json=True)
    assert json.loads(printed(capsys))["runs"][0]["found"]["finding"].startswith("loss_spike")


def test_projects_print(runs: list[StoredRun], tmp_path: Path, capsys: Any) -> None:
    command.run_projects(dir=str(tmp_path))
    assert printed(capsys).splitlines()[1].split() == ["moe", "1", "1", "other"]
    command.run_projects(dir="nowhere")
    assert "No runs in nowhere" in printed(capsys)
