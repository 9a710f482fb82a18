"""An evaluation's logged loss that is not the mean of the cross-entropies that the evaluation computes.

In:   what the watch saw these come to, and evaluation losses as they are logged.
Out:  findings of `EvaluationMultiplied`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from barograph.core.patterns import expression
from barograph.core.plain_names import plain_name
from barograph.core.roles import RECORDED, is_of_wholes, plays
from barograph.doctor.kernel.cursor import logged_at, summed_by_choice, usual
from barograph.doctor.kernel.curve import is_game, rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, of_look

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_OTHER_UNIT = expression(r"(?i)(?<![a-z])(?:bits?|bp[bcdw]|ppl|perplexit\w*|sum|summed|per)(?![a-z])")
_RANKS, _EACH = "ranks", "targets of a batch"
_RECENT = 4  # losses of the training that are compared


class _Seen(NamedTuple):
    """What an evaluation computed: `evaluated_loss` and the like, as the watch records them."""

    loss: float
    even: float
    least: float
    most: float
    targets: float
    calls: float


class _Point(NamedTuple):
    """An evaluation. by: what its loss is multiplied by, in words; times: that number."""

    place: Place
    by: str
    times: float
    ratio: float
    value: float
    seen: _Seen


class EvaluationMultiplied(WatchRule):
    """The logged evaluation loss is a multiple, or a part, of the mean of what the evaluation computes.

    Behind the passes of an evaluation the watch sees torch's cross-entropies, one behind each, and what they return
    (`model/evaluated_loss`, the mean over targets, and `model/evaluated_loss_even`, over calls). In three evaluations
    in a row the logged loss is one number of times that mean, and this is: the number of ranks; the number of calls,
    three or more; both together; the targets of a call, or of them all; or one over any of these. So it is where
    losses are added up over ranks or batches and not divided, or divided twice. Each rank computes the loss of its own
    share of the examples alone, so of several ranks it may be 17% off, else 3%. The mean itself changes meanwhile by
    5% at least, and the number of times by a fifth of that at most: a further term would not go with it. The logged
    loss is above the greatest of the calls, or below the least: it is not that of some of them. And it is apart from
    the training's as far as half of that number of times lets expect, 1.3 times at least: sums on both sides, and
    losses that have several parts, are so on purpose.

    Nothing is said where another loss that is logged with it is the mean, nor of a perplexity or of bits, nor where its
    name says that it is a sum, or is of whole sentences, or the configuration says that losses are summed. Evaluations
    of which not all passes were seen, or with weights, smoothed labels, or several losses a pass, say nothing either.

    What to do: divide by what is added up: the number of ranks behind `all_reduce`, or of batches, once.
    """

    name, family, kind, severity = "evaluation_multiplied", "eval", "config", "warning"
    proves = "evaluation"
    series = "model/evaluated_loss"
    needs = ("=model/evaluated_loss", "eval_loss", "loss")
    least = 3
    about = "The logged evaluation loss is a multiple of the mean of what the evaluation computes."
    thresholds: ClassVar = {
        "evaluations": (3.0, "in a row; ours"),
        "near": (0.03, "of the number of times, in ln; ours"),
        "share": (0.16, "of it, where each rank has its own examples, in ln; ours"),
        "changes": (0.05, "of the mean, in ln, among these evaluations, at least; ours"),
        "along": (0.2, "of that change, by which the number of times changes at most; ours"),
        "steady": (0.12, "in ln, by which it changes at most; ours"),
        "calls": (3.0, "of an evaluation, whose number counts; ours"),
        "targets": (4.0, "of a call, or of all, whose number counts; ours"),
        "apart": (1.3, "times the training's loss, or one part of as many; ours"),
    }
    causes = ("evaluation loss summed: it is not divided by what it is added up over",)
    remedies = ("divide once by what is added up: the number of ranks behind `all_reduce`, of batches, or of targets",)

    def begin(self) -> None:
        self._points: list[_Point] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("loss_even", "loss_least", "loss_most", "targets", "losses")
        seen = _Seen(value, *(of_look(history, f"evaluated_{name}", place) for name in names))
        channel, loss = history.role("eval_loss"), history.role("loss")
        logged = logged_at(channel, place) if channel is not None else math.nan
        whole = logged > 0 and all(0 < one < math.inf for one in seen)
        point = self._point(history, seen, logged, place) if whole else None
        if channel is None or point is None or loss is None or self._is_other(history, channel, seen, place):
            self._points = []
            return
        if self._points and self._points[-1].by != point.by:
            self._points = []
        self._points.append(point)
        for count in range(int(self.at["evaluations"]), len(self._points) + 1):
            some = self._points[-count:]
            if self._goes_along(some) and not is_game(history, loss) and self.first(place[2]):
                yield self._found(some, channel.name)

    def _point(self, history: RunHistory, seen: _Seen, logged: float, place: Place) -> _Point | None:
        """What the logged loss is, of the mean; None of the mean itself, and of what no number explains."""
        world = float(history.facts.get("world_size") or 1)
        near = self.at["share"] if world > 1 else self.at["near"]
        known = [math.log(logged) - math.log(one) for one in (seen.loss, seen.even)]
        others = (math.log(logged) - seen.loss, math.log(logged) - math.log(seen.loss) + math.log(math.log(2)))
        if any(abs(one) < near for one in (*known, *others)):
            return None  # the mean, the perplexity, or bits
        train = usual(history.role("loss"), *place, _RECENT)
        for by, times in self._numbers(seen, world):
            fits = any(abs(one - math.log(times)) < near for one in known)
            beyond = logged > seen.most if times > 1 else logged < seen.least
            apart = logged / train if times > 1 else train / logged
            if fits and beyond and apart >= max(self.at["apart"], max(times, 1 / times) / 2):
                return _Point(place, by, times, logged / seen.even, logged, seen)
        return None

    def _numbers(self, seen: _Seen, world: float) -> Iterator[tuple[str, float]]:
        """Numbers that a loss may be multiplied by, and what they are of."""
        each = seen.targets / seen.calls
        counts = (
            (_RANKS, world, 2.0),
            ("batches", seen.calls, self.at["calls"]),
            ("batches of all ranks", seen.calls * world, self.at["calls"] * 2 if world > 1 else math.inf),
            (_EACH, each, self.at["targets"] if seen.calls > 1 else math.inf),
            ("targets", seen.targets, self.at["targets"]),
        )
        for by, count, least in counts:
            if count >= least:
                yield by, count
                yield by, 1 / count

    def _is_other(self, history: RunHistory, channel: Channel, seen: _Seen, place: Place) -> bool:
        """Whether the loss is of another kind on purpose, or the mean is logged beside it."""
        name = plain_name(channel.name)
        if _OTHER_UNIT.search(name) or is_of_wholes(channel.name) or summed_by_choice(history):
            return True
        near = self.at["share"] if float(history.facts.get("world_size") or 1) > 1 else self.at["near"]
        for other, one in history.channels.items():
            if one is not channel and not other.startswith(RECORDED) and plays("eval_loss", other):
                value = logged_at(one, place)
                means = (seen.loss, seen.even)
                if value > 0 and any(abs(math.log(value) - math.log(mean)) < near for mean in means):
                    return True
        return False

    def _goes_along(self, points: list[_Point]) -> bool:
        """Whether the number of times stays, while the mean changes."""
        means = [math.log(one.seen.even) for one in points]
        ratios = [math.log(one.value) - math.log(one.seen.even) for one in points]
        change, off = max(means) - min(means), max(ratios) - min(ratios)
        return change >= self.at["changes"] and off <= min(self.at["steady"], self.at["along"] * change)

    def _found(self, points: list[_Point], name: str) -> Finding:
        last = points[-1]
        ratios = sorted(one.ratio for one in points)
        ratio, count = ratios[len(ratios) // 2], max(last.times, 1 / last.times)
        shown = f"{ratio:.3g} times" if last.times > 1 else f"1/{1 / ratio:.3g} of"
        divided = (
            "means of batches are divided by the number of targets"
            if last.by == _EACH
            else f"it is divided by the number of {last.by} once too often"
        )
        cause = f"evaluation averaged wrongly: {divided}"
        if last.times > 1 and last.by == _RANKS:
            cause = "evaluation loss summed over ranks: `all_reduce` adds it up, and it is not divided by their number"
        elif last.times > 1:
            cause = f"evaluation loss summed: it is added up over {last.by}, and not divided by their number"
        return self.finding(
            points[0].place[0], f"{name} is {shown} the mean of the cross-entropies that the evaluation computes, in "
            f"{len(points)} evaluations: {last.value:.4g}, where that is {last.seen.loss:.4g}; there are {count:.4g} "
            f"{last.by}.", found=last.place[0], segment=last.place[2], confidence=0.95, causes=[cause],
            evidence={"times": rounded(ratio), "mean": rounded(last.seen.loss), "standing": True},
        )  # fmt: skip


RULES = (EvaluationMultiplied,)
