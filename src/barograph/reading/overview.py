"""What a run was and where it stands, for a terminal.

In:   stored runs.
Out:  rows and pages of text, and the same as plain data.
"""

from __future__ import annotations

import math
import shutil
import time
from typing import Any

from barograph.goodput import CAUSES, Totals, fields, money
from barograph.lineage.command import page_lines
from barograph.reading.inside import expert_lines, flow_lines
from barograph.reading.query import StoredRun
from barograph.record import parse_time

_LOSSES = ("train/loss", "loss", "train_loss")
_EVALS = ("eval/loss", "val/loss", "val_loss", "eval_loss")


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
        "wall_seconds": about.get("wall_seconds"),
        "tags": run.tags,
        "dir": str(run.dir),
    }
    for column, candidates in (("loss", _LOSSES), ("eval_loss", _EVALS)):
        row[column] = next((final[name] for name in candidates if name in final), None)
    row["step"] = final.get("step")
    if row["step"] is None or row["loss"] is None:
        _look(run, row)
    return row


def _look(run: StoredRun, row: dict[str, Any]) -> None:
    """From the series themselves: for runs in progress or killed, and for names of the user's own."""
    known = set(run.names())
    for column, candidates in (("loss", _LOSSES), ("eval_loss", _EVALS)):
        name = next((name for name in candidates if name in known), None)
        if name is not None:
            series = run.series(name)
            if len(series):
                row[column] = float(series.value[-1])
                row["step"] = max(row["step"] or 0, int(series.step[-1]))
    if row["step"] is None and known:
        series = run.series(min(known))
        row["step"] = int(series.step[-1]) if len(series) else None


def table(rows: list[dict[str, Any]], width: int | None = None) -> str:
    """Rows as aligned columns; names that are too long lose their middle."""
    width = width or shutil.get_terminal_size((100, 24)).columns
    head = ("PROJECT", "RUN", "STATUS", "STEP", "LOSS", "EVAL", "WHEN")
    lines = [
        (
            printable(row["project"]),
            printable(row["id"]),
            row["status"],
            "" if row["step"] is None else f"{row['step']:,}",
            _number(row["loss"]),
            _number(row["eval_loss"]),
            _ago(row["created"]),
        )
        for row in rows
    ]
    sizes = [max(len(head[at]), *(len(line[at]) for line in lines)) for at in range(len(head))]
    rest = width - sum(sizes[2:]) - 2 * (len(head) - 1)
    if sizes[0] + sizes[1] > rest:
        sizes[0] = min(sizes[0], max(8, rest // 3))
        sizes[1] = max(16, rest - sizes[0])
    right = {3, 4, 5}
    return "\n".join(
        "  ".join(
            _shorten(cell, size).rjust(size) if at in right else _shorten(cell, size).ljust(size)
            for at, (cell, size) in enumerate(zip(line, sizes, strict=True))
        ).rstrip()
        for line in [head, *lines]
    )


def detail(run: StoredRun) -> dict[str, Any]:
    """Everything `barograph show` knows, as plain data."""
    about = {key: value for key, value in run.manifest.items() if key != "packages"}
    about.pop("git", None)
    return {
        **about,
        **summary(run),
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


def page(run: StoredRun, most_series: int = 24) -> str:
    """A run on one screen: metadata, configuration, series with sparklines, what to type next."""
    about, row = run.manifest, summary(run)
    lines = [f"{printable(run.name)}   {row['status']}"]
    facts = {
        "project": printable(run.project),
        "folder": str(run.dir),
        "created": _ago(row["created"]),
        "took": _duration(about.get("wall_seconds")),
        "commit": (about.get("repo_commit") or "")[:12] + (" (dirty)" if (about.get("git") or {}).get("dirty") else ""),
        "command": printable(" ".join(map(str, about.get("command") or ()))),
        "tags": ", ".join(map(printable, run.tags)),
        "notes": printable(str(about.get("notes") or "")),
        "config": _config_line(run.config),
    }
    width = shutil.get_terminal_size((100, 24)).columns
    lines += [f"  {key:<9}{_shorten(value, max(30, width - 11))}" for key, value in facts.items() if value]
    lines += page_lines(run)
    totals, cost = run.goodput(), run.cost()
    lines += time_lines(totals, cost.get("price_per_gpu_hour"), cost.get("gpu_hours"))
    lines += cost_lines(cost)
    lines += phase_lines(run)
    lines += flow_lines(run) + expert_lines(run)
    names = _interesting(run.names())
    if names:
        lines += ["", f"  {'SERIES':<34} {'POINTS':>9} {'LAST':>11} {'MIN':>11} {'MAX':>11}"]
    for name in names[:most_series]:
        series = run.series(name, max_points=60)
        made = _facts(run, name)
        odd = f"  {made['not_finite']} not finite" if made["not_finite"] else ""
        lines.append(
            f"  {_shorten(printable(name), 34):<34} {made['points']:>9,} {_number(made['last']):>11} "
            f"{_number(made['min']):>11} {_number(made['max']):>11}  {sparkline(series.value.tolist(), 20)}{odd}"
        )
    if len(names) > most_series:
        lines.append(f"  … and {len(names) - most_series:,} more: barograph show {run.id} --names")
    lines += [f"  ! {printable(problem)}" for problem in run.problems]
    return "\n".join(lines)


_CAUSES = {
    "productive": "productive", "data": "waiting for data", "communication": "communication",
    "evaluation": "evaluation", "checkpoint": "checkpoints", "startup": "start-up", "redone": "steps done again",
    "downtime": "down after a crash", "other": "other", "idle": "idle",
}  # fmt: skip


def time_lines(totals: Totals, price: float | None = None, gpu_hours: float | None = None, bar: int = 24) -> list[str]:
    """Where the wall time went, a line a cause, the productive part first; nothing before the first step.

    price, gpu_hours: with both, a column of money.
    """
    if totals.productive <= 0 or totals.wall <= 0:
        return []
    priced = price is not None and bool(gpu_hours) and totals.held > 0
    spent = money(totals, (gpu_hours or 0.0) * 3600.0 / totals.held, price or 0.0) if priced else {}
    head = f"  {'WHERE THE TIME WENT':<{20 + bar}} {'TIME':>9} {'SHARE':>7}" + (f" {'COST':>11}" if priced else "")
    lines = ["", head]

    def line(name: str, seconds: float, cost: float | None) -> None:
        drawn = _bar(seconds / totals.wall, bar)
        text = f"  {_shorten(name, 18):<19} {drawn:<{bar}} {_duration(seconds):>9} {100 * seconds / totals.wall:>6.1f}%"
        lines.append(f"{text} {_money(cost):>11}" if cost is not None else text)

    causes = sorted(CAUSES[1:], key=lambda cause: -getattr(totals, cause))
    for cause in ("productive", *causes):
        if getattr(totals, cause) > 0:
            line(_CAUSES[cause], getattr(totals, cause), spent.get(cause))
        if cause == "other" and totals.names:
            longest = sorted(totals.names.items(), key=lambda one: -one[1])[:3]
            lines.append(_shorten(f"    {', '.join(f'{printable(n)} {_duration(s)}' for n, s in longest)}", 21 + bar))
    line("wall time", totals.wall, spent.get("cost"))
    if totals.paused > 0:
        lines.append(f"  {'paused, not counted':<19} {'':<{bar}} {_duration(totals.paused):>9}")
    if totals.redone_steps:
        crashes = f", {_many(totals.crashes, 'restart')} after a crash" if totals.crashes else ""
        lines.append(f"  {_many(totals.redone_steps, 'step')} done again{crashes}")
    return lines


def phase_lines(run: StoredRun, bar: int = 24) -> list[str]:
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
    lines = ["", f"  {'A STEP, ITS MEDIAN':<{20 + bar}} {'TIME':>9} {'SHARE':>7}"]
    for name, took in sorted(medians.items(), key=lambda one: (one[0] == "other", -one[1])):
        share = f"{100 * took / step:>6.1f}%"
        lines.append(f"  {_shorten(printable(name), 18):<19} {_bar(took / step, bar):<{bar}} {_ms(took):>9} {share}")
    lines.append(f"  {'step':<19} {_bar(1, bar)} {_ms(step):>9}")
    return lines


_PHASE = "speed/phase/"


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 1 else f"{1000 * value:.0f} µs"


def cost_lines(cost: dict[str, Any]) -> list[str]:
    """Energy, tokens and money of an `energy` record's fields, as far as they are known."""
    lines = []
    if "kwh" in cost:
        whose = [f"GPU {_kwh(cost['gpu_joules'] / 3.6e6)}"] if "gpu_joules" in cost else []
        whose += [f"CPU {_kwh(cost['cpu_joules'] / 3.6e6)}"] if "cpu_joules" in cost else []
        lines.append(f"  energy   {_kwh(cost['kwh'])} kWh ({' + '.join(whose)}), {cost['watts']:,.0f} W on average")
        if "gpus_measured" in cost:
            lines.append(
                f"           {cost['gpus_measured']} of {cost['gpus']} GPUs measured, the others taken to be alike"
            )
    if "tokens_per_joule" in cost:
        lines.append(f"  tokens   {cost['tokens']:,.0f}, {_number(cost['tokens_per_joule'])} a joule")
    if "cost" in cost:
        parts = []
        if "gpu_cost" in cost:
            hours, price = cost["gpu_hours"], cost["price_per_gpu_hour"]
            parts.append(f"{_kwh(hours)} GPU hours at {price:g}")
        if "electricity_cost" in cost:
            parts.append(f"electricity {_money(cost['electricity_cost'])} at {cost['price_per_kwh']:g}")
        lines.append(f"  cost     {_money(cost['cost'])} ({' + '.join(parts)})")
        if "price_per_million_tokens" in cost:
            lines.append(f"           {_money(cost['price_per_million_tokens'])} per million tokens")
    return ["", *lines] if lines else []


def _bar(share: float, width: int) -> str:
    """A share of 1 as a bar, to an eighth of a character; anything above 0 is seen."""
    eighths = max(1, round(min(1.0, share) * width * 8)) if share > 0 else 0
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _kwh(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:.3g}"


def _money(value: Any) -> str:
    return f"{value:,.2f}" if value >= 1 or value == 0 else f"{value:.2g}" if value >= 1e-4 else f"{value:.1e}"


def sparkline(values: list[float], width: int = 20) -> str:
    """Values as a row of blocks; a non-finite one is marked `×` and never hidden by its neighbours."""
    if not values:
        return ""
    groups = [values[at * len(values) // width : (at + 1) * len(values) // width] for at in range(width)]
    groups = [group for group in groups if group]
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    marks = "▁▂▃▄▅▆▇█"
    drawn = []
    for group in groups:
        if not all(map(math.isfinite, group)):
            drawn.append("×")
            continue
        value = max(group, key=lambda value: abs(value - (low + high) / 2))
        share = (value - low) / (high - low) if high > low and math.isfinite(high - low) else 0.5
        drawn.append(marks[min(7, int(share * 8))])
    return "".join(drawn)


def _interesting(names: list[str]) -> list[str]:
    """Losses first, then training, evaluation, other families, what is watched by itself; wide tables last."""
    families = ("train/", "eval/", "val/", "moe/", "perf/", "gpu/")
    itself = ("speed/", "data/", "memory/", "ranks/", "host/", "span/", "goodput/", "energy/", "sol/", "allocator/")

    def place(name: str) -> tuple[int, int, str]:
        family = next((at for at, lead in enumerate(families) if name.startswith(lead)), len(families))
        family = next((7 + at for at, lead in enumerate(itself) if name.startswith(lead)), family)
        return (0 if name in _LOSSES + _EVALS else 1, family + (10 if name.count("/") > 1 else 0), name)

    return sorted(names, key=place)


def _config_line(config: dict[str, Any]) -> str:
    return printable("  ".join(f"{key}={value}" for key, value in config.items() if not isinstance(value, dict)))


def printable(text: Any) -> str:
    """Text that can't drive a terminal: control characters are written out."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(text))


def _shorten(text: str, size: int) -> str:
    if len(text) <= size:
        return text
    keep = max(1, size - 1)
    return text[: keep - keep // 2] + "…" + (text[-(keep // 2) :] if keep // 2 else "")


def _number(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return ""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else ("Inf" if value > 0 else "-Inf")
    size = abs(value)
    if value == int(value) and size < 1e6:
        return f"{int(value):,}"
    return f"{value:.4f}" if 0.001 <= size < 10_000 else f"{value:.3e}"


def _duration(seconds: Any) -> str:
    if not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s" if minutes else f"{seconds:.1f}s"


def _ago(created: Any) -> str:
    moment = parse_time(created)
    if not moment:
        return ""
    age = time.time() - moment / 1e6
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if age >= size:
            return f"{int(age // size)} {unit} ago"
    return "just now"
