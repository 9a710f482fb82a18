"""What a run was and where it stands, for a terminal.

In:   stored runs.
Out:  rows and pages of text, and the same as plain data.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Sequence
from typing import Any

from barograph.core.record import parse_time
from barograph.core.text import (
    ago,
    bar,
    count,
    duration,
    escape,
    fit,
    milliseconds,
    money,
    number,
    padded,
    percent,
    short,
    sparkline,
)
from barograph.query.ending import ending
from barograph.query.findings import shown_findings, where_of
from barograph.query.given import spent, wall_seconds
from barograph.query.goodput import CAUSES, Totals, fields
from barograph.query.goodput import money as cost_by_cause
from barograph.query.groups import GroupedRuns, GroupStatistics
from barograph.query.losses import last_leave_open, losses_by_name, run_losses
from barograph.query.stored import StoredRun
from barograph.views.inside import expert_lines, flow_lines
from barograph.views.lineage.command import page_lines

_LONGEST_NAME = 24


def summary(run: StoredRun) -> dict[str, Any]:
    """One row: identity, status, age, last step, last losses."""
    about = run.manifest
    final = about.get("final_metrics") or {}
    row: dict[str, Any] = {
        "project": run.project,
        "id": run.id,
        "name": run.name,
        "status": run.status,
        "created": about.get("created"),
        "wall_seconds": wall_seconds(run),
        "tags": run.tags,
        "dir": str(run.dir),
    }
    named = losses_by_name(final)
    for column, name in (("loss", named.loss), ("eval_loss", named.evaluation)):
        row[column] = None if name is None else final[name]
    row["step"] = final.get("step")
    if row["step"] is None or last_leave_open(tuple(final)):
        _look(run, row)
    return row


def _look(run: StoredRun, row: dict[str, Any]) -> None:
    """From the series themselves: for runs in progress or killed, and for names of the user's own."""
    known = run.names()
    found = run_losses(run, known)
    for column, name in (("loss", found.loss), ("eval_loss", found.evaluation)):
        if name is not None:
            series = run.series(name)
            if len(series):
                row[column] = float(series.value[-1])
                row["step"] = max(row["step"] or 0, int(series.step[-1]))
    if row["step"] is None and known:
        series = run.series(min(known))
        row["step"] = int(series.step[-1]) if len(series) else None


def table(rows: list[dict[str, Any]], width: int | None = None) -> str:
    """Rows as aligned columns; names that are too long lose their middle. Names stand where ids are not the names."""
    width = width or shutil.get_terminal_size((100, 24)).columns
    head: tuple[str, ...] = ("PROJECT", "RUN", "STATUS", "STEP", "LOSS", "EVAL", "WHEN", "NAME")
    if all(row.get("name") in (None, row["id"]) for row in rows):
        head = head[:-1]
    lines = [
        (
            short(row["project"]),
            short(row["id"]),
            row["status"],
            "" if row["step"] is None else f"{row['step']:,}",
            number(row["loss"]),
            number(row["eval_loss"]),
            _age(row["created"]),
            short(row.get("name") or row["id"]),
        )[: len(head)]
        for row in rows
    ]
    sizes = [max(len(head[at]), *(len(line[at]) for line in lines)) for at in range(len(head))]
    sizes[7:] = [min(size, _LONGEST_NAME) for size in sizes[7:]]
    rest = width - sum(sizes[2:]) - 2 * (len(head) - 1)
    if sizes[0] + sizes[1] > rest:
        sizes[0] = min(sizes[0], max(8, rest // 3))
        sizes[1] = max(16, rest - sizes[0])
    right = {3, 4, 5}
    return "\n".join(
        "  ".join(
            padded(cell, size, at in right) for at, (cell, size) in enumerate(zip(line, sizes, strict=True))
        ).rstrip()
        for line in [head, *lines]
    )


def group_row(group: GroupedRuns) -> dict[str, Any]:
    """One group: its values, its runs, what each of their metrics comes to."""
    metrics = {name: {"last": group.last(name).as_dict(), "best": group.best(name).as_dict()} for name in group.metrics}
    runs = [f"{run.project}/{run.id}" for run in group.runs]
    return {"label": group.label, "values": group.values, "runs": runs, "failed": group.failed, "metrics": metrics}


def group_table(found: Sequence[GroupedRuns]) -> str:
    """Groups as aligned columns: mean and deviation of the last losses, the best that any run had."""
    lines: list[tuple[str, ...]] = [("GROUP", "RUNS", "FAILED", "LOSS", "EVAL", "BEST")]
    for group in found:
        loss, evaluation = group.losses.loss, group.losses.evaluation
        each = ["" if name is None else _spread(group.last(name)) for name in (loss, evaluation)]
        best = evaluation or loss
        value = number(group.best(best).best) if best else ""
        lines.append((short(group.label), str(len(group.runs)), str(group.failed or ""), *each, value))
    sizes = [max(len(line[at]) for line in lines) for at in range(6)]
    return "\n".join(
        "  ".join(padded(cell, size, at > 0) for at, (cell, size) in enumerate(zip(line, sizes, strict=True))).rstrip()
        for line in lines
    )


def _spread(found: GroupStatistics) -> str:
    if found.mean is None:
        return "nan" if found.not_finite else ""
    beside = "" if found.deviation is None else f" ± {number(found.deviation, 2)}"
    return number(found.mean) + beside + (f", {found.not_finite} NaN" if found.not_finite else "")


def detail(run: StoredRun) -> dict[str, Any]:
    """Everything `barograph show` knows, as plain data."""
    about = {key: value for key, value in run.manifest.items() if key != "packages"}
    about.pop("git", None)
    return {
        **about,
        **summary(run),
        **spent(run),
        "ending": ending(run)._asdict(),
        "findings": shown_findings(run),
        "segments": [segment.fields() for segment in run.segments],
        "goodput": fields(run.goodput()),
        "energy": run.cost(),
        "series": {name: _facts(run, name) for name in run.names()[:200]},
        "series_count": len(run.names()),
        "log_files": [str(path) for path in run.log_files()],
        "problems": run.problems,
    }


def _facts(run: StoredRun, name: str) -> dict[str, Any]:
    import numpy

    series = run.series(name)
    finite = series.value[numpy.isfinite(series.value)]
    return {
        "points": len(series),
        "first_step": int(series.step[0]) if len(series) else None,
        "last_step": int(series.step[-1]) if len(series) else None,
        "last": float(series.value[-1]) if len(series) else None,
        "min": float(finite.min()) if len(finite) else None,
        "max": float(finite.max()) if len(finite) else None,
        "not_finite": len(series) - len(finite),
    }


def ending_lines(run: StoredRun, most: int = 8) -> list[str]:
    """Why the run did not end as it should, the last lines of its output and the traceback; none of one that did."""
    end = ending(run)
    if not end.needs_somebody:
        return []
    where = f" after step {end.step:,}" if end.step is not None else ""
    lines = ["", f"  {end.status.upper()}{where}{': ' + short(end.reason, 300) if end.reason else ''}"]
    lines += [f"    {escape(line)}" for line in end.lines[-most:]]
    lines += [f"    {escape(line)}" for line in end.traceback.splitlines()[-3 * most :]]
    return lines


def finding_lines(run: StoredRun, most: int = 6) -> list[str]:
    """The findings that stand, a line each, the worst first; where to read more."""
    findings = shown_findings(run)
    if not findings:
        return []
    lines = ["", "  FINDINGS"]
    for finding in findings[:most]:
        times = f"{finding['count']} times: " if finding["count"] > 1 else ""
        where = where_of(finding.get("evidence"), finding["step"])
        lines.append(f"  {short(finding['severity']):<9} {where:<14} {times}{short(finding['message'], 200)}")
    more = f"{len(findings) - most} more, " if len(findings) > most else ""
    return [*lines, f"  {more}causes and what to try: barograph doctor {typed(run)}"]


def typed(run: StoredRun) -> str:
    """What to type for this run, wherever its folder is and whatever other runs are called."""
    path = run.dir if run.status != "log file" else run.log_files()[0]
    return short(shlex.quote(str(path)), 1000)


def page(run: StoredRun, most_series: int = 24) -> str:
    """A run on one screen: metadata, configuration, series with sparklines, what to type next."""
    about, row = run.manifest, summary(run)
    lines = [f"{short(run.name)}   {row['status']}"]
    facts = {
        "project": short(run.project),
        "folder": str(run.dir),
        "created": _age(row["created"]),
        "took": duration(row["wall_seconds"]),
        "commit": (about.get("repo_commit") or "")[:12] + (" (dirty)" if (about.get("git") or {}).get("dirty") else ""),
        "command": short(" ".join(map(str, about.get("command") or ()))),
        "tags": ", ".join(map(short, run.tags)),
        "notes": short(str(about.get("notes") or "")),
        "config": _config_line(run.config),
    }
    width = shutil.get_terminal_size((100, 24)).columns
    lines += [f"  {key:<9}{fit(value, max(30, width - 11))}" for key, value in facts.items() if value]
    lines += ending_lines(run)
    lines += finding_lines(run)
    lines += page_lines(run)
    totals, cost = run.goodput(), run.cost()
    lines += time_lines(totals, cost.get("price_per_gpu_hour"), cost.get("gpu_hours"))
    lines += cost_lines(cost)
    lines += phase_lines(run)
    lines += flow_lines(run) + expert_lines(run)
    names = _interesting(run)
    if names:
        lines += ["", f"  {'SERIES':<34} {'POINTS':>9} {'LAST':>11} {'MIN':>11} {'MAX':>11}"]
    for name in names[:most_series]:
        series = run.series(name, max_points=60)
        made = _facts(run, name)
        odd = f"  {made['not_finite']} not finite" if made["not_finite"] else ""
        lines.append(
            f"  {fit(short(name), 34):<34} {made['points']:>9,} {number(made['last']):>11} "
            f"{number(made['min']):>11} {number(made['max']):>11}  {sparkline(series.value.tolist(), 20)}{odd}"
        )
    if len(names) > most_series:
        lines.append(f"  … and {len(names) - most_series:,} more: barograph show {typed(run)} --names")
    lines += [f"  ! {short(problem)}" for problem in run.problems]
    return "\n".join(lines)


_CAUSES = {
    "productive": "productive", "data": "waiting for data", "communication": "communication",
    "evaluation": "evaluation", "checkpoint": "checkpoints", "startup": "start-up", "redone": "repeated steps",
    "downtime": "down after a crash", "other": "other", "idle": "idle",
}  # fmt: skip


def time_lines(totals: Totals, price: float | None = None, gpu_hours: float | None = None, wide: int = 24) -> list[str]:
    """Where the wall time went, a line a cause, the productive part first; nothing before the first step.

    price, gpu_hours: with both, a column of money.
    """
    if totals.productive <= 0 or totals.wall <= 0:
        return []
    priced = price is not None and bool(gpu_hours) and totals.held > 0
    spent = cost_by_cause(totals, (gpu_hours or 0.0) * 3600.0 / totals.held, price or 0.0) if priced else {}
    head = f"  {'WHERE THE TIME WENT':<{20 + wide}} {'TIME':>9} {'SHARE':>7}" + (f" {'COST':>11}" if priced else "")
    lines = ["", head]

    def line(name: str, seconds: float, cost: float | None) -> None:
        drawn = bar(seconds / totals.wall, wide)
        text = f"  {fit(name, 18):<19} {drawn:<{wide}} {duration(seconds):>9} {percent(seconds / totals.wall):>7}"
        lines.append(f"{text} {money(cost):>11}" if cost is not None else text)

    causes = sorted(CAUSES[1:], key=lambda cause: -getattr(totals, cause))
    for cause in ("productive", *causes):
        if getattr(totals, cause) > 0:
            line(_CAUSES[cause], getattr(totals, cause), spent.get(cause))
        if cause == "other" and totals.names:
            longest = sorted(totals.names.items(), key=lambda item: -item[1])[:3]
            lines.append(fit(f"    {', '.join(f'{short(n)} {duration(s)}' for n, s in longest)}", 21 + wide))
    line("wall time", totals.wall, spent.get("cost"))
    if totals.paused > 0:
        lines.append(f"  {'paused, not counted':<19} {'':<{wide}} {duration(totals.paused):>9}")
    if totals.redone_steps:
        crashes = f", {count(totals.crashes, 'restart')} after a crash" if totals.crashes else ""
        lines.append(f"  {count(totals.redone_steps, 'step')} done again{crashes}")
    return lines


def phase_lines(run: StoredRun, wide: int = 24) -> list[str]:
    """A step's phases, the median of each over the run and its share of the step's; none that were not timed."""
    import numpy

    names = [name for name in run.names() if name.startswith(_PHASE) and "/" not in name[len(_PHASE) :]]
    if not names or "speed/step_ms" not in run.names():
        return []
    whole = run.series("speed/step_ms").value
    medians = {name[len(_PHASE) : -len("_ms")]: float(numpy.nanmedian(run.series(name).value)) for name in names}
    step = float(numpy.nanmedian(whole))
    if not step > 0:
        return []
    lines = ["", f"  {'A STEP, ITS MEDIAN':<{20 + wide}} {'TIME':>9} {'SHARE':>7}"]
    for name, took in sorted(medians.items(), key=lambda item: (item[0] == "other", -item[1])):
        share = f"{percent(took / step):>7}"
        lines.append(f"  {fit(short(name), 18):<19} {bar(took / step, wide):<{wide}} {milliseconds(took):>9} {share}")
    lines.append(f"  {'step':<19} {bar(1, wide)} {milliseconds(step):>9}")
    return lines


_PHASE = "speed/phase/"


def cost_lines(cost: dict[str, Any]) -> list[str]:
    """Energy, tokens and money of an `energy` record's fields, as far as they are known."""
    lines = []
    if "kwh" in cost:
        whose = [f"GPU {number(cost['gpu_joules'] / 3.6e6)}"] if "gpu_joules" in cost else []
        whose += [f"CPU {number(cost['cpu_joules'] / 3.6e6)}"] if "cpu_joules" in cost else []
        lines.append(f"  energy   {number(cost['kwh'])} kWh ({' + '.join(whose)}), {cost['watts']:,.0f} W on average")
        if "gpus_measured" in cost:
            lines.append(
                f"           {cost['gpus_measured']} of {cost['gpus']} GPUs measured, the others taken to be alike"
            )
    if "tokens_per_joule" in cost:
        lines.append(f"  tokens   {cost['tokens']:,.0f}, {number(cost['tokens_per_joule'])} a joule")
    if "cost" in cost:
        parts = []
        if "gpu_cost" in cost:
            hours, price = cost["gpu_hours"], cost["price_per_gpu_hour"]
            parts.append(f"{number(hours)} GPU hours at {price:g}")
        if "electricity_cost" in cost:
            parts.append(f"electricity {money(cost['electricity_cost'])} at {cost['price_per_kwh']:g}")
        lines.append(f"  cost     {money(cost['cost'])} ({' + '.join(parts)})")
        if "price_per_million_tokens" in cost:
            lines.append(f"           {money(cost['price_per_million_tokens'])} per million tokens")
    return ["", *lines] if lines else []


def _interesting(run: StoredRun) -> list[str]:
    """Losses first, then training, evaluation, other families, what is watched by itself; wide tables last."""
    families = ("train/", "eval/", "val/", "moe/", "perf/", "gpu/")
    itself = ("speed/", "data/", "memory/", "ranks/", "host/", "span/", "goodput/", "energy/", "sol/", "allocator/")

    names = run.names()
    found = run_losses(run, names)
    first = (*found.training, *found.evaluations)

    def place(name: str) -> tuple[int, int, str]:
        family = next((at for at, lead in enumerate(families) if name.startswith(lead)), len(families))
        family = next((7 + at for at, lead in enumerate(itself) if name.startswith(lead)), family)
        return (0 if name in first else 1, family + (10 if name.count("/") > 1 else 0), name)

    return sorted(names, key=place)


def _config_line(config: dict[str, Any]) -> str:
    return short("  ".join(f"{key}={value}" for key, value in config.items() if not isinstance(value, dict)))


def _age(created: Any) -> str:
    moment = parse_time(created)
    return ago(time.time() - moment / 1e6) if moment else ""
