"""What rules say, as data: templates of messages, causes and remedies, and the run's own numbers that fill them.

In:   a template and the numbers of a finding.
Out:  text; nothing where a number is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.doctor.kernel.cursor import known

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory

Text = str | tuple[str, ...]
"""A template, or several of which the first counts whose numbers are all known."""

GO_BACK = "go back to the checkpoint of step {checkpoint} ({checkpoint_path})"


class Case(NamedTuple):
    """What a rule says in one case. Severity, confidence and kind are the rule's own unless given."""

    message: str
    causes: tuple[Text, ...] = ()
    remedies: tuple[Text, ...] = ()
    severity: str = ""
    confidence: float = 0.5
    kind: str = ""


class _Unknown(Exception):
    """A template asks for a number that is not known."""


class RunNumbers(dict[str, Any]):
    """A finding's numbers by name; of the run, when asked for: `lr` and `third_of_lr` in force at that step,
    `checkpoint` and `checkpoint_path` of the last checkpoint before it.
    """

    def __init__(self, history: RunHistory, step: int, time: int, segment: int, given: dict[str, Any]):
        super().__init__(given)
        self._seen, self._place = history, (step, time, segment)

    def __missing__(self, name: str) -> Any:
        value: Any = None
        if name in ("lr", "third_of_lr"):
            rate = known(self._seen.role("lr"), *self._place)
            value = (rate if name == "lr" else rate / 3) if rate > 0 else None
        elif name.startswith("checkpoint"):
            saved = self._seen.checkpoint_before(self._place[0])
            value = saved and saved[name == "checkpoint_path"]
        if value is None:
            raise _Unknown(name)
        self[name] = value
        return value


def filled(texts: Iterable[Text], numbers: RunNumbers) -> list[str]:
    """Templates as text, without those of which a number is not known (missing, or NaN)."""
    result = []
    for text in texts:
        for item in (text,) if isinstance(text, str) else text:
            try:
                result.append(item.format_map(numbers))
            except _Unknown:
                continue
            break
    return result
