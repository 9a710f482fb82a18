"""What the documents show works: their Python runs, and their commands and options exist."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import forked_python
import pytest
import snippets

from barograph.cli import _parser

ROOT = Path(__file__).parents[1]
DOCUMENTS = [path for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))) if path.parent.name != "rules"]
RUN = [path for path in DOCUMENTS if any(not snippet.reason for snippet in snippets.snippets(path))]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    snippets.make_runs(folder)
    return folder


@pytest.mark.parametrize("document", RUN, ids=name_of)
def test_the_python_of_a_document_runs(document: Path, runs: Path, tmp_path: Path) -> None:
    place = shutil.copytree(runs, tmp_path / "place")
    done = forked_python.run(
        sys.executable,
        snippets.__file__,
        document,
        capture_output=True,
        text=True,
        cwd=place,
        stdin=subprocess.DEVNULL,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "WANDB_MODE": "offline"}
        | {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"},  # of a server that is not there
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_snippet_that_is_not_run_says_why() -> None:
    for document in DOCUMENTS:
        marks = re.findall(r"<!-- not run.*", document.read_text())
        reasons = [snippet.reason for snippet in snippets.snippets(document) if snippet.reason]
        assert len(marks) == len(reasons), f"{name_of(document)}: a mark without a reason, or without a snippet below"
        assert all(len(reason.split()) >= 3 for reason in reasons), name_of(document)


def test_most_snippets_are_run() -> None:
    every = [snippet for document in DOCUMENTS for snippet in snippets.snippets(document)]
    assert sum(not snippet.reason for snippet in every) > 0.8 * len(every) > 30


def test_a_snippet_that_fails_is_found(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "Text.\n\n```python\nx = 1\n```\n\n<!-- not run: it is wrong on purpose -->\n```python\n1 / 0\n```\n"
    )
    assert snippets.main(document) == 0
    document.write_text(document.read_text() + "\n```python\nassert x == 2\n```\n")
    assert snippets.main(document) == 1


# -- commands ----------------------------------------------------------------------------------------------


def command_lines(document: Path) -> Iterator[str]:
    """`barograph …` in fenced blocks and in the text."""
    text = document.read_text()
    for block in re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            if found := re.match(r"\s*(?:\$ )?(?:\w+=\S+ )*(?:python -m )?barograph (.*)", line):
                yield found[1]
    for found in re.findall(r"`(?:\$ )?barograph ([a-z][^`\n]*)`", text):
        yield found


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_the_commands_of_a_document_exist_with_their_options(document: Path) -> None:
    (sub,) = [action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction)]
    for line in command_lines(document):
        command, _, rest = line.split("#")[0].partition(" ")
        if command.startswith("--"):
            continue
        rest = f" {rest}".partition(" -- ")[0]  # behind it is another program's
        assert command in sub.choices, f"there is no command `barograph {command}`"
        known = {option for action in sub.choices[command]._actions for option in action.option_strings}
        for option in re.findall(r"(?:^|[\s\[])(--?[a-z][\w-]*)", rest):
            assert option in known, f"`barograph {command}` has no option {option}: {line}"


def test_a_command_that_does_not_exist_is_found(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("Try `barograph show RUN --nmes`.\n\n```\nbarograph shwo RUN  # x\n```\n")
    assert list(command_lines(document)) == ["shwo RUN  # x", "show RUN --nmes"]
    for text in ("`barograph shwo RUN`", "`barograph show --nmes`"):
        document.write_text(text)
        with pytest.raises(AssertionError):
            test_the_commands_of_a_document_exist_with_their_options(document)
