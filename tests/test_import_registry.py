"""Runs are found in folders of any shape, by the source that knows them best."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from barograph.importing import registry
from barograph.importing.collect import collect
from barograph.importing.registry import identify, source_of, sources
from barograph.importing.source import FoundRun, ImportMark, Item, Unread

ROWS = "".join(json.dumps({"step": step, "loss": 2.5 - step / 10}) + "\n" for step in range(5))


def kinds(path: Path, problems: list[Unread] | None = None) -> list[tuple[str, str]]:
    return [(source.kind, found.path.name) for source, found in identify(path, None, problems)]


def test_every_source_has_a_kind_of_its_own_and_says_what_it_is() -> None:
    known = [source.kind for source in sources()]
    assert len(set(known)) == len(known)
    for source in sources():
        assert re.fullmatch(r"[a-z_]+", source.kind) and source.about and source_of(source.kind) is source


def test_an_unknown_kind_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"no kind of log 'nothing'; there are .*huggingface"):
        source_of("nothing")


def test_a_folder_may_hold_many_runs_of_many_kinds(tmp_path: Path) -> None:
    (tmp_path / "b" / "deep").mkdir(parents=True)
    (tmp_path / "b" / "deep" / "rows.jsonl").write_text(ROWS)
    (tmp_path / "a.csv").write_text("step,loss\n1,2.5\n2,2.4\n")
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": [], "best_model_checkpoint": None}))
    (tmp_path / "notes.txt").write_text("nothing to see here\n")
    (tmp_path / "train.py").write_text('print("step 1 loss 2.5")\n' * 20)
    found = kinds(tmp_path)
    assert ("csv", "a.csv") in found and ("jsonl", "rows.jsonl") in found and ("huggingface", tmp_path.name) in found
    assert len(found) == 3


def test_links_in_a_circle_sockets_pipes_and_locked_files_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    (tmp_path / "again.jsonl").symlink_to(tmp_path / "rows.jsonl")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "locked").mkdir()
    (tmp_path / "empty.csv").touch()
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(tmp_path)  # the name of a socket is short
        try:
            one.bind("socket.log")
        finally:
            os.chdir(here)
        problems: list[Unread] = []
        assert len(kinds(tmp_path, problems)) == 1
    assert [problem.file.name for problem in problems] == ["broken"]


def test_folders_below_each_other_without_end_are_walked(tmp_path: Path) -> None:
    folder = tmp_path
    for _ in range(300):
        folder = folder / "d"
        folder.mkdir()
    (folder / "rows.jsonl").write_text(ROWS)
    assert kinds(tmp_path) == [("jsonl", "rows.jsonl")]


def test_what_was_imported_is_not_imported_again(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    ((source, found),) = identify(tmp_path)
    collect(source, found, tmp_path / "runs")
    assert kinds(tmp_path) == [("jsonl", "rows.jsonl")]


def test_a_source_that_fails_keeps_no_other_from_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        kind = "failing"
        about = "for tests"

        def find(self, path: Path, head: bytes) -> list[FoundRun]:
            raise RuntimeError("a mistake")

        def read(self, found: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
            yield ImportMark({})

    (tmp_path / "rows.jsonl").write_text(ROWS)
    known = (Failing(), *sources())
    monkeypatch.setattr(registry, "sources", lambda: known)
    problems: list[Unread] = []
    assert kinds(tmp_path / "rows.jsonl", problems) == [("jsonl", "rows.jsonl")]
    assert "failing failed: RuntimeError: a mistake" in problems[0].why


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(identify(tmp_path / "nothing"))


def test_the_documentation_has_every_kind_of_source() -> None:
    text = (Path(__file__).parents[1] / "docs" / "guides" / "importing.md").read_text()
    told = re.findall(r"^\| \[?`([a-z_]+)`(?:\]\(importing-\w+\.md\))? \|", text, re.M)
    assert sorted(told) == sorted(source.kind for source in sources())
