"""The stability guide's checklist of a healthy training: each line yes, no, or not measured.

In:   an examiner that has seen a run.
Out:  `CheckedLine`s, with the figure that an answer rests on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy

from barograph.core.names import is_vector
from barograph.core.text import number, percent
from barograph.doctor.kernel.local import median
from barograph.doctor.rules.optimizer.updates import band

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.doctor.kernel.channels import Channel
    from barograph.doctor.kernel.examiner import Examiner

YES, NO, NOT_MEASURED = "yes", "no", "not measured"
_LEAST = 32  # rows that an answer needs
_MOSTLY = 0.95  # of the rows are as the line says
_SPIKES = ("loss_spike", "loss_level", "divergence", "non_finite_loss", "loss_slide", "not_learning")


class CheckedLine(NamedTuple):
    """line: as the guide has it. answer: yes, no or not measured. why: a figure, or what is missing."""

    line: str
    answer: str
    why: str


def checklist(examiner: Examiner) -> list[CheckedLine]:
    """All eight lines, in the guide's order."""
    return list(_lines(examiner))


def _lines(examiner: Examiner) -> Iterator[CheckedLine]:
    seen = examiner.seen
    rules = {
        finding.rule for finding in examiner.findings if finding.severity != "info" or finding.rule != "loss_spike"
    }
    yield _loss(_values(seen.role("loss")), sorted(rules & set(_SPIKES)))
    line, norms = "Gradient norms in 0.1-10 range", _values(seen.role("norm") or seen.channel("model/grad_norm"))
    if len(norms) < _LEAST:
        yield CheckedLine(line, NOT_MEASURED, "no gradient norm is logged")
    else:
        inside = float(((norms >= 0.1) & (norms <= 10)).mean())
        yield CheckedLine(line, _answer(inside >= _MOSTLY), f"{percent(inside)} of the steps are in it")
    ratios = seen.layers("updates", "ratio")
    yield _ratios(ratios)
    yield _found(examiner, "Gradient histograms show bell curves at zero", "histogram_shape", bool(
        seen.layers("shape", "modes")), "no histogram of gradients is logged")  # fmt: skip
    yield _spread(seen.layers("gradients", "norm"))
    line, speed = "Throughput stable (±5%)", _values(seen.role("throughput"))
    if len(speed) < _LEAST:
        took = _values(seen.role("duration_ms") or seen.channel("speed/step_ms"))
        speed = 1 / took[took > 0] if len(took) >= _LEAST else speed
    yield _stable(line, speed[len(speed) // 10 :], "neither throughput nor step times are logged")
    yield _memory(_values(seen.channel("memory/mem_utilization")))
    yield _found(examiner, "No update ratio alerts", "update_ratio", bool(
        ratios or seen.channel("model/update_p50")), "no update ratio is logged")  # fmt: skip


def _values(channel: Channel | None) -> NDArray[numpy.float64]:
    if channel is None:
        return numpy.empty(0)
    value = channel.rows().value
    return value[numpy.isfinite(value)]


def _answer(good: bool) -> str:
    return YES if good else NO


def _loss(values: NDArray[numpy.float64], found: list[str]) -> CheckedLine:
    line = "Loss decreases smoothly (no spikes)"
    if len(values) < _LEAST:
        return CheckedLine(line, NOT_MEASURED, f"it has {len(values)} finite losses, and needs {_LEAST}")
    tenth = max(1, len(values) // 10)
    begin, end = float(values[:tenth].mean()), float(values[-tenth:].mean())
    why = f"from {number(begin, 4)} to {number(end, 4)}" + (f"; found: {', '.join(found)}" if found else "")
    return CheckedLine(line, _answer(end < begin and not found), why)


def _ratios(layers: dict[str, Channel]) -> CheckedLine:
    line = "Update ratios in phase-appropriate range"
    lasts = [
        (layer.last_step, layer.last)
        for name, layer in layers.items()
        if not is_vector(name) and layer.last == layer.last
    ]
    if not lasts:
        return CheckedLine(line, NOT_MEASURED, "no update ratio of a layer is logged")
    step, middle = max(lasts)[0], median([value for _, value in lasts])
    low, high = band(step)
    why = f"the median layer's is {number(middle, 2)} at step {step:,}, where {low:g} to {high:g} is usual"
    return CheckedLine(line, _answer(low <= middle <= high), why)


def _found(examiner: Examiner, line: str, rule: str, measured: bool, lacks: str) -> CheckedLine:
    if not measured or rule not in {rule.name for rule in examiner.rules}:
        return CheckedLine(line, NOT_MEASURED, lacks if not measured else f"the rule {rule} was left out")
    chosen_findings = [finding for finding in examiner.findings if finding.rule == rule]
    return CheckedLine(
        line, _answer(not chosen_findings), chosen_findings[0].message if chosen_findings else f"{rule} found nothing"
    )


def _spread(layers: dict[str, Channel]) -> CheckedLine:
    line = "Per-layer gradient variance < 100×"
    norms = [layer.last for name, layer in layers.items() if not is_vector(name) and layer.last > 0]
    if len(norms) < 2:
        return CheckedLine(line, NOT_MEASURED, "no gradient norms of layers are logged")
    times = max(norms) / min(norms)
    return CheckedLine(line, _answer(times < 100), f"the largest norm of a layer is {number(times, 3)} times the least")


def _stable(line: str, values: NDArray[numpy.float64], lacks: str) -> CheckedLine:
    if len(values) < _LEAST:
        return CheckedLine(line, NOT_MEASURED, lacks)
    middle = median(values)
    inside = float((numpy.abs(values - middle) <= 0.05 * abs(middle)).mean())
    return CheckedLine(line, _answer(inside >= _MOSTLY), f"{percent(inside)} of the steps are within 5% of the median")


def _memory(values: NDArray[numpy.float64]) -> CheckedLine:
    line = "Memory usage stable (70-90% VRAM)"
    if not len(values):
        return CheckedLine(line, NOT_MEASURED, "no share of the device's memory is logged")
    late = values[len(values) // 10 :]
    low, high = float(late.min()), float(late.max())
    why = f"between {percent(low)} and {percent(high)}"
    return CheckedLine(line, _answer(low >= 0.7 and high <= 0.9 and high - low <= 0.1), why)
