"""Writes the typed options of `init` from `Settings`: python tests/option_types.py > src/barograph/core/arguments.py

In:   `Settings`, with what each option accepts.
Out:  the module `barograph.core.arguments`, as text; tests/test_typing.py compares it with the file.
"""

from __future__ import annotations

import dataclasses
import textwrap

from barograph.core.accepts import Accepts
from barograph.core.options import Settings

NAMED = ("project", "name", "dir")  # arguments of `init` and `fork` with a name of their own

HEAD = '''"""The options of `init` as types, for editors and type checkers.

In:   nothing; written by tests/option_types.py from `Settings`, and never by hand.
Out:  `Options`, every option but project, name and dir, which `init` has as arguments of their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Path = str | os.PathLike[str]


class Options(TypedDict, total=False):
    """Every option of `init`, by name. None counts as not given."""

'''

TYPES = {
    "text": "str",
    "path": "Path",
    "flag": "bool",
    "whole": "int",
    "number": "float",
    "list": "str | Sequence[str]",
    "resume": "bool | str",
    "prices": "Mapping[str, float]",
    "thresholds": "Mapping[str, float]",
    "entries": "str | Mapping[str, Any] | Sequence[Any]",
    "aliases": "Mapping[str, Any]",
}


def type_of(accepts: Accepts) -> str:
    """The type of the values that an option accepts, as source text."""
    if accepts.kind == "choice":
        words = ", ".join(f'"{word}"' for word in accepts.words)
        return f"Literal[{words}]"
    return TYPES[accepts.kind]


def source() -> str:
    lines = []
    for field in dataclasses.fields(Settings):
        if field.name not in NAMED:
            about = f'"""{field.metadata["about"]}"""'
            lines.append(f"    {field.name}: {type_of(field.metadata['accepts'])} | None")
            lines += textwrap.wrap(about, 114, initial_indent="    ", subsequent_indent="    ")
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(source(), end="")
