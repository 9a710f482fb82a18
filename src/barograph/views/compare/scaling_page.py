"""A scaling law on a terminal: the coefficients, the runs on a log-log chart with the law's curves, what was left out.

In:   a fitted law, the terminal's width.
Out:  text whose lines fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from barograph.analysis.scaling.fit import FAR
from barograph.analysis.scaling.runs import spans
from barograph.core.text import compact, escape, fit, number, percent, width, wrapped

if TYPE_CHECKING:
    from barograph.analysis.scaling.fit import Interval, Prediction, Scaling, ScalingOptimum

_NAMES = {"E": "E", "A": "A", "B": "B", "alpha": "α", "beta": "β"}
_MEANS = {
    "E": "irreducible loss",
    "A": "",
    "B": "",
    "alpha": "by parameters",
    "beta": "by tokens",
}
_HIGH = 16  # lines of the chart
_MOST_RUNS = 30
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SIZES_APART = 0.05


def page(scaling: Scaling, columns: int = 100) -> str:
    """Everything but predictions. columns: at least 60 are used."""
    columns = max(60, columns)
    parts = [
        _head(scaling, columns),
        _coefficients(scaling, columns),
        _chart(scaling, columns),
        _runs(scaling, columns),
    ]
    parts.append(_notes(scaling, columns))
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part)))


def _head(scaling: Scaling, columns: int) -> Iterator[str]:
    points = scaling.samples.points
    sizes, tokens = spans(points)
    yield fit(f"L(N, D) = E + A / N^α + B / D^β   of {escape(scaling.samples.metric)}, {len(points)} runs", columns)
    yield fit(f"N {sizes} parameters ({escape(scaling.samples.source)}), D {tokens} tokens", columns)


def _coefficients(scaling: Scaling, columns: int) -> Iterator[str]:
    interval = f"{percent(scaling.level)} interval"
    for name, coefficient in scaling.coefficients.items():
        show = number if name in ("A", "B") else _small
        line = f"  {_NAMES[name]}  {show(coefficient.value):>11}   {show(coefficient.low)} to {show(coefficient.high)}"
        note = "not identified" if name in scaling.unidentified else _MEANS[name]
        yield fit(f"{line:<44} {note}".rstrip(), columns)
    yield fit(f"  noise of a run {percent(scaling.noise)}; {interval}s of a bootstrap over runs", columns)


def _small(value: float) -> str:
    return number(value) if value >= 1e-6 else "0"


# -- the chart ------------------------------------------------------------------------------------------------


def _groups(scaling: Scaling) -> list[tuple[float, list[int]]]:
    """Runs of one size together: the size, and their places; the smallest first."""
    points = scaling.samples.points
    order = sorted(range(len(points)), key=lambda at: points[at].parameters)
    result: list[tuple[float, list[int]]] = []
    for at in order:
        size = points[at].parameters
        if result and size <= result[-1][0] * (1 + _SIZES_APART):
            result[-1][1].append(at)
        else:
            result.append((size, [at]))
    return result


def _chart(scaling: Scaling, columns: int) -> Iterator[str]:
    """Loss by tokens, both by logarithms: a letter a run, a dotted curve a size."""
    points, groups = scaling.samples.points, _groups(scaling)
    if len(groups) > len(_LETTERS):
        step = len(groups) / len(_LETTERS)
        shown = {round(at * step) for at in range(len(_LETTERS))}
        groups = [group for at, group in enumerate(groups) if at in shown]
    losses = [point.loss for point in points]
    x0, x1 = _room([point.tokens for point in points])
    y0, y1 = _room(losses)
    wide = columns - 12
    cells = [[" "] * wide for _ in range(_HIGH)]

    def place(tokens: float, loss: float) -> tuple[int, int] | None:
        across = (math.log(tokens) - x0) / (x1 - x0) * (wide - 1)
        down = (y1 - math.log(loss)) / (y1 - y0) * (_HIGH - 1)
        at = round(down), round(across)
        return at if 0 <= at[0] < _HIGH and 0 <= at[1] < wide else None

    for size, _ in groups:
        for tokens in np.exp(np.linspace(x0, x1, 2 * wide)):
            loss = float(scaling.law.loss(size, tokens))
            if loss > 0 and (at := place(float(tokens), loss)) is not None and cells[at[0]][at[1]] == " ":
                cells[at[0]][at[1]] = "·"
    for letter, (_, places) in zip(_LETTERS, groups, strict=False):
        for run in places:
            if (at := place(points[run].tokens, points[run].loss)) is not None:
                cells[at[0]][at[1]] = letter if cells[at[0]][at[1]] in (" ", "·", letter) else "*"
    yield "  loss"
    for row, line in enumerate(cells):
        value = math.exp(y1 - row / (_HIGH - 1) * (y1 - y0))
        label = number(value) if row % 5 == 0 else ""
        yield f"{label:>9} │{''.join(line).rstrip()}"
    yield f"{'':>9} └{'─' * wide}"
    low, high = compact(math.exp(x0)), compact(math.exp(x1))
    yield f"{'':>11}{low}{'tokens'.center(max(0, wide - len(low) - len(high)))}{high}"
    key = "  ".join(f"{letter} {compact(size)}" for letter, (size, _) in zip(_LETTERS, groups, strict=False))
    yield fit(f"{'':>11}{key}   · the law", columns)


def _room(values: Sequence[float]) -> tuple[float, float]:
    """The range of the logarithms, a little wider than the values'."""
    low, high = math.log(min(values)), math.log(max(values))
    pad = 0.04 * (high - low) or 0.05
    return low - pad, high + pad


# -- the runs -------------------------------------------------------------------------------------------------


def _runs(scaling: Scaling, columns: int) -> Iterator[str]:
    points = scaling.samples.points
    order = [at for _, places in _groups(scaling) for at in sorted(places, key=lambda at: points[at].tokens)]
    names = min(40, max(3, *(width([escape(points[at].name)]) for at in order)), max(16, columns - 44))
    yield f"  {'RUN':<{names}} {'N':>9} {'D':>9} {'LOSS':>9} {'LAW':>9}"
    for at in order[:_MOST_RUNS]:
        one = points[at]
        law = float(scaling.law.loss(one.parameters, one.tokens))
        yield (
            f"  {fit(escape(one.name), names):<{names}} {compact(one.parameters):>9} {compact(one.tokens):>9} "
            f"{number(one.loss):>9} {number(law):>9}"
        )
    if len(order) > _MOST_RUNS:
        yield f"  … and {len(order) - _MOST_RUNS:,} runs more; --json has them all"


def _notes(scaling: Scaling, columns: int) -> Iterator[str]:
    for name, why in scaling.unidentified.items():
        yield from wrapped(f"! {_NAMES[name]} is not identified: {why}.", columns, "  ")
    for caution in scaling.cautions:
        yield from wrapped(f"! {escape(caution)}", columns, "  ")
    for name, reason in scaling.samples.left_out[:8]:
        yield from wrapped(f"- {escape(name)} is left out: {escape(reason)}.", columns, "  ")
    if len(scaling.samples.left_out) > 8:
        yield f"  - and {len(scaling.samples.left_out) - 8} more"


# -- predictions ----------------------------------------------------------------------------------------------


def prediction_lines(prediction: Prediction, scaling: Scaling, columns: int = 100) -> list[str]:
    """A prediction in sentences."""
    head = (
        f"{compact(prediction.parameters)} parameters, {compact(prediction.tokens)} tokens: loss {_of(prediction.loss)}"
    )
    found = list(
        wrapped(f"{head}; a run of it {number(prediction.run.low)} to {number(prediction.run.high)}.", columns, "  ")
    )
    return found + _far(prediction.beyond, scaling, columns)


def optimum_lines(optimum: ScalingOptimum, scaling: Scaling, columns: int = 100) -> list[str]:
    """What a budget is best spent on, in sentences."""
    ratio = optimum.tokens.value / optimum.parameters.value
    found = list(
        wrapped(
            f"{number(optimum.flops)} FLOPs (6 N D) are best spent on {_amount(optimum.parameters)} parameters and "
            f"{_amount(optimum.tokens)} tokens, {number(ratio, 3)} a parameter: loss {_of(optimum.loss)}.",
            columns,
        )
    )
    if scaling.unidentified.keys() & {"alpha", "beta"}:
        found += wrapped("! An exponent is not identified, so this split is very uncertain.", columns, "  ")
    return found + _far(optimum.beyond, scaling, columns)


def _far(beyond: float, scaling: Scaling, columns: int) -> list[str]:

    if beyond <= FAR:
        return []
    return list(wrapped(f"! That is {beyond:,.0f} times the largest run: the law is not tested there.", columns, "  "))


def _of(interval: Interval) -> str:
    return f"{number(interval.value)} ({number(interval.low)} to {number(interval.high)})"


def _amount(interval: Interval) -> str:
    return f"{compact(interval.value)} ({compact(interval.low)} to {compact(interval.high)})"
