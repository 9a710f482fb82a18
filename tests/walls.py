"""What breaks a package's walls, read from its sources. `python tests/walls.py` drops from walls.json what was mended.

In:   a folder that holds a package, such as src/barograph.
Out:  a `House`: its classes, functions and imports, with `offenders()`. walls.json has today's, and only shrinks.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

MOST_METHODS = 25  # of a class, with those that it inherits
MOST_LINES = 80  # of a function
TODAY = Path(__file__).with_suffix(".json")
# what writes a run (left) must not load what reads runs (right), by any number of steps
WRITERS = ("training", "probes", "integrations")
READERS = ("query", "importing", "trackers", "analysis", "doctor", "views", "sidecar", "demo", "cli")
# a command loads what it needs when it runs, and the package a name when it is used
LOAD_ON_USE = ("cli/", "__init__.py", "__main__.py")
TABLES = {  # files that load modules by the names in a table, and why
    "doctor/kernel/registry.py → barograph.doctor.rules": "the rules, each file a family",
    "importing/registry.py → barograph.importing": "the importers, each loaded when a file is of its kind",
}


_ON_USE = {  # imports in functions, by the reason why they stand there
    "written with torch or Triton, which are optional": (
        "demo/summary.py → barograph.demo.faults",
        "demo/train.py → barograph.demo.faults",
        "demo/train.py → barograph.demo.loop",
        "demo/train.py → barograph.demo.widths",
        "probes/stats/device.py → barograph.probes.stats.kernels",
    ),
    "needs an optional library": (
        "views/notebook/display.py → barograph.views.notebook.widget",
        "views/server/command.py → barograph.views.server.app",
    ),
    "a training loads the probes that it uses, so that it starts at once": (
        "training/ending.py → barograph.core.surroundings",
        "training/probing.py → barograph.probes.data.batch_watch",
        "training/probing.py → barograph.probes.memory.out_of_memory",
        "training/probing.py → barograph.probes.memory.usage",
        "training/probing.py → barograph.probes.model.copies",
        "training/probing.py → barograph.probes.model.watch",
        "training/probing.py → barograph.probes.ranks.reduction",
        "training/probing.py → barograph.probes.ranks.waiting",
        "training/probing.py → barograph.probes.speed.communication",
        "training/probing.py → barograph.probes.speed.expectation",
        "training/steps.py → barograph.probes.speed.clock",
    ),
    "a short command loads the server's client, the forecast and the reader of ends where it has need of them": (
        "doctor/outlook.py → barograph.analysis.forecast",
        "importing/read.py → barograph.importing.textlogs.endings",
        "importing/read.py → barograph.importing.textlogs.unnamed",
        "query/folders.py → barograph.store.clickhouse.client",
        "query/folders.py → barograph.store.clickhouse.pull",
        "query/folders.py → barograph.store.clickhouse.schema",
    ),
    "a sidecar is small: one that examines, mirrors or samples nothing loads none of it": (
        "sidecar/health.py → barograph.doctor.live",
        "sidecar/loop.py → barograph.probes.machine.sampler",
        "sidecar/loop.py → barograph.query.openmetrics",
        "sidecar/loop.py → barograph.sidecar.health",
        "sidecar/loop.py → barograph.sidecar.mirrors",
    ),
    "the page is there before the rules, the comparison and the report are loaded": (
        "views/server/app.py → barograph.doctor",
        "views/server/app.py → barograph.views.report.webpage",
        "views/top/story_pages.py → barograph.doctor",
    ),
}
ON_USE = {arrow: reason for reason, arrows in _ON_USE.items() for arrow in arrows}


class Import(NamedTuple):
    """One module of the package that a file imports."""

    module: str
    in_function: bool
    by_name: bool  # by a string instead of a statement


class House:
    """A package as its sources say it is. `name`: the package's name, the folder's."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name
        self.trees = {path.relative_to(folder).as_posix(): ast.parse(path.read_text()) for path in folder.rglob("*.py")}
        self.modules = {self.module_of(file): file for file in self.trees}
        self.classes = {file: _classes(tree) for file, tree in self.trees.items()}
        self.imports = {file: list(self._imports(file, tree)) for file, tree in self.trees.items()}
        self.edges = {
            file: {self.modules[each.module] for each in all if each.module in self.modules} - {file}
            for file, all in self.imports.items()
        }  # files that a file imports, also in its functions and by name

    def module_of(self, file: str) -> str:
        return ".".join((self.name, *Path(file).with_suffix("").parts)).removesuffix(".__init__")

    # -- imports -------------------------------------------------------------------------------------------

    def _imports(self, file: str, tree: ast.AST) -> Iterator[Import]:
        loaders = {"import_module", "__import__"} | {
            alias.asname
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "importlib"
            for alias in node.names
            if alias.name == "import_module" and alias.asname
        }
        names = self.modules.keys() - {self.name}
        started = {  # python -m MODULE: a process of its own
            after
            for node in ast.walk(tree)
            if isinstance(node, (ast.List, ast.Tuple))
            for before, after in pairwise(node.elts)
            if isinstance(before, ast.Constant) and before.value == "-m"
        }
        for node, in_function in _walk(tree):
            if isinstance(node, ast.Import):
                own = [alias.name for alias in node.names if self._is_own(alias.name)]
                yield from (Import(name, in_function, False) for name in own)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(file, node)
                for alias in node.names:
                    whole = f"{base}.{alias.name}"
                    if self._is_own(base):
                        yield Import(whole if whole in self.modules else base, in_function, False)
            elif isinstance(node, ast.Call) and _function_name(node) in loaders and node.args:
                name = _text(node.args[0])
                own_name = self._is_own(name.rstrip(".")) or name.startswith(".")
                if own_name and not (isinstance(node.args[0], ast.Constant) and name in names):
                    yield Import(self._nearest(name.rstrip(".")), in_function, True)
            elif isinstance(node, ast.Constant) and node.value in names and node not in started:
                yield Import(str(node.value), in_function, True)

    def _is_own(self, name: str) -> bool:
        return name == self.name or name.startswith(f"{self.name}.")

    def _absolute(self, file: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = [self.name, *Path(file).parent.parts][: len(Path(file).parts) + 1 - node.level]
        return ".".join([*package, *([node.module] if node.module else [])])

    def _nearest(self, name: str) -> str:
        """The module of that name, or else the package that a table's names are in."""
        while name not in self.modules and "." in name:
            name = name.rpartition(".")[0]
        return name if name in self.modules else self.name

    def reached(self, file: str) -> set[str]:
        """Files that are loaded with a file, by any number of steps, the packages around each of them too."""
        found: set[str] = set()
        left = [file]
        while left:
            here = left.pop()
            folders = [parent.as_posix() for parent in Path(here).parents if parent.name]
            packages = {f"{folder}/__init__.py" for folder in folders} & self.trees.keys()
            ahead = (self.edges[here] | packages) - found - {file, "__init__.py"}
            found |= ahead
            left += ahead
        return found

    # -- what breaks a wall --------------------------------------------------------------------------------

    def large_classes(self) -> dict[str, int]:
        """Classes with too many methods, an overridden one counted in each class that has it."""
        counts = {f"{file}:{name}": self._methods(file, name, ()) for file in self.trees for name in self.classes[file]}
        return {name: count for name, count in counts.items() if count > MOST_METHODS}

    def _methods(self, file: str, name: str, seen: tuple[tuple[str, str], ...]) -> int:
        if (file, name) in seen or file not in self.trees:
            return 0
        found = self.classes[file].get(name)
        if found is None:  # imported, perhaps from a package that has it from elsewhere
            origin = self._origin(file, name)
            return self._methods(*origin, (*seen, (file, name))) if origin else 0
        count = _functions_in(found.body)
        for base in found.bases:
            if isinstance(base, ast.Subscript):  # Generic[…]
                base = base.value
            if isinstance(base, ast.Name):
                count += self._methods(file, base.id, (*seen, (file, name)))
            elif isinstance(base, ast.Attribute):
                origin = self._origin(file, _dotted(base.value))
                module = f"{self.module_of(origin[0])}.{origin[1]}" if origin else _dotted(base.value)
                if origin and origin[1] == "":
                    module = self.module_of(origin[0])
                home = self.modules.get(module)
                count += self._methods(home, base.attr, (*seen, (file, name))) if home else 0
        return count

    def _origin(self, file: str, name: str) -> tuple[str, str] | None:
        """Where an imported name comes from: the file, and the name there (empty for the module itself)."""
        for node in ast.walk(self.trees[file]):
            if isinstance(node, ast.ImportFrom):
                base = self._absolute(file, node)
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        if f"{base}.{alias.name}" in self.modules:
                            return self.modules[f"{base}.{alias.name}"], ""
                        return (self.modules[base], alias.name) if base in self.modules else None
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if (alias.asname or alias.name) == name and alias.name in self.modules:
                        return self.modules[alias.name], ""
        return None

    def long_functions(self) -> dict[str, int]:
        lengths = {
            f"{file}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
            for file, tree in self.trees.items()
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        return {name: lines for name, lines in lengths.items() if lines > MOST_LINES}

    def shared_class_names(self) -> dict[str, int]:
        """Public names of classes that are defined in several files, with how many."""
        files: dict[str, set[str]] = defaultdict(set)
        for file in self.trees:
            for name in self.classes[file]:
                files[name].add(file)
        return {name: len(where) for name, where in files.items() if len(where) > 1 and not name.startswith("_")}

    def imports_by_name(self) -> dict[str, int]:
        found = [f"{file} → {each.module}" for file, all in self.imports.items() for each in all if each.by_name]
        return {name: found.count(name) for name in found if name not in TABLES}

    def imports_in_functions(self) -> dict[str, int]:
        found = [
            f"{file} → {each.module}"
            for file, all in self.imports.items()
            for each in all
            if each.in_function and not each.by_name and not file.startswith(LOAD_ON_USE)
        ]
        return {name: found.count(name) for name in found}

    def readers_in_writers(self) -> dict[str, int]:
        """Rooms of readers that a file of the writers loads, by any number of steps."""
        found = {}
        for file in self.trees:
            if file.startswith(tuple(f"{room}/" for room in WRITERS)):
                for room in {other.split("/")[0] for other in self.reached(file)} & set(READERS):
                    found[f"{file} → {room}"] = 1
        return found

    def loops(self) -> dict[str, int]:
        """Files that import each other in a circle, imports in functions counted: each file with its circle's size."""
        ahead = {file: self._ahead(file) for file in self.trees}
        circles = {file: {other for other in ahead[file] if file in ahead[other]} for file in self.trees}
        return {file: len(circle) for file, circle in circles.items() if file in ahead[file]}

    def _ahead(self, file: str) -> set[str]:
        found: set[str] = set()
        left = [file]
        while left:
            here = left.pop()
            ahead = self.edges[here] - found
            found |= ahead
            left += ahead
        return found

    def offenders(self) -> dict[str, dict[str, int]]:
        """What breaks each wall, with its size."""
        return {
            "large classes": self.large_classes(),
            "long functions": self.long_functions(),
            "class names given twice": self.shared_class_names(),
            "imports by name": self.imports_by_name(),
            "imports in functions": {
                arrow: count for arrow, count in self.imports_in_functions().items() if arrow not in ON_USE
            },
            "readers in writers": self.readers_in_writers(),
            "loops": self.loops(),
        }


def _classes(tree: ast.AST) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _functions_in(body: Iterable[ast.AST]) -> int:
    """Functions of a class's body, also those in a condition."""
    count = 0
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            count += 1
        elif not isinstance(node, (ast.ClassDef, ast.expr)):
            count += _functions_in(ast.iter_child_nodes(node))
    return count


def _walk(tree: ast.AST, in_function: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Every node but those for type checkers alone, docstrings and annotations; and whether it runs with the module."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and _dotted(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in node.orelse:
                yield other, in_function
                yield from _walk(other, in_function)
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        yield node, in_function
        yield from _walk(node, in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _function_name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _text(node: ast.AST) -> str:
    """The beginning of a text, as far as the source says it."""
    if isinstance(node, ast.JoinedStr) and node.values:
        return _text(node.values[0])
    if isinstance(node, ast.BinOp):
        right = _text(node.right) if isinstance(node.right, ast.Constant) else ""
        return _text(node.left) + right
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def compare(today: dict[str, int], listed: dict[str, Any]) -> list[str]:
    """What is new or larger than the list says, and what the list says though it is mended."""
    added = [f"{name} ({size}) is new" for name, size in today.items() if name not in listed]
    grown = [
        f"{name} grew from {listed[name]} to {size}" for name, size in today.items() if size > listed.get(name, size)
    ]
    mended = [f"{name} is mended: run python tests/walls.py" for name in listed if name not in today]
    return sorted(added + grown + mended)


def main() -> None:
    """Drop from the list what is mended, and print what is new. With --all, list what there is now."""
    found = House(Path(__file__).parents[1] / "src" / "barograph").offenders()
    listed = found if "--all" in sys.argv else json.loads(TODAY.read_text())
    left = {
        wall: {name: min(size, found[wall][name]) for name, size in sorted(listed[wall].items()) if name in found[wall]}
        for wall in found
    }
    for wall, offenders in found.items():
        for line in compare(offenders, left[wall]):
            print(f"{wall}: {line}")
    TODAY.write_text(json.dumps(left, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
