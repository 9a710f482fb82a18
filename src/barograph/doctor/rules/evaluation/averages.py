"""An average of the weights that is evaluated, and lags far behind what is trained.

In:   evaluations, the training at those times, and whether the watched model itself was evaluated.
Out:  findings of `AverageBehind`, `AverageWrong`, `TeacherStill`, `TeacherSwapped`, `TeacherUnset`, `TeacherGradients`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import came_by, evaluations_of, known, newest, other_model
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.evaluation.evaluations import EvaluationPoint, Walker, beside_average
from barograph.doctor.rules.rl.preference import is_preference, margins_of

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


_WITH_AVERAGE = expression(
    r"(?=.*(?:^|_)(?:eval|evaluate|evaluation|valid|validate|validation|val)(?:_|$))"
    r"(?=.*(?:(?:^|_)ema(?:_|$)|(?:weight|model|param\w*)_averag|averaged?_(?:weight|model|param)))"
)
_LATER = expression(r"(?:ema|averag).*(?:start|begin|warm|after|delay|from|burn)|(?:start|warm\w*|burn\w*)_ema")
_MEMORIES = 3.0  # behind which a twentieth is left of what an average was
_FINAL = expression(r"final|(?:^|_)last(?:_|$)|(?:^|_)test(?:_|$)|also|both")


class AverageBehind(Walker):
    """Another model is evaluated than the one that is trained, and it is far behind.

    The watched model has had no pass without gradients, though evaluations are logged: a copy is evaluated, as an
    average of the weights is. In four evaluations in a row, behind the first four, its loss falls or stays within a
    five-hundredth, is half as large again as the training's or more, and is one that the training had passed in the
    first quarter of the steps. Where it is at nine tenths of the training's first loss or above in all evaluations, a
    difference of a twentieth counts as none: these weights are as they were drawn. One that is a fifth above the first
    evaluation says nothing of an average: weights that are behind get no worse by themselves. An average with decay d
    holds the weights of the last 1 / (1 − d) steps: 10,000 for 0.9999. Where the watch has seen how many steps it holds
    (`model/evaluated_kept`), and three times as many have passed since the training had that loss, it is not behind.

    Losses of two kinds, as `ce` and `bce`, by their names or by what the watch knows, are not compared in size.

    What to do: a decay that fits the length of the training, or one that grows: min(d, (1 + t) / (10 + t)).
    """

    name, kind, severity = "average_behind", "eval", "warning"
    compares = True
    proves = "evaluation"
    needs = ("eval_loss", "loss", "=model/passes")
    least = 8
    about = "What is evaluated is far behind what is trained."
    sources = ()
    thresholds: ClassVar = {
        "worse": (1.5, "evaluation over training loss; ours"),
        "share": (0.25, "of the steps, in which the training had that loss; ours"),
        "still": (0.002, "of the evaluation before; ours"),
        "drawn": (0.9, "of the training's first loss: weights as they were drawn; ours"),
        "near": (0.05, "of the evaluation before, of such weights; ours"),
        "rises": (1.2, "times the first evaluation; ours"),
        "evaluations": (4.0, "in a row, and that many before them; ours"),
    }
    causes = ("averaged weights not updated: or by too little, with a decay too slow for this training",)
    remedies = (
        "choose a decay d of the average with 1 / (1 − d) steps well below the training's, or let it grow: "
        "min(d, (1 + t) / (10 + t))",
        "check that the average is updated at each step, buffers included, and begins as a copy of the weights",
    )

    def reset(self) -> None:
        super().reset()
        self._waits: tuple[EvaluationPoint, int] | None = None

    def begin(self) -> None:
        self._points: list[EvaluationPoint] = []
        self._waits, self._still, self._drawn = None, True, True
        self._behind, self._lowest = 0, math.inf  # lowest: training loss of the points
        self._origin = math.nan  # the first evaluation

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        before = self._points[-1] if self._points else None
        passed = point.step
        if self._lowest <= point.value:  # the points that are kept may begin after the lowest
            passed = next((one.step for one in self._points if one.train <= point.value), point.step)
        self._lowest = min(self._lowest, point.train)
        self._points.append(point)
        loss = history.role("loss")
        drawn = loss is not None and loss.end > 0 and point.value >= self.at["drawn"] * loss.first > 0
        self._drawn = self._drawn and drawn
        limit = self.at["near" if self._drawn else "still"]
        change, same = (point.value - before.value, limit * abs(before.value)) if before else (0.0, 0.0)
        falls, self._still = before is not None and change < same, self._still and abs(change) <= same
        self._origin = point.value if self._origin != self._origin else self._origin
        worse = point.train > 0 and point.value > self.at["worse"] * point.train
        worse = worse and not point.value > self.at["rises"] * self._origin
        early = passed <= self.at["share"] * point.step
        few = len(self._points) <= self.at["evaluations"]
        self._behind = 0 if few or not (falls and worse and early) else self._behind + 1
        if self._behind < self.at["evaluations"]:
            return
        self._waits = point, passed  # the watch's records of a short run come behind its evaluations
        yield from self._say(history, point, passed, int(channel.rows(point.row, point.row + 1).time[0]))

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        if history.facts.get("finished") and self._waits is not None:
            yield from self._say(history, *self._waits, 1 << 62)

    def _say(self, history: RunHistory, point: EvaluationPoint, passed: int, time: int) -> Iterator[Finding]:
        place = point.step + 1, time, point.segment  # the watch tells of an evaluation at the step behind it
        if _MEMORIES * _memory(history, place) <= point.step - passed:
            return
        if not other_model(history, time) or not self.first(point.segment):
            return
        yield self.finding(
            self._points[0].step,
            f"The evaluation loss {'stays at' if self._still else 'falls, to'} {point.value:.4g} at step {point.step}, "
            f"where the training had it by step {passed} and is at {point.train:.4g}; and it is of another model than "
            "the one that is trained",
            found=point.step,
            segment=point.segment,
            evidence={"evaluation": rounded(point.value), "train": rounded(point.train), "passed": passed},
            confidence=0.95 if self._drawn or self._still else 0.8,
        )


def _memory(history: RunHistory, place: Place) -> float:
    """How many steps the average holds that was evaluated last, as far as the watch has seen; NaN if it has not."""
    steps, kept = history.channel("model/evaluated_steps"), watched(history, "evaluated_kept", place)
    if steps is None or not 0 < kept < 1:
        return math.nan
    before, last = newest(steps, *place, 2)
    return float(last - before) / -math.log(kept)


class AverageWrong(WatchRule):
    """An evaluation is made with an average of the weights that is not one.

    The watch compares some weights with which evaluations are made with those that are trained. They are the newest
    ones for the most part, three fifths or more, and those of the step before, in three evaluations in a row behind the
    twentieth step: the decay is swapped with 1 − decay. Or a tenth or more of the weights is missing in all matrices,
    the same share of each (within 15% of it), and the second evaluation's are what an average is that began at zeros:
    of the share s that was missing after t steps, s^(u/t) after u, within 0.03. What is missing is known from those of
    the first step and the newest ones, of which an average that lags has all in all as much as any other. Or they move,
    are others than the trained ones, and the running statistics of the batch norm beside them never move, while the
    trained model's do, in three evaluations in a row, or in two where their means are 0 throughout, as torch makes
    them. Or they are the same in three evaluations in a row, to the last bit, while the trained ones move, and the
    trained ones are not evaluated themselves, or both evaluations are logged, by their names, as `val_loss` and
    `val_loss_ema`, and the average's loss is the same in all: the average is not updated, or by less than a number of
    sixteen bits can hold. Or the configuration says that evaluations are made with the average, from the beginning, and
    all of a whole training, three or more, are made with exactly the trained weights; a copy of the model was there
    behind the second step, and none is called. Where there was no copy then, one that was made later may be: nothing is
    said.

    What to do: see in the loop where the average is made, updated behind each step, and put into what is evaluated.
    """

    name, kind, severity, family = "average_wrong", "eval", "warning", "eval"
    proves = "evaluation"
    series = "model/evaluated_apart"
    needs = ("=model/evaluated_apart", "eval_loss|eval_accuracy|evaluation")
    least = 2
    about = "Evaluations are made with an average of the weights that is not one."
    thresholds: ClassVar = {
        "newest": (0.6, "share of the newest weights: a decay of 0.4 averages next to nothing; ours"),
        "evaluations": (3.0, "in a row; ours"),
        "steps": (20.0, "before these: a decay may grow from 0; ours"),
        "small": (0.1, "of the weights' size that is missing in the first evaluation; ours"),
        "alike": (0.15, "of that, how far matrices differ; ours"),
        "off": (0.03, "of the weights' size, from what an average from zeros is; ours"),
    }
    remedies = (
        "behind each `optimizer.step()`: `average = decay * average + (1 - decay) * weights`, begun as a copy",
        "put the average into what is evaluated, with its buffers, and the trained weights back",
    )

    def begin(self) -> None:
        self._rows = dict.fromkeys(("newest", "statistics", "still", "raw"), 0)
        self._missing: tuple[float, float] | None = None
        self._evaluations = 0
        self._last: Place | None = None

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        last = self._last if history.facts.get("finished") and self._segment >= 0 else None
        enough = last is not None and self.at["evaluations"] <= self._evaluations == self._rows["raw"]
        if last is not None and enough and _evaluates_average(history) and self.first(last[2]):
            yield self._say("raw", 0.0, {}, last)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("share", "alike", "newest", "whose", "statistics", "moved", "changed", "whole", "whole_least", "steps")
        seen = {name: watched(history, f"evaluated_{name}", place) for name in names}
        if not came_by(evaluations_of(history), place[1]):
            return
        self._evaluations, self._last = self._evaluations + 1, place
        zeros = self._zeros(value, seen, place)
        holds = {
            "newest": self.at["newest"] <= seen["newest"] < 1 - 1e-5 and place[0] > self.at["steps"],
            "statistics": seen["statistics"] == 1 and value > 0 and seen["changed"] > 0,
            "still": value > 0 and seen["changed"] == 0 and seen["moved"] > 0 and self._is_average(history, place),
            "raw": value == 0 and seen["whose"] == 1 and seen["moved"] != 0,
        }
        self._rows = {name: self._rows[name] + 1 if held else 0 for name, held in holds.items()}
        enough = {name: self.at["evaluations"] for name in holds}
        enough["statistics"] -= watched(history, "evaluated_unset", place) == 1  # as torch makes them: no average's
        told = (name for name in ("newest", "statistics", "still") if self._rows[name] >= enough[name])
        key = next(told, "")
        if (zeros or key) and self.first(place[2]):
            yield self._say("zeros" if zeros else key, value, seen, place)

    def _is_average(self, history: RunHistory, place: Place) -> bool:
        """Whether a copy alone is evaluated, or one whose loss is that of an average by its name, and does not change
        either; and not as the reference of a policy or of preferences."""
        if has_reference(history, place):
            return False
        both = beside_average(history, place[1])
        named = len(both) >= self.at["evaluations"] and len({averaged for averaged, _ in both}) == 1
        return other_model(history, place[1]) or named

    def _zeros(self, value: float, seen: dict[str, float], place: Place) -> bool:
        """Whether this is the second evaluation of an average that began at zeros."""
        before, (missing, apart) = self._missing, _missing(seen)
        # the record is of the step behind, and a loop counts from 0 or from 1
        steps = seen["steps"] if 0 <= place[0] - seen["steps"] <= 1 else place[0] - 1
        if self._evaluations == 1 and self.at["small"] <= missing < 1:
            even = apart <= self.at["alike"] * missing and value >= self.at["small"]
            self._missing = (steps, missing) if even else None
        if self._evaluations != 2 or before is None or steps <= before[0] or before[0] < 1:
            return False
        expected = before[1] ** (steps / before[0])
        return bool(abs(missing - expected) <= self.at["off"] and expected < before[1] - self.at["off"])

    def _say(self, key: str, value: float, seen: dict[str, float], place: Place) -> Finding:
        if key == "newest":
            message = f"The average with which evaluations are made takes {100 * seen['newest']:.3g}% of the newest "
            message += "weights at each step."
            cause = "decay of the average swapped: the newest weights are taken by `decay`, and not by `1 - decay`"
        elif key == "statistics":
            message = "The running statistics of batch norm with which evaluations are made do not move, and those of "
            message += "the training do."
            cause = "buffers not averaged: averaged weights are evaluated with batch norm's statistics of the beginning"
        elif key == "still":
            message = "The weights with which evaluations are made do not change at all, and the trained ones do."
            cause = "averaged weights not updated: they are the same in all evaluations"
        elif key == "raw":
            message = "Evaluations are made with the trained weights, and the configuration says with their average."
            cause = "averaged weights not evaluated: the trained ones are"
        else:
            message = f"Of the weights {100 * (1 - _missing(seen)[0]):.3g}% are in those of evaluations, as in an "
            message += "average that began at zeros."
            cause = "average from zeros: it begins at zeros, and is not corrected for it"
        return self.finding(
            place[0], message, found=place[0], segment=place[2], confidence=0.95, causes=[cause],
            evidence={"apart": rounded(value), "standing": True},
        )  # fmt: skip


def _missing(seen: Mapping[str, float]) -> tuple[float, float]:
    """Which share of the weights is missing in those of an evaluation, and by how much that is another one in matrices
    than in others. Older records have their size along the trained ones alone."""
    if seen["whole"] == seen["whole"]:
        return (1 - seen["whole"], seen["whole"] - seen["whole_least"]) if seen["whole"] > -1 else (math.nan, math.nan)
    return 1 - seen["share"], seen["alike"]


def _evaluates_average(history: RunHistory) -> bool:
    """Whether the configuration says that evaluations are made with an average of the weights, from the beginning."""
    found = {name.rpartition(".")[2].lower(): value for name, value in history.options.found.items()}
    later = any(_LATER.search(name) and value not in (None, False, 0) for name, value in found.items())
    said = any(
        value is True and _WITH_AVERAGE.search(name) and not _FINAL.search(name) for name, value in found.items()
    )
    return said and not later


def has_reference(history: RunHistory, place: Place) -> bool:
    """Whether a policy or preferences are trained: another network that is asked may be their reference."""
    policy = history.role("reward") is not None or is_preference(history, place[1])
    return policy or watched(history, "loss_of_chosen", place) == 1


class TeacherStill(WatchRule):
    """The teacher that a model learns from is a copy of it as it was drawn, and is never updated.

    In the first steps the watch finds a network of the same make that is called in these steps and gets no gradients.
    Its weights are those of the trained one, to a tenth of their size, and these were as torch draws them: nobody
    trained it. In 20 looks or more, over a hundred steps, it does not change at all, while the trained one moves
    away from it, three times as far as it was and a fiftieth of its size. References of a policy or a preference
    (a reward, or a logistic loss of differences, shows them) are left to their own rules.

    What to do: after each step `teacher = m * teacher + (1 - m) * student`, of all parameters, under `no_grad()`.
    """

    name, family, kind, severity = "teacher_still", "model", "frozen", "warning"
    series = "model/other_apart"
    needs = ("=model/other_apart", "=model/other_asked", "=model/drawn")
    least = 20
    about = "The teacher that a model learns from is as it was drawn, and is never updated."
    thresholds: ClassVar = {
        "copy": (0.1, "of the weights' size, from the trained one at the first look; ours"),
        "looks": (20.0, "without any change; ours"),
        "asked": (10.0, "looks in whose step it was called; ours"),
        "steps": (100.0, "ours"),
        "apart": (0.02, "of the weights' size, how far the trained one has come; tables of tokens move little; ours"),
        "times": (3.0, "the distance at the first look; ours"),
    }
    causes = ("averaged weights not updated: the teacher is as it was drawn, and never changes",)
    remedies = ("after each step `teacher = m * teacher + (1 - m) * student`, of all parameters, under `no_grad()`",)

    def begin(self) -> None:
        self._began: tuple[Place, float] | None = None
        self._looks = self._asked = 0
        self._still = True

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        first = self._began is None
        self._began = self._began or (place, value)
        self._looks += 1
        self._asked += known(history.channel("model/other_asked"), *place) == 1 and self._looks <= self.at["looks"]
        moved = known(history.channel("model/other_moved"), *place)
        self._still = self._still and (first or moved == 0)
        came, near = self._began
        enough = self._looks >= self.at["looks"] and self._asked >= self.at["asked"]
        far = near <= self.at["copy"] and value >= max(self.at["apart"], self.at["times"] * near)
        if not (self._still and enough and far and place[0] - came[0] >= self.at["steps"]):
            return
        if _of_policy(history, place) or watched(history, "drawn", place) != 1:
            return
        if self.first(place[2]):
            yield self.finding(
                came[0], f"The network that is called beside the trained one is as it was drawn after "
                f"{place[0] - came[0]} steps, and the trained one is {100 * value:.2g}% of its size away from it.",
                found=place[0], segment=place[2], confidence=0.95,
                evidence={"apart": rounded(value), "standing": True},
            )  # fmt: skip


class TeacherSwapped(WatchRule):
    """The teacher that a model learns from takes nearly all of the newest weights: the decay of its average is swapped.

    In the first steps the watch finds a network of the same make that is called in these steps and gets no gradients.
    An average that takes the share s of the newest weights moves by s of the way to them: it is then (1 − s) / s of
    what it has moved away from them. In 15 looks in a row, at each step, it is a tenth of that or less, and not 0: it
    takes ten elevenths or more. One that is a copy, as where there is no average at all, is at 0 itself. References
    of a policy or a preference (a reward, or a logistic loss of differences, shows them) are left to their own rules.

    What to do: `teacher = m * teacher + (1 - m) * student`, with m near 1.
    """

    name, family, kind, severity = "teacher_swapped", "model", "config", "warning"
    series = "model/other_apart"
    needs = ("=model/other_apart", "=model/other_moved", "=model/other_asked")
    least = 15
    about = "The teacher that a model learns from takes nearly all of the newest weights."
    thresholds: ClassVar = {
        "near": (0.1, "of the way that it has moved in a step; ours"),
        "looks": (15.0, "in a row; ours"),
    }
    causes = ("decay of the average swapped: the newest weights are taken by `m`, and not by `1 - m`",)
    remedies = ("`teacher = m * teacher + (1 - m) * student`, with m near 1, not the other way round",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        moved = known(history.channel("model/other_moved"), *place)
        near = 0 < value <= self.at["near"] * moved and known(history.channel("model/other_asked"), *place) == 1
        if self.lasts(near and not _of_policy(history, place), place, self.at["looks"]):
            share = moved / (moved + value)
            yield self.finding(
                self._row[0][0], f"The network that is called beside the trained one takes {100 * share:.3g}% of the "
                "newest weights at each step.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"share": rounded(share), "standing": True},
            )  # fmt: skip


class TeacherUnset(WatchRule):
    """The teacher that a model learns from normalises by running statistics that nothing was gathered in.

    In the first steps the watch finds a network of the same make that is called in these steps and gets no gradients.
    In ten looks in a row, at each step, its layers of batch norm are in evaluation mode, their running mean is 0 and
    their running variance 1 throughout, and its weights move: it is an average that takes weights, and no statistics. A
    network that was drawn and is never trained moves not at all.

    What to do: call the teacher in training mode, or copy the buffers (`running_mean`, `running_var`) as well.
    """

    name, family, kind, severity = "teacher_unset", "model", "config", "warning"
    series = "model/other_unset"
    needs = ("=model/other_unset", "=model/other_moved")
    least = 10
    about = "The teacher that a model learns from normalises by statistics that were never gathered."
    thresholds: ClassVar = {"looks": (10.0, "in a row; ours")}
    causes = ("buffers not copied: the teacher's batch norm is in evaluation mode with statistics as torch makes them",)
    remedies = ("call the teacher in training mode, or copy `running_mean` and `running_var` with the weights",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        moves = known(history.channel("model/other_moved"), *place) > 0
        if self.lasts(value == 1 and moves, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], "The network that is called beside the trained one normalises by a running mean of 0 "
                "and a running variance of 1: its batch norm is in evaluation mode, and nothing was gathered in it.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"standing": True},
            )  # fmt: skip


def _of_policy(history: RunHistory, place: Place) -> bool:
    """Whether a second network may be the reference of a policy or of preferences, or a target of values."""
    reward = history.role("reward") is not None or came_by(margins_of(history), place[1])
    return reward or watched(history, "loss_of_chosen", place) == 1 or watched(history, "loss_ranks", place) >= 0


class TeacherGradients(WatchRule):
    """The teacher that a model learns from, an average of its weights, is run with gradients.

    In the first steps the watch finds a network of the same make that is called in these steps and gets gradients. In
    three steps in a row its weights then move straight towards those of the trained one (a cosine of 0.999 or more of
    the move and the way): they are an average, and no optimizer steps by these gradients. The loss's graph is twice as
    large as it need be, and what reaches the teacher is lost.

    What to do: `with torch.no_grad():` around the teacher's passes, and `requires_grad_(False)` for its parameters.
    """

    name, family, kind, severity = "teacher_gradients", "model", "memory", "warning"
    series = "model/other_along"
    needs = ("=model/other_along", "=model/other_gradient")
    least = 3
    about = "A teacher that is an average of the weights is run with gradients."
    thresholds: ClassVar = {
        "along": (0.999, "a cosine; half precision and an optimizer of its own leave less; ours"),
        "looks": (3.0, "steps in a row; ours"),
    }
    causes = ("no_grad missing: the teacher, an average of the weights, is run with gradients",)
    remedies = ("run the teacher under `torch.no_grad()`, and set `teacher.requires_grad_(False)`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(self.at["along"] <= value < math.inf, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], "The network that is called beside the trained one gets gradients, and its weights "
                "are an average of the trained ones.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"standing": True},
            )  # fmt: skip
