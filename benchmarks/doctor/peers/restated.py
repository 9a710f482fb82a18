"""Thresholds of well-known monitors, restated: SageMaker Debugger, OLMo, Lightning, W&B-style, AutoTrainer-like.

In:   `Columns`.
Out:  `Alarm`s.

Written from the published defaults, not from those tools' code. All look live: an alarm's step is the row at which
it rings. A row within `COOL_DOWN` rows of the last ringing one belongs to the same alarm. Values that are not finite
ring once as `nonfinite` and enter no window; several of the originals would go blind at the first NaN.

Left out, because a run's series do not have their input: SageMaker's rules on images, tokens, classes and trees,
PoorWeightInitialization, TensorVariance, SimilarAcrossRuns, and those of its profiler rules that need a GPU.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy
from numpy.typing import NDArray

from peers.alarms import Alarm, alarm, incidents
from peers.columns import Column, Columns

COOL_DOWN = 100  # rows, the order of the windows below; without it each ringing row were a finding

LOSS_UP = ("spike", "divergence", "data")
NORM_UP = ("exploding", "spike")


def sagemaker(columns: Columns) -> list[Alarm]:
    """SageMaker Debugger's built-in rules with their documented defaults, as far as a run has their input."""
    found = [*_non_finite(columns, "ExplodingTensor"), *_layers_non_finite(columns)]
    loss, evaluation = columns.role("loss"), columns.role("eval_loss")
    if loss is not None:
        found += _ring(loss, _not_decreasing(loss), "LossNotDecreasing", ("plateau", "not_learning", "divergence"))
        if evaluation is not None:
            found += _ring(evaluation, _gap(loss, evaluation), "Overfit", ("overfit",))
    if evaluation is not None:
        found += _ring(evaluation, _stale(evaluation, patience=10, delta=0.01), "Overtraining", ("overfit", "plateau"))
    for layer, column in columns.layers("gradients", "norm").items():
        mean = _mean_gradient(columns, layer)
        if mean is not None:
            found += _ring(mean, mean.value < 1e-7, "VanishingGradient", ("vanishing",))
        found += _ring(column, column.value == 0.0, "AllZero", ("zero", "frozen", "vanishing"))
    for column in columns.layers("updates", "ratio").values():
        known = column.finite()
        outside = (known.value > 10.0) | (known.value < 1e-8)
        found += _ring(known, outside, "WeightUpdateRatio", ("update_ratio", "frozen", "learning_rate"))
        found += _ring(known, _lasting(known.value <= 1e-5, 3), "UnchangedTensor", ("frozen",))
    for quantity, rule, kind in (("dead", "DeadRelu", "dead"), ("saturated", "SaturatedActivation", "saturated")):
        for column in columns.layers("activations", quantity).values():
            found += _ring(column, column.value > 0.5, rule, (kind,))
    return _once(found + _profiled(columns))


def _profiled(columns: Columns) -> list[Alarm]:
    """StalledTraining, StepOutlier, GPUMemoryIncrease."""
    found: list[Alarm] = []
    loss = columns.role("loss")
    if loss is not None and len(loss.step) > 1:
        waits = numpy.diff(loss.time, prepend=loss.time[0])
        found += _ring(loss, waits > 1800.0, "StalledTraining", ("stall",))
    seconds = columns.step_seconds()
    if seconds is not None:
        known = seconds.finite()
        outlying = known.value > known.value.mean() + 5.0 * known.value.std() if len(known.value) else known.value > 0
        outlying &= numpy.cumsum(outlying) > 10
        found += _ring(known, outlying, "StepOutlier", ("slowdown", "stall", "straggler", "input_bound"))
    if "memory/allocated_gb" in columns:
        held = columns.series("memory/allocated_gb").finite()
        start = _rolling_minimum(held.value, 500)
        found += _ring(held, held.value > 1.1 * start, "GPUMemoryIncrease", ("memory",))
    return found


def olmo(columns: Columns) -> list[Alarm]:
    """OLMo-core's stability monitor: more than 6 σ above the mean of the last 128 values, loss and gradient norm.

    At least 64 values, as its skip-step optimizer asks.
    """
    found = _non_finite(columns, "spike")
    for role, kinds in (("loss", LOSS_UP), ("norm", NORM_UP)):
        if (column := columns.role(role)) is not None:
            known = column.finite()
            found += _ring(known, _above(known.value, 6.0, window=128, least=64), f"{role} 6 sigma", kinds)
    return found


def lightning(columns: Columns) -> list[Alarm]:
    """Lightning's spike detection: |loss − m| ≥ 2 m, m the mean of the last 10, the loss rising; or not finite."""
    found = _non_finite(columns, "spike")
    if (loss := columns.role("loss")) is not None:
        known = loss.finite()
        mean, _, count = _rolling(known.value, 10)
        rising = numpy.diff(known.value, prepend=known.value[:1]) > 0
        ringing = (count >= 1) & rising & (numpy.abs(known.value - mean) >= 2.0 * mean)
        found += _ring(known, ringing, "spike", LOSS_UP)
    return found


def wandb_style(columns: Columns) -> list[Alarm]:
    """An automation as people set it up on W&B: the loss more than 4 σ above the mean of the last 100.

    At least 30 values. A loss that isn't finite rings too, as an automation on a threshold does.
    """
    found = _non_finite(columns, "threshold", roles=("loss",))
    if (loss := columns.role("loss")) is not None:
        known = loss.finite()
        found += _ring(known, _above(known.value, 4.0, window=100, least=30), "z-score", LOSS_UP)
    return found


def autotrainer(columns: Columns) -> list[Alarm]:
    """AutoTrainer's five problems with its thresholds: vanishing (first / last gradient below 1e-3 and the first
    below 1e-4), exploding (first / last above 70, or loss not finite or above 1e3), dying ReLU (a share of zeros of
    0.7), oscillating (accuracy moves by 0.03 or more between neighbours in 20% of evaluations), slow (accuracy gains
    less than 0.01 and is below 0.7). First and last: the layers at the ends whose gradients are recorded.
    """
    found = _non_finite(columns, "explode", roles=("loss",))
    if (loss := columns.role("loss")) is not None:
        found += _ring(loss, loss.value >= 1e3, "explode", ("divergence", "exploding", "spike"))
    layers = columns.layers("gradients", "norm")
    matrices = [column for layer, column in layers.items() if not layer.endswith("bias")]
    if len(matrices) > 1:
        first, last = matrices[0], matrices[-1]
        steps, here, there = numpy.intersect1d(first.step, last.step, return_indices=True)
        begin, end = first.value[here], last.value[there]
        ratio = numpy.divide(begin, end, out=numpy.full(len(steps), numpy.nan), where=end > 0)
        both = Column(steps, ratio, first.time[here])
        found += _ring(both, (ratio < 1e-3) & (begin < 1e-4), "vanish", ("vanishing",))
        found += _ring(both, ratio > 70.0, "explode", ("exploding",))
    for column in columns.layers("activations", "dead").values():
        found += _ring(column, column.value >= 0.7, "dying relu", ("dead",))
    accuracy = columns.role("eval_accuracy") or columns.role("accuracy")
    if accuracy is not None and len(accuracy.value) >= 5:
        moves = numpy.abs(numpy.diff(accuracy.value))
        swings = moves[1:][numpy.diff(accuracy.value)[1:] < 0] >= 0.03
        if swings.sum() >= 0.2 * len(moves):
            found += [_at(accuracy, len(accuracy.step) - 1, "oscillating", ("divergence", "spike"))]
        half = len(accuracy.value) // 2
        if accuracy.value[-1] < 0.7 and accuracy.value.max() - accuracy.value[half] < 0.01:
            found += [_at(accuracy, half, "slow", ("plateau", "not_learning", "frozen"))]
    return _once(found)


RESTATED: dict[str, Callable[[Columns], list[Alarm]]] = {
    "sagemaker defaults": sagemaker,
    "olmo 6 sigma": olmo,
    "lightning 2x": lightning,
    "wandb-style 4 sigma": wandb_style,
    "autotrainer-like": autotrainer,
}


# -- what rings ------------------------------------------------------------------------------------------


def _not_decreasing(loss: Column) -> NDArray[numpy.bool_]:
    """Every 10 rows: the loss must have fallen by 0.1% of what it was 10 rows before. [rows of the loss]"""
    known = numpy.flatnonzero(numpy.isfinite(loss.value))
    places = numpy.arange(10, len(known), 10)
    before, now = loss.value[known[places - 10]], loss.value[known[places]]
    ringing = numpy.zeros(len(loss.value), bool)
    ringing[known[places[(before - now) < 0.001 * numpy.abs(before)]]] = True
    return ringing


def _gap(loss: Column, evaluation: Column) -> NDArray[numpy.bool_]:
    """(validation − training) / training above 0.1; training: the mean since the evaluation before. [evaluations]"""
    known = loss.finite()
    ringing = numpy.zeros(len(evaluation.value), bool)
    start = 0
    for row, (step, value) in enumerate(zip(evaluation.step.tolist(), evaluation.value.tolist(), strict=True)):
        end = int(numpy.searchsorted(known.step, step, side="right"))
        if end > start and numpy.isfinite(value):
            mean = float(known.value[start:end].mean())
            ringing[row] = mean > 0 and (value - mean) / mean > 0.1
            start = end
    return ringing


def _stale(column: Column, patience: int, delta: float) -> NDArray[numpy.bool_]:
    """Rows at which the best has not been beaten by `delta` for `patience` rows."""
    best, since = numpy.inf, 0
    ringing = numpy.zeros(len(column.value), bool)
    for row, value in enumerate(column.value.tolist()):
        best, since = (value, 0) if value < best - delta else (best, since + 1)
        ringing[row] = since >= patience
    return ringing


def _mean_gradient(columns: Columns, layer: str) -> Column | None:
    """mean |g|, which is not recorded: 0.8 × the root of mean² + std², as for a normal distribution."""
    try:
        mean, std = columns.series(f"gradients/{layer}/mean"), columns.series(f"gradients/{layer}/std")
    except KeyError:
        return None
    if len(mean.value) != len(std.value):
        return None
    return Column(mean.step, 0.8 * numpy.sqrt(mean.value**2 + std.value**2), mean.time)


def _layers_non_finite(columns: Columns) -> list[Alarm]:
    found: list[Alarm] = []
    for quantity in ("nan", "inf"):
        for column in columns.layers("gradients", quantity).values():
            found += _ring(column, column.value > 0, "ExplodingTensor", ("nonfinite",), "critical")
    return found


def _non_finite(columns: Columns, rule: str, roles: tuple[str, ...] = ("loss", "norm")) -> list[Alarm]:
    """The first value of loss or gradient norm that is not finite."""
    for role in roles:
        column = columns.role(role)
        if column is not None and len(rows := numpy.flatnonzero(~numpy.isfinite(column.value))):
            return [_at(column, int(rows[0]), rule, ("nonfinite",), "critical")]
    return []


def _above(values: NDArray[numpy.float64], sigmas: float, window: int, least: int) -> NDArray[numpy.bool_]:
    """Values more than this many σ above the mean of the `window` values before them."""
    mean, std, count = _rolling(values, window)
    return (count >= least) & (values > mean + sigmas * std)


def _lasting(held: NDArray[numpy.bool_], times: int) -> NDArray[numpy.bool_]:
    """Rows at which a condition has held this many rows in a row."""
    run, ringing = 0, numpy.zeros(len(held), bool)
    for row, one in enumerate(held.tolist()):
        run = run + 1 if one else 0
        ringing[row] = run >= times
    return ringing


def _ring(
    column: Column, ringing: NDArray[numpy.bool_], rule: str, kinds: tuple[str, ...], severity: str = "warning"
) -> list[Alarm]:
    return [_at(column, row, rule, kinds, severity) for row in incidents(numpy.flatnonzero(ringing), COOL_DOWN)]


def _at(column: Column, row: int, rule: str, kinds: tuple[str, ...], severity: str = "warning") -> Alarm:
    step = int(column.step[row])
    return alarm(rule, kinds, severity, step, found=step)


def _once(found: list[Alarm]) -> list[Alarm]:
    """One alarm of a rule within `COOL_DOWN` steps, of whatever layer: many layers at once are one alarm."""
    kept: list[Alarm] = []
    last: dict[str, int] = {}
    for one in sorted(found, key=lambda one: int(one["found"])):
        if one["rule"] not in last or one["found"] - last[one["rule"]] > COOL_DOWN:
            kept.append(one)
            last[one["rule"]] = one["found"]
    return kept


def _rolling(values: NDArray[numpy.float64], window: int) -> tuple[NDArray[numpy.float64], ...]:
    """Mean, standard deviation and number of the `window` values before each; 0 where there are none."""
    count = numpy.minimum(numpy.arange(len(values)), window)
    mean, std = numpy.zeros(len(values)), numpy.zeros(len(values))
    with numpy.errstate(over="ignore", invalid="ignore"):  # values near the largest float
        for row in range(1, min(window, len(values))):
            mean[row], std[row] = values[:row].mean(), values[:row].std()
        for start in range(window, len(values), 8192):  # in pieces: a window of each row at once is too much
            views = numpy.lib.stride_tricks.sliding_window_view(values[start - window : start + 8191], window)
            rows = slice(start, min(start + len(views), len(values)))
            views = views[: rows.stop - start]
            mean[rows], std[rows] = views.mean(axis=1), views.std(axis=1)
    return mean, std, count.astype(numpy.float64)


def _rolling_minimum(values: NDArray[numpy.float64], window: int) -> NDArray[numpy.float64]:
    return numpy.array([values[max(row - window, 0) : row + 1].min() for row in range(len(values))])
