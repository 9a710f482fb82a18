"""A run's numbers as files for other programs: CSV, JSONL, Parquet.

In:   a stored run, names or patterns of series, a layout.
Out:  one file. Non-finite numbers stay: `NaN`, `Infinity` and `-Infinity` in text, themselves in Parquet.
"""

from __future__ import annotations

import csv
import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from barograph.core.record import format_time, mark_non_finite
from barograph.query.stored import Rank, StoredRun

FORMATS = ("csv", "jsonl", "parquet")
LAYOUTS = ("wide", "long")  # a row a step with a column a series; or a row a point


def export(
    run: StoredRun,
    to: str,
    out: Path,
    *,
    layout: str | None = None,
    patterns: tuple[str, ...] = (),
    branch: str = "live",
    rank: Rank = None,
) -> int:
    """Write the run's series to `out`, whole or not at all; returns the number of rows.

    layout: "wide" (default of CSV and JSONL) or "long" (default of Parquet; always so there).
    patterns: shell patterns such as `train/*`; none means every series. rank: as for `run.series`.
    """
    names = [n for n in run.names() if not patterns or any(fnmatch.fnmatchcase(n, p) for p in patterns)]
    if not names:
        raise KeyError(f"run {run.id} has no series" + (f" that matches {' '.join(patterns)}" if patterns else ""))
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        if to == "parquet":
            rows = _parquet(run, names, temporary, branch, rank)
        else:
            table = (_long if layout == "long" else _wide)(run, names, branch, rank)
            with open(temporary, "w", newline="", encoding="utf-8") as file:
                rows = (_csv if to == "csv" else _jsonl)(table, names, layout == "long", file)
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)
    return rows


def _long(run: StoredRun, names: list[str], branch: str, rank: Rank) -> Iterator[dict[str, Any]]:
    for name in names:
        series = run.series(name, branch=branch, rank=rank)
        columns = series.step, series.time, series.value, series.segment, series.rank
        for step, time, value, segment, of in zip(*(column.tolist() for column in columns), strict=True):
            row = {"name": name, "step": step, "time": _time(time), "value": value}
            yield {**row, "segment": segment, "rank": of}


def _wide(run: StoredRun, names: list[str], branch: str, rank: Rank) -> Iterator[dict[str, Any]]:
    """A row a step; of several values of a series at one step the last stands."""
    rows: dict[int, dict[str, Any]] = {}
    times: dict[int, float] = {}
    for name in names:
        series = run.series(name, branch=branch, rank=rank)
        for step, time, value in zip(series.step.tolist(), series.time.tolist(), series.value.tolist(), strict=True):
            rows.setdefault(step, {})[name] = value
            times[step] = max(time, times.get(step, time))
    for step in sorted(rows):
        yield {"step": step, "time": _time(times[step])} | rows[step]


def _time(seconds: float) -> str:
    """Nothing where a log said no time, such as one that was imported."""
    return format_time(round(seconds * 1e6)) if seconds > 0 else ""


def _csv(table: Iterator[dict[str, Any]], names: list[str], long: bool, file: IO[str]) -> int:
    columns = ["name", "step", "time", "value", "segment", "rank"] if long else ["step", "time", *names]
    writer = csv.writer(file)
    writer.writerow(columns)
    count = 0
    for row in table:
        writer.writerow([mark_non_finite(row.get(column, "")) for column in columns])
        count += 1
    return count


def _jsonl(table: Iterator[dict[str, Any]], names: list[str], long: bool, file: IO[str]) -> int:
    count = 0
    for row in table:
        file.write(msgspec.json.encode(mark_non_finite(row)).decode() + "\n")
        count += 1
    return count


def _parquet(run: StoredRun, names: list[str], path: Path, branch: str, rank: Rank) -> int:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(
        [
            ("name", pyarrow.string()),
            ("step", pyarrow.int64()),
            ("time", pyarrow.timestamp("us", tz="UTC")),
            ("value", pyarrow.float64()),
            ("segment", pyarrow.int32()),
            ("rank", pyarrow.int32()),
        ]
    )
    count = 0
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for name in names:
            series = run.series(name, branch=branch, rank=rank)
            count += len(series)
            moments = (series.time * 1e6).round().astype("int64")
            times = pyarrow.array(moments, mask=moments <= 0).cast(schema.field("time").type)
            columns = [
                pyarrow.array([name] * len(series), pyarrow.string()),
                series.step,
                times,
                series.value,
                series.segment,
                series.rank,
            ]
            writer.write_batch(pyarrow.record_batch(columns, schema=schema))
    return count
