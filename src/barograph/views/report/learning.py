"""How the training learnt: schedule, losses together, gradients; in the order in which they explain each other.

In:   the subject of a report.
Out:  sections.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from barograph.core.columns import smooth
from barograph.query.stored import Series
from barograph.views.report import figures
from barograph.views.report.content import Block, Chart, ReportLine, Section, Sentence, line, say, section
from barograph.views.report.spread import Spread, spread
from barograph.views.report.subject import NORMS, RATES, Subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_MULTIPLIER = re.compile(r"(?:^|[/_])(?:lrm|lr_multiplier)$")
_SMOOTHED = 60  # points, from which on a smoothed line says more than the values
_WINDOW = 0.02  # of a series' points, and no fewer than ten: what a smoothed line is a mean over
_WIDEST = 1_000.0  # points: a longer mean would lag behind the loss where it falls fastest
_NOISE = 2.0  # standard errors: less than these is not a change
_WIDENED = 0.05  # of the loss: a gap to the evaluation that grows by less is not worth a word
_MANY_TIMES = 10.0  # the median: what a gradient norm is called a spike from
_SPANNING = 30.0  # largest over smallest, from which an axis opens logarithmic


def of_series(
    read: Callable[[str], Series], name: str, *, smoothed: bool = False, dots: bool = False, label: str = ""
) -> list[ReportLine]:
    """A series as the lines that show it: as logged, and smoothed over it where that says more."""
    series = read(name)
    few = len(series) <= 40
    if not smoothed or len(series) < _SMOOTHED:
        return [line(name, series.step, series.value, label=label, look="dots" if dots or few else "line")]
    factor = 1 - 2 / (min(_WIDEST, max(10.0, _WINDOW * len(series))) + 1)
    drawn = smooth(series.value, factor)
    return [
        line(name, series.step, series.value, label=f"{label or name}, as logged", look="faint"),
        line(name, series.step, drawn, label=f"{label or name}, smoothed"),
    ]


def schedule(subject: Subject) -> Section | None:
    """The learning rate: what a loss is to be read against."""
    name = subject.first_of(RATES)
    if name is None:
        return section("schedule", "Learning rate", [say("No learning rate is recorded.", "dim")])
    found = spread(name, subject.series(name))
    assert found is not None
    said = list(_finite(found))
    if found.few:
        peak, step = found.at(found.high, found.high_step), found.step(found.high_step)
        what = figures.word("multiplier of the learning rate" if _MULTIPLIER.search(name) else "learning rate", name)
        if found.high == found.low:
            said.append(say("The {what} was {peak} throughout.", what=what, peak=peak))
        elif found.value[-1] == found.high and not found.odd:
            began = found.at(float(found.value[0]))
            said.append(say("The {what} rose from {began} to {peak}, its highest, where the run ends.",
                            what=what, began=began, peak=peak))  # fmt: skip
        else:
            ended = found.at(float(found.value[-1]))
            said.append(say("The {what} was highest, {peak}, at step {step}, and {ended} at the end.", what=what,
                            peak=peak, step=step, ended=ended))  # fmt: skip
            warm = _warm_up(found)
            if warm is not None:
                said.append(say("It rose over the first {warm}.", warm=figures.count(warm, name, "step")))
    chart = Chart(
        "learning-rate",
        "Multiplier of the learning rate" if _MULTIPLIER.search(name) else "Learning rate",
        tuple(of_series(subject.series, name)),
        families=("optimizer",),
    )
    return section("schedule", "Learning rate", [*said, chart])


def _warm_up(found: Spread) -> int | None:
    """Steps over which the rate rose without a break from its first value to its highest."""
    top = int(found.value.argmax())
    if top < 2 or bool((np.diff(found.value[: top + 1]) < 0).any()) or found.odd:
        return None
    return int(found.series.step[top] - found.series.step[0])


# -- losses -----------------------------------------------------------------------------------------------


def loss(subject: Subject) -> Section | None:
    """Training and evaluation loss together."""
    name = subject.loss
    told = subject.member.told.evaluations
    losses = (name for name in subject.evaluations if name in told or (subject.member.way(name) < 0 and "loss" in name))
    evaluation = next(losses, None)
    if name is None and evaluation is None:
        return section("loss", "Loss", [say("No loss is recorded.", "dim")])
    sentences: list[Sentence] = []
    lines: list[ReportLine] = []
    trained = spread(name, subject.series(name)) if name is not None else None
    held = spread(evaluation, subject.series(evaluation)) if evaluation is not None else None
    if name is not None and trained is not None:
        lines += of_series(subject.series, name, smoothed=True, label="training loss")
        sentences += list(_of_training(trained))
    if evaluation is not None and held is not None:
        lines += of_series(subject.series, evaluation, dots=len(held.series) <= 200, label="evaluation loss")
        sentences += list(_of_evaluation(held))
    if trained is not None and held is not None:
        sentences += list(_gap(trained, held))
    chart = Chart("loss", "Loss", tuple(lines), families=("loss", "eval", "optimizer", "data"),
                  log=_spans([trained, held]))  # fmt: skip
    return section("loss", "Loss", [*sentences, chart])


def _spans(spreads: list[Spread | None]) -> bool:
    low = min((item.low for item in spreads if item is not None and item.few), default=0.0)
    high = max((item.high for item in spreads if item is not None and item.few), default=0.0)
    return low > 0 and high / low > _SPANNING


def _of_training(found: Spread) -> Iterator[Sentence]:
    yield from _finite(found)
    if not found.few:
        return
    if len(found.value) < 2:
        yield say("The training loss has one value, {value}.", value=found.at(found.end))
        return
    over = figures.count(found.few, f"a twentieth of the points of {found.name}", "point")
    begin, end = found.at(found.begin), found.at(found.end)
    fell = found.end < found.begin
    way = figures.word("fell" if fell else "rose" if found.end > found.begin else "stayed", found.name)
    until = found.finite_until
    words = "The training loss {way} from {begin} to {end} (means over the first and last {over})"
    if found.few == 1:
        words = "The training loss {way} from {begin}, its first value, to {end}, its last"
    if until is not None and found.few > 1:
        words = "While it was finite, up to step {until}, it {way} from {begin} to {end} (means over its first and "
        words += "last {over})"
    known = {"way": way, "begin": begin, "end": end, "over": over}
    known |= {"until": found.step(until)} if until is not None else {}
    if found.begin:
        words += ", by {change}"
        known["change"] = figures.percent(abs(found.end - found.begin) / abs(found.begin), found.name)
    yield say(words + ".", "" if fell else "warn", **known)
    yield say("Its lowest single value was {low}, at step {low_step}; its highest {high}, at step {high_step}.",
              low=found.at(found.low, found.low_step), low_step=found.step(found.low_step),
              high=found.at(found.high, found.high_step), high_step=found.step(found.high_step))  # fmt: skip
    if until is None:
        yield from _still_falling(found)


def _still_falling(found: Spread) -> Iterator[Sentence]:
    """The last tenth against the tenth before, and whether its noise explains the difference."""
    before, last = found.means(0.8, 0.9), found.means(0.9, 1.0)
    if before is None or last is None:
        return
    change = last[0] - before[0]
    noise = math.hypot(last[1], before[1])
    size = figures.number(abs(change), f"{found.name}: last tenth and the tenth before")
    error = figures.number(noise, f"{found.name}: standard error of the difference, from means of blocks")
    if abs(change) <= _NOISE * noise:
        yield say("Over its last tenth it no longer changed by more than its noise ({size} against a standard error "
                  "of {error}).", size=size, error=error)  # fmt: skip
    elif change < 0:
        yield say("It was still falling at the end: over its last tenth by {size} against the tenth before "
                  "(standard error {error}).", size=size, error=error)  # fmt: skip
    else:
        yield say("It was rising at the end: over its last tenth by {size} against the tenth before "
                  "(standard error {error}).", "warn", size=size, error=error)  # fmt: skip


def _of_evaluation(found: Spread) -> Iterator[Sentence]:
    yield from _finite(found)
    if not found.few:
        return
    number = figures.count(found.points, found.name, "value" if found.finite_until is not None else "time")
    last = figures.number(float(found.value[-1]), f"{found.name}, its last value")
    if len(found.value) < 2:
        yield say("It was evaluated {number}: the loss was {last}.", number=number, last=last)
        return
    low, step = found.at(found.low, found.low_step), found.step(found.low_step)
    if found.finite_until is not None:
        yield say("Of its {number} the lowest was {low}, at step {step}.", number=number, low=low, step=step)
    elif found.value[-1] <= found.low:
        yield say("The evaluation loss was measured {number} and lowest at its end, {last} at step {step}.",
                  number=number, last=last, step=step)  # fmt: skip
    else:
        rise = figures.number(float(found.value[-1]) - found.low, found.name)
        yield say("The evaluation loss was measured {number}; it was lowest, {low}, at step {step} and ended {rise} "
                  "above that, at {last}.", number=number, low=low, step=step, rise=rise, last=last)  # fmt: skip


def _gap(trained: Spread, held: Spread) -> Iterator[Sentence]:
    """Evaluation less training, at the end and half-way: what overfitting looks like."""
    if len(held.value) < 4 or len(trained.value) < 20 or held.finite_until is not None:
        return
    good = np.isfinite(held.series.value)
    steps, values = held.series.step[good], held.series.value[good]
    finite = np.isfinite(trained.series.value)
    own_steps, own = trained.series.step[finite], trained.series.value[finite]
    near = max(3, len(own) // 50)

    def at(place: int) -> float:
        middle = int(np.searchsorted(own_steps, steps[place]))
        low = max(0, min(middle - near // 2, len(own) - near))
        return float(values[place]) - float(own[low : low + near].mean())

    end, half = at(len(values) - 1), at(len(values) // 2)
    source = f"{held.name} - mean of {trained.name} around it"
    place = figures.count(int(steps[len(values) // 2]), "step")
    known = {
        "gap": figures.number(abs(end), source),
        "side": figures.word("above" if end >= 0 else "below", source),
        "before": figures.number(abs(half), source),
        "other": figures.word("above" if half >= 0 else "below", source),
        "place": place,
    }
    if end > 0 and end - half > _WIDENED * abs(float(values[-1])):
        yield say("The evaluation loss is {gap} {side} the training loss at the end, and was {before} {other} it at "
                  "step {place}: the gap widens.", "warn", **known)  # fmt: skip
    else:
        yield say("At the end the evaluation loss lies {gap} {side} the training loss around it; at step {place} it "
                  "lay {before} {other} it.", **known)  # fmt: skip


def _finite(found: Spread) -> Iterator[Sentence]:
    """What was not finite."""
    name = figures.word(found.name, "series")
    if found.odd and not found.few:
        points = figures.count(found.points, found.name, "point")
        yield say("{name} was never finite in {points}.", "bad",
                  name=name, points=points)  # fmt: skip
    elif found.odd:
        odd, points = figures.count(found.odd, found.name), figures.count(found.points, found.name, "value")
        first = found.step(found.odd_step or 0)
        if found.finite_until is not None:
            last = found.finite_until or 0
            yield say("{odd} of the {points} of {name} are not finite, the first at step {first}, and none is after "
                      "step {last}.", "bad", odd=odd, points=points, name=name, first=first,
                      last=found.step(last))  # fmt: skip
        else:
            yield say("{odd} of the {points} of {name} are not finite, the first at step {first}.", "warn",
                      odd=odd, points=points, name=name, first=first)  # fmt: skip


# -- gradients --------------------------------------------------------------------------------------------


def gradients(subject: Subject) -> Section | None:
    """The gradient norm, and how often it was clipped."""
    name = subject.first_of(NORMS)
    if name is None:
        return section("gradients", "Gradient norm", [say("No gradient norm is recorded.", "dim")])
    found = spread(name, subject.series(name))
    assert found is not None
    blocks: list[Block | None] = list(_finite(found))
    if found.few:
        median = found.at(found.median)
        high, step = found.at(found.high, found.high_step), found.step(found.high_step)
        if found.median > 0 and found.high > _MANY_TIMES * found.median:
            times = figures.number(found.high / found.median, f"{name}: largest / median")
            blocks.append(say("The gradient norm is {median} in the median, and {times} times that at its largest: "
                            "{high} at step {step}.", median=median, times=times, high=high, step=step))  # fmt: skip
        else:
            blocks.append(say("The gradient norm is {median} in the median, {high} at its largest, at step {step}.",
                            median=median, high=high, step=step))  # fmt: skip
        if len(found.value) >= 40:
            early = float(np.median(found.value[len(found.value) // 10 : len(found.value) // 5]))
            late = float(np.median(found.value[-len(found.value) // 10 :]))
            blocks.append(say("Its median was {early} over the second tenth of the run and {late} over the last.",
                            early=figures.number(early, name), late=figures.number(late, name)))  # fmt: skip
    clip = subject.first_of(("model/clip_coefficient", "train/clip_coefficient"))
    if clip is not None:
        values = subject.series(clip).value
        values = values[np.isfinite(values)]
        if len(values):
            share = figures.percent(float((values < 1.0).mean()), f"{clip} below 1")
            points = figures.count(len(values), clip, "step")
            blocks.append(say("{share} of the {points} at which clipping was recorded were clipped.",
                            share=share, points=points))  # fmt: skip
    chart = Chart("gradient-norm", "Gradient norm", tuple(of_series(subject.series, name, smoothed=True)),
                  families=("gradient", "optimizer"), log=_spans([found]))  # fmt: skip
    blocks.append(chart)
    weights = subject.first_of(("model/param_norm", "train/param_norm", "param_norm"))
    if weights is not None:
        blocks.append(Chart("parameter-norm", "Norm of the parameters", tuple(of_series(subject.series, weights)),
                          families=("model",), small=True))  # fmt: skip
    return section("gradients", "Gradient norm", blocks)
