"""Findings for people.

In:   a diagnosis.
Out:  lines of text, with colour where the terminal has it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from barograph.core.text import count as amount
from barograph.core.text import escape
from barograph.query.findings import SEVERITIES, grouped, headline, where_of

_MARKS = {"critical": "✖", "warning": "▲", "info": "○"}
_CODES = {"critical": "\x1b[1;31m", "warning": "\x1b[33m", "info": "\x1b[36m", "dim": "\x1b[2m", "bold": "\x1b[1m"}
_NAMED = 12  # metrics shown by name
_SAID = 5  # messages of a log


class ColourStyle:
    """Colour, or none."""

    def __init__(self, colour: bool):
        self._colour = colour

    def __call__(self, text: str, name: str) -> str:
        return f"{_CODES[name]}{text}\x1b[0m" if self._colour else text


def page(
    diagnosis: Mapping[str, Any],
    *,
    width: int = 100,
    colour: bool = False,
    everything: bool = False,
    checklist: bool = False,
) -> str:
    """One run's findings, the worst first, and what was and was not looked at; the checklist if it is wanted."""
    style = ColourStyle(colour)
    findings: Sequence[Mapping[str, Any]] = diagnosis["findings"]
    width = max(40, width)
    first = _wrapped(
        f"{diagnosis['run']}  {verdict(findings, diagnosis.get('judged_by', ''), diagnosis.get('no_verdict'))}",
        width,
        "",
        2,
    )
    lines = [first[0].replace(name := escape(diagnosis["run"]), style(name, "bold"), 1), *first[1:]]
    for text in _reading(diagnosis):
        lines += _wrapped(text, width, "  ")
    shown = list(findings) if everything else grouped(findings)
    for finding in shown:
        lines += ["", *_finding_lines(finding, style, width)]
    if len(shown) < len(findings):
        lines += ["", "  --all shows each info finding"]
    if checklist:
        marks = {"yes": "✓", "no": "✗"}
        lines += ["", "  HEALTHY TRAINING"]
        for item in diagnosis["checklist"]:
            head = f"    {marks.get(item['answer'], '–')} {item['line']}: {item['answer']} ("
            lines += _wrapped(f"{item['why']})", max(40, width), head, 6)
    lines += ["", *_looked(diagnosis, style, width, everything)]
    return "\n".join(lines)


def verdict(findings: Sequence[Mapping[str, Any]], judged_by: str | None = "", reason: str | None = None) -> str:
    """`2 critical, 1 warning: ` and the worst, that no problems were found, or that there is no verdict."""
    counts = {severity: sum(finding["severity"] == severity for finding in findings) for severity in SEVERITIES}
    words = {"critical": ("critical", "critical"), "warning": ("warning", "warnings"), "info": ("info", "info")}
    parts = [f"{count} {words[name][count != 1]}" for name, count in counts.items() if count]
    worst = headline(findings, judged_by, *([reason] if reason else []))
    if counts["critical"] or counts["warning"]:
        return f"{', '.join(parts)}: {worst}"
    return ", ".join([worst[0].lower() + worst[1:], *parts])


def _reading(diagnosis: Mapping[str, Any]) -> Iterator[str]:
    """What was not read, and what a verdict would need."""
    unread = diagnosis.get("unread") or {}
    if unread.get("count"):
        shown = next((f", such as line {item['where']:,}: {item['text']}" for item in unread.get("examples") or ()), "")
        yield f"{unread['count']:,} line{'s' * (unread['count'] != 1)} not understood{shown}"
    count = diagnosis.get("without_step") or 0
    if count:
        yield f"the log says no step for {count:,} rows: they are numbered as they come"
    stops = diagnosis.get("stops")
    if stops:
        yield f"the log ends at step {stops['step']:,} of {stops['planned']:,} planned and does not say why"
    said = diagnosis.get("said") or []
    for item in said[:_SAID]:
        times = f"{item['count']} times, first " if item["count"] > 1 else ""
        where = "" if item["step"] is None else f" at step {item['step']:,}"
        yield f"the log says, {times}in line {item['line']:,}{where}: {item['text']}"
    if len(said) > _SAID:
        yield f"… and {len(said) - _SAID} more messages: --json has them"
    if diagnosis.get("judged_by", "") is None:
        names = diagnosis.get("series") or []
        yield "metrics found: " + (", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "") or "none")
        if not diagnosis.get("no_verdict") or "accuracy" in diagnosis["no_verdict"]:
            yield "needed: a series of a loss or a reward; the option aliases says which series it is"


def _finding_lines(finding: Mapping[str, Any], style: ColourStyle, width: int) -> Iterator[str]:
    severity = finding["severity"]
    head = f"{_MARKS[severity]} {severity.upper():<8}"
    where = where_of(finding["evidence"], finding["step"], finding["last_step"])
    told = f"{style(where, 'bold')}  " if where else ""
    count = finding.get("count", 1)
    yield f"  {style(head, severity)}  {told}{finding['rule']}{f', {count} times' * (count > 1)}"
    yield from _wrapped(finding["message"], width, "    ")
    if count > 1:
        return
    evidence = finding["evidence"]
    spark = evidence.get("spark")
    if isinstance(spark, Mapping) and spark:
        stretch = f"{spark['from']:,} … {spark['to']:,}"
        yield f"    {escape(spark['series'], 40)}  {spark['bars']}  {style(stretch, 'dim')}"
    for item in evidence.get("story", ()):
        before = (
            "before" if item["step"] < finding["step"] else "with it" if item["step"] == finding["step"] else "then"
        )
        yield from _wrapped(item["message"], width, f"    {before:<8}", 12, f"step {item['step']:,} {item['rule']}: ")
    for at, cause in enumerate(finding["causes"][:3]):
        yield from _wrapped(cause, width, "    cause   " if not at else "    or      ", 12)
    for at, remedy in enumerate(finding["remedies"][:5]):
        yield from _wrapped(remedy, width, "    try     " if not at else "            ", 12, "· ")
    if severity != "info":
        yield style(
            f"    {round(100 * finding['confidence'])}% confidence; about this rule: --explain {finding['rule']}", "dim"
        )


def _wrapped(content: Any, width: int, first: str, indent: int = 4, lead: str = "") -> list[str]:
    return textwrap.wrap(
        lead + escape(content), width, initial_indent=first, subsequent_indent=" " * indent, break_long_words=True
    ) or [first]


def _first_names(needs: str) -> str:
    """The first of what would do, and how much else would."""
    first, *others = needs.split(" or ")
    return needs if len(others) < 2 else f"{first} or {len(others)} others"


def _looked(diagnosis: Mapping[str, Any], style: ColourStyle, width: int, everything: bool) -> Iterator[str]:
    checked, abstained = diagnosis["checked"], diagnosis["abstained"]
    ran = f"  {amount(len(checked), 'rule')} checked the run"
    count = f"{ran}; {len(abstained)} could not run."
    if not abstained:
        yield style(f"{ran}.", "dim")
        return
    if not everything:
        lacks: dict[str, int] = {}
        for item in abstained:
            needs = " and ".join(map(_first_names, item["needs"].split(" and ")))
            lacks[needs] = lacks.get(needs, 0) + 1
        most = sorted(lacks, key=lambda need: -lacks[need])[:4]
        text = f"{count} Most often missing: {'; '.join(most)}. --all names them."
        for row in _wrapped(text, width, "  ", 2):
            yield style(row, "dim")
        return
    yield style(count, "dim")
    yield from _wrapped("checked: " + ", ".join(checked), width, "  ", 4)
    for item in abstained:
        yield from _wrapped(f"{item['rule']} could not run: it needs {item['needs']}", width, "  ", 4)
