"""What a user's type checker and editor see, and that the public names are one list."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import option_types
import pytest

import barograph
from barograph.core import arguments
from barograph.core.options import Settings
from barograph.training.short import SHORT

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "barograph"
STUB = (PACKAGE / "__init__.pyi").read_text()


def public_names() -> list[str]:
    return re.findall(r"^from barograph\.\S+ import (\w+) as \1$", STUB, re.M)


# -- options -----------------------------------------------------------------------------------------------


def test_the_typed_options_are_those_of_the_settings() -> None:
    assert Path(arguments.__file__).read_text() == option_types.source(), (
        "run: python tests/option_types.py > src/barograph/core/arguments.py"
    )


def test_init_takes_every_option_once() -> None:
    options = set(typing.get_type_hints(arguments.Options))
    named = set(option_types.NAMED)
    assert not options & named
    assert options | named == {field.name for field in dataclasses.fields(Settings)}
    for function in (barograph.init, barograph.fork):
        assert named <= set(inspect.signature(function).parameters)


# -- names -------------------------------------------------------------------------------------------------


def test_dir_shows_the_public_names_alone() -> None:
    assert dir(barograph) == sorted(["__version__", *public_names()])
    assert barograph.__all__ == sorted(public_names())


def test_every_public_name_is_there_and_comes_from_where_the_stub_says() -> None:
    for module, name in re.findall(r"^from (\S+) import (\w+) as \2$", STUB, re.M):
        assert getattr(barograph, name) is getattr(sys.modules[module], name)


def test_the_stub_has_nothing_else() -> None:
    lines = [line for line in STUB.splitlines() if line and not line.startswith('"""')]
    rest = [line for line in lines if not re.fullmatch(r"from barograph\.[\w.]+ import (\w+) as \1", line)]
    assert rest == ["__all__: list[str]", "__version__: str"]


def test_a_public_name_is_not_the_name_of_a_room() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir()}
    assert not rooms & set(public_names())


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ini'"):
        barograph.ini  # type: ignore[attr-defined]  # noqa: B018


def test_a_star_import_brings_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from barograph import *", names)
    assert set(public_names()) <= set(names)


def fenced(document: Path) -> Iterator[str]:
    yield from re.findall(r"^```python\n(.*?)^```", document.read_text(), re.M | re.S)


DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_no_document_imports_from_inside_the_package(document: Path) -> None:
    for snippet in fenced(document):
        assert not re.search(r"(from|import) barograph\.(?!(?:testing|compat|integrations)\b)", snippet), snippet
        for names in re.findall(r"from barograph import (.+)", snippet):
            assert set(re.split(r",\s*", names)) <= set(public_names())


# -- what a type checker sees ------------------------------------------------------------------------------


def test_the_wheel_holds_the_marker_and_the_stub(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    script = (
        "import sys, json; from hatchling.builders.wheel import WheelBuilder; "
        "builder = WheelBuilder(sys.argv[1]); "
        "print(json.dumps([file.distribution_path for file in builder.recurse_included_files()]))"
    )
    listed = subprocess.run([sys.executable, "-c", script, str(ROOT)], capture_output=True, text=True, check=True)
    files = json.loads(listed.stdout)
    assert {"barograph/py.typed", "barograph/__init__.pyi", "barograph/__init__.py"} <= set(files)


RIGHT = """
import os
import barograph

reveal_type(barograph.init())
run = barograph.init("gpt", config={"lr": 3e-4}, dir="runs", tags=["a"], console="none", total_steps=None, doctor=False)
reveal_type(barograph.fork(run, 10, project="gpt", blackbox_steps=8))
reveal_type(barograph.runs(project="gpt")[-1])
options: barograph.Options = {"total_steps": 100, "report_to": "wandb"}
barograph.init(**options)
reveal_type(run.alert)
reveal_type(run.status)
backends = barograph.WandBBackend, barograph.AimBackend, barograph.MLflowBackend, barograph.TrackioBackend
"""

WRONG = """
import barograph

barograph.init(projct="x")
barograph.init(total_steps="many")
barograph.init(console="loud")
barograph.inti()
run = barograph.init()
run.alert("title", level=3)
run.alrt("title")
"""


@pytest.mark.slow
def test_a_users_type_checker_knows_the_run_and_the_options(tmp_path: Path) -> None:
    used = "".join(f"run.{name}\n" for name in SHORT)
    (tmp_path / "right.py").write_text(RIGHT + used)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\n[mypy-torch.*]\nfollow_imports = skip\n"  # which only takes time
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", "right.py", "wrong.py"]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
    right = [line for line in answer.splitlines() if line.startswith("right.py")]
    assert [line.split("note: ")[-1] for line in right] == [
        'Revealed type is "barograph.training.run.Run"',
        'Revealed type is "barograph.training.run.Run"',
        'Revealed type is "barograph.query.stored.StoredRun"',
        'Revealed type is "def (title: str, text: str =, level: str =, **about: Any)"',
        'Revealed type is "str"',
    ]
    wrong = {int(line.split(":")[1]) for line in answer.splitlines() if re.match(r"wrong.py:\d+: error", line)}
    assert wrong == {4, 5, 6, 7, 9, 10}, answer
