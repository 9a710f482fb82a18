"""What the rules say of one run, as data.

In:   a stored run.
Out:  its findings, what was looked at, and what could not be: the entries of `barograph doctor --json`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy

from barograph.core.liveness import IMPORTED
from barograph.core.patterns import expression
from barograph.core.record import mark_non_finite
from barograph.core.text import sparkline
from barograph.doctor.checklist import checklist
from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.registry import make_rules
from barograph.doctor.replay import counts_of, replay
from barograph.query.findings import headline
from barograph.query.given import GivenRun, stored_run
from barograph.query.stored import StoredRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.doctor.kernel.channels import Channel
    from barograph.doctor.replay import BlockColumns


_TABLES = ("csv", "jsonl", "json")
_OF_THINGS = expression(  # columns of a list of models, examples, files or trials
    r"(?i)(?:models?|methods?|name|id|idx|uuid|labels?|targets?|pred(?:iction)?s?|prob(?:abilit(?:y|ies))?|text|prompts?|"
    r"questions?|answers?|images?|file(?:name)?s?|path|rank|seed|fold|trial|experiment|dataset|task|week|weight|params|"
    r"parameters|optimi[sz]er|dropout|hidden\w*|layers?|batch[ _]?size|arch(?:itecture)?|class)"
)
_BEFORE, _AFTER = 40, 20  # rows shown around the first bad one


def diagnose(
    run: GivenRun,
    *,
    thresholds: Mapping[str, float] | None = None,
    silenced: Iterable[str] = (),
    source: str | None = None,
    columns: Mapping[str, BlockColumns] | None = None,
) -> dict[str, Any]:
    """`{"run", "source", "headline", "findings", "checklist", "checked", "abstained", "judged_by", "no_verdict",
    "series", "unread", "without_step", "said", "stops"}` of a run.

    The worst finding comes first, and the headline says it.

    judged_by: the series that says how the training goes, None if there is none: then nothing can be said of it, and
    no_verdict says why where such a series is there.
    series: names of what was found. unread: lines of its log that look like rows and were not understood.
    without_step: rows of that series for which its log says no step, so that they are numbered as they come.
    said: what an imported log says in words, `{"line", "step", "text", "count"}`. stops: `{"step", "planned"}` of an
    imported log that ends in the middle of its plan and does not say why, else None.
    thresholds: `rule.threshold`, or a name of ALERT_THRESHOLDS, → value. silenced: rules to leave out.
    source: the path that was read, if it is not the run's folder. columns: its series, where they have been
    read, as `all_columns` gives them. Raises ValueError for a name that doesn't exist.
    """
    run = stored_run(run)
    examiner = replay(run, make_rules(thresholds, silenced), columns)
    result = summary(examiner, run.id, source or str(run.dir))
    said = run.manifest.get("source")
    judged_by = result["judged_by"]
    source = examiner.seen.source_of(judged_by or "")
    if judged_by and source != judged_by and judged_by not in run.names():
        result["judged_by"] = f"log('{source}')"  # an expression that the run can be asked for
    result["unread"] = dict(said.get("unread") or {}) if isinstance(said, dict) else {}
    kind = said.get("kind") if isinstance(said, dict) else ""
    reason = _other_rows(run, source or judged_by, kind) if judged_by and kind else ""
    if reason:
        result |= {"judged_by": None, "findings": [], "no_verdict": reason, "headline": headline([], None, reason)}
        judged_by = None
    counted = examiner.seen.channel(judged_by or "")
    result["without_step"] = len(counted) if counted is not None and counts_of(run).get(counted.name) == "row" else 0
    result["said"] = _said(examiner)
    result["stops"] = _stops(run, examiner)
    result["checklist"] = [line._asdict() for line in checklist(examiner)]
    for finding in result["findings"]:
        if finding["severity"] != "info":
            _draw(run, finding, examiner)
    return result


def _other_rows(run: StoredRun, name: str, kind: str) -> str:
    """Why the rows of an imported log can't be steps of a training; empty if they may be."""
    if kind in _TABLES and _lists_things(run, name, run.config if kind == "csv" else ()):
        return "the rows are not steps of one training"
    if _out_of_order(run, name):
        return "the steps are in no order"
    return ""


def _lists_things(run: StoredRun, name: str, words: Iterable[str]) -> bool:
    """Whether a table's rows are models, examples or trials and not steps of one training: nothing counts, and a
    column names things or their settings, or all losses are whole numbers; or each row says the same step. words: its
    columns of words."""
    step = run.columns(name, "all", 0)[0] if name in run.names() else numpy.zeros(0)
    if len(step) > 2 and (step == step[0]).all():
        return True
    mixed = len(step) > 2 and (numpy.diff(step) <= 0).sum() >= 0.25 * len(step)
    if counts_of(run).get(name) != "row" and not mixed:
        return False
    value = run.columns(name, "all", 0)[2] if name in run.names() else numpy.zeros(0)
    # amounts of money, or counts: a loss is hardly ever a whole number
    amounts = len(value) > 2 and bool((value == numpy.floor(value)).all()) and float(value.min()) < float(value.max())
    return amounts or any(map(_OF_THINGS.fullmatch, (*run.names(), *words)))


def _out_of_order(run: StoredRun, name: str) -> bool:
    """Whether the steps of an imported log go back again and again, and go on by all distances: those of launches, or
    of processes side by side, go on by the same."""
    if name not in run.names():
        return False
    gaps = numpy.diff(run.columns(name, "all", 0)[0])
    back, on = int((gaps < 0).sum()), gaps[gaps > 0].tolist()
    return back > 1 and back >= 0.2 * (len(gaps) + 1) and max(Counter(on).values(), default=0) < 0.8 * len(on)


def summary(examiner: Examiner, run: str, source: str) -> dict[str, Any]:
    """An examiner's result as data. Numbers that are not finite are the strings of the log file."""
    findings = [mark_non_finite(msgspec.structs.asdict(finding)) for finding in examiner.incidents()]
    judge = _judge(examiner)
    judged_by, reason = judge.name if judge is not None else None, None
    if judge is not None and not findings and len(judge) < FEW:
        judged_by, reason = None, _too_few(len(judge), judge.name)
    if not findings and judge is not None:
        word = next((word for role, word in _SCORES.items() if judge is examiner.seen.role(role)), "")
        if word:
            judged_by, reason = None, reason or f"of {word} alone only a collapse can be seen"
        if not examiner.checked():
            judged_by, reason = None, reason or "none of the rules that were asked has what it needs"
    return {
        "run": run,
        "source": source,
        "headline": headline(findings, judged_by, *([reason] if reason else [])),
        "no_verdict": reason,
        "findings": findings,
        "checked": examiner.checked(),
        "abstained": examiner.abstained(),
        "judged_by": judged_by,
        "series": sorted(name for name in examiner.seen.channels if examiner.seen.source_of(name) == name)[:_NAMED],
        "unread": {},
        "without_step": 0,
        "said": [],
        "stops": None,
    }


def _too_few(count: int, name: str) -> str:
    return f"{count} rows of {name} are too few" if count != 1 else f"a single row of {name} is too little"


def _judge(examiner: Examiner) -> Channel | None:
    """The series that says how the training goes. A policy's loss says nothing of it where its reward is there."""
    return next((role for role in map(examiner.seen.role, _JUDGES) if role is not None), None)


def _said(examiner: Examiner) -> list[dict[str, Any]]:
    """Messages of a log that was imported, those alike once."""
    alike: dict[str, dict[str, Any]] = {}
    for event in examiner.seen.events:
        line, text = event.fields.get("line"), str(event.fields.get("message", ""))
        if event.kind == "end" and examiner.seen.role("loss") is None:
            text = str(event.fields.get("reason", ""))  # of a log without metrics, all that there is
        elif event.kind != "info":
            continue
        if not isinstance(line, int):
            continue
        text = text.partition(": ")[2]
        step = None if event.fields.get("no_step") else event.step
        item = alike.setdefault(re.sub(r"\d+", "#", text)[:100], {"line": line, "step": step, "text": text, "count": 0})
        item["count"] += 1
    return list(alike.values())[:_MESSAGES]


def _stops(run: StoredRun, examiner: Examiner) -> dict[str, int] | None:
    """Where an imported log ends, if that is in the middle of its plan and nothing says why."""
    planned = examiner.seen.facts.get("planned_steps")
    role = _judge(examiner)
    if run.manifest.get("status") != IMPORTED or not isinstance(planned, int) or role is None or len(role) < 2:
        return None
    step = role.rows(max(role.end - 64, role.start)).step
    reached = step[-1] + (step[-1] - step[0]) / max(len(step) - 1, 1)
    return {"step": int(step[-1]), "planned": planned} if reached < _REACHED * planned else None


_JUDGES = ("reward", "loss", "eval_loss", "accuracy", "eval_accuracy", "score")
FEW = 4  # rows of such a series; of fewer nothing can be said, unless something was found
_SCORES = {"accuracy": "the accuracy", "eval_accuracy": "the accuracy", "score": "a score"}  # rules see a collapse
_NAMED = 50  # series by name
_MESSAGES = 50  # of a log, told by the doctor
_REACHED = 0.98  # of the plan: as good as done
_SHOWN = {"gradient": "norm", "speed": "duration_ms", "eval": "eval_loss", "rl": "reward"}


def _draw(run: StoredRun, finding: dict[str, Any], examiner: Examiner) -> None:
    """Put what happened around the finding's step into its evidence, as a line of bars."""
    named = finding["evidence"].get("series")
    role = examiner.seen.role(_SHOWN.get(finding["family"], "loss"))
    name = named if isinstance(named, str) and named in examiner.seen.channels else role.name if role else None
    if name is not None:
        name = examiner.seen.source_of(name)
        step, _, value, segment = run.columns(name, "all", 0)
        spark = _around(step, value, finding["step"], segment, finding["segment"])
        if spark:
            finding["evidence"]["spark"] = {"series": name} | spark


def _around(step: NDArray[Any], value: NDArray[Any], where: int, segment: NDArray[Any], which: int) -> dict[str, Any]:
    """The rows around a step, for a finding's evidence: `from`, `to` (steps), `bars`; empty if there are none."""
    if which:
        mine = segment == which
        step, value = step[mine], value[mine]
    if len(step) < 2:
        return {}
    at = int(numpy.searchsorted(step, where)) if (step[1:] >= step[:-1]).all() else int(numpy.argmax(step >= where))
    low, high = max(0, at - _BEFORE), min(len(step), at + _AFTER)
    if high - low < 2:
        return {}
    return {"from": int(step[low]), "to": int(step[high - 1]), "bars": sparkline(value[low:high].tolist())}
