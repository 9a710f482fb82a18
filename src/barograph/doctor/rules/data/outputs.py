"""What happens to outputs before the loss: dropout on logits, classes that are ignored, parts that are left out.

In:   figures of the watch, from outputs, their gradients and the graph of the loss.
Out:  findings of `DroppedOutputs`, `ScaledOutputs`, `IgnoredClass`, `OutputUnused`, `HiddenTargets`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import options_on
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95


class DroppedOutputs(WatchRule):
    """Dropout is applied to the logits.

    Some of the logits that a cross-entropy, or a logistic loss, is of are exactly 0, in three looks: the same share of
    each class, in rows that are not the same, beside others above and below 0. So a class that is sure is dropped like
    any other, and the loss can't fall below that of the targets that were. Rows that are 0 as a whole, more of them
    than by chance, lost what is before the last layer, as a node whose neighbours were all dropped: no finding.

    What to do: dropout before the last layer, not behind it.
    """

    name, family, kind, severity = "dropped_outputs", "model", "logits", "warning"
    series = "model/dropped_outputs"
    needs = ("=model/dropped_outputs",)
    least = 3
    about = "Dropout is applied to the logits."
    thresholds: ClassVar = {"share": (0.01, "of the logits; ours"), "looks": (3.0, "ours")}
    causes = ("dropout on the logits: a part of them is set to 0 in each step",)
    remedies = ("move the dropout before the last layer: `head(dropout(x))`, not `dropout(head(x))`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value >= self.at["share"], place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"{100 * value:.0f}% of the logits are exactly 0, others in each row: they go through "
                "dropout.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"share": rounded(value), "standing": True},
            )  # fmt: skip


class ScaledOutputs(WatchRule):
    """Logits are multiplied by a number, or divided by one, before the softmax of the training's loss.

    The gradient of a cross-entropy is proportional to the exponential of what the softmax is given: over the model's
    output its logarithm is a line whose slope is the number by which the logits are multiplied there
    (`model/output_scale`). It is not 1, and the same in three looks in a row, to half a hundredth. Divided by more than
    1, the model is hardly ever sure, and steps are small; multiplied, it is sure from the beginning. An evaluation that
    takes the logits as they are has other losses. Where the configuration speaks of a temperature, a scale, a cap,
    a margin, or a teacher, it is meant, and nothing is said; nor of outputs between −1 and 1 that no layer with a bias
    gave, which may be cosines.

    What to do: `cross_entropy(logits, targets)`; a temperature belongs where answers are drawn.
    """

    name, family, kind, severity = "scaled_outputs", "model", "logits", "warning"
    proves = "training"
    series = "model/output_scale"
    needs = ("=model/output_scale",)
    least = 3
    about = "Logits are multiplied, or divided, by a number before the loss."
    thresholds: ClassVar = {
        "looks": (3.0, "in a row; ours"),
        "same": (0.005, "of the number; ours"),
        "other": (1.25, "times 1, or a part as small; ours"),
    }
    causes = ("temperature in the loss: logits are scaled before the softmax, as where answers are drawn",)
    remedies = ("give the logits to the loss as they are: `cross_entropy(logits, targets)`",)

    def begin(self) -> None:
        self._value = 0.0  # of the first look of the row

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if abs(value - self._value) > self.at["same"] * value:
            self._value, self._row = value, []
        other = max(value, 1 / value) >= self.at["other"] if value > 0 else False
        meant = any(_SCALES.search(f"{name}={option}".lower()) for name, option in options_on(history))
        if self.lasts(other and not meant, place, self.at["looks"]):
            how = f"multiplied by {value:.3g}" if value > 1 else f"divided by {1 / value:.3g}"
            yield self.finding(
                self._row[0][0], f"Logits are {how} before the softmax of the loss.", found=place[0],
                segment=place[2], confidence=0.9, evidence={"times": rounded(value), "standing": True},
            )  # fmt: skip


_SCALES = expression(
    r"temp(?:erature)?(?![a-z])|\btau\b|_tau\b|scale|logit|soft_?cap|\bcap\b|margin|arc_?face|cos_?face|mup|multiplier|"
    r"width_mult|distil|teacher|student|\bkd\b|_kd|kd_"
)  # what says that logits are multiplied on purpose


class IgnoredClass(WatchRule):
    """Examples of one class have no part in the loss, since its number is that of targets that are ignored.

    The graph of a cross-entropy with one row an example has as `ignore_index` the number of a class, and in five looks
    in a row a fiftieth of the rows or more have no gradient. The model never learns that class. Where that number says
    that a label is missing, these examples cost time and teach nothing.

    Of tags, or points of pictures, places without a target may be padding. There it is said where the class of that
    number was never a target, of a thousand or more, and in two evaluations in a row a twentieth of the targets or more
    are of it, as their cross-entropy shows, which does not ignore them.

    What to do: `ignore_index=-100`, which no class has.
    """

    name, family, kind, severity = "ignored_class", "data", "data", "warning"
    series = "model/untargeted_rows"
    needs = ("=model/untargeted_rows|=model/asked_untargeted", "=model/ignore_index")
    least = 2
    about = "Examples of one class have no part in the loss."
    thresholds: ClassVar = {
        "share": (0.02, "of the rows; ours"),
        "looks": (5.0, "in a row; ours"),
        "asked": (0.05, "of an evaluation's targets; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("class missing: the number of a class is also the target that is ignored",)
    remedies = ("leave `ignore_index` at -100, which no class has", "leave out examples without a label")

    def reset(self) -> None:
        super().reset()
        self._asked = -1, 0  # a launch, and its evaluations in a row

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        index, width = watched(history, "ignore_index", place), watched(history, "output_width", place)
        holds = self.at["share"] <= value < 1 and 0 <= index < width
        if self.lasts(holds, place, self.at["looks"]):
            yield self.finding(
                0, f"{100 * value:.0f}% of the examples have no part in the loss: their class, {index:.0f} of "
                f"{width:.0f}, is its `ignore_index`.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"share": rounded(value), "class": index, "standing": True},
            )  # fmt: skip

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/asked_untargeted"), self._in_evaluation)]

    def _in_evaluation(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """value: of an evaluation's targets, the share whose class was never one of the training."""
        index, which = (watched(history, name, place) for name in ("ignore_index", "asked_class"))
        segment, count = self._asked
        holds = value >= self.at["asked"] and which == index
        self._asked = place[2], (count if segment == place[2] else 0) + 1 if holds else 0
        if self._asked[1] >= self.at["evaluations"] and self.first(place[2]):
            yield self.finding(
                0, f"{100 * value:.0f}% of the evaluation's targets are of class {index:.0f}, which is the "
                "`ignore_index` of the training's loss, and none of the training's are.",
                found=place[0], segment=place[2], confidence=0.9,
                evidence={"share": rounded(value), "class": index, "standing": True},
            )  # fmt: skip


class OutputUnused(WatchRule):
    """The loss is nothing but the squares of the outputs, and another output of the model, a number a row, is unused.

    The gradient of the output is the same multiple of it in all elements, in five looks in a row: the loss is least
    where all outputs are 0. The model returns another output, with one number for each row, that no gradient reaches:
    the logarithm of a determinant, as normalising flows have it, is what keeps the outputs from 0.

    What to do: `-(base.log_prob(z).sum(-1) + log_determinant).mean()`.
    """

    name, family, kind, severity = "output_unused", "loss", "config", "critical"
    series = "model/output_unused"
    needs = ("=model/output_unused",)
    least = 5
    about = "The loss is nothing but the squares of the outputs, and another output is unused."
    thresholds: ClassVar = {"looks": (5.0, "in a row; ours")}
    causes = ("log-determinant missing: the loss is least where all outputs are 0",)
    remedies = ("add what the model returns beside: `-(base.log_prob(z).sum(-1) + log_determinant).mean()`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value == 1, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], "The gradient of each output is the same multiple of it, so the loss is least where "
                "all are 0; a second output with a number for each row is in no loss.", found=place[0],
                segment=place[2], confidence=0.9, evidence={"standing": True},
            )  # fmt: skip


class HiddenTargets(WatchRule):
    """Targets are classes or places that a mask hides.

    In two looks in a row, the logits of a fiftieth of the targets or more are what a mask leaves, such as -1e4 or -1e9:
    far below the likeliest, and one and the same number. The model can't say them, and each of them has a loss as large
    as that number. So it is with spans whose ends lie in padding or were counted in other units, with masks that are
    inverted, and with actions that are not allowed.

    What to do: compare a target with its row's mask; count places as the model's input has them, with special tokens
    and prompts.
    """

    name, family, kind, severity = "hidden_targets", "data", "data", "critical"
    series = "model/hidden_targets"
    needs = ("=model/hidden_targets",)
    least = 2
    about = "Targets are classes or places that a mask hides."
    thresholds: ClassVar = {"share": (0.02, "of the targets; ours"), "looks": (2.0, "in a row; ours")}
    causes = ("labels do not match the inputs: targets are where the logits are masked",)
    remedies = (
        "compare targets with the mask, `mask.gather(1, target)`: is it inverted?",
        "count places as the model's input has them: with special tokens, prompts and what was cut off",
    )

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value >= self.at["share"], place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"{100 * value:.3g}% of the targets are classes or places whose logits a mask has set "
                "to one number far below all others.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"share": rounded(value), "standing": True},
            )  # fmt: skip


RULES = (DroppedOutputs, ScaledOutputs, IgnoredClass, OutputUnused, HiddenTargets)
