"""Series as data frames: Arrow, pandas, polars.

In:   one stored run or several; names or patterns of series; an x and a layout.
Out:  a frame of the library asked for.

wide: a row a step and a column a series; of several values of a series at one step the last stands. long: a row
a point. Where a series has no value at a step there is null (pandas shows NaN for both); NaN stays NaN.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy

from barograph.core.columns import align
from barograph.query import axes
from barograph.query.expressions import ExpressionError, Node, expression, names_in
from barograph.query.given import GivenRun, stored_runs
from barograph.query.leaves import sound
from barograph.query.stored import Rank, Series, StoredRun

if TYPE_CHECKING:
    import pyarrow

LAYOUTS = ("wide", "long")
LIBRARIES = ("pandas", "polars", "arrow")
_AXES = ("step", "time", "relative", "tokens", "samples")


def frame(
    run_or_runs: GivenRun | Iterable[GivenRun],
    names: str | Sequence[str] | None = None,
    *,
    x: str = "step",
    layout: str = "wide",
    library: str = "pandas",
    branch: str = "live",
    rank: Rank = None,
) -> Any:
    """Series of one run, or of several with a column `run`, as a data frame.

    names: series or expressions as `run.series` takes them, or patterns such as `train/*`; None: every series. Of
    several runs, those that lack a name have no values there; a name that no run has raises KeyError with the nearest.
    x: "step", "time", "relative" (seconds), "tokens", "samples", or a series; other than step and time it is a column
    more, called like the x.
    layout: "wide" gives `step`, `time`, x, then a column a series, sorted by step; "long" gives `name`, `step`,
    `time`, x, `value`, `segment`, `rank`.
    library: "pandas", "polars" or "arrow". branch: "all" has what a resume or rewind superseded too.
    rank: that rank's points; None: rank 0's, or those of the lowest rank that has a series; "all": everybody's.
    Raises ValueError for a word that is not one of these, ImportError if the library is not installed.
    """
    _choice("layout", layout, LAYOUTS)
    _choice("library", library, LIBRARIES)
    _choice("branch", branch, ("live", "all"))
    runs = stored_runs(run_or_runs)
    single = len(runs) == 1 and (isinstance(run_or_runs, str) or not isinstance(run_or_runs, Iterable))
    chosen = _names(runs, [names] if isinstance(names, str) else names)
    parts = []
    for run, held in zip(runs, chosen, strict=True):
        series = [run.series(name, branch=branch, rank=rank) for name in held]
        table = (_long if layout == "long" else _wide)(run, series, x, branch)
        parts.append(table if single else _with_run(table, run.id))
    return _as(_joined(parts, layout, single), library)


def _choice(what: str, text: str, words: Sequence[str]) -> None:
    if text not in words:
        raise ValueError(f"{what} is {text!r:.60}, but it is one of {', '.join(words)}")


def _names(runs: Sequence[StoredRun], wanted: Sequence[str] | None) -> list[list[str]]:
    """The full names of each run's series, in the order asked for, each once."""
    result = [run.names() for run in runs]
    if wanted is None:
        return result
    chosen: list[dict[str, None]] = [{} for _ in runs]
    for item in wanted:
        hit = False
        for run, names, found in zip(runs, result, chosen, strict=True):
            pattern = any(char in item for char in "*?[")
            if pattern and item not in names:
                fitting = [name for name in names if fnmatch.fnmatchcase(name, item)]
            else:
                fitting = [name] if (name := _full_name(names, item)) is not None else []
            if not fitting and (tree := _expression(item, pattern)) is not None:
                fitting = [item] if all(_full_name(names, name) for name in names_in(tree)) else []
            found.update(dict.fromkeys(fitting))
            hit = hit or bool(fitting)
            if not fitting and len(runs) == 1 and not pattern:
                run.series(item)  # raises the sentence with the nearest name
        if not hit:
            near = difflib.get_close_matches(item, sorted({name for names in result for name in names}), 1, 0.4)
            raise KeyError(f"no run has a series {item!r}" + (f"; the nearest is {near[0]!r}" if near else ""))
    return [list(found) for found in chosen]


def _expression(item: str, pattern: bool) -> Node | None:
    """The expression that a name is; what is no expression may be a pattern."""
    try:
        return expression(item)
    except ExpressionError:
        if pattern:
            return None
        raise


def _full_name(known: Sequence[str], name: str) -> str | None:
    """As `StoredRun.series` resolves a name: itself, `train/` before it, or the only one of that ending."""
    if name in known:
        return name
    ending = [other for other in known if other.endswith("/" + name)]
    if f"train/{name}" in ending:
        return f"train/{name}"
    return ending[0] if len(ending) == 1 else None


# -- layouts ------------------------------------------------------------------------------------------


def _wide(run: StoredRun, series: Sequence[Series], x: str, branch: str) -> pyarrow.Table:
    import pyarrow

    every = numpy.unique(numpy.concatenate([item.step for item in series])) if series else numpy.empty(0, numpy.int64)
    times = numpy.zeros(len(every))
    columns: dict[str, Any] = {}
    for item in series:
        if item.name == x:
            continue  # it is the axis
        last = _lasts(item.step)
        place = numpy.searchsorted(every, item.step[last])
        value = numpy.full(len(every), numpy.nan)
        value[place] = item.value[last]
        missing = numpy.ones(len(every), bool)
        missing[place] = False
        columns[str(sound(item.name))] = pyarrow.array(value, mask=missing)
        numpy.maximum.at(times, numpy.searchsorted(every, item.step), item.time)
    head = {"step": pyarrow.array(every), "time": _moments(times)}
    if x not in ("step", "time"):
        head[x] = pyarrow.array(_axis(run, x, branch, every, times))
    # a series that is called like a leading column keeps its name behind a word that says what it is
    columns = {f"series/{name}" if name in head else name: column for name, column in columns.items()}
    return pyarrow.table(head | columns)


def _lasts(step: Any) -> Any:
    """Places of the last of each run of equal steps, of steps in order."""
    return numpy.flatnonzero(numpy.append(step[1:] != step[:-1], True)) if len(step) else numpy.empty(0, numpy.intp)


def _long(run: StoredRun, series: Sequence[Series], x: str, branch: str) -> pyarrow.Table:
    import pyarrow

    lengths = [len(item) for item in series]
    codes = numpy.repeat(numpy.arange(len(series), dtype=numpy.int32), lengths)
    names = pyarrow.array([sound(item.name) for item in series], pyarrow.string())
    step, time, value, segment, rank = (
        numpy.concatenate([getattr(item, column) for item in series]) if series else numpy.empty(0, kind)
        for column, kind in (
            ("step", numpy.int64), ("time", numpy.float64), ("value", numpy.float64), ("segment", numpy.int32),
            ("rank", numpy.int32),
        )
    )  # fmt: skip
    columns = {
        "name": pyarrow.DictionaryArray.from_arrays(codes, names),
        "step": pyarrow.array(step),
        "time": _moments(time),
    }
    if x not in ("step", "time"):
        columns[x] = pyarrow.array(_axis(run, x, branch, step, time))
    origin = {"segment": pyarrow.array(segment), "rank": pyarrow.array(rank)}
    return pyarrow.table(columns | {"value": pyarrow.array(value)} | origin)


def _axis(run: StoredRun, x: str, branch: str, step: Any, time: Any) -> Any:
    """x at each row, float64 [n]: `relative` counts from the first time of the rows."""
    if x == "relative":
        known = time[time > 0]
        return numpy.where(time > 0, time - (known.min() if len(known) else 0.0), numpy.nan)
    if x in ("name", "value", "segment", "rank", "run"):
        raise ValueError(f"x is {x!r}, but it is one of {', '.join(_AXES)} or a series")
    if x in axes.SEEN and (counts := axes.of_run(x, lambda name: run.series(name, branch=branch), run.names())):
        return axes.at(step, counts)
    other = run.series("train/step_tokens" if x == "tokens" else x, branch=branch)
    return align(step, other.step, other.value)


def _moments(seconds: Any) -> Any:
    """Seconds since 1970 as times, null where a log said none."""
    import pyarrow

    made = numpy.round(seconds * 1e6).astype(numpy.int64)
    return pyarrow.array(made, mask=made <= 0).cast(pyarrow.timestamp("us", "UTC"))


# -- joining and libraries ----------------------------------------------------------------------------


def _with_run(table: pyarrow.Table, key: str) -> pyarrow.Table:
    import pyarrow

    codes = numpy.zeros(table.num_rows, numpy.int32)
    run = pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array([sound(key)]))
    if "run" in table.column_names:
        table = table.rename_columns(["series/run" if name == "run" else name for name in table.column_names])
    return table.add_column(0, "run", run)


def _joined(parts: Sequence[pyarrow.Table], layout: str, single: bool) -> pyarrow.Table:
    import pyarrow

    if single:
        return parts[0]
    if not parts:
        lead = ["run"] + (
            ["name", "step", "time", "value", "segment", "rank"] if layout == "long" else ["step", "time"]
        )
        return pyarrow.table({name: pyarrow.nulls(0) for name in lead})
    return pyarrow.concat_tables(parts, promote_options="default").unify_dictionaries()


def _as(table: pyarrow.Table, library: str) -> Any:
    if library == "arrow":
        return table
    try:
        module = import_module(library)
        return module.from_arrow(table) if library == "polars" else table.to_pandas()
    except ImportError as error:
        if error.name not in (None, library):
            raise
        raise ImportError(
            f"a frame of {library} needs {library}: run pip install {library}, or ask for library='arrow'."
        ) from None
