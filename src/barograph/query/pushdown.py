"""Which runs and series a query can touch, told from the query itself.

In:   the query's syntax tree, as DuckDB's `json_serialize_sql` writes it.
Out:  for each table the conditions that its rows must meet, and the columns that are mentioned.

The query is answered in full over what is read, so what is given here may only leave out rows that the
query would throw away itself. Whatever is not understood lets everything through: a query is then slow,
never wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

KEYS = ("project", "run", "name")
"""Columns whose conditions save reading."""

_KNOWN_FUNCTIONS = ("range", "generate_series", "unnest")  # table functions that read no table by its name
_PLAIN_JOINS = ("REGULAR", "CROSS")


class Condition:
    """Lets everything through. `exact(column)`: the only values that a column can have; None if it may have any."""

    def allows(self, keys: Mapping[str, str]) -> bool:
        """Whether a row with these keys could be wanted; a key that is not given could be anything."""
        return True

    def exact(self, column: str) -> frozenset[str] | None:
        return None


ANY = Condition()


class Test(Condition):
    """A condition on one column. values: all that it accepts, where they are few."""

    def __init__(self, column: str, accepts: Callable[[str], bool], values: frozenset[str] | None = None):
        self.column, self.accepts, self.values = column, accepts, values

    def allows(self, keys: Mapping[str, str]) -> bool:
        return self.column not in keys or self.accepts(keys[self.column])

    def exact(self, column: str) -> frozenset[str] | None:
        return self.values if column == self.column else None


class All(Condition):
    def __init__(self, parts: list[Condition]):
        self.parts = parts

    def allows(self, keys: Mapping[str, str]) -> bool:
        return all(part.allows(keys) for part in self.parts)

    def exact(self, column: str) -> frozenset[str] | None:
        present = [values for part in self.parts if (values := part.exact(column)) is not None]
        return frozenset.intersection(*present) if present else None


class Any_(Condition):
    def __init__(self, parts: list[Condition]):
        self.parts = parts

    def allows(self, keys: Mapping[str, str]) -> bool:
        return any(part.allows(keys) for part in self.parts)

    def exact(self, column: str) -> frozenset[str] | None:
        found = [part.exact(column) for part in self.parts]
        present = [values for values in found if values is not None]
        return frozenset.union(*present) if present and len(present) == len(found) else None


class QueryScope(NamedTuple):
    """tables: table → the condition of its rows; a table that is not named is not looked at, unless `anything`.
    columns: names that the query mentions, in small letters; None: any.
    """

    tables: dict[str, Condition]
    columns: frozenset[str] | None
    anything: bool = False

    def condition(self, table: str) -> Condition:
        return ANY if self.anything else self.tables.get(table, ANY)


EVERYTHING = QueryScope({}, None, True)


def wanted(
    tree: Mapping[str, Any] | None, columns: Mapping[str, frozenset[str]], parameters: Mapping[str, Any] | None = None
) -> QueryScope:
    """What a query can touch.

    tree: the serialized query, None if it could not be had. columns: each table's columns. parameters: values of
    `$1`, `$name`, by their identifiers.
    """
    if not tree or tree.get("error"):
        return EVERYTHING
    try:
        walk = _Walk(columns, parameters or {})
        nodes = list(_dicts(tree))
        if walk.hides_something(nodes):
            return EVERYTHING
        walk.visit(tree, ANY)
        found = {name: parts[0] if len(parts) == 1 else Any_(parts) for name, parts in walk.found.items()}
        return QueryScope(found, _columns(nodes))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):  # a tree of another version
        return EVERYTHING


def _dicts(node: Any) -> Iterator[Mapping[str, Any]]:
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            yield one
            stack += one.values()
        elif isinstance(one, list):
            stack += one


def _columns(nodes: list[Mapping[str, Any]]) -> frozenset[str] | None:
    """Every name that a column reference has; None if rows are used as a whole."""
    found: set[str] = set()
    tables: set[str] = set()
    for node in nodes:
        kind = node.get("type")
        if kind in ("STAR", "SHOW_REF", "PIVOT") or node.get("ref_type") in ("NATURAL", "POSITIONAL"):
            return None
        if kind == "COLUMN_REF":
            found.update(str(name).lower() for name in node["column_names"])
            if len(node["column_names"]) == 1:
                tables.add(str(node["column_names"][0]).lower())  # perhaps a whole row: select runs from runs
        found.update(str(name).lower() for name in node.get("using_columns") or ())
    named = {str(node.get(key) or "").lower() for node in nodes for key in ("alias", "table_name")
             if node.get("type") in ("BASE_TABLE", "SUBQUERY", "JOIN")}  # fmt: skip
    return None if tables & (named - {""}) else frozenset(found)


class _Walk:
    def __init__(self, columns: Mapping[str, frozenset[str]], parameters: Mapping[str, Any]):
        self.columns = columns
        self.parameters = parameters
        self.found: dict[str, list[Condition]] = {}

    def hides_something(self, nodes: list[Mapping[str, Any]]) -> bool:
        """Whether a table may be read without being named: `query('select …')`."""
        for node in nodes:
            if node.get("type") == "TABLE_FUNCTION":
                function = node.get("function") or {}
                if str(function.get("function_name", "")).lower() not in _KNOWN_FUNCTIONS:
                    return True
        return False

    def visit(self, node: Any, outer: Condition) -> None:
        """Everything below a node; a table that no SELECT's conditions speak of is wanted whole."""
        if isinstance(node, list):
            for item in node:
                self.visit(item, outer)
        elif isinstance(node, dict):
            if node.get("type") == "SELECT_NODE" and isinstance(node.get("from_table"), dict):
                renamed = _renamed(node.get("select_list") or ())
                where = node.get("where_clause")
                self._source(node["from_table"], [where] if where and not renamed else [])
                for key, value in node.items():
                    if key != "from_table":
                        self.visit(value, outer)
            elif node.get("type") == "BASE_TABLE":
                self._source(node, [])
            else:
                for value in node.values():
                    self.visit(value, outer)

    def _source(self, node: Mapping[str, Any], filters: list[Any]) -> None:
        """A table in FROM, with the conditions that hold for its rows."""
        kind = node["type"]
        if kind == "BASE_TABLE":
            name = str(node["table_name"]).lower()
            if name in self.columns:
                plain = not node.get("sample") and not node.get("column_name_alias")
                alias = str(node.get("alias") or node["table_name"]).lower()
                parts = [self._condition(item, alias, self.columns[name]) for item in filters] if plain else []
                self.found.setdefault(name, []).append(All(parts) if parts else ANY)
        elif kind == "JOIN":
            how, plain = node.get("join_type"), node.get("ref_type") in _PLAIN_JOINS
            condition = node.get("condition")
            on = [condition] if isinstance(condition, dict) else []
            left = filters if plain else []
            right = filters if plain and how in ("INNER", "LEFT", "RIGHT", "OUTER") else []
            self._source(node["left"], left + (on if plain and how == "INNER" else []))
            self._source(node["right"], right + (on if plain and how in ("INNER", "LEFT") else []))
            self.visit(condition, ANY)
        else:
            self.visit({key: value for key, value in node.items() if key != "type"}, ANY)

    def _condition(self, node: Any, alias: str, known: frozenset[str]) -> Condition:
        if not isinstance(node, dict):
            return ANY
        kind = node.get("type")
        if kind in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
            parts = [self._condition(child, alias, known) for child in node["children"]]
            return All(parts) if kind == "CONJUNCTION_AND" else Any_(parts)
        if kind == "COMPARE_EQUAL":
            for item, other in ((node["left"], node["right"]), (node["right"], node["left"])):
                column, value = _column(item, alias, known), self._text(other)
                if column is not None and value is not None:
                    return _among(column, frozenset((value,)))
        if kind == "COMPARE_IN":
            column = _column(node["children"][0], alias, known)
            values = [self._text(child) for child in node["children"][1:]]
            if column is not None and None not in values:
                return _among(column, frozenset(value for value in values if value is not None))
        if kind == "FUNCTION" and node.get("function_name") in ("~~", "starts_with", "prefix", "^@"):
            arguments = [item["expression"] for item in node["arguments"]]
            column, value = _column(arguments[0], alias, known), self._text(arguments[1])
            if column is not None and value is not None and len(arguments) == 2:
                return Test(column, _like(value) if node["function_name"] == "~~" else _begins(value))
        return ANY

    def _text(self, node: Any) -> str | None:
        """The text that a constant or a parameter is; None for anything else."""
        if not isinstance(node, dict):
            return None
        value: Any = None
        if node.get("class") == "PARAMETER":
            value = self.parameters.get(str(node.get("identifier")))
        elif node.get("type") == "VALUE_CONSTANT":
            literal = node["literal"]
            value = literal["text"] if literal["kind"] == "STRING" else None
        return value if isinstance(value, str) else None


def _renamed(select: Any) -> bool:
    """Whether an expression of SELECT bears a key's name: WHERE could mean that one."""
    return any(
        str(item.get("alias") or "").lower() in KEYS
        and not (item.get("type") == "COLUMN_REF" and item["column_names"][-1].lower() == item["alias"].lower())
        for item in select
    )


def _column(node: Any, alias: str, known: frozenset[str]) -> str | None:
    """The key column of this table that an expression is; None for anything else."""
    if not isinstance(node, dict) or node.get("type") != "COLUMN_REF":
        return None
    *table, name = (str(part).lower() for part in node["column_names"])
    return name if name in KEYS and name in known and table in ([], [alias]) else None


def _among(column: str, values: frozenset[str]) -> Condition:
    return Test(column, values.__contains__, values)


def _like(pattern: str) -> Callable[[str], bool]:
    """LIKE: `%` is any text, `_` any one character."""
    text = "".join({"%": ".*", "_": "."}.get(char, re.escape(char)) for char in pattern)
    whole = re.compile(text, re.DOTALL)
    return lambda value: whole.fullmatch(value) is not None


def _begins(lead: str) -> Callable[[str], bool]:
    return lambda value: value.startswith(lead)
