"""Pages of text: findings and the story of one, the log, help, the list of runs.

In:   a followed run, or runs.
Out:  rows that fill a terminal.
"""

from __future__ import annotations

import math
import textwrap
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from barograph.core import liveness
from barograph.core.record import parse_time
from barograph.core.text import clip, duration, narrow, padded, short
from barograph.query.findings import SEVERITIES, grouped, where_of
from barograph.query.stored import StoredRun
from barograph.views.top.logbook import by_examination
from barograph.views.top.place import TopPlace
from barograph.views.top.screen import Row, Span
from barograph.views.top.watching import RunWatch

_MARKS = {"critical": ("✖", "X"), "warning": ("▲", "!"), "info": ("○", "-")}
_STYLES = {"critical": "bold red", "warning": "yellow", "info": "dim"}


class Examination:
    """The doctor's whole look at a run, in a thread of its own. `findings`: None until it is done. `headline`: what it
    says where it found nothing: no problems, or no verdict and why."""

    def __init__(self, run: StoredRun):
        self.findings: list[dict[str, Any]] | None = None
        self.failed = self.headline = ""
        self._thread = threading.Thread(target=self._work, args=(run,), daemon=True, name="barograph-top-doctor")
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it is still looking."""
        return self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        """For a page that is printed once."""
        self._thread.join(seconds)

    def _work(self, run: StoredRun) -> None:
        from barograph.doctor import diagnose

        try:
            # an object of its own: a stored run is read from one thread
            diagnosis = diagnose(StoredRun(run.log_files()[0] if run.status == "log file" else run.dir))
            self.headline = diagnosis["headline"]
            self.findings = by_examination(diagnosis)
        except Exception as error:  # a page can say so; a thread can't
            self.failed = f"{type(error).__name__}: {error}"


def findings_page(watch: RunWatch, at: TopPlace, columns: int, rows: int, examination: Examination | None) -> list[Row]:
    """The findings, and below them the story of the one chosen."""
    every = watch.logbook.findings() if examination is None or examination.findings is None else examination.findings
    found = grouped(every)
    page: list[Row] = []
    said = _state(watch, examination)
    if not found:
        examined = examination.headline if examination is not None and examination.findings is not None else ""
        nothing = examined[:1].lower() + examined[1:] or "the run has logged no finding"
        doubtful = said or examined.startswith("No verdict")
        return [[], [Span(f"  {said or nothing}", "dim" if doubtful else "green")], *_hint(examination)]
    at.chosen = min(at.chosen, len(found) - 1)
    counts = [sum(item["severity"] == name for item in every) for name in SEVERITIES]
    words = ("critical", "warning", "info")
    told = ", ".join(
        f"{n} {word}{'s' if n > 1 and word == 'warning' else ''}" for n, word in zip(counts, words, strict=True) if n
    )
    page.append([Span(f"  {told}", "bold"), Span(f"   {said}", "dim")])
    room = min(len(found), max(3, rows // 3))
    first = max(0, min(at.chosen - room // 2, len(found) - room))
    for place in range(first, first + room):
        page.append(_line(found[place], place == at.chosen, at, columns))
    if first + room < len(found):
        page.append([Span(f"    … {len(found) - first - room} more", "dim")])
    page.append([])
    return page + _story(found[at.chosen], columns)[: rows - len(page)]


def _state(watch: RunWatch, examination: Examination | None) -> str:
    if examination is not None and examination.running:
        return "the doctor is checking …"
    if examination is not None and examination.failed:
        return f"the doctor failed: {short(examination.failed, 60)}"
    return "earlier findings are being read …" if watch.logbook.searching else ""


def _hint(examination: Examination | None) -> list[Row]:
    return [] if examination is not None else [[], [Span("  d runs the doctor on the whole run", "dim")]]


def _line(finding: Mapping[str, Any], chosen: bool, at: TopPlace, columns: int) -> Row:
    severity = finding["severity"]
    mark = _MARKS.get(severity, ("·", "-"))[0 if at.braille else 1]
    where = where_of(finding.get("evidence"), finding["step"])
    head = f" {('▸' if at.braille else '>') if chosen else ' '} {mark} {where:<14} "
    room = columns - len(head)
    times = f"{finding['rule']}, {finding['count']} times: " if finding.get("count", 1) > 1 else ""
    return [
        Span(head, _STYLES.get(severity, "")),
        Span(clip(short(times + finding["message"]), room), "bold" if chosen else ""),
    ]


def _story(finding: Mapping[str, Any], columns: int) -> list[Row]:
    width = max(30, min(columns - 4, 110))
    rows: list[Row] = []

    def tell(text: object, lead: str = "", style: str = "") -> None:
        lines = textwrap.wrap(short(text, 1000), width - 10, break_long_words=True) or [""]
        for at, line in enumerate(lines):
            rows.append([Span(f"  {lead if not at else '':<9} ", "dim"), Span(line, style)])

    where = where_of(finding.get("evidence"), finding["step"], finding.get("last_step", 0))
    sure = f", confidence {round(100 * finding.get('confidence', 0))}%" if finding["severity"] != "info" else ""
    tell(
        f"{', '.join(filter(None, (finding['severity'], where, finding['rule'])))}{sure}",
        "",
        _STYLES.get(finding["severity"], ""),
    )
    tell(finding["message"], "what")
    evidence = finding.get("evidence") or {}
    for item in evidence.get("story", ())[:6] if isinstance(evidence, Mapping) else ():
        before = (
            "before" if item["step"] < finding["step"] else "with it" if item["step"] == finding["step"] else "then"
        )
        tell(f"step {item['step']:,}: {item['message']}", before)
    spark = evidence.get("spark") if isinstance(evidence, Mapping) else None
    if isinstance(spark, Mapping) and spark.get("bars"):
        tell(f"{spark['series']} {spark['bars']}", "")
    for place, cause in enumerate(finding.get("causes", ())[:3]):
        tell(cause, "because" if not place else "or")
    for place, remedy in enumerate(finding.get("remedies", ())[:5]):
        tell(remedy, "do" if not place else "")
    return rows


def log_page(watch: RunWatch, at: TopPlace, columns: int, rows: int) -> list[Row]:
    """The last lines of the log; up goes back in them."""
    lines = list(watch.logbook.lines)
    if not lines:
        return [[], [Span("  no lines yet", "dim")]]
    at.scroll = max(0, min(at.scroll, len(lines) - rows))
    end = len(lines) - at.scroll
    style = {"!!": "yellow", "--": "dim"}
    return [[Span(line, style.get(line[:2], ""))] for line in lines[max(0, end - rows) : end]]


HELP = (
    ("1 … 7, tab", "the pages"),
    ("↑ ↓  j k", "another metric in the chart; a finding; scroll"),
    ("+ -", "zoom in and out"),
    ("0", "zoom out to the whole run"),
    ("l", "logarithmic charts"),
    ("n p  → ←", "next and previous run"),
    ("r", "the list of runs"),
    ("/", "filter the list: words, or a condition such as loss < 3 and step > 1000"),
    ("d", "run the doctor on the whole run"),
    ("space", "pause updates"),
    ("ctrl-l", "redraw"),
    ("q", "quit; the training continues"),
)


def help_page(at: TopPlace) -> list[Row]:
    """The keys."""
    rows: list[Row] = [[], [Span("  KEYS", "bold")]]
    for key, what in HELP:
        key = key if at.braille else key.replace("↑ ↓", "up down").replace("→ ←", "right left").replace("…", "to")
        rows.append([Span(f"  {padded(key, 14)} ", "bold cyan"), Span(what)])
    rows += [[], [Span("  A chart's column shows the lowest and the highest of all its points; × marks NaN or")],
             [Span("  infinity, ▲ where a finding begins, ● an evaluation.")]]  # fmt: skip
    return rows


def runs_page(
    runs: Sequence[StoredRun],
    states: Mapping[str, str],
    at: TopPlace,
    columns: int,
    rows: int,
    figures: Mapping[str, tuple[int | None, float | None]],
    refusal: str = "",
) -> list[Row]:
    """The list of runs, the newest first. states: folder → status; figures: folder → last step and loss, of those that
    are read; refusal: why the filter can't be used."""
    filtered: list[Row] = []
    if at.filter or at.typing:
        mark = ("▏" if at.braille else "_") if at.typing else ""
        filtered = [[Span(" / ", "bold cyan"), Span(f"{short(at.filter)}{mark}", "bold"), Span(f"  {refusal}", "red")]]
    if not runs:
        said = "no run fits the filter; escape clears it" if filtered else (
            "there are no runs here; `barograph demo` makes one, --dir names another folder"
        )  # fmt: skip
        return [*filtered, [], [Span(f"  {said}", "dim")]]
    at.chosen = min(at.chosen, len(runs) - 1)
    room = max(1, rows - 2 - len(filtered))
    first = max(0, min(at.chosen - room // 2, len(runs) - room))
    wide = columns >= 76
    name = max(20, columns - (63 if wide else 40))
    head = f"   {padded('RUN', name)} {'STATUS':<12} "
    page: list[Row] = [*filtered, [], [Span(head + (f"{'STEP':>11} {'LOSS':>10} " if wide else "") + f"{'STARTED':>12}",
                                             "bold")]]  # fmt: skip
    for place in range(first, min(len(runs), first + room)):
        run = runs[place]
        state = states.get(str(run.dir), "")
        mark = ("▸" if at.braille else ">") if place == at.chosen else " "
        bad = state in (*liveness.FAILED, "hung")
        style = "bold green" if state == "running" else "bold red" if bad else ""
        began = parse_time(run.manifest.get("created"))
        ago = f"{duration(time.time() - began / 1e6)} ago" if began else ""
        row = [
            Span(f" {mark} {padded(short(f'{run.project}/{run.id}'), name)} ", "bold" if place == at.chosen else ""),
            Span(f"{padded(short(state), 12)} ", style),
        ]
        if wide:
            step, loss = figures.get(str(run.dir), (None, None))
            row.append(Span(f"{'' if step is None else f'{step:,}':>11} "))
            finite = loss is None or math.isfinite(loss)
            row.append(Span(f"{'' if loss is None else narrow(loss):>10} ", "" if finite else "bold red"))
        page.append([*row, Span(f"{ago:>12}", "dim")])
    return page
