"""What an option accepts, and a value that is given as it is kept.

In:   a value of Python's, or an environment variable's text.
Out:  the value as the option holds it, or `UnfitError`.
"""

from __future__ import annotations

import math
import numbers
import operator
import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from barograph.core.patterns import expression

MOST = 2**63 - 1  # whole numbers are stored in 64 bits


class UnfitError(Exception):
    """The option does not accept the value."""


class Accepts(NamedTuple):
    """What an option accepts: a kind of value, its bounds (inclusive), or the words to choose from."""

    kind: Literal[
        "text",
        "path",
        "flag",
        "whole",
        "number",
        "list",
        "choice",
        "resume",
        "prices",
        "aliases",
        "thresholds",
        "entries",
    ]
    low: float = -math.inf
    high: float = math.inf
    words: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()  # words of earlier versions, and what they are now

    def __str__(self) -> str:
        if self.kind in ("whole", "number"):
            noun = "a whole number" if self.kind == "whole" else "a number"
            low, high = (int(bound) if float(bound).is_integer() else bound for bound in (self.low, self.high))
            return f"{noun} from {low}" + (f" to {high}" if high < MOST else "")
        if self.kind == "choice":
            return f"one of {', '.join(self.words)}"
        if self.kind == "list":
            return f"one or a list of {', '.join(self.words) or 'texts'}"
        filled = "that is not empty" if self.low > 0 else ""
        return {
            "text": f"text {filled}".strip(),
            "path": f"a path {filled}".strip(),
            "flag": "true or false",
            "resume": "true, false, auto, must, or a run's id or folder",
            "prices": "names and what an hour of each costs, such as H100=2.5,kwh=0.3",
            "thresholds": "thresholds and their values, such as grad_norm_max=500,loss_spike.z=10",
            "entries": "a list of entries, or text with semicolons between them",
            "aliases": "canonical names and yours, such as train/loss=my_loss or train/duration_ms=secs*1000",
        }[self.kind]


_FACTOR = Accepts("number", -1e300, 1e300)
_FLAG_WORDS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)
_NUMBER = expression(r"[+-]?([0-9][0-9_]*(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def from_text(accepts: Accepts, text: str) -> Any:
    word = text.strip()
    if accepts.kind == "flag":
        if word.lower() not in _FLAG_WORDS:
            raise UnfitError
        return _FLAG_WORDS[word.lower()]
    if accepts.kind == "resume" and word.lower() in ("true", "false"):
        return word.lower() == "true"
    if accepts.kind in ("whole", "number"):
        return _number(accepts, _parsed_number(word))
    if accepts.kind == "list":
        return _words(accepts, [part.strip() for part in text.split(",") if part.strip()])
    if accepts.kind in ("prices", "thresholds"):
        pairs = [part.rpartition("=") for part in text.split(",") if part.strip()]
        return _numbers(accepts, {name.strip(): _parsed_number(price.strip()) for name, _, price in pairs})
    if accepts.kind == "aliases":
        return _aliases_from_text(text)
    if accepts.kind == "entries":
        return tuple(part.strip() for part in text.split(";") if part.strip())
    return from_value(accepts, word if accepts.kind == "choice" else text)


def from_value(accepts: Accepts, value: Any) -> Any:
    if accepts.kind == "flag":
        if not isinstance(value, bool):
            raise UnfitError
        return value
    if accepts.kind in ("whole", "number"):
        # `1e-3` is text to a YAML 1.1 parser, though a number to everybody who writes it
        exponent = isinstance(value, str) and "e" in value.lower()
        return _number(accepts, _parsed_number(value) if exponent else value)
    if accepts.kind == "list":
        return _words(accepts, value)
    if accepts.kind == "path":
        return _path(accepts, value)
    if accepts.kind in ("prices", "thresholds"):
        return _numbers(accepts, value)
    if accepts.kind == "aliases":
        return _aliases(value)
    if accepts.kind == "entries":  # checked by who reads them
        return tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if accepts.kind == "resume" and isinstance(value, bool):
        return value
    if accepts.kind == "choice":
        chosen = "none" if value is False else _text(value)  # YAML reads `off` and `no` as false
        chosen = dict(accepts.renamed).get(chosen, chosen)
        if chosen not in accepts.words:
            raise UnfitError
        return chosen
    text = _text(value)
    if accepts.low > 0 and not text.strip():
        raise UnfitError
    return text


def _parsed_number(word: str) -> int | float:
    if len(word) > 50 or not _NUMBER.fullmatch(word):
        raise UnfitError
    try:
        return float(word) if set(word) & set(".eE") else int(word)
    except ValueError:  # `1__0`
        raise UnfitError from None


def _number(accepts: Accepts, value: Any) -> int | float:
    """The number within its bounds. A whole number may be written as a float, such as 1e9; a flag is none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise UnfitError
    try:
        real = float(value)
        whole = int(real) if real.is_integer() else None
        if isinstance(value, numbers.Integral):
            whole = operator.index(value)  # exact beyond 2^53, where a float is not
    except (OverflowError, ValueError):
        raise UnfitError from None
    exact = real if whole is None else whole
    if not accepts.low <= exact <= accepts.high or (accepts.kind == "whole" and whole is None):
        raise UnfitError
    return exact if accepts.kind == "whole" else real


def _words(accepts: Accepts, value: Any) -> tuple[str, ...]:
    if isinstance(value, (set, frozenset)):
        parts = sorted(_text(item) for item in value)
    else:
        parts = [_text(item) for item in (value if isinstance(value, (list, tuple)) else [value])]
    if accepts.words and not set(parts) <= set(accepts.words):
        raise UnfitError
    return tuple(dict.fromkeys(part for part in parts if part and not (accepts.words and part == "none")))


def _numbers(accepts: Accepts, value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name.strip() for name in value):
        raise UnfitError
    return {_text(name): float(_number(accepts, price)) for name, price in value.items()}


def _aliases(value: Any) -> dict[str, Any]:
    """Name of ours → a name, a list of names, or `{name, factor}`: what `barograph.core.aliases` understands."""
    if not isinstance(value, Mapping):
        raise UnfitError
    return {_name(ours): _alias(theirs) for ours, theirs in value.items()}


def _alias(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, (list, tuple)) for item in value):
            raise UnfitError
        return [_alias(item) for item in value]
    if isinstance(value, Mapping):
        if not {"name"} <= value.keys() <= {"name", "factor"}:
            raise UnfitError
        return {"name": _name(value["name"]), "factor": float(_number(_FACTOR, value.get("factor", 1.0)))}
    return _name(value)


def _aliases_from_text(text: str) -> dict[str, Any]:
    """`ours=theirs`, separated by commas; `theirs*1000` brings its values to the unit of ours."""
    found: dict[str, list[Any]] = {}
    for part in text.split(","):
        if part.strip():
            ours, _, theirs = part.partition("=")
            name, times, factor = theirs.rpartition("*")
            one = {"name": name.strip(), "factor": _parsed_number(factor.strip())} if times else theirs.strip()
            found.setdefault(ours.strip(), []).append(one)
    return _aliases({ours: several[0] if len(several) == 1 else several for ours, several in found.items()})


def _name(value: Any) -> str:
    text = _text(value)
    if not text.strip():
        raise UnfitError
    return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise UnfitError
    return str.__str__(value).encode("utf-8", "backslashreplace").decode()  # what a JSON file can hold


def _path(accepts: Accepts, value: Any) -> str:
    try:
        path = os.fspath(value)
    except TypeError:
        raise UnfitError from None
    if not isinstance(path, str) or "\0" in path or (accepts.low > 0 and not path.strip()):
        raise UnfitError
    return os.path.expanduser(str.__str__(path))
