"""The points of a chart as a file: every one of the range in view, as it was logged.

In:   the request of a chart.
Out:  CSV or Parquet with the columns run, name, step, time, x (where it is none of these) and value.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from barograph.views.server.axes import TIMED, Axis
from barograph.views.server.reading import SeriesReading
from barograph.views.server.series import Request, of_runs, sentence

if TYPE_CHECKING:
    import pyarrow

MEDIA = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
MOST = 5_000_000  # points: 300 MB of text


def points_file(reading: SeriesReading, request: Request, kind: str) -> bytes:
    """The file. Series that a run has not got are left out. Raises ValueError with a sentence, and KeyError where no
    run has any."""
    if kind not in MEDIA:
        raise ValueError(f"points are written as csv or parquet, not as {kind[:20]!r}")
    table = _table(reading, request)
    out = io.BytesIO()
    if kind == "parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, out, compression="zstd")
    else:
        import pyarrow.csv

        options = pyarrow.csv.WriteOptions(quoting_style="needed")
        pyarrow.csv.write_csv(_as_text(table), out, options)
    return out.getvalue()


def _table(reading: SeriesReading, request: Request) -> pyarrow.Table:
    import numpy
    import pyarrow

    parts: list[Any] = []
    count, error = 0, None
    own_axis = request.x not in ("step", "time")
    for wanted in of_runs(request):
        try:
            place = reading.places.find(wanted.run)
            state = reading.state(place)
            name, found = reading.named(place, wanted.name, wanted.rank, True, state)
            live = found.live()
            along = Axis(reading, place, request.x, wanted.rank, state).of(live)
        except (KeyError, OSError) as reason:
            error = error or reason
            continue
        keep = numpy.isfinite(along) if request.x not in TIMED else numpy.ones(len(live), bool)
        keep &= along >= (-numpy.inf if request.low is None else request.low)
        keep &= along <= (numpy.inf if request.high is None else request.high)
        count += int(keep.sum())
        if count > MOST:
            raise ValueError(f"more than {MOST:,} points are too many for one file; zoom in, or use barograph export")
        times = live.time[keep] if live.time is not None else numpy.zeros(int(keep.sum()), numpy.int64)
        columns = {
            "run": _repeated(wanted.run, len(times)),
            "name": _repeated(name, len(times)),
            "step": pyarrow.array(live.step[keep]),
            "time": pyarrow.array(times, mask=times <= 0).cast(pyarrow.timestamp("us", "UTC")),
        }
        if own_axis:
            columns["x"] = pyarrow.array(numpy.asarray(along[keep], numpy.float64))
        parts.append(pyarrow.table(columns | {"value": pyarrow.array(live.value[keep])}))
    if not parts:
        raise KeyError(sentence(error) if error is not None else "no series was asked for")
    return pyarrow.concat_tables(parts).unify_dictionaries()


def _repeated(text: str, count: int) -> Any:
    import numpy
    import pyarrow

    return pyarrow.DictionaryArray.from_arrays(numpy.zeros(count, numpy.int32), pyarrow.array([text]))


def _as_text(table: pyarrow.Table) -> pyarrow.Table:
    """As `barograph export` writes it: ISO times, NaN, Infinity; a name that a spreadsheet would take for a formula
    begins with an apostrophe."""
    import numpy
    import pyarrow
    import pyarrow.compute as compute

    made = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if name in ("run", "name"):
            text = compute.cast(column, pyarrow.string())
            column = compute.replace_substring_regex(text, r"^([=+\-@\t\r])", r"'\1")
        elif name == "time":
            column = compute.strftime(column, "%Y-%m-%dT%H:%M:%S")
        elif name in ("value", "x"):
            numbers = column.to_numpy(zero_copy_only=False)
            odd = ~numpy.isfinite(numbers)
            column = compute.cast(column, pyarrow.string())
            if odd.any():
                words = numpy.where(numpy.isnan(numbers), "NaN", numpy.where(numbers > 0, "Infinity", "-Infinity"))
                column = compute.replace_with_mask(column, pyarrow.array(odd), pyarrow.array(words[odd]))
        made[name] = column
    return pyarrow.table(made)
