"""The first page: the loss, and a line for each of the figures that matter.

In:   a followed run.
Out:  rows that fill a terminal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.core.text import clip, compact, narrow, padded, short, size
from barograph.views.top.chart import LABEL, chart, mark_row, scale_of, span_of, sparkline
from barograph.views.top.fold import Fold, FoldColumns
from barograph.views.top.place import TopPlace
from barograph.views.top.screen import Row, Span
from barograph.views.top.watching import RunWatch

_FIRST = ("loss", "eval_loss", "norm", "lr", "throughput", "mfu", "reward")
_THEN = ("speed/step_ms", "train/duration_ms", "speed/mfu", "model/param_norm", "model/update_p50",
         "moe/load_imbalance", "train/moe_load_imbalance", "memory/peak_gb", "memory/rss_bytes",
         "host/cpu_util")  # fmt: skip
# watched by itself, of little use as a curve
_DULL = ("goodput/", "sol/", "allocator/", "energy/", "ranks/", "span/", "data/", "host/", "gpu/", "memory/")
_OTHER_PAGES = ("goodput/", "energy/", "allocator/", "sol/")  # listed where there is nothing else
_MOST = 64  # series that may be chosen
_NAME, _FIGURE = 24, 10


def metrics(watch: RunWatch, count: int) -> list[str]:
    """The series that are listed, the most important first."""
    found = [watch.roles[role] for role in _FIRST if role in watch.roles]
    found += [name for name in _THEN if name in set(watch.names) and name not in found]
    for item, same in (("speed/step_ms", "train/duration_ms"), ("train/mfu", "speed/mfu")):
        if item in found and same in found:
            found.remove(same)
    if len(found) < count:
        taken = set(found)
        rest = [name for name in watch.names if name.count("/") <= 1 and name not in taken]
        rest = [name for name in rest if not name.startswith(_OTHER_PAGES)] if found else rest
        rest.sort(key=lambda name: (name.startswith(_DULL), not name.startswith(("train/", "eval/", "val/")), name))
        found += rest[: count - len(found)]
    return found[:count]


def table_rows(rows: int) -> int:
    """How many metrics a page of `rows` rows lists."""
    return max(3, min(_MOST, (rows - 4) * 2 // 5))


def wanted(watch: RunWatch, at: TopPlace, columns: int, rows: int) -> list[str]:
    """The series of the page, the chart's first."""
    listed = metrics(watch, _MOST)
    if not listed:
        return []
    count = table_rows(rows)
    chosen = min(at.chosen, len(listed) - 1)
    first = max(0, chosen - count + 1)
    chart_names = [listed[chosen]]
    if (evaluations := _evaluations(watch, listed[chosen])) is not None:
        chart_names.append(evaluations)
    return [*chart_names, *(name for name in listed[first : first + count] if name not in chart_names)]


def _evaluations(watch: RunWatch, name: str) -> str | None:
    """The series that is drawn over the loss; bits per byte and the like have another scale."""
    evaluations = watch.roles.get("eval_loss", "")
    is_loss = "loss" in evaluations or evaluations in watch.told.evaluations
    return evaluations if is_loss and name == watch.roles.get("loss") else None


def draw(watch: RunWatch, at: TopPlace, columns: int, rows: int) -> list[Row]:
    """The page."""
    listed = metrics(watch, _MOST)
    if not listed:
        return [[], [Span("  no series yet: the run has logged no metric", "dim")]]
    at.chosen = min(at.chosen, len(listed) - 1)
    name = listed[at.chosen]
    count = min(table_rows(rows), len(listed))
    worst = _worst(watch, columns)
    height = max(3, rows - count - 4 - len(worst))
    page = _charted(watch, at, name, columns, height)
    first = max(0, at.chosen - count + 1)
    page += _table(watch, at, listed, first, count, columns)
    return [*page, *worst]


def _charted(watch: RunWatch, at: TopPlace, name: str, columns: int, height: int) -> list[Row]:
    fold = watch.fold(name)
    if fold is None or fold.first_step is None or fold.last_step is None:
        said = "has no point yet" if fold is not None else "is being read …"
        return [[Span(f" {short(name)} {said}", "dim")], *([[]] * (height + 2))]
    inner = columns - LABEL - 1
    low, high = span_of(fold.first_step, fold.last_step, at.window, watch.progress()[1], watch.live)
    across = 2 if at.braille else 1
    main = fold.columns(low, high, inner * across)
    evaluations = _evaluations(watch, name)
    evaluated = watch.fold(evaluations) if evaluations is not None else None
    marks = evaluated.columns(low, high, inner) if evaluated is not None else None
    scale = scale_of([main] if marks is None else [main, marks], at.log)
    odd = _filled(main).reshape(inner, across).sum(axis=1)
    flags: dict[int, str] = {}
    for finding in watch.logbook.findings():
        if low <= finding["step"] < high and finding["severity"] != "info":
            column = int((finding["step"] - low) / (high - low) * inner)
            flags[column] = "critical" if flags.get(column) == "critical" else finding["severity"]
    return [
        _title(watch, at, name, fold, evaluated, main, scale.left_out, columns),
        *chart(main, marks, scale, columns, height, at.braille),
        mark_row(odd, flags, columns, at.braille),
        _axis(low, high, fold.last_step, inner, at),
    ]


def _title(
    watch: RunWatch,
    at: TopPlace,
    name: str,
    fold: Fold,
    evaluated: Fold | None,
    shown: FoldColumns,
    left_out: bool,
    columns: int,
) -> Row:
    least, most = _extreme(shown.low, np.min), _extreme(shown.high, np.max)
    row = [Span(f" {short(name, 60)} ", "bold cyan"), Span(narrow(fold.last), _colour(fold.last))]
    row.append(Span(f"  min {narrow(least)}  max {narrow(most)}", "dim"))
    if evaluated is not None and evaluated.points:
        row.append(Span(f"  {'●' if at.braille else 'o'} {short(watch.roles['eval_loss'], 30)} ", "yellow"))
        row.append(Span(narrow(evaluated.last), _colour(evaluated.last)))
    if fold.odd and fold.first_odd is not None:
        step, value = fold.first_odd
        row.append(Span(f"  {fold.odd:,} not finite, {narrow(value)} from step {step:,}", "bold red"))
    if at.log:
        row.append(Span("  log" + (", points ≤ 0 left out" if left_out else ""), "dim"))
    return row


def _filled(columns: FoldColumns) -> NDArray[np.int64]:
    """Where values are not finite; columns without a point between two such columns count with them."""
    places = np.flatnonzero((columns.odd > 0) | np.isfinite(columns.low))
    odd = columns.odd.copy()
    for item, other in pairwise(places.tolist()):
        if odd[item] and odd[other]:
            odd[item:other] = 1
    return odd


def _extreme(values: NDArray[np.float64], of: Callable[[NDArray[np.float64]], Any]) -> float:
    known = values[~np.isnan(values)]
    return float(of(known)) if len(known) else math.nan


def _axis(low: float, high: float, last_step: int, inner: int, at: TopPlace) -> Row:
    """The first step, the last that there is under its point, and one between; a chart of a live run has room left."""
    newest = min(int(high) - 1, last_step) if last_step >= low else int(high) - 1
    first, last = f"{low:,.0f}", f"{newest:,}"
    column = int((newest - low) / (high - low) * inner)
    end = min(inner, max(column + (len(last) + 1) // 2, len(first) + 1 + len(last)))
    middle, halfway = f"{(low + newest) / 2:,.0f}", int(column / 2)
    line = first.ljust(max(0, halfway - len(middle) // 2))
    if halfway - len(middle) // 2 > len(first) + 2 and halfway + len(middle) // 2 + 4 < end - len(last):
        line += middle
    line = line[: max(len(first), end - len(last))].ljust(end - len(last)) + last
    told = f"last 1/{2**at.window:,}" if at.window else "steps"
    return [Span(f"{told:>{LABEL}} ", "dim"), Span(line[:inner], "dim")]


def _table(watch: RunWatch, at: TopPlace, listed: list[str], first: int, count: int, columns: int) -> list[Row]:
    name_width = _NAME if columns < 100 else 34
    spark = max(8, columns - name_width - 3 * (_FIGURE + 1) - 3)
    rows: list[Row] = [
        [Span(padded("   metric", name_width + 1), "dim")]
        + [Span(f"{word:>{_FIGURE}} ", "dim") for word in ("last", "min", "max")]
    ]
    for place in range(first, min(first + count, len(listed))):
        name = listed[place]
        fold = watch.fold(name)
        mark = ("▸" if at.braille else ">") if place == at.chosen else " "
        row: Row = [Span(f" {mark}{padded(short(name), name_width - 2)} ", "bold" if place == at.chosen else "")]
        if fold is None:
            rows.append([*row, Span(f"{'…':>{_FIGURE}}", "dim")])
            continue
        row.append(Span(f"{_value(name, fold.last):>{_FIGURE}} ", _colour(fold.last)))
        for extreme in (fold.lowest, fold.highest):
            row.append(Span(f"{_value(name, extreme) if fold.points > fold.odd else '':>{_FIGURE}} ", "dim"))
        if fold.first_step is not None and fold.last_step is not None:
            low, high = span_of(fold.first_step, fold.last_step, at.window, live=watch.live)
            # few points stand one beside the other; many are put into columns as there is room
            row += sparkline(fold.columns(low, high, max(1, min(spark, int(high - low)))), at.braille)
        rows.append(row)
    return rows


def _value(name: str, value: float) -> str:
    if name.endswith(("/tokens", "/samples")) and abs(value) >= 1e4:
        return compact(value)  # as the page's charts write it
    return size(value) if name.endswith("_bytes") else narrow(value)


def _worst(watch: RunWatch, columns: int) -> list[Row]:
    """The worst finding, if one is worth a line."""
    for finding in watch.logbook.findings()[:1]:
        if finding["severity"] != "info":
            style = "bold red" if finding["severity"] == "critical" else "yellow"
            told = f" step {finding['step']:,}, {finding['severity']}: {short(finding['message'])}"
            return [[Span(clip(told, columns), style)]]
    return []


def _colour(value: float) -> str:
    return "bold" if math.isfinite(value) else "bold red"
