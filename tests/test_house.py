"""The house stays as ARCHITECTURE.md draws it: arrows one way, libraries in their rooms, no loops."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "barograph"

# room → rooms it may import; anything else is a wall
MAY_IMPORT = {
    "writing": "",
    "reading": "",
    "values": "",
    "record": "values",
    "logtext": "record",
    "jsonlog": "logtext record",
    "columns": "",
    "naming": "",
    "accepts": "",
    "config": "accepts",
    "place": "",
    "manifest": "record values",
    "liveness": "place",
    "curation": "manifest record segments values",
    "segments": "",
    "spool": "jsonlog logtext",
    "sinks": "record values",
    "store": "columns record",
    "logger": "jsonlog record sinks values",
    "pump": "jsonlog logtext record store",
    "processes": "",
    "shapes": "record values",
    "recorder": "config jsonlog logger logtext place processes pump record segments shapes spool store values",
    "probes": "columns config manifest place record values",
    "adapters": "place values",
    "causes": "",
    "walltime": "",
    "goodput": "causes logtext record walltime",
    "accounts": "goodput probes record",
    "tracker": "adapters config place probes processes run start values",
    "watched": "probes recorder values",
    "alerts": "config probes record",
    "blackbox": "logtext place probes record sinks values",
    "forecast": "",
    "health": "logtext probes record rules",
    "comparing": "aliases catalog columns importing liveness logtext overview query record sinks",
    "ask": "aliases catalog columns comparing doctor goodput logtext manifest "
    "query record reporting segments sinks spool store tails",
    "doctor": "importing liveness logtext query record rules sinks",
    "run": "accounts alerts blackbox config health jsonlog manifest "
    "place probes processes record segments shapes values watched",
    "start": "alerts config liveness logtext manifest mirrors naming place record rules run segments values",
    "simple": "naming start",
    "aliases": "",
    "rules": "aliases forecast record",
    "importing": "adapters aliases catalog config columns jsonlog logtext manifest "
    "naming query record segments sinks spool store values",
    "mirrors": "adapters aliases config liveness logtext manifest query record segments sinks spool store values",
    "tails": "logtext record spool store",
    "query": "columns curation goodput liveness logtext manifest probes record segments store tails",
    "catalog": "logtext query segments",
    "lineage": "columns query record segments sinks",
    "keeping": "ask catalog curation liveness logtext manifest naming query record segments sinks",
    "reporting": "causes columns comparing doctor forecast importing inside liveness logtext manifest overview query "
    "record rules segments sinks tails",
    "server": "ask catalog causes columns comparing curation doctor keeping liveness logtext manifest query record "
    "reporting segments spool store tails",
    "top": "catalog causes doctor importing liveness logtext overview query record rules sinks store",
    "notebook": "columns comparing liveness query rules",
    "follow": "liveness logtext query record",
    "inside": "query sinks",
    "overview": "goodput inside lineage query record",
    "export": "query record",
    "demo": "catalog columns doctor inside liveness logger manifest overview probes query run sinks start",
    "cli": "alerts ask blackbox catalog comparing config demo doctor export follow forecast "
    "importing keeping lineage liveness mirrors overview probes query record reporting server sinks spool store top",
    "__main__": "cli",
    "__init__": "adapters ask catalog comparing config importing logtext logger "
    "notebook probes query run simple start tracker",
}
WRITING = {path.stem for path in PACKAGE.glob("writing/*.py")} | {"adapters"}
READING = {path.stem for path in PACKAGE.glob("reading/*.py")} | {
    "ask", "cli", "comparing", "doctor", "keeping", "lineage", "notebook", "reporting", "server", "top",
}  # fmt: skip
LIBRARIES = {
    "record.py": {"msgspec"},
    "logtext.py": {"msgspec"},
    "segments.py": {"msgspec"},
    "manifest.py": {"msgspec"},
    "writing/recorder.py": {"msgspec", "numpy"},
    "writing/pump.py": {"msgspec", "numpy"},
    "reading/query.py": {"numpy"},
    "reading/tails.py": {"msgspec", "numpy"},
    "reading/overview.py": {"numpy"},
    "reading/export.py": {"msgspec", "pyarrow"},
    "cli/commands.py": {"msgspec"},
    "aliases.py": {"numpy", "yaml"},
    "writing/health.py": {"msgspec", "numpy"},
    "config.py": {"yaml"},
    "columns.py": {"numpy"},
    "sinks/progress.py": {"rich"},
}


def allowed(path: Path) -> set[str]:
    relative = path.relative_to(PACKAGE).as_posix()
    if relative.startswith("adapters/"):
        return {path.stem}
    if relative.startswith(("importing/", "mirrors/")):
        return {"numpy", "msgspec", "pyarrow", "yaml"}
    if relative.startswith("alerts/"):
        return {"apprise"}
    if relative.startswith("probes/machine/"):
        return {"pynvml", "amdsmi", "psutil"}
    if relative.startswith("probes/"):
        return {"torch", "triton", "numpy"}
    if relative.startswith("store/"):
        return {"numpy", "pyarrow", "msgspec"}
    if relative.startswith("blackbox/"):
        return {"numpy", "torch"}
    if relative.startswith(
        ("rules/", "doctor/", "forecast/", "comparing/", "reporting/", "lineage/", "keeping/", "top/")
    ):
        return {"numpy", "msgspec"}
    if relative.startswith("ask/"):
        return {"duckdb", "mcp", "msgspec", "numpy", "pandas", "polars", "pyarrow"}
    if relative.startswith("server/"):
        return {"msgspec", "numpy", "pyarrow", "starlette", "uvicorn"}
    if relative.startswith("notebook/"):
        return {"anywidget", "msgspec", "numpy", "traitlets"}
    if relative.startswith("demo/"):
        return {"torch", "numpy"}
    return LIBRARIES.get(relative, set())


HALVES = ("writing", "reading")  # rooms whose files are on the map one by one


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    if parts[0] in HALVES:
        return parts[0] if parts[1] == "__init__.py" else parts[1].removesuffix(".py")
    return parts[0].removesuffix(".py")


def target(module: str) -> str:
    """The room of a module of ours, given its whole name."""
    parts = module.split(".")
    return parts[2] if parts[1] in HALVES and len(parts) > 2 else parts[1]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative imports hide where things are"
            if node.module in ("barograph", *(f"barograph.{half}" for half in HALVES)):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_arrows_point_one_way(path: Path) -> None:
    own = room(path)
    for module in imports(path):
        parts = module.split(".")
        if parts[0] == "barograph" and len(parts) > 1 and target(module) not in (own, "__version__"):
            assert target(module) in MAY_IMPORT[own].split(), f"{path.name} may not import {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_libraries_stay_in_their_rooms(path: Path) -> None:
    known = {"barograph", "__future__", *sys.stdlib_module_names}
    strange = {module.split(".")[0] for module in imports(path)} - known - allowed(path)
    assert not strange, f"{path.name} may not import {strange}"


def test_the_map_has_no_loop_and_no_room_that_is_gone() -> None:
    assert set(MAY_IMPORT) == {room(path) for path in FILES}
    left = {name: set(rooms.split()) for name, rooms in MAY_IMPORT.items()}
    while left:
        free = [name for name, rooms in left.items() if not rooms & left.keys()]
        assert free, f"a loop among {sorted(left)}"
        for name in free:
            del left[name]


def test_the_writing_half_lives_without_the_reading_half() -> None:
    for name in WRITING - {"__init__"}:
        assert not set(MAY_IMPORT[name].split()) & READING
    for name in READING - {"__init__"}:
        assert not set(MAY_IMPORT[name].split()) & WRITING


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_files_and_classes_stay_small_and_say_what_they_are(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 500, "split it"
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module says what it is, what comes in and what goes out"


def test_importing_the_package_loads_no_other_library() -> None:
    script = (
        "import sys; before = set(sys.modules); import barograph; dir(barograph); "
        "found = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "print(*sorted(found - {'barograph'} - set(sys.stdlib_module_names)))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_every_path_that_the_documents_name_exists() -> None:
    for document in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]:
        text = document.read_text()
        for link in re.findall(r"\]\((?!http)([^)#]+)", text):
            assert (document.parent / link).exists(), f"{document.name} links to {link}"
        if document.name == "ARCHITECTURE.md":
            for name in re.findall(r"^\| ((?:`[\w/.]+`[ ·]*)+)", text, re.M):
                for part in re.findall(r"`([\w/.]+)`", name):
                    assert (PACKAGE / part).exists(), f"ARCHITECTURE.md names {part}"


def test_every_room_is_on_the_map_of_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for path in FILES:
        parts = path.relative_to(PACKAGE).parts
        name = "/".join(parts) if parts[0] in HALVES else parts[0]
        known = path.name.startswith("__") or f"`{name}`" in text or f"`{name}/`" in text
        assert known, f"ARCHITECTURE.md lacks {name}"


def test_public_text_speaks_of_the_product_alone() -> None:
    words = re.compile(r"\b(issue \d|session|helper|/work/|/root/|pypi\.org)\b", re.I)
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *FILES]:
        for line in path.read_text().splitlines():
            if "start_new_session" not in line:
                assert not words.search(line), f"{path.name}: {line.strip()[:80]}"
