"""What may stand under `alerts:` and `notify:`, checked.

In:   entries of a YAML file, of an environment variable or of Python: mappings, or short text.
Out:  thresholds and addresses, or a ConfigError whose one sentence names the place and the nearest option.

Short text is `METRIC > NUMBER`, `METRIC < NUMBER`, either with ` for ROWS` behind it.
"""

from __future__ import annotations

import difflib
import math
import numbers
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from barograph.core.options import ConfigError
from barograph.core.text import quoted, short
from barograph.sidecar.alerts.addresses import masked
from barograph.sidecar.alerts.alert import LEVELS, level_of, title_of
from barograph.sidecar.alerts.thresholds import Threshold

OPTIONS = (
    "metric", "above", "below", "change", "missing", "not_finite", "window", "for", "after", "severity", "title",
    "notify", "cooldown",
)  # fmt: skip
"""Of an entry of `alerts`. `rows` is another name of `for`, which is a word of Python's own."""
_CONDITIONS = ("above", "below", "change", "missing", "not_finite")
_ROUTE = ("to", "level")

_MOST_ROWS, _MOST_WINDOW, _MOST_SECONDS = 1_000_000, 10_000, 30 * 86_400
_SHORT = re.compile(r"\s*(?P<metric>\S+)\s*(?P<sign>[<>])\s*(?P<limit>[^\s<>]+)(?:\s+for\s+(?P<rows>\d{1,7}))?\s*")


def read_thresholds(entries: Any, place: str = "alerts") -> list[Threshold]:
    """The thresholds in a list of entries; one entry alone is a list of one. Raises ConfigError."""
    if entries is None:
        return []
    listed = [entries] if isinstance(entries, (str, Mapping)) else entries
    if not isinstance(listed, (list, tuple)):
        raise ConfigError(f"{place} is {_masked(entries)}, but it accepts a list of entries such as {_EXAMPLE}.")
    return [read_threshold(entry, f"{place}[{at}]") for at, entry in enumerate(listed)]


def rule_fields(entries: Any) -> list[dict[str, Any]]:
    """The entries as fields of `alert-rule` records, without addresses: they hold passwords. Raises ConfigError."""
    read_thresholds(entries)
    listed = [entries] if isinstance(entries, (str, Mapping)) else entries or ()
    rules = [_from_text(entry, "alerts") if isinstance(entry, str) else dict(entry) for entry in listed]
    return [{name: value for name, value in rule.items() if name != "notify"} for rule in rules]


_EXAMPLE = "{metric: train/loss, above: 10, for: 5}"


def read_threshold(entry: Any, place: str) -> Threshold:
    """One entry's threshold. Raises ConfigError."""
    if isinstance(entry, str):
        entry = _from_text(entry, place)
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{place} is {_masked(entry)}, but it accepts {_EXAMPLE} or text such as 'train/loss > 10'.")
    given = {_known(name, (*OPTIONS, "rows"), place): value for name, value in entry.items() if value is not None}
    if "rows" in given and "for" in given:
        raise ConfigError(f"{place} has for and rows, which are the same; leave one out.")
    metric = given.get("metric")
    if not isinstance(metric, str) or not metric.strip():
        raise ConfigError(f"{place} names no metric; add one, as in {_EXAMPLE}.")
    if given.get("not_finite") is False:
        del given["not_finite"]
    conditions = [name for name in _CONDITIONS if name in given]
    if not conditions:
        raise ConfigError(f"{place} has no condition; give one of {', '.join(_CONDITIONS)}.")
    if len(conditions) > 1 and conditions != ["above", "below"]:
        joined = " and ".join(conditions)
        raise ConfigError(f"{place} has {joined}; only above and below go together, so make them two entries.")
    if "window" in given and "change" not in given:
        raise ConfigError(f"{place} has a window, which only change has a use for; leave it out or give change.")
    if "missing" in given and ("for" in given or "rows" in given):
        raise ConfigError(f"{place} has missing, which counts seconds and not rows; leave for out.")
    rows = "rows" if "rows" in given else "for"
    check = _Check(given, place)
    return Threshold(
        metric=metric.strip(),
        above=check.number("above"),
        below=check.number("below"),
        change=check.change(),
        missing=check.number("missing", 0.001, _MOST_SECONDS),
        not_finite=check.flag("not_finite"),
        window=check.whole("window", 50, 2, _MOST_WINDOW),
        rows=check.whole(rows, 1, 1, _MOST_ROWS),
        after=check.whole("after", 0, 0, _MOST_ROWS),
        severity=check.level("severity"),
        title=check.title(),
        notify=read_routes(given["notify"], f"notify of {place}") if "notify" in given else None,
        cooldown=check.number("cooldown", 0, _MOST_SECONDS),
    )


def read_routes(entries: Any, place: str = "notify") -> tuple[tuple[str, str], ...]:
    """Addresses, each with the lowest level that goes there: of texts and `{to: ADDRESS, level: critical}`.

    Raises ConfigError, which shows no address: they hold passwords.
    """
    if entries is None:
        return ()
    listed = [entries] if isinstance(entries, (str, Mapping)) else entries
    if not isinstance(listed, (list, tuple)):
        raise ConfigError(f"{place} accepts a list of addresses such as mailto://…, not a {type(entries).__name__}.")
    found: dict[tuple[str, str], None] = {}
    for at, entry in enumerate(listed):
        here = f"{place}[{at}]"
        level: Any = "info"
        if isinstance(entry, Mapping):
            given = {_known(name, _ROUTE, here): value for name, value in entry.items()}
            entry, level = given.get("to"), given.get("level", "info")
        if not isinstance(entry, str) or not entry.strip():
            raise ConfigError(f"{here} holds no address; write one such as mailto://… or {{to: slack://…}}.")
        if not re.match(r"\s*[A-Za-z][A-Za-z0-9+.-]*://.", entry):
            raise ConfigError(f"{here} is {masked(entry)}, but an address begins with its kind, as in mailto://….")
        chosen = level_of(level)
        if chosen is None:
            raise ConfigError(f"level is {_masked(level)} in {here}, but it accepts one of {', '.join(LEVELS)}.")
        found[(entry.strip(), chosen)] = None
    return tuple(found)


def _from_text(entry: str, place: str) -> dict[str, Any]:
    matched = _SHORT.fullmatch(entry[:500])
    if matched is None:
        raise ConfigError(f"{place} is {_masked(entry)}, but as text it accepts METRIC > NUMBER or METRIC < NUMBER.")
    condition = "above" if matched["sign"] == ">" else "below"
    found: dict[str, Any] = {"metric": matched["metric"], condition: matched["limit"]}
    return found | ({"for": int(matched["rows"])} if matched["rows"] else {})


def _known(name: Any, names: tuple[str, ...], place: str) -> str:
    if isinstance(name, str) and name in names:
        return name
    nearest = difflib.get_close_matches(str(name)[:100], names, n=1, cutoff=0.0)[0]
    raise ConfigError(f"There is no option {_masked(name)} (in {place}); the nearest one is {nearest!r}.")


def _masked(value: Any) -> str:
    """A value in a short line; what looks like an address in it is masked."""
    return short(re.sub(r"\w+://\S*", lambda found: masked(found[0]), quoted(value, 2_000)), 80)


class _Check:
    """The values of one entry."""

    def __init__(self, given: Mapping[str, Any], place: str):
        self._given, self._place = given, place

    def _refuse(self, name: str, accepts: str) -> NoReturn:
        raise ConfigError(f"{name} is {_masked(self._given[name])} in {self._place}, but it accepts {accepts}.")

    def number(self, name: str, low: float = -math.inf, high: float = math.inf) -> float | None:
        if name not in self._given:
            return None
        value = _number(self._given[name])
        if value is None or not low <= value <= high:
            self._refuse(name, "a number" if high == math.inf else f"a number from {low:g} to {high:g}")
        return value

    def change(self) -> float | None:
        value = self._given.get("change")
        if value is None:
            return None
        share = _number(value[:-1]) if isinstance(value, str) and value.endswith("%") else _number(value)
        if share is None or share == 0:
            self._refuse("change", "a share that is not zero, such as -0.3 or +50%")
        return share / 100 if isinstance(value, str) and value.endswith("%") else share

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        if name not in self._given:
            return default
        value = _number(self._given[name])
        if value is None or not value.is_integer() or not low <= value <= high:
            self._refuse(name, f"a whole number from {low} to {high}")
        return int(value)

    def flag(self, name: str) -> bool:
        value = self._given.get(name, False)
        if not isinstance(value, bool):
            self._refuse(name, "true or false")
        return value

    def level(self, name: str) -> str:
        result = level_of(self._given.get(name, "warning"))
        if result is None:
            self._refuse(name, f"one of {', '.join(LEVELS)}")
        return result

    def title(self) -> str:
        value = self._given.get("title", "")
        if not isinstance(value, str):
            self._refuse("title", "text")
        return title_of(value)


def _number(value: Any) -> float | None:
    """A finite number, also as text: `1e-3` is text to a YAML 1.1 parser. A flag is none."""
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, str)):
        return None
    if isinstance(value, str) and (len(value) > 50 or "_" in value):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None
