"""Expressions that are compiled when they are first used find what compiled ones do."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import barograph
from barograph.core.patterns import LazyPattern, expression


def held() -> Iterator[tuple[str, LazyPattern]]:
    """Expressions of all modules, by their names."""
    for module in pkgutil.walk_packages(barograph.__path__, "barograph."):
        if module.name.startswith(("barograph.core.", "barograph.doctor.", "barograph.importing.")):
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, LazyPattern):
                    yield f"{module.name}.{name}", value


def test_each_is_a_valid_expression() -> None:
    found = dict(held())
    assert len(found) > 300
    for name, pattern in found.items():
        assert re.compile(*pattern._given).pattern == pattern.pattern, name


def test_an_expression_has_the_methods_of_a_compiled_one() -> None:
    lazy, compiled = (
        expression(r"(?P<word>[a-z]+)\s*=\s*(\d+)", re.I),
        re.compile(r"(?P<word>[a-z]+)\s*=\s*(\d+)", re.I),
    )
    text = "Loss = 3, lr=4, none"
    for method in ("search", "match"):
        assert getattr(lazy, method)(text).groups() == getattr(compiled, method)(text).groups()
    assert lazy.fullmatch(text) is None
    assert lazy.findall(text) == compiled.findall(text)
    assert [one.span() for one in lazy.finditer(text)] == [one.span() for one in compiled.finditer(text)]
    assert lazy.sub("x", text) == compiled.sub("x", text)
    assert lazy.split(text) == compiled.split(text)
    assert (lazy.pattern, lazy.groups, lazy.flags, lazy.groupindex) == (
        compiled.pattern, compiled.groups, compiled.flags, compiled.groupindex
    )  # fmt: skip


def test_what_is_no_expression_is_said_at_its_first_use_and_not_before() -> None:
    broken = expression("(")
    assert broken.pattern == "("
    with pytest.raises(re.error):
        broken.search("(")


@pytest.mark.parametrize("folder", ["core", "doctor"])
def test_no_module_that_every_command_loads_compiles_its_expressions_at_once(folder: str) -> None:
    source = Path(barograph.__file__).parent / folder
    found = [str(path) for path in source.rglob("*.py") if re.search(r"(?m)^\w+ = re\.compile\(", path.read_text())]
    assert not found
