"""The house stays as ARCHITECTURE.md draws it: arrows one way, libraries in their rooms, no loops, small parts."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "barograph"

# room → rooms it may import; anything else is a wall
MAY_IMPORT = {
    "core": "",
    "log": "core",
    "store": "core log",
    "query": "core log store",
    "importing": "core log store query trackers",
    "probes": "core",
    "training": "core log probes",
    "trackers": "core log store query",
    "integrations": "core log probes training trackers",
    "compat": "integrations",
    "analysis": "core log store query importing",
    "doctor": "core log query importing analysis",
    "views": "core log store query importing training analysis doctor",
    "sidecar": "core log store query importing probes training trackers doctor",
    "demo": "core log query probes training analysis doctor views",
    "cli": "core log store query importing probes training trackers analysis doctor views sidecar demo",
    "testing": "core",
    "__main__": "cli",
    "__init__": "core log query importing probes training trackers integrations analysis doctor views sidecar",
}
LIBRARIES = {
    "core/aliases.py": {"numpy", "yaml"},
    "core/columns.py": {"numpy"},
    "core/manifest.py": {"msgspec"},
    "core/options.py": {"yaml"},
    "core/progress.py": {"rich"},
    "core/record.py": {"msgspec"},
    "core/segments.py": {"msgspec"},
    "core/unnamed.py": {"numpy"},
    "training/recorder.py": {"msgspec", "numpy"},
    "training/pump.py": {"msgspec", "numpy"},
    "cli/commands.py": {"msgspec"},
}
ROOM_LIBRARIES = {
    "log": {"msgspec"},
    "sidecar": {"msgspec", "numpy", "apprise", "psutil"},
    "importing": {"numpy", "msgspec", "pyarrow", "yaml"},
    "trackers": {"numpy", "msgspec", "pyarrow", "yaml"},
    "probes/machine": {"pynvml", "amdsmi", "psutil"},
    "probes": {"torch", "triton", "numpy"},
    "integrations/compat": {"PIL", "numpy"},
    "integrations/huggingface.py": {"transformers"},
    "integrations/accelerate.py": {"accelerate"},
    "integrations/lightning.py": {"lightning"},
    "integrations/keras.py": {"keras"},
    "integrations": {"torch", "numpy"},
    "store": {"numpy", "pyarrow", "msgspec"},
    "training/blackbox": {"numpy", "torch"},
    "training": {"msgspec"},
    "analysis": {"numpy", "msgspec", "torch"},
    "doctor": {"numpy", "msgspec"},
    "query": {"duckdb", "msgspec", "numpy", "pandas", "polars", "pyarrow"},
    "views/assistant": {"mcp", "msgspec", "numpy"},
    "views/tables": {"msgspec", "pyarrow"},
    "views/server": {"msgspec", "numpy", "pyarrow", "starlette", "uvicorn"},
    "views/notebook": {"anywidget", "msgspec", "numpy", "traitlets"},
    "views": {"numpy", "msgspec"},
    "demo": {"torch", "numpy"},
}

FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {
    ".".join(("barograph", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in FILES
}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path, tree: ast.AST | None = None) -> Iterator[str]:
    """Modules that a file imports, at its top and in its functions, by statement and by name."""
    for node in ast.walk(tree or tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative imports hide where things are"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else str(node.module)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
            first = node.args[0]
            parts = first.values if isinstance(first, ast.JoinedStr) else [first]
            if isinstance(parts[0], ast.Constant) and isinstance(parts[0].value, str):
                name = parts[0].value.rstrip(".")
                if not name.startswith(".") and name != "barograph":
                    yield name


def test_arrows_point_one_way() -> None:
    wrong = []
    for path in FILES:
        allowed = {room(path), "__version__", *MAY_IMPORT[room(path)].split()}
        for module in imports(path):
            parts = module.split(".")
            if parts[0] == "barograph" and len(parts) > 1 and parts[1] not in allowed:
                wrong.append(f"{name_of(path)} may not import {module}")
    assert not wrong


def test_libraries_stay_in_their_rooms() -> None:
    known = {"barograph", "__future__", *sys.stdlib_module_names}
    wrong = []
    for path in FILES:
        here = next((LIBRARIES[name] for name in (name_of(path),) if name in LIBRARIES), None)
        if here is None:
            here = next(
                (kept for start, kept in ROOM_LIBRARIES.items() if f"{name_of(path)}/".startswith(f"{start}/")), set()
            )
        if room(path) == "trackers":
            here = here | {path.stem}
        strange = {module.split(".")[0] for module in imports(path)} - known - here
        wrong += [f"{name_of(path)} may not import {module}" for module in sorted(strange)]
    assert not wrong


def test_the_map_has_no_loop_and_no_room_that_is_gone() -> None:
    assert set(MAY_IMPORT) == {room(path) for path in FILES}
    left = {name: set(rooms.split()) for name, rooms in MAY_IMPORT.items()}
    while left:
        free = [name for name, rooms in left.items() if not rooms & left.keys()]
        assert free, f"a loop among {sorted(left)}"
        for name in free:
            del left[name]


def test_the_top_shelf_has_fifteen_rooms_and_three_files() -> None:
    assert len([path for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]) <= 15
    assert len(list(PACKAGE.glob("*.py"))) <= 3


def test_files_stay_small_and_say_what_they_are() -> None:
    large = [name_of(path) for path in FILES if len(path.read_text().splitlines()) > 500]
    assert not large, "split them"
    silent = [name_of(path) for path in FILES if not ast.get_docstring(tree_of(path))]
    assert not silent, "a module says what it is, what comes in and what goes out"


def test_importing_the_package_loads_no_other_library() -> None:
    script = (
        "import sys; before = set(sys.modules); import barograph; dir(barograph); "
        "found = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "print(*sorted(found - {'barograph'} - set(sys.stdlib_module_names)))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_every_path_that_the_documents_name_exists() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        text = document.read_text()
        for link in re.findall(r"\]\((?!http)([^)#]+)", text):
            assert (document.parent / link).exists(), f"{document.name} links to {link}"
        if document.name == "ARCHITECTURE.md":
            for name in re.findall(r"^\| ((?:`[\w/.]+`[ ·]*)+)", text, re.M):
                for part in re.findall(r"`([\w/.]+)`", name):
                    assert (PACKAGE / part).exists(), f"ARCHITECTURE.md names {part}"


def test_every_room_is_on_the_map_of_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for name in MAY_IMPORT:
        assert name.startswith("__") or f"`{name}/`" in text or f"`{name}.py`" in text, f"ARCHITECTURE.md lacks {name}"


def test_public_text_speaks_of_the_product_alone() -> None:
    words = re.compile(r"\b(issue \d|session|helper|/work/|/root/|pypi\.org)\b", re.I)
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *FILES]:
        for line in path.read_text().splitlines():
            if "start_new_session" not in line:
                assert not words.search(line), f"{path.name}: {line.strip()[:80]}"


def test_sources_are_named_so_that_a_reader_can_open_them() -> None:
    sign = re.compile(r"\b[SR]\d{1,2}\b|field notes")
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *FILES, *ROOT.glob("benchmarks/**/*.py")]:
        for line in path.read_text().splitlines():
            assert not sign.search(line), f"{path.name}: {line.strip()[:80]}; docs/sources.md has the names"


def test_no_file_has_the_marks_of_an_unfinished_merge() -> None:
    marks = re.compile(r"^(<{7} |>{7} |={7}$)", re.M)
    for path in [*FILES, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/*.py")]:
        assert not marks.search(path.read_text()), path
