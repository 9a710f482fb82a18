"""A round's numbers made into what is recorded: one `model` record, tables by layer, histograms.

In:   a `ModelRound` whose figures have arrived.
Out:  fields of the record; {prefix: {layer: {statistic: number}}}; histograms. docs/guides/model.md defines them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from barograph.probes.model import finite, flow, given, outputs, spent
from barograph.probes.model.optimizers import COLUMNS
from barograph.probes.model.rounds import ModelRound
from barograph.probes.stats.statistics import PERCENTILES

if TYPE_CHECKING:
    from barograph.probes.model.state import ModelState

Table = dict[str, dict[str, float]]

BINS = 64
_CLIPPED = 1e18  # a norm whose square is infinite in single precision
STATISTICS = (
    ("norm", "norm"), ("mean", "mean"), ("std", "std"), ("min", "min"), ("max", "max"),
    ("zeros", "zeros"), ("nan", "nans"), ("inf", "infs"),
)  # fmt: skip
_SINGLE = {"blank": "frozen_untrained", "frozen_as_drawn": "frozen_as_drawn",
           "frozen_gains_new": "frozen_gains_new", "untrained": "untrained",
           "zero_adapters": "zero_adapters", "zero_products": "zero_products",
           "first_as_drawn": "frozen_first_as_drawn", "frozen_zero": "frozen_zero",
           "untied_copy": "untied_copy", "copied_tables": "copied_tables", "stale_statistics": "stale_statistics",
           "unset_statistics": "unset_statistics", "unset_buffers": "unset_buffers",
           "begun_statistics": "begun_statistics",
           "optimizer_age": "optimizer_age", "idle_gradient": "idle_gradient",
           "as_drawn": "without_graph_as_drawn", "drawn": "drawn", "written": "written",
           "gradient_growth": "gradient_growth",
           "tied_deviation": "tied_deviation", "adapters_drawn": "adapters_drawn",
           "adapters_zero": "adapters_zero", "held_factors": "held_factors",
           "adapters_merged": "adapters_merged", "codes_merged": "codes_merged", "adapters_off": "adapters_off",
           "packed_unscaled": "packed_unscaled", "packed_unshifted": "packed_unshifted",
           "equal_units": "equal_units",
           "unheld_trained": "unheld_trained", "gains_apart": "gains_apart",
           "frozen_tables": "frozen_tables", "frozen_random_tables": "frozen_random_tables",
           "without_random_tables": "without_graph_random_tables",
           "last_drawn": "last_drawn", "state_carried": "state_carried",
           "table_detached": "table_detached", "copies_rounded": "copies_rounded"}  # fmt: skip
_NUMBERS = ("idle_gradient", "written", "gradient_growth", "tied_deviation", "adapters_merged",
            "codes_merged", "adapters_off")  # fmt: skip
"""Of these: not counts."""
_SCALED = ("norm", "mean", "std", "min", "max")


SAID_ONCE = {"stale_gradients": "gradients", "unchanged": "updates", "stale_statistics": "weights"}
"""Figures of which a 0 is said once, and at the interval of a family."""


class ModelHistogram(NamedTuple):
    """`name`: `{family}_hist/{layer}`."""

    name: str
    edges: Any
    counts: Any


class ModelReport(NamedTuple):
    """All of a round. `distributions`: percentiles with `min` and `max`, for the console."""

    fields: dict[str, Any]
    tables: dict[str, Table]
    histograms: list[ModelHistogram]
    distributions: Table


def make(
    found: ModelRound, blocks: Iterable[str], order: Sequence[str] = (), state: ModelState | None = None
) -> ModelReport:
    """The report of a round that is `ready`. blocks: names of the model's blocks in order of depth; order: of all
    parameters as the model has them; state: what remembers examples of earlier steps."""
    numbers = found.numbers()
    fields: dict[str, Any] = {}
    tables: dict[str, Table] = {}
    scales = _column(numbers, "scale")
    squares = _squares(found, numbers, scales)
    _norms(found, numbers, squares, fields)
    _non_finite(numbers, squares, order, fields)
    if "gradients" in found.due:
        fields |= flow.flow(squares, blocks)
    histograms: list[ModelHistogram] = []
    distributions: Table = {}
    for family in ("gradients", "weights"):
        for names, statistics in found.statistics(family):
            chosen = [row for row, name in enumerate(names) if family == "weights" or name in found.present]
            if family in found.due:
                columns = [(name, getattr(statistics, column)) for name, column in STATISTICS]
                table = tables.setdefault(family, {})
                for row in chosen:
                    scale = scales.get(names[row], 1.0) if family == "gradients" else 1.0
                    table[names[row]] = {
                        name: float(values[row]) * (scale if scale != 1.0 and name in _SCALED else 1.0)
                        for name, values in columns
                    }
            if statistics.sketches is None:
                continue
            quantiles = statistics.percentiles()
            for row in chosen:
                name, scale = names[row], scales.get(names[row], 1.0) if family == "gradients" else 1.0
                marks = {f"p{q}": float(value) * scale for q, value in zip(PERCENTILES, quantiles[row], strict=True)}
                tables.setdefault(family, {}).setdefault(name, {}).update(marks)
                edges, counts = statistics.histogram(row, BINS)
                histograms.append(ModelHistogram(f"{family}_hist/{name}", edges * scale, counts))
                if family == "gradients":
                    ends = {"min": float(statistics.min[row]) * scale, "max": float(statistics.max[row]) * scale}
                    distributions[name] = marks | ends
    _updates(found, numbers, squares, fields, tables)
    _unchanged(found, numbers, squares, fields)
    _states(numbers, tables)
    _spectra(numbers, fields, tables)
    _activations(numbers, fields, tables)
    fields |= _column(numbers, "adapters_by")
    fields |= outputs.fields_of(numbers) | given.fields_of(numbers) | spent.fields_of(numbers)
    if "finite" in numbers:
        fields |= finite.figures(*map(float, numbers["finite"][1][0]))
    if state is not None:
        fields |= state.fields_of(found.step, numbers)
    fields |= found.figures
    if "stale_left" in numbers:  # zeroed past the counters: all of them are 0
        fields["stale_gradients"] = float(numbers["stale_left"][1].any())
    return ModelReport(fields, tables, histograms, distributions)


def _column(numbers: Mapping[str, Any], family: str) -> dict[str, float]:
    names, values = numbers.get(family, ((), np.zeros((1, 0))))
    return {name: float(value) for name, value in zip(names, values[0], strict=True)}


def _squares(found: ModelRound, numbers: Mapping[str, Any], scales: Mapping[str, float]) -> dict[str, float]:
    """The square of each gradient's norm; from its statistics where it was not read for this alone."""
    squares = _column(numbers, "gradient_squares")
    if not squares:
        for names, statistics in found.statistics("gradients"):
            square = np.where(statistics.infs > 0, np.inf, statistics.norm**2)  # the norm is of the finite elements
            square = np.where(statistics.nans > 0, np.nan, square)
            squares |= {
                name: float(item) * scales.get(name, 1.0) ** 2 for name, item in zip(names, square, strict=True)
            }
    return {name: square for name, square in squares.items() if name in found.present}


def _norms(
    found: ModelRound, numbers: Mapping[str, Any], gradients: Mapping[str, float], fields: dict[str, Any]
) -> None:
    before = _column(numbers, "before_square")
    noted = _column(numbers, "noted_norm").get("")
    known = noted if noted is not None else math.sqrt(math.fsum(before.values())) if before else None
    after = None
    if gradients:
        after = _root(gradients.values())
    elif noted is not None and "most" in found.figures:
        # clip_grad_norm_ multiplies by max_norm / (norm + 1e-6), at most 1
        after = noted * min(1.0, found.figures["most"] / (noted + 1e-6))
    found.figures.pop("most", None)
    if after is not None:
        fields["grad_norm"] = after
    if known is not None:
        fields["grad_norm_before"] = known
        # what no optimizer steps may never be cleared, and was not clipped
        ours = math.sqrt(math.fsum(before.get(name, 0.0) for name in gradients)) if noted is None else known
        if after is not None and ours > 0:
            fields["clip_coefficient"] = after / ours
            if after == 0 and ours < _CLIPPED:  # clipping by an infinite norm leaves zeros
                fields["cleared_gradients"] = 1
    if loss_scale := _column(numbers, "loss_scale"):
        fields["loss_scale"] = loss_scale[""]
    if "inputs" in numbers and not math.isfinite(_column(numbers, "inputs")[""]):
        fields["non_finite_inputs"] = 1
    for family, name in _SINGLE.items():
        if family in numbers:
            value = _column(numbers, family)[""]
            fields[name] = value if name in _NUMBERS else int(value)
    if "weight_squares" in numbers:
        weights = _column(numbers, "weight_squares")
        fields["param_norm"] = _root(weights.values())
        if 0.0 in weights.values():
            zero = [weights.get(name) == 0 for own, _ in found.rates for name, item in zip(own.names, own.parameters,
                    strict=True) if item.dim() > 1]  # fmt: skip
            fields["zero_share"] = float(np.mean(zero)) if zero else 0.0
        if reach := list(_reach(found, weights)):
            fields["reach"] = float(np.median(reach))


def _reach(found: ModelRound, squares: Mapping[str, float]) -> Iterator[float]:
    """How far the steps so far can have moved each matrix at most, of the size of its elements."""
    for own, sums in found.travel:
        for name, parameter, number in zip(own.names, own.parameters, own.groups, strict=True):
            square = squares.get(name, 0.0)
            if parameter.dim() > 1 and 0 < square < math.inf:
                yield sums[number] * math.sqrt(parameter.numel() / square)


def _root(squares: Iterable[float]) -> float:
    whole = sum(squares)  # fsum would raise at infinity beside minus infinity; squares have one sign
    return math.sqrt(whole) if whole == whole else math.nan


def _non_finite(
    numbers: Mapping[str, Any], gradients: Mapping[str, float], order: Sequence[str], fields: dict[str, Any]
) -> None:
    """Which gradients and weights are not finite. Backward comes from the output: the last gradient was the first."""
    squares = (("gradient", gradients, -1), ("weight", _column(numbers, "weight_squares"), 0))
    for what, by_name, first in squares:
        if math.isfinite(sum(by_name.values())):
            continue
        bad = {name for name, square in by_name.items() if not math.isfinite(square)}
        if bad:
            fields[f"non_finite_{what}s"] = len(bad)
            known = [name for name in order if name in bad] or [name for name in by_name if name in bad]
            fields[f"first_non_finite_{what}"] = known[first]


def _unchanged(
    found: ModelRound, numbers: Mapping[str, Any], gradients: Mapping[str, float], fields: dict[str, Any]
) -> None:
    """How many parameters a step should have changed and has not; those of which all is known."""
    still = None if found.unchanged is None else set(found.unchanged)
    if "updates" in numbers:
        names, (moved, _) = numbers["updates"]
        still = set() if still is None else still
        still |= {
            name
            for name, change in zip(names, moved, strict=True)
            if change == 0
            and name not in found.sampled
            and 0 < gradients.get(name, 0.0) < math.inf
            and found.learning.get(name, 0.0) > 0
        }
    same = _column(numbers, "same")
    if still is None and not same:
        return
    count = len(still or ())
    if same:
        fields["unheld"] = unheld = found.loose if all(same.values()) else 0
        count += unheld
    fields["unchanged"] = count


def _updates(
    found: ModelRound,
    numbers: Mapping[str, Any],
    gradients: Mapping[str, float],
    fields: dict[str, Any],
    tables: dict[str, Table],
) -> None:
    if "updates" not in numbers:
        return
    names, (moved, weights) = numbers["updates"]
    table = tables.setdefault("updates", {})
    for name, change, weight in zip(names, np.sqrt(moved), np.sqrt(weights), strict=True):
        row = table[name] = {
            "ratio": float(change / weight) if weight > 0 else math.inf if change > 0 else math.nan,
            "update_norm": float(change),
            "weight_norm": float(weight),
        }
        if name in gradients and name in found.learning and weight > 0:
            row["lr_ratio"] = found.learning[name] * math.sqrt(gradients[name]) / float(weight)
    # of matrices alone: biases begin at zero, and the stability guide's bands are of weights
    ratios = [row["ratio"] for row in table.values() if row["weight_norm"] > flow.LEAST_WEIGHT]
    fields |= {f"update_{name}": value for name, value in flow.quantiles(ratios).items()}
    if ratios:
        low, high = flow.band(found.step)[1:]
        fields |= {"update_band_low": low, "update_band_high": high}
        fields["update_outside"] = flow.outside(ratios, found.step)


def _states(numbers: Mapping[str, Any], tables: dict[str, Table]) -> None:
    if "optimizer_state" not in numbers:
        return
    names, values = numbers["optimizer_state"]
    table = tables.setdefault("optimizer", {})
    for name, column in zip(names, values.T, strict=True):
        known = dict(zip(COLUMNS, map(float, column), strict=True))
        row: dict[str, float] = {}
        broken = 0.0
        for label, key in (("momentum_norm", "momentum_square"), ("second_moment_norm", "second_square")):
            if known[f"has_{key}"]:
                row[label] = math.sqrt(known[key]) if known[key] == known[key] else math.nan
                broken += not math.isfinite(known[key])
        row["non_finite"] = broken
        if known["sampled"] > 0:
            row["below_eps"] = known["below_eps"] / known["sampled"]
            row["step_mean"] = known["step_sum"] / known["sampled"]
            row["step_max"] = known["step_max"]
        table[name] = row


def _spectra(numbers: Mapping[str, Any], fields: dict[str, Any], tables: dict[str, Table]) -> None:
    if "spectral" not in numbers:
        return
    names, (norms, ranks) = numbers["spectral"]
    tables["spectral"] = {
        name: {"norm": float(norm), "stable_rank": float(rank)}
        for name, norm, rank in zip(names, norms, ranks, strict=True)
    }
    if len(norms):
        fields["spectral_norm_max"] = float(np.max(norms))
        fields["spectral_norm_mean"] = float(np.mean(norms))
        fields["spectral_norm_std"] = float(np.std(norms, ddof=1)) if len(norms) > 1 else 0.0


def _activations(numbers: Mapping[str, Any], fields: dict[str, Any], tables: dict[str, Table]) -> None:
    table: Table = {}
    for label, value in _column(numbers, "activations").items():
        layer, _, name = label.partition("\n")
        if layer:
            table.setdefault(layer, {})[name] = value
        else:
            fields[name] = value
    if table:
        tables["activations"] = table


def leave_out_said(report: ModelReport, due: Collection[str], said: dict[str, float]) -> None:
    """Leave out zeros that were said before. said: the last of each figure in `SAID_ONCE`, which this brings up to
    date."""
    for name, family in SAID_ONCE.items():
        if name in report.fields:
            if report.fields[name] == said.get(name) == 0 and family not in due:
                del report.fields[name]
            else:
                said[name] = report.fields[name]


def write(report: ModelReport, found: ModelRound, outlet: Any, record: Callable[..., Any]) -> None:
    """Give a report to the run."""
    step = found.step
    record("model", step, report.fields, draw=False)
    for prefix, table in report.tables.items():
        outlet.table(prefix, step, table)
    for histogram in report.histograms:
        outlet.histogram(histogram.name, step, histogram.edges, histogram.counts)
    if found.routers is not None and found.routers["valid"]:
        more, layers, loads = found.router_layers
        extra = {name.removeprefix("moe_"): value for name, value in more.items()}
        record("moe", step, extra | dict(found.routers), draw=False)
        outlet.table("moe", step, layers)
        by_expert = {f"{layer}/load": dict(zip(map(str, range(len(row))), row.tolist(), strict=True))
                     for layer, row in loads.items()}  # fmt: skip
        outlet.table("moe", step, by_expert)
