"""The walls between the rooms hold: sizes, names and imports of the package, and the checker of them itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import walls

PACKAGE = Path(__file__).parents[1] / "src" / "barograph"
WALLS = (
    "large classes",
    "long functions",
    "class names given twice",
    "imports by name",
    "imports in functions",
    "readers in writers",
    "loops",
)


@pytest.fixture(scope="module")
def barograph() -> walls.House:
    return walls.House(PACKAGE)


@pytest.fixture(scope="module")
def offenders(barograph: walls.House) -> dict[str, dict[str, int]]:
    return barograph.offenders()


@pytest.mark.parametrize("wall", WALLS)
def test_nothing_new_breaks_a_wall_and_what_is_mended_is_off_the_list(
    wall: str, offenders: dict[str, dict[str, int]]
) -> None:
    listed = json.loads(walls.TODAY.read_text())
    assert walls.compare(offenders[wall], listed[wall]) == []


def test_every_table_of_modules_is_still_there(barograph: walls.House) -> None:
    by_name = {f"{file} → {each.module}" for file, all in barograph.imports.items() for each in all if each.by_name}
    assert walls.TABLES.keys() <= by_name


def test_imports_in_functions_are_few_and_each_listed_one_is_there(barograph: walls.House) -> None:
    found = barograph.imports_in_functions()
    assert walls.ON_USE.keys() <= found.keys()
    assert sum(found.values()) <= 60


# -- the checker, on a small house -------------------------------------------------------------------------


def house(folder: Path, **files: str) -> walls.House:
    """A package `small`; `a__b` is the file a/b.py."""
    for name, text in ({"__init__": ""} | files).items():
        place = name.replace("__init__", "@").replace("__", "/").replace("@", "__init__")
        path = folder / "small" / f"{place}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return walls.House(folder / "small")


def methods(count: int, prefix: str = "m") -> str:
    return "".join(f"    def {prefix}{number}(self): ...\n" for number in range(count))


def test_a_sound_house_has_no_offender(tmp_path: Path) -> None:
    small = house(
        tmp_path,
        core__text=f"class Text:\n{methods(25)}",
        training__run="from small.core.text import Text\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from small.query.stored import Stored\n"
        "def start(): return ['python', '-m', 'small.query.stored']\n",
        query__stored="'''Says small.training.run.'''\nfrom small.core.text import Text\nclass Stored: ...\n",
    )
    assert not any(small.offenders().values()), small.offenders()


@pytest.mark.parametrize(
    "files",
    [
        {"core__run": f"class Run:\n{methods(72)}"},
        {
            "core__below": f"class Below:\n{methods(20)}",
            "core__run": f"from small.core.below import Below\nclass Run(Below):\n{methods(6)}",
        },
        {
            "core__below": f"class Below:\n{methods(20)}",
            "core__run": f"from small.core import below as b\nclass Run(b.Below):\n{methods(6)}",
        },
        {
            "core__below": f"class Below:\n{methods(20)}",
            "core__run": f"import small.core.below as b\nclass Run(b.Below):\n{methods(6)}",
        },
        {
            "core__below": f"class Below:\n{methods(20)}",
            "low____init__": "from small.core.below import Below as Lower\n",
            "core__run": f"from small.low import Lower\nclass Run(Lower):\n{methods(6)}",
        },
        {"core__run": f"class Run:\n{methods(10)}    if True:\n" + methods(20, "n").replace("    def", "        def")},
    ],
    ids=["own", "inherited", "module renamed", "import as", "from a package", "in a condition"],
)
def test_a_large_class_is_seen(tmp_path: Path, files: dict[str, str]) -> None:
    assert list(house(tmp_path, **files).large_classes()) == ["core/run.py:Run"]


def test_a_long_function_is_seen(tmp_path: Path) -> None:
    small = house(tmp_path, a="def long():\n" + "    x = 1\n" * 80 + "def short():\n" + "    x = 1\n" * 79)
    assert small.long_functions() == {"a.py:long": 81}


def test_a_class_name_given_twice_is_seen(tmp_path: Path) -> None:
    small = house(tmp_path, a="class Table: ...\nclass _Row: ...\n", b="class Table: ...\nclass _Row: ...\n")
    assert small.shared_class_names() == {"Table": 2}


@pytest.mark.parametrize(
    "detour",
    [
        "from small.query import stored\n",
        "import small.query.stored as s\n",
        "from small.query.stored import Stored\n",
        "def late():\n    from small.query.stored import Stored\n",
        "from ..query import stored\n",
        "from importlib import import_module\nimport_module('small.query.stored')\n",
        "import importlib\nimportlib.import_module(f'small.query.{1}')\n",
        "from importlib import import_module as load\nload('small.' + 'query.stored')\n",
        "__import__('small.query.stored')\n",
        "import sys\nsys.modules['small.query.stored']\n",
        "HOME = 'small.query.stored'\n",
        "from small.core import bridge\n",  # which imports the reader
        "from small.core.deep import inside\n",  # whose package does
    ],
)
def test_a_writer_that_loads_a_reader_is_seen(tmp_path: Path, detour: str) -> None:
    small = house(
        tmp_path,
        training__run=detour,
        core__bridge="def later():\n    import small.query.stored\n",
        core__deep____init__="from small.query import stored\n",
        core__deep__inside="",
        query____init__="",
        query__stored="class Stored: ...\n",
    )
    assert "training/run.py → query" in small.readers_in_writers()


def test_imports_by_name_and_in_functions_are_seen(tmp_path: Path) -> None:
    text = "from importlib import import_module\ndef f():\n    import small.b\n    import_module('small.b')\n"
    small = house(tmp_path, a=text, b="")
    assert small.imports_in_functions() == {"a.py → small.b": 1}
    assert small.imports_by_name() == {"a.py → small.b": 1}


def test_a_loop_through_a_function_is_seen(tmp_path: Path) -> None:
    small = house(
        tmp_path,
        a="from small import b\n",
        b="import small.c\n",
        c="def f():\n    import small.a\n",
        d="import small.a",
    )
    assert small.loops() == {"a.py": 3, "b.py": 3, "c.py": 3}


def test_the_list_only_shrinks() -> None:
    assert walls.compare({"a": 3}, {"a": 3}) == [] == walls.compare({"a": 2}, {"a": 3})
    assert walls.compare({"a": 4}, {"a": 3}) == ["a grew from 3 to 4"]
    assert walls.compare({"b": 4}, {}) == ["b (4) is new"]
    assert walls.compare({}, {"a": 3}) == ["a is mended: run python tests/walls.py"]
