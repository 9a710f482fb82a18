"""What the tools of the assistants' server answer: plain data, of bounded size.

In:   a folder of runs; what a tool was asked.
Out:  dictionaries; their JSON text of at most `MOST_BYTES`, with a sentence for everything that was cut.

Runs are found by id and name in that folder alone: an assistant names no paths. Nothing is written.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import numpy

from barograph.analysis.compare import comparison
from barograph.analysis.forecast import forecast, forecast_sentences
from barograph.analysis.lineage.tree import lineage
from barograph.analysis.scaling.fit import fit_scaling
from barograph.core.columns import thin_indices
from barograph.core.record import format_time, mark_non_finite
from barograph.doctor.diagnosis import diagnose
from barograph.query import catalog, filters, given, goodput, tables
from barograph.query import sql as query_sql
from barograph.query.findings import findings_of
from barograph.query.folders import runs_folder
from barograph.query.leaves import flat, plain_text, sound
from barograph.query.losses import run_losses
from barograph.query.shelf import RunEntry, latest
from barograph.query.stored import StoredRun
from barograph.views.report import command as report_command
from barograph.views.report import markdown

MOST_BYTES = 50_000  # of one answer: what an assistant can read without losing sight of its task
MOST_POINTS = 1000
MOST_ROWS = 500
SQL_SECONDS = 30.0
_ROWS_OF_SUMMARY = 40  # series with their facts in a summary


class Answers:
    """Answers about the runs of one folder. Each raises KeyError or ValueError with one sentence."""

    def __init__(self, dir: str | os.PathLike[str] | None = None):
        self.dir = runs_folder(dir)

    def find(self, which: str) -> StoredRun:
        """The run of an id, project/id, name, or beginning of an id; of several of one name the newest."""
        known = catalog.runs(self.dir)
        for same in (
            [run for run in known if which in (run.id, f"{run.project}/{run.id}")],
            [run for run in known if run.name == which],
            [run for run in known if which and run.id.startswith(which)],
        ):
            if same:
                return same[-1]
        near = difflib.get_close_matches(which, [run.id for run in known], 1, 0.4)
        hint = f"; the nearest is {near[0]!r}" if near else "; list_runs says what there is"
        raise KeyError(f"there is no run {which[:80]!r}{hint}")

    def list_runs(self, where: str | None = None, limit: int = 50) -> dict[str, Any]:
        found = filters.runs(self.dir, where=where)
        shown = found[-_between(limit, 1, MOST_ROWS) :]
        rows = []
        for run in reversed(shown):
            about = run.manifest
            row = {"project": run.project, "run": run.id, "name": run.name, "status": run.status,
                   "created": about.get("created"), "tags": run.tags}  # fmt: skip
            rows.append(row | latest(RunEntry(run)) | {"wall_seconds": given.wall_seconds(run)})
        return {"folder": str(self.dir), "matching": len(found), "runs": rows} | _shown(len(found), len(rows), "runs")

    def run_summary(self, run: str) -> dict[str, Any]:
        found = self.find(run)
        about = found.manifest | given.spent(found)
        keys = ("notes", "created", "finished", "wall_seconds", "gpu_hours", "cost", "world_size", "total_steps",
                "repo_commit", "command", "hardware", "dataset", "checkpoints")  # fmt: skip
        names = found.names()
        git = about.get("git") or {}
        return {
            "project": found.project, "run": found.id, "name": found.name, "status": found.status, "tags": found.tags,
            **latest(RunEntry(found)),
            **{key: about[key] for key in keys if about.get(key) not in (None, "", [], {})},
            "uncommitted_changes": git.get("dirty"),
            "config": found.config,
            "segments": [segment.fields() for segment in found.segments],
            "goodput": goodput.fields(found.goodput()),
            "energy": found.cost(),
            "findings": [_finding(record.step, record.fields, short=True) for record in findings_of(found)],
            "series": {name: _facts(found, name) for name in _telling(found, names)[:_ROWS_OF_SUMMARY]},
            "series_count": len(names),
            "problems": found.problems,
        }  # fmt: skip

    def list_series(self, run: str, pattern: str = "*") -> dict[str, Any]:
        found = self.find(run)
        names = found.names()
        fitting = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
        return {"run": found.id, "series_count": len(names), "matching": len(fitting), "names": fitting}

    def series(
        self, run: str, name: str, points: int = 200, x: str = "step",
        first_step: int | None = None, last_step: int | None = None,
    ) -> dict[str, Any]:  # fmt: skip

        found = self.find(run)
        series = found.series(name, x=x)
        keep = numpy.ones(len(series), bool)
        if first_step is not None:
            keep &= series.step >= first_step
        if last_step is not None:
            keep &= series.step <= last_step
        along, value, step = series.x[keep], series.value[keep], series.step[keep]
        places = thin_indices(value, _between(points, 2, MOST_POINTS), along)
        axes = [step[places], value[places]] if x == "step" else [along[places], step[places], value[places]]
        return {
            "run": found.id,
            "series": series.name,
            **_numbers(step, value),
            "columns": ["step", "value"] if x == "step" else [x, "step", "value"],
            "rows": [list(row) for row in zip(*(axis.tolist() for axis in axes), strict=True)],
            "note": f"{len(places)} of {len(value)} points, each bucket's minimum and maximum among them"
            if len(places) < len(value)
            else "every point",
        }

    def findings(self, run: str) -> dict[str, Any]:
        found = self.find(run)
        standing = [_finding(record.step, record.fields) for record in findings_of(found)]
        return {"run": found.id, "findings": standing}

    def doctor(self, run: str) -> dict[str, Any]:
        found = self.find(run)
        result = diagnose(found)
        return {
            "run": found.id,
            "headline": result["headline"],
            "findings": [_finding(int(item["step"]), item) for item in result["findings"]],
            "rules_that_looked": len(result["checked"]),
            "rules_that_could_not": len(result["abstained"]),
        }

    def config_diff(self, runs: Sequence[str]) -> dict[str, Any]:
        if len(runs) < 2:
            raise ValueError("name two runs or more")
        found = [self.find(run) for run in runs]
        labels = _labels(found)
        values = [dict(_texts(run)) for run in found]
        keys = sorted({key for value in values for key in value})
        differs = {
            key: {label: value.get(key, "(not set)") for label, value in zip(labels, values, strict=True)}
            for key in keys
            if len({value.get(key, "\0") for value in values}) > 1
        }
        return {
            "runs": labels,
            "differs": differs,
            "same": len(keys) - len(differs),
            "note": "config.* are the configuration; package.* the installed packages; commit the code's",
        }

    def compare(
        self,
        runs: Sequence[str],
        metric: str | None = None,
        axis: str | None = None,
        group: str | None = None,
        level: float = 0.05,
    ) -> dict[str, Any]:
        if len(runs) < 2:
            raise ValueError("name two runs or more; the first is the baseline")
        made = comparison.compare(*[self.find(run) for run in runs], metric=metric, x=axis, group=group, level=level)
        return {"text": made.text(100), **made.as_dict()}

    def forecast(self, run: str, target: float | None = None, planned_steps: int | None = None) -> dict[str, Any]:
        found = self.find(run)
        made = forecast(found, target=target, planned_steps=planned_steps)
        return {"run": found.id, "sentences": forecast_sentences(made), **made.as_dict()}

    def scaling(self, runs: Sequence[str], metric: str | None = None) -> dict[str, Any]:
        scaling = fit_scaling(*[self.find(run) for run in runs], metric=metric)
        return {"text": scaling.text(100), **scaling.as_dict()}

    def lineage(self, run: str) -> dict[str, Any]:
        return lineage(self.find(run), self.dir.resolve()).as_dict()

    def report(self, runs: Sequence[str], section: str | None = None) -> dict[str, Any]:
        if not runs:
            raise ValueError("name a run, or several for their comparison")
        report = report_command.content([self.find(run) for run in runs])
        known = [section.slug for section in report.sections]
        if section is not None and section not in known:
            raise KeyError(f"the report has no section {section[:80]!r}; it has {', '.join(known)}")
        wanted = [item for item in report.sections if section in (None, item.slug)]
        return {"title": report.title, "subtitle": report.subtitle, "sections": known,
                "markdown": {item.slug: markdown.section(item) for item in wanted}}  # fmt: skip

    def schema(self) -> dict[str, Any]:
        return {"tables": tables.schema_text()}

    def sql(self, query: str, limit: int = 100) -> dict[str, Any]:
        most = _between(limit, 1, MOST_ROWS)
        found = query_sql.answer(query, self.dir, most_rows=most, seconds=SQL_SECONDS)
        columns = [column.to_pylist() for column in found.table.columns]
        said: dict[str, Any] = {
            "columns": found.table.column_names,
            "rows": [list(row) for row in zip(*columns, strict=True)],
        }
        if found.cut:
            said["note"] = f"the first {most} rows; there are more"
        return said | ({"problems": found.problems} if found.problems else {})


def _between(number: int, low: int, high: int) -> int:
    return max(low, min(high, int(number)))


def _shown(whole: int, shown: int, what: str) -> dict[str, str]:
    return {"note": f"the newest {shown} of {whole} {what}"} if shown < whole else {}


def _labels(runs: Sequence[StoredRun]) -> list[str]:
    ids = [run.id for run in runs]
    return [item if ids.count(item) == 1 else f"{run.project}/{item}" for item, run in zip(ids, runs, strict=True)]


def _texts(run: StoredRun) -> Iterator[tuple[str, str]]:
    about = run.manifest
    for key, value in flat(run.config):
        yield f"config.{key}", str(plain_text(value))
    for name, version in (about.get("packages") or {}).items():
        yield f"package.{name}", str(version)
    if about.get("repo_commit"):
        yield "commit", str(about["repo_commit"])


def _telling(run: StoredRun, names: Sequence[str]) -> list[str]:
    """Losses first, then training and evaluation, then short names before those of single layers."""
    found = run_losses(run, names)
    first = (*found.training, *found.evaluations)
    lead = ("train/", "eval/", "val/")

    def place(name: str) -> tuple[int, int, str]:
        if name in first:
            return 0, first.index(name), name
        return (1 if name.startswith(lead) and name.count("/") == 1 else 2), name.count("/"), name

    return sorted(names, key=place)


def _facts(run: StoredRun, name: str) -> dict[str, Any]:
    step, time, value, _ = run.columns(name)
    order = numpy.lexsort((time, step))
    return _numbers(step[order], value[order])


def _numbers(step: Any, value: Any) -> dict[str, Any]:
    """Exact facts of a whole series in the order of steps."""
    if not len(value):
        return {"points": 0}
    finite = numpy.flatnonzero(numpy.isfinite(value))
    result: dict[str, Any] = {"points": len(value), "first_step": int(step[0]), "last_step": int(step[-1])}
    result |= {"first": float(value[0]), "last": float(value[-1])}
    if len(finite):
        low, high = finite[value[finite].argmin()], finite[value[finite].argmax()]
        result |= {"min": float(value[low]), "min_step": int(step[low])}
        result |= {"max": float(value[high]), "max_step": int(step[high])}
        result["mean"] = float(value[finite].mean())
    if len(finite) < len(value):
        odd = numpy.flatnonzero(~numpy.isfinite(value))
        result |= {"not_finite": len(odd), "first_not_finite_step": int(step[odd[0]])}
    return result


_KEPT = ("rule", "severity", "last_step", "message", "causes", "remedies", "confidence", "evidence")


def _finding(step: int, fields: Mapping[str, Any], short: bool = False) -> dict[str, Any]:
    kept = _KEPT[:4] if short else _KEPT
    return {"step": step} | {key: fields[key] for key in kept if key in fields}


# -- bounds -------------------------------------------------------------------------------------------


def bounded(answer: Mapping[str, Any], most: int = MOST_BYTES) -> str:
    """An answer as JSON text of at most `most` bytes. What is too long is cut from its end, the longest part first;
    `truncated` says what. NaN and infinities are strings, as in the log file."""
    content: dict[str, Any] = _plain(answer)
    notes: dict[str, str] = {}
    text = _encoded(content)
    for _ in range(200):
        if len(text) <= most:
            break
        place, held = _longest(content)
        share = max(0.0, (most - 400) / len(text))
        if not place or not _cut(content, place, held, share, notes):
            break
        content["truncated"] = "; ".join(notes.values())
        text = _encoded(content)
    if len(text) > most:
        text = _encoded({"truncated": f"the answer has {len(text)} bytes and could not be cut; ask for less"})
    return text.decode()


def _plain(value: Any) -> Any:
    """A value as strict JSON can hold it."""
    if isinstance(value, Mapping):
        return {sound(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return mark_non_finite(value)
    if value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < 1 << 63):
        return value
    if isinstance(value, Decimal):
        return mark_non_finite(float(value))
    if isinstance(value, datetime):
        return format_time(round(value.timestamp() * 1e6))
    return sound(str(value))


def _encoded(content: Any) -> bytes:
    return msgspec.json.encode(content)


def _longest(content: Any) -> tuple[list[Any], Any]:
    """The way to the longest text or collection, going down while one part is more than half of the whole."""
    place: list[Any] = []
    held = content
    while isinstance(held, (dict, list)) and held:
        items = list(held.items() if isinstance(held, dict) else enumerate(held))
        if not place:
            items = [item for item in items if item[0] != "truncated"] or items
        sizes = [len(_encoded(value)) for _, value in items]
        at = max(range(len(sizes)), key=sizes.__getitem__)
        if place and sizes[at] <= sum(sizes) / 2 and len(sizes) > 1:
            break
        if not isinstance(items[at][1], (dict, list, str)):
            break
        place.append(items[at][0])
        held = items[at][1]
    return place, held


def _cut(content: dict[str, Any], place: list[Any], held: Any, share: float, notes: dict[str, str]) -> bool:
    """Keep about this share of what is too long; False if nothing of it is left to cut."""
    whole = len(held)
    kept = min(whole - 1, max(0, int(whole * share)))
    if whole == 0:
        return False
    name = ".".join(str(item) for item in place)
    if isinstance(held, str):
        left: Any = held[:kept]
    elif isinstance(held, dict):
        left = dict(list(held.items())[:kept])
    else:
        left = held[:kept]
    parent: Any = content
    for step in place[:-1]:
        parent = parent[step]
    parent[place[-1]] = left
    first = notes[name].split(" of ")[1].split(" ")[0] if name in notes else str(whole)
    notes[name] = f"{name}: the first {kept} of {first} {'characters' if isinstance(held, str) else 'entries'}"[:300]
    return True
