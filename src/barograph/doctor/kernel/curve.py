"""A loss curve as rules look at it: its smoothed course, and what other series were at that time.

In:   channels of a run.
Out:  `SmoothedCurve`, medians of the last rows in logarithms; values of another series before a step or between two.
"""

from __future__ import annotations

import math
import re
from bisect import insort
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.channels import LAYERED
from barograph.doctor.kernel.growing import Growing
from barograph.doctor.kernel.local import _fill, median, tick_starts, windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding

WIDTHS = ((64, 5), (256, 9), (1 << 62, 33))  # up to this row of a segment, median of this many rows

# Losses of players against each other, and of policies, rise and fall without saying how good the model is.
GAME = expression(
    r"(?:^|[/_. ])(?:gan|gen|generator|disc|discriminator|adv|adversarial|policy|actor|critic|value|vf|pg|ppo|grpo|dqn|"
    r"(?:net)?[dg][_ /.]?(?:total_)?loss|loss[_ /.]?(?:net)?[dg]|err[_ ]?[dg]|q_?loss|td)(?:$|[/_. ])",
    re.IGNORECASE,
)

# Beside a loss that says nothing: it is the sum of such players' losses.
PLAYERS = expression(
    r"(?:.*[^a-z])?(?:policy|actor|critic|value|vf|pg|disc|discriminator|gen|generator|(?:net)?[dg])[_ /.]"
    r"(?:gradient_|total_)?loss(?:_[dg])?|losspi|lossv|(?:.*[^a-z])?err[_ ]?[dg]|"
    r"(?:.*[^a-z])?loss[_ /.]?(?:[dg]|net[dg]|gen|generator|disc|discriminator|actor|critic|policy)",
    re.IGNORECASE,
)


# Beside a loss of values that follow their own targets: what is known of an agent alone.
EPSILON = expression(r"(?i)(?:.*[/_. ])?(?:eps|epsilon|exploration(?:[_ ]?(?:rate|eps|epsilon|prob))?)")
VALUES = expression(
    r"(?i)(?!.*(?:loss(?!es/)|std|grad|norm|err|max|lr|target))(?:.*[/_. ])?"
    r"(?:(?:mean|avg|average|current|predicted)[/_. ]?)?"
    r"qf?\d?(?:[/_. ]?(?:values?|vals?|pred|online|estimates?|[12]))?(?:[/_. ](?:mean|avg))?"
)
_WATCHED = {"model", *LAYERED}  # an epsilon that the watch tells is not an exploration rate
_AGENT = expression(
    r"(?i)(?:.*[/_. ])?(?:(?:mean|avg|average|max|min)[/_. ])?(?:ep|episode)[/_. ]?(?:len(?:gth)?s?|steps|"
    r"rew(?:ards?)?|returns?|score|duration|time)(?:[/_. ](?:mean|avg|max|min))?|"
    r"(?:.*[/_. ])?replay[/_. ]?(?:buffer|memory|size).*"
)


class Tick(NamedTuple):
    """One point of a curve. level: logarithm of the median of the last `width` rows; spread: of single rows."""

    row: int
    step: int
    level: float
    spread: float
    segment: int
    width: int
    nth: int  # the row's number within its segment
    time: int


class SmoothedCurve:
    """Medians of the last rows of a positive series, in logarithms: one for each row up to 64 of a segment, one in 4
    up to 256, one in 16 beyond. Rows that are not finite or not above 0 count as the last one before them.
    """

    def __init__(self, channel: Channel):
        self._channel = channel
        self._known = Growing((numpy.float64,), 64)
        self._known.restart(channel.start)
        self._begin, self._segment = channel.start, -1
        whole, real, short = numpy.int64, numpy.float64, numpy.int32
        self.ticks = Growing((whole, whole, real, real, short, short, whole, whole), 4096)  # as in `Tick`
        self.end = channel.start
        self._given: tuple[int, int, list[Tick]] = (-1, -1, [])

    def extend(self, history: RunHistory) -> None:
        channel = self._channel
        if channel.end == self.end:
            return
        rows = channel.rows(self.end)
        if rows.first > self.end:
            self._known.restart(rows.first)
            self._begin, self._segment = rows.first, -1
        spread = history.local(channel, log=True).rows(rows.first)[1]
        for low, high in pairwise([0, *rows.cuts, len(rows)]):
            self._extend(rows, low, high, spread)
        self.end = channel.end

    def _extend(self, rows: ChannelRows, low: int, high: int, spread: NDArray[Any]) -> None:
        segment = int(rows.segment[low])
        if segment != self._segment:
            self._segment, self._begin = segment, rows.first + low
        first, last = rows.first + low - self._begin, rows.first + high - self._begin
        before = (
            float(self._known.view(0, self._known.end - 1)[0])
            if first and self._known.end > self._known.start
            else numpy.nan
        )
        value = rows.value[low:high]
        if numpy.minimum.reduce(value) > 0:
            good = numpy.log(value)
        else:
            good = numpy.where(value > 0, numpy.log(numpy.where(value > 0, value, 1.0)), numpy.nan)
        filled = _fill(good, before)
        behind = max(self._known.start, self._known.end - 33, self._begin)
        known = numpy.concatenate([self._known.view(0, behind), filled])
        self._known.add(len(filled), filled)
        at = tick_starts(first, last)
        at = at[(at >= first) & (at < last)]
        if not len(at):
            return
        level = numpy.full(len(at), numpy.nan)
        widths = numpy.zeros(len(at), numpy.int32)
        floor = 0
        offset = behind - self._begin  # the row within the segment with which `known` begins
        for limit, width in WIDTHS:
            low_row, floor = floor, limit
            if at[-1] < low_row or at[0] >= limit:
                continue
            some = numpy.flatnonzero((at >= low_row) & (at < limit))
            widths[some] = width
            few = some[at[some] - offset < width - 1]
            for item in few:
                level[item] = median(known[: at[item] - offset + 1])
            many = some[at[some] - offset >= width - 1]
            if len(many):
                picked = windows(known, width)[at[many] - offset - width + 1]
                level[many] = numpy.partition(picked, width // 2, axis=1)[:, width // 2]
        level[~numpy.isfinite(good[at - first])] = numpy.nan  # nobody knows where the curve is
        spread = numpy.fmin(spread[at - first + low], self._restless(known, at - offset))
        place = at - first + low
        row, time = place + rows.first, rows.time[place]
        self.ticks.add(len(at), row, rows.step[place], level, spread, segment, widths, at, time)

    def _restless(self, known: NDArray[Any], at: NDArray[Any]) -> NDArray[Any]:
        """Twice the noise that neighbouring rows show, from the last 32 differences without their trend: a bound for
        the spread, which takes a bend or a steep fall of the curve for noise where a curve is young.
        """
        apart = numpy.zeros(len(known))
        numpy.subtract(known[1:], known[:-1], out=apart[1:])
        found = numpy.full(len(at), numpy.nan)
        for item in numpy.flatnonzero((at >= 12) & (at < 32)):
            found[item] = _middle(apart[None, 1 : at[item] + 1])[0]
        many = numpy.flatnonzero(at >= 32)
        if len(many):
            found[many] = _middle(windows(apart, 32)[at[many] - 31])
        return numpy.maximum(2 * 1.4826 * found / math.sqrt(2), 1e-3)

    def rows(self, first: int) -> list[Tick]:
        """Ticks from number `first` on."""
        if self._given[:2] != (first, self.ticks.end):  # rules ask one after the other, for the same
            columns = [self.ticks.view(column, first).tolist() for column in range(8)]
            self._given = (first, self.ticks.end, [Tick(*item) for item in zip(*columns, strict=True)])
        return self._given[2]


def bend(y: NDArray[Any]) -> int:
    """Where a series [n] leaves its level: the first row of the rise, by least squares over all places."""
    count = len(y)
    x = numpy.arange(count, dtype=float)
    best, place = math.inf, 0
    total = float(y @ y)
    for cut in range(2, count - 1):
        # before: its mean; behind: a second mean, or a line that begins at the first
        level = float(y[:cut].mean())
        tail = y[cut:] - level
        along = x[cut:] - (cut - 1)
        left = float(((y[:cut] - level) ** 2).sum())
        slope = float(along @ tail) / float(along @ along)
        hinge = left + float(((tail - slope * along) ** 2).sum())
        step = left + float(((tail - tail.mean()) ** 2).sum())
        error = min(hinge if slope > 0 else total, step if tail.mean() > 0 else total)
        if error < best:
            best, place = error, cut
    return place


_WAVES = 2  # rises that came back, from which on a curve is known to wander


class Waves:
    """The greatest rises of a curve that were over: two thirds of each were lost again."""

    def __init__(self) -> None:
        self._greatest: list[float] = []  # the smallest first
        self._low, self._high = math.inf, -math.inf  # the lowest and the highest point since the last

    def follow(self, level: float) -> None:
        """The curve's next point."""
        low, high = self._low, self._high
        if level > high:
            self._low, self._high = min(low, level), level
        elif high - level > 0.67 * (high - low) > 0:
            insort(self._greatest, high - low)
            del self._greatest[: len(self._greatest) - _WAVES]
            self._low = self._high = level
        elif level <= low:
            self._low = self._high = level

    @property
    def least(self) -> float:
        """What a rise must be of a curve that has wandered so; 0 where it has not."""
        return 1.25 * self._greatest[0] if len(self._greatest) == _WAVES else 0.0


def _middle(rows: NDArray[Any]) -> NDArray[Any]:
    """The median distance of each row's values [n, k] from their median."""
    half = rows.shape[1] // 2
    middle = numpy.partition(rows, half, axis=1)[:, half]
    found: NDArray[Any] = numpy.partition(numpy.abs(rows - middle[:, None]), half, axis=1)[:, half]
    return found


_ANSWERS = ("accuracy", "acc", "rewards/accuracies", "train/rewards/accuracies", "rewards_accuracies",
            "train/rewards_accuracies")  # fmt: skip
_CURVES: WeakKeyDictionary[RunHistory, dict[str, SmoothedCurve]] = WeakKeyDictionary()


def curve_of(history: RunHistory, channel: Channel) -> SmoothedCurve:
    """The curve of a channel, up to its newest row; shared by rules."""
    known = _CURVES.setdefault(history, {})
    curve = known.get(channel.name)
    if curve is None:
        curve = known[channel.name] = SmoothedCurve(channel)
    curve.extend(history)
    return curve


def before(channel: Channel | None, step: int, segment: int) -> float:
    """The last finite value of a channel at a step below `step`, of that segment, else of those before; NaN if none."""
    if channel is None:
        return float("nan")
    rows = channel.rows()
    able = (rows.step < step) & numpy.isfinite(rows.value) & (rows.time <= channel.clock.now)
    places = numpy.flatnonzero(able & (rows.segment == segment))
    if not len(places):
        places = numpy.flatnonzero(able & (rows.segment < segment))
    return float(rows.value[places[-1]]) if len(places) else float("nan")


def between(channel: Channel | None, low: int, high: int, segment: int, *, finite: bool = True) -> NDArray[Any]:
    """The values of a channel at steps `low` to `high` (not with it) of a segment; the finite ones unless told."""
    if channel is None:
        return numpy.empty(0)
    rows = channel.rows()
    here = (rows.segment == segment) & (rows.step >= low) & (rows.step < high) & (rows.time <= channel.clock.now)
    picked: NDArray[Any] = rows.value[here & numpy.isfinite(rows.value)] if finite else rows.value[here]
    return picked


def answers(history: RunHistory) -> Channel | None:
    """The accuracy that is logged beside the training's loss, also as `accuracy` alone, or of preferences."""
    names = (name for name in _ANSWERS if history.channel(name) is not None)
    return history.role("accuracy") or history.channel(next(names, ""))


def answers_changed(history: RunHistory, step: int, found: int, segment: int) -> bool:
    """Whether the training's accuracy leaves its level at a step, as it never does for another scale of the loss."""
    accuracy = answers(history)
    before, after = between(accuracy, 0, step, segment)[-32:], between(accuracy, step, found, segment)
    if len(before) < 8 or len(after) < 4:
        return False
    old, new = float(numpy.median(before)), float(numpy.median(after))
    apart = abs(new - old) > 4 * max(float(before.std()), 0.02) / math.sqrt(len(after))
    return apart and abs(new - old) > 0.2 * max(abs(old), abs(new))


def fell_at_once(channel: Channel, low: int, high: int, segment: int, old: float, new: float) -> bool:
    """Whether a loss fell from about `old` to about `new` from one row to the next, between two steps: weights move
    step by step, and what a model has seen before comes at once.
    """
    values = between(channel, low, high + 1, segment)
    middle, part = (old + new) / 2, 0.3 * (old - new)
    places = numpy.flatnonzero(values < middle)
    for at in places[places > 2][:64].tolist():
        behind = median(values[at : at + 3])
        if behind < middle:
            return median(values[at - 3 : at]) > old - part and behind < new + part
    return False


def noise_of(values: list[float], least: int = 8) -> float:
    """The standard deviation of single values around their course, in ln, by how far each lies from the middle of its
    neighbours; 0 of fewer than `least`: of fewer than eight a bend of the course is as much as the noise.
    """
    logs = [math.log(value) for value in values if value > 0]
    if len(logs) < least:
        return 0.0
    return (
        1.4826
        * median([abs(b - (a + c) / 2) for a, b, c in zip(logs[:-2], logs[1:-1], logs[2:], strict=True)])
        / math.sqrt(1.5)
    )


def queue_guess(history: RunHistory, step: int, segment: int) -> float:
    """The loss of a guess among an answer and the negatives of a queue, as far as the graph had told before a step; 0
    without a queue."""
    others = before(history.channel("model/loss_queue"), step, segment)
    return math.log1p(others) if others > 0 else 0.0


def teacher_guess(history: RunHistory, step: int, segment: int) -> float:
    """The loss of a guess among the outputs of a model that follows a network of its own make, which is asked in the
    steps and moves; 0 where there is none. The two begin alike, and are apart before they agree again."""
    width, asked, moved = (before(history.channel(f"model/{name}"), step, segment) for name in (
        "output_width", "other_asked", "other_moved"))  # fmt: skip
    return math.log(width) if width > 1 and asked == 1 and moved > 0 else 0.0


def evaluation_holds(history: RunHistory, onset: int, step: int, segment: int, rise: float = 0.0) -> bool:
    """Whether the validation loss, measured between two steps, is at most what it was before the first of them, by the
    medians of three where single evaluations are noisy.

    rise: of the training loss, in ln; an eighth of it is not a rise with it.
    """
    evaluations = history.role("eval_loss")
    if evaluations is None:
        return False
    # one at the step itself may have been measured before it or behind
    old = float(numpy.fmin(before(evaluations, onset + 1, segment), before(evaluations, onset, segment)))
    later = between(evaluations, onset + 1, step, segment)
    early = between(evaluations, 0, onset + 1, segment)
    if not len(later) or len(early) < 2 or not math.isfinite(old):  # one before anything was learnt says nothing
        return False
    noise = min(noise_of(numpy.concatenate([early, later])[-24:].tolist()), _NOISY)
    if noise < 0.005:
        return float(later[-1]) <= old + (0.01 + rise / 8) * abs(old)
    # the difference of two medians of three has about the deviation of one
    return median(later[-3:]) <= min(old, median(early[-3:])) * math.exp(2 * noise + rise / 8)


_NOISY = 0.05  # of evaluations, in ln: where they are noisier, a rise by a tenth is one all the same


_VANISHED = 1e-3  # a loss below, and a part of the first loss below which it has all but vanished


def has_vanished(history: RunHistory, finding: Finding) -> bool:
    """Whether the losses that a finding is about are next to nothing, from its step on: fitted, or distilled."""
    if finding.kind in ("nonfinite", "zero", "frozen"):
        return False
    result = False
    for role in ("loss",) if finding.kind == "update_ratio" else ("loss", "eval_loss"):  # gradients are the training's
        channel = history.role(role)
        if channel is None or channel.end < 2:
            continue
        rows = channel.rows()
        behind = max(finding.last_step, finding.step + 1)  # of its last step the loss may not have come yet
        here = (rows.segment == finding.segment) & (rows.step >= finding.step) & (rows.step < behind)
        if not here.any():
            here = rows.step == before_step(rows, finding.step)
        start = abs(channel.first)
        floor = max(_VANISHED * start, _VANISHED if start > 0.1 else 0.0)
        if not here.any() or not numpy.abs(rows.value[here]).max() < floor:
            return False
        result = True
    return result


def before_step(rows: ChannelRows, step: int) -> int:
    """The last step of rows that is not beyond a step; -1 if there is none."""
    known = rows.step[rows.step <= step]
    return int(known[-1]) if len(known) else -1


def is_game(history: RunHistory, channel: Channel) -> bool:
    """Whether the loss is one of players or policies, or their sum, whose course says little."""
    return (
        _is_player(channel.name)
        or history.role("reward") is not None
        or _has_players(history)
        or _of_agent(history, channel)
    )


@cache
def _is_player(name: str) -> bool:
    return GAME.search(name) is not None


_MOST = 4096  # rows that are asked for a sign


def goes_below_zero(channel: Channel, row: int, segment: int) -> bool:
    """Whether a loss was below 0 before a row: the log-likelihood of a density, whose ratios say nothing."""
    rows = channel.rows(max(row - _MOST, 0), row)
    return bool(((rows.value < 0) & (rows.segment == segment)).any())


_PLAYED: WeakKeyDictionary[RunHistory, tuple[int, bool]] = WeakKeyDictionary()


def _has_players(history: RunHistory) -> bool:
    """Whether two series or more are losses of players."""
    known = _PLAYED.get(history)
    if known is None or known[0] != len(history.channels):
        count = sum(PLAYERS.fullmatch(name) is not None for name in history.channels if name.count("/") < 3)
        known = _PLAYED[history] = (len(history.channels), count > 1)
    return known[1]


def _of_agent(history: RunHistory, channel: Channel) -> bool:
    """Whether a loss is that of an agent: its rows are episodes without an accuracy, or beside it there are values of
    actions, lengths of episodes, or an exploration rate that falls.
    """
    if history.facts.get("counts", {}).get(channel.name) == "episode" and answers(history) is None:
        return True
    names = _NAMED.get(history)
    if names is None or names[0] != len(history.channels):
        few = [name for name in history.channels if name.count("/") < 3 and name.partition("/")[0] not in _WATCHED]
        agent = any(_AGENT.fullmatch(name) or VALUES.fullmatch(name) for name in few)
        names = _NAMED[history] = len(history.channels), agent, [name for name in few if EPSILON.fullmatch(name)]
    return names[1] or any(_falls_from_one(history.channels[name]) for name in names[2])


def _falls_from_one(channel: Channel) -> bool:
    """Whether a series is a share that is lower now than it was at first."""
    rows = channel.rows()
    known = rows.value[rows.time <= channel.clock.now]
    return bool(len(known) > 1 and 0 <= known[-1] < channel.first <= 1)


_NAMED: WeakKeyDictionary[RunHistory, tuple[int, bool, list[str]]] = WeakKeyDictionary()


def again(finding: Finding) -> Finding:
    """A finding as it is now; the rule may go on to change its own."""
    return msgspec.structs.replace(
        finding, evidence=dict(finding.evidence), causes=list(finding.causes), remedies=list(finding.remedies)
    )


def rounded(value: float, digits: int = 4) -> float:
    """A number for evidence, rounded to this many digits."""
    return float(f"{value:.{digits}g}")


def is_logarithm(value: float) -> bool:
    """Whether a scale is the logarithm of a number that somebody has written, and is not written so itself."""

    numbers = [math.exp(value), math.exp(-value), value, 1 / value] if 1 < value < 7 else []
    written = [abs(one / float(f"{one:.3g}") - 1) < _WRITTEN for one in numbers]
    return any(written[:2]) and not any(written[2:])


_WRITTEN = 1e-6  # off a number with three figures
