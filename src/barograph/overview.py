"""What a run was and where it stands, for a terminal.

In:   stored runs.
Out:  rows and pages of text, and the same as plain data.
"""

from __future__ import annotations

import math
import shutil
import time
from typing import Any

from barograph.query import StoredRun
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
    if len(run.segments) > 1:
        lines.append("")
        lines += [
            f"  segment {s.number}: {s.kind}" + (f" at step {s.start_step}" if s.start_step is not None else "")
            for s in run.segments
        ]
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
    """Losses first, then training, evaluation, other families; wide tables last."""
    families = ("train/", "eval/", "val/", "moe/", "perf/", "gpu/")

    def place(name: str) -> tuple[int, int, str]:
        family = next((at for at, lead in enumerate(families) if name.startswith(lead)), len(families))
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
