"""Conditions on runs, as a person writes them.

In:   text such as `config.lr > 1e-3 and status = finished and tag = sweep`; a stored run.
Out:  a condition; whether a run meets it. Nothing of the text is ever executed.

    condition  = any { "or" any }         any = one { "and" one }
    one        = "not" one | "(" condition ")" | field | field op value | field ["not"] "in" "(" value { "," value } ")"
    op         = "=" "==" "!=" "<" "<=" ">" ">=" "~" "!~"        (~: a shell pattern, such as *warmup*)
    value      = number | true | false | null | word | 'text' | "text"

A field alone asks whether the run has it. A run without the field meets no comparison with it, except `= null`.
Numbers compare as numbers, also where a configuration has them as text; times as `2026-01-31` or with hours.
"""

from __future__ import annotations

import difflib
import fnmatch
import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from barograph.core.record import parse_time
from barograph.query import catalog
from barograph.query.leaves import number_in, plain_text
from barograph.query.shelf import RunEntry, latest
from barograph.query.stored import StoredRun
from barograph.store.clickhouse.address import is_address

FIELDS: dict[str, str] = {
    "id": "text", "run": "text", "name": "text", "project": "text", "status": "text", "tag": "texts",
    "notes": "text", "host": "text", "commit": "text", "created": "time", "finished": "time",
    "wall_seconds": "number", "gpu_hours": "number", "cost": "number", "total_steps": "number",
    "world_size": "number", "step": "number", "loss": "number", "eval_loss": "number",
}  # fmt: skip
"""What can be asked beside `config.NAME`, and what it is."""

_ALSO = {"tags": "tag", "repo_commit": "commit"}
_DEEPEST = 100  # brackets and nots inside one another
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<op>==|!=|<=|>=|!~|[=<>~(),])|(?P<word>[^\s'"=<>!~(),]+))"""
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class FilterError(ValueError):
    """The text is not a condition; the message says where and what to write."""


class Value(NamedTuple):
    """An operand of a condition. kind: number, flag, null, word (without quotes) or text; `said`: as written."""

    kind: str
    value: Any
    said: str


class Clause(NamedTuple):
    """op: one of the grammar's, `has` for a field alone, or `in`."""

    field: str
    op: str
    values: tuple[Value, ...] = ()


class Group(NamedTuple):
    """op: and, or, not (of one part)."""

    op: str
    parts: tuple[Any, ...]


Condition = Clause | Group


def select(runs: Iterable[StoredRun], condition: str | Condition) -> list[StoredRun]:
    """The runs that meet a condition, in their order. Raises FilterError with a sentence."""
    parsed = parse(condition) if isinstance(condition, str) else condition
    return [run for run in runs if matches(parsed, run)]


def runs(
    dir: str | os.PathLike[str] | None = None,
    project: str | None = None,
    *,
    where: str | None = None,
    status: str | None = None,
    tag: str | None = None,
) -> list[StoredRun]:
    """The runs under a folder (default: `BAROGRAPH_DIR`, else `runs`), the newest last.

    where: a condition, such as `config.lr > 1e-3 and status = finished`; it may stand first too:
    `barograph.runs("tag = sweep")`. Raises FilterError with a sentence for one that cannot be read.
    """
    if (
        isinstance(dir, str)
        and where is None
        and not is_address(dir)
        and re.search(r"[=<>~]", dir)
        and not os.path.exists(dir)
    ):
        dir, where = None, dir
    condition = None if where is None else parse(where)
    found = catalog.runs(dir, project, status=status, tag=tag)
    return found if condition is None else select(found, condition)


# -- parsing ------------------------------------------------------------------------------------------


class _Token(NamedTuple):
    kind: str
    said: str
    at: int


def parse(text: str) -> Condition:
    """The condition that a text is. Raises FilterError, whose sentence names the place."""
    reader = _Parser(text)
    condition = reader.group("or", 0)
    if reader.at < len(reader.tokens):
        raise reader.sorry("expected `and`, `or` or the end")
    return condition


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.tokens: list[_Token] = []
        self.at = 0
        place = 0
        while text[place:].strip():
            match = _TOKEN.match(text, place)
            if match is None:
                start = place + len(text[place:]) - len(text[place:].lstrip())
                what = "a quote that is not closed" if text[start] in "'\"" else f"{text[start]!r}"
                raise FilterError(f"the filter cannot be read at character {start + 1}: {what}; {_EXAMPLE}")
            self.tokens.append(
                _Token(str(match.lastgroup), match[match.lastgroup or 0], match.start(match.lastindex or 0))
            )
            place = match.end()

    def sorry(self, why: str) -> FilterError:
        if self.at < len(self.tokens):
            token = self.tokens[self.at]
            where = f"at character {token.at + 1} ({token.said[:40]})"
        else:
            where = "at its end"
        return FilterError(f"the filter cannot be read {where}: {why}; {_EXAMPLE}")

    def peek(self) -> str:
        """The next word or sign, words in small letters; "" for a quoted text and at the end."""
        if self.at == len(self.tokens) or self.tokens[self.at].kind == "text":
            return ""
        return self.tokens[self.at].said.lower()

    def group(self, op: str, depth: int) -> Condition:
        if depth > _DEEPEST:
            raise self.sorry("too many brackets inside one another")
        part: Callable[[int], Condition] = (lambda depth: self.group("and", depth)) if op == "or" else self.one
        parts = [part(depth)]
        while self.peek() == op:
            self.at += 1
            parts.append(part(depth))
        return parts[0] if len(parts) == 1 else Group(op, tuple(parts))

    def one(self, depth: int) -> Condition:
        if depth > _DEEPEST:
            raise self.sorry("too many brackets inside one another")
        if self.peek() == "not":
            self.at += 1
            return Group("not", (self.one(depth + 1),))
        if self.peek() == "(":
            self.at += 1
            condition = self.group("or", depth + 1)
            self.expect(")")
            return condition
        return self.comparison()

    def comparison(self) -> Condition:
        if self.at == len(self.tokens) or self.tokens[self.at].kind != "word" or self.peek() in ("and", "or", "in"):
            raise self.sorry("expected a field, such as config.lr")
        field = self.field(self.tokens[self.at].said)
        self.at += 1
        op = self.peek()
        following = self.tokens[self.at + 1].said.lower() if self.at + 1 < len(self.tokens) else ""
        if op == "not" and following == "in":
            self.at += 1
            return Group("not", (self.among(field),))
        if op == "in":
            return self.among(field)
        if op in _COMPARE or op in ("!=", "~", "!~"):
            self.at += 1
            clause = Clause(field, {"==": "=", "!=": "=", "!~": "~"}.get(op, op), (self.value(field),))
            return Group("differs", (clause,)) if op in ("!=", "!~") else clause
        return Clause(field, "has")

    def among(self, field: str) -> Clause:
        self.at += 1
        self.expect("(")
        values = [self.value(field)]
        while self.peek() == ",":
            self.at += 1
            values.append(self.value(field))
        self.expect(")")
        return Clause(field, "in", tuple(values))

    def field(self, text: str) -> str:
        lower = text.lower()
        if lower.startswith("config.") and len(text) > len("config."):
            return "config." + text[len("config.") :]
        if lower in FIELDS or lower in _ALSO:
            return _ALSO.get(lower, lower)
        near = difflib.get_close_matches(lower, [*FIELDS, f"config.{text}"], 1, 0.5)
        raise self.sorry(f"there is no field {text[:60]!r}; the nearest is {(near or [f'config.{text[:60]}'])[0]!r}")

    def value(self, field: str) -> Value:
        """The next value. Refuses one that the field can never have: a word for a number, a time that is none."""
        if self.at == len(self.tokens) or self.tokens[self.at].kind == "op":
            raise self.sorry("expected a value")
        token = self.tokens[self.at]
        result, kind = _value_of(token), FIELDS.get(field)
        if kind == "number" and result.kind not in ("number", "null"):
            raise self.sorry(f"{field} is a number")
        if kind == "time" and result.kind != "null" and not _moment(result):
            raise self.sorry(f"{field} is a time, such as 2026-01-31")
        self.at += 1
        return result

    def expect(self, sign: str) -> None:
        if self.peek() != sign:
            raise self.sorry(f"expected `{sign}`")
        self.at += 1


def _value_of(token: _Token) -> Value:
    if token.kind == "text":
        return Value("text", re.sub(r"\\(.)", r"\1", token.said[1:-1], flags=re.DOTALL), token.said)
    lower = token.said.lower()
    if lower in ("true", "false"):
        return Value("flag", lower == "true", token.said)
    if lower in ("null", "none"):
        return Value("null", None, token.said)
    found = float(lower) if lower in ("nan", "inf", "-inf") else number_in(token.said)
    return Value("word", token.said, token.said) if found is None else Value("number", found, token.said)


_EXAMPLE = "write for example: config.lr > 1e-3 and status = finished and tag = sweep"


def written(condition: Condition) -> str:
    """A condition as text that reads as the same condition again."""
    if isinstance(condition, Clause):
        if condition.op == "has":
            return condition.field
        if condition.op == "in":
            return f"{condition.field} in ({', '.join(value.said for value in condition.values)})"
        return f"{condition.field} {condition.op} {condition.values[0].said}"
    if condition.op == "not":
        return f"not ({written(condition.parts[0])})"
    if condition.op == "differs":
        part = condition.parts[0]
        return f"{part.field} {'!=' if part.op == '=' else '!~'} {part.values[0].said}"
    return f" {condition.op} ".join(f"({written(part)})" for part in condition.parts)


# -- matching -----------------------------------------------------------------------------------------


def matches(condition: Condition, run: StoredRun) -> bool:
    """Whether a run meets a condition."""
    return meets(condition, FilterFacts(run))


def meets(condition: Condition, facts: FilterFacts) -> bool:
    """The same by the facts of a run, which may be kept for the next condition."""
    if isinstance(condition, Clause):
        return _compares(condition, facts)
    if condition.op == "not":
        return not meets(condition.parts[0], facts)
    if condition.op == "differs":  # as `not =`, but for runs that have the field
        part = condition.parts[0]
        null = part.values[0].kind == "null"
        return (null or facts.get(part.field) is not None) and not _compares(part, facts)
    each = (meets(part, facts) for part in condition.parts)
    return all(each) if condition.op == "and" else any(each)


def _compares(clause: Clause, facts: FilterFacts) -> bool:
    held = facts.get(clause.field)
    if clause.op == "has":
        return held is not None and held != []
    if held is None:
        return any(value.kind == "null" for value in clause.values) and clause.op in ("=", "in")
    kind = FIELDS.get(clause.field, "config")
    each = held if kind == "texts" else [held]
    op = "=" if clause.op == "in" else clause.op
    if clause.field == "tag" and op == "=" and not held:
        return any(value.kind == "null" for value in clause.values)
    return any(_compare(kind, item, op, value) for item in each for value in clause.values)


def _compare(kind: str, held: Any, op: str, value: Value) -> bool:
    """One value of a run against one of the condition; False where they are of different sorts."""
    if value.kind == "null":
        return False
    if op == "~":
        return fnmatch.fnmatchcase((plain_text(held) or "").lower(), _plain(value).lower())
    if kind == "time":
        return _COMPARE[op](held, _moment(value))
    if isinstance(held, bool):
        return value.kind == "flag" and op == "=" and held == value.value
    wanted = value.value if value.kind == "number" else None
    found = number_in(held)
    if kind == "text" or kind == "texts":
        found = None
    if found is not None and wanted is not None:
        return _COMPARE[op](found, wanted)
    if op == "=":
        return plain_text(held) == _plain(value)
    return isinstance(held, str) and wanted is None and value.kind != "flag" and _COMPARE[op](held, _plain(value))


def _plain(value: Value) -> str:
    """A value as the text that was meant."""
    return value.value if value.kind == "text" else value.said


def _moment(value: Value) -> int:
    return parse_time(_plain(value))


class FilterFacts:
    """What a run is, each fact looked up when it is asked for, and once."""

    def __init__(self, run: StoredRun):
        self._run = run
        self._known: dict[str, Any] = {}

    def get(self, field: str) -> Any:
        if field not in self._known:
            self._known[field] = self._look(field)
        return self._known[field]

    def _look(self, field: str) -> Any:
        run = self._run
        if field.startswith("config."):
            return _leaf(self._config(), field[len("config.") :])
        if field in ("id", "run"):
            return run.id
        if field in ("name", "project", "status"):
            return getattr(run, field)
        if field == "tag":
            return [str(tag) for tag in run.tags]
        if field in ("step", "loss", "eval_loss"):
            self._known |= latest(RunEntry(run))
            return self._known[field]
        value = self._about().get("repo_commit" if field == "commit" else field)
        if FIELDS[field] == "time":
            return parse_time(value) or None
        if FIELDS[field] == "number":
            return number_in(value)
        return plain_text(value) or None

    def _about(self) -> Mapping[str, Any]:
        if "about" not in self._known:
            self._known["about"] = self._run.manifest
        about: Mapping[str, Any] = self._known["about"]
        return about

    def _config(self) -> Mapping[str, Any]:
        if "config" not in self._known:
            self._known["config"] = self._run.config
        config: Mapping[str, Any] = self._known["config"]
        return config


def _leaf(config: Mapping[str, Any], name: str) -> Any:
    """A value by its dotted name, also where a name has dots itself; a section is the mapping. None: not there."""
    if name in config:
        value = config[name]
        return None if isinstance(value, float) and math.isnan(value) else value
    for key, value in config.items():
        if isinstance(value, Mapping) and name.startswith(f"{key}."):
            result = _leaf(value, name[len(str(key)) + 1 :])
            if result is not None:
                return result
    return None
