"""What the loss of a picture's places compares: targets that are mirrored or of other pictures, ignored classes.

In:   figures of the watch, from the output of some examples and its gradient; the graph of the loss.
Out:  findings of `MirroredTargets`, `IgnoredPlaces`, `OtherPlaces`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import usual
from barograph.doctor.kernel.curve import again, rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_LEAST_UPDATE = 1e-4  # of the weights, in a step that could learn something
_OVERLAP = expression(r"(?i)(?:.*[/_. ])?(?:m?iou|jaccard|dice(?:_?score)?|f1|(?:pixel_?)?acc(?:uracy)?)(?:[/_. ].*)?")


class MirroredTargets(WatchRule):
    """What the model says of some pictures agrees with their targets mirrored or turned, and not as they are.

    Of an output with places the gradient shows the targets. For each of some examples the output is compared with its
    own targets, and with those mirrored and turned in all ways. An example counts as mirrored where one of these agrees
    with the output by a correlation of 0.3 or more, nearly as well as outputs usually agree with their targets, and
    the targets themselves by less than half of that. No training makes an output so: it is the picture that the model
    has seen which was mirrored. A finding where in twelve looks in a row a twelfth of the examples is mirrored on the
    average, in half of the looks at least one, and twice as many as agree so well with another example's targets in
    all these ways: labels of other examples fit by chance now and then.

    What to do: draw the flip, the turn or the crop once for each example, and do it to inputs and targets.
    """

    name, family, kind, severity = "mirrored_targets", "data", "data", "warning"
    series = "model/mirrored"
    needs = ("=model/mirrored", "=model/mirrored_by_chance")
    least = 12
    about = "Targets are mirrored or turned against the pictures that they belong to."
    thresholds: ClassVar = {
        "looks": (12.0, "in a row; ours"),
        "share": (1 / 12, "of the examples, on the average; ours"),
        "some": (0.5, "of the looks, with a mirrored example; ours"),
        "chance": (2.0, "times as many as fit another example's targets; ours"),
    }
    causes = ("augmentation of the inputs alone: labels do not match the inputs, which are mirrored or turned",)
    remedies = ("draw the flip, the turn or the crop once for each example, and do it to inputs and targets",)

    def begin(self) -> None:
        self._shares: list[tuple[float, float]] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        looks = int(self.at["looks"])
        self._shares = [*self._shares[1 - looks :], (value, watched(history, "mirrored_by_chance", place))]
        mean, chance = (sum(column) / len(self._shares) for column in zip(*self._shares, strict=True))
        least = max(self.at["share"], self.at["chance"] * chance)
        often = sum(share > 0 for share, _ in self._shares) >= self.at["some"] * looks
        if len(self._shares) == looks and often and mean >= least and self.first(place[2]):
            yield self.finding(
                0, f"The output of {100 * mean:.0f}% of the examples agrees with their targets mirrored or turned, and "
                "not as they are.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"mirrored": rounded(mean), "standing": True},
            )  # fmt: skip


class IgnoredPlaces(WatchRule):
    """The loss leaves out a class of the output, and most places of the pictures are of it.

    The graph of the loss has the number that is ignored: one of the output's own classes. Half of all places or more
    have no gradient, in twelve looks in a row, though inputs vary there as elsewhere (a place that is empty varies
    less). A warning where the loss has fallen by half, and a logged accuracy or overlap (IoU, Dice) is still no better
    than that of a model that never says the class: at most a quarter above the share of the places that count. Without
    such a figure it is an info finding: places that nobody has labelled may be meant.

    What to do: leave `ignore_index` at -100, or take a number behind the last class for what is ignored.
    """

    name, family, kind, severity = "ignored_places", "data", "data", "warning"
    series = "model/idle_places"
    needs = ("=model/idle_places", "=model/ignore_index", "loss")
    least = 12
    about = "The loss leaves out a class that most places of the pictures are of."
    thresholds: ClassVar = {
        "looks": (12.0, "in a row; ours"),
        "share": (0.5, "of the places, without gradient; ours"),
        "varies": (0.3, "of how much inputs vary everywhere; ours"),
        "fell": (0.5, "of the first rows' loss; ours"),
        "above": (0.25, "the share of places that count: an accuracy or overlap; ours"),
    }
    causes = ("loss masked out: the class of most places is the label that is ignored",)
    remedies = ("leave `ignore_index` at -100, or take a number behind the last class for what is ignored",)

    def begin(self) -> None:
        self._idle: list[float] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._idle = [*self._idle, value] if value >= self.at["share"] else []
        loss, number = history.role("loss"), watched(history, "ignore_index", place)
        if len(self._idle) < self.at["looks"] or not number >= 0 or loss is None or not loss.end:
            return
        step = place[0] - 1  # of rows whose step is over
        fell = usual(loss, step, *place[1:], 8) <= self.at["fell"] * loss.first
        if not fell or usual(history.channel("model/idle_input"), *place, 8) < self.at["varies"]:
            return
        best = self._overlap(history, (step, *place[1:]))
        bound = 1 - value + self.at["above"]
        if best <= bound and self.first(place[2], "warning"):
            yield self._found(
                number, value, place, f", and the best figure of how well it does is {best:.3g}", "warning"
            )
        elif math.isnan(best) and self.first(place[2], "info"):
            yield self._found(number, value, place, "", "info")

    def _found(self, number: float, value: float, place: Place, more: str, severity: str) -> Finding:
        return self.finding(
            0, f"The loss ignores class {number:.0f} of the output, which {100 * value:.0f}% of the places have{more}.",
            found=place[0], segment=place[2], severity=severity, confidence=_PROOF if more else 0.5,
            evidence={"class": number, "share": rounded(value)} | ({"standing": True} if more else {}),
        )  # fmt: skip

    def _overlap(self, history: RunHistory, place: Place) -> float:
        """The best accuracy or overlap that is logged, as it is now; NaN where there is none."""
        found = math.nan
        for name in sorted(filter(_OVERLAP.fullmatch, history.channels)):
            now = usual(history.channel(name), *place, 4)
            found = now if not found >= now else found
        return found / 100 if found > 1 else found


class OtherPlaces(WatchRule):
    """What the model says of a picture agrees no better with its own targets than with those of another one.

    Of an output with places the gradient shows the targets. After a hundred steps of a usual size, in the mean of the
    last twelve looks, outputs agree with their own targets by a correlation that is at most 0.06 above that with the
    targets of another picture, and that one is 0.1 to 0.6: the model has learnt where targets usually are, and nothing
    of the pictures. Where all pictures have nearly the same targets, it would be higher. A model whose inputs are its
    targets has no others. Where outputs agree with their own by more than twice that in later looks, it was only early,
    and the finding becomes an info finding.

    What to do: print the names of some pictures beside those of their masks: two lists in another order.
    """

    name, family, kind, severity = "other_places", "data", "data", "warning"
    series = "model/own_targets"
    needs = ("=model/own_targets", "=model/other_targets", "=model/update_p50")
    least = 16
    about = "The model's output agrees with other pictures' targets as well as with those of its own."
    thresholds: ClassVar = {
        "looks": (12.0, "ours"),
        "steps": (100.0, "ours"),
        "above": (0.06, "the correlation with another's targets; ours"),
        "low": (0.1, "of that correlation; ours"),
        "high": (0.6, "of that correlation: all pictures have nearly the same targets; ours"),
    }
    causes = ("labels shuffled: pictures and their masks don't belong together",)
    remedies = (
        "print the names of some pictures beside those of their masks: `sorted()` both lists",
        "draw the crop or the shift once for each example, and do it to picture and mask",
    )

    def begin(self) -> None:
        self._values: list[tuple[float, float]] = []
        self._told: Finding | None = None

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if watched(history, "input_target", place) == 1:
            return
        looks = int(self.at["looks"])
        self._values = [*self._values[1 - looks :], (value, watched(history, "other_targets", place))]
        own, other = (sum(column) / len(self._values) for column in zip(*self._values, strict=True))
        moves = usual(history.channel("model/update_p50"), *place) > _LEAST_UPDATE
        alike = own - other <= self.at["above"] and self.at["low"] <= other <= self.at["high"]
        enough = len(self._values) == looks and place[0] >= self.at["steps"]
        told = self._told
        if told is not None and told.severity != "info" and own - other > 2 * self.at["above"]:
            told.severity, told.confidence = "info", 0.3
            told.message = f"{told.message[:-1]}; by step {place[0]} they agreed better with their own."
            yield again(told)
        if enough and moves and alike and self.first(place[2]):
            self._told = self.finding(
                0, f"Outputs agree with their own targets by a correlation of {own:.2f}, and with those of another "
                f"picture by {other:.2f}, after {place[0]} steps.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"own": rounded(own), "other": rounded(other)},
            )  # fmt: skip
            yield again(self._told)


RULES = (MirroredTargets, IgnoredPlaces, OtherPlaces)
