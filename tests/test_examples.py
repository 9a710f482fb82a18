"""The examples run: each does everything that its document describes, and checks it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import forked_python
import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").rglob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_does_what_its_document_says(example: Path, tmp_path: Path) -> None:
    for library in re.findall(r"^(?:import|from) (\w+)", example.read_text(), re.M):
        if library not in sys.stdlib_module_names and importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    folder = tmp_path / "new" if example.parent.name == "documents" else tmp_path  # one that is not there yet
    path = os.pathsep.join(path for path in sys.path if path)
    done = forked_python.run(
        sys.executable,
        example,
        folder,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path, "WANDB_MODE": "offline", "KERAS_BACKEND": "torch"},
    )
    assert done.returncode == 0 and done.stdout.splitlines()[-1].endswith("holds"), done.stderr[-2000:]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


def test_an_example_of_a_framework_is_short() -> None:
    for example in EXAMPLES:
        if example.parent.name == "frameworks":
            assert len(example.read_text().splitlines()) <= 30, example.name
