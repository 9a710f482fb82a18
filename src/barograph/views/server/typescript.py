"""The server's answers as TypeScript.

In:   the structs of `schema`, `edits`, `media`, `saved` and `comparisons`, and the dataclasses that the last names.
Out:  `web/src/api/types.ts`, written by `python -m barograph.views.server.typescript PATH`; without a path, printed.
"""

from __future__ import annotations

import sys
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from barograph.views.server import comparisons, edits, media, saved, schema
from barograph.views.server.series import Request, SeriesWanted

SUFFIX = "Json"
_BASES = (schema.AnswerJson, schema.GivenJson, schema.OpenJson, msgspec.Struct)
_NAMES = {"Request": "SeriesQuery"}
_HEADER = """/** What the server answers, as types. Made from `schema.py`, `saved.py` and `comparisons.py` of
 *  `src/barograph/views/server`;
 *  change those, and write this file again: python -m barograph.views.server.typescript web/src/api/types.ts
 */
"""


def source() -> str:
    """The whole file."""
    parts: list[str] = []
    named: dict[str, str] = {}
    ours = [_structs(schema), [SeriesWanted, Request], *map(_structs, (edits, media, saved, comparisons))]
    for structs in (*ours, comparisons.SHARED):
        _, components = msgspec.json.schema_components(structs, ref_template="{name}")
        parts += [_interface(struct, components, named) for struct in structs]
    return "\n".join([_HEADER, *named.values(), *parts])


def _structs(module: ModuleType) -> list[Any]:
    return [
        found
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, msgspec.Struct)
        and found not in _BASES
        and found.__module__ == module.__name__
    ]


def _interface(struct: Any, components: dict[str, Any], named: dict[str, str]) -> str:
    own = components[struct.__name__]
    whole = is_dataclass(struct)  # its defaults are there too
    base = msgspec.Struct if whole else struct.__mro__[1]
    inherited = {} if base in _BASES else components[base.__name__]["properties"]
    required = set(own["properties"] if whole else own.get("required", ()))
    lines = []
    for name, shape in own["properties"].items():
        if name in inherited:
            continue
        if "description" in shape and "title" not in shape:
            lines.append(_comment(shape["description"], "  "))
        mark = "" if name in required else "?"
        lines.append(f"  {name}{mark}: {_type(shape, named)};\n")
    if base is schema.OpenJson:
        lines.append("  [more: string]: unknown;\n")
    extends = "" if base in _BASES else f" extends {_name(base.__name__)}"
    comment = _comment(" ".join((struct.__doc__ or "").split()))
    return f"{comment}export interface {_name(struct.__name__)}{extends} {{\n{''.join(lines)}}}\n"


def _comment(text: str, indent: str = "") -> str:
    whole = f"{indent}/** {text} */\n"
    if len(whole) <= 121:
        return whole
    lines, line = [], f"{indent}/**"
    for word in text.split():
        if len(line) + 1 + len(word) > 120:
            lines.append(line)
            line = f"{indent} *"
        line += f" {word}"
    return "\n".join([*lines, line, f"{indent} */"]) + "\n"


def _name(struct: str) -> str:
    return _NAMES.get(struct) or struct.removesuffix(SUFFIX)


def _type(shape: dict[str, Any], named: dict[str, str]) -> str:
    """A JSON schema as a TypeScript type; what has a title gets a name of its own in `named`."""
    if "title" in shape and "$ref" not in shape:
        rest = {key: value for key, value in shape.items() if key not in ("title", "description")}
        name = str(shape["title"])
        comment = f"/** {shape['description']} */\n" if "description" in shape else ""
        if name not in named:
            named[name] = f"{comment}export type {name} = {_type(rest, named)};\n"
        return name
    if "$ref" in shape:
        return _name(shape["$ref"])
    if "enum" in shape:
        return " | ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in shape["enum"])
    if "anyOf" in shape:
        return " | ".join(dict.fromkeys(_type(item, named) for item in shape["anyOf"]))
    match shape.get("type"):
        case "string":
            return "string"
        case "number" | "integer":
            return "number"
        case "boolean":
            return "boolean"
        case "null":
            return "null"
        case "array" if "prefixItems" in shape:
            return f"[{', '.join(_type(item, named) for item in shape['prefixItems'])}]"
        case "array":
            inner = _type(shape.get("items", {}), named)
            return f"({inner})[]" if " " in inner and not inner.startswith(("[", "Record")) else f"{inner}[]"
        case "object":
            values = shape.get("additionalProperties")
            inner = _type(values, named) if isinstance(values, dict) and values else "unknown"
            keys = shape.get("propertyNames", {})
            if "enum" in keys:
                return f"Record<{_type(keys, named)}, {inner}>"
            return f"Record<string, {inner}>"
        case _:
            return "unknown"


def main(arguments: list[str]) -> None:
    """Write the file, or print it."""
    if arguments:
        Path(arguments[0]).write_text(source(), encoding="utf-8")
    else:
        print(source(), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
