"""The commands that figures come from: they exist, and what they take from the package is there."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAMS = sorted((ROOT / "benchmarks").rglob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT / "benchmarks")))
def test_what_a_benchmark_takes_from_the_package_is_there(program: Path) -> None:
    missing = []
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.Import):
            wanted = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            wanted = [(node.module, alias.name) for alias in node.names]
        else:
            continue
        missing += [
            f"{module}.{name}"
            for module, name in wanted
            if module.split(".")[0] == "barograph" and not there(module, name)
        ]
    assert missing == []


def there(module: str, name: str) -> bool:
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError:
        return False
    if not name or hasattr(found, name):
        return True
    try:
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


def test_the_commands_of_the_figures_exist_with_their_options() -> None:
    commands = re.findall(r"`python (benchmarks/\S+\.py)([^`]*)`", (ROOT / "README.md").read_text())
    for page in (ROOT / "docs").rglob("*.md"):
        commands += re.findall(r"`python (benchmarks/\S+\.py)([^`]*)`", page.read_text())
    assert len(commands) > 30
    for program, rest in commands:
        assert (ROOT / program).is_file(), program
        source = (ROOT / program).read_text()
        for option in re.findall(r"--[a-z-]+", rest):
            assert f'"{option}"' in source, f"{program} {option}"
