"""The values of a configuration, one by one, as SQL and filters see them.

In:   nested configurations, values of any kind.
Out:  dotted names; text, numbers, whole numbers, moments, or None where a value is not that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from barograph.core.record import mark_non_finite, parse_time


def flat(config: Mapping[str, Any], lead: str = "", depth: int = 20) -> Iterator[tuple[str, Any]]:
    """The values of a nested configuration by their dotted names; an empty section is not a value."""
    for key, value in config.items():
        name = f"{lead}{key}"
        if isinstance(value, Mapping) and depth:
            yield from flat(value, f"{name}.", depth - 1)
        else:
            yield name, value


def plain_text(value: Any) -> str | None:
    """A value as text: text as it is, true and false as JSON has them, lists as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    return json.dumps(mark_non_finite(value), default=str)


def number_in(value: Any) -> float | None:
    """The number that a value is, or that its text is: YAML reads 1e-3 as text. None for true, false and words."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, str) and len(value) <= 40 and value[:1] in "+-.0123456789" and "_" not in value:
        try:
            return float(value)
        except ValueError:
            return None
    return None


def number(value: Any) -> float | None:
    """The number that a value is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def whole(value: Any) -> int | None:
    """The whole number that a value is, if 64 bits hold it."""
    found = number(value)
    if found is None or not math.isfinite(found) or not -(2**63) <= value < 2**63:
        return None
    return int(value)


def moment(text: Any) -> int | None:
    """Microseconds since 1970 of a time as a manifest has it."""
    return parse_time(text) or None


def sound(value: Any) -> Any:
    """A value as Arrow can hold it: half a surrogate pair in a text, or in a list of them, is written out."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return [sound(item) for item in value] if isinstance(value, list) else value
