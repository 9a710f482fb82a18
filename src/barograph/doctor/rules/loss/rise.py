"""A rise of the loss: where it starts, what explains it, whether it was a leap, and what is none.

In:   the series of the loss, points of its smoothed curve, and beside it evaluation and learning rate.
Out:  what `Divergence` asks of a rise that it has seen.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.channels import Channel, RunHistory
from barograph.doctor.kernel.cursor import exp
from barograph.doctor.kernel.curve import Tick, before, bend, between, evaluation_holds, queue_guess, teacher_guess
from barograph.doctor.kernel.local import median
from barograph.doctor.rules.rl.reference import reference_moved

SHORT = 64  # rows of a run whose last ones are looked at one by one
_GUESSES = 0.1  # of what was learnt: that near to the start a loss is a guess's
_TERM = expression(r"(?i)loss|recon|nll|(?:^|[/_.])(?:ce|bce|mse|mae|l1|xent|task)(?:$|[/_.])")
_ELSEWHERE = expression(  # no term of a step's own loss
    r"(?i)(?:^|[/_.])(?:eval(?:uation)?|val(?:id(?:ation)?)?|dev|test|ema|smooth\w*|avg|mean)(?:$|[/_.])"
)
_ROWS, _NEARLY_ALL, _FELL = 8, 0.8, 0.97  # of the loss, and of what the term was before
_TURNS = 4  # rows of which no more can be said than that they rise
_AS_AT_FIRST, _BEGIN = 1.02, 4  # times a preference's loss of the first rows
_DOWN = 0.1  # of the rows: 1.75 deviations of noise leave one in 25 as low as before
_LATEST = 8  # rows of a score
_BETWEEN = 10  # steps between rows, from which on what is added up between them is of another size than a step's
_MOST_MORE, _LEAST_MORE = 1.1, 0.05  # than the row before added, and of the first row: what a row of a sum adds
_SUM_ROWS, _SUM_TIMES = 6, 3.0  # rows, and times the first row, from which on a sum is known
_FEWEST_MEANS, _MEANS = 24, 192  # rows of means, of which single losses are worked out
_AS_MUCH, _BELOW = 1.5, 0.25  # times such losses, and of their mean, by which a rounded mean may be off
_CHANCE, _VARY = 2.5, 0.15  # deviations of two medians' difference; the least deviation, in ln
_MOST = 2.0  # a deviation of single steps, in ln
_SETTLED = 1.3  # times the later half of the means
_BEHIND = 8  # times the rows until the lowest one
_FAR, _FEW_SINGLE, _FARTHEST = 3.5, 24, 5.0  # deviations of the highest of few such losses, and of more
_SCORED = expression(r"(?i)(?:.*[_/. ])?(?:scores?|f(?:_?1)?(?:[-_]?score)?|[ul]as|acc(?:uracy)?|map|bleu|iou|dice)")


def but_for_first(channel: Channel, tick: Tick, rise: float, least: float) -> bool:
    """Whether a loss that has not doubled has stood still since its second row: a mean's first rows may be low."""
    values = channel.rows(max(tick.row - tick.nth, 0), tick.row + 1).value[1:]
    return bool(rise < math.log(2) and values.min() > 0 and values.max() < values.min() * exp(least))


def adds_up_since_first(history: RunHistory, channel: Channel, tick: Tick) -> bool:
    """Whether the first row is step 0's and of one step, and the others add up the steps between two rows.

    The loss leaps at the second row, by twice as many times as there are steps at most, and has not risen since; a
    score has. Of a loss that explodes at the first steps no score gets better.
    """
    begin = max(tick.row - tick.nth, 0)
    rows = channel.rows(begin, min(tick.row + 1, begin + _MEANS))
    values, steps = rows.value, rows.step
    if len(values) < SHORT // 8 or steps[0] > 1 or steps[1] - steps[0] < _BETWEEN or not values.min() > 0:
        return False
    leap, since = values[1] / values[0], float(numpy.median(values[1:4]))
    if not (
        2.0 < leap <= 2 * (steps[1] - steps[0]) and values[0] < values[1:].min() and exp(tick.level) <= 1.1 * since
    ):
        return False
    for name, score in history.channels.items():
        if score is not channel and _SCORED.fullmatch(name):
            beside = between(score, 0, tick.step + 1, tick.segment)
            if len(beside) >= len(values) // 2 and median(beside[-_LATEST:]) > 1.05 * float(beside[0]) >= 0:
                return True
    return False


def early_noise(channel: Channel, tick: Tick) -> float:
    """The deviation of single rows, in ln, where there are too few for the curve's own: of their steps up and down. A
    curve that has one way to go has none of it."""
    values = channel.rows(max(tick.row - tick.nth, 0), tick.row + 1).value
    values = values[numpy.isfinite(values) & (values > 0)]
    steps = numpy.diff(numpy.log(values)) if len(values) > _TURNS else numpy.zeros(0)
    turns = numpy.minimum(abs(steps[1:]), abs(steps[:-1]))[steps[1:] * steps[:-1] < 0]
    return median(turns) / math.sqrt(2) if 2 * len(turns) >= len(steps) - 1 > 0 else 0.0


def is_none(history: RunHistory, channel: Channel, above: Tick, tick: Tick, best: Tick, single: bool) -> bool:
    """Whether rows are down at the lowest point of the curve as ever, for of a loss that has left it hardly any is; or
    whether the first rows are other numbers than those behind: one step's, or means of few. single: that point is of
    single rows, not of a mean of many."""
    rows = channel.rows(above.row, tick.row + 1)
    values = rows.value[(rows.segment == tick.segment) & numpy.isfinite(rows.value)]
    down = single and numpy.count_nonzero(values <= exp(best.level)) > _DOWN * len(values)
    return bool(down) or adds_up_since_first(history, channel, tick) or is_mean_of_few(channel, tick, best)


def is_mean_of_few(channel: Channel, tick: Tick, best: Tick) -> bool:
    """Whether rows are means of all steps so far, of which the first ones are low by chance: the single losses that
    they would be means of vary, are all above 0, do not rise, and the loss now is not above their average.

    A mean of k steps moves by a kth of one. Rows that are no such means, and vary, would have losses below 0, in eight
    times the rows that there were until the lowest at the latest.
    """
    begin = max(tick.row - tick.nth, 0)
    rows = channel.rows(begin, min(tick.row, begin + max(_MEANS, _BEHIND * best.nth)) + 1)
    apart = max(len(rows) // _MEANS, 1)
    value, step = rows.value[::apart], rows.step[::apart].astype(float)
    if len(value) < _FEWEST_MEANS or not (numpy.diff(step) > 0).all() or not (value > 0).all():
        return False
    step += max(step[1] - step[0] - step[0], 0.0) if step[0] == 0 else 0.0
    if step[0] > 2 * (step[1] - step[0]):
        return False
    single = numpy.diff(step * value) / numpy.diff(step)
    low, level = min(max(best.nth // apart, 3), len(single) - 3), float(numpy.mean(single))
    settled = _SETTLED * median(value[len(value) // 2 :])
    if not (single.min() > -_BELOW * level and exp(tick.level) <= min(_AS_MUCH * level, settled)):
        return False
    height = numpy.log(numpy.maximum(single, 1e-3 * level))
    moves = numpy.diff(height)
    if 2 * numpy.count_nonzero(moves[1:] * moves[:-1] < 0) < len(moves) - 1:  # of losses that vary, two of three turn
        return False
    early, late = median(height[:low]), median(height[low:])
    spread = 1.4826 * median(abs(height - median(height)))
    if spread * math.sqrt(median(numpy.diff(step))) > _MOST:
        return False  # a mean of that number of steps varies less
    if height.max() > median(height) + (_FAR if len(single) < _FEW_SINGLE else _FARTHEST) * spread:
        return False  # a leap: as a mean, it would have one loss far above all others
    chance = _CHANCE * spread * 1.2533 * math.sqrt(1 / low + 1 / (len(single) - low))
    return bool(spread > _VARY and late - early <= chance)


def onset_of(channel: Channel, best: Tick, tick: Tick) -> int:
    """The step at which the rise starts: where the best fit of a level, then a line or a second level, bends."""
    rows = channel.rows(max(best.row - max(best.width, 16), tick.row - 4096), tick.row + 1)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        height = numpy.log(numpy.maximum(rows.value, 1e-300))
    known = numpy.flatnonzero(numpy.isfinite(height) & (rows.segment == tick.segment))
    if len(known) < 6:
        return best.step
    known = known[:: max(1, len(known) // 384)]
    falling = height[known] > best.level + 0.25 * (tick.level - best.level)  # the way down is not the level
    known = known[int(numpy.argmin(falling)) :] if len(known) - numpy.argmin(falling) >= 6 else known
    y = numpy.clip(height[known], *numpy.percentile(height[known], [2, 98]))
    return int(rows.step[known[min(bend(y), len(known) - 1)]])


def excuse_of(history: RunHistory, best: Tick, onset: int, tick: Tick, share: float) -> str:
    if evaluation_holds(history, onset, tick.step, tick.segment, tick.level - best.level):
        return "the validation loss did not rise with it"
    if best.nth <= SHORT and exp(tick.level) < queue_guess(history, tick.step, tick.segment):
        return "it is below a guess's, and the queue that it has its negatives from was filled meanwhile"
    if best.nth <= SHORT and exp(tick.level) < teacher_guess(history, tick.step, tick.segment):
        return "it is below a guess's, and the network that its targets come from moves with the model"
    if _falls_back(history, best, tick):
        return "the reference of the preference moved meanwhile, and it is as where both were one, or lower"
    loss = history.role("loss")
    if loss is not None and is_mean_of_few(loss, tick, best):
        return "its rows are means of all steps so far, the first ones of few"
    if is_running_sum(history, tick):
        return "each row adds no more than the one before, the first one too: it is the sum of all rows so far"
    if main := falling_term(history, min(onset, best.step + 1), tick.step, tick.segment):
        return f"another term of it did: {main}, which it was nearly all of, has fallen"
    rate = history.role("lr")
    if rate is not None and share < 0.9:
        rates = between(rate, 0, tick.step + 1, tick.segment)
        low = before(rate, best.step + 1, tick.segment)
        early = between(rate, 0, best.step + 1, tick.segment)
        if len(rates) and len(early) and low < rates[-1] <= 1.05 * early.max() and rates[-1] > 1.2 * low:
            return "the learning rate is warmed up again"
    return ""


def is_running_sum(history: RunHistory, tick: Tick) -> bool:
    """Whether the loss is never set back to 0: every row adds something to it, the first one as well, and none more
    than the one before. What diverges grows by more each time, or comes to stand."""
    loss = history.role("loss")
    rows = loss.rows() if loss is not None else None
    if rows is None or rows.first:
        return False
    values = rows.value[(rows.segment == tick.segment) & (rows.step <= tick.step)]
    if len(values) < _SUM_ROWS or not (values > 0).all() or values[-1] < _SUM_TIMES * values[0]:
        return False
    added = numpy.diff(values, prepend=0.0)
    return bool((added[1:] <= _MOST_MORE * added[:-1]).all() and added.min() >= _LEAST_MORE * added[0])


def _falls_back(history: RunHistory, best: Tick, tick: Tick) -> bool:
    """Whether a preference's reference was set anew within a rise, and the loss is as at the beginning, or lower,
    where reference and policy were one and margins 0."""
    loss = history.role("loss")
    if loss is None or loss.start or not loss.end or not reference_moved(history, best.step, tick.step, tick.segment):
        return False
    return exp(tick.level) <= _AS_AT_FIRST * median(loss.rows(0, _BEGIN).value)


def falling_term(history: RunHistory, onset: int, last: int, segment: int, whole: int | None = None) -> str:
    """The logged term that was nearly all of the loss before a rise, where that has fallen since: what rises is added
    to it. Of a rise that begins with the first rows these are what was before: a codebook's term, say, is small until
    what it is compared with has grown. It may be more than the loss where another logged one makes up for it. whole:
    the step at which it was nearly all, if that is an earlier one."""
    loss = history.role("loss")
    rows = loss.rows() if loss is not None else None
    if rows is None or loss is None or rows.first:
        return ""
    here = (rows.segment == segment) & (rows.step <= last)
    step, time, value = rows.step[here], rows.time[here], rows.value[here]
    at = int(numpy.searchsorted(step, onset))
    at = max(at, min(_ROWS, len(step)))
    began = at if whole is None else max(int(numpy.searchsorted(step, whole)), min(_ROWS, len(step)))
    then, first = slice(at - _ROWS, at), slice(began - _ROWS, began)
    if len(step) - at < _ROWS:
        return ""
    for name, channel in sorted(history.channels.items()):
        if channel is loss or not _TERM.search(name) or _ELSEWHERE.search(name):
            continue
        part = _until(channel, segment, last, time[-1])
        if len(part) != len(value) or not (part > 0).all():
            continue
        if not (part <= 1.001 * value).all() and not _makes_up(history, value - part, segment, last, time[-1]):
            continue
        nearly_all = numpy.median(part[first]) >= _NEARLY_ALL * numpy.median(value[first])
        if nearly_all and numpy.median(part[-_ROWS:]) <= _FELL * numpy.median(part[then]):
            return name
    return ""


def _until(channel: Channel, segment: int, last: int, time: int) -> Any:
    rows = channel.rows()
    return rows.value[(rows.segment == segment) & (rows.step <= last) & (rows.time <= time)]


def _makes_up(history: RunHistory, rest: Any, segment: int, last: int, time: int) -> bool:
    """Whether a logged series is what a term and the loss differ by, row by row."""
    for name, channel in history.channels.items():
        if name.count("/") > 1 or name.startswith("model/") or channel.end < len(rest):
            continue
        some = _until(channel, segment, last, time)
        if len(some) == len(rest) and numpy.allclose(some, rest, rtol=1e-4, atol=1e-5 * float(rest.std())):
            return True
    return False


def leap_of(channel: Channel, rate: Channel | None, onset: int, tick: Tick, start: float) -> str:
    """Whether the loss leapt from one row to the next, and "stays" there or "returns": weights move step by step,
    data and labels don't. Where it began does not count as a return: there a model guesses, and learns nothing new.
    """
    rows = channel.rows(max(tick.row - 4096, 0), tick.row + 1)
    here = (rows.segment == tick.segment) & numpy.isfinite(rows.value) & (rows.value > 0)
    earlier, later = rows.value[here & (rows.step < onset)][-8:], rows.value[here & (rows.step >= onset)]
    raised = before(rate, onset + 1, tick.segment) > 1.2 * before(rate, onset - 1, tick.segment)
    if len(earlier) < 8 or len(later) < 6 or raised:
        return ""
    low, first, middle, last = (median(numpy.log(some)) for some in (earlier, later[:3], later, later[-8:]))
    if not first - low > 0.7 * (middle - low) > 0:
        return ""
    back = last < first - 0.3 * (first - low) and last < start - _GUESSES * (start - low)
    return "returns" if back else "stays"
