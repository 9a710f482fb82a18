"""One alert, and the message that one or many of them make.

In:   what went wrong, or right again; the run it happened to.
Out:  the fields of an `alert` record, a line for the console, the title and body of a message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

LEVELS = ("info", "warning", "critical")
"""From the mildest to the gravest."""
_WORDS = {level: level for level in LEVELS} | {"warn": "warning", "error": "critical", "debug": "info"}
_MOST_SHOWN = 20  # alerts in one message; the others are counted
_TITLE, _TEXT = 200, 2000  # characters


@dataclasses.dataclass(frozen=True, slots=True)
class Alert:
    """What is sent. `cause` is the same for news of the same trouble; `recovered`: the trouble is over.

    `time` is microseconds since 1970, UTC; `step` the optimizer step; `value` the metric's value, None without one.
    """

    title: str
    text: str
    level: str
    cause: str
    metric: str = ""
    value: float | None = None
    step: int = 0
    time: int = 0
    recovered: bool = False

    def fields(self) -> dict[str, Any]:
        """The fields of its record."""
        result: dict[str, Any] = {"title": self.title, "text": self.text, "level": self.level, "cause": self.cause}
        if self.metric:
            result["metric"] = self.metric
        if self.value is not None:
            result["value"] = self.value
        if self.recovered:
            result["recovered"] = True
        return result

    def line(self) -> str:
        """It in one line."""
        told = f"{self.title}: {self.text}" if self.text and self.text != self.title else self.title
        return f"{'recovered' if self.recovered else self.level}: {told} (step {self.step})"


def alert_of(fields: Mapping[str, Any]) -> Alert:
    """An alert of a request to the loop."""
    names = {each.name for each in dataclasses.fields(Alert)}
    known = {name: value for name, value in fields.items() if name in names}
    return Alert(**({"title": "", "text": "", "level": "warning", "cause": ""} | known))


def level_of(word: object) -> str | None:
    """The level that a word names, in any case; None if it names none. `warn` and `error` are known too."""
    return _WORDS.get(word.strip().lower()) if isinstance(word, str) else None


def rank(level: str) -> int:
    """How grave a level is: 0, 1 or 2."""
    return LEVELS.index(level)


def clean(text: str, most: int = _TEXT) -> str:
    """Text of anybody's in one line without control characters: titles become headers of mails."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * most])
    joined = " ".join(plain.split())
    return joined if len(joined) <= most else f"{joined[: most - 1]}…"


def title_of(text: str) -> str:
    """`clean`, as short as a title should be."""
    return clean(text, _TITLE)


def compose(alerts: Sequence[Alert], about: str, more: int = 0) -> tuple[str, str, str]:
    """Title, body and kind ("info", "warning", "critical" or "recovered") of one message.

    about: what run it is, a line. more: alerts that there was no room for.
    """
    standing = [alert for alert in alerts if not alert.recovered]
    gravest = max((alert.level for alert in standing), key=rank, default="recovered")
    if len(alerts) + more == 1:
        only = alerts[0]
        title = f"[{gravest}] {only.title}"
        body = [only.text or only.title, f"step {only.step}"]
    else:
        ends = len(alerts) - len(standing)
        parts = [f"{len(standing) + more} alerts"] if standing or more else []
        parts += [f"{ends} recovered"] if ends else []
        title = f"[{gravest}] {', '.join(parts)}: {alerts[0].title}"
        body = [alert.line() for alert in alerts[:_MOST_SHOWN]]
        hidden = more + max(0, len(alerts) - _MOST_SHOWN)
        body += [f"… and {hidden} more; they are in the run's log"] if hidden else []
    return title_of(title), "\n".join([*body, about]), gravest
